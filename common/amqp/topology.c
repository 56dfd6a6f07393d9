/* topology.c - the queues that a worker's queue needs on a broker (see
 * topology.h)
 *
 * A time to live of each message would make a message wait behind one that
 * waits longer: the broker looks at the head of a queue only. So a queue has
 * one length. No queue expires: that would delete what is in it.
 *
 * x-dead-letter-strategy and x-overflow go together: without either of them the
 * broker's own hop is at-most-once, and it does not say so.
 */
#include "common/amqp/topology.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#define ARGUMENTS 8
#define SERVER_4  0x040000 /* counts deliveries, and drops after 20 of them */

/* ms; the longest is a day, and what waits for longer waits for several. */
static const uint64_t lengths[TOPOLOGY_LENGTHS] = {
    1000, 4000, 16000, 60000, 240000, 960000, 3600000, 14400000, 86400000};

/* A declaration in the making. */
struct queue_spec {
    const char *name;
    amqp_table_entry_t entries[ARGUMENTS];
    int count;
};

static amqp_bytes_t bytes(const char *text)
{
    return (amqp_bytes_t){strlen(text), (void *)(uintptr_t)text};
}

static void add_text(struct queue_spec *q, const char *name, const char *value)
{
    q->entries[q->count++] = (amqp_table_entry_t){
        .key = bytes(name),
        .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = bytes(value)}};
}

static void add_number(struct queue_spec *q, const char *name, int64_t value)
{
    q->entries[q->count++] = (amqp_table_entry_t){
        .key = bytes(name),
        .value = {.kind = AMQP_FIELD_KIND_I64, .value.i64 = value}};
}

static void add_single(struct queue_spec *q)
{
    q->entries[q->count++] = (amqp_table_entry_t){
        .key = bytes("x-single-active-consumer"),
        .value = {.kind = AMQP_FIELD_KIND_BOOLEAN, .value.boolean = 1}};
}

/* spec_init - replicated, and what its broker drops goes to `net` (NULL: none)
 * A limit of deliveries would count each look at a letter. Servers before 4.0
 * have none unless asked; one of -1 deletes at once there.
 */
static void spec_init(struct queue_spec *q, const struct link *l,
                      const char *name, const char *net)
{
    *q = (struct queue_spec){.name = name};
    add_text(q, "x-queue-type", "quorum");
    if (l->server >= SERVER_4)
        add_number(q, "x-delivery-limit", -1);
    if (!net)
        return;
    add_text(q, "x-dead-letter-exchange", "");
    add_text(q, "x-dead-letter-routing-key", net);
    add_text(q, "x-dead-letter-strategy", "at-least-once");
    add_text(q, "x-overflow", "reject-publish");
}

const char *topology_dead(const struct topology *t, char out[TOPOLOGY_NAME])
{
    snprintf(out, TOPOLOGY_NAME, "%s.dead", t->operand->queue);
    return out;
}

const char *topology_waits(const struct topology *t, uint64_t ms,
                           char out[TOPOLOGY_NAME])
{
    snprintf(out, TOPOLOGY_NAME, "%s.wait.%" PRIu64, t->operand->queue, ms);
    return out;
}

void topology_time_to_live(const struct topology *t, const char *name,
                           amqp_basic_properties_t *p)
{
    size_t own = strlen(t->operand->queue);

    if (strncmp(name, t->operand->queue, own) != 0 ||
        strncmp(name + own, ".wait.", 6) != 0)
        return;
    p->_flags |= AMQP_BASIC_EXPIRATION_FLAG;
    p->expiration = bytes(name + own + 6);
}

uint64_t topology_length(uint64_t ms)
{
    uint64_t longest = 0;

    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        if (lengths[i] <= ms)
            longest = lengths[i];
    return longest;
}

unsigned topology_index(uint64_t ms)
{
    unsigned i = 0;

    while (i < TOPOLOGY_LENGTHS - 1 && lengths[i] < ms)
        i++;
    return i;
}

static int declare(struct link *l, const struct queue_spec *q, bool passive)
{
    const amqp_table_t arguments = {
        q->count, (amqp_table_entry_t *)(uintptr_t)q->entries};

    (void)rabbit.amqp_queue_declare(l->c, LINK_CHANNEL, bytes(q->name), passive,
                                    1, 0, 0, arguments);
    return link_reply(l, rabbit.amqp_get_rpc_reply(l->c));
}

/* type_asked - the broker names one difference only; of all, whether it is a
 * quorum queue matters most */
static void type_asked(struct link *l, const char *name)
{
    struct link was = *l;
    struct queue_spec q = {.name = name};

    add_text(&q, "x-queue-type", "quorum");
    if (link_channel(l) < 0 || declare(l, &q, false) != -EPROTO ||
        !strstr(l->why, "x-queue-type"))
        *l = was;
}

/* refused - why a queue cannot be used, with both values as the broker has
 * them; the channel is closed */
static int refused(struct link *l, const struct topology *t, const char *name,
                   int err, struct problem *p)
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
                          "user %s may not declare or use queue %s: %s; "
                          "rabbitmqctl set_permissions, or --no-create where "
                          "somebody else has declared it",
                          o->user, name, l->why);
    else if (strstr(l->why, "x-queue-type"))
        (void)problem_set(p, EX_CONFIG, EINVAL,
                          "queue %s is not replicated (%s): a node that dies "
                          "takes its messages along; declare a quorum queue, "
                          "or give --allow-unreplicated",
                          name, l->why);
    else
        (void)problem_set(p, EX_CONFIG, EINVAL,
                          "queue %s exists and is another kind: %s; delete it, "
                          "or take it as it is with --no-create",
                          name, l->why);
    return -EPROTO;
}

/* ready - it is there, as asked; or as it is, where that is wanted */
static int ready(struct link *l, const struct topology *t,
                 const struct queue_spec *q, bool as_it_is, struct problem *p)
{
    int err = declare(l, q, t->no_create);

    if (err == -EPROTO && as_it_is && l->code == AMQP_PRECONDITION_FAILED) {
        err = link_channel(l);
        if (!err)
            err = declare(l, q, true);
    }
    return err ? refused(l, t, q->name, err, p) : 0;
}

/* topology_open - the nets first: a queue whose net is missing would keep what
 * it drops where nobody sees it */
int topology_open(struct link *l, const struct topology *t, struct problem *p)
{
    char dead[TOPOLOGY_NAME], kept[TOPOLOGY_NAME + 8];
    struct queue_spec q;
    int err;

    topology_dead(t, dead);
    snprintf(kept, sizeof kept, "%s.kept", dead);
    spec_init(&q, l, kept, NULL);
    err = ready(l, t, &q, false, p);
    if (err)
        return err;
    spec_init(&q, l, dead, kept);
    add_single(&q);
    err = ready(l, t, &q, false, p);
    if (err)
        return err;
    spec_init(&q, l, t->operand->queue, dead);
    return ready(l, t, &q, t->allow_unreplicated, p);
}

int topology_wait(struct link *l, const struct topology *t, uint64_t ms,
                  struct problem *p)
{
    char name[TOPOLOGY_NAME];
    struct queue_spec q;

    spec_init(&q, l, topology_waits(t, ms, name), t->operand->queue);
    add_number(&q, "x-message-ttl", (int64_t)ms);
    return ready(l, t, &q, false, p);
}

int topology_count(struct link *l, const char *queue, uint32_t *messages,
                   uint32_t *consumers)
{
    const amqp_queue_declare_ok_t *ok = rabbit.amqp_queue_declare(
        l->c, LINK_CHANNEL, bytes(queue), 1, 1, 0, 0, (amqp_table_t){0, NULL});
    int err = link_reply(l, rabbit.amqp_get_rpc_reply(l->c));

    if (err || !ok)
        return err ? err : -EIO;
    *messages = ok->message_count;
    *consumers = ok->consumer_count;
    return 0;
}

/* ---- a look ---- */

/* kind_asked - whether it is as topology_open would make it, which changes
 * nothing of one that is there; the channel is open afterwards */
static int kind_asked(struct link *l, const struct queue_spec *q,
                      struct topology_seen *seen, char why[LINK_WHY])
{
    struct queue_spec type = {.name = q->name};
    int err = declare(l, q, false);

    if (err != -EPROTO)
        return err;
    memcpy(why, l->why, LINK_WHY);
    seen->is =
        l->code == AMQP_PRECONDITION_FAILED ? TOPOLOGY_OTHER : TOPOLOGY_UNKNOWN;
    err = link_channel(l);
    if (err || seen->is == TOPOLOGY_UNKNOWN)
        return err;
    /* The broker names one difference only, and this one matters most. */
    add_text(&type, "x-queue-type", "quorum");
    err = declare(l, &type, false);
    if (err != -EPROTO)
        return err;
    if (strstr(l->why, "x-queue-type"))
        memcpy(why, l->why, LINK_WHY);
    return link_channel(l);
}

static int look(struct link *l, const struct queue_spec *q,
                struct topology_seen *seen, char why[LINK_WHY])
{
    int err = topology_count(l, q->name, &seen->messages, &seen->consumers);

    seen->name = q->name;
    seen->is = TOPOLOGY_WANTED;
    seen->why = why;
    why[0] = '\0';
    if (!err)
        return kind_asked(l, q, seen, why);
    if (err != -EPROTO)
        return err;
    memcpy(why, l->why, LINK_WHY);
    seen->is = l->code == AMQP_NOT_FOUND ? TOPOLOGY_ABSENT : TOPOLOGY_UNKNOWN;
    return link_channel(l);
}

int topology_each(struct link *l, const struct topology *t,
                  void (*visit)(const struct topology_seen *seen, void *arg),
                  void *arg)
{
    char dead[TOPOLOGY_NAME], kept[TOPOLOGY_NAME + 8], wait[TOPOLOGY_NAME];
    char why[LINK_WHY];
    int err = 0;

    topology_dead(t, dead);
    snprintf(kept, sizeof kept, "%s.kept", dead);
    for (unsigned i = 0; i < 3 + TOPOLOGY_LENGTHS && !err; i++) {
        struct topology_seen seen = {.wait_ms = i < 3 ? 0 : lengths[i - 3]};
        struct queue_spec q;

        if (i == 0)
            spec_init(&q, l, t->operand->queue, dead);
        else if (i == 1)
            spec_init(&q, l, dead, kept);
        else if (i == 2)
            spec_init(&q, l, kept, NULL);
        else
            spec_init(&q, l, topology_waits(t, seen.wait_ms, wait),
                      t->operand->queue);
        if (i == 1)
            add_single(&q);
        if (seen.wait_ms)
            add_number(&q, "x-message-ttl", (int64_t)seen.wait_ms);
        err = look(l, &q, &seen, why);
        if (!err)
            visit(&seen, arg);
    }
    return err;
}
