/* test_amqp_send.c - mqsend to a queue on a broker */
#define AMQP_BROKER 1
#include "tests/e2e/amqp/amqp_fixture.h"

#include <signal.h>

TestSuite(amqp_send, .init = amqp_init, .fini = amqp_fini);

#define SENT(...) harness_run("mqsend", __VA_ARGS__)

Test(amqp_send, what_it_sends_runs_with_all_that_was_said_of_it)
{
    const char *op = amqp_operand(amqp_queue, 1);
    struct harness_process *w;

    cr_assert_eq(SENT("--create", "--id", "01JD3Z6Q9V0X8N5T2K7B4M1C3F",
                      "--header", "x-trace=abc", "--timeout", "7s", op, "body")
                     .status,
                 0);
    w = amqp_worker("--", "sh", "-c",
                    "echo \"$MQW_ID $MQW_X_TRACE ${MQW_SENT_AT:+sent} "
                    "$(cat)\" >>runs");
    harness_until_lines("runs", 1, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(harness_read("runs", NULL),
                     "01JD3Z6Q9V0X8N5T2K7B4M1C3F abc sent body\n");
}

Test(amqp_send, a_queue_that_is_missing_is_said_to_be)
{
    struct harness_result r = SENT(amqp_operand("missing", 1), "body");

    cr_assert_eq(r.status, 66, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "no queue missing"), "%s", r.err);
    cr_assert_not_null(strstr(r.err, "mqsend --create"), "%s", r.err);
    cr_assert_not_null(strstr(r.err, ": 0 confirmed, 1 not taken\n"), "%s",
                       r.err);
}

/* Fails where only the first message that the broker returned counts as not
 * taken. */
Test(amqp_send, what_became_of_each_is_known_where_the_queue_is_missing)
{
    struct harness_result r = harness_run_spec(&(struct harness_spec){
        .argv =
            HARNESS_LIST("sh", "-c", "seq 3000 | \"$1\" --lines \"$2\"", "sh",
                         harness_bin("mqsend"), amqp_operand("missing", 1))});

    cr_assert_eq(r.status, 66, "%s", r.err);
    cr_assert_not_null(strstr(r.err, ": 0 confirmed, "), "%s", r.err);
    cr_assert_not_null(strstr(r.err, " not taken\n"), "%s", r.err);
}

/* The messages of the partition that exists are confirmed. */
Test(amqp_send, of_two_partitions_one_of_which_is_missing_each_is_known)
{
    const char *op = amqp_operand(amqp_queue, 1), *at;
    unsigned long confirmed = 0, not_taken = 0;
    struct harness_result r =
        SENT("--create", "--partitions", "2", "--group", "a", op, "x");
    long before = amqp_ready(amqp_of("0"));

    cr_assert_eq(r.status, 0, "%s", r.err);
    amqp_queue_delete(amqp_client, 1, amqp_word(amqp_of("1")), 0, 0);
    amqp_ok(amqp_get_rpc_reply(amqp_client));
    r = SENT("--partitions", "2", "--repeat", "200", op, "x");
    cr_assert_eq(r.status, 66, "%s", r.err);
    at = strstr(r.err, "--create: ");
    cr_assert(at && sscanf(at, "--create: %lu confirmed, %lu not taken\n",
                           &confirmed, &not_taken) == 2,
              "%s", r.err);
    cr_assert_null(strstr(r.err, "not known"), "%s", r.err);
    cr_assert_eq((long)confirmed, amqp_ready(amqp_of("0")) - before);
    cr_assert_gt(not_taken, 0);
}

/* After its delay it would wait for the queue for ever. */
Test(amqp_send, a_delay_to_a_queue_that_is_missing_is_refused)
{
    struct harness_result r =
        SENT("--delay", "5s", amqp_operand("missing", 1), "body");

    cr_assert_eq(r.status, 66, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "no queue missing"), "%s", r.err);
    cr_assert_eq(amqp_ready("missing.wait.4000"), -1, "nothing is made");
}

Test(amqp_send, many_are_all_confirmed)
{
    struct harness_result r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST(
            "sh", "-c", "seq 3000 | \"$1\" --create --lines \"$2\"", "sh",
            harness_bin("mqsend"), amqp_operand(amqp_queue, 1))});

    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(amqp_ready(amqp_queue), 3000);
}

Test(amqp_send, a_delay_goes_by_a_queue_that_waits)
{
    const char *op = amqp_operand(amqp_queue, 1);

    cr_assert_eq(SENT("--create", op, "now").status, 0);
    cr_assert_eq(SENT("--delay", "1h", op, "later").status, 0);
    cr_assert_eq(amqp_ready(amqp_queue), 1);
    cr_assert_eq(amqp_ready(amqp_of("wait.3600000")), 1);
}

Test(amqp_send, a_connection_that_dies_while_it_sends_loses_nothing)
{
    struct harness_process *s;

    cr_assert_eq(SENT("--create", amqp_operand(amqp_queue, 1), "0").status, 0);
    s = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("mqsend", "--repeat", "600", "--rate", "200",
                             amqp_operand(amqp_queue, 1), "x")});
    harness_until(amqp_ready(amqp_queue) > 100, 20000);
    amqp_disconnect();
    cr_assert_eq(amqp_ctl("close_all_connections", "test").status, 0);
    cr_assert_eq(harness_wait(s, 60000), 0, "%s", harness_stderr(s, NULL));
    amqp_connect();
    cr_assert_geq(amqp_ready(amqp_queue), 601);
}

Test(amqp_send, without_a_broker_it_says_how_far_it_came)
{
    struct harness_process *s;

    cr_assert_eq(SENT("--create", amqp_operand(amqp_queue, 1), "0").status, 0);
    s = harness_start(&(struct harness_spec){
        .argv =
            HARNESS_LIST("mqsend", "--repeat", "100000", "--rate", "200",
                         "--wait", "1s", amqp_operand(amqp_queue, 1), "x")});
    harness_until(amqp_ready(amqp_queue) > 100, 20000);
    amqp_disconnect();
    amqp_node("kill", 1);
    cr_assert_eq(harness_wait(s, 60000), 75);
    cr_assert_not_null(strstr(harness_stderr(s, NULL), " confirmed, "), "%s",
                       harness_stderr(s, NULL));
    amqp_node("up", 1);
}

Test(amqp_send, what_cannot_be_is_refused)
{
    const char *op = amqp_operand(amqp_queue, 1);

    cr_assert_eq(SENT("--priority", "256", op, "x").status, 64);
    cr_assert_not_null(
        strstr(SENT("--unique", "k", op, "x").err, "keys of earlier messages"));
    cr_assert_eq(SENT("--group", "a", op, "x").status, 64);
    cr_assert_eq(SENT("--no-wait", op, "x").status, 64);
    cr_assert_eq(SENT("--tls-ca", "f", "/posix", "x").status, 64);
    cr_assert_eq(SENT("amqp://me:secret@h/v/q", "x").status, 64);
}

/* A server of 4.0 delivers two messages of high priority for each other one. */
Test(amqp_send, a_high_priority_comes_first_from_4_on)
{
    enum { LOW = 30, HIGH = 10 };
    const char *op = amqp_operand(amqp_queue, 1);
    struct harness_result r = SENT("--create", "--repeat", "30", op, "x");
    struct harness_process *w;
    long at = 0;
    char line[16];
    unsigned high = 0;

    cr_assert_eq(r.status, 0, "%s", r.err);
    r = SENT("--repeat", "10", "--priority", "5", op, "x");
    if (!amqp_is_4()) {
        cr_assert_eq(r.status, 64);
        cr_assert_not_null(strstr(r.err, "before 4.0 a replicated queue has no "
                                         "priorities"));
        return;
    }
    cr_assert_eq(r.status, 0, "%s", r.err);
    w = amqp_worker("-c", "1", "--", "sh", "-c", "echo $MQW_PRIORITY >>runs");
    harness_until_lines("runs", LOW + HIGH, 30000);
    for (int i = 0; i < 2 * HIGH; i++) {
        cr_assert(harness_next_line("runs", &at, line, sizeof line));
        high += strcmp(line, "5\n") == 0;
    }
    cr_assert_eq(high, HIGH, "%u", high);
    cr_assert_eq(harness_stop(w, 10000), 0);
}
