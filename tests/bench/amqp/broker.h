/* broker.h - RabbitMQ with a queue as the worker makes it
 *
 * WHAT   A node for one measurement, or the one at port $MQW_BENCH_BROKER of
 *        loopback; an empty quorum queue; and messages in it. Calls of
 *        librabbitmq, as any program makes them.
 * WHO    A measuring process.
 * OWNS   The node, unless it was there; its queues are deleted by
 *        broker_over.
 * FAILS  fail(); NOT_BUILT where there is no rabbitmq-server or amqp-tools.
 */
#ifndef TESTS_BENCH_AMQP_BROKER_H
#define TESTS_BENCH_AMQP_BROKER_H

#include "common/amqp/link.h"
#include "tests/bench/bench.h"

struct broker {
    unsigned port;
    char operand[192]; /* for our programs */
    char url[64];      /* for those of amqp-tools */
};
#define BENCH_QUEUE "mqw-bench"

enum measured broker_start(struct broker *b);
void broker_over(const struct broker *b);
/* Open a connection with one channel, number 1. */
amqp_connection_state_t broker_connect(const struct broker *b);
/* Publish a persistent message without waiting for its confirm. */
void broker_publish(amqp_connection_state_t c, const void *body, size_t size);
/* Publish `n` messages of `size` bytes and wait until all are confirmed. */
void broker_fill(const struct broker *b, unsigned long n, size_t size);

#endif
