/* topology.c - the queues that a worker's queue needs on a broker (see
 * topology.h)
 *
 * No queue expires: that would delete its messages. Every queue has both
 * x-dead-letter-strategy and x-overflow: without one of them the broker moves a
 * message to another queue at most once, and reports no error. All messages of
 * a wait queue wait equally long: the broker checks only the head of a queue,
 * so a message would be kept by one in front of it that waits longer.
 */
#include "common/amqp/topology.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/basics.h"

#define QUEUE_SPEC_ARGUMENTS 8
#define QUEUE_SPEC_PARTED    ".partitions."
#define POLYNOMIAL           0xedb88320U
#define IN_HAND_ALL          1024 /* messages in hand, of all parts */
#define IN_HAND_LEAST        16
#define IN_HAND_MOST         128

uint32_t partition_crc(const void *key, size_t size)
{
    const unsigned char *at = key;
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < size; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (POLYNOMIAL & -(crc & 1));
    }
    return ~crc;
}

unsigned partition_in_hand(unsigned n)
{
    unsigned each = IN_HAND_ALL / n;

    return each < IN_HAND_LEAST  ? IN_HAND_LEAST
           : each > IN_HAND_MOST ? IN_HAND_MOST
                                 : each;
}

/* Lengths in ms, up to a day. A message with a longer wait goes through several
 * wait queues. */
static const uint64_t lengths[TOPOLOGY_LENGTHS] = {
    1000, 4000, 16000, 60000, 240000, 960000, 3600000, 14400000, 86400000};

const char *topology_dead(const struct topology *t, char out[TOPOLOGY_NAME])
{
    snprintf(out, TOPOLOGY_NAME, "%s.dead", t->operand->queue);
    return out;
}

const char *topology_queue(const struct topology *t, unsigned part,
                           char out[TOPOLOGY_NAME])
{
    if (t->partitions)
        snprintf(out, TOPOLOGY_NAME, "%s.%u", t->operand->queue, part);
    else
        snprintf(out, TOPOLOGY_NAME, "%s", t->operand->queue);
    return out;
}

/* Print "NAME.wait.4000", or "NAME.3.wait.4000" (ms > 0). */
static const char *topology_waits(const struct topology *t, unsigned part,
                                  uint64_t ms, char out[TOPOLOGY_NAME])
{
    size_t n = strlen(topology_queue(t, part, out));

    snprintf(out + n, TOPOLOGY_NAME - n, ".wait.%" PRIu64, ms);
    return out;
}

/* Print "NAME.partitions.8". */
static const char *topology_exchange(const struct topology *t,
                                     char out[TOPOLOGY_NAME])
{
    snprintf(out, TOPOLOGY_NAME, "%s" QUEUE_SPEC_PARTED "%u", t->operand->queue,
             t->partitions);
    return out;
}

void topology_time_to_live(const struct topology *t, const char *name,
                           amqp_basic_properties_t *p)
{
    size_t own = strlen(t->operand->queue);

    if (strstr(name, t->operand->queue) != name)
        return;
    if (t->partitions && name[own] == '.')
        own += 1 + strspn(name + own + 1, "0123456789");
    if (strncmp(name + own, ".wait.", 6) != 0)
        return;
    p->_flags |= AMQP_BASIC_EXPIRATION_FLAG;
    p->expiration = amqp_cstring_bytes(name + own + 6);
}

uint64_t topology_length(uint64_t ms)
{
    uint64_t longest = 0;

    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        if (lengths[i] <= ms)
            longest = lengths[i];
    return longest;
}

uint64_t topology_target(const struct topology *t, unsigned part, uint64_t ms,
                         char out[TOPOLOGY_NAME])
{
    uint64_t length = topology_length(ms);

    if (length)
        topology_waits(t, part, length, out);
    else
        topology_queue(t, part, out);
    return length;
}

unsigned topology_index(uint64_t ms)
{
    unsigned i = 0;

    while (i < TOPOLOGY_LENGTHS - 1 && lengths[i] < ms)
        i++;
    return i;
}

#define LIMIT  "x-delivery-limit"
#define SINGLE "x-single-active-consumer" /* one at a time has the messages */

/* A queue's declaration in the making. Names and texts are borrowed. */
struct queue_spec {
    const char *name;
    amqp_table_entry_t entries[QUEUE_SPEC_ARGUMENTS];
    int count;
};

static void queue_spec_add(struct queue_spec *q, amqp_table_entry_t argument)
{
    q->entries[q->count++] = argument;
}

/* Begin the declaration of a replicated queue. A message that the broker drops
 * from it goes to `exchange` ("": the default exchange) with the key `net`;
 * NULL: it is lost. Set no limit of deliveries, as mqdlq adds to their number
 * each time it reads a letter. Servers before 4.0 have no limit unless asked,
 * and there a limit of -1 deletes every message. */
static void queue_spec_init(struct queue_spec *q, const struct link *l,
                            const char *name, const char *exchange,
                            const char *net)
{
    *q = (struct queue_spec){.name = name};
    queue_spec_add(q, entry_text("x-queue-type", "quorum"));
    if (l->server >= SERVER_4)
        queue_spec_add(
            q, (amqp_table_entry_t){
                   .key = amqp_cstring_bytes(LIMIT),
                   .value = {.kind = AMQP_FIELD_KIND_I64, .value.i64 = -1}});
    if (!net)
        return;
    queue_spec_add(q, entry_text("x-dead-letter-exchange", exchange));
    queue_spec_add(q, entry_text("x-dead-letter-routing-key", net));
    queue_spec_add(q, entry_text("x-dead-letter-strategy", "at-least-once"));
    queue_spec_add(q, entry_text("x-overflow", "reject-publish"));
}

/* Declare the queue with all its arguments, or passively, without comparing
 * any. */
static int queue_declare(struct link *l, const struct queue_spec *q,
                         bool passive)
{
    const amqp_table_t arguments = {
        q->count, (amqp_table_entry_t *)(uintptr_t)q->entries};

    (void)amqp_queue_declare(l->c, LINK_CHANNEL, amqp_cstring_bytes(q->name),
                             passive, 1, 0, 0, arguments);
    return link_reply(l, amqp_get_rpc_reply(l->c));
}

/* A queue's delivery limit is fixed at creation, and requested only from a
 * server of 4.0 or later. So the limit differs for a queue created before an
 * upgrade, and, during a rolling upgrade, for a queue created on a new node and
 * declared on an old one. Such a queue works as before and is used unchanged.
 * Never request a limit of -1 from an old server, even if the queue has that
 * limit: if the queue were deleted at this moment, the old server would create
 * one that deletes its messages.
 */
static int queue_spec_declare(struct link *l, const struct queue_spec *q,
                              bool passive)
{
    struct queue_spec bare = {.name = q->name};
    int err = queue_declare(l, q, passive);
    bool unlimited;

    if (err != -EPROTO || l->code != AMQP_PRECONDITION_FAILED ||
        !strstr(l->why, LIMIT))
        return err;
    unlimited = strstr(l->why, "current is the value '-1'") != NULL;
    err = link_channel(l);
    if (err)
        return err;
    if (l->server < SERVER_4 && unlimited)
        return queue_declare(l, q, true);
    for (int i = 0; i < q->count; i++)
        if (q->entries[i].key.len != strlen(LIMIT) ||
            memcmp(q->entries[i].key.bytes, LIMIT, strlen(LIMIT)) != 0)
            bare.entries[bare.count++] = q->entries[i];
    err = queue_declare(l, &bare, false);
    l->limited = l->limited || !err;
    return err;
}

/* Check whether a queue that differs from its declaration is a quorum queue.
 * The broker names one difference only, and this one matters most: it replaces
 * `why`. Opens the channel again; -errno: the connection is gone. */
static int queue_type_check(struct link *l, const char *name,
                            char why[LINK_WHY])
{
    struct queue_spec q = {.name = name};
    int err = link_channel(l);

    queue_spec_add(&q, entry_text("x-queue-type", "quorum"));
    if (!err)
        err = queue_spec_declare(l, &q, false);
    if (err != -EPROTO)
        return err;
    if (strstr(l->why, "x-queue-type"))
        memcpy(why, l->why, LINK_WHY);
    return link_channel(l);
}

/* Report why a queue cannot be used, with both values as the broker has them.
 */
static int queue_spec_refused(struct link *l, const struct topology *t,
                              const char *name, int err, struct problem *p)
{
    const struct broker_operand *o = t->operand;
    uint16_t code = l->code;
    char why[LINK_WHY];

    memcpy(why, l->why, sizeof why);
    if (err != -EPROTO)
        return problem_set(p, EX_UNAVAILABLE, -err,
                           "lost the connection to %s: %s",
                           o->hosts[l->host].name, why);
    if (code == AMQP_PRECONDITION_FAILED)
        (void)queue_type_check(l, name, why);
    if (code == AMQP_NOT_FOUND)
        (void)problem_set(p, EX_NOINPUT, ENOENT,
                          "no queue %s in virtual host %s of %s: leave out "
                          "--no-create, or declare it",
                          name, o->vhost, o->hosts[l->host].name);
    else if (code == AMQP_ACCESS_REFUSED)
        (void)problem_set(p, EX_NOPERM, EACCES,
                          "user %s may not declare or use queue %s: %s; grant "
                          "the rights with rabbitmqctl set_permissions, or use "
                          "mqworker --no-create if the queue exists",
                          o->user, name, why);
    else if (strstr(why, QUEUE_SPEC_PARTED))
        (void)problem_set(p, EX_CONFIG, EINVAL,
                          "queue %s has another number of partitions: %s; give "
                          "--partitions as its other workers and senders do, "
                          "or use another name: the number is fixed",
                          o->queue, why);
    else if (strstr(why, "x-queue-type"))
        (void)problem_set(p, EX_CONFIG, EINVAL,
                          "queue %s is not replicated (%s): a node that dies "
                          "takes its messages along; declare a quorum queue, "
                          "or give --allow-unreplicated",
                          name, why);
    else
        (void)problem_set(
            p, EX_CONFIG, EINVAL,
            "queue %s exists and is of another kind: %s; use it unchanged with "
            "mqworker --no-create, or empty and delete it",
            name, why);
    return -EPROTO;
}

/* Declare a queue. With `as_it_is` a queue of another kind is accepted. */
static int queue_spec_ready(struct link *l, const struct topology *t,
                            const struct queue_spec *q, bool as_it_is,
                            struct problem *p)
{
    int err = queue_spec_declare(l, q, t->no_create);

    if (err == -EPROTO && as_it_is && l->code == AMQP_PRECONDITION_FAILED) {
        err = link_channel(l);
        if (!err)
            err = queue_spec_declare(l, q, true);
    }
    return err ? queue_spec_refused(l, t, q->name, err, p) : 0;
}

int topology_count(struct link *l, const char *queue, uint32_t *messages,
                   uint32_t *consumers)
{
    const amqp_queue_declare_ok_t *ok =
        amqp_queue_declare(l->c, LINK_CHANNEL, amqp_cstring_bytes(queue), 1, 1,
                           0, 0, (amqp_table_t){0, NULL});
    int err = link_reply(l, amqp_get_rpc_reply(l->c));

    if (err || !ok)
        return err ? err : -EIO;
    *messages = ok->message_count;
    *consumers = ok->consumer_count;
    return 0;
}

#define DEAD_KEY "dead" /* of the exchange: to NAME.dead */
static int exchange_declare(struct link *l, const char *name, bool passive)
{
    (void)amqp_exchange_declare(l->c, LINK_CHANNEL, amqp_cstring_bytes(name),
                                amqp_cstring_bytes("direct"), passive, 1, 0, 0,
                                (amqp_table_t){0, NULL});
    return link_reply(l, amqp_get_rpc_reply(l->c));
}

static int queue_bind(struct link *l, const char *exchange, const char *queue,
                      const char *key)
{
    (void)amqp_queue_bind(l->c, LINK_CHANNEL, amqp_cstring_bytes(queue),
                          amqp_cstring_bytes(exchange), amqp_cstring_bytes(key),
                          (amqp_table_t){0, NULL});
    return link_reply(l, amqp_get_rpc_reply(l->c));
}

/* Declare the parts, and the exchange that routes to each part by its number
 * and to the dead letters. The queues come first: the name of the exchange,
 * which they have as an argument, has the number of parts, so the broker
 * refuses another number before anything is created for it. */
static int topology_parts_open(struct link *l, const struct topology *t,
                               const char *dead, struct problem *p)
{
    char exchange[TOPOLOGY_NAME], name[TOPOLOGY_NAME], key[12];
    struct queue_spec q;
    int err = 0;

    topology_exchange(t, exchange);
    for (unsigned i = 0; i < t->partitions && !err; i++) {
        queue_spec_init(&q, l, topology_queue(t, i, name), exchange, DEAD_KEY);
        queue_spec_add(&q, entry_true(SINGLE));
        err = queue_spec_ready(l, t, &q, false, p);
    }
    if (err)
        return err;
    err = exchange_declare(l, exchange, t->no_create);
    if (!err && !t->no_create)
        err = queue_bind(l, exchange, dead, DEAD_KEY);
    for (unsigned i = 0; i < t->partitions && !err && !t->no_create; i++) {
        snprintf(key, sizeof key, "%u", i);
        err = queue_bind(l, exchange, topology_queue(t, i, name), key);
    }
    return err ? queue_spec_refused(l, t, exchange, err, p) : 0;
}

/* Return whether there is a queue of that name, with the number of its
 * messages: YES, NO, or a problem. A queue that the user may not see is left to
 * topology_open. */
static int queue_is_there(struct link *l, const struct topology *t,
                          const char *name, uint32_t *messages,
                          struct problem *p)
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

/* A queue without partitions would never be emptied by a worker with them. One
 * that is made beside partitions would get nothing, and its worker would wait
 * in silence: so partitions matter only if there is no queue yet. */
int topology_unlike(struct link *l, const struct topology *t, struct problem *p)
{
    const struct topology parted = {.operand = t->operand, .partitions = 1};
    const char *name = t->operand->queue;
    uint32_t messages = 0, ignored;
    char first[TOPOLOGY_NAME];
    int there = queue_is_there(l, t, name, &messages, p), part;

    if (there < 0 || (there == YES) != (t->partitions > 0))
        return there < 0 ? there : 0;
    part = queue_is_there(l, t, topology_queue(&parted, 0, first), &ignored, p);
    if (part < 0 || (part == NO && there == NO))
        return part;
    if (there == NO)
        return problem_set(p, EX_CONFIG, EEXIST,
                           "queue %s has partitions, or another queue of that "
                           "name is there (%s): give --partitions as its other "
                           "workers and senders do, or use another name",
                           name, first);
    if (part == YES)
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

/* The nets come first: messages that a queue drops would be lost from sight
 * while its net is missing. */
int topology_open(struct link *l, const struct topology *t, struct problem *p)
{
    char dead[TOPOLOGY_NAME], kept[TOPOLOGY_NAME + 8];
    struct queue_spec q;
    int err;

    topology_dead(t, dead);
    snprintf(kept, sizeof kept, "%s.kept", dead);
    queue_spec_init(&q, l, kept, NULL, NULL);
    err = queue_spec_ready(l, t, &q, false, p);
    if (err)
        return err;
    queue_spec_init(&q, l, dead, "", kept);
    queue_spec_add(&q, entry_true(SINGLE));
    err = queue_spec_ready(l, t, &q, false, p);
    if (err)
        return err;
    if (t->partitions)
        return topology_parts_open(l, t, dead, p);
    queue_spec_init(&q, l, t->operand->queue, "", dead);
    return queue_spec_ready(l, t, &q, t->allow_unreplicated, p);
}

int topology_wait(struct link *l, const struct topology *t, unsigned part,
                  uint64_t ms, struct problem *p)
{
    char name[TOPOLOGY_NAME], back[TOPOLOGY_NAME];
    struct queue_spec q;

    queue_spec_init(&q, l, topology_waits(t, part, ms, name), "",
                    topology_queue(t, part, back));
    queue_spec_add(&q, entry_number("x-message-ttl", ms));
    return queue_spec_ready(l, t, &q, false, p);
}

int topology_there(struct link *l, const struct topology *t, unsigned part,
                   struct problem *p)
{
    uint32_t messages, consumers;
    char name[TOPOLOGY_NAME];
    int err =
        topology_count(l, topology_queue(t, part, name), &messages, &consumers);

    if (err != -EPROTO || l->code != AMQP_NOT_FOUND)
        return err ? queue_spec_refused(l, t, name, err, p) : 0;
    return problem_set(p, EX_NOINPUT, ENOENT,
                       "no queue %s in virtual host %s: start its worker, or "
                       "run mqsend --create",
                       name, t->operand->vhost);
}

/* ---- inspection ---- */

/* Inspect a queue. To declare an existing queue as topology_open would create
 * it changes nothing, and shows whether it differs. */
static int queue_inspect(struct link *l, const struct queue_spec *q,
                         struct topology_seen *seen, char why[LINK_WHY])
{
    int err = topology_count(l, q->name, &seen->messages, &seen->consumers);
    bool exists = !err;

    seen->name = q->name;
    seen->is = TOPOLOGY_WANTED;
    seen->why = why;
    why[0] = '\0';
    if (exists)
        err = queue_spec_declare(l, q, false);
    if (err != -EPROTO)
        return err;
    memcpy(why, l->why, LINK_WHY);
    if (exists && l->code == AMQP_PRECONDITION_FAILED) {
        seen->is = TOPOLOGY_OTHER;
        return queue_type_check(l, q->name, why);
    }
    seen->is = !exists && l->code == AMQP_NOT_FOUND ? TOPOLOGY_ABSENT
                                                    : TOPOLOGY_UNKNOWN;
    return link_channel(l);
}

/* The names that the specs of topology_each point to. */
struct names {
    char dead[TOPOLOGY_NAME], kept[TOPOLOGY_NAME + 8];
    char exchange[TOPOLOGY_NAME], part[TOPOLOGY_NAME], wait[TOPOLOGY_NAME];
};

/* Make the declaration of queue number `i`: the parts of NAME, or NAME itself;
 * the dead letters and their net; the wait queues of each part. Returns false
 * if there are no more. */
static bool spec_at(struct queue_spec *q, const struct link *l,
                    const struct topology *t, unsigned i, struct names *n,
                    uint64_t *wait_ms)
{
    unsigned parts = t->partitions ? t->partitions : 1, part;

    *wait_ms = 0;
    if (i < parts && t->partitions) {
        queue_spec_init(q, l, topology_queue(t, i, n->part), n->exchange,
                        DEAD_KEY);
        queue_spec_add(q, entry_true(SINGLE));
    } else if (i < parts) {
        queue_spec_init(q, l, t->operand->queue, "", n->dead);
    } else if (i == parts) {
        queue_spec_init(q, l, n->dead, "", n->kept);
        queue_spec_add(q, entry_true(SINGLE));
    } else if (i == parts + 1) {
        queue_spec_init(q, l, n->kept, NULL, NULL);
    } else if (i < parts + 2 + parts * TOPOLOGY_LENGTHS) {
        part = (i - parts - 2) / TOPOLOGY_LENGTHS;
        *wait_ms = lengths[(i - parts - 2) % TOPOLOGY_LENGTHS];
        queue_spec_init(q, l, topology_waits(t, part, *wait_ms, n->wait), "",
                        topology_queue(t, part, n->part));
        queue_spec_add(q, entry_number("x-message-ttl", *wait_ms));
    } else {
        return false;
    }
    return true;
}

int topology_each(struct link *l, const struct topology *t,
                  void (*visit)(const struct topology_seen *seen, void *arg),
                  void *arg)
{
    struct topology_seen seen;
    struct queue_spec q;
    char why[LINK_WHY];
    uint64_t wait_ms;
    struct names n;
    int err = 0;

    topology_dead(t, n.dead);
    topology_exchange(t, n.exchange);
    snprintf(n.kept, sizeof n.kept, "%s.kept", n.dead);
    for (unsigned i = 0; !err && spec_at(&q, l, t, i, &n, &wait_ms); i++) {
        seen = (struct topology_seen){.wait_ms = wait_ms};
        err = queue_inspect(l, &q, &seen, why);
        if (!err) {
            seen.part = !seen.wait_ms && i < t->partitions;
            visit(&seen, arg);
        }
    }
    return err;
}
