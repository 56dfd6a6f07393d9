/* test_leftovers.c - killing what terminated handlers leave behind
 */
#include "tests/fixtures/passing_clock.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/loop/loop.h"
#include "worker/loop/timers.h"
#include "worker/process/environment.h"
#include "worker/process/leftovers.h"
#include "worker/process/process.h"
#include "worker/process/stderr_tail.h"

#define HANDLERS 12

/* A handler whose leader has ended with status 3, and is a zombie. */
struct ended {
    struct leftovers_of of;
    struct stderr_tail tail;
    pthread_t thread;
};

static struct leftovers *leftovers;
static struct timers *timers;
static struct loop *loop;
static uint64_t nonce;
static struct ended ended[HANDLERS];

static void setup(void)
{
    nonce = clock_wall_ns() * 2654435761u + (uint64_t)getpid();
    log_setup(LOG_ERROR, LOG_TEXT);
    cr_assert_eq(timers_open(&timers), 0);
    cr_assert_eq(loop_open(&loop, timers), 0);
    cr_assert_eq(leftovers_open(&leftovers, nonce, timers, loop), 0);
}

/* Kill the processes that a failed test has left. */
static void teardown(void)
{
    struct process_search_delivery all[HANDLERS];
    struct process_search *m;

    for (unsigned i = 0; i < HANDLERS; i++)
        all[i] = (struct process_search_delivery){.seq = i};
    cr_assert_eq(process_search_open(&m), 0);
    process_search_end(
        m, &(struct process_search_choice){
               .nonce = nonce, .of = all, .count = HANDLERS, .ours = true});
    process_search_close(&m);
    leftovers_close(&leftovers);
    cr_assert_null(leftovers);
    loop_close(&loop);
    timers_close(&timers);
}

TestSuite(leftovers, .init = setup, .fini = teardown);

/* Start handler `i`, "sh -c SCRIPT". Wait until each of its `parts` processes
 * has written a byte to stderr, and until its leader has exited. */
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
        process_start(&p, "/bin/sh", argv, env, (int[]){-1, -1, fds[1]}, 0), 0);
    close(p.end);
    e->of.group = p.pid;
    e->of.end = -1;
    close(fds[1]);
    for (unsigned n = 0; n < parts; n++)
        cr_assert_eq(read(fds[0], &byte, 1), 1);
    close(fds[0]);
    cr_assert_eq(waitid(P_PID, (id_t)e->of.group, &info, WEXITED | WNOWAIT), 0);
    stderr_tail_init(&e->tail, "id", 0, NULL);
    e->of.tail = &e->tail;
    e->of.seq = i;
    e->of.stderr_fd = -1;
}

/* Check that the leaders' statuses were left to us, and no other child. */
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

    leftovers_end(leftovers, &e->of);
    return NULL;
}

Test(leftovers, nothing_of_many_that_end_at_once_is_left)
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

Test(leftovers, a_group_has_until_the_end_of_its_grace)
{
    uint64_t grace = clock_mono_ns() + 300 * NS_PER_S;

    start(0, STUBBORN "exit 3", 1);
    ended[0].of.kill_at_ns = grace;
    clock_passes = clock_always;
    end(&ended[0]);
    clock_passes = (bool (*)(void))0;
    cr_assert_geq(clock_mono_ns(), grace);
    reaped(1);
}

Test(leftovers, a_group_that_is_gone_is_not_waited_for)
{
    start(0, SETSID "exit 3", 1);
    ended[0].of.kill_at_ns = clock_mono_ns() + 3600 * NS_PER_S;
    end(&ended[0]);
    reaped(1);
}

Test(leftovers, nobody_has_a_grace_in_a_hurry)
{
    start(0, STUBBORN SETSID "exit 3", 2);
    ended[0].of.kill_at_ns = clock_mono_ns() + 3600 * NS_PER_S;
    cr_assert_eq(pthread_create(&ended[0].thread, NULL, end, &ended[0]), 0);
    leftovers_hurry(leftovers);
    pthread_join(ended[0].thread, NULL);
    reaped(1);
}

/* The leader got no SIGTERM, but has the same grace as its group. */
Test(leftovers, a_leader_that_stays_has_its_grace_and_is_killed)
{
    char sleep_word[] = "sleep", time_word[] = "1000";
    char *argv[] = {sleep_word, time_word, NULL}, *env[] = {NULL};
    uint64_t grace = clock_mono_ns() + 100 * NS_PER_MS;
    struct process p;
    siginfo_t info;

    cr_assert_eq(
        process_start(&p, "/bin/sleep", argv, env, (int[]){-1, -1, -1}, 0), 0);
    stderr_tail_init(&ended[0].tail, "id", 0, NULL);
    ended[0].of = (struct leftovers_of){.group = p.pid,
                                        .end = p.end,
                                        .kill_at_ns = grace,
                                        .stderr_fd = -1,
                                        .tail = &ended[0].tail};
    end(&ended[0]);
    cr_assert_geq(clock_mono_ns(), grace);
    cr_assert_eq(waitid(P_PID, (id_t)p.pid, &info, WEXITED | WNOHANG), 0);
    cr_assert_eq(info.si_status, SIGKILL);
}

Test(leftovers, that_there_are_no_orphans_is_seen)
{
    siginfo_t info;

    cr_assert(leftovers_none_but(NULL, 0));
    start(0, SETSID "exit 3", 1);
    waitid(P_PID, (id_t)ended[0].of.group, &info, WEXITED);
    cr_assert_not(leftovers_none_but(NULL, 0));
}
