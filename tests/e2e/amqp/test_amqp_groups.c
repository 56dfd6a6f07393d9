/* test_amqp_groups.c - a queue with partitions: each group in its order, with
 * one worker and with several, while workers and the node die */
#define AMQP_BROKER 1
#include "tests/e2e/amqp/amqp_fixture.h"

#include <signal.h>

#include "common/amqp/partition.h"

TestSuite(amqp_groups, .init = amqp_init, .fini = amqp_fini, .timeout = 400);

#define GROUPS  100
#define EACH    12 /* messages of a group */
#define WORKERS 4
#define DRAIN   60000

/* ---- what ran, and in which order ---- */

/* One group, as its lines in "turns" were read. */
struct turns {
    bool ended[64], began[64];
    unsigned open; /* the number that has begun last, and not ended; 0: none */
    int pid;       /* of that */
};
static struct turns turns[GROUPS];

/* began_read - nothing before it is missing, and a second run says so */
static void began_read(const char *line)
{
    unsigned g, n, attempt, redelivered;
    struct turns *t;
    int pid;

    cr_assert_eq(
        sscanf(line, "b g%u %u %u %u %d", &g, &n, &attempt, &redelivered, &pid),
        5, "%s", line);
    cr_assert(g < GROUPS && n > 0 && n < 64, "%s", line);
    t = &turns[g];
    for (unsigned i = 1; i < n; i++)
        cr_assert(t->ended[i], "%u of g%u runs before %u is done", n, g, i);
    cr_assert(!t->began[n] || attempt > 1 || redelivered,
              "a second run is not marked: %s", line);
    t->began[n] = true;
    t->open = n;
    t->pid = pid;
}

/* ended_read - no other one of its group began meanwhile */
static void ended_read(const char *line)
{
    unsigned g, n;
    int pid;

    cr_assert_eq(sscanf(line, "e g%u %u %d", &g, &n, &pid), 3, "%s", line);
    cr_assert(turns[g].open == n && turns[g].pid == pid,
              "%u of g%u has begun before %s", turns[g].open, g, line);
    turns[g].ended[n] = true;
    turns[g].open = 0;
}

/* missing - messages that were not run to their end, as far as "turns" tells */
static unsigned missing(unsigned groups, unsigned each)
{
    FILE *f = fopen(harness_path("turns"), "re");
    unsigned n = groups * each;
    char line[128];

    memset(turns, 0, sizeof turns);
    while (f && fgets(line, sizeof line, f) && strchr(line, '\n'))
        (line[0] == 'b' ? began_read : ended_read)(line);
    if (f)
        fclose(f);
    for (unsigned g = 0; g < groups; g++)
        for (unsigned i = 1; i <= each; i++)
            n -= turns[g].ended[i];
    return n;
}

/* ---- workers, senders ---- */

#define OPERAND amqp_operand(amqp_queue, 1)

/* worker_start - number `n`, with a state of its own */
static struct harness_process *worker_start(unsigned n, const char *partitions)
{
    return harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("mqworker", "--state-dir",
                             harness_path("state%u", n), OPERAND, "-c", "8",
                             "--partitions", partitions, "--backoff", "200ms",
                             "--plugin", harness_plugin("turns"))});
}

static struct harness_process *worker(unsigned n, const char *partitions)
{
    return amqp_started(worker_start(n, partitions));
}

/* all_confirmed - as amqp_confirmed; of several queues the confirms come in any
 * order */
static void all_confirmed(void)
{
    static bool has[GROUPS * EACH + 1];
    const struct timeval limit = {.tv_sec = 30};
    uint64_t left = amqp_published;
    amqp_frame_t f;

    memset(has, 0, sizeof has);
    while (left > 0) {
        const amqp_basic_ack_t *ack;

        cr_assert_eq(
            rabbit.amqp_simple_wait_frame_noblock(amqp_client, &f, &limit),
            AMQP_STATUS_OK);
        if (f.frame_type != AMQP_FRAME_METHOD)
            continue;
        cr_assert_eq(f.payload.method.id, AMQP_BASIC_ACK_METHOD);
        ack = f.payload.method.decoded;
        for (uint64_t i = ack->multiple ? 1 : ack->delivery_tag;
             i <= ack->delivery_tag; i++) {
            left -= !has[i];
            has[i] = true;
        }
        rabbit.amqp_maybe_release_buffers(amqp_client);
    }
}

/* rounds_publish - all numbers of all groups, by the exchange, as another
 * producer would */
static void rounds_publish(unsigned groups, unsigned each, unsigned partitions)
{
    char group[16], body[16], key[12], exchange[100];

    snprintf(exchange, sizeof exchange, "%s.partitions.%u", amqp_queue,
             partitions);
    for (unsigned i = 0; i < groups * each; i++) {
        amqp_table_entry_t named = {.key = amqp_word("mqw-group"),
                                    .value = {.kind = AMQP_FIELD_KIND_UTF8}};
        amqp_basic_properties_t p = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG |
                                               AMQP_BASIC_HEADERS_FLAG,
                                     .delivery_mode = 2,
                                     .headers = {1, &named}};

        snprintf(group, sizeof group, "g%u", i % groups);
        snprintf(body, sizeof body, "%u", 1 + i / groups);
        named.value.value.bytes = amqp_word(group);
        snprintf(key, sizeof key, "%u",
                 partition_of(group, strlen(group), partitions));
        cr_assert_eq(rabbit.amqp_basic_publish(
                         amqp_client, 1, amqp_word(exchange), amqp_word(key), 1,
                         0, &p, amqp_word(body)),
                     AMQP_STATUS_OK);
        amqp_published++;
    }
    all_confirmed();
}

static const char *part(unsigned n)
{
    char text[12];

    snprintf(text, sizeof text, "%u", n);
    return amqp_of(text);
}

/* ---- what it is ---- */

Test(amqp_groups, a_head_that_fails_holds_back_its_group_only)
{
    struct harness_process *w = amqp_worker(
        "-c", "4", "--partitions", "2", "--backoff", "2s", "--jitter", "0",
        "--",
        harness_script("h", "b=$(cat)\n"
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
    cr_assert_str_eq(harness_read("runs", NULL),
                     "a head 1\nb other 1\na head 2\na head 3\na next 1\n"
                     "a last 1\n");
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
    r = harness_run("mqdlq", "replay", "--all", "--partitions", "4", OPERAND);
    cr_assert_eq(r.status, 0, "%s", r.err);
    harness_until_lines("turns", 6, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_log_count(w, "event=group_refused"), 0);
    cr_assert_eq(harness_lines_with("turns", "b g7 bad"), 4);
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

/* send - to a group, with a number of partitions */
static void send(const char *partitions, const char *group, const char *body)
{
    struct harness_result r =
        harness_run("mqsend", "--partitions", partitions, "--group", group,
                    OPERAND, body);

    cr_assert_eq(r.status, 0, "%s", r.err);
}

/* one_at_a_time - a worker whose handler takes it along when it crashes */
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
    rabbit.amqp_queue_declare(amqp_client, 1, amqp_word(part(0)), 0, 1, 0, 0,
                              (amqp_table_t){0, NULL});
    amqp_ok(rabbit.amqp_get_rpc_reply(amqp_client));
    r = harness_run("mqsend", "--create", "--partitions", "2", OPERAND, "x");
    cr_assert_eq(r.status, 78, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "both are there"), "%s", r.err);
    r = harness_run("mqsend", "--group", "g", OPERAND, "x");
    cr_assert_eq(r.status, 64, "%s", r.err);
    r = harness_run("mqworker", OPERAND, "--partitions", "2", "--backoff",
                    "10m", "--", "true");
    cr_assert_eq(r.status, 64, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "--max-attempts"), "%s", r.err);
}

/* Its worker would wait in silence, and none with partitions could start. */
Test(amqp_groups, a_queue_with_partitions_gets_none_without)
{
    struct harness_result r;

    cr_assert_eq(harness_run("mqsend", "--create", "--partitions", "2",
                             OPERAND, "x")
                     .status,
                 0);
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
                                      "timeout=10m"};
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

/* until_left - all but so many messages were run to their end */
static void until_left(unsigned groups, unsigned each, unsigned left)
{
    uint64_t end = harness_deadline(DRAIN);

    while (missing(groups, each) > left)
        harness_nap(end, "messages of groups run");
}

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

/* ---- the node ---- */

#define STALLS 3 /* of the server, after which the test gives up */

/* server_answers - RabbitMQ 3.10.8 alone on its node does not always open a
 * queue again after a SIGKILL: each declaration times out for minutes, and its
 * log says "badmatch" and "timeout". A passive one of our own tells. */
static bool server_answers(void)
{
    long n = 0;

    for (unsigned i = 0; i < 2 && n >= 0; i++)
        n = amqp_ready(part(i));
    return n >= 0 && amqp_ready(amqp_of("dead")) >= 0;
}

/* node_again - killed and started until its queues answer */
static void node_again(void)
{
    for (unsigned stalls = 0; stalls < STALLS; stalls++) {
        amqp_disconnect();
        amqp_node("kill", 1);
        amqp_node("up", 1);
        amqp_connect();
        rabbit.amqp_set_rpc_timeout(amqp_client,
                                    &(struct timeval){.tv_sec = 20});
        if (server_answers())
            return;
        fprintf(stderr, "the server does not open its queues: it is "
                        "started again\n");
    }
    cr_assert(false, "the server did not open its queues %d times", STALLS);
}

Test(amqp_groups, order_holds_when_the_node_is_killed)
{
    struct harness_process *w[2];
    unsigned total = 40 * EACH;

    for (unsigned i = 0; i < 2; i++)
        w[i] = worker(i, "2");
    rounds_publish(40, EACH, 2);
    for (unsigned kills = 1; kills <= 2; kills++) {
        until_left(40, EACH, total - kills * 120);
        node_again();
    }
    until_left(40, EACH, 0);
    for (unsigned i = 0; i < 2; i++)
        cr_assert_eq(harness_stop(w[i], DRAIN), 0);
    cr_assert_eq(missing(40, EACH), 0);
}
