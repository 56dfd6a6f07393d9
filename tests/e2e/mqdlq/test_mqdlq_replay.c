/* test_mqdlq_replay.c - mqdlq: replay, discard, purge
 *
 * The tests act as the worker: they receive the message from the queue and
 * settle the row in the store.
 */
#include "tests/e2e/mqdlq/mqdlq_fixture.h"

#include <signal.h>
#include <sqlite3.h>
#include <unistd.h>

TestSuite(replay, .init = harness_init, .fini = harness_fini);

/* Check that a text has a part. */
#define has(text, part) \
    cr_assert(strstr((text), (part)), "no \"%s\" in: %s", (part), (text))

Test(replay, keeps_body_priority_and_id_and_names_the_letter)
{
    const char *q = three_letters();
    unsigned priority;
    has(dlq_out("replay", q, "1"), "1 of 1 letter sent to ");
    const char *text = take(q, &priority);
    cr_assert_eq(priority, 3);
    has(text, "MQW/1\nid: " ID_A "\n");
    has(text, "\nletter: 1\n");
    has(text, "\nsize: 5\n");
    has(text, "\ngroup: g1\n");
    has(text, "\n\nfirst");
}

Test(replay, keeps_what_the_old_header_said_but_the_delay)
{
    const char *q = three_letters();
    good(dlq("replay", q, "2"));
    const char *text = take(q, NULL);
    static const char head[] =
        "MQW/1\nid: " ID_B "\nsent: 5\nsize: 6\ngroup: g2\n"
        "timeout: 77\nletter: 2\nletter-token: ";
    cr_assert_eq(strncmp(text, head, strlen(head)), 0, "%s", text);
    cr_assert_str_eq(text + strlen(head) + 26, "\nx-trace: abc\n\nsecond");
}

Test(replay, a_replayed_letter_stays_marked_until_it_is_settled)
{
    const char *q = three_letters();
    good(dlq("replay", q, "1"));
    cr_assert_eq(count(q), 2);
    cr_assert_eq(count("--replayed", q), 1);
    has(dlq_out("show", q, "1"), "replayed, on its way");
    struct store *s = store(q);
    die_again(s, 1);
    cr_assert_eq(count(q), 3, "it is no dead letter again");
    has(dlq_out("show", q, "1"), "\n  2  ");
    good(dlq("replay", q, "1"));
    cr_assert_eq(store_delete(s, 1, NULL), 0);
    cr_assert_eq(count("--replayed", q), 0, "a done letter is left");
    cr_assert_eq(dlq("show", q, "1").status, 66);
    store_close(&s);
}

/* Return the token by which a message names its replay. */
static const char *token_of(const char *text)
{
    static char token[2][27];
    static int at;
    const char *line = strstr(text, "\nletter-token: ");
    cr_assert(line, "%s", text);
    at = !at;
    snprintf(token[at], sizeof token[at], "%s", line + 15);
    return token[at];
}

Test(replay, all_goes_oldest_first_and_not_what_is_on_its_way)
{
    const char *q = three_letters();
    good(dlq("replay", "--all", q));
    has(take(q, NULL), "letter: 1\n"); /* priority 3, so it is the first */
    has(take(q, NULL), "letter: 2\n");
    has(take(q, NULL), "letter: 3\n");
    has(dlq_out("replay", "--all", q),
        "0 letters chosen; 3 are on their way already: see mqdlq list "
        "--replayed --state-dir /");
    cr_assert_eq(harness_queue_length(q), 0);
    cr_assert_eq(count("--replayed", q), 3);
}

Test(replay, one_that_is_on_its_way_is_refused_by_name)
{
    const char *q = three_letters();
    good(dlq("replay", q, "1"));
    struct harness_result r = dlq("replay", q, "1", "2");
    cr_assert_eq(r.status, 65);
    has(r.err, "letter 1 has been on its way since 20");
    has(r.err, "; `mqdlq replay --again --state-dir /");
    has(r.err, " 1` sends it once more\n");
    has(r.out, "1 of 2 letters sent to ");
    has(r.out, "; 1 is on its way already");
    r = dlq("replay", "--dry-run", q, "1");
    cr_assert_eq(r.status, 65, "%d: %s", r.status, r.err);
    r = dlq("replay", "--raw", q, "1");
    cr_assert_eq(r.status, 65, "sent twice without its number");
    r = dlq("replay", "--to", harness_queue(0, 0), q, ID_A);
    cr_assert_eq(r.status, 65, "%d: %s", r.status, r.err);
    cr_assert_eq(harness_queue_length(q), 2);
    has(dlq_out("show", q, "1"), "replayed, on its way since 20");
}

Test(replay, again_sends_another_copy_under_the_same_token)
{
    const char *q = three_letters();
    good(dlq("replay", "--all", q));
    for (int i = 0; i < 2; i++)
        take(q, NULL);
    const char *first = token_of(take(q, NULL)), *second;
    has(dlq_out("replay", "--again", q, "3"), "1 of 1 letter sent");
    second = token_of(take(q, NULL));
    cr_assert_str_eq(first, second);
    has(dlq_out("replay", "--again", "--replayed", "--limit", "2", q),
        "2 of 2");
    has(take(q, NULL), "letter: 2\n");
    has(take(q, NULL), "letter: 3\n");
    has(dlq_out("show", q, "3"), "replayed, on its way since 20");
}

Test(replay, replayed_alone_sends_nothing_twice)
{
    const char *q = three_letters();
    good(dlq("replay", q, "1"));
    struct harness_result r = dlq("replay", "--replayed", q);
    cr_assert_eq(r.status, 65);
    has(r.out, "0 of 1 letter sent");
    has(r.out, "; 1 is on its way already");
    cr_assert_eq(harness_queue_length(q), 1);
}

Test(replay, again_must_be_told_of_what_and_must_be_known_for_a_copy)
{
    const char *q = three_letters();
    struct harness_result r = dlq("replay", "--again", "--all", q);
    cr_assert_eq(r.status, 64);
    has(r.err, "give their ids, or --replayed");
    r = dlq("replay", "--again", "--raw", q, "1");
    cr_assert_eq(r.status, 64);
    has(r.err, "which it cannot with --raw or --to");
    cr_assert_eq(dlq("replay", "--again", "--to", "/x", q, "1").status, 64);
    has(dlq_out("replay", "--again", q, "1"), "1 of 1 letter sent");
    cr_assert_eq(harness_queue_length(q), 1, "one that is dead is sent");
}

Test(replay, each_replay_has_a_token_of_its_own)
{
    const char *q = three_letters();
    struct store *s = store(q);
    good(dlq("replay", q, "1"));
    const char *first = token_of(take(q, NULL)), *second;
    die_again(s, 1);
    good(dlq("replay", q, "1"));
    second = token_of(take(q, NULL));
    cr_assert_str_neq(first, second);
    store_close(&s);
}

Test(replay, what_was_sent_in_another_boot_is_on_its_way_no_more)
{
    const char *q = three_letters();
    good(dlq("replay", q, "1"));
    take(q, NULL);
    harness_sql(q, "UPDATE messages SET boot = 'another'");
    has(dlq_out("replay", q, "1"), "1 of 1 letter sent");
}

Test(replay, ids_come_from_stdin_and_missing_ones_are_66_at_the_end)
{
    const char *q = three_letters();
    struct harness_result r =
        dlq_input("3 17\n" ID_A "\n1\n", "replay", q, "-");
    cr_assert_eq(r.status, 66);
    has(r.err, "17");
    has(r.out, "2 of 2 letters");
    has(take(q, NULL), "letter: 1\n");
    has(take(q, NULL), "letter: 3\n");
}

Test(replay, raw_sends_the_received_bytes_and_removes_the_letter)
{
    const char *q = three_letters();
    good(dlq("replay", "--raw", q, "2"));
    has(take(q, NULL), "\nnot-before: 9\n");
    good(dlq("replay", "--raw", q, "1"));
    cr_assert_str_eq(take(q, NULL), "first");
    cr_assert_eq(count(q), 1);
    cr_assert_eq(count("--replayed", q), 0);
}

Test(replay, to_another_queue_carries_the_id_and_no_letter)
{
    const char *q = three_letters();
    const char *other = harness_queue(0, 0);
    good(dlq("replay", "--to", other, q, "1"));
    const char *text = take(other, NULL);
    has(text, "id: " ID_A "\n");
    cr_assert_null(strstr(text, "letter:"));
    cr_assert_eq(dlq("show", q, "1").status, 66);
    cr_assert_eq(harness_queue_length(q), 0);
    good(dlq("replay", "--to", q + 1, q, "2"));
    has(take(q, NULL), "letter: 2\n"); /* sent to its own queue */
    struct harness_result r = dlq("replay", "--to", "/mqt-none", q, "3");
    cr_assert_eq(r.status, 66);
    cr_assert_eq(count(q), 1);
}

/* Import a letter with a body of `size` times 'x'. */
static void body_letter(const char *q, size_t size)
{
    char text[1024];
    memset(text, 'x', sizeof text);
    int n = snprintf(text, sizeof text, "{\"reason\":\"rejected\",\"body\":\"");
    text[n] = 'x';
    memcpy(text + n + size, "\"}", 3);
    good(dlq_input(text, "import", q));
}

Test(replay, a_body_too_large_behind_a_header_goes_raw)
{
    const char *q = harness_queue(0, 256);
    body_letter(q, 250);
    has(dlq_out("replay", "--dry-run", q, "1"), "as received, and remove it");
    good(dlq("replay", q, "1"));
    cr_assert_eq(strlen(take(q, NULL)), 250);
    cr_assert_eq(count(q), 0);
    cr_assert_eq(count("--replayed", q), 0);
}

Test(replay, a_body_too_large_for_the_queue_stays_and_the_others_go_on)
{
    const char *q = harness_queue(0, 256);
    body_letter(q, 257);
    body_letter(q, 10);
    struct harness_result r = dlq("replay", "--all", q);
    cr_assert_eq(r.status, 65);
    has(r.err, "letter 1 is not sent: 257 bytes, and the queue takes 256");
    has(r.out, "1 of 2 letters sent");
    has(take(q, NULL), "letter: 2\n");
    cr_assert_eq(count(q), 1);
}

Test(replay, an_expired_letter_is_refused_without_reset_expiry)
{
    static const char letter[] =
        "{\"reason\":\"expired\",\"body\":\"b\",\"header\":"
        "\"MQW/1\\nexpires: 1000\\n\\n\"}\n";
    const char *q = three_letters();
    good(dlq_input(letter, "import", q));
    struct harness_result r = dlq("replay", q, "1", "4");
    cr_assert_eq(r.status, 65);
    has(r.err, "letter 4 is not sent: it expired 1970-01-01T00:00:00.000Z");
    has(take(q, NULL), "letter: 1\n");
    cr_assert_eq(dlq("replay", "--raw", q, "4").status, 65);
    cr_assert_eq(dlq("replay", "--raw", "--reset-expiry", q, "4").status, 64);
    cr_assert_eq(harness_queue_length(q), 0);
    good(dlq("replay", "--reset-expiry", q, "4"));
    const char *text = take(q, NULL);
    has(text, "letter: 4\n");
    cr_assert_null(strstr(text, "expires"));
}

Test(replay, a_full_queue_is_75_in_time_and_the_letter_is_dead_again)
{
    const char *q = harness_queue(2, 0);
    good(dlq_input(three, "import", q));
    struct harness_result r = dlq("replay", "--wait", "50ms", "--all", q);
    cr_assert_eq(r.status, 75);
    has(r.out, "2 of 3 letters sent");
    cr_assert_eq(count(q), 1, "the third is not dead again");
    cr_assert_eq(count("--replayed", q), 2);
}

Test(replay, waits_for_room_as_long_as_it_takes)
{
    const char *q = harness_queue(1, 0);
    good(dlq_input(three, "import", q));
    struct harness_process *p = harness_program(
        "mqdlq", "replay", "--state-dir", harness_state_dir(), "--all", q);
    for (int i = 1; i <= 3; i++) {
        char want[32];
        snprintf(want, sizeof want, "letter: %d\n", i);
        harness_until(harness_queue_length(q) == 1, 10000);
        has(take(q, NULL), want);
    }
    cr_assert_eq(harness_wait(p, 10000), 0);
}

Test(replay, a_signal_while_it_waits_leaves_no_mark_and_tells_how_far)
{
    const char *q = harness_queue(2, 0);
    good(dlq_input(three, "import", q));
    struct harness_process *p = harness_program(
        "mqdlq", "replay", "--state-dir", harness_state_dir(), "--all", q);
    harness_until(harness_queue_length(q) == 2 && count("--replayed", q) == 3,
                  10000);
    harness_signal(p, SIGINT);
    cr_assert_eq(harness_wait(p, 10000), -SIGINT);
    has(harness_stdout(p, NULL), "2 of 3 letters sent");
    has(harness_stderr(p, NULL), "interrupted");
    cr_assert_eq(count(q), 1);
}

/* mqdlq has read the letter and waits for the lock of the store to mark the
 * letter. */
Test(replay, a_letter_that_changed_meanwhile_is_65)
{
    static const char *const changes[] = {"died_ns = died_ns + 1",
                                          "id = randomblob(16)"};
    const char *q = three_letters();
    char sql[128];
    sqlite3 *db;
    sqlite3_open(harness_path("%s%s/store.db", harness_state_dir(), q), &db);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), 0);
        struct harness_process *p = harness_program(
            "mqdlq", "replay", "--state-dir", harness_state_dir(), q, "1");
        harness_until(is_in(harness_pid(p), SYS_clock_nanosleep), 10000);
        snprintf(sql, sizeof sql,
                 "UPDATE messages SET %s WHERE row = 1; COMMIT", changes[i]);
        cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), 0);
        cr_assert_eq(harness_wait(p, 10000), 65);
        has(harness_stderr(p, NULL),
            "letter 1 is not sent: in the meantime it was done, discarded or "
            "edited, or died again\n");
        has(harness_stdout(p, NULL), "0 of 1 letter sent");
        cr_assert_eq(harness_queue_length(q), 0);
    }
    sqlite3_close(db);
}

Test(replay, killed_while_it_waits_loses_no_letter)
{
    const char *q = harness_queue(2, 0);
    good(dlq_input(three, "import", q));
    struct harness_process *p = harness_program(
        "mqdlq", "replay", "--state-dir", harness_state_dir(), "--all", q);
    harness_until(count("--replayed", q) == 3, 10000);
    harness_kill(p);
    cr_assert_eq(count("--replayed", q), 3, "marked, in the store, visible");
    take(q, NULL);
    struct harness_result r = dlq("replay", q, "2", "3");
    cr_assert_eq(r.status, 65);
    has(r.err, "letter 2 has been on its way since ");
    has(r.err, "letter 3 was marked 20");
    has(r.err,
        " and maybe not sent: another mqdlq is sending it, or was killed; "
        "`mqdlq replay --again --state-dir /");
    has(r.err, " 3` sends it\n");
    has(dlq_out("show", q, "3"), "replayed, maybe not sent; marked 20");
    has(dlq_out("show", q, "3"),
        "to send it      mqdlq replay --again --state-dir /");
    has(dlq_out("show", "--json", q, "3"),
        "\"state\":\"replayed\",\"replay\":\"unsure\",\"replayed_at\":\"20");
    has(dlq_out("show", "--json", q, "2"), "\"replay\":\"sent\"");
    good(dlq("replay", "--again", q, "3"));
    cr_assert_eq(harness_queue_length(q), 2);
}

Test(replay, one_that_failed_is_listed_while_it_waits_for_its_retry)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--backoff", "1h", "--", "sh", "-c",
                       "[ -e fixed ] || exit 65; "
                       "exit 9");
    const char *out;

    harness_send_text(q, "again");
    harness_until(count(q) == 1, 10000);
    harness_write("fixed", "", 0);
    good(dlq("replay", q, "1"));
    harness_until(count("--replayed", q) == 1 &&
                      strstr(dlq_out("list", "--replayed", q), "exit 9"),
                  10000);
    out = dlq_out("list", "--replayed", q);
    has(out, "  retry  ");
    out = dlq_out("list", "--replayed", "--json", q);
    has(out, "\"state\":\"retry\",\"replay\":null,");
    has(out, "\"error\":\"exit 9\"");
    cr_assert_eq(count("--replayed", "--error", "exit 65", q), 0);
    cr_assert_eq(strlen(dlq_out("export", "--replayed", q)), 0);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

Test(replay, rate_paces)
{
    const char *q = three_letters();
    uint64_t start = harness_now_ms();
    good(dlq("replay", "--rate", "10/s", "--all", q));
    cr_assert_geq(harness_now_ms() - start, 200);
}

Test(replay, dry_run_does_nothing)
{
    const char *q = three_letters();
    const char *out = dlq_out("replay", "-n", "--all", q);
    has(out, "would send 1 to ");
    has(out, "3 of 3 letters would be sent");
    out = dlq_out("discard", "-n", q, "2");
    has(out, "would remove 2 " ID_B);
    has(dlq_out("purge", "-n", "--older-than", "1d", q),
        "3 letters would be removed");
    cr_assert_eq(count(q), 3);
    cr_assert_eq(harness_queue_length(q), 0);
}

/* ---- output for programs: --json, --quiet ---- */

Test(replay, json_says_what_was_done)
{
    const char *q = three_letters(), *out;
    char want[256];

    out = dlq_out("list", "--count", "--json", q);
    snprintf(want, sizeof want, "{\"queue\":\"%s\",\"count\":3}\n", q);
    cr_assert_str_eq(out, want);
    out = dlq_out("replay", "-nj", q, "1", "2");
    snprintf(want, sizeof want, "{\"id\":1,\"to\":\"%s\",\"size\":", q);
    has(out, want);
    has(out, "\"priority\":3,\"removed\":false}\n{\"id\":2,");
    has(out, "\"sent\":2,\"refused\":0,\"on_way\":0,\"dry_run\":true}\n");
    out = dlq_out("replay", "-j", q, "1");
    snprintf(want, sizeof want,
             "{\"queue\":\"%s\",\"to\":\"%s\",\"chosen\":1,\"sent\":1,"
             "\"refused\":0,\"on_way\":0,\"dry_run\":false}\n",
             q, q);
    cr_assert_str_eq(out, want);
    has(dlq_out("replay", "-j", "--error", "none", q),
        "\"to\":null,\"chosen\":0,\"sent\":0,\"refused\":0,\"on_way\":0");
    out = dlq_out("discard", "-nj", q, "2");
    has(out, "{\"id\":2,\"message_id\":\"" ID_B "\",\"died_at\":\"2026-01-02T");
    has(out, "\"chosen\":1,\"removed\":0,\"dry_run\":true,\"on_way\":0}\n");
    out = dlq_out("discard", "-j", q, "2");
    snprintf(want, sizeof want,
             "{\"queue\":\"%s\",\"chosen\":1,\"removed\":1,"
             "\"dry_run\":false,\"on_way\":0}\n",
             q);
    cr_assert_str_eq(out, want);
    out = good(dlq_input(three, "import", "-j", "--again", q));
    snprintf(want, sizeof want,
             "{\"queue\":\"%s\",\"imported\":3,\"present\":0}\n", q);
    cr_assert_str_eq(out, want);
}

Test(replay, quiet_prints_only_what_goes_wrong)
{
    const char *q = three_letters();
    struct harness_result r = dlq("replay", "-q", q, "1");

    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_str_eq(r.out, "");
    cr_assert_str_eq(r.err, "");
    cr_assert_eq(harness_queue_length(q), 1);
    r = dlq("replay", "-q", q, "1");
    cr_assert_eq(r.status, 65);
    has(r.err, "has been on its way");
    cr_assert_str_eq(dlq_out("discard", "-q", q, "2"), "");
    cr_assert_str_eq(dlq_out("purge", "-q", "--all", q), "");
    cr_assert_str_eq(good(dlq_input(three, "import", "-q", "--again", q)), "");
    cr_assert_eq(count(q), 3);
}

/* ---- the canary ---- */

/* Start to replay all letters with a canary; return when the canary is in the
 * queue. */
static struct harness_process *canary_start(const char *q)
{
    struct harness_process *p =
        harness_program("mqdlq", "replay", "--canary", "--state-dir",
                        harness_state_dir(), "--all", q);
    harness_until(harness_queue_length(q) == 1, 10000);
    has(take(q, NULL), "letter: 1\n");
    return p;
}

/* Do what the worker does when a message is to be retried. */
static void to_waiting(struct store *s, int64_t row)
{
    struct store_row m;
    char group[256];
    cr_assert_eq(store_get(s, row, &m, NULL, 0, group), 0);
    m.state = STORE_WAITING;
    m.attempts = 1;
    m.due_ns = UINT64_C(1) << 60;
    cr_assert_eq(store_put(s, &m, NULL, &row), 0);
}

Test(replay, the_canary_done_the_others_follow)
{
    const char *q = three_letters();
    struct harness_process *p = canary_start(q);
    struct store *s = store(q);
    to_waiting(s, 1);
    /* mqdlq sleeps between two checks. After three more sleeps, at least one
     * whole check has seen the retry. */
    long switches = harness_switches(p);
    harness_until(harness_switches(p) >= switches + 3, 10000);
    cr_assert_eq(harness_queue_length(q), 0, "a retry is no end");
    cr_assert(harness_running(p));
    cr_assert_eq(store_delete(s, 1, NULL), 0);
    store_close(&s);
    cr_assert_eq(harness_wait(p, 10000), 0);
    cr_assert_eq(harness_queue_length(q), 2);
}

Test(replay, the_canary_dead_nothing_follows_and_it_is_75)
{
    const char *q = three_letters();
    struct harness_process *p = canary_start(q);
    struct store *s = store(q);
    die_again(s, 1);
    store_close(&s);
    cr_assert_eq(harness_wait(p, 10000), 75);
    has(harness_stderr(p, NULL), "died again: rejected: exit 65");
    cr_assert_eq(harness_queue_length(q), 0);
    cr_assert_eq(count(q), 3);
}

Test(replay, a_canary_that_is_not_settled_in_time_is_75)
{
    const char *q = three_letters();
    struct harness_result r =
        dlq("replay", "--canary", "--wait", "100ms", "--all", q);
    cr_assert_eq(r.status, 75);
    has(r.err, "not settled in time");
    has(r.out, "1 of 3 letters sent");
    cr_assert_eq(dlq("replay", "--canary", "--raw", "--all", q).status, 64);
    cr_assert_eq(dlq("replay", "--canary", "--to", "x", "--all", q).status, 64);
}

/* ---- removal ---- */

Test(replay, removing_verbs_want_to_be_told_of_what)
{
    const char *q = three_letters();
    cr_assert_eq(dlq("replay", q).status, 64);
    cr_assert_eq(dlq("discard", q).status, 64);
    cr_assert_eq(dlq("purge", q).status, 64);
    cr_assert_eq(dlq("purge", "--all", q, "1").status, 64);
    cr_assert_eq(dlq("discard", "--all", q, "1").status, 64);
    cr_assert_eq(dlq("discard", "--group", "g1", q, "1").status, 64);
    cr_assert_eq(dlq("show", q).status, 64);
    cr_assert_eq(dlq("list", "--raw", q).status, 64);
    cr_assert_eq(harness_run("mqdlq").status, 64);
    cr_assert_eq(harness_run("mqdlq", "lst", q).status, 64);
    cr_assert_eq(harness_run("mqdlq", "show").status, 64);
    cr_assert_eq(count(q), 3);
    cr_assert_eq(harness_queue_length(q), 0);
}

Test(replay, says_when_no_worker_will_take_what_was_sent)
{
    const char *q = three_letters();
    struct harness_result r = dlq("replay", "--all", q);
    cr_assert_eq(r.status, 0);
    has(r.err, "no worker is running on ");
    has(dlq_out("discard", "--all", q),
        "0 of 0 letters removed; 3 are on their way already: see mqdlq list "
        "--replayed --state-dir /");
    harness_worker(q, "--", "true");
    harness_until(count("--replayed", q) == 0, 20000);
    good(dlq_input(three, "import", q));
    r = dlq("replay", "--all", q);
    cr_assert_null(strstr(r.err, "no worker"), "%s", r.err);
}

Test(replay, discard_removes_by_id_by_filter_and_all)
{
    const char *q = three_letters();
    has(dlq_out("discard", q, "1"), "1 of 1 letter removed");
    cr_assert_eq(count(q), 2);
    good(dlq("discard", "--reason", "rejected", q));
    cr_assert_eq(count("--reason", "rejected", q), 0);
    cr_assert_eq(count(q), 1);
    good(dlq("discard", "--all", q));
    cr_assert_eq(count(q), 0);
    struct harness_result r = dlq("discard", q, "1");
    cr_assert_eq(r.status, 66);
}

Test(replay, an_id_is_never_used_twice)
{
    const char *q = three_letters();
    good(dlq("discard", "--all", q));
    good(dlq_input(three, "import", q));
    cr_assert_eq(dlq("show", q, "3").status, 66);
    good(dlq("show", q, "4"));
}

Test(replay, purge_takes_an_age_or_a_filter_or_all_and_says_so)
{
    const char *q = three_letters();
    has(dlq_out("purge", "--help"), "QUEUE --older-than DUR|--all|filter");
    has(dlq_out("purge", "-n", "--all", q), "3 letters would be removed");
    has(dlq_out("purge", "--group", "nobody", q), "0 of 0");
    has(dlq_out("purge", "--all", q), "3 of 3 letters removed");
}

Test(replay, purge_removes_what_died_longer_ago)
{
    const char *q = three_letters();
    good(dlq_input("{\"reason\":\"rejected\",\"body\":\"new\"}", "import", q));
    has(dlq_out("purge", "--older-than", "1d", q), "3 of 3 letters removed");
    cr_assert_eq(count(q), 1);
    has(dlq_out("purge", "--older-than", "1d", q), "0 of 0");
    has(dlq_out("purge", "--older-than", "0", q), "1 of 1 letter removed");
}

Test(replay, a_state_directory_that_cannot_be_used_is_73)
{
    const char *q = three_letters();
    harness_write("file", "", 0);
    struct harness_result r =
        harness_run("mqdlq", "list", "--state-dir", harness_path("file"), q);
    cr_assert_eq(r.status, 73, "%d: %s", r.status, r.err);
    has(r.err, "file");
}

Test(replay, output_on_a_full_disk_is_74)
{
    const char *q = three_letters();
    struct harness_result r = harness_run(
        "sh", "-c", "\"$0\" export --state-dir \"$1\" \"$2\" > /dev/full",
        harness_bin("mqdlq"), harness_state_dir(), q);
    cr_assert_eq(r.status, 74, "%d: %s", r.status, r.err);
}
