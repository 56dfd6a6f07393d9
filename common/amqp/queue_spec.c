/* queue_spec.c - one queue as it is declared (see queue_spec.h)
 *
 * x-dead-letter-strategy and x-overflow go together: without either of them the
 * broker's own hop is at-most-once, and it does not say so.
 */
#include "common/amqp/queue_spec.h"

#include <errno.h>
#include <string.h>
#include <sysexits.h>

#define LIMIT "x-delivery-limit"

void queue_spec_text(struct queue_spec *q, const char *name, const char *value)
{
    q->entries[q->count++] =
        (amqp_table_entry_t){.key = queue_spec_bytes(name),
                             .value = {.kind = AMQP_FIELD_KIND_UTF8,
                                       .value.bytes = queue_spec_bytes(value)}};
}

void queue_spec_number(struct queue_spec *q, const char *name, int64_t value)
{
    q->entries[q->count++] = (amqp_table_entry_t){
        .key = queue_spec_bytes(name),
        .value = {.kind = AMQP_FIELD_KIND_I64, .value.i64 = value}};
}

void queue_spec_single(struct queue_spec *q)
{
    q->entries[q->count++] = (amqp_table_entry_t){
        .key = queue_spec_bytes("x-single-active-consumer"),
        .value = {.kind = AMQP_FIELD_KIND_BOOLEAN, .value.boolean = 1}};
}

/* queue_spec_init - replicated, and what its broker drops goes to `net` (NULL:
 * none)
 * A limit of deliveries would count each look at a letter. Servers before 4.0
 * have none unless asked; one of -1 deletes at once there.
 */
void queue_spec_init(struct queue_spec *q, const struct link *l,
                     const char *name, const char *net)
{
    *q = (struct queue_spec){.name = name};
    queue_spec_text(q, "x-queue-type", "quorum");
    if (l->server >= SERVER_4)
        queue_spec_number(q, LIMIT, -1);
    if (!net)
        return;
    queue_spec_text(q, "x-dead-letter-exchange", "");
    queue_spec_text(q, "x-dead-letter-routing-key", net);
    queue_spec_text(q, "x-dead-letter-strategy", "at-least-once");
    queue_spec_text(q, "x-overflow", "reject-publish");
}

/* Declare the queue with all its arguments, or passively, without comparing
 * any. */
static int queue_declare(struct link *l, const struct queue_spec *q,
                         bool passive)
{
    const amqp_table_t arguments = {
        q->count, (amqp_table_entry_t *)(uintptr_t)q->entries};

    (void)amqp_queue_declare(l->c, LINK_CHANNEL, queue_spec_bytes(q->name),
                             passive, 1, 0, 0, arguments);
    return link_reply(l, amqp_get_rpc_reply(l->c));
}

/* Remove the delivery limit from the arguments, if present. */
static void limit_remove(struct queue_spec *q)
{
    int kept = 0;

    for (int i = 0; i < q->count; i++)
        if (q->entries[i].key.len != strlen(LIMIT) ||
            memcmp(q->entries[i].key.bytes, LIMIT, strlen(LIMIT)) != 0)
            q->entries[kept++] = q->entries[i];
    q->count = kept;
}

/* A queue's delivery limit is fixed at creation, and requested only from a
 * server of 4.0 or later. So the limit differs for a queue created before an
 * upgrade, and, during a rolling upgrade, for a queue created on a new node and
 * declared on an old one. Such a queue works as before and is used unchanged.
 * Never request a limit of -1 from an old server, even if the queue has that
 * limit: if the queue were deleted at this moment, the old server would create
 * one that deletes its messages.
 */
int queue_spec_declare(struct link *l, const struct queue_spec *q, bool passive)
{
    struct queue_spec bare = *q;
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
    limit_remove(&bare);
    err = queue_declare(l, &bare, false);
    l->limited = l->limited || !err;
    return err;
}

/* type_asked - the broker names one difference only; of all, whether it is a
 * quorum queue matters most */
static void type_asked(struct link *l, const char *name)
{
    struct link was = *l;
    struct queue_spec q = {.name = name};

    queue_spec_text(&q, "x-queue-type", "quorum");
    if (link_channel(l) < 0 || queue_spec_declare(l, &q, false) != -EPROTO ||
        !strstr(l->why, "x-queue-type"))
        *l = was;
}

/* queue_spec_refused - why a queue cannot be used, with both values as the
 * broker has them; the channel is closed */
int queue_spec_refused(struct link *l, const struct topology *t,
                       const char *name, int err, struct problem *p)
{
    const struct broker_operand *o = t->operand;

    if (err != -EPROTO)
        return problem_set(p, EX_UNAVAILABLE, -err,
                           "lost the connection to %s: %s",
                           o->hosts[l->host].name, l->why);
    if (l->code == AMQP_PRECONDITION_FAILED)
        type_asked(l, name);
    if (l->code == AMQP_NOT_FOUND)
        (void)problem_set(p, EX_NOINPUT, ENOENT,
                          "no queue %s in virtual host %s of %s: leave out "
                          "--no-create, or declare it",
                          name, o->vhost, o->hosts[l->host].name);
    else if (l->code == AMQP_ACCESS_REFUSED)
        (void)problem_set(p, EX_NOPERM, EACCES,
                          "user %s may not declare or use queue %s: %s; grant "
                          "the rights with rabbitmqctl set_permissions, or use "
                          "mqworker --no-create if the queue exists",
                          o->user, name, l->why);
    else if (strstr(l->why, QUEUE_SPEC_PARTED))
        (void)problem_set(p, EX_CONFIG, EINVAL,
                          "queue %s has another number of partitions: %s; give "
                          "--partitions as its other workers and senders do, "
                          "or use another name: the number is fixed",
                          o->queue, l->why);
    else if (strstr(l->why, "x-queue-type"))
        (void)problem_set(p, EX_CONFIG, EINVAL,
                          "queue %s is not replicated (%s): a node that dies "
                          "takes its messages along; declare a quorum queue, "
                          "or give --allow-unreplicated",
                          name, l->why);
    else
        (void)problem_set(
            p, EX_CONFIG, EINVAL,
            "queue %s exists and is of another kind: %s; use it unchanged with "
            "mqworker --no-create, or empty and delete it",
            name, l->why);
    return -EPROTO;
}

/* queue_spec_ready - it is there, as asked; or as it is, where that is wanted
 */
int queue_spec_ready(struct link *l, const struct topology *t,
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
        amqp_queue_declare(l->c, LINK_CHANNEL, queue_spec_bytes(queue), 1, 1, 0,
                           0, (amqp_table_t){0, NULL});
    int err = link_reply(l, amqp_get_rpc_reply(l->c));

    if (err || !ok)
        return err ? err : -EIO;
    *messages = ok->message_count;
    *consumers = ok->consumer_count;
    return 0;
}
