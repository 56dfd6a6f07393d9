/* consumer.c - the consumers of the inbox's connection (see amqp_inner.h) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <bsd/stdlib.h>

#include "worker/source/amqp/amqp_inner.h"

#define CONSUMER "mqworker" /* a dot and a number follow */

/* consumer_part - 0 of a queue that is whole */
unsigned consumer_part(const struct source_amqp *q, amqp_bytes_t tag)
{
    char text[24] = "";
    size_t from = sizeof CONSUMER; /* behind the dot */

    if (tag.len > from && tag.len < sizeof text)
        memcpy(text, tag.bytes, tag.len);
    return (unsigned)strtoul(text + (text[0] ? from : 0), NULL, 10) %
           q->part_count;
}

/* tag_print - of a part, or the number of a consumer of the whole queue: one
 * that was cancelled may have messages still, and 3.10.8 closes the connection
 * if another one begins under its name meanwhile */
static void tag_print(const struct source_amqp *q, unsigned part,
                      unsigned consumer, char tag[24])
{
    snprintf(tag, 24, CONSUMER ".%u", amqp_parted(q) ? part : consumer);
}

static int consume_one(struct source_amqp *q, unsigned part, unsigned consumer)
{
    struct link *l = q->inbox.link;
    char tag[24];

    tag_print(q, part, consumer, tag);
    (void)amqp_basic_consume(
        l->c, LINK_CHANNEL, amqp_cstring_bytes(q->parts[part]),
        amqp_cstring_bytes(tag), 0, 0, 0, (amqp_table_t){0, NULL});
    return link_reply(l, amqp_get_rpc_reply(l->c));
}

/* consumer_begin - of each part the broker has one consumer active: the first.
 * So workers that start at once begin at different ones. A consumer keeps the
 * prefetch that it began with; what the broker counts is what is not
 * acknowledged. */
int consumer_begin(struct source_amqp *q, unsigned each, unsigned consumer)
{
    struct link *l = q->inbox.link;
    unsigned first = arc4random_uniform(q->part_count);
    int err;

    (void)amqp_basic_qos(l->c, LINK_CHANNEL, 0, (uint16_t)each, 0);
    err = link_reply(l, amqp_get_rpc_reply(l->c));
    for (unsigned i = 0; i < q->part_count && !err; i++)
        err = consume_one(q, (first + i) % q->part_count, consumer);
    return err;
}

int consumer_end(struct source_amqp *q, unsigned consumer)
{
    struct link *l = q->inbox.link;
    char tag[24];

    tag_print(q, 0, consumer, tag);
    (void)amqp_basic_cancel(l->c, LINK_CHANNEL, amqp_cstring_bytes(tag));
    return link_reply(l, amqp_get_rpc_reply(l->c));
}

/* ---- what it had ---- */

static int by_tag(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static int send_ack(void *arg, uint64_t tag, bool all)
{
    struct link *l = arg;

    return link_status(l, amqp_basic_ack(l->c, LINK_CHANNEL, tag, all));
}

static int send_nack(void *arg, uint64_t tag, bool all)
{
    struct link *l = arg;

    return link_status(l, amqp_basic_nack(l->c, LINK_CHANNEL, tag, all, 1));
}

static int send(struct source_amqp *q, uint64_t *tags, size_t n, ack_send *tell)
{
    qsort(tags, n, sizeof *tags, by_tag);
    return ack_window_send(&q->window, tags, n, tell, q->inbox.link);
}

int consumer_ack(struct source_amqp *q, uint64_t *tags, size_t n)
{
    return send(q, tags, n, send_ack);
}

int consumer_give_back(struct source_amqp *q, uint64_t *tags, size_t n)
{
    return send(q, tags, n, send_nack);
}
