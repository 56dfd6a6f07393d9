/* outbox.c - publishes what follows from verdicts (see amqp_inner.h)
 *
 * The original of a message is unacknowledged until its copy is confirmed. So a
 * copy whose connection is lost is published again, marked as resent.
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

#define LATE_LOOK_NS (7 * NS_PER_S) /* between two looks for late confirms */
#define ASK_S        5
#define SLACK_PART   100 /* how much later a message may come than it is due */
#define SLACK_MS     5
#define NACK_MOST    (10 * NS_PER_S)

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

/* Publish a copy. `plain`: without the history, which was too large. */
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
    err = confirms_publish(
        &q->confirms, q->outbox.link, &j->u, &q->topology, name,
        &copy.properties,
        (amqp_bytes_t){m->body_size, (void *)(uintptr_t)m->body});
    envelope_copy_free(&copy);
    return err;
}

/* Publish what follows from a verdict, or leave the job as it was. */
static int publish(struct source_amqp *q, struct amqp_job *j)
{
    char name[TOPOLOGY_NAME];
    int err = target(q, j, name);

    if (err)
        return err;
    j->u.number = q->confirms.numbers + 1; /* for `returned` */
    j->returned = false;
    err = publish_as(q, j, name, false);
    if (err == -EMSGSIZE)
        err = publish_as(q, j, name, true);
    FAULT_POINT("amqp_published");
    return err;
}

/* publish_some - while there is room for what is not confirmed */
static int publish_some(struct source_amqp *q)
{
    struct unconfirmed *u;
    int err = 0;

    while (!err && !q->outbox.link->blocked && !confirms_full(&q->confirms)) {
        pthread_mutex_lock(&q->mtx);
        u = TAILQ_FIRST(&q->jobs);
        if (u)
            TAILQ_REMOVE(&q->jobs, u, link);
        pthread_mutex_unlock(&q->mtx);
        if (!u)
            break;
        err = publish(q, amqp_job_of(u));
        if (!err)
            continue;
        pthread_mutex_lock(&q->mtx);
        TAILQ_INSERT_HEAD(&q->jobs, u, link);
        pthread_mutex_unlock(&q->mtx);
    }
    return err;
}

/* ---- what the broker says ---- */

/* Finish a confirmed job, unless no queue took its copy: then its queue is gone
 * and is created again before the copy is published once more. */
static int on_confirmed(void *arg, struct unconfirmed *u)
{
    struct source_amqp *q = arg;
    struct amqp_job *j = amqp_job_of(u);

    if (!j->returned) {
        q->refused_ns = 0;
        amqp_confirmed(q, j);
        return 0;
    }
    pthread_mutex_lock(&q->mtx);
    TAILQ_INSERT_HEAD(&q->jobs, u, link);
    pthread_mutex_unlock(&q->mtx);
    q->missing = true;
    snprintf(q->outbox.link->why, LINK_WHY,
             "a queue of ours is gone, and is made again");
    return -ENOENT;
}

/* Mark the job whose copy no queue took. */
static void on_returned(void *arg, amqp_bytes_t properties)
{
    struct source_amqp *q = arg;
    uint64_t number = envelope_number(properties);
    struct unconfirmed *u;

    TAILQ_FOREACH (u, &q->confirms.sent, link)
        if (u->number == number) {
            amqp_job_of(u)->returned = true;
            log_error("returned", F_STR("queue", q->operand->shown),
                      F_STR("next", "a queue of ours was deleted: it is made "
                                    "again, and the message published again"));
        }
}

/* read_frames - all that have come */
static int read_frames(struct source_amqp *q)
{
    bool was = q->outbox.link->blocked;
    int err = confirms_read(&q->confirms, q->outbox.link);

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
    int err = q->missing ? queues_again(q) : 0;

    memset(q->declared, 0, sizeof q->declared);
    return err ? err : confirms_begin(&q->confirms, q->outbox.link);
}

static void lost(struct source_amqp *q, int err)
{
    uint64_t wait = q->outbox.wait_ns;

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
    pthread_mutex_lock(&q->mtx);
    confirms_lost(&q->confirms, &q->jobs);
    pthread_mutex_unlock(&q->mtx);
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
    if (!err && confirms_late(&q->confirms, q->outbox.link))
        err = -ETIMEDOUT;
    if (!err)
        err = read_frames(q); /* what a call has kept back */
    if (!err)
        side_wait(&q->outbox,
                  TAILQ_EMPTY(&q->confirms.sent) ? UINT64_MAX : LATE_LOOK_NS);
    return err;
}

void *outbox_main(void *side)
{
    struct source_amqp *q = ((struct amqp_side *)side)->q;
    int err = 0;

    while (!atomic_load(&q->stopping)) {
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

    if (err)
        return err;
    TAILQ_INIT(&q->confirms.sent);
    q->confirms.confirmed = on_confirmed;
    q->confirms.returned = on_returned;
    q->confirms.arg = q;
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
