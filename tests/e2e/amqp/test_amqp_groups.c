/* test_amqp_groups.c - a queue with partitions: each group in its order, with
 * one worker and with several, while workers die */
#define AMQP_BROKER 1
#include "tests/e2e/amqp/amqp_turns.h"

#include <signal.h>

/* Each wait has a limit of its own, which $MQW_TEST_SLOW makes longer. */
TestSuite(amqp_groups, .init = amqp_init, .fini = amqp_fini, .timeout = 4000);

#define WORKERS 4

/* ---- what it is ---- */

/* Return the place of a line in "runs". */
static ptrdiff_t line_of(const char *line)
{
    const char *runs = harness_read("runs", NULL), *at = strstr(runs, line);

    cr_assert_not_null(at, "%s", line);
    return at - runs;
}

Test(amqp_groups, a_head_that_fails_holds_back_its_group_only)
{
    struct harness_process *w = amqp_worker(
        "-c", "4", "--partitions", "2", "--backoff", "2s", "--jitter", "0",
        "--",
        harness_script("h", "b=$(cat)\n"
                            "echo \"$b $MQW_ATTEMPT\" >>$MQW_GROUP\n"
                            "echo \"$MQW_GROUP $b $MQW_ATTEMPT\" >>runs\n"
                            "[ $b != head ] || [ $MQW_ATTEMPT -gt 2 ]\n"));
    static const char *const all[][2] = {
        {"a", "head"}, {"a", "next"}, {"a", "last"}, {"b", "other"}};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        cr_assert_eq(harness_run("mqsend", "--partitions", "2", "--group",
                                 all[i][0], OPERAND, all[i][1])
                         .status,
                     0);
    harness_until_lines("runs", 6, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(harness_read("a", NULL),
                     "head 1\nhead 2\nhead 3\nnext 1\nlast 1\n");
    cr_assert_str_eq(harness_read("b", NULL), "other 1\n");
    /* The head waits for seconds, and the other group does not. */
    cr_assert_lt(line_of("b other 1"), line_of("a head 2"));
}

/* Send a message to a group, with a number of partitions. */
static void send(const char *partitions, const char *group, const char *body)
{
    struct harness_result r = harness_run("mqsend", "--partitions", partitions,
                                          "--group", group, OPERAND, body);

    cr_assert_eq(r.status, 0, "%s", r.err);
}

Test(amqp_groups, status_tells_which_partitions_it_has_and_what_waits)
{
    struct harness_process *w = amqp_worker(
        "-c", "1", "--partitions", "4", "--backoff", "2m", "--max-attempts",
        "3", "--", "sh", "-c", "cat >/dev/null; exit 1");
    struct harness_result r;

    r = harness_run("mqctl", "status", "--state-dir", harness_state_dir(),
                    OPERAND);
    cr_assert_not_null(strstr(r.out, "4; messages have come from none"), "%s",
                       r.out);
    /* CRC-32 of "g7" modulo 4 is 0 */
    send("4", "g7", "bad");
    send("4", "g7", "behind");
    harness_wait_log(w, "event=retry", 20000);
    harness_until(
        strstr((r = harness_run("mqctl", "status", "--state-dir",
                                harness_state_dir(), OPERAND))
                   .out,
               "2 messages of all partitions; 1 group is waiting for a "
               "retry") != NULL,
        10000);
    cr_assert_not_null(strstr(r.out, "4; messages have come from 0\n"), "%s",
                       r.out);
    r = harness_run("mqctl", "status", "--json", "--state-dir",
                    harness_state_dir(), OPERAND);
    cr_assert_not_null(strstr(r.out, "{\"partition\":0,\"here\":true,"
                                     "\"in_hand\":2,\"blocked_groups\":1}"),
                       "%s", r.out);
    r = harness_run("mqctl", "metrics", "--state-dir", harness_state_dir());
    cr_assert_not_null(strstr(r.out, "mqworker_partitions_here{"), "%s", r.out);
    cr_assert_not_null(strstr(r.out, "mqworker_groups_blocked{"), "%s", r.out);
    cr_assert_eq(harness_stop(w, 20000), 0);
}

Test(amqp_groups, a_letter_has_each_attempt_and_is_replayed_to_its_group)
{
    struct harness_process *w =
        amqp_worker("-c", "2", "--partitions", "4", "--backoff", "200ms",
                    "--max-attempts", "3", "--plugin", harness_plugin("turns"));
    struct harness_result r;

    cr_assert_eq(harness_run("mqsend", "--partitions", "4", "--group", "g7",
                             OPERAND, "bad")
                     .status,
                 0);
    cr_assert_eq(harness_run("mqsend", "--partitions", "4", "--group", "g7",
                             OPERAND, "1")
                     .status,
                 0);
    harness_until(amqp_ready(amqp_of("dead")) == 1, 20000);
    harness_until_lines("turns", 5, 20000);
    r = harness_run("mqdlq", "list", "--json", OPERAND);
    cr_assert_not_null(strstr(r.out, "\"group\":\"g7\""), "%s", r.out);
    cr_assert_not_null(strstr(r.out, "\"attempts\":3"), "%s", r.out);
    r = harness_run("mqdlq", "replay", "--all", "--partitions", "4",
                    "--dry-run", OPERAND);
    /* CRC-32 of "g7" modulo 4 is 0 */
    cr_assert_not_null(strstr(r.out, amqp_of("0: 3 bytes")), "%s", r.out);
    r = harness_run("mqdlq", "replay", "--all", "--partitions", "4", OPERAND);
    cr_assert_eq(r.status, 0, "%s", r.err);
    harness_until_lines("turns", 6, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_log_count(w, "event=group_refused"), 0);
    cr_assert_eq(harness_lines_with("turns", "b g7 bad"), 4);
}

Test(amqp_groups, a_canary_is_looked_for_in_the_partition_of_its_group)
{
    struct harness_process *w = amqp_worker(
        "--partitions", "4", "--max-attempts", "1", "--",
        harness_script("h",
                       "[ -e fixed ] || exit 1\ncat >>runs\necho >>runs\n"));
    struct harness_result r;

    send("4", "g7", "a");
    send("4", "g8", "b");
    harness_until(amqp_ready(amqp_of("dead")) == 2, 20000);
    r = harness_run("mqdlq", "replay", "--all", "--partitions", "4", "--canary",
                    "--canary-time", "30s", OPERAND);
    cr_assert_eq(r.status, 75, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "died again"), "%s", r.err);
    cr_assert_eq(amqp_ready(amqp_of("dead")), 2);
    harness_script("fixed", "");
    r = harness_run("mqdlq", "replay", "--all", "--partitions", "4", "--canary",
                    "--canary-time", "1s", OPERAND);
    cr_assert_eq(r.status, 0, "%s", r.err);
    harness_until_lines("runs", 2, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

Test(amqp_groups, a_delay_and_messages_without_a_group_come_to_a_partition)
{
    struct harness_process *w =
        amqp_worker("--partitions", "3", "--", harness_handler("record"));

    cr_assert_eq(harness_run("mqsend", "--partitions", "3", "--group", "g",
                             "--delay", "1500ms", OPERAND, "later")
                     .status,
                 0);
    cr_assert_eq(harness_run("mqsend", "--partitions", "3", "--repeat", "6",
                             OPERAND, "none")
                     .status,
                 0);
    harness_until_lines("runs", 7, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines_with("runs", " later"), 1);
}

/* Start a worker whose handler can make it crash. */
static struct harness_process *one_at_a_time(void)
{
    return amqp_worker("-c", "1", "--partitions", "2", "--backoff", "1s",
                       "--plugin", harness_plugin("turns"));
}

/* Fails where what crashed waits until nothing is lent, and what is lent waits
 * for it. */
Test(amqp_groups, a_head_that_crashed_and_then_fails_is_tried_again)
{
    struct harness_process *w = one_at_a_time();

    send("2", "g1", "kill");
    cr_assert_eq(harness_wait(w, 20000), -SIGKILL);
    send("2", "g1", "1");
    send("2", "g1", "2");
    w = one_at_a_time();
    harness_until_lines("turns", 1 + 1 + 2 + 2 + 2, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines_with("turns", "b g1 kill"), 3);
}

/* Publish a message to a group without an id, so that equal bodies share one.
 */
static void bare(const char *group, const char *body)
{
    amqp_table_entry_t named = {.key = amqp_word("mqw-group"),
                                .value = {.kind = AMQP_FIELD_KIND_UTF8,
                                          .value.bytes = amqp_word(group)}};

    amqp_publish(part(partition_of(group, strlen(group), 2)), body,
                 strlen(body), (amqp_table_t){1, &named});
}

/* Fails where what crashed is to run alone, and is lent behind a head that
 * waits for all that is lent. */
Test(amqp_groups, what_crashed_behind_a_head_in_hand_waits_for_it)
{
    struct harness_process *w = one_at_a_time();

    bare("g1", "kill");
    cr_assert_eq(harness_wait(w, 20000), -SIGKILL);
    /* If the dead worker gets one more, it comes again marked and kills
     * nobody. */
    harness_until(amqp_ready(part(partition_of("g1", 2, 2))) == 1, 20000);
    bare("g0", "7");
    bare("g0", "kill");
    w = one_at_a_time();
    cr_assert_eq(harness_wait(w, 20000), -SIGKILL);
    w = one_at_a_time();
    /* What was done as it died may run once more. */
    harness_until(harness_lines_with("turns", "e g0 kill") >= 1, 20000);
    harness_until(harness_lines_with("turns", "e g1 kill") >= 1, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_geq(harness_lines_with("turns", "e g0 7"), 1);
}

Test(amqp_groups, a_head_that_waits_in_hand_is_not_idle)
{
    struct harness_process *w = amqp_worker(
        "--partitions", "2", "--backoff", "4s", "--exit-when-idle=500ms", "--",
        harness_script("h", "echo $MQW_ATTEMPT >>runs\n"
                            "[ $MQW_ATTEMPT -gt 1 ]\n"));

    send("2", "g", "x");
    cr_assert_eq(harness_wait(w, 30000), 0);
    cr_assert_str_eq(harness_read("runs", NULL), "1\n2\n");
}

/* ---- what cannot be ---- */

Test(amqp_groups, another_number_of_partitions_is_refused)
{
    struct harness_process *w = worker(0, "4"), *other = worker_start(1, "3");
    struct harness_result r;

    cr_assert_eq(harness_wait(other, 20000), 78);
    cr_assert_eq(harness_log_count(other, "another number of partitions"), 1);
    r = harness_run("mqsend", "--partitions", "3", "--group", "g", OPERAND,
                    "x");
    cr_assert_eq(r.status, 66, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "no 3 partitions"), "%s", r.err);
    r = harness_run("mqsend", "--create", "--partitions", "3", "--group", "g",
                    OPERAND, "x");
    cr_assert_eq(r.status, 78, "%s", r.err);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

Test(amqp_groups, a_queue_without_partitions_gets_none)
{
    struct harness_result r = harness_run("mqsend", "--create", OPERAND, "x");

    cr_assert_eq(r.status, 0, "%s", r.err);
    r = harness_run("mqsend", "--create", "--partitions", "2", OPERAND, "x");
    cr_assert_eq(r.status, 78, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "leave out --partitions"), "%s", r.err);
    amqp_queue_declare(amqp_client, 1, amqp_word(part(0)), 0, 1, 0, 0,
                       (amqp_table_t){0, NULL});
    amqp_ok(amqp_get_rpc_reply(amqp_client));
    r = harness_run("mqsend", "--create", "--partitions", "2", OPERAND, "x");
    cr_assert_eq(r.status, 78, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "is another queue, leave out"), "%s",
                       r.err);
    r = harness_run("mqsend", "--group", "g", OPERAND, "x");
    cr_assert_eq(r.status, 64, "%s", r.err);
    r = harness_run("mqworker", OPERAND, "--partitions", "2", "--backoff",
                    "10m", "--", "true");
    cr_assert_eq(r.status, 64, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "--max-attempts"), "%s", r.err);
}

/* A worker without partitions would get nothing and say nothing, and none with
 * partitions could start. */
Test(amqp_groups, a_queue_with_partitions_gets_none_without)
{
    struct harness_result r;
    long n;

    cr_assert_eq(
        harness_run("mqsend", "--create", "--partitions", "2", OPERAND, "x")
            .status,
        0);
    n = amqp_ready(part(0));
    n += amqp_ready(part(1));
    cr_assert_eq(n, 1, "it was confirmed, and not sent again");
    r = harness_run("mqworker", OPERAND, "--", "true");
    cr_assert_eq(r.status, 78, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "give --partitions"), "%s", r.err);
    r = harness_run("mqsend", "--create", OPERAND, "x");
    cr_assert_eq(r.status, 78, "%s", r.err);
    cr_assert_eq(amqp_ready(amqp_queue), -1, "and it is not made");
}

Test(amqp_groups, what_the_broker_would_not_wait_for_is_not_set)
{
    struct harness_process *w = worker(0, "2");
    static const char *const set[] = {"backoff=10m", "max-attempts=100000",
                                      "timeout=10m", "max-timeout=10m"};
    struct harness_result r;

    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        r = harness_run("mqctl", "set", "--state-dir", harness_path("state0"),
                        OPERAND, set[i]);
        cr_assert_eq(r.status, 64, "%s: %s", set[i], r.err);
        cr_assert_not_null(strstr(r.err, "less than 20m"), "%s", r.err);
    }
    r = harness_run("mqctl", "set", "--state-dir", harness_path("state0"),
                    OPERAND, "backoff=1m");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

/* Fails where the message's own limit of an hour counts: no test waits that
 * long. */
Test(amqp_groups, a_time_limit_of_a_message_is_cut_to_what_counts)
{
    struct harness_process *w =
        amqp_worker("-c", "1", "--partitions", "2", "--timeout", "1s",
                    "--max-attempts", "1", "--", "sleep", "1000");

    for (int i = 0; i < 2; i++)
        cr_assert_eq(harness_run("mqsend", "--partitions", "2", "--group", "g",
                                 "--timeout", "1h", OPERAND, "x")
                         .status,
                     0);
    harness_until(amqp_ready(amqp_of("dead")) == 2, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_log_count(w, "event=timeout_cut"), 1, "once");
    cr_assert_eq(harness_log_count(w, "asks=1h gets=1s"), 1);
}

Test(amqp_groups, what_is_not_in_the_partition_of_its_group_is_a_letter)
{
    struct harness_process *w = worker(0, "2");
    amqp_table_entry_t group = {.key = amqp_word("mqw-group"),
                                .value = {.kind = AMQP_FIELD_KIND_UTF8,
                                          .value.bytes = amqp_word("g0")}};

    amqp_publish(part(1 - partition_of("g0", 2, 2)), "1", 1,
                 (amqp_table_t){1, &group});
    harness_until(amqp_ready(amqp_of("dead")) == 1, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_log_count(w, "event=group_refused"), 1);
    cr_assert_eq(harness_lines("turns"), 0);
}

/* ---- order ---- */

Test(amqp_groups, eight_partitions_keep_their_groups_over_two_restarts)
{
    struct harness_process *w = worker(0, "8");

    rounds_publish(40, EACH, 8);
    for (unsigned part_done = 1; part_done <= 2; part_done++) {
        until_left(40, EACH, 40 * EACH - part_done * 120);
        cr_assert_eq(harness_stop(w, DRAIN), 0);
        w = worker(part_done, "8");
    }
    until_left(40, EACH, 0);
    cr_assert_eq(harness_stop(w, DRAIN), 0);
    cr_assert_eq(missing(40, EACH), 0);
}

/* Fails where a group waits for a head whose claim went with a connection. */
Test(amqp_groups, a_group_goes_on_after_its_heads_connection_is_closed)
{
    struct harness_process *w =
        amqp_worker("-c", "2", "--partitions", "2", "--backoff", "15m",
                    "--max-attempts", "2", "--plugin", harness_plugin("turns"));

    rounds_publish(3, 7, 2);
    until_left(3, 7, 3); /* the last of each failed, and waits */
    harness_until_lines("turns", 3 * 6 * 2 + 3, 20000);
    cr_assert_eq(amqp_ctl("close_all_connections", "test").status, 0);
    amqp_disconnect();
    amqp_connect();
    harness_until(harness_log_count(w, "event=link_up") >= 1, 20000);
    harness_until_lines("turns", 3 * 6 * 2 + 6, 20000);
    cr_assert_eq(harness_stop(w, DRAIN), 0);
    cr_assert_eq(missing(3, 7), 3);
}

static unsigned any(unsigned n)
{
    return (unsigned)random() % n;
}

Test(amqp_groups, order_holds_while_four_workers_are_killed)
{
    struct harness_process *w[WORKERS];
    unsigned total = GROUPS * EACH, kills = 0, which;

    srandom((unsigned)harness_now_ms());
    w[0] = worker(0, "8");
    for (unsigned i = 1; i < WORKERS; i++)
        w[i] = worker(i, "8");
    rounds_publish(GROUPS, EACH, 8);
    while (kills < 12) {
        until_left(GROUPS, EACH, total - (kills + 1) * (total / 14));
        which = any(WORKERS);
        harness_kill(w[which]);
        w[which] = worker(which, "8");
        kills++;
    }
    until_left(GROUPS, EACH, 0);
    for (unsigned i = 0; i < WORKERS; i++)
        cr_assert_eq(harness_stop(w[i], DRAIN), 0);
    cr_assert_eq(missing(GROUPS, EACH), 0);
}
