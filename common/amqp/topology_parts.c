/* topology_parts.c - a queue with partitions (see topology_parts.h) */
#include "common/amqp/topology_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sysexits.h>

#include "common/base/basics.h"

#define DEAD_KEY "dead" /* of the exchange: to NAME.dead */
/* Arguments of queue_spec_init that begin with the exchange of the net. */
#define NET_ENTRIES 4

/* topology_part_spec - one part of NAME: its net has the number of parts in its
 * name, so that the broker refuses another number */
void topology_part_spec(struct queue_spec *q, const struct link *l,
                        const char *name, const char *exchange)
{
    queue_spec_init(q, l, name, DEAD_KEY);
    q->entries[q->count - NET_ENTRIES].value.value.bytes =
        queue_spec_bytes(exchange);
    queue_spec_single(q);
}

static int exchange_declare(struct link *l, const char *name, bool passive)
{
    (void)amqp_exchange_declare(l->c, LINK_CHANNEL, queue_spec_bytes(name),
                                queue_spec_bytes("direct"), passive, 1, 0, 0,
                                (amqp_table_t){0, NULL});
    return link_reply(l, amqp_get_rpc_reply(l->c));
}

static int bind(struct link *l, const char *exchange, const char *queue,
                const char *key)
{
    (void)amqp_queue_bind(l->c, LINK_CHANNEL, queue_spec_bytes(queue),
                          queue_spec_bytes(exchange), queue_spec_bytes(key),
                          (amqp_table_t){0, NULL});
    return link_reply(l, amqp_get_rpc_reply(l->c));
}

/* exchange_open - each part by its number, and the dead letters */
static int exchange_open(struct link *l, const struct topology *t,
                         const char *dead, struct problem *p)
{
    char exchange[TOPOLOGY_NAME], queue[TOPOLOGY_NAME], key[12];
    int err = exchange_declare(l, topology_exchange(t, exchange), t->no_create);

    if (!err && !t->no_create)
        err = bind(l, exchange, dead, DEAD_KEY);
    for (unsigned i = 0; i < t->partitions && !err && !t->no_create; i++) {
        snprintf(key, sizeof key, "%u", i);
        err = bind(l, exchange, topology_queue(t, i, queue), key);
    }
    return err ? queue_spec_refused(l, t, exchange, err, p) : 0;
}

/* topology_parts_open - the queues first: the broker refuses another number of
 * them before anything of that is made */
int topology_parts_open(struct link *l, const struct topology *t,
                        const char *dead, struct problem *p)
{
    char exchange[TOPOLOGY_NAME], name[TOPOLOGY_NAME];
    struct queue_spec q;
    int err = 0;

    topology_exchange(t, exchange);
    for (unsigned i = 0; i < t->partitions && !err; i++) {
        topology_part_spec(&q, l, topology_queue(t, i, name), exchange);
        err = queue_spec_ready(l, t, &q, false, p);
    }
    return err ? err : exchange_open(l, t, dead, p);
}

/* is_there - whether there is a queue of that name, and what waits in it: YES,
 * NO, or a problem. One that the user may not see is left to topology_open. */
static int is_there(struct link *l, const struct topology *t, const char *name,
                    uint32_t *messages, struct problem *p)
{
    uint32_t consumers;
    int err = topology_count(l, name, messages, &consumers);

    if (!err)
        return YES;
    if (err == -EPROTO &&
        (l->code == AMQP_NOT_FOUND || l->code == AMQP_ACCESS_REFUSED))
        err = link_channel(l);
    return err ? queue_spec_refused(l, t, name, err, p) : NO;
}

/* part_is_there - NAME.0, whatever number of them there is */
static int part_is_there(struct link *l, const struct topology *t,
                         struct problem *p)
{
    const struct topology parted = {.operand = t->operand, .partitions = 1};
    char name[TOPOLOGY_NAME];
    uint32_t messages;

    return is_there(l, t, topology_queue(&parted, 0, name), &messages, p);
}

/* plain_found - NAME itself, and maybe partitions beside it */
static int plain_found(struct link *l, const struct topology *t,
                       uint32_t messages, struct problem *p)
{
    const char *name = t->operand->queue;
    int both = part_is_there(l, t, p);

    if (both < 0)
        return both;
    if (both == YES)
        return problem_set(p, EX_CONFIG, EEXIST,
                           "queue %s is there without partitions, and so is "
                           "%s.0, a partition of it or another queue of that "
                           "name: leave out --partitions, or if it has them, "
                           "empty %s, which holds %" PRIu32
                           " messages, with a worker without --partitions, "
                           "then delete it",
                           name, name, name, messages);
    return problem_set(p, EX_CONFIG, EEXIST,
                       "queue %s is there without partitions, and holds "
                       "%" PRIu32 " messages: leave out --partitions, or use "
                       "another name for a queue that has them",
                       name, messages);
}

/* topology_unlike - a queue without partitions would never be emptied by a
 * worker with them. One that is made beside partitions would get nothing, and
 * its worker would wait in silence: it is asked only where there is none yet.
 */
int topology_unlike(struct link *l, const struct topology *t, struct problem *p)
{
    uint32_t messages = 0;
    int there = is_there(l, t, t->operand->queue, &messages, p);

    if (there < 0)
        return there;
    if (t->partitions)
        return there == YES ? plain_found(l, t, messages, p) : 0;
    there = there == YES ? NO : part_is_there(l, t, p);
    if (there != YES)
        return there;
    return problem_set(p, EX_CONFIG, EEXIST,
                       "queue %s has partitions, or another queue of that "
                       "name is there (%s.0): give --partitions as its other "
                       "workers and senders do, or use another name",
                       t->operand->queue, t->operand->queue);
}

int topology_number(struct link *l, const struct topology *t, struct problem *p)
{
    char exchange[TOPOLOGY_NAME];
    int err = t->partitions
                  ? exchange_declare(l, topology_exchange(t, exchange), true)
                  : 0;

    if (err != -EPROTO || l->code != AMQP_NOT_FOUND)
        return err ? queue_spec_refused(l, t, exchange, err, p) : 0;
    return problem_set(p, EX_NOINPUT, ENOENT,
                       "queue %s has no %u partitions in virtual host %s (no "
                       "exchange %s): give the number that its worker has, or "
                       "start that first",
                       t->operand->queue, t->partitions, t->operand->vhost,
                       exchange);
}
