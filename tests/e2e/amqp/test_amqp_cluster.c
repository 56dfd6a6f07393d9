/* test_amqp_cluster.c - two workers on a queue of three nodes, which die */
#define AMQP_BROKER 3
#include "tests/e2e/amqp/amqp_fixture.h"

#include <signal.h>

TestSuite(amqp_cluster, .init = amqp_init, .fini = amqp_fini, .timeout = 400);

enum { BATCH = 50, BATCHES = 24, COUNT = BATCH * BATCHES };

/* The body is its number; each seventh fails at its first attempt, and each
 * hundredth always. */
#define HANDLER                                                      \
    "n=$(cat)\n"                                                     \
    "echo \"$n $MQW_ATTEMPT $MQW_REDELIVERED\" >>began\n"            \
    "[ $((n % 100)) -ne 0 ] || exit 65\n"                            \
    "[ $((n % 7)) -ne 0 ] || [ \"$MQW_ATTEMPT\" -gt 1 ] || exit 1\n" \
    "echo \"$n\" >>ended\n"

/* worker - one of several on this machine: a state directory for each */
static struct harness_process *worker(const char *name, const char *handler)
{
    struct harness_process *w = harness_start(&(struct harness_spec){
        .argv =
            HARNESS_LIST("mqworker", "--state-dir", harness_path("%s", name),
                         amqp_operand(amqp_queue, 3), "-c", "4", "--backoff",
                         "1s", "--", handler)});

    return amqp_started(w);
}

/* batch_sent - the broker has confirmed all of it; false: the node is gone, and
 * nobody knows */
static bool batch_sent(int first)
{
    const amqp_basic_ack_t *ack;
    uint64_t last = 0;
    amqp_frame_t f;

    for (int i = 0; i < BATCH; i++) {
        amqp_basic_properties_t p = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
                                     .delivery_mode = 2};
        char body[16];

        snprintf(body, sizeof body, "%d", first + i);
        if (rabbit.amqp_basic_publish(amqp_client, 1, (amqp_bytes_t){0, NULL},
                                      amqp_word(amqp_queue), 1, 0, &p,
                                      amqp_word(body)) != AMQP_STATUS_OK)
            return false;
    }
    while (last < BATCH) {
        if (rabbit.amqp_simple_wait_frame_noblock(
                amqp_client, &f, &(struct timeval){.tv_sec = 20}) !=
            AMQP_STATUS_OK)
            return false;
        if (f.frame_type != AMQP_FRAME_METHOD ||
            f.payload.method.id != AMQP_BASIC_ACK_METHOD)
            return false; /* a nack, or the end of the channel */
        ack = f.payload.method.decoded;
        last = ack->multiple ? ack->delivery_tag : last + 1;
    }
    return true;
}

/* send_batch - until it is confirmed; each try is a connection of its own */
static void send_batch(int first)
{
    uint64_t end = harness_deadline(60000);
    bool sent = false;

    while (!sent) {
        amqp_disconnect();
        amqp_connect();
        sent = batch_sent(first);
        if (!sent)
            harness_nap(end, "the broker confirms");
    }
}

/* number_ended - whether a message came to its end */
static bool has(const char *file, int number)
{
    const char *at = harness_read(file, NULL);
    char line[16];
    int n = snprintf(line, sizeof line, "%d\n", number);

    for (; at && *at; at = strchr(at, '\n') + 1)
        if (strncmp(at, line, (size_t)n) == 0)
            return true;
    return false;
}

/* lost - numbers with no end; each hundredth is a letter */
static int lost(void)
{
    int n = 0;

    for (int i = 0; i < COUNT; i++)
        n += i % 100 != 0 && !has("ended", i);
    return n;
}

Test(amqp_cluster, nothing_confirmed_is_lost_while_nodes_and_workers_die)
{
    const char *handler = harness_script("h", HANDLER);
    struct harness_process *a = worker("a", handler);
    struct harness_process *b = worker("b", handler);
    unsigned kills = 0;
    long letters;

    for (int i = 0; i < BATCHES; i++) {
        send_batch(i * BATCH);
        if (i % 8 == 3) {
            unsigned node = 1 + kills++ % 3;

            amqp_disconnect();
            amqp_node("kill", node);
            harness_kill(a);
            a = worker("a", handler);
            send_batch(++i * BATCH);
            amqp_node("up", node);
        }
    }
    harness_until(harness_lines("ended") >= COUNT - COUNT / 100, 120000);
    harness_until(lost() == 0, 60000);
    harness_until(amqp_ready(amqp_queue) == 0, 60000);
    letters = amqp_ready(amqp_of("dead"));
    cr_assert_geq(letters, COUNT / 100);
    cr_assert_eq(harness_stop(a, 30000), 0);
    cr_assert_eq(harness_stop(b, 30000), 0);
    printf("cluster: %d messages, %u nodes and workers killed, %zu runs, "
           "%ld letters of %d\n",
           COUNT, kills, harness_lines("began"), letters, COUNT / 100);
}
