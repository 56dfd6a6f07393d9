/* test_handler_exec.c - the time limit of a process and what follows it:
 * SIGTERM, --kill-after, SIGKILL
 *
 * Processes are real and are waited for; limits are hours, which pass when the
 * test says so.
 */
#include "tests/fixtures/logged.h"
#include "tests/fixtures/passing_clock.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/handlers/handler.h"
#include "worker/loop/loop.h"

#define HOUR   (3600 * NS_PER_S)
#define MINUTE (60 * NS_PER_S)

static char sh[] = "/bin/sh", option[] = "-c", script[512];
static char *command[] = {sh, option, script, NULL};
static struct settings set;
static struct timers *timers;
static struct loop *loop;
static struct handler *handler;
static struct ulid id;
static struct message message;
static struct delivery d;
static struct outcome out;
static pthread_t thread;
static int up[2]; /* a byte from each process that is ready */
static pid_t group;
static sem_t named, go; /* its group was told; the limit may pass */
static atomic_uint over_soon;
static atomic_bool told;

/* ---- a source of one message ---- */

static void on_handler(struct message *m, uint64_t mark, uint64_t start,
                       pid_t its_group)
{
    (void)m;
    cr_assert_eq(mark, 0, "the mark is not the sequence");
    cr_assert_gt(start, 0);
    group = its_group;
    sem_post(&named);
}

static const struct message_ops ops = {.handler = on_handler};

static void lend(void)
{
    static const unsigned char body[] = "body";

    id = ulid_make(1);
    message.ops = &ops;
    message.data = body;
    message.size = 4;
    message.id = &id;
    message.seq = 7;
    delivery_read(&d, &message, 0);
}

static void setup(void)
{
    struct problem p = {0};
    struct handler_setup with = {.settings = &set, .nonce = clock_wall_ns()};

    logged_begin();
    settings_init(&set);
    set.command = command;
    set.timeout_ns = HOUR;
    set.kill_after_ns = MINUTE * 10;
    snprintf(set.queue, sizeof set.queue, "/q");
    cr_assert_eq(timers_open(&timers), 0);
    cr_assert_eq(loop_open(&loop, timers), 0);
    with.timers = timers;
    with.loop = loop;
    cr_assert_eq(handler_exec.open(&handler, &with, &p), 0, "%s", p.text);
    cr_assert_eq(pipe(up), 0);
    cr_assert_eq(sem_init(&named, 0, 0), 0);
    cr_assert_eq(sem_init(&go, 0, 0), 0);
    lend();
}

static void teardown(void)
{
    handler_exec.close(&handler);
    loop_close(&loop);
    timers_close(&timers);
    cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1, "a child is left");
    logged_end();
}

TestSuite(handler_exec, .init = setup, .fini = teardown);

static void *run(void *arg)
{
    (void)arg;
    handler_exec.run(handler, &d, &out);
    return NULL;
}

/* Start the script on a thread, and wait until it is ready: it calls `up`. */
static void start(const char *text)
{
    char byte;

    snprintf(script, sizeof script, "up() { echo >/proc/%d/fd/%d; }; %s",
             (int)getpid(), up[1], text);
    cr_assert_eq(pthread_create(&thread, NULL, run, NULL), 0);
    cr_assert_eq(read(up[0], &byte, 1), 1);
    sem_wait(&named);
}

static void pass(uint64_t ns)
{
    clock_pass(ns);
    timers_run(timers);
}

/* Skip the first wait for the process when the test says so, then as many waits
 * as over_soon counts. */
static bool when_told(void)
{
    if (atomic_load(&over_soon) == 0)
        return false;
    if (!atomic_exchange(&told, true))
        sem_wait(&go);
    atomic_fetch_sub(&over_soon, 1);
    return true;
}

/* Let the limit pass, and `more` waits after it. */
static void limit_passes(unsigned more)
{
    cr_assert_eq(logged("event=handler_timeout"), 0,
                 "the limit passed too early");
    atomic_fetch_add(&over_soon, more);
    sem_post(&go);
}

static void ended(enum outcome_kind kind, const char *error)
{
    pthread_join(thread, NULL);
    cr_assert_eq(out.kind, kind, "%d: %s", (int)out.kind, out.error);
    cr_assert_str_eq(out.error, error);
    cr_assert_eq(kill(-group, 0), -1, "a process of its group is left");
}

#define WAITS "while :; do sleep 0.01; done"

/* Start a script whose first wait is for the limit. */
static void limited(const char *text)
{
    atomic_store(&over_soon, 1);
    clock_passes = when_told;
    start(text);
}

Test(handler_exec, a_limit_ends_it_by_sigterm)
{
    limited("trap 'echo bye >&2; exit 0' TERM; up; " WAITS);
    limit_passes(0);
    ended(OUTCOME_VERDICT, "timeout 1h");
    cr_assert_eq(out.verdict, MQW_RETRY, "a late exit code counts");
    cr_assert_eq(logged("event=handler_timeout"), 1);
    cr_assert_eq(logged("event=handler_late"), 1);
    cr_assert(memmem(out.tail, out.tail_size, "bye\n", 4));
}

Test(handler_exec, who_ignores_sigterm_is_killed_after_its_time)
{
    uint64_t before = clock_mono_ns();

    limited("trap '' TERM; up; " WAITS);
    limit_passes(1000);
    ended(OUTCOME_VERDICT, "timeout 1h");
    cr_assert_eq(logged("event=handler_timeout"), 1);
    cr_assert_eq(logged("event=handler_late"), 0);
    cr_assert_geq(clock_mono_ns() - before, HOUR + 10 * MINUTE);
}

Test(handler_exec, an_end_before_the_limit_is_its_verdict)
{
    start("up; exit 3");
    ended(OUTCOME_VERDICT, "exit 3");
    pass(2 * HOUR);
    cr_assert_eq(logged("event=handler_timeout"), 0,
                 "the timer is still there");
}

Test(handler_exec, a_stop_that_came_first_is_no_timeout)
{
    limited("trap '' TERM; up; " WAITS);
    handler_exec.stop(handler, SIGTERM);
    limit_passes(0);
    cr_assert_eq(logged("event=handler_timeout"), 0);
    cr_assert_eq(kill(group, 0), 0, "the limit killed it, not the stop");
    handler_exec.stop(handler, SIGKILL);
    ended(OUTCOME_STOPPED, "signal 9");
}

Test(handler_exec, a_success_is_one_although_the_worker_stops)
{
    start("trap 'exit 0' TERM; up; " WAITS);
    handler_exec.stop(handler, SIGTERM);
    ended(OUTCOME_VERDICT, "");
    cr_assert_eq(out.verdict, MQW_DONE);
}

Test(handler_exec, a_failure_while_the_worker_stops_is_none)
{
    start("trap 'exit 1' TERM; up; " WAITS);
    handler_exec.stop(handler, SIGTERM);
    pthread_join(thread, NULL);
    cr_assert_eq(out.kind, OUTCOME_STOPPED);
}

Test(handler_exec, no_limit_is_none)
{
    set.timeout_ns = UINT64_MAX;
    start("trap 'exit 0' USR1; up; " WAITS);
    pass(1000 * HOUR);
    cr_assert_eq(logged("event=handler_timeout"), 0);
    kill(group, SIGUSR1);
    ended(OUTCOME_VERDICT, "");
}
