/* test_amqp_worker.c - the worker on a queue of a broker, one node */
#define AMQP_BROKER 1
#include "tests/e2e/amqp/amqp_fixture.h"

#include <signal.h>
#include <sys/stat.h>

#include "common/base/clock.h"

#define RECORD harness_handler("record")

TestSuite(amqp_worker, .init = amqp_init, .fini = amqp_fini);

/* The handler does what the body says. */
#define BY_BODY                                                    \
    "b=$(cat); echo \"$MQW_ATTEMPT $MQW_REDELIVERED $b\" >>runs\n" \
    "case $b in bad) echo why >&2; exit 1 ;; dead) exit 65 ;; esac\n"

Test(amqp_worker, each_verdict_has_its_end)
{
    const char *handler = harness_script("h", BY_BODY);
    struct harness_process *w =
        amqp_worker("--max-attempts", "3", "--backoff", "1s", "--jitter", "0",
                    "--", handler);

    amqp_send("good");
    amqp_send("bad");
    amqp_send("dead");
    harness_until(amqp_ready(amqp_of("dead")) == 2, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines_with("runs", "1 0 good"), 1);
    cr_assert_eq(harness_lines_with("runs", "1 0 dead"), 1);
    cr_assert_eq(harness_lines_with("runs", "1 0 bad"), 1);
    cr_assert_eq(harness_lines_with("runs", "2 0 bad"), 1);
    cr_assert_eq(harness_lines_with("runs", "3 0 bad"), 1);
    cr_assert_eq(harness_lines("runs"), 5);
    cr_assert_eq(amqp_ready(amqp_queue), 0);
}

Test(amqp_worker, bodies_of_all_sizes_arrive_whole)
{
    static const size_t sizes[] = {0,      1,      4096,   131064,
                                   131065, 131072, 262144, 1048576};
    const size_t count = sizeof sizes / sizeof sizes[0];
    const char *handler = harness_script("h", "cksum >>runs\n");
    struct harness_process *w = amqp_worker("-c", "4", "--", handler);
    char *body = malloc(1048576), line[64];

    for (size_t i = 0; i < 1048576; i++)
        body[i] = (char)(i * 2654435761U >> 13);
    for (size_t i = 0; i < count; i++)
        amqp_publish(amqp_queue, body, sizes[i], (amqp_table_t){0, NULL});
    harness_until_lines("runs", count, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    for (size_t i = 0; i < count; i++) {
        harness_write("body", body, sizes[i]);
        snprintf(line, sizeof line, "%s",
                 harness_run("sh", "-c", "cksum < body").out);
        cr_assert_gt(harness_lines_with("runs", strtok(line, "\n")), 0,
                     "%zu bytes", sizes[i]);
    }
    free(body);
}

/* Messages of a broker are in no file, so this directory may be on disk. */
Test(amqp_worker, a_runtime_directory_on_a_disk_is_taken)
{
    struct harness_process *w =
        amqp_worker("--runtime-dir", harness_path("runtime"), "--", RECORD);

    amqp_send("x");
    harness_until_lines("runs", 1, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

Test(amqp_worker, a_handler_of_a_killed_worker_is_ended_and_its_message_runs)
{
    struct harness_process *w =
        amqp_worker("--", "sh", "-c", "echo $$ >>pids; exec sleep 1000");
    pid_t left;

    amqp_send("x");
    harness_until_lines("pids", 1, 10000);
    left = (pid_t)strtol(harness_read("pids", NULL), NULL, 10);
    harness_kill(w);
    cr_assert(harness_alive(left));
    w = amqp_worker("--", RECORD);
    cr_assert_not(harness_alive(left));
    harness_until_lines("runs", 1, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines_with("runs", " 1 1 0 - x"), 1,
                 "it says that it may have run: %s",
                 harness_read("runs", NULL));
}

Test(amqp_worker, a_message_that_kills_the_worker_is_buried_its_neighbour_not)
{
    struct harness_process *w;

    for (int i = 0; i < 2; i++) {
        w = amqp_worker("-c", "1", "--max-crashes", "2", "--plugin",
                        harness_plugin("act"));
        if (i == 0) {
            amqp_send("abort");
            amqp_send("nap");
        }
        cr_assert_eq(harness_wait(w, 20000), -SIGABRT);
    }
    w = amqp_worker("-c", "1", "--max-crashes", "2", "--plugin",
                    harness_plugin("act"));
    harness_until(amqp_ready(amqp_of("dead")) == 1, 20000);
    harness_until(harness_lines_with("runs", "nap 1") == 1, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines_with("runs", "abort 1"), 2);
    cr_assert_eq(harness_log_count(w, "reason=crashed"), 1);
}

static struct harness_process *plugin_of_four(void)
{
    return amqp_worker("-c", "4", "--max-crashes", "2", "--plugin",
                       harness_plugin("act"));
}

static struct harness_process *plugin_of_one(void)
{
    return amqp_worker("-c", "1", "--max-crashes", "1", "--plugin",
                       harness_plugin("act"));
}

/* Fails where all four run at the same time again after a crash: then none of
 * them is surely to blame, and the worker crashes for ever. */
Test(amqp_worker, the_one_to_blame_for_a_crash_is_found_among_four)
{
    struct harness_process *w = plugin_of_four();

    harness_write("stay", "", 0); /* the naps last until this is removed */
    for (int i = 0; i < 3; i++)
        amqp_send("nap");
    harness_until(harness_lines_with("runs", "nap 1 0") >= 3, 20000);
    amqp_send("abort");
    cr_assert_eq(harness_wait(w, 20000), -SIGABRT);
    harness_run("rm", "stay");
    w = plugin_of_four();
    cr_assert_eq(harness_wait(w, 20000), -SIGABRT);
    cr_assert_eq(harness_log_count(w, "event=suspect_alone"), 4,
                 "each is said to run alone");
    w = plugin_of_four();
    harness_until(amqp_ready(amqp_of("dead")) == 1, 20000);
    amqp_send("the last");
    harness_until(harness_lines_with("runs", "the last 1") == 1, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines_with("runs", "abort 1"), 2);
    cr_assert_eq(harness_log_count(w, "reason=crashed"), 1);
    cr_assert_eq(amqp_ready(amqp_queue), 0);
}

static struct harness_process *plugin_of_two(void)
{
    return amqp_worker("-c", "2", "--max-attempts", "1", "--timeout", "6s",
                       "--max-crashes", "2", "--plugin", harness_plugin("act"));
}

/* Send a message with an id of its own, because equal messages without ids
 * share one. */
static void wait_send(void)
{
    struct harness_result r =
        harness_run("mqsend", amqp_operand(amqp_queue, 1), "wait");

    cr_assert_eq(r.status, 0, "%s", r.err);
}

/* The test itself consumes the suspect, and gives it back when the worker has
 * begun another message. */
Test(amqp_worker, a_suspect_that_waits_for_its_neighbour_is_said_to)
{
    struct harness_process *w = plugin_of_two();

    wait_send();
    harness_until_lines("runs", 1, 20000);
    harness_kill(w);
    harness_until(amqp_ready(amqp_queue) == 1, 20000);
    amqp_basic_qos(amqp_client, 1, 0, 1, 0);
    amqp_ok(amqp_get_rpc_reply(amqp_client));
    amqp_basic_consume(amqp_client, 1, amqp_word(amqp_queue), amqp_word("keep"),
                       0, 0, 0, (amqp_table_t){0, NULL});
    amqp_ok(amqp_get_rpc_reply(amqp_client));
    w = plugin_of_two();
    harness_wait_log(w, "event=crashed", 20000);
    wait_send();
    harness_until_lines("runs", 2, 20000);
    amqp_disconnect();
    harness_wait_log(w, "event=suspect_waits", 20000);
    cr_assert_eq(harness_log_count(w, "crashes=1 running=1"), 1);
    harness_wait_log(w, "event=suspect_alone", 20000);
    cr_assert_eq(harness_log_count(w, "event=suspect_waits"), 1, "twice");
    amqp_connect();
    harness_until(amqp_ready(amqp_of("dead")) == 2, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

/* Start a worker as plugin_of_one does, with partitions: it gives no message
 * back. */
static struct harness_process *parted(void)
{
    return amqp_worker("-c", "1", "--partitions", "2", "--plugin",
                       harness_plugin("act"));
}

/* Return true if the worker has one message, as its status says. */
static bool in_hand(void)
{
    struct harness_result r =
        harness_run("mqctl", "status", "--state-dir", harness_state_dir(),
                    amqp_operand(amqp_queue, 1));

    return strstr(r.out, " 1 message of all partitions") != NULL;
}

/* The test has the suspect until the worker is paused. Fails where the inbox
 * looks each second whether the suspect waits for others. */
Test(amqp_worker, a_paused_worker_with_a_suspect_sleeps)
{
    const char *part = amqp_of("0");
    struct harness_process *w = parted();

    amqp_publish(part, "abort", 5, (amqp_table_t){0, NULL});
    cr_assert_eq(harness_wait(w, 20000), -SIGABRT);
    harness_until(amqp_ready(part) == 1, 20000);
    amqp_basic_consume(amqp_client, 1, amqp_word(part), amqp_word("keep"), 0, 0,
                       0, (amqp_table_t){0, NULL});
    amqp_ok(amqp_get_rpc_reply(amqp_client));
    w = parted();
    cr_assert_eq(harness_run("mqctl", "pause", "--state-dir",
                             harness_state_dir(), amqp_operand(amqp_queue, 1))
                     .status,
                 0);
    amqp_disconnect();
    harness_until(in_hand(), 20000);
    (void)harness_settled(w, 20000);
    cr_assert_eq(harness_lines_with("runs", "abort"), 1);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

/* No handler has a letter that waits for its confirm, so the crash of another
 * message does not count for it. Fails where its run is counted until the
 * confirm: then two ran, none is to blame for sure, and one crash is not
 * enough. */
Test(amqp_worker, a_copy_that_waits_for_its_confirm_is_not_blamed_for_a_crash)
{
    struct harness_process *w = plugin_of_one();

    cr_assert_eq(harness_stop(w, 10000), 0); /* the queues are there */
    amqp_send("dead");
    amqp_send("abort");
    amqp_confirmed();
    cr_assert_eq(amqp_ctl("set_vm_memory_high_watermark", "0.00001").status, 0);
    w = plugin_of_one();
    cr_assert_eq(harness_wait(w, 20000), -SIGABRT);
    cr_assert_eq(
        amqp_ctl("set_vm_memory_high_watermark", "absolute", "2GB").status, 0);
    w = plugin_of_one();
    harness_wait_log(w, "event=crashed", 20000);
    cr_assert_eq(harness_log_count(w, "messages=1"), 1);
    /* Three, where the broker has read the first copy, too: it was sent, and
     * not confirmed. */
    harness_until(amqp_ready(amqp_of("dead")) >= 2, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines_with("runs", "abort 1"), 1);
    cr_assert_eq(harness_lines_with("runs", "dead 1 0"), 1);
    cr_assert_eq(harness_log_count(w, "reason=crashed"), 1);
}

/* Make the header with the due time. */
static amqp_table_entry_t due(uint64_t in_ms)
{
    return (amqp_table_entry_t){
        .key = amqp_word("mqw-due"),
        .value = {.kind = AMQP_FIELD_KIND_I64,
                  .value.i64 = (int64_t)(clock_wall_ns() + in_ms * NS_PER_MS)}};
}

Test(amqp_worker, a_delay_is_kept_and_holds_back_nothing)
{
    const char *handler =
        harness_script("h", "echo \"$(date +%s%N) $(cat)\" >>runs\n");
    struct harness_process *w = amqp_worker("-c", "1", "--", handler);
    amqp_table_entry_t later = due(6500), soon = due(1200);
    uint64_t soon_at, later_at;

    amqp_publish(amqp_queue, "later", 5, (amqp_table_t){1, &later});
    amqp_publish(amqp_queue, "soon", 4, (amqp_table_t){1, &soon});
    amqp_send("now");
    harness_until_lines("runs", 3, 30000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    soon_at = strtoull(strchr(harness_read("runs", NULL), '\n') + 1, NULL, 10);
    later_at =
        strtoull(strchr(strchr(harness_read("runs", NULL), '\n') + 1, '\n') + 1,
                 NULL, 10);
    cr_assert_eq(harness_lines_with("runs", " now"), 1);
    cr_assert_geq(soon_at, (uint64_t)soon.value.value.i64);
    cr_assert_geq(later_at, (uint64_t)later.value.value.i64);
    cr_assert_not_null(strstr(harness_read("runs", NULL), "soon\n"));
    cr_assert_lt(soon_at, later_at);
    cr_assert_eq(amqp_ready(amqp_of("wait.4000")), 0, "it went by that queue");
}

static amqp_table_entry_t number(const char *key, int64_t value)
{
    return (amqp_table_entry_t){
        .key = amqp_word(key),
        .value = {.kind = AMQP_FIELD_KIND_I64, .value.i64 = value}};
}

/* Publish a message twice, as a node does that dies while it forwards the
 * message from a wait queue. `what` and `more` are headers beside the id. */
static void twice(const char *body, const char *id, amqp_table_entry_t what,
                  amqp_table_entry_t more)
{
    amqp_table_entry_t all[] = {
        {.key = amqp_word("mqw-id"),
         .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_word(id)}},
        what,
        more,
    };

    for (int i = 0; i < 2; i++)
        amqp_publish(amqp_queue, body, strlen(body), (amqp_table_t){3, all});
}

#define SLOW_OR_NOT \
    BY_BODY "[ \"$b\" != slow ] || while [ ! -e go ]; do sleep 0.05; done\n"

Test(amqp_worker, a_retry_that_the_broker_brings_twice_runs_once)
{
    struct harness_process *w =
        amqp_worker("-c", "2", "--", harness_script("h", SLOW_OR_NOT));

    amqp_send("slow");
    amqp_send("slow");
    harness_until_lines("runs", 2, 20000);
    twice("retry", "01JD3Z6Q9V0X8N5T2K7B4M1C3F", number("mqw-attempt", 1),
          number("mqw-line", 77));
    amqp_confirmed();
    harness_until(amqp_ready(amqp_queue) == 0, 20000); /* they are in hand */
    harness_write("go", "", 0);
    amqp_send("good"); /* taken after both */
    harness_until(harness_lines_with("runs", "good") == 1, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(amqp_ready(amqp_queue), 0);
    cr_assert_eq(harness_lines_with("runs", "2 0 retry"), 1);
    cr_assert_eq(harness_lines_with("runs", "retry"), 1);
}

/* The sender may have meant two messages, so both run, and one is marked. */
Test(amqp_worker, a_message_that_comes_twice_is_marked)
{
    struct harness_process *w =
        amqp_worker("-c", "1", "--", harness_script("h", BY_BODY));

    twice("is new", "01JD3Z6Q9V0X8N5T2K7B4M1C3E", number("mqw-sent", 1),
          number("x-n", 1));
    twice("was due", "01JD3Z6Q9V0X8N5T2K7B4M1C3F", due(0),
          number("mqw-sent", 1));
    twice("waits here", "01JD3Z6Q9V0X8N5T2K7B4M1C3G", due(900),
          number("mqw-sent", 1));
    twice("goes on", "01JD3Z6Q9V0X8N5T2K7B4M1C3H", due(2500),
          number("mqw-sent", 1));
    harness_until_lines("runs", 8, 30000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    for (size_t i = 0; i < 4; i++) {
        static const char *const marked[] = {"1 1 is new", "1 1 was due",
                                             "1 1 waits here", "1 1 goes on"};

        cr_assert_eq(harness_lines_with("runs", marked[i]), 1, "%s", marked[i]);
        cr_assert_eq(harness_lines_with("runs", marked[i] + 4), 2);
    }
}

/* Fails where what waits for its time counts as --max-waiting counts rows of
 * the store, or takes the places of what is new: it is never in hand. */
Test(amqp_worker, what_waits_in_queues_holds_back_nothing_new)
{
    enum { WAIT = 2000 };
    struct harness_process *w =
        amqp_worker("-c", "1", "--backoff", "1h", "--", RECORD);
    amqp_table_entry_t later = due(5400 * 1000);

    for (unsigned i = 0; i < WAIT; i++)
        amqp_publish(amqp_queue, "later", 5, (amqp_table_t){1, &later});
    amqp_confirmed();
    for (unsigned i = 0; i < 10; i++)
        amqp_send("new");
    harness_until_lines("runs", 10, 60000);
    cr_assert_eq(harness_lines_with("runs", "new"), 10);
    harness_until(amqp_ready(amqp_of("wait.3600000")) == WAIT, 60000);
    amqp_send("new");
    harness_until_lines("runs", 11, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

/* Count the messages that no handler brought to their end. Some may have run
 * twice. */
static size_t missing(int count)
{
    char text[32];
    size_t n = 0;

    for (int i = 0; i < count; i++) {
        snprintf(text, sizeof text, "<%d>", i);
        n += harness_lines_with("runs", text) == 0;
    }
    return n;
}

Test(amqp_worker, what_is_confirmed_survives_the_end_of_the_node)
{
    enum { COUNT = 400 };
    struct harness_process *w = amqp_worker(
        "-c", "4", "--max-attempts", "1000", "--backoff", "1s", "--",
        harness_script("h", "b=$(cat)\n"
                            "[ $MQW_ATTEMPT -gt 1 ] || "
                            "exit 1\necho $b >>runs\n"));
    char text[32];

    for (int i = 0; i < COUNT; i++) {
        snprintf(text, sizeof text, "<%d>", i);
        amqp_send(text);
    }
    amqp_confirmed();
    harness_until_lines("runs", 10, 30000);
    amqp_disconnect();
    amqp_node("kill", 1);
    harness_wait_log(w, "event=link_lost", 30000);
    amqp_node("up", 1);
    amqp_connect();
    harness_until_lines("runs", COUNT, 60000);
    harness_until(missing(COUNT) == 0, 60000);
    harness_until(amqp_ready(amqp_queue) == 0, 10000);
    cr_assert_eq(harness_stop(w, 20000), 0);
}

/* ---- what cannot be ---- */

/* Check that the start is refused with this status and these words. */
static void refused(const char *operand, int status, const char *words,
                    const char *flag, const char *value)
{
    struct harness_result r =
        harness_run("mqworker", "--state-dir", harness_state_dir(), operand,
                    flag, value, "--", "true");

    cr_assert_eq(r.status, status, "%s: %d: %s", operand, r.status, r.err);
    cr_assert_not_null(strstr(r.err, words), "%s", r.err);
}

Test(amqp_worker, a_start_that_cannot_be_says_why)
{
    char text[200];
    unsigned port = amqp_port(1);

    snprintf(text, sizeof text, "amqp://guest@127.0.0.1:%u/none/q", port);
    refused(text, 66, "no virtual host none", "-c", "1");
    refused("amqp://127.0.0.1:1/%2F/q", 69, "Connection refused", "-c", "1");
    refused("amqp://no.such.host.invalid/%2F/q", 64, "no password", "-c", "1");
    harness_write("secret", "wrong\n", 6);
    cr_assert_eq(chmod(harness_path("secret"), 0600), 0);
    refused(amqp_operand("q", 1), 77, "refuses user guest", "--password-file",
            harness_path("secret"));
    refused(amqp_operand("q", 1), 64, "--dead-letter-queue",
            "--dead-letter-queue", "/d");
    refused(amqp_operand("q", 1), 64, "--queue-depth", "--queue-depth", "5");
    refused(amqp_operand("q", 1), 64, "never stop a worker", "--max-waiting",
            "9");
    refused("/posix", 64, "--tls-ca is for a queue on a broker", "--tls-ca",
            "f");
}

/* Declare a queue as another program does. */
static void declare(const char *name, const char *key, const char *value)
{
    amqp_table_entry_t e = {.key = amqp_word(key),
                            .value = {.kind = AMQP_FIELD_KIND_UTF8,
                                      .value.bytes = amqp_word(value)}};

    amqp_queue_declare(amqp_client, 1, amqp_word(name), 0, 1, 0, 0,
                       (amqp_table_t){1, &e});
    amqp_ok(amqp_get_rpc_reply(amqp_client));
}

Test(amqp_worker, a_queue_that_is_not_replicated_is_refused_unless_allowed)
{
    struct harness_process *w;

    declare(amqp_queue, "x-queue-type", "classic");
    refused(amqp_operand(amqp_queue, 1), 78, "is not replicated", "-c", "1");
    w = amqp_worker("--allow-unreplicated", "--", RECORD);
    amqp_send("x");
    harness_until_lines("runs", 1, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

Test(amqp_worker, a_queue_of_another_kind_is_refused_with_both_values)
{
    declare(amqp_queue, "x-queue-type", "quorum");
    refused(amqp_operand(amqp_queue, 1), 78, "inequivalent arg", "-c", "1");
}

Test(amqp_worker, without_create_a_missing_queue_is_refused)
{
    struct harness_result r =
        harness_run("mqworker", "--state-dir", harness_state_dir(),
                    "--no-create", amqp_operand("missing", 1), "--", "true");

    cr_assert_eq(r.status, 66, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "no queue missing"), "%s", r.err);
}

Test(amqp_worker, a_mark_goes_along_from_queue_to_queue)
{
    struct harness_process *w = amqp_worker("--", harness_script("h", BY_BODY));
    amqp_table_entry_t plain = due(6500);
    amqp_table_entry_t marked[] = {
        due(6500),
        {.key = amqp_word("mqw-resent"),
         .value = {.kind = AMQP_FIELD_KIND_I64, .value.i64 = 1}}};

    amqp_publish(amqp_queue, "marked", 6, (amqp_table_t){2, marked});
    amqp_publish(amqp_queue, "plain", 5, (amqp_table_t){1, &plain});
    harness_until_lines("runs", 2, 30000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(amqp_ready(amqp_of("wait.4000")), 0, "they went by it");
    cr_assert_eq(harness_lines_with("runs", "1 1 marked"), 1);
    cr_assert_eq(harness_lines_with("runs", "1 0 plain"), 1);
}

/* Declare a wait queue without a time to live of its own, as a new one is for a
 * moment. */
static void hop_declare(const char *name)
{
    const char *const pairs[][2] = {{"x-queue-type", "quorum"},
                                    {"x-dead-letter-exchange", ""},
                                    {"x-dead-letter-routing-key", amqp_queue}};
    amqp_table_entry_t all[3];

    for (size_t i = 0; i < 3; i++)
        all[i] = (amqp_table_entry_t){
            .key = amqp_word(pairs[i][0]),
            .value = {.kind = AMQP_FIELD_KIND_UTF8,
                      .value.bytes = amqp_word(pairs[i][1])}};
    amqp_queue_declare(amqp_client, 1, amqp_word(name), 0, 1, 0, 0,
                       (amqp_table_t){3, all});
    amqp_ok(amqp_get_rpc_reply(amqp_client));
}

Test(amqp_worker, what_waits_comes_back_from_a_queue_without_a_time_to_live)
{
    const char *handler =
        harness_script("h", "cat >>runs; echo >>runs; [ -e failed ] || "
                            "{ touch failed; exit 1; }\n");
    struct harness_process *w = amqp_worker("--", "true");

    cr_assert_eq(harness_stop(w, 10000), 0);
    hop_declare(amqp_of("wait.1000"));
    w = amqp_worker("--no-create", "--backoff", "1s", "--jitter", "0", "--",
                    handler);
    amqp_send("retried");
    harness_until_lines("runs", 2, 30000);
    cr_assert_eq(harness_lines_with("runs", "retried"), 2);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(amqp_ready(amqp_of("wait.1000")), 0);
}

Test(amqp_worker, a_run_ends_when_what_was_there_at_its_start_is_done)
{
    struct harness_process *w = amqp_worker("--", "true");

    cr_assert_eq(harness_stop(w, 10000), 0);
    for (int i = 0; i < 40; i++)
        amqp_send("x");
    amqp_confirmed();
    w = amqp_worker("--exit-when-idle", "--", RECORD);
    cr_assert_eq(harness_wait(w, 30000), 0);
    cr_assert_eq(harness_lines("runs"), 40);
}

/* Each of the two connections hears a heartbeat in 15 s, and sends one. */
Test(amqp_worker, an_idle_worker_wakes_for_heartbeats_only)
{
    enum { IDLE_S = 20, BEAT_S = 15, BEATS = 2 * 2 * (IDLE_S / BEAT_S + 1) };
    struct harness_process *w =
        amqp_worker("-c", "2", "--", "sh", "-c", "cat >>runs; echo >>runs");
    long settled, more;

    for (int i = 0; i < 10; i++)
        amqp_send("good");
    harness_until_lines("runs", 10, 10000);
    settled = harness_settled(w, 60000);
    if (settled < 0)
        cr_skip_test("the thread sanitizer's own thread never sleeps");
    harness_run("sleep", "20");
    more = harness_switches(w) - settled;
    cr_assert_leq(more, BEATS, "%ld in %d s", more, IDLE_S);
    amqp_send("good");
    harness_until_lines("runs", 11, 5000);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

/* Return the page faults of a process so far, without those that read a file.
 */
static long page_faults(pid_t pid)
{
    const char *at = strrchr(
        harness_read(harness_path("/proc/%d/stat", (int)pid), NULL), ')');
    long faults = -1;

    cr_assert_not_null(at);
    cr_assert_eq(sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %ld", &faults), 1);
    return faults;
}

/* New memory for a body of 300 kB would be 74 page faults. */
Test(amqp_worker, large_bodies_use_the_same_memory_again)
{
    enum { SIZE = 300000, FIRST = 20, MORE = 40 };
    struct harness_process *w =
        amqp_worker("-c", "1", "--", "sh", "-c", "cat >/dev/null; echo >>runs");
    char *body = calloc(1, SIZE);
    long before;

    if (getenv("MQW_SANITIZED"))
        cr_skip_test("a sanitizer takes new memory");
#ifndef __GLIBC__
    cr_skip_test("another C library takes new memory");
#endif
    cr_assert_not_null(body);
    for (int i = 0; i < FIRST; i++)
        amqp_publish(amqp_queue, body, SIZE, (amqp_table_t){0, NULL});
    harness_until_lines("runs", FIRST, 20000);
    before = page_faults(harness_pid(w));
    for (int i = 0; i < MORE; i++)
        amqp_publish(amqp_queue, body, SIZE, (amqp_table_t){0, NULL});
    harness_until_lines("runs", FIRST + MORE, 20000);
    cr_assert_lt(page_faults(harness_pid(w)) - before, MORE * 74);
    cr_assert_eq(harness_stop(w, 10000), 0);
    free(body);
}
