/* outbox.c - publishes what follows from verdicts (see amqp_inner.h)
 *
 * A nack is never the end of a message: RabbitMQ up to 3.12.4 nacks all that
 * comes on a channel whose first message fell between the death of a leader and
 * the election of the next. So after a nack the connection is opened anew, and
 * what was not confirmed is published again, marked as resent. The original is
 * unacknowledged meanwhile.
 */
#include "worker/source/amqp/amqp_inner.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/base/problem.h"

#define WINDOW     256             /* published and not confirmed, at most */
#define CONFIRM_NS (30 * NS_PER_S) /* longer, and the node is not trusted */
#define ASK_S      5
#define SLACK_PART 100 /* how much later a message may come than it is due */
#define SLACK_MS   5
#define NACK_MOST  (10 * NS_PER_S)

/* ---- publishing ---- */

/* target - the queue it goes to, which is there on 0 */
static int target(struct source_amqp *q, struct amqp_job *j,
                  char name[TOPOLOGY_NAME])
{
    uint64_t now = clock_wall_ns(), ms;
    unsigned bit, part = amqp_job_message(j)->part;
    struct problem p;

    if (j->settle && j->settle->kind == SETTLE_DEAD) {
        snprintf(name, TOPOLOGY_NAME, "%s", q->dead);
        return 0;
    }
    ms = j->due_wall_ns > now ? (j->due_wall_ns - now) / NS_PER_MS : 0;
    /* A wait of 1 s has lasted for some time by now. */
    ms = topology_length(ms + ms / SLACK_PART + SLACK_MS);
    if (ms == 0) { /* the inbox holds it for the rest */
        snprintf(name, TOPOLOGY_NAME, "%s", q->parts[part]);
        return 0;
    }
    topology_waits(&q->topology, part, ms, name);
    bit = 1U << topology_index(ms);
    if (q->declared[part] & bit)
        return 0;
    if (topology_wait(q->outbox.link, &q->topology, part, ms, &p) < 0) {
        log_error("wait_queue", F_STR("queue", name), F_STR("error", p.text),
                  F_STR("next", "messages that are to wait stay where they "
                                "are, unacknowledged, until it can be used"));
        return -EPROTO;
    }
    side_limited(&q->outbox);
    q->declared[part] |= bit;
    return 0;
}

/* publish_as - once; `plain`: without the history, which was too large */
static int publish_as(struct source_amqp *q, struct amqp_job *j,
                      const char *name, bool plain)
{
    struct amqp_message *m = amqp_job_message(j);
    struct envelope_attempt attempt;
    struct envelope_change change;
    struct envelope_copy copy;
    int err;

    amqp_change(q, j, &change, &attempt);
    err = envelope_copy(&copy, m->raw, &change, plain);
    if (err)
        return err;
    topology_time_to_live(&q->topology, name, &copy.properties);
    err = link_status(
        q->outbox.link,
        amqp_basic_publish(
            q->outbox.link->c, LINK_CHANNEL, (amqp_bytes_t){0, NULL},
            (amqp_bytes_t){strlen(name), (void *)(uintptr_t)name}, 1, 0,
            &copy.properties,
            (amqp_bytes_t){m->body_size, (void *)(uintptr_t)m->body}));
    envelope_copy_free(&copy);
    return err;
}

/* publish - and it is on the list of what is to be confirmed, or as it was */
static int publish(struct source_amqp *q, struct amqp_job *j)
{
    char name[TOPOLOGY_NAME];
    int err = target(q, j, name);

    if (err)
        return err;
    j->number = q->published + 1;
    j->returned = false;
    j->sent_ns = clock_mono_ns();
    err = publish_as(q, j, name, false);
    if (err == -EMSGSIZE)
        err = publish_as(q, j, name, true);
    if (!err)
        q->published++;
    FAULT_POINT("amqp_published");
    return err;
}

/* publish_some - while there is room for what is not confirmed */
static int publish_some(struct source_amqp *q)
{
    struct amqp_job *last, *j;
    int err = 0;

    while (!err && !q->outbox.link->blocked) {
        last = TAILQ_LAST(&q->sent, amqp_jobs);
        if (last && last->number - TAILQ_FIRST(&q->sent)->number >= WINDOW)
            break;
        pthread_mutex_lock(&q->mtx);
        j = TAILQ_FIRST(&q->jobs);
        if (j)
            TAILQ_REMOVE(&q->jobs, j, link);
        pthread_mutex_unlock(&q->mtx);
        if (!j)
            break;
        err = publish(q, j);
        if (!err) {
            TAILQ_INSERT_TAIL(&q->sent, j, link);
            continue;
        }
        pthread_mutex_lock(&q->mtx);
        TAILQ_INSERT_HEAD(&q->jobs, j, link);
        pthread_mutex_unlock(&q->mtx);
    }
    return err;
}

/* ---- what the broker says ---- */

/* one_confirmed - unless no queue took it: then its queue is gone, and is made
 * again before it is published once more */
static int one_confirmed(struct source_amqp *q, struct amqp_job *j)
{
    TAILQ_REMOVE(&q->sent, j, link);
    if (!j->returned) {
        q->refused_ns = 0;
        amqp_confirmed(q, j);
        return 0;
    }
    pthread_mutex_lock(&q->mtx);
    TAILQ_INSERT_HEAD(&q->jobs, j, link);
    pthread_mutex_unlock(&q->mtx);
    q->missing = true;
    return -ENOENT;
}

static int confirmed(struct source_amqp *q, const amqp_basic_ack_t *ack)
{
    struct amqp_job *j, *next;
    int err = 0;

    for (j = TAILQ_FIRST(&q->sent); j && j->number <= ack->delivery_tag;
         j = next) {
        next = TAILQ_NEXT(j, link);
        if (ack->multiple || j->number == ack->delivery_tag) {
            int failed = one_confirmed(q, j);

            err = err ? err : failed;
        }
    }
    return err;
}

/* returned - no queue took one of them; its properties, which come next, say
 * which one. Its confirm comes after it. */
static void returned(struct source_amqp *q, const amqp_frame_t *f)
{
    uint64_t number = envelope_number(f->payload.properties.raw);
    struct amqp_job *j;

    TAILQ_FOREACH (j, &q->sent, link)
        if (j->number == number) {
            j->returned = true;
            log_error("returned", F_STR("queue", q->operand->shown),
                      F_STR("next", "a queue of ours was deleted: it is made "
                                    "again, and the message published again"));
        }
}

/* frame_use - 0, or why this connection is no good any more */
static int frame_use(struct source_amqp *q, const amqp_frame_t *f)
{
    const amqp_method_t *m = &f->payload.method;

    if (f->channel != LINK_CHANNEL)
        return 0;
    if (f->frame_type == AMQP_FRAME_HEADER)
        returned(q, f);
    if (f->frame_type != AMQP_FRAME_METHOD)
        return 0;
    if (m->id == AMQP_BASIC_ACK_METHOD)
        return confirmed(q, m->decoded);
    if (m->id == AMQP_BASIC_NACK_METHOD) {
        snprintf(q->outbox.link->why, LINK_WHY,
                 "the broker did not take a message (nack)");
        return -EAGAIN;
    }
    return link_closed_by(q->outbox.link, m) ? -ECONNRESET : 0;
}

/* read_frames - all that have come */
static int read_frames(struct source_amqp *q)
{
    bool was = q->outbox.link->blocked;
    amqp_frame_t f;
    int n, err = 0;

    while (!err && (n = link_frame(q->outbox.link, &f)) != NO)
        err = n < 0 ? n : frame_use(q, &f);
    link_tidy(q->outbox.link);
    if (was != q->outbox.link->blocked)
        log_warn(was ? "unblocked" : "blocked",
                 F_STR("queue", q->operand->shown),
                 F_STR("next", was ? "the broker takes messages again"
                                   : "the broker is low on memory or disk: "
                                     "retries and letters wait "
                                     "unacknowledged; what is done goes on"));
    return err;
}

/* ---- the connection ---- */

/* queues_again - one of ours was deleted */
static int queues_again(struct source_amqp *q)
{
    struct problem p = {0};
    int err = topology_open(q->outbox.link, &q->topology, &p);

    if (err)
        snprintf(q->outbox.link->why, LINK_WHY, "%.200s", p.text);
    q->missing = err != 0;
    return err;
}

/* ready - a new one: it confirms what it takes */
static int ready(struct source_amqp *q)
{
    struct link *l = q->outbox.link;
    int err = q->missing ? queues_again(q) : 0;

    memset(q->declared, 0, sizeof q->declared);
    q->published = 0;
    if (err)
        return err;
    (void)amqp_confirm_select(l->c, LINK_CHANNEL);
    return link_reply(l, amqp_get_rpc_reply(l->c));
}

/* nothing_confirmed - what was published is published again, in order */
static void nothing_confirmed(struct source_amqp *q)
{
    struct amqp_job *j;

    pthread_mutex_lock(&q->mtx);
    while ((j = TAILQ_LAST(&q->sent, amqp_jobs)) != NULL) {
        TAILQ_REMOVE(&q->sent, j, link);
        j->resent = true;
        TAILQ_INSERT_HEAD(&q->jobs, j, link);
    }
    pthread_mutex_unlock(&q->mtx);
}

static void lost(struct source_amqp *q, int err)
{
    uint64_t wait = q->outbox.wait_ns;

    if (err == -ENOENT)
        snprintf(q->outbox.link->why, LINK_WHY,
                 "a queue of ours is gone, and is made again");
    atomic_store(&q->doubted, q->outbox.link->host + 1);
    side_wake(&q->inbox);
    side_lost(&q->outbox,
              q->outbox.link->why[0] ? q->outbox.link->why : errno_text(-err));
    /* A queue that is full nacks for long: each try waits longer, until one is
     * confirmed. */
    if (err == -EAGAIN || err == -EPROTO) {
        q->outbox.wait_ns = q->refused_ns > wait ? q->refused_ns : wait;
        q->refused_ns = 2 * q->outbox.wait_ns < NACK_MOST
                            ? 2 * q->outbox.wait_ns
                            : NACK_MOST;
    }
    nothing_confirmed(q);
}

/* late - the oldest is not confirmed for too long */
static bool late(struct source_amqp *q)
{
    const struct amqp_job *first = TAILQ_FIRST(&q->sent);

    if (!first || q->outbox.link->blocked ||
        clock_mono_ns() - first->sent_ns < CONFIRM_NS)
        return false;
    snprintf(q->outbox.link->why, LINK_WHY,
             "no confirm for 30 s: has the cluster a majority? net_ticktime "
             "of 10 to 15 s finds a lost node sooner");
    return true;
}

/* answer - of somebody who waits in outbox_count */
static int answer(struct source_amqp *q)
{
    uint32_t messages = 0, consumers = 0;
    const char *queue;
    int err;

    pthread_mutex_lock(&q->mtx);
    queue = q->count.asked && !q->count.answered ? q->count.queue : NULL;
    pthread_mutex_unlock(&q->mtx);
    if (!queue)
        return 0;
    err = topology_count(q->outbox.link, queue, &messages, &consumers);
    pthread_mutex_lock(&q->mtx);
    if (q->count.asked && q->count.queue == queue) { /* not given up */
        q->count.messages = messages;
        q->count.err = err;
        q->count.answered = true;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->mtx);
    return err;
}

/* serve - one round; 0, or the connection is no good */
static int serve(struct source_amqp *q)
{
    int err = read_frames(q);

    if (!err)
        err = answer(q);
    if (!err)
        err = publish_some(q);
    if (!err && late(q))
        err = -ETIMEDOUT;
    if (!err)
        err = read_frames(q); /* what a call has kept back */
    if (!err)
        side_wait(&q->outbox,
                  TAILQ_EMPTY(&q->sent) ? UINT64_MAX : CONFIRM_NS / 4);
    return err;
}

/* over - it may end: nothing is on its way, or nobody waits for it any more */
static bool over(struct source_amqp *q)
{
    return atomic_load(&q->stopping);
}

void *outbox_main(void *side)
{
    struct source_amqp *q = ((struct amqp_side *)side)->q;
    int err = 0;

    while (!over(q)) {
        if (!q->outbox.link &&
            (!side_reconnect(&q->outbox) || (err = ready(q)) < 0)) {
            if (q->outbox.link)
                lost(q, err);
            continue;
        }
        err = serve(q);
        if (err)
            lost(q, err);
    }
    return NULL;
}

int outbox_open(struct source_amqp *q, struct problem *p)
{
    int err = link_open(&q->outbox.link, &q->setup, q->inbox.link->host, p);

    TAILQ_INIT(&q->sent);
    if (err)
        return err;
    err = ready(q);
    return err ? problem_set(p, 69, -err, "the broker does not confirm: %s",
                             q->outbox.link->why)
               : 0;
}

/* outbox_count - one asks at a time; the others have its answer */
int outbox_count(struct source_amqp *q, const char *queue, uint32_t *messages)
{
    struct timespec until;
    int err = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ASK_S;
    pthread_mutex_lock(&q->mtx);
    if (atomic_load(&q->stopping) || !q->outbox.running)
        err = ESHUTDOWN;
    while (!err && q->count.asked)
        err = pthread_cond_timedwait(&q->changed, &q->mtx, &until);
    if (!err) {
        q->count = (struct amqp_count){.queue = queue, .asked = true};
        side_wake(&q->outbox);
        while (!err && !q->count.answered)
            err = pthread_cond_timedwait(&q->changed, &q->mtx, &until);
        *messages = q->count.messages;
        err = err ? -err : q->count.err;
        q->count.asked = false;
        pthread_cond_broadcast(&q->changed);
    } else {
        err = -err;
    }
    pthread_mutex_unlock(&q->mtx);
    return err;
}
