/* test_library.c - libmqworker: the worker inside another program */
#include "tests/unit/handlers/library_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/turns.h"

int example_main(int argc, char **argv);
#define main example_main
/* NOLINTNEXTLINE(bugprone-suspicious-include): the example is under test */
#include "docs/example.c"
#undef main

TestSuite(library, .init = harness_init, .fini = harness_fini);

#define MS UINT64_C(1000000)

/* ---- what a test sees of its handler ---- */

static atomic_uint calls, in_now, in_most, told, cancelled, lines;
static atomic_bool gate = true; /* false: handlers wait */
static int answer;
static char seen[1024]; /* of the last call */
static char verdicts[256];
static int here; /* its address is what the call-backs get */

static int note(const struct mqw_message *m, struct mqw_context *c)
{
    unsigned in = atomic_fetch_add(&in_now, 1) + 1;
    size_t size = 0;
    const char *x = mqw_header(m, "x-trace", &size);

    if (in > atomic_load(&in_most))
        atomic_store(&in_most, in);
    if (mqw_user(c) != &here)
        abort();
    snprintf(seen, sizeof seen, "%.*s %s %zu %u %u/%u %d %d [%.*s] [%.*s]%s",
             (int)m->size, (const char *)m->body, m->queue, strlen(mqw_id(m)),
             m->priority, m->attempt, m->max_attempts, m->redelivered,
             m->length_inferred, (int)m->group_size, m->group ? m->group : "",
             (int)size, x ? x : "", m->sent_ns ? " sent" : "");
    atomic_fetch_add(&calls, 1);
    while (!atomic_load(&gate) && !mqw_cancelled(m))
        sched_yield();
    atomic_fetch_add(&cancelled, (unsigned)mqw_cancelled(m));
    atomic_fetch_sub(&in_now, 1);
    return answer;
}

static void tell(const struct mqw_message *m, enum mqw_verdict v, uint64_t took,
                 void *user)
{
    size_t at = strlen(verdicts);

    if (user != &here || (v == MQW_DONE && took == 0))
        abort();
    snprintf(verdicts + at, sizeof verdicts - at, "%.*s:%d ", (int)m->size,
             (const char *)m->body, (int)v);
    atomic_fetch_add(&told, 1);
}

static void line(enum mqw_log_level level, const char *text, size_t size,
                 void *user)
{
    if (user != &here || strlen(text) != size || strchr(text, '\n') ||
        level < MQW_LOG_INFO)
        abort();
    atomic_fetch_add(&lines, 1);
}

static struct mqw_options options(const char *queue)
{
    struct mqw_options o;

    cr_assert_eq(mqw_options_init(&o, sizeof o), 0);
    o.queue = queue;
    o.state_dir = harness_state_dir();
    o.backoff = "1ms";
    o.settled = tell;
    o.log_level = MQW_LOG_WARN;
    return o;
}

/* ---- tests ---- */

Test(library, options_begin_as_the_flags_of_mqworker_do)
{
    struct mqw_options o;

    cr_assert_eq(mqw_options_init(&o, sizeof o), 0);
    cr_assert_eq(o.struct_size, sizeof o);
    cr_assert_eq(o.max_attempts, 5);
    cr_assert_eq(o.timeout, MQW_NEVER);
    cr_assert_eq(o.retry_for, MQW_NEVER);
    cr_assert_eq(o.exit_when_idle, MQW_NEVER);
    cr_assert_eq(o.lookahead, 64);
    cr_assert_eq(o.take_signals, 0);
    cr_assert_eq(mqw_options_init(&o, sizeof o + 8), -EINVAL,
                 "a newer struct was accepted");
    cr_assert_eq(mqw_options_init(&o, 8), -EINVAL);
}

Test(library, what_is_out_of_range_is_named)
{
    char why[256];
    struct mqw_options o = options(harness_queue(0, 0));

    o.problem = why;
    o.problem_size = sizeof why;
    o.max_attempts = 0;
    cr_assert_eq(mqw_run(&o, note, NULL), -EINVAL);
    cr_assert(strstr(why, "max_attempts: 0 is out of range"), "%s", why);
    o = options(NULL);
    cr_assert_eq(mqw_run(&o, note, NULL), -EINVAL);
    o = options("/a/b");
    cr_assert_eq(mqw_run(&o, note, NULL), -EINVAL);
    o = options("/a");
    o.backoff = "never";
    cr_assert_eq(mqw_run(&o, note, NULL), -EINVAL);
    o = options("/a");
    o.struct_size = 4;
    cr_assert_eq(mqw_run(&o, note, NULL), -EINVAL);
    cr_assert_eq(mqw_run(&(struct mqw_options){0}, note, NULL), -EINVAL);
}

Test(library, an_option_that_is_not_its_default_counts_as_given)
{
    const char *q = harness_queue(0, 0), *out;
    struct runner r = {.o = options(q)};

    r.o.max_parked = 7;
    runner_start(&r, note, NULL);
    out = harness_run("mqctl", "--state-dir", harness_state_dir(), "status", q,
                      "--json")
              .out;
    cr_assert_not_null(strstr(out, "\"max-parked\":\"7\""), "%s", out);
    cr_assert_null(strstr(out, "\"max-waiting\":\""), "%s", out);
    runner_end(&r);
}

/* Return why the library does not open with a spoiled option. */
static const char *said(void (*spoil)(struct mqw_options *o))
{
    static char why[256];
    struct mqw_options o = options("/a");

    o.problem = why;
    o.problem_size = sizeof why;
    spoil(&o);
    cr_assert_eq(mqw_run(&o, note, NULL), -EINVAL);
    cr_assert_null(strstr(why, "--"), "flags are not C: %s", why);
    return why;
}

static void bad_rate(struct mqw_options *o)
{
    o->rate = "fast";
}

static void bad_backoff(struct mqw_options *o)
{
    o->backoff = "never";
}

static void bad_dead_queue(struct mqw_options *o)
{
    o->dead_letter_queue = "/a/b";
}

static void same_dead_queue(struct mqw_options *o)
{
    o->dead_letter_queue = "a";
}

static void short_run(struct mqw_options *o)
{
    o->run_for = UINT64_C(8000000000);
}

static void bad_limit(struct mqw_options *o)
{
    o->batch_time_limit = MQW_NEVER - 1;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

Test(library, what_is_wrong_is_said_of_the_field)
{
    cr_assert(begins(said(bad_rate), "rate: \"fast\" "));
    cr_assert(begins(said(bad_backoff), "backoff: \"never\" "));
    cr_assert(begins(said(bad_dead_queue), "dead_letter_queue: queue name "));
    cr_assert(begins(said(same_dead_queue), "dead_letter_queue: \"/a\" is "));
    cr_assert_str_eq(said(short_run),
                     "run_for 8s is shorter than 5 x estimated_duration 2s = "
                     "10s: nothing would be taken; give a longer run_for, or "
                     "estimated_duration");
    cr_assert(begins(said(bad_limit), "batch_time_limit: 18446744073709551614 "
                                      "is out of range"));
}

Test(library, a_handler_sees_all_of_its_message)
{
    char want[256];
    const char *q = harness_queue(0, 0);
    struct runner r = {.o = options(q)};
    static const char text[] = "MQW/1\ngroup: g7\nx-trace: abc\n\nbody";

    runner_start(&r, note, &here);
    harness_send(q, text, sizeof text - 1, 9);
    harness_until(atomic_load(&told) == 1, 5000);
    snprintf(want, sizeof want, "body %s 26 9 1/5 0 0 [g7] [abc]", q);
    cr_assert_str_eq(seen, want);
    cr_assert_str_eq(verdicts, "body:0 ");
    runner_end(&r);
}

Test(library, what_one_message_says_of_itself_is_not_said_of_the_next)
{
    char want[256];
    const char *q = harness_queue(0, 0);
    struct runner r = {.o = options(q)};
    static const char says[] = "MQW/1\nsent: 1732126121000000000\n"
                               "max-attempts: 3\nx-trace: abc\n\none";

    runner_start(&r, note, &here);
    for (unsigned i = 1; i <= 4; i++) {
        bool first = i % 2 == 1;

        if (first)
            harness_send(q, says, sizeof says - 1, 0);
        else
            harness_send(q, "two", 3, 0);
        harness_until(atomic_load(&told) == i, 5000);
        snprintf(want, sizeof want, "%s %s 26 0 1/%d 0 0 [] [%s]%s",
                 first ? "one" : "two", q, first ? 3 : 5, first ? "abc" : "",
                 first ? " sent" : "");
        cr_assert_str_eq(seen, want);
    }
    runner_end(&r);
}

Test(library, each_verdict_is_told_once_it_is_durable)
{
    const char *q = harness_queue(0, 0);
    struct runner r = {.o = options(q)};

    r.o.max_attempts = 2;
    r.o.max_concurrency = 1;
    answer = MQW_DISCARD;
    runner_start(&r, note, &here);
    harness_send_text(q, "a");
    harness_until(atomic_load(&told) == 1, 5000);
    answer = MQW_DEAD;
    harness_send_text(q, "b");
    harness_until(atomic_load(&told) == 2, 5000);
    answer = 77; /* no verdict: a retry, and the second is the last */
    harness_send_text(q, "c");
    harness_until(atomic_load(&told) == 4, 5000);
    cr_assert_str_eq(verdicts, "a:3 b:2 c:1 c:2 ");
    runner_end(&r);
}

Test(library, no_age_is_the_limit_whether_never_is_said_or_0)
{
    static const uint64_t said[] = {MQW_NEVER, 0};

    answer = MQW_RETRY;
    for (unsigned i = 0; i < 2; i++) {
        const char *q = harness_queue(0, 0);
        struct runner r = {.o = options(q)};

        r.o.max_attempts = 3;
        r.o.retry_for = said[i];
        runner_start(&r, note, &here);
        harness_send_text(q, "x");
        harness_until(atomic_load(&told) == 3 * (i + 1), 5000);
        runner_end(&r);
    }
    cr_assert_str_eq(verdicts, "x:1 x:1 x:2 x:1 x:1 x:2 ");
}

static int later(const struct mqw_message *m, struct mqw_context *c)
{
    static uint64_t first_ms;

    if (m->attempt == 1) {
        first_ms = harness_now_ms();
        mqw_set_delay(c, 50 * MS);
        mqw_set_reason(c, "not yet");
        return MQW_RETRY;
    }
    answer = (int)(harness_now_ms() - first_ms);
    mqw_stop(mqw_worker_of(c));
    return MQW_DONE;
}

Test(library, a_handler_may_name_the_delay_of_its_retry)
{
    const char *q = harness_queue(0, 0);
    struct mqw_options o = options(q);

    o.backoff = "1h";
    harness_send_text(q, "x");
    cr_assert_eq(mqw_run(&o, later, &here), 0);
    cr_assert_geq(answer, 50);
}

/* Note which lines of the header the handler finds. */
static int lines_of(const struct mqw_message *m, struct mqw_context *c)
{
    static const char *const names[] = {"id",    "sent",   "group",  "expires",
                                        "other", "x-none", "letter", "body"};
    size_t at = 0;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t size = 0;
        const char *value = mqw_header(m, names[i], &size);

        at += (size_t)snprintf(seen + at, sizeof seen - at, "[%.*s]",
                               value ? (int)size : 1, value ? value : "-");
    }
    mqw_stop(mqw_worker_of(c));
    return MQW_DONE;
}

Test(library, every_line_of_the_header_is_found_by_its_name)
{
    const char *q = harness_queue(0, 0);
    struct mqw_options o = options(q);

    harness_send_text(q, "MQW/1\nid: 01JD3Z6Q9V0X8N5T2K7B4M1C3F\nsent: 17\n"
                         "group: g 7\nexpires: 9000000000000000000\n"
                         "other: o\n\nbody: b\n\n");
    cr_assert_eq(mqw_run(&o, lines_of, &here), 0);
    cr_assert_str_eq(seen, "[01JD3Z6Q9V0X8N5T2K7B4M1C3F][17][g 7]"
                           "[9000000000000000000][o][-][-][-]");
    harness_send_text(q, "id: no header at all");
    cr_assert_eq(mqw_run(&o, lines_of, &here), 0);
    cr_assert_str_eq(seen, "[-][-][-][-][-][-][-][-]");
}

static int never_again(const struct mqw_message *m, struct mqw_context *c)
{
    (void)m;
    mqw_set_delay(c, UINT64_MAX);
    mqw_stop(mqw_worker_of(c));
    return MQW_RETRY;
}

/* Keep the log line of the retry. */
static void keep(enum mqw_log_level level, const char *text, size_t size,
                 void *user)
{
    (void)level;
    (void)size;
    (void)user;
    if (strstr(text, "event=retry"))
        snprintf(seen, sizeof seen, "%s", text);
}

/* environ is NULL then (clearenv(3)). */
Test(library, it_runs_without_any_environment)
{
    const char *q = harness_queue(0, 0);
    struct mqw_options o = options(q);

    harness_send_text(q, "MQW/1\nx-none: y\n\nx");
    clearenv();
    cr_assert_null(environ);
    cr_assert_eq(mqw_run(&o, lines_of, &here), 0);
}

Test(library, a_delay_without_an_end_is_told_as_long_as_it_is)
{
    const char *q = harness_queue(0, 0);
    struct mqw_options o = options(q);

    o.log = keep;
    o.max_delay = MQW_NEVER;
    harness_send_text(q, "x");
    cr_assert_eq(mqw_run(&o, never_again, &here), 0);
    const char *in = strstr(seen, " in=");
    cr_assert(in && strchr(in, 'd'), "%s", seen);
    /* Days until April 2262, where the store's times end. */
    cr_assert_lt(
        llabs(atoll(in + 4) - (INT64_MAX / 1000000000 - time(NULL)) / 86400), 2,
        "%s", seen);
}

Test(library, a_delay_is_never_longer_than_max_delay)
{
    const char *q = harness_queue(0, 0);
    struct mqw_options o = options(q);

    cr_assert_eq(o.max_delay, 400 * UINT64_C(86400) * 1000 * MS);
    o.log = keep;
    harness_send_text(q, "x");
    cr_assert_eq(mqw_run(&o, never_again, &here), 0);
    cr_assert(strstr(seen, " in=400d"), "%s", seen);
}

Test(library, an_older_program_has_the_defaults_of_what_it_does_not_know)
{
    const char *q = harness_queue(0, 0);
    struct mqw_options o = options(q);

    memset(&o.max_delay, 0, sizeof o - offsetof(struct mqw_options, max_delay));
    o.struct_size = offsetof(struct mqw_options, max_delay);
    o.log = keep;
    harness_send_text(q, "x");
    cr_assert_eq(mqw_run(&o, never_again, &here), 0);
    cr_assert(strstr(seen, " in=400d"), "%s", seen);
}

Test(library, where_messages_in_flight_are_is_an_option)
{
    const char *q = harness_queue(0, 0);
    const char *other = harness_path("%s/other", harness_runtime_dir());
    struct mqw_options o = options(q);
    struct mqw_worker *w;
    char why[512] = "";

    o.runtime_dir = other;
    cr_assert_eq(mqw_open(&w, &o, note, &here), 0);
    cr_assert(harness_exists(harness_path(
        "%s/custody", harness_folder_in(other, harness_state_dir(), q))));
    mqw_close(&w);
    o.problem = why;
    o.problem_size = sizeof why;
    o.runtime_dir = "/proc";
    cr_assert_lt(mqw_open(&w, &o, note, &here), 0);
    cr_assert(strstr(why, "--allow-disk-custody"), "%s", why);
    o.runtime_dir = harness_path("flight");
    o.allow_disk_custody = 1;
    cr_assert_eq(mqw_open(&w, &o, note, &here), 0, "%s", why);
    mqw_close(&w);
}

Test(library, past_the_time_limit_it_is_cancelled_and_failed)
{
    const char *q = harness_queue(0, 0);
    struct runner r = {.o = options(q)};
    struct mqw_worker *w;

    r.o.backoff = "1h"; /* only the first attempt counts below */
    w = runner_start(&r, note, &here);
    cr_assert_eq(mqw_set_timeout(w, 10), -EINVAL);
    cr_assert_eq(mqw_set_timeout(w, 20 * MS), 0);
    atomic_store(&gate, false);
    harness_send_text(q, "x");
    harness_until(atomic_load(&told) == 1, 5000);
    cr_assert_eq(atomic_load(&cancelled), 1);
    cr_assert_str_eq(verdicts, "x:1 ", "the return value counts");
    atomic_store(&gate, true);
    runner_end(&r);
}

Test(library, options_change_while_it_runs)
{
    const char *q = harness_queue(0, 0);
    struct runner r = {.o = options(q)};

    r.o.max_concurrency = 1;
    struct mqw_worker *w = runner_start(&r, note, &here);
    mqw_pause(w);
    atomic_store(&gate, false);
    harness_send_text(q, "a");
    harness_send_text(q, "b");
    cr_assert_eq(mqw_set_concurrency(w, 0), -EINVAL);
    cr_assert_eq(mqw_set_concurrency(w, 1025), -EINVAL);
    cr_assert_eq(mqw_set_concurrency(w, 2), 0);
    mqw_resume(w);
    harness_until(atomic_load(&in_most) == 2, 5000);
    mqw_pause(w);
    atomic_store(&gate, true);
    harness_until(atomic_load(&told) == 2, 5000);
    runner_end(&r);
}

static const char *_Atomic counted; /* text of the log lines to count */

static void line_count(enum mqw_log_level level, const char *text, size_t size,
                       void *user)
{
    (void)level;
    (void)size;
    (void)user;
    if (strstr(text, atomic_load(&counted)))
        atomic_fetch_add(&lines, 1);
}

/* The worker's only thread is in a handler when the pause begins, so no thread
 * is about to take a message. */
Test(library, a_pause_leaves_messages_in_the_queue)
{
    const char *q = harness_queue(0, 0);
    struct runner r = {.o = options(q)};

    r.o.max_concurrency = 1;
    r.o.log = line_count;
    r.o.log_level = MQW_LOG_INFO;
    atomic_store(&counted, "event=paused");
    struct mqw_worker *w = runner_start(&r, note, &here);
    atomic_store(&gate, false);
    harness_send_text(q, "a");
    harness_until(atomic_load(&calls) == 1, 5000);
    mqw_pause(w);
    harness_until(atomic_load(&lines) == 1, 5000);
    harness_send_text(q, "b");
    harness_send_text(q, "c");
    atomic_store(&gate, true);
    harness_until(atomic_load(&told) > 0, 5000);
    atomic_store(&counted, "event=max_concurrency");
    mqw_set_concurrency(w, 3); /* which would start threads for b and c */
    harness_until(atomic_load(&lines) == 2, 5000);
    cr_assert_eq(harness_queue_length(q), 2);
    mqw_resume(w);
    harness_until(atomic_load(&told) == 3, 5000);
    runner_end(&r);
}

Test(library, a_stop_ends_the_grace_and_then_handlers_are_cancelled)
{
    const char *q = harness_queue(0, 0);
    struct runner r = {.o = options(q)};
    struct mqw_worker *w = runner_start(&r, note, &here);

    answer = MQW_RETRY;
    atomic_store(&gate, false);
    harness_send_text(q, "x");
    harness_until(atomic_load(&calls) == 1, 5000);
    mqw_stop(w);
    mqw_stop(w); /* skips the grace of 30 s */
    pthread_join(r.thread, NULL);
    cr_assert_eq(r.status, 0);
    cr_assert_eq(atomic_load(&cancelled), 1);
    cr_assert_eq(atomic_load(&told), 0, "a cancelled run was counted");
    cr_assert_eq(turns_rows(q, TURNS_WAITING), 1, "the message was not kept");
    atomic_store(&gate, true);
    answer = MQW_DONE;
    atomic_store(&r.worker, NULL);
    runner_start(&r, note, &here);
    harness_until(atomic_load(&told) == 1, 5000);
    cr_assert(strstr(seen, " 1/5 1 0 "), "runs again and says so: %s", seen);
    runner_end(&r);
}

/* The program decides what happens then; here it opens the worker again. */
Test(library, a_removed_file_ends_it_with_ESTALE_and_loses_nothing)
{
    const char *q = harness_queue(0, 0);
    struct runner r = {.o = options(q)};

    answer = MQW_DEAD;
    runner_start(&r, note, &here);
    harness_send_text(q, "x");
    harness_until(atomic_load(&told) == 1, 5000);
    cr_assert_eq(unlink(harness_path("%s%s/store.db", harness_state_dir(), q)),
                 0);
    pthread_join(r.thread, NULL);
    cr_assert_eq(r.status, -ESTALE);
    cr_assert_eq(turns_rows(q, "state = 3"), 1,
                 "the letter is not in the new file");
    answer = MQW_DONE;
    atomic_store(&r.worker, NULL);
    runner_start(&r, note, &here);
    harness_send_text(q, "y");
    harness_until(atomic_load(&told) == 2, 5000);
    runner_end(&r);
}

static struct runner *to_stop;

static void stop_it(int sig)
{
    (void)sig;
    /* NOLINTNEXTLINE(bugprone-signal-handler,cert-sig30-c): it is promised */
    mqw_stop(atomic_load(&to_stop->worker));
}

Test(library, signals_stay_the_programs_own_and_may_stop_it)
{
    struct runner r = {.o = options(harness_queue(0, 0))};
    sigset_t before = {0}, after = {0};

    to_stop = &r;
    signal(SIGTERM, stop_it);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    runner_start(&r, note, &here);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    cr_assert_eq(memcmp(&before, &after, sizeof after), 0);
    cr_assert_eq(kill(getpid(), SIGTERM), 0);
    pthread_join(r.thread, NULL);
    cr_assert_eq(r.status, 0);
}

Test(library, signals_are_taken_where_that_is_asked_for)
{
    struct runner r = {.o = options(harness_queue(0, 0))};
    sigset_t term;

    r.o.take_signals = 1;
    sigemptyset(&term); /* as a program does that starts threads before */
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, NULL);
    runner_start(&r, note, &here);
    cr_assert_eq(kill(getpid(), SIGTERM), 0);
    pthread_join(r.thread, NULL);
    cr_assert_eq(r.status, 0);
}

/* Each signal reaches one worker: a second one is refused, and leaves those of
 * the first as they are. */
Test(library, signals_are_taken_by_one_worker)
{
    struct mqw_options o = options(harness_queue(0, 0));
    struct mqw_options other = options(harness_queue(0, 0));
    struct mqw_worker *w, *second;
    struct sigaction pipe;
    sigset_t mask;
    char why[256] = "";

    o.take_signals = other.take_signals = 1;
    other.problem = why;
    other.problem_size = sizeof why;
    signal(SIGPIPE, SIG_DFL);
    cr_assert_eq(mqw_open(&w, &o, note, &here), 0);
    cr_assert_eq(mqw_open(&second, &other, note, &here), -EBUSY);
    cr_assert_null(second);
    cr_assert(strstr(why, "take_signals"), "%s", why);
    other.take_signals = 0;
    cr_assert_eq(mqw_open(&second, &other, note, &here), 0, "%s", why);
    mqw_close(&second);
    sigaction(SIGPIPE, NULL, &pipe);
    cr_assert_neq(pipe.sa_handler, SIG_DFL, "the first worker has lost them");
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    cr_assert_eq(sigismember(&mask, SIGTERM), 1);
    mqw_close(&w);
    sigaction(SIGPIPE, NULL, &pipe);
    cr_assert_eq(pipe.sa_handler, SIG_DFL, "the program did not get them back");
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    cr_assert_eq(sigismember(&mask, SIGTERM), 0);
    other.take_signals = 1;
    cr_assert_eq(mqw_open(&second, &other, note, &here), 0, "%s", why);
    mqw_close(&second);
}

Test(library, log_lines_go_to_the_program)
{
    struct runner r = {.o = options(harness_queue(0, 0))};

    r.o.log = line;
    r.o.log_level = MQW_LOG_INFO;
    runner_start(&r, note, &here);
    runner_end(&r);
    cr_assert_geq(atomic_load(&lines), 2);
}

/* Abort: a log that no line may come to. */
static void never(enum mqw_log_level level, const char *text, size_t size,
                  void *user)
{
    (void)level;
    (void)size;
    (void)user;
    fprintf(stderr, "%s\n", text);
    abort();
}

Test(library, a_worker_that_is_closed_or_refused_gives_the_log_back)
{
    struct runner r = {.o = options(harness_queue(0, 0))};
    struct mqw_options o = r.o, other = options(harness_queue(0, 0));
    struct mqw_worker *w, *second;
    unsigned before;

    r.o.log = line;
    r.o.log_level = MQW_LOG_INFO;
    cr_assert_eq(mqw_open(&w, &r.o, note, &here), 0);
    o.log = other.log = never;
    o.log_level = other.log_level = MQW_LOG_ERROR;
    cr_assert_eq(mqw_open(&second, &o, note, &here), -EEXIST);
    cr_assert_eq(mqw_open(&second, &other, note, &here), 0);
    mqw_close(&second);
    before = atomic_load(&lines);
    mqw_stop(w);
    cr_assert_eq(mqw_work(w), 0);
    cr_assert_geq(atomic_load(&lines), before + 2);
    mqw_close(&w);
}

Test(library, a_queue_has_one_worker)
{
    char why[256] = "";
    struct runner r = {.o = options(harness_queue(0, 0))};
    struct mqw_options o = r.o;
    struct mqw_worker *second = (void *)&o;

    runner_start(&r, note, &here);
    o.problem = why;
    o.problem_size = sizeof why;
    cr_assert_eq(mqw_open(&second, &o, note, &here), -EEXIST);
    cr_assert_null(second);
    cr_assert(strstr(why, "already has a consumer"), "%s", why);
    runner_end(&r);
}

/* A plugin gets NULL from mqw_worker_of and may call with it. */
Test(library, calls_without_a_worker_do_nothing_or_say_EINVAL)
{
    struct mqw_worker *none = NULL;
    struct mqw_options o = options("/a");

    mqw_close(NULL);
    mqw_close(&none);
    mqw_stop(NULL);
    mqw_pause(NULL);
    mqw_resume(NULL);
    cr_assert_eq(mqw_work(NULL), -EINVAL);
    cr_assert_eq(mqw_set_concurrency(NULL, 2), -EINVAL);
    cr_assert_eq(mqw_set_timeout(NULL, MQW_NEVER), -EINVAL);
    cr_assert_eq(mqw_group_list(NULL, "g", 1, NULL, NULL), -EINVAL);
    cr_assert_eq(mqw_group_close(NULL, "g", 1), -EINVAL);
    cr_assert_eq(mqw_options_init(NULL, sizeof o), -EINVAL);
    cr_assert_eq(mqw_open(NULL, &o, note, &here), -EINVAL);
    cr_assert_eq(mqw_open(&none, NULL, note, &here), -EINVAL);
    cr_assert_eq(mqw_run(NULL, note, &here), -EINVAL);
}

static int visit(const struct mqw_queued *m, void *arg)
{
    cr_assert_eq(strlen(m->id), 26);
    snprintf((char *)arg + strlen(arg), 32, "%u:%zu ", m->priority, m->size);
    return 1;
}

Test(library, a_group_is_listed_and_closed)
{
    char found[128] = "";
    const char *q = harness_queue(0, 0);
    struct runner r = {.o = options(q)};

    r.o.group_separator = ':';
    r.o.max_concurrency = 2; /* one is held up, the other receives */
    struct mqw_worker *w = runner_start(&r, note, &here);
    cr_assert_eq(mqw_group_list(w, "g", 1, visit, found), -ENOENT);
    atomic_store(&gate, false);
    harness_send(q, "g:1", 3, 0);
    harness_until(atomic_load(&calls) == 1, 5000);
    harness_send(q, "g:22", 4, 0);
    harness_send(q, "g:333", 5, 4);
    harness_until(
        (*found = '\0',
         mqw_group_list(w, "g", 1, visit, found) == 0 && strlen(found) == 8),
        5000);
    cr_assert_str_eq(found, "4:5 0:4 ");
    cr_assert_eq(mqw_group_close(w, "g", 1), 0);
    harness_send(q, "g:late", 6, 0);
    harness_until(atomic_load(&told) == 1, 5000);
    cr_assert_str_eq(verdicts, "g:late:2 ", "the late message was not refused");
    atomic_store(&gate, true);
    harness_until(atomic_load(&told) == 4, 5000);
    runner_end(&r);
}

Test(library, the_example_of_the_docs_runs)
{
    const char *q = harness_queue(0, 0);
    char name[] = "example";
    char *argv[] = {name, (char *)q, (char *)harness_state_dir(), NULL};
    int out[2], status;
    char text[256];

    harness_send_text(q, "hello");
    cr_assert_eq(pipe(out), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(out[1], 1);
        _exit(example_main(3, argv));
    }
    ssize_t n = read(out[0], text, sizeof text - 1);
    cr_assert_gt(n, 0);
    text[n] = '\0';
    cr_assert(strstr(text, ": hello\n"), "%s", text);
    kill(pid, SIGTERM);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0);
}

Test(library, the_example_of_the_docs_names_its_arguments)
{
    char name[] = "example", more[] = "x";
    char *argv[] = {name, more, more, more, NULL};
    int err[2], status;
    char text[256];

    for (int argc = 1; argc <= 4; argc += 3) {
        cr_assert_eq(pipe(err), 0);
        pid_t pid = fork();
        if (pid == 0) {
            dup2(err[1], 2);
            _exit(example_main(argc, argv));
        }
        close(err[1]); /* or a silent example would block the read */
        ssize_t n = read(err[0], text, sizeof text - 1);
        cr_assert_gt(n, 0);
        text[n] = '\0';
        cr_assert_str_eq(text, "usage: example /QUEUE [STATE-DIRECTORY]\n");
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        cr_assert_eq(WEXITSTATUS(status), 64);
    }
}
