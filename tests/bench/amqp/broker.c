/* broker.c - see broker.h */
#include "tests/bench/amqp/broker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/amqp/topology.h"
#include "tests/bench/feed.h"
#include "tests/bench/peers.h"

#define BATCH 1000 /* published before their confirms are read */
#define USER  "guest"

static amqp_bytes_t word(const char *text)
{
    return (amqp_bytes_t){strlen(text), (void *)(uintptr_t)text};
}

static void answered(amqp_connection_state_t c, const char *what)
{
    if (amqp_get_rpc_reply(c).reply_type != AMQP_RESPONSE_NORMAL)
        fail(0, "the broker refuses %s", what);
}

amqp_connection_state_t broker_connect(const struct broker *b)
{
    amqp_connection_state_t c;
    amqp_socket_t *s;
    struct problem p;

    if (rabbit_load(&p) < 0)
        fail(0, "%s", p.text);
    c = amqp_new_connection();
    s = amqp_tcp_socket_new(c);
    if (!s || amqp_socket_open(s, "127.0.0.1", (int)b->port) != AMQP_STATUS_OK)
        fail(0, "nobody answers at port %u", b->port);
    if (amqp_login(c, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, USER, USER)
            .reply_type != AMQP_RESPONSE_NORMAL)
        fail(0, "the broker does not let us in");
    amqp_channel_open(c, 1);
    answered(c, "a channel");
    return c;
}

/* Create the queues as the worker does. */
static void queues_make(const struct broker *b)
{
    struct broker_operand operand;
    struct topology t = {.operand = &operand};
    struct link *l;
    struct problem p;

    if (broker_operand_parse(&operand, b->operand, &p) < 0 ||
        link_open(&l,
                  &(struct link_setup){
                      .operand = &operand, .password = USER, .name = "bench"},
                  0, &p) < 0 ||
        topology_open(l, &t, &p) < 0)
        fail(0, "%s", p.text);
    link_close(&l);
}

/* Delete the queues that exist. */
static void queues_end(const struct broker *b)
{
    static const char *const all[] = {BENCH_QUEUE, BENCH_QUEUE ".dead",
                                      BENCH_QUEUE ".dead.kept"};
    amqp_connection_state_t c = broker_connect(b);

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        amqp_queue_delete(c, 1, word(all[i]), 0, 0);
        answered(c, "to delete a queue");
    }
    amqp_destroy_connection(c);
}

enum measured broker_start(struct broker *b)
{
    const char *there = getenv("MQW_BENCH_BROKER");

    *b = (struct broker){.port = 0};
    if (there)
        b->port = (unsigned)strtoul(there, NULL, 10);
    else if (rabbit_node(&b->port) != MEASURED)
        return NOT_BUILT;
    snprintf(b->operand, sizeof b->operand,
             "amqp://" USER "@127.0.0.1:%u/%%2F/" BENCH_QUEUE, b->port);
    snprintf(b->url, sizeof b->url, "amqp://" USER ":" USER "@127.0.0.1:%u",
             b->port);
    queues_end(b);
    queues_make(b);
    return MEASURED;
}

void broker_over(const struct broker *b)
{
    queues_end(b);
}

void broker_publish(amqp_connection_state_t c, const void *body, size_t size)
{
    const amqp_basic_properties_t p = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
                                       .delivery_mode = 2};

    if (amqp_basic_publish(c, 1, amqp_empty_bytes, word(BENCH_QUEUE), 0, 0, &p,
                           (amqp_bytes_t){size, (void *)(uintptr_t)body}) !=
        AMQP_STATUS_OK)
        fail(0, "publishing");
}

/* Wait until all messages up to number `n` are confirmed. */
static void confirmed(amqp_connection_state_t c, uint64_t n)
{
    uint64_t last = 0;
    amqp_frame_t f;

    while (last < n) {
        if (amqp_simple_wait_frame(c, &f) != AMQP_STATUS_OK ||
            f.frame_type != AMQP_FRAME_METHOD ||
            f.payload.method.id != AMQP_BASIC_ACK_METHOD)
            fail(0, "the broker does not confirm");
        last = ((amqp_basic_ack_t *)f.payload.method.decoded)->delivery_tag;
        amqp_maybe_release_buffers(c);
    }
}

void broker_fill(const struct broker *b, unsigned long n, size_t size)
{
    static char body[FEED_MOST];
    amqp_connection_state_t c = broker_connect(b);

    amqp_confirm_select(c, 1);
    answered(c, "confirms");
    feed_body(body);
    for (unsigned long i = 1; i <= n; i++) {
        broker_publish(c, body, size);
        if (i % BATCH == 0 || i == n)
            confirmed(c, i);
    }
    amqp_destroy_connection(c);
}
