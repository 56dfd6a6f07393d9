/* test_unique.c - message headers unique, max-attempts and backoff */
#include <signal.h>
#include <unistd.h>

#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(unique, .init = harness_init, .fini = harness_fini);

#define RUNS "--", "sh", "-c", "read how; echo \"$how\" >>runs"

/* Send a message by mqsend; return its id. */
#define push(q, ...) \
    ctl_good(harness_run("mqsend", "--print-id", __VA_ARGS__, (q), "body"))

static void has(const char *text, const char *what)
{
    cr_assert_not_null(strstr(text, what), "no '%s' in: %s", what, text);
}

Test(unique, the_second_is_discarded_counted_and_named)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "-c", "2", RUNS);
    char first[32], second[32], want[80];
    struct harness_result r;
    const char *line;

    snprintf(first, sizeof first, "%.26s", push(q, "--unique", "k"));
    snprintf(second, sizeof second, "%.26s", push(q, "--unique", "k"));
    push(q, "--unique", "other");
    push(q, "--priority", "0");
    harness_until(ctl_number(q, "discarded") == 1, SOON_MS);
    harness_until_lines("runs", 3, SOON_MS);
    cr_assert_eq(ctl_number(q, "duplicates"), 1);
    line = harness_wait_log(w, "event=discarded", SOON_MS);
    snprintf(want, sizeof want, "msg=%s reason=duplicate", second);
    has(line, want);
    snprintf(want, sizeof want, "the key of %s", first);
    has(line, want);
    r = ctl("explain", q, second);
    has(r.out, "discarded at");
    has(r.out, "ago: a duplicate: another message had its unique key");
    cr_assert_null(strstr(r.out, "1970-"), "%s", r.out);
    r = ctl("explain", "--json", q, second);
    has(r.out, "\"reason\":\"duplicate\"");
    cr_assert_null(strstr(r.out, "\"1970-"), "%s", r.out);
    has(ctl_out("status", q), "1 of the discarded, by their unique key");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_lines("runs"), 3);
}

Test(unique, the_key_is_free_when_its_time_is_over)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, RUNS);

    push(q, "--unique", "k,1ms");
    harness_until_lines("runs", 1, SOON_MS);
    push(q, "--unique", "k,1h");
    harness_until_lines("runs", 2, SOON_MS);
    push(q, "--unique", "k,1ms");
    harness_until(ctl_number(q, "duplicates") == 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_lines("runs"), 2);
}

Test(unique, it_survives_a_restart_and_the_loss_of_custody)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, RUNS);

    push(q, "--unique", "k");
    harness_until_lines("runs", 1, SOON_MS);
    harness_kill(w);
    unlink(harness_custody(q));
    w = ctl_worker(q, RUNS);
    push(q, "--unique", "k");
    harness_until(ctl_number(q, "duplicates") == 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_lines("runs"), 1);
}

/* The message of the killed worker is still the first with its key. */
Test(unique, a_message_is_no_duplicate_of_itself)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "sh", "-c",
                                           "echo $MQW_REDELIVERED >>runs; "
                                           "exec sleep 1000");

    push(q, "--unique", "k");
    harness_until_lines("runs", 1, SOON_MS);
    harness_kill(w);
    push(q, "--unique", "k");
    w = ctl_worker(q, "--", "sh", "-c", "echo $MQW_REDELIVERED >>runs");
    harness_until_lines("runs", 2, SOON_MS);
    harness_until(ctl_number(q, "duplicates") == 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_str_eq(harness_read("runs", NULL), "0\n1\n");
}

/* Retries and a delay do not make a message a duplicate, even if its key has
 * passed to a later message. */
Test(unique, what_waited_in_the_store_runs_when_its_time_is_over)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--", "sh", "-c",
                   "[ $MQW_ATTEMPT = 2 -o -e good ]; ended=$?; "
                   "echo $MQW_ATTEMPT >>runs; exit $ended");

    push(q, "--unique", "k,1ms", "--backoff", "4s");
    harness_until_lines("runs", 1, SOON_MS);
    harness_write("good", "", 0);
    push(q, "--unique", "k,1h");
    harness_until_lines("runs", 3, SOON_MS);
    cr_assert_str_eq(harness_read("runs", NULL), "1\n1\n2\n");
    push(q, "--unique", "d,1ms", "--delay", "4s");
    harness_until(ctl_number(q, "waiting") == 1 || harness_lines("runs") > 3,
                  SOON_MS);
    push(q, "--unique", "d,1h");
    harness_until_lines("runs", 5, SOON_MS);
    cr_assert_eq(ctl_number(q, "duplicates"), 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(unique, a_letter_that_is_sent_again_has_its_key_still)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--max-attempts", "1", "--", "sh",
                                           "-c", "echo x >>runs; [ -e good ]");
    struct harness_result r;

    push(q, "--unique", "k", "--max-attempts", "1");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    harness_write("good", "", 0);
    r = harness_run("mqdlq", "replay", "--raw", "--state-dir",
                    harness_state_dir(), q, "1");
    cr_assert_neq(r.status, 0, "sent as a duplicate of itself");
    has(r.err, "unique key");
    r = harness_run("mqdlq", "replay", "--state-dir", harness_state_dir(), q,
                    "1");
    cr_assert_eq(r.status, 0, "%s", r.err);
    harness_until(ctl_number(q, "done") == 1, SOON_MS);
    cr_assert_eq(ctl_number(q, "duplicates"), 0);
    push(q, "--unique", "k");
    harness_until(ctl_number(q, "duplicates") == 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_lines("runs"), 2);
}

Test(unique, also_in_groups_and_with_many_at_once)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "-c", "4", RUNS);

    for (int i = 0; i < 8; i++)
        push(q, "--group", i % 2 ? "a" : "b", "--unique", "k");
    harness_until(ctl_number(q, "duplicates") == 7, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_lines("runs"), 1);
}

Test(unique, a_message_has_its_own_number_of_attempts_and_backoff)
{
    const char *q = harness_queue(0, 0), *line;
    struct harness_process *w = ctl_worker(
        q, "--max-attempts", "5", "--backoff", "1h", "--jitter", "0", "--",
        "sh", "-c", "echo $MQW_ATTEMPT of $MQW_MAX_ATTEMPTS >>runs; exit 1");

    push(q, "--max-attempts", "3", "--backoff", "1ms,2ms");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    cr_assert_str_eq(harness_read("runs", NULL), "1 of 3\n2 of 3\n3 of 3\n");
    line = harness_wait_log(w, "event=retry", SOON_MS);
    has(line, " attempt=1 of=3 in=1ms");
    push(q, "--max-attempts", "1");
    harness_until(ctl_number(q, "dead") == 2, SOON_MS);
    harness_send_text(q, "x");
    harness_until_lines("runs", 5, SOON_MS);
    has(harness_read("runs", NULL), "1 of 5");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(unique, lines_that_say_nothing_are_a_broken_header)
{
    static const char *const lines[] = {
        "max-attempts: 0", "max-attempts: 1000001", "backoff: soon",
        "backoff: exp:1s", "unique-for: 0",         "unique: a\nunique: b",
    };
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, RUNS);
    char message[128];

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        snprintf(message, sizeof message, "MQW/1\n%s\n\nbody\n", lines[i]);
        harness_send_text(q, message);
    }
    harness_until(ctl_number(q, "dead") == 6, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_not(harness_exists("runs"));
}

Test(unique, mqsend_refuses_what_no_worker_takes)
{
    static const char *const flags[][2] = {
        {"--unique", ""},        {"--unique", ",5s"},   {"--unique", " k"},
        {"--unique", "k,0s"},    {"--backoff", "soon"}, {"--max-attempts", "0"},
        {"--backoff", "exp:1s"},
    };
    static const char *const good[][2] = {
        {"--unique", "k"}, {"--backoff", "1s"}, {"--max-attempts", "1"}};
    const char *q = harness_queue(0, 0);

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        cr_assert_eq(
            harness_run("mqsend", flags[i][0], flags[i][1], q, "x").status, 64,
            "%s %s", flags[i][0], flags[i][1]);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_assert_eq(harness_run("mqsend", good[i][0], good[i][1],
                                 "amqp://u@localhost/v/q", "x")
                         .status,
                     64, "%s: accepted for a broker", good[i][0]);
    cr_assert_eq(harness_run("mqsend", "--raw", "--unique", "k", q, "x").status,
                 64);
    cr_assert_eq(harness_run("mqsend", "--unique", "a,b", q, "x").status, 0);
    cr_assert_eq(harness_queue_length(q), 1);
}

/* ---- with a spool ---- */

#define GATED                               \
    "--spool", "-c", "1", "--", "sh", "-c", \
        "read how; echo \"$how\" >>runs; "  \
        "while [ ! -e open ]; do sleep 0.01; done"

/* The later message would run first because of its priority. */
Test(unique, a_spool_gives_the_key_to_the_one_that_came_first)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, GATED);
    char first[32], want[80];

    push(q, "--priority", "0");
    harness_until_lines("runs", 1, SOON_MS);
    snprintf(first, sizeof first, "%.26s", push(q, "--unique", "k"));
    /* In the queue, the later one would come first by its priority. */
    harness_until(ctl_number(q, "spooled") == 1, SOON_MS);
    push(q, "--unique", "k", "--priority", "9");
    push(q, "--unique", "other", "--priority", "9");
    harness_until(ctl_number(q, "duplicates") == 1, SOON_MS);
    harness_until(ctl_number(q, "spooled") == 2, SOON_MS);
    cr_assert_eq(harness_lines("runs"), 1, "another one has run");
    snprintf(want, sizeof want, "the key of %s", first);
    has(harness_wait_log(w, "event=discarded", SOON_MS), want);
    harness_write("open", "", 0);
    harness_until_lines("runs", 3, SOON_MS);
    push(q, "--unique", "k");
    harness_until(ctl_number(q, "duplicates") == 2, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_lines("runs"), 3);
    cr_assert_eq(harness_log_count(w, "event=unique_not_looked_at"), 0);
}

Test(unique, a_spool_that_is_killed_knows_the_keys_of_what_waits)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, GATED);

    push(q, "--unique", "runs");
    harness_until_lines("runs", 1, SOON_MS);
    for (int i = 0; i < 3; i++)
        push(q, "--unique", "waits", "--priority", "3");
    harness_until(ctl_number(q, "duplicates") == 2, SOON_MS);
    harness_kill(w);
    push(q, "--unique", "waits");
    push(q, "--unique", "runs");
    harness_write("open", "", 0);
    /* Start a worker without --spool. */
    w = ctl_worker(q, "--", "sh", "-c", "echo again >>runs");
    harness_until(harness_log_count(w, "reason=duplicate") >= 2, SOON_MS);
    harness_until_lines("runs", 3, SOON_MS); /* one message ran before */
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_lines("runs"), 3);
}

Test(unique, a_stop_discards_what_the_queue_has_twice)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, GATED);

    push(q, "--priority", "0");
    harness_until_lines("runs", 1, SOON_MS);
    for (int i = 0; i < 5; i++)
        push(q, "--unique", "k");
    harness_signal(w, SIGTERM);
    harness_write("open", "", 0);
    cr_assert_eq(harness_wait(w, SOON_MS), 0);
    w = ctl_worker(q, GATED);
    harness_until_lines("runs", 2, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_lines("runs"), 2);
}

Test(unique, a_spooled_message_has_its_own_attempts_and_backoff)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--spool", "--spool-sync", "always", "--backoff", "1h",
                   "--", "sh", "-c", "echo $MQW_ATTEMPT >>runs; exit 1");

    push(q, "--max-attempts", "3", "--backoff", "1ms");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    cr_assert_str_eq(harness_read("runs", NULL), "1\n2\n3\n");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Check that another message with the key runs and no duplicate was found. */
static void next_runs(const char *q, const char *key)
{
    size_t before = harness_lines("runs");

    push(q, "--unique", key, "--delay", "0s");
    harness_until_lines("runs", before + 1, SOON_MS);
    cr_assert_eq(ctl_number(q, "duplicates"), 0);
}

Test(unique, a_message_that_will_not_run_gives_its_key_back)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "2", "--max-attempts", "1", "--", "sh", "-c",
                   "how=$(ls bad slow 2>&-); echo x >>runs; case $how in "
                   "bad) exit 1;; slow) exec sleep 1000;; esac");
    char id[32];

    push(q, "--unique", "waits", "--delay", "1h");
    harness_until(ctl_number(q, "waiting") == 1, SOON_MS);
    cr_assert_eq(ctl("cancel", q, "--all").status, 0);
    next_runs(q, "waits");

    ctl_out("pause", q);
    push(q, "--unique", "expires", "--ttl", "1ms");
    ctl_out("resume", q);
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    next_runs(q, "expires");

    harness_write("bad", "", 0);
    push(q, "--unique", "dies");
    harness_until(ctl_number(q, "dead") == 2, SOON_MS);
    unlink(harness_path("bad"));
    next_runs(q, "dies");

    harness_write("slow", "", 0);
    snprintf(id, sizeof id, "%.26s", push(q, "--unique", "runs"));
    harness_until(ctl_number(q, "in_flight") == 1, SOON_MS);
    cr_assert_eq(ctl("cancel", q, "--running", id).status, 0);
    harness_until(ctl_number(q, "in_flight") == 0, SOON_MS);
    unlink(harness_path("slow"));
    next_runs(q, "runs");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(unique, a_message_of_the_spool_that_is_cancelled_gives_its_key_back)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--spool=100", "--", "sh", "-c",
                   "echo x >>runs; while [ ! -e open ]; do sleep 0.02; done");

    push(q, "--header", "x-a=b");
    harness_until_lines("runs", 1, SOON_MS);
    push(q, "--unique", "k");
    for (int i = 0; i < 4; i++)
        push(q, "--header", "x-a=b");
    harness_until(ctl_number(q, "spooled") >= 1, SOON_MS);
    cr_assert_eq(ctl("cancel", q, "--all").status, 0);
    cr_assert_null(strstr(ctl_out("keys", q), "k "), "k is not free");
    harness_write("open", "", 0);
    next_runs(q, "k");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(unique, keys_are_listed_and_freed_with_and_without_a_worker)
{
    const char *q = harness_queue(0, 0), *out;
    struct harness_process *w = ctl_worker(q, RUNS);
    struct harness_result r;
    char id[32];

    r = ctl("keys", q);
    cr_assert(r.status == 0 && !*r.out, "%d: %s%s", r.status, r.out, r.err);
    has(r.err, " has no unique key\n");
    snprintf(id, sizeof id, "%.26s", push(q, "--unique", "a key,1h"));
    push(q, "--unique", "other");
    harness_until_lines("runs", 2, SOON_MS);
    out = ctl_out("keys", q);
    has(out, "a key  ");
    has(out, id);
    has(out, "other");
    ctl_out("keys", q, "--free", "a key");
    cr_assert_null(strstr(ctl_out("keys", q), "a key"));
    next_runs(q, "a key");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    has(ctl_out("keys", "--json", q), "\"key\":\"other\"");
    has(ctl_out("keys", q, "--free", "other"), "freed other");
    r = ctl("keys", q, "--free", "other");
    cr_assert_eq(r.status, 66, "%s", r.err);
    w = ctl_worker(q, RUNS);
    next_runs(q, "other");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}
