/* test_worker_delayed.c - mqworker: messages that are not due, expired or
 * broken */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

TestSuite(worker_delayed, .init = harness_init, .fini = harness_fini);

#define RECORD  harness_handler("record")
#define ID      "01JD3Z6Q9V0X8N5T2K7B4M1C3F"
#define NS_MS   UINT64_C(1000000)
#define LATE_MS 400 /* allowed delay on a busy machine */
#define RUNS    3   /* tries; one must be on time */

/* A handler that notes the time and when the message was sent. */
#define WHEN \
    "--", "sh", "-c", "echo $(date +%s%N) $MQW_SENT_AT $MQW_ATTEMPT >>when"

static uint64_t wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 * NS_MS + (uint64_t)now.tv_nsec;
}

/* Check that the message ran as a first attempt and not before its delay.
 * Return true if it was much too late, which may happen on a busy machine, but
 * not every time. */
static bool when_late(uint64_t delay_ms)
{
    uint64_t ran, sent, late_ms = harness_deadline(LATE_MS) - harness_now_ms();
    unsigned attempt;
    cr_assert_eq(harness_lines("when"), 1);
    cr_assert_eq(sscanf(harness_read("when", NULL),
                        "%" SCNu64 " %" SCNu64 " %u", &ran, &sent, &attempt),
                 3);
    cr_assert_geq(ran - sent, delay_ms * NS_MS, "early");
    cr_assert_eq(attempt, 1, "waiting was an attempt");
    cr_assert_eq(harness_run("rm", "when").status, 0);
    return ran - sent > (delay_ms + late_ms) * NS_MS;
}

Test(worker_delayed, a_delayed_message_runs_when_it_is_due_and_not_before)
{
    int runs = 0;
    bool late;
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, WHEN);
    do {
        cr_assert_eq(harness_run("mqsend", "--delay", "400ms", q, "x").status,
                     0);
        harness_until_lines("when", 1, 5000);
        late = when_late(400);
    } while (late && ++runs < RUNS);
    cr_assert(!late, "late three times");
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* Return how many messages wait in the store. */
static long waiting(const char *q)
{
    struct harness_result r = harness_run(
        "mqctl", "status", "--json", "--state-dir", harness_state_dir(), q);
    const char *at = strstr(r.out, "\"waiting\":");
    return at ? atol(at + strlen("\"waiting\":")) : -1;
}

Test(worker_delayed, it_waits_through_a_restart)
{
    int runs = 0;
    bool late;
    const char *q = harness_queue(0, 0);
    do {
        cr_assert_eq(harness_run("mqsend", "--delay", "4s", q, "x").status, 0);
        struct harness_process *w = harness_worker(q, WHEN);
        harness_until(harness_queue_length(q) == 0, 5000);
        cr_assert_eq(harness_stop(w, 5000), 0);
        late = harness_lines("when") > 0; /* it ran before the restart */
        if (!late) {
            w = harness_worker(q, WHEN);
            harness_until_lines("when", 1, 10000);
            cr_assert_eq(harness_stop(w, 5000), 0);
        }
        late |= when_late(4000);
    } while (late && ++runs < RUNS);
    cr_assert(!late, "late three times");
}

Test(worker_delayed, it_holds_up_nothing_and_takes_no_thread)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "1", "--", RECORD);
    for (int i = 0; i < 100; i++) { /* more than there are slots */
        char message[128];
        snprintf(message, sizeof message,
                 "MQW/1\nnot-before: %" PRIu64 "\n\nlate",
                 wall_ns() + 3600 * 1000 * NS_MS);
        harness_send_text(q, message);
    }
    harness_send_text(q, "now");
    harness_until_lines("runs", 1, 10000);
    cr_assert_eq(harness_lines_with("runs", "now"), 1);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines("runs"), 1);
}

Test(worker_delayed, they_run_in_the_order_they_are_due)
{
    const char *q = harness_queue(0, 0);
    static const int delays[] = {400, 200, 300, 500, 100};
    struct harness_process *w = harness_worker(q, "-c", "1", "--", RECORD);
    bool in_time;
    int runs = 0;
    do {
        uint64_t now = wall_ns() + 3000 * NS_MS;
        (void)unlink(harness_path("runs"));
        for (size_t i = 0; i < 5; i++) {
            char message[128];
            snprintf(message, sizeof message,
                     "MQW/1\nnot-before: %" PRIu64 "\n\nd%d",
                     now + (uint64_t)delays[i] * NS_MS, delays[i]);
            harness_send_text(q, message);
        }
        harness_until(waiting(q) == 5 || harness_lines("runs") > 0, 5000);
        in_time = wall_ns() < now;
        harness_until_lines("runs", 5, 10000);
    } while (!in_time && ++runs < RUNS);
    cr_assert_eq(harness_stop(w, 5000), 0);
    const char *at = harness_read("runs", NULL);
    for (int delay = 100; delay <= 500; delay += 100) {
        char want[16];
        snprintf(want, sizeof want, " d%d\n", delay);
        at = strstr(at, want);
        cr_assert_not_null(at, "%s", harness_read("runs", NULL));
    }
}

/* Send a message that is due at `time`, in seconds; `group` may be NULL. */
static void sent_at(const char *q, time_t time, const char *priority,
                    const char *group, const char *body)
{
    char at[32];
    snprintf(at, sizeof at, "@%ld", (long)time);
    cr_assert_eq(
        harness_wait(
            harness_start(&(struct harness_spec){
                .argv = group
                            ? HARNESS_LIST("mqsend", "--at", at, "-p", priority,
                                           "--group", group, q, body)
                            : HARNESS_LIST("mqsend", "--at", at, "-p", priority,
                                           q, body)}),
            5000),
        0);
}

/* Check that exactly these bodies ran, in this order. */
static void ran_in_order(const char *const *bodies, int n)
{
    const char *at = harness_read("runs", NULL);
    cr_assert_eq(harness_lines("runs"), (size_t)n);
    for (int i = 0; i < n; i++) {
        char want[16];
        snprintf(want, sizeof want, " %s\n", bodies[i]);
        at = strstr(at, want);
        cr_assert_not_null(at, "%s: %s", bodies[i], harness_read("runs", NULL));
    }
}

/* Send messages of two priorities that are all due in `lead` seconds, and check
 * their order. With `restart`, stop the worker before that time and start
 * another one after it. Return false if the machine was too busy to send them
 * all before the time. */
static bool same_time_in(const char *const *flags, const char *group,
                         bool restart, time_t lead)
{
    static const char *const low_first[] = {"a", "b", "x", "c", "y", "d"};
    static const char *const order[] = {"x", "y", "a", "b", "c", "d"};
    const char *q = harness_queue(0, 0);
    const char *argv[16] = {"mqworker", "--state-dir", harness_state_dir(), q};
    int n = 4;
    time_t when = time(NULL) + lead;
    while (*flags)
        argv[n++] = *flags++;
    argv[n++] = "--";
    argv[n] = RECORD;
    struct harness_process *w =
        harness_start(&(struct harness_spec){.argv = argv});
    for (size_t i = 0; i < 6; i++)
        sent_at(q, when, low_first[i][0] < 'x' ? "1" : "9", group,
                low_first[i]);
    harness_until(harness_queue_length(q) == 0, 5000);
    if (restart)
        cr_assert_eq(harness_stop(w, 5000), 0);
    bool in_time = time(NULL) < when;
    harness_until(time(NULL) > when, 60000);
    if (restart)
        w = harness_start(&(struct harness_spec){.argv = argv});
    harness_until_lines("runs", 6, 15000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    if (in_time)
        ran_in_order(order, 6);
    cr_assert_eq(unlink(harness_path("runs")), 0);
    return in_time;
}

/* Try longer leads until this machine sends all messages before the time. */
static void same_time(const char *const *flags, const char *group, bool restart)
{
    time_t lead = 2;
    while (!same_time_in(flags, group, restart, lead))
        cr_assert_leq(lead *= 2, 32, "sending takes too long");
}

Test(worker_delayed, those_for_one_time_run_by_priority_and_as_they_were_sent)
{
    same_time(HARNESS_LIST("-c", "1"), NULL, false);
    same_time(HARNESS_LIST("-c", "1"), NULL, true);
}

Test(worker_delayed, those_for_one_time_keep_their_order_in_a_group_and_a_spool)
{
    same_time(HARNESS_LIST("-c", "4"), "g", false);
    same_time(HARNESS_LIST("-c", "1", "--spool"), NULL, false);
    same_time(HARNESS_LIST("-c", "4", "--spool"), "g", false);
}

Test(worker_delayed, a_time_in_the_past_is_now)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "MQW/1\nnot-before: 1\n\nx");
    harness_send_text(q, "MQW/1\nnot-before: 0\n\ny");
    struct harness_process *w = harness_worker(q, "--", RECORD);
    harness_until_lines("runs", 2, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_delayed, an_expired_message_is_dead_and_never_runs)
{
    const char *q = harness_queue(0, 0);
    cr_assert_eq(harness_run("mqsend", "--ttl", "1ms", "--id", ID, "--group",
                             "g", q, "x")
                     .status,
                 0);
    uint64_t end = wall_ns() + NS_MS;
    harness_until(wall_ns() > end, 1000);
    struct harness_process *w = harness_worker(q, "--", RECORD);
    harness_send_text(q, "alive");
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    harness_until_lines("runs", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_str_eq(l->reason, "expired");
    cr_assert_str_eq(l->id, ID);
    cr_assert_str_eq(l->body, "x");
    cr_assert_str_eq(l->group, "g");
    cr_assert_eq(l->attempts, 0);
    cr_assert_eq(l->history, 0);
    cr_assert_eq(harness_lines_with("runs", "alive"), 1);
    cr_assert_eq(harness_lines("runs"), 1);
}

Test(worker_delayed, one_that_has_time_left_runs)
{
    const char *q = harness_queue(0, 0);
    cr_assert_eq(harness_run("mqsend", "--ttl", "1m", q, "x").status, 0);
    cr_assert_eq(
        harness_run("mqsend", "--ttl", "1m", "--delay", "50ms", q, "y").status,
        0);
    struct harness_process *w = harness_worker(q, "--", RECORD);
    harness_until_lines("runs", 2, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_delayed, one_that_expires_while_it_waits_is_dead)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w;
    int runs = 0;
    /* On a busy machine the message may run before the worker is stopped. */
    do {
        (void)unlink(harness_path("runs"));
        cr_assert_eq(
            harness_run("mqsend", "--delay", "4s", "--ttl", "4001ms", q, "x")
                .status,
            0);
        w = harness_worker(q, "--", RECORD);
        harness_until(harness_queue_length(q) == 0, 5000);
        cr_assert_eq(harness_stop(w, 5000), 0);
    } while (harness_exists("runs") && ++runs < RUNS);
    uint64_t end = wall_ns() + 4002 * NS_MS;
    harness_until(wall_ns() > end, 10000);
    w = harness_worker(q, "--", RECORD);
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_str_eq(l->reason, "expired");
    cr_assert_not(harness_exists("runs"));
}

Test(worker_delayed, one_that_expires_before_its_retry_is_dead)
{
    size_t count;
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--backoff", "500ms", "--max-attempts", "1000000",
                       "--", "sh", "-c", "echo $MQW_ATTEMPT >>runs; exit 1");
    cr_assert_eq(harness_run("mqsend", "--ttl", "3s", q, "x").status, 0);
    const struct harness_letter *l = harness_wait_letters(q, 1, 10000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    l = harness_letters(q, &count);
    cr_assert_str_eq(l->reason, "expired");
    cr_assert_eq((size_t)l->attempts, harness_lines("runs"));
}

#define DAY_NS (UINT64_C(86400) * 1000 * NS_MS)

/* Send a message that is due `ahead_ns` from now. */
static void send_ahead(const char *q, uint64_t ahead_ns, const char *more,
                       const char *body)
{
    char message[160];
    snprintf(message, sizeof message, "MQW/1\nnot-before: %" PRIu64 "\n%s\n%s",
             wall_ns() + ahead_ns, more, body);
    harness_send_text(q, message);
}

Test(worker_delayed, one_that_lies_too_far_ahead_is_dead_at_once)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "--", RECORD);
    harness_send_text(q, "MQW/1\nnot-before: 18446744073709551615\n\nend");
    send_ahead(q, 401 * DAY_NS, "group: g\n", "far");
    send_ahead(q, 399 * DAY_NS, "", "near");
    harness_send_text(q, "MQW/1\ngroup: g\n\nnext");
    harness_until_lines("runs", 1, 5000);
    harness_until(waiting(q) == 1, 5000);
    const struct harness_letter *l = harness_wait_letters(q, 2, 5000);
    cr_assert_str_eq(l[0].reason, "bad-header");
    cr_assert_str_eq(l[0].body, "far");
    cr_assert_str_eq(l[0].group, "g");
    cr_assert(strncmp(l[0].error, "not-before lies 40", 18) == 0, "%s",
              l[0].error);
    cr_assert(strstr(l[0].error, " ahead, --max-delay allows 400d"), "%s",
              l[0].error);
    cr_assert_str_eq(l[1].body, "end");
    cr_assert_str_eq(l[1].reason, "bad-header");
    cr_assert_eq(l[1].attempts, 0);
    cr_assert_eq(harness_lines_with("runs", "next"), 1);
    /* A replay overrides the time: the message runs at once. */
    cr_assert_eq(harness_run("mqdlq", "replay", "--state-dir",
                             harness_state_dir(), q, "--all")
                     .status,
                 0);
    harness_until_lines("runs", 3, 5000);
    cr_assert_eq(harness_lines_with("runs", " end"), 1);
    cr_assert_eq(harness_lines_with("runs", " far"), 1);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_delayed, max_delay_is_counted_from_when_it_was_received)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--max-delay", "10s", "--", RECORD);
    send_ahead(q, 4000 * NS_MS, "", "in time");
    send_ahead(q, 3600 * 1000 * NS_MS, "", "late");
    harness_wait_letters(q, 1, 5000);
    harness_until(waiting(q) == 1 || harness_lines("runs") == 1, 5000);
    /* A later setting does not affect messages that were received. */
    cr_assert_eq(harness_run("mqctl", "set", "--state-dir", harness_state_dir(),
                             q, "max-delay=1ms")
                     .status,
                 0);
    harness_until_lines("runs", 1, 10000);
    cr_assert_eq(harness_lines_with("runs", "in time"), 1);
    cr_assert_eq(harness_run("mqctl", "set", "--state-dir", harness_state_dir(),
                             q, "max-delay=none")
                     .status,
                 0);
    harness_send_text(q, "MQW/1\nnot-before: 18446744073709551615\n\nend");
    harness_until(waiting(q) == 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    size_t letters;
    harness_letters(q, &letters);
    cr_assert_eq(letters, 1);
}

Test(worker_delayed, one_that_lies_too_far_ahead_holds_its_group)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--on-group-dead", "hold", "--", RECORD);
    send_ahead(q, 401 * DAY_NS, "group: g\n", "far");
    harness_send_text(q, "MQW/1\ngroup: g\n\nnext");
    harness_send_text(q, "other");
    harness_wait_log(w, "event=group_held", 5000);
    harness_until_lines("runs", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines_with("runs", "other"), 1);
    cr_assert_eq(harness_lines("runs"), 1);
}

Test(worker_delayed, no_expiry_is_too_far_ahead)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "MQW/1\nexpires: 18446744073709551615\n\nx");
    harness_send_text(q, "MQW/1\nexpires: 18446744073709551615\n"
                         "not-before: 1\n\ny");
    struct harness_process *w = harness_worker(q, "--", RECORD);
    harness_until_lines("runs", 2, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_delayed, a_broken_header_is_dead_at_once_and_never_runs)
{
    static const char *const broken[] = {
        "MQW/1\nno colon\n\nx",
        "MQW/1\nid: short\n\nx",
        "MQW/1\nid: " ID "\nid: " ID "\n\nx",
        "MQW/1\nsize: 2\n\nx",
        "MQW/1\nsize: -1\n\nx",
        "MQW/1\nsent: 12x\n\nx",
        "MQW/1\nexpires: 99999999999999999999999\n\nx",
        "MQW/1\nX-Upper: a\n\nx",
        "MQW/1\ngroup: \n\nx",
        "MQW/1\ngroup: a\tb\n\nx",
        "MQW/1\ngroup: \xFF\n\nx",
        "MQW/1\nthere is no end",
    };
    enum { N = sizeof broken / sizeof *broken };
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "1", "--", RECORD);
    for (size_t i = 0; i < N; i++)
        harness_send_text(q, broken[i]);
    harness_send_text(q, "MQW/1\nunknown: is ignored\nsize: 4\n\ngood");
    const struct harness_letter *l = harness_wait_letters(q, N, 10000);
    harness_until_lines("runs", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines("runs"), 1);
    cr_assert_eq(harness_lines_with("runs", " good"), 1);
    for (size_t i = 0; i < N; i++) {
        const struct harness_letter *one = &l[N - 1 - i];
        cr_assert_str_eq(one->reason, "bad-header", "%s", broken[i]);
        cr_assert_eq(one->attempts, 0);
        cr_assert(one->error && one->error[0], "no error: %s", broken[i]);
        if (one->body) /* the body is kept as it was sent */
            cr_assert_str_eq(one->body, broken[i]);
        cr_assert_eq(one->body_size, strlen(broken[i]));
        cr_assert_eq(strlen(one->id), 26, "no message id");
    }
}

Test(worker_delayed, a_header_over_1024_bytes_is_broken)
{
    char message[1400] = "MQW/1\n";
    const char *q = harness_queue(2, 1500);
    for (int i = 0; i < 5; i++) {
        char line[300];
        memset(line, 'v', sizeof line);
        snprintf(line, 20, "x-%d: ", i);
        line[strlen(line)] = 'v';
        line[250] = '\n';
        line[251] = '\0';
        strcat(message, line);
    }
    strcat(message, "\nx");
    harness_send_text(q, message);
    struct harness_process *w = harness_worker(q, "--", RECORD);
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_str_eq(l->reason, "bad-header");
    cr_assert_not(harness_exists("runs"));
}
