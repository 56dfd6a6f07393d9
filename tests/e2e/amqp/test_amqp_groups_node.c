/* test_amqp_groups_node.c - groups keep their order while the node is killed
 *
 * By hand (make check ONLY=amqp_groups_node): a node by itself does not always
 * open its queues again, and then the test starts it once more.
 */
#define AMQP_BROKER 1
#define DRAIN       180000
#include "tests/e2e/amqp/amqp_turns.h"

TestSuite(amqp_groups_node, .init = amqp_init, .fini = amqp_fini,
          .timeout = 4000);

#define STALLS 3 /* of the server, after which the test gives up */

/* Return true if a passive declaration of the queue is answered. RabbitMQ
 * 3.10.8 alone on its node does not always open a queue again after a SIGKILL:
 * each declaration times out for minutes, and its log says "badmatch" and
 * "timeout". */
static bool server_answers(void)
{
    long n = 0;

    for (unsigned i = 0; i < 2 && n >= 0; i++)
        n = amqp_ready(part(i));
    return n >= 0 && amqp_ready(amqp_of("dead")) >= 0;
}

/* Kill and start the node until its queues answer. */
static void node_again(void)
{
    for (unsigned stalls = 0; stalls < STALLS; stalls++) {
        amqp_disconnect();
        amqp_node("kill", 1);
        amqp_node("up", 1);
        amqp_connect();
        amqp_set_rpc_timeout(amqp_client, &(struct timeval){.tv_sec = 20});
        if (server_answers())
            return;
        fprintf(stderr, "the server does not open its queues: it is "
                        "started again\n");
    }
    cr_assert(false, "the server did not open its queues %d times", STALLS);
}

Test(amqp_groups_node, order_holds_when_the_node_is_killed)
{
    struct harness_process *w[2];
    unsigned total = 40 * EACH;
    uint64_t made;

    for (unsigned i = 0; i < 2; i++)
        w[i] = worker(i, "2");
    made = harness_now_ms();
    rounds_publish(40, EACH, 2);
    /* Of a node alone, a queue is safe when it is older than a second. */
    harness_until(harness_now_ms() - made >= 2000, 10000);
    for (unsigned kills = 1; kills <= 2; kills++) {
        until_left(40, EACH, total - kills * 120);
        node_again();
    }
    until_left(40, EACH, 0);
    for (unsigned i = 0; i < 2; i++)
        cr_assert_eq(harness_stop(w[i], DRAIN), 0);
    cr_assert_eq(missing(40, EACH), 0);
}
