/* topology.c - the queues that a worker's queue needs on a broker (see
 * topology.h)
 *
 * No queue expires: that would delete what is in it.
 */
#include "common/amqp/topology.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/amqp/queue_spec.h"
#include "common/amqp/topology_parts.h"

/* topology_open - the nets first: a queue whose net is missing would keep what
 * it drops where nobody sees it */
int topology_open(struct link *l, const struct topology *t, struct problem *p)
{
    char dead[TOPOLOGY_NAME], kept[TOPOLOGY_NAME + 8];
    struct queue_spec q;
    int err;

    topology_dead(t, dead);
    snprintf(kept, sizeof kept, "%s.kept", dead);
    queue_spec_init(&q, l, kept, NULL);
    err = queue_spec_ready(l, t, &q, false, p);
    if (err)
        return err;
    queue_spec_init(&q, l, dead, kept);
    queue_spec_single(&q);
    err = queue_spec_ready(l, t, &q, false, p);
    if (err)
        return err;
    if (t->partitions)
        return topology_parts_open(l, t, dead, p);
    queue_spec_init(&q, l, t->operand->queue, dead);
    return queue_spec_ready(l, t, &q, t->allow_unreplicated, p);
}

int topology_wait(struct link *l, const struct topology *t, unsigned part,
                  uint64_t ms, struct problem *p)
{
    char name[TOPOLOGY_NAME], back[TOPOLOGY_NAME];
    struct queue_spec q;

    queue_spec_init(&q, l, topology_waits(t, part, ms, name),
                    topology_queue(t, part, back));
    queue_spec_number(&q, "x-message-ttl", (int64_t)ms);
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
                       "give --create",
                       name, t->operand->vhost);
}

/* ---- a look ---- */

/* kind_asked - whether it is as topology_open would make it, which changes
 * nothing of one that is there; the channel is open afterwards */
static int kind_asked(struct link *l, const struct queue_spec *q,
                      struct topology_seen *seen, char why[LINK_WHY])
{
    struct queue_spec type = {.name = q->name};
    int err = queue_spec_declare(l, q, false);

    if (err != -EPROTO)
        return err;
    memcpy(why, l->why, LINK_WHY);
    seen->is =
        l->code == AMQP_PRECONDITION_FAILED ? TOPOLOGY_OTHER : TOPOLOGY_UNKNOWN;
    err = link_channel(l);
    if (err || seen->is == TOPOLOGY_UNKNOWN)
        return err;
    /* The broker names one difference only, and this one matters most. */
    queue_spec_text(&type, "x-queue-type", "quorum");
    err = queue_spec_declare(l, &type, false);
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

/* Names of a look: all that specs point to. */
struct names {
    char dead[TOPOLOGY_NAME], kept[TOPOLOGY_NAME + 8];
    char exchange[TOPOLOGY_NAME], part[TOPOLOGY_NAME], wait[TOPOLOGY_NAME];
};

/* spec_at - the queue of that number: the parts of NAME, or itself; the dead
 * letters and their net; the wait queues of each part. False: there are no
 * more. */
static bool spec_at(struct queue_spec *q, const struct link *l,
                    const struct topology *t, unsigned i, struct names *n,
                    uint64_t *wait_ms)
{
    unsigned parts = t->partitions ? t->partitions : 1, part;

    *wait_ms = 0;
    if (i < parts && t->partitions) {
        topology_part_spec(q, l, topology_queue(t, i, n->part), n->exchange);
    } else if (i < parts) {
        queue_spec_init(q, l, t->operand->queue, n->dead);
    } else if (i == parts) {
        queue_spec_init(q, l, n->dead, n->kept);
        queue_spec_single(q);
    } else if (i == parts + 1) {
        queue_spec_init(q, l, n->kept, NULL);
    } else if (i < parts + 2 + parts * TOPOLOGY_LENGTHS) {
        part = (i - parts - 2) / TOPOLOGY_LENGTHS;
        *wait_ms = topology_length_at((i - parts - 2) % TOPOLOGY_LENGTHS);
        queue_spec_init(q, l, topology_waits(t, part, *wait_ms, n->wait),
                        topology_queue(t, part, n->part));
        queue_spec_number(q, "x-message-ttl", (int64_t)*wait_ms);
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
        err = look(l, &q, &seen, why);
        if (!err) {
            seen.part = !seen.wait_ms && i < t->partitions;
            visit(&seen, arg);
        }
    }
    return err;
}
