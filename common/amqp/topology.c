/* topology.c - the queues that a worker's queue needs on a broker (see
 * topology.h)
 *
 * No queue expires: that would delete its messages. Every queue with a
 * dead-letter exchange has both x-dead-letter-strategy and x-overflow: without
 * both of them, the broker does not confirm its own moves to another queue, and
 * can lose a message without an error. All messages of a wait queue wait
 * equally long: the broker checks only the head of a queue, so a message with a
 * longer wait would hold up the messages behind it.
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
#define IN_HAND_ALL          1024 /* messages that a worker has of all parts */
#define IN_HAND_LEAST        16   /* of one part, at least */
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

/* How long the messages of each wait queue wait, ms. For a longer wait, a
 * message goes through several wait queues. */
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

#define LIMIT    "x-delivery-limit"
#define DEAD_KEY "dead" /* key by which the exchange routes to NAME.dead */

/* A queue's declaration. Not to be copied: `name` and the entries point into
 * it. A message that the broker drops from the queue goes to `exchange` ("":
 * the default one) with the key `net`: the name of the queue that catches the
 * message, or DEAD_KEY. */
struct queue_spec {
    const char *name;
    amqp_table_entry_t entries[QUEUE_SPEC_ARGUMENTS];
    int count;
    bool limited;     /* the last argument is a delivery limit */
    uint64_t wait_ms; /* length of a wait queue; 0: it is another queue */
    char own[TOPOLOGY_NAME], exchange[TOPOLOGY_NAME], net[TOPOLOGY_NAME];
};

static void queue_spec_add(struct queue_spec *q, amqp_table_entry_t argument)
{
    q->entries[q->count++] = argument;
}

/* Return the number of queues that have NAME's messages. */
static unsigned topology_part_count(const struct topology *t)
{
    return t->partitions ? t->partitions : 1;
}

/* Make the declaration of queue number `i`, from 0 up: the parts of NAME, or
 * NAME itself; NAME.dead and NAME.dead.kept; the wait queues of each part.
 * Returns false if there is no such number.
 * A message may be delivered any number of times, because mqdlq adds a delivery
 * each time it reads a letter. From 4.0 on, that takes a limit of -1. Older
 * servers have no limit by default, and there -1 deletes every message. */
static bool queue_spec_make(struct queue_spec *q, const struct link *l,
                            const struct topology *t, unsigned i)
{
    unsigned parts = topology_part_count(t), wait = i - parts - 2;

    *q = (struct queue_spec){.name = q->own};
    if (i < parts) {
        topology_queue(t, i, q->own);
        if (t->partitions) {
            topology_exchange(t, q->exchange);
            memcpy(q->net, DEAD_KEY, sizeof DEAD_KEY);
        } else {
            topology_dead(t, q->net);
        }
    } else if (i == parts) {
        topology_dead(t, q->own);
        snprintf(q->net, sizeof q->net, "%s.dead.kept", t->operand->queue);
    } else if (i == parts + 1) { /* the last net: the broker drops nothing */
        snprintf(q->own, sizeof q->own, "%s.dead.kept", t->operand->queue);
    } else if (wait < parts * TOPOLOGY_LENGTHS) {
        q->wait_ms = lengths[wait % TOPOLOGY_LENGTHS];
        topology_waits(t, wait / TOPOLOGY_LENGTHS, q->wait_ms, q->own);
        topology_queue(t, wait / TOPOLOGY_LENGTHS, q->net);
    } else {
        return false;
    }
    queue_spec_add(q, entry_text("x-queue-type", "quorum"));
    if (q->net[0]) {
        queue_spec_add(q, entry_text("x-dead-letter-exchange", q->exchange));
        queue_spec_add(q, entry_text("x-dead-letter-routing-key", q->net));
        queue_spec_add(q,
                       entry_text("x-dead-letter-strategy", "at-least-once"));
        queue_spec_add(q, entry_text("x-overflow", "reject-publish"));
    }
    if (i == parts || i < t->partitions)
        queue_spec_add(q, entry_true("x-single-active-consumer"));
    if (q->wait_ms)
        queue_spec_add(q, entry_number("x-message-ttl", q->wait_ms));
    q->limited = l->server >= SERVER_4;
    if (q->limited)
        queue_spec_add(
            q, (amqp_table_entry_t){
                   .key = amqp_cstring_bytes(LIMIT),
                   .value = {.kind = AMQP_FIELD_KIND_I64, .value.i64 = -1}});
    return true;
}

/* Declare the queue with its first `count` arguments, or passively, without
 * comparing any. */
static int queue_declare(struct link *l, const struct queue_spec *q, int count,
                         bool passive)
{
    const amqp_table_t arguments = {
        count, (amqp_table_entry_t *)(uintptr_t)q->entries};

    (void)amqp_queue_declare(l->c, LINK_CHANNEL, amqp_cstring_bytes(q->name),
                             passive, 1, 0, 0, arguments);
    return link_reply(l, amqp_get_rpc_reply(l->c));
}

/* Declare a queue, and accept an existing queue with another delivery limit.
 * The limit is fixed at creation, and requested only from a server of 4.0 or
 * later. So it differs for a queue created before an upgrade, and, during a
 * rolling upgrade, for a queue created on a new node and declared on an old
 * one. Such a queue works as before and is used unchanged.
 * Never request a limit of -1 from an old server, even if the queue has that
 * limit: if the queue were deleted at this moment, the old server would create
 * a queue that deletes its messages. */
static int queue_spec_declare(struct link *l, const struct queue_spec *q,
                              bool passive)
{
    int err = queue_declare(l, q, q->count, passive);
    bool unlimited;

    if (err != -EPROTO || l->code != AMQP_PRECONDITION_FAILED ||
        !strstr(l->why, LIMIT))
        return err;
    unlimited = strstr(l->why, "current is the value '-1'") != NULL;
    err = link_channel(l);
    if (err)
        return err;
    if (l->server < SERVER_4 && unlimited)
        return queue_declare(l, q, 0, true);
    err = queue_declare(l, q, q->count - q->limited, false);
    l->limited = l->limited || !err;
    return err;
}

/* Check whether a queue that differs from its declaration is a quorum queue. If
 * it is not, say so in `why`: the broker names only one difference, and this
 * one matters most. Opens the channel again; -errno: the connection is gone. */
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

/* Report why a queue cannot be used, with the broker's reason, which names the
 * wanted and the existing value. */
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
                          "queue %s is not replicated (%s): if its node fails, "
                          "its messages are lost; declare a quorum queue, or "
                          "give --allow-unreplicated",
                          name, why);
    else
        (void)problem_set(
            p, EX_CONFIG, EINVAL,
            "queue %s exists and is of another kind: %s; use it unchanged with "
            "mqworker --no-create, or empty and delete it",
            name, why);
    return -EPROTO;
}

/* Declare queue number `i`. With --allow-unreplicated, NAME may be a queue of
 * another kind. */
static int topology_queue_open(struct link *l, const struct topology *t,
                               unsigned i, struct problem *p)
{
    bool as_it_is = t->allow_unreplicated && !t->partitions && i == 0;
    struct queue_spec q;
    int err;

    (void)queue_spec_make(&q, l, t, i);
    err = queue_spec_declare(l, &q, t->no_create);
    if (err == -EPROTO && as_it_is && l->code == AMQP_PRECONDITION_FAILED) {
        err = link_channel(l);
        if (!err)
            err = queue_spec_declare(l, &q, true);
    }
    return err ? queue_spec_refused(l, t, q.name, err, p) : 0;
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
    if (messages)
        *messages = ok->message_count;
    if (consumers)
        *consumers = ok->consumer_count;
    return 0;
}

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

/* Return YES if there is a queue of that name, with the number of its messages
 * if `messages` is not NULL; NO; or a problem. Also NO if the user may not see
 * the queue: topology_open reports that. */
static int queue_is_there(struct link *l, const struct topology *t,
                          const char *name, uint32_t *messages,
                          struct problem *p)
{
    int err = topology_count(l, name, messages, NULL);

    if (!err)
        return YES;
    if (err == -EPROTO &&
        (l->code == AMQP_NOT_FOUND || l->code == AMQP_ACCESS_REFUSED))
        err = link_channel(l);
    return err ? queue_spec_refused(l, t, name, err, p) : NO;
}

/* Refuse --partitions if NAME itself exists, because a worker of the parts
 * would never empty that queue. Refuse to go without if the part NAME.0 exists
 * and NAME is missing, because no sender would use a new queue NAME. */
int topology_unlike(struct link *l, const struct topology *t, struct problem *p)
{
    const struct topology parted = {.operand = t->operand, .partitions = 1};
    const char *name = t->operand->queue;
    uint32_t messages = 0;
    char first[TOPOLOGY_NAME];
    int there = queue_is_there(l, t, name, &messages, p), part;

    if (there < 0 || (there == YES) != (t->partitions > 0))
        return there < 0 ? there : 0;
    part = queue_is_there(l, t, topology_queue(&parted, 0, first), NULL, p);
    if (part < 0 || (part == NO && there == NO))
        return part;
    if (there == NO)
        return problem_set(p, EX_CONFIG, EEXIST,
                           "queue %s has partitions, or another queue has the "
                           "name %s: give --partitions as its other workers "
                           "and senders do, or use another name",
                           name, first);
    if (part == YES)
        return problem_set(p, EX_CONFIG, EEXIST,
                           "queues %s and %s.0 both exist. If %s.0 is another "
                           "queue, leave out --partitions. If it is a "
                           "partition, empty %s (%" PRIu32
                           " messages) with a worker without --partitions, "
                           "then delete %s",
                           name, name, name, name, messages, name);
    return problem_set(p, EX_CONFIG, EEXIST,
                       "queue %s exists without partitions and holds %" PRIu32
                       " messages: leave out --partitions, or use another "
                       "name for a queue with partitions",
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
                       "exchange %s): give the number that its worker uses, or "
                       "start the worker first",
                       t->operand->queue, t->partitions, t->operand->vhost,
                       exchange);
}

/* Create NAME.dead.kept and NAME.dead first: while the queue that catches them
 * is missing, dropped messages would be lost. */
int topology_open(struct link *l, const struct topology *t, struct problem *p)
{
    unsigned parts = topology_part_count(t);
    char exchange[TOPOLOGY_NAME], name[TOPOLOGY_NAME], key[12];
    int err = topology_queue_open(l, t, parts + 1, p);

    if (!err)
        err = topology_queue_open(l, t, parts, p);
    for (unsigned i = 0; i < parts && !err; i++)
        err = topology_queue_open(l, t, i, p);
    if (err || !t->partitions)
        return err;
    /* The exchange routes to each part by its number, and to the dead letters.
     * It comes last: its name, which contains how many parts there are, is an
     * argument of each part, so the broker has refused a wrong number before.
     */
    err = exchange_declare(l, topology_exchange(t, exchange), t->no_create);
    if (!err && !t->no_create)
        err = queue_bind(l, exchange, topology_dead(t, name), DEAD_KEY);
    for (unsigned i = 0; i < parts && !err && !t->no_create; i++) {
        snprintf(key, sizeof key, "%u", i);
        err = queue_bind(l, exchange, topology_queue(t, i, name), key);
    }
    return err ? queue_spec_refused(l, t, exchange, err, p) : 0;
}

int topology_wait(struct link *l, const struct topology *t, unsigned part,
                  uint64_t ms, struct problem *p)
{
    unsigned first = topology_part_count(t) + 2;

    return topology_queue_open(
        l, t, first + part * TOPOLOGY_LENGTHS + topology_index(ms), p);
}

int topology_there(struct link *l, const struct topology *t, unsigned part,
                   struct problem *p)
{
    char name[TOPOLOGY_NAME];
    int err = topology_count(l, topology_queue(t, part, name), NULL, NULL);

    if (err != -EPROTO || l->code != AMQP_NOT_FOUND)
        return err ? queue_spec_refused(l, t, name, err, p) : 0;
    return problem_set(p, EX_NOINPUT, ENOENT,
                       "no queue %s in virtual host %s: start its worker, or "
                       "run mqsend --create",
                       name, t->operand->vhost);
}

/* ---- inspection ---- */

int topology_each(struct link *l, const struct topology *t,
                  void (*visit)(const struct topology_seen *seen, void *arg),
                  void *arg)
{
    struct topology_seen seen;
    struct queue_spec q;
    char why[LINK_WHY];
    bool exists;
    int err = 0;

    for (unsigned i = 0; !err && queue_spec_make(&q, l, t, i); i++) {
        seen = (struct topology_seen){.name = q.name,
                                      .wait_ms = q.wait_ms,
                                      .part = i < t->partitions,
                                      .is = TOPOLOGY_WANTED,
                                      .why = why};
        why[0] = '\0';
        err = topology_count(l, q.name, &seen.messages, &seen.consumers);
        exists = !err;
        /* Declare the existing queue in the way topology_open would create it:
         * that changes nothing, and fails if it is of another kind. */
        if (exists)
            err = queue_spec_declare(l, &q, false);
        if (err == -EPROTO) {
            memcpy(why, l->why, LINK_WHY);
            if (exists && l->code == AMQP_PRECONDITION_FAILED) {
                seen.is = TOPOLOGY_OTHER;
                err = queue_type_check(l, q.name, why);
            } else {
                seen.is = !exists && l->code == AMQP_NOT_FOUND
                              ? TOPOLOGY_ABSENT
                              : TOPOLOGY_UNKNOWN;
                err = link_channel(l);
            }
        }
        if (!err)
            visit(&seen, arg);
    }
    return err;
}
