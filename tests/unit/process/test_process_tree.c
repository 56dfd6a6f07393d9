/* test_process_tree.c - what is left of handlers that were ended, many at once
 */
#include "tests/unit/base/passing_clock.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/process/environment.h"
#include "worker/process/process_scan.h"
#include "worker/process/subreaper.h"
#include "worker/process/process.h"
#include "worker/process/process_tree.h"
#include "worker/process/stderr_tail.h"

#define HANDLERS 12

/* A handler whose leader has ended with status 3, and is a zombie. */
struct ended {
    struct process_tree_of of;
    struct stderr_tail tail;
    pthread_t thread;
};

static struct process_tree *remains;
static uint64_t nonce;
static struct ended ended[HANDLERS];

static void setup(void)
{
    nonce = clock_wall_ns() * 2654435761u + (uint64_t)getpid();
    log_setup(LOG_ERROR, LOG_TEXT);
    cr_assert_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    cr_assert_eq(process_tree_open(&remains, nonce), 0);
}

/* teardown - a failed test leaves processes */
static void teardown(void)
{
    struct process_scan_delivery all[HANDLERS];
    struct process_scan *m;

    for (unsigned i = 0; i < HANDLERS; i++)
        all[i] = (struct process_scan_delivery){.seq = i};
    cr_assert_eq(process_scan_open(&m), 0);
    process_scan_end(
        m, &(struct process_scan_choice){
               .nonce = nonce, .of = all, .count = HANDLERS, .ours = true});
    process_scan_close(&m);
    process_tree_close(&remains);
}

TestSuite(remains, .init = setup, .fini = teardown, .timeout = 60);

/* start - handler `i`: "sh -c SCRIPT", whose `parts` say a byte when up */
static void start(unsigned i, const char *script, unsigned parts)
{
    char mark[ENVIRONMENT_MARK], sh[] = "sh", option[] = "-c", byte;
    char path[] = "PATH=/usr/bin:/bin", text[1024];
    char *argv[] = {sh, option, text, NULL}, *env[] = {path, mark, NULL};
    struct ended *e = &ended[i];
    struct process p;
    siginfo_t info;
    int fds[2];

    environment_mark(nonce, i, mark);
    snprintf(text, sizeof text, "%s", script);
    cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
    cr_assert_eq(
        process_start(&p, "/bin/sh", argv, env, (int[]){-1, -1, fds[1]}), 0);
    close(p.end);
    e->of.group = p.pid;
    e->of.end = -1;
    close(fds[1]);
    for (unsigned n = 0; n < parts; n++)
        cr_assert_eq(read(fds[0], &byte, 1), 1);
    close(fds[0]);
    cr_assert_eq(waitid(P_PID, (id_t)e->of.group, &info, WEXITED | WNOWAIT), 0);
    stderr_tail_init(&e->tail, "id", NULL);
    e->of.tail = &e->tail;
    e->of.seq = i;
    e->of.stderr_fd = -1;
}

/* reaped - the leader's status is still there, and it was the last child */
static void reaped(unsigned count)
{
    siginfo_t info;

    for (unsigned i = 0; i < count; i++) {
        cr_assert_eq(
            waitid(P_PID, (id_t)ended[i].of.group, &info, WEXITED | WNOHANG),
            0);
        cr_assert_eq(info.si_status, 3);
    }
    cr_assert_eq(waitid(P_ALL, 0, &info, WEXITED | WNOHANG), -1);
}

#define UP       "printf x >&2; "
#define STUBBORN "sh -c 'trap \"\" TERM; " UP "exec sleep 1000 2>&-' & "
#define SETSID   "setsid sh -c '" UP "exec sleep 1000 2>&-' & "

static void *end(void *arg)
{
    struct ended *e = arg;

    process_tree_end(remains, &e->of);
    return NULL;
}

Test(remains, nothing_of_many_that_end_at_once_is_left)
{
    for (unsigned i = 0; i < HANDLERS; i++) {
        start(i, STUBBORN SETSID SETSID "exit 3", 3);
        ended[i].of.kill_at_ns = clock_mono_ns();
    }
    for (unsigned i = 0; i < HANDLERS; i++)
        cr_assert_eq(pthread_create(&ended[i].thread, NULL, end, &ended[i]), 0);
    for (unsigned i = 0; i < HANDLERS; i++)
        pthread_join(ended[i].thread, NULL);
    reaped(HANDLERS);
}

Test(remains, a_group_has_until_the_end_of_its_grace)
{
    uint64_t grace = clock_mono_ns() + 300 * NS_PER_S;

    start(0, STUBBORN "exit 3", 1);
    ended[0].of.kill_at_ns = grace;
    clock_passes = clock_always;
    end(&ended[0]);
    clock_passes = NULL;
    cr_assert_geq(clock_mono_ns(), grace);
    reaped(1);
}

Test(remains, a_group_that_is_gone_is_not_waited_for)
{
    start(0, SETSID "exit 3", 1);
    ended[0].of.kill_at_ns = clock_mono_ns() + 3600 * NS_PER_S;
    end(&ended[0]);
    reaped(1);
}

Test(remains, nobody_has_a_grace_in_a_hurry)
{
    start(0, STUBBORN SETSID "exit 3", 2);
    ended[0].of.kill_at_ns = clock_mono_ns() + 3600 * NS_PER_S;
    cr_assert_eq(pthread_create(&ended[0].thread, NULL, end, &ended[0]), 0);
    process_tree_hurry(remains);
    pthread_join(ended[0].thread, NULL);
    reaped(1);
}

Test(remains, that_there_are_no_orphans_is_seen)
{
    siginfo_t info;

    cr_assert(subreaper_none_but(NULL, 0));
    start(0, SETSID "exit 3", 1);
    waitid(P_PID, (id_t)ended[0].of.group, &info, WEXITED);
    cr_assert_not(subreaper_none_but(NULL, 0));
}
