/* test_amqp_traps.c - what a broker does to messages and a worker must handle,
 * with one node
 *
 * If the worker did nothing about it, each of these would lose, repeat or block
 * messages.
 */
#define AMQP_BROKER 1
#include "tests/e2e/amqp/amqp_fixture.h"
#include "tests/harness/letters.h"

#include <signal.h>
#include <sys/stat.h>

TestSuite(amqp_traps, .init = amqp_init, .fini = amqp_fini, .timeout = 300);

/* The handler does what the body says; "slow" waits for a file. */
#define BY_BODY                                                         \
    "b=$(cat); echo \"$MQW_ATTEMPT $MQW_REDELIVERED $b\" >>runs\n"      \
    "case $b in slow) while [ ! -e go ]; do sleep 0.05; done ;; esac\n" \
    "case $b in dead) exit 65 ;; esac\n"                                \
    "case $b in bad) [ $MQW_ATTEMPT -gt 1 ] || exit 1 ;; esac\n"

#define EVAL(expression) cr_assert_eq(amqp_ctl("eval", expression).status, 0)

static struct harness_process *by_body(const char *concurrency)
{
    return amqp_worker("-c", concurrency, "--backoff", "1s", "--jitter", "0",
                       "--", harness_script("h", BY_BODY));
}

/* Put a policy on a queue of this test; NULL: remove it. */
static void policy(const char *queue, const char *definition)
{
    char pattern[100];
    struct harness_result r;

    snprintf(pattern, sizeof pattern, "^%s$", queue);
    r = definition ? amqp_ctl("set_policy", amqp_queue, pattern, definition)
                   : amqp_ctl("clear_policy", amqp_queue);
    cr_assert_eq(r.status, 0, "%s", r.err);
}

/* Count the messages of the queue, including those that its consumers have not
 * acknowledged. The broker renews the number every 5 s. -1: not known. */
static long owned(void)
{
    struct harness_result r = amqp_ctl("-q", "list_queues", "name", "messages");
    char line[100];
    const char *at;

    snprintf(line, sizeof line, "\n%s\t", amqp_queue);
    at = strstr(r.out, line);
    return at ? strtol(at + strlen(line), NULL, 10) : -1;
}

/* Consume all messages of a queue, and put them back. */
static void look(const char *queue, unsigned count)
{
    amqp_frame_t f;

    amqp_disconnect();
    amqp_connect();
    amqp_basic_consume(amqp_client, 1, amqp_word(queue), amqp_word("look"), 0,
                       0, 0, (amqp_table_t){0, NULL});
    amqp_ok(amqp_get_rpc_reply(amqp_client));
    while (count > 0) {
        if (amqp_simple_wait_frame_noblock(amqp_client, &f,
                                           &(struct timeval){.tv_sec = 5}) !=
            AMQP_STATUS_OK)
            break;
        count -= f.frame_type == AMQP_FRAME_BODY;
        amqp_maybe_release_buffers(amqp_client);
    }
    amqp_disconnect();
    amqp_connect();
}

enum { LOOKED_AT = 10 };

/* Make a queue with `count` messages and without a worker. */
static void filled(unsigned count)
{
    cr_assert_eq(harness_stop(by_body("1"), 10000), 0);
    while (count-- > 0)
        amqp_send("good");
    amqp_confirmed();
}

Test(amqp_traps, a_message_may_be_given_back_any_number_of_times)
{
    filled(LOOKED_AT);
    for (unsigned i = 0; i < 25; i++) /* a server of 4.0 drops at the 20th */
        look(amqp_queue, LOOKED_AT);
    harness_until(amqp_ready(amqp_queue) == LOOKED_AT, 10000);
}

Test(amqp_traps, what_a_limit_of_deliveries_drops_is_a_letter)
{
    filled(LOOKED_AT);
    policy(amqp_queue, "{\"delivery-limit\":2}");
    for (unsigned i = 0; i < 5; i++)
        look(amqp_queue, LOOKED_AT);
    harness_until(amqp_ready(amqp_of("dead")) == LOOKED_AT, 30000);
    policy(amqp_queue, NULL);
}

Test(amqp_traps, a_message_that_has_been_everywhere_is_no_cycle)
{
    struct harness_process *w = by_body("1");
    amqp_table_entry_t death[] = {
        {.key = amqp_word("queue"),
         .value = {.kind = AMQP_FIELD_KIND_UTF8,
                   .value.bytes = amqp_word(amqp_queue)}},
        {.key = amqp_word("reason"),
         .value = {.kind = AMQP_FIELD_KIND_UTF8,
                   .value.bytes = amqp_word("expired")}},
        {.key = amqp_word("exchange"),
         .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_word("")}},
        {.key = amqp_word("count"),
         .value = {.kind = AMQP_FIELD_KIND_I64, .value.i64 = 1}}};
    amqp_field_value_t one = {.kind = AMQP_FIELD_KIND_TABLE,
                              .value.table = {4, death}};
    amqp_table_entry_t header = {
        .key = amqp_word("x-death"),
        .value = {.kind = AMQP_FIELD_KIND_ARRAY, .value.array = {1, &one}}};

    amqp_publish(amqp_queue, "bad", 3, (amqp_table_t){1, &header});
    harness_until_lines("runs", 2, 20000);
    cr_assert_eq(harness_lines_with("runs", "2 0 bad"), 1);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

Test(amqp_traps, a_broker_without_memory_stops_letters_and_not_the_rest)
{
    enum { GOOD = 40 };
    struct harness_process *w = by_body("1");
    struct harness_result r;

    amqp_send("slow");
    amqp_send("dead");
    for (int i = 0; i < GOOD; i++)
        amqp_send("good");
    amqp_confirmed();
    harness_until_lines("runs", 1, 10000);
    cr_assert_eq(amqp_ctl("set_vm_memory_high_watermark", "0.00001").status, 0);
    harness_write("go", "", 0);
    harness_wait_log(w, "event=blocked", 20000);
    harness_until(harness_lines_with("runs", "good") == GOOD, 20000);
    harness_until(amqp_ready(amqp_queue) == 0, 10000);
    cr_assert_eq(amqp_ready(amqp_of("dead")), 0);
    r = harness_run("mqctl", "doctor", "--state-dir", harness_state_dir(),
                    amqp_operand(amqp_queue, 1));
    cr_assert_not_null(strstr(r.out, "a node is low on memory or disk"), "%s",
                       r.out);
    cr_assert_eq(
        amqp_ctl("set_vm_memory_high_watermark", "absolute", "2GB").status, 0);
    harness_wait_log(w, "event=unblocked", 20000);
    harness_until(amqp_ready(amqp_of("dead")) == 1, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines("runs"), GOOD + 2);
}

/* The broker checks once a minute unless the tick interval is shorter. */
Test(amqp_traps, a_message_that_is_had_for_too_long_is_said)
{
    struct harness_process *w;

    EVAL("application:set_env(rabbit, consumer_timeout, 2000), "
         "application:set_env(rabbit, channel_tick_interval, 500).");
    w = by_body("1");
    amqp_send("slow");
    harness_until_lines("runs", 1, 10000);
    harness_wait_log(w, "not acknowledged within consumer_timeout", 20000);
    EVAL("application:set_env(rabbit, consumer_timeout, 1800000), "
         "application:set_env(rabbit, channel_tick_interval, 60000).");
    harness_write("go", "", 0);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

Test(amqp_traps, a_queue_that_was_deleted_is_made_again)
{
    struct harness_process *w = by_body("1");

    amqp_send("good");
    harness_until_lines("runs", 1, 10000);
    cr_assert_eq(amqp_ctl("delete_queue", amqp_queue).status, 0);
    harness_wait_log(w, "was the queue deleted?", 20000);
    /* Messages to the old queue are lost, so send until one has run. */
    for (uint64_t end = harness_deadline(20000); harness_lines("runs") < 2;) {
        amqp_send("good");
        harness_nap(end, "a message runs");
    }
    cr_assert_eq(harness_stop(w, 10000), 0);
}

/* Let another worker create the queue again. */
static void make_again(void)
{
    struct harness_process *w =
        harness_worker(amqp_operand(amqp_queue, 1), "--state-dir",
                       harness_path("other"), "--", "true");

    cr_assert_eq(harness_stop(amqp_started(w), 10000), 0);
    amqp_send("good");
}

Test(amqp_traps, one_that_is_not_to_be_made_is_waited_for)
{
    struct harness_process *w;

    filled(1);
    w = amqp_worker("--no-create", "--", harness_script("h", BY_BODY));
    harness_until_lines("runs", 1, 10000);
    cr_assert_eq(amqp_ctl("delete_queue", amqp_queue).status, 0);
    harness_wait_log(w, "reason=\"no queue", 20000);
    make_again();
    harness_until_lines("runs", 2, 30000);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

Test(amqp_traps, a_letter_whose_queue_was_deleted_has_it_made_again)
{
    struct harness_process *w = by_body("1");

    cr_assert_eq(amqp_ctl("delete_queue", amqp_of("dead")).status, 0);
    amqp_send("dead");
    harness_wait_log(w, "event=returned", 20000);
    harness_until(amqp_ready(amqp_of("dead")) == 1, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines("runs"), 1);
}

Test(amqp_traps, a_retry_whose_queue_was_deleted_has_it_made_again)
{
    struct harness_process *w = by_body("1");

    amqp_send("bad");
    harness_until_lines("runs", 2, 20000);
    cr_assert_eq(amqp_ctl("delete_queue", amqp_of("wait.1000")).status, 0);
    amqp_send("bad");
    harness_until_lines("runs", 4, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

Test(amqp_traps, a_handler_that_is_slower_than_the_broker_waits_runs_once)
{
    struct harness_process *w;

    EVAL("application:set_env(rabbit, consumer_timeout, 1000), "
         "application:set_env(rabbit, channel_tick_interval, 300).");
    w = by_body("1");
    amqp_send("slow");
    harness_wait_log(w, "acknowledgement", 30000);
    harness_wait_log(w, "event=link_up", 30000);
    EVAL("application:set_env(rabbit, consumer_timeout, 1800000), "
         "application:set_env(rabbit, channel_tick_interval, 60000).");
    /* The message is this worker's again, and not acknowledged. */
    harness_until(owned() == 1, 30000);
    harness_until(amqp_ready(amqp_queue) == 0, 30000);
    harness_write("go", "", 0);
    harness_until(owned() == 0, 30000);
    cr_assert_eq(harness_stop(w, 20000), 0);
    cr_assert_eq(harness_lines("runs"), 1, "%zu: %s", harness_lines("runs"),
                 harness_stderr(w, NULL));
    cr_assert_eq(amqp_ready(amqp_queue), 0);
}

Test(amqp_traps, a_queue_that_is_full_of_letters_holds_back_the_next)
{
    enum { DEAD = 8 };
    struct harness_process *w = by_body("1");
    long before;

    policy(amqp_of("dead"), "{\"max-length\":1}");
    before = amqp_fill(amqp_of("dead"));
    for (int i = 0; i < DEAD; i++)
        amqp_send("dead");
    harness_wait_log(w, "(nack)", 30000);
    harness_until_lines("runs", DEAD, 30000);
    cr_assert_lt(amqp_ready(amqp_of("dead")), before + DEAD);
    policy(amqp_of("dead"), NULL);
    harness_until(amqp_ready(amqp_of("dead")) == before + DEAD, 60000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines("runs"), DEAD, "none ran twice");
}

/* Set max_message_size for channels that are opened from now on. */
#define MAX_MESSAGE_SIZE(bytes)                                       \
    EVAL("application:set_env(rabbit, max_message_size, " bytes "), " \
         "persistent_term:put(max_message_size, " bytes ").")

Test(amqp_traps, a_body_that_is_too_large_for_a_copy_holds_up_no_other)
{
    char body[5000];
    struct harness_process *w;
    struct harness_result r;

    memset(body, 'x', sizeof body);
    filled(0);
    amqp_publish(amqp_queue, body, sizeof body, (amqp_table_t){0, NULL});
    amqp_send("small");
    amqp_confirmed();
    MAX_MESSAGE_SIZE("1000");
    w = amqp_worker("-c", "1", "--backoff", "1s", "--jitter", "0", "--",
                    harness_script("h",
                                   "n=$(wc -c)\n"
                                   "echo \"$MQW_ATTEMPT $MQW_REDELIVERED $n\" "
                                   ">>runs\n"
                                   "[ $n -gt 1000 ] || exit 65\n"
                                   "[ $MQW_ATTEMPT -gt 1 ]\n"));
    harness_wait_log(w, "event=too_large", 20000);
    harness_until(amqp_ready(amqp_of("dead")) == 1, 20000);
    cr_assert_eq(harness_log_count(w, "event=too_large"), 1);
    cr_assert_eq(harness_log_count(w, "bytes=5000 max_message_size=1000"), 1);
    r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST("mqsend", amqp_operand(amqp_queue, 1)),
        .input = body,
        .input_size = sizeof body});
    cr_assert_eq(r.status, 65, "%d: %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, "accepts up to 1000 bytes"), "%s", r.err);
    MAX_MESSAGE_SIZE("16777216");
    amqp_disconnect();
    cr_assert_eq(amqp_ctl("close_all_connections", "test").status, 0);
    amqp_connect();
    /* The closed connection also gives the original back, marked. */
    harness_until(harness_lines_with("runs", "2 0 5000") +
                          harness_lines_with("runs", "2 1 5000") >
                      0,
                  60000);
    cr_assert_eq(harness_lines_with("runs", "1 0 5000"), 1);
    cr_assert_eq(harness_stop(w, 20000), 0);
}

Test(amqp_traps, a_body_that_is_too_large_to_forward_is_a_dead_letter)
{
    const char *q = harness_queue(10, 4096);
    const struct harness_letter *l;
    struct harness_process *w;
    char body[3001];

    memset(body, 'x', sizeof body - 1);
    body[sizeof body - 1] = '\0';
    filled(0);
    MAX_MESSAGE_SIZE("1000");
    harness_send_text(q, body);
    harness_send_text(q, "small");
    w = harness_worker(q, "--forward", amqp_operand(amqp_queue, 1));
    l = harness_wait_letters(q, 1, 60000);
    MAX_MESSAGE_SIZE("16777216");
    cr_assert_str_eq(l->reason, "rejected");
    cr_assert_not_null(strstr(l->error, "accepts up to 1000 bytes"), "%s",
                       l->error);
    harness_until(amqp_ready(amqp_queue) == 1, 60000);
    cr_assert_eq(harness_stop(w, 20000), 0);
}

/* Without ids nothing tells them apart; each must have its own retry. */
Test(amqp_traps, equal_messages_are_each_tried_again)
{
    struct harness_process *w = by_body("2");

    for (int i = 0; i < 5; i++)
        amqp_send("bad");
    harness_until_lines("runs", 10, 20000);
    cr_assert_eq(harness_lines_with("runs", "2 0 bad"), 5);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

Test(amqp_traps, a_message_that_names_a_group_is_refused)
{
    struct harness_process *w = by_body("1");
    amqp_table_entry_t group = {
        .key = amqp_word("mqw-group"),
        .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_word("a")}};

    amqp_publish(amqp_queue, "good", 4, (amqp_table_t){1, &group});
    amqp_send("good");
    harness_until(amqp_ready(amqp_of("dead")) == 1, 20000);
    harness_until_lines("runs", 1, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines("runs"), 1);
    cr_assert_eq(harness_log_count(w, "event=group_refused"), 1);
    cr_assert_eq(harness_log_count(w, "reason=bad-header"), 1);
}

/* ---- rights ---- */

/* Return an operand with another user than guest, whose password is in
 * "secret". */
static const char *user_operand(void)
{
    static char text[200];

    snprintf(text, sizeof text, "amqp://u%s@127.0.0.1:%u/%%2F/%s", amqp_queue,
             amqp_port(1), amqp_queue);
    return text;
}

static const char *user(void)
{
    static char name[80];

    snprintf(name, sizeof name, "u%s", amqp_queue);
    return name;
}

static void user_add(void)
{
    harness_write("secret", "secret\n", 7);
    cr_assert_eq(chmod(harness_path("secret"), 0600), 0);
    cr_assert_eq(amqp_ctl("add_user", user(), "secret").status, 0);
}

static void rights(const char *configure, const char *write)
{
    cr_assert_eq(
        amqp_ctl("set_permissions", user(), configure, write, ".*").status, 0);
}

static void refused(const char *words)
{
    struct harness_result r = harness_run(
        "mqworker", "--state-dir", harness_state_dir(), "--password-file",
        harness_path("secret"), user_operand(), "--", "true");

    cr_assert_eq(r.status, 77, "%d: %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, words), "%s", r.err);
}

Test(amqp_traps, a_user_without_rights_is_told_which)
{
    user_add();
    refused("has no rights in virtual host");
    rights("^$", ".*");
    refused("may not declare or use queue");
}

Test(amqp_traps, rights_that_are_taken_away_are_waited_for)
{
    struct harness_process *w;

    user_add();
    rights(".*", ".*");
    w = amqp_started(harness_worker(user_operand(), "--password-file",
                                    harness_path("secret"), "--",
                                    harness_script("h", BY_BODY)));
    amqp_send("good");
    harness_until_lines("runs", 1, 10000);
    rights("^$", "^$");
    amqp_disconnect();
    cr_assert_eq(amqp_ctl("close_all_connections", "test").status, 0);
    harness_wait_log(w, "may not declare or use queue", 20000);
    amqp_connect();
    amqp_send("dead");
    amqp_confirmed();
    rights(".*", ".*");
    harness_until(amqp_ready(amqp_of("dead")) == 1, 60000);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

/* ---- maintenance ---- */

Test(amqp_traps, a_node_that_is_drained_is_waited_for)
{
    struct harness_process *w = by_body("1");
    struct harness_result r;

    amqp_disconnect();
    EVAL("rabbit_maintenance:drain().");
    harness_wait_log(w, "event=link_failed", 30000);
    r = harness_run("mqworker", "--state-dir", harness_path("other"),
                    amqp_operand(amqp_queue, 1), "--", "true");
    cr_assert_eq(r.status, 69, "%d: %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, "start the broker"), "%s", r.err);
    EVAL("rabbit_maintenance:revive().");
    amqp_connect();
    amqp_send("good");
    harness_until_lines("runs", 1, 60000);
    cr_assert_eq(harness_stop(w, 10000), 0);
}
