/* outbox.c - the thread that publishes what follows from verdicts (see
 * outbox.h)
 *
 * The original of a message is acknowledged only after its copy is confirmed.
 * So when the connection is lost, each copy without a confirm is published
 * again, marked as resent.
 */
#include "worker/source/amqp/outbox.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/base/problem.h"

#define LATE_LOOK_NS (7 * NS_PER_S) /* between two checks for late confirms */
#define ASK_S        5              /* limit of outbox_count */
/* A message may wait longer than asked, by 1/SLACK_PART and SLACK_MS. */
#define SLACK_PART 100
#define SLACK_MS   5
#define NACK_MOST  (10 * NS_PER_S) /* longest pause after refusals */

/* A call of outbox_count, which this thread answers. */
struct count {
    const char *queue;
    uint32_t messages;
    int err;
    bool asked, answered;
};

/* c = constant after open  t = the thread's  q = under mtx */
struct outbox {
    struct side *side;                 /* c  the queue's */
    struct amqp_queue *queue;          /* c */
    struct unconfirmed_list jobs;      /* t  jobs to publish */
    struct confirms confirms;          /* t */
    unsigned declared[PARTITIONS_MAX]; /* t  for each part: bits of the wait
                                        *    queues that were created */
    bool missing;                      /* t  one of the queues was deleted */
    uint64_t refused_ns;               /* t  pause after the next refusal */
    uint64_t largest; /* t  largest body that the broker accepts, bytes */
    struct unconfirmed_list too_large; /* t  jobs with larger bodies */

    pthread_mutex_t mtx;
    pthread_cond_t changed; /* q  a count came */
    struct count count;     /* q */
};

/* ---- publishing ---- */

/* Find the queue that a copy goes to, and create it if it is a wait queue. */
static int target_find(struct outbox *o, struct amqp_job *j,
                       char name[TOPOLOGY_NAME])
{
    uint64_t now = clock_wall_ns(), ms;
    unsigned bit, part = amqp_job_message(j)->part;
    struct problem p;

    if (j->settle && j->settle->kind == SETTLE_DEAD) {
        snprintf(name, TOPOLOGY_NAME, "%s", o->queue->dead);
        return 0;
    }
    ms = j->due_wall_ns > now ? (j->due_wall_ns - now) / NS_PER_MS : 0;
    /* Some of the wait has passed since the verdict. Without the slack, a wait
     * of 1 s would therefore never go to the queue of 1 s. */
    ms = topology_target(&o->queue->topology, part,
                         ms + ms / SLACK_PART + SLACK_MS, name);
    bit = 1U << topology_index(ms);
    if (ms == 0 || o->declared[part] & bit) /* 0: the inbox holds it */
        return 0;
    if (topology_wait(o->side->link, &o->queue->topology, part, ms, &p) < 0) {
        log_error("wait_queue", F_STR("queue", name), F_STR("error", p.text),
                  F_STR("next", "delayed messages and retries stay where "
                                "they are, unacknowledged, until this queue "
                                "can be used"));
        return -EPROTO;
    }
    side_limited(o->side);
    o->declared[part] |= bit;
    return 0;
}

/* Publish a copy. `plain`: leave out the history, which was too large. */
static int copy_publish(struct outbox *o, struct amqp_job *j, const char *name,
                        bool plain)
{
    struct amqp_message *m = amqp_job_message(j);
    const struct settle *s = j->settle;
    const struct attempt *a = s ? s->attempt : NULL;
    struct envelope_change change = {
        .id = &m->id,
        .attempt = m->m.failures + (a != NULL),
        .first_ns = m->first_ns,
        .due_ns = j->due_wall_ns,
        .hop = a ? m->key.hop : m->key.hop + 1U,
        .line = m->line,
        .derived = m->m.flags & MESSAGE_ID_DERIVED,
        .number = j->u.number,
        /* A message that may exist twice may have two copies. */
        .resent = j->u.resent || m->m.stale || m->m.flags & MESSAGE_REDELIVERED,
        .failed_count = a != NULL};
    struct envelope_attempt failed;
    struct envelope_copy copy;
    int err;

    if (s && s->kind == SETTLE_DEAD) {
        change.reason = dead_reason_text(s->reason);
        change.error = s->error;
        change.died_ns = s->died_ns;
    }
    if (a) {
        failed = amqp_attempt_of(o->queue, a, change.attempt);
        change.failed = &failed;
    }
    err = envelope_copy(&copy, m->raw, &change, plain);
    if (err)
        return err;
    err = confirms_publish(
        &o->confirms, o->side->link, &j->u, &o->queue->topology, name,
        &copy.properties,
        (amqp_bytes_t){m->body_size, (void *)(uintptr_t)m->body});
    envelope_copy_free(&copy);
    return err;
}

/* Return the next job whose body the broker accepts; NULL if there is none. Set
 * jobs with a longer body aside: the broker closes the channel when such a copy
 * is published, so each try would hold up the other jobs. */
static struct amqp_job *job_next(struct outbox *o)
{
    struct amqp_message *m;
    struct unconfirmed *u;
    char id[ULID_TEXT];

    claims_jobs_take(o->queue->claims, &o->jobs);
    while ((u = TAILQ_FIRST(&o->jobs)) != NULL) {
        m = amqp_job_message(amqp_job_of(u));
        if (m->body_size <= o->largest)
            return amqp_job_of(u);
        TAILQ_REMOVE(&o->jobs, u, link);
        TAILQ_INSERT_TAIL(&o->too_large, u, link);
        log_error(
            "too_large", F_STR("queue", o->queue->operand->shown),
            F_STR("msg", ulid_print(m->id, id)), F_UINT("bytes", m->body_size),
            F_UINT("max_message_size", o->largest),
            F_STR("next", "its retry or dead letter cannot be published, so it "
                          "stays unacknowledged; raise max_message_size in "
                          "rabbitmq.conf of each node and restart the nodes; "
                          "the worker tries again on its next connection"));
    }
    return NULL;
}

/* ---- confirms and returns ---- */

/* Finish a confirmed job. If the broker has returned its copy, a queue is gone:
 * connect again, which creates it, and publish the copy once more. */
static int job_confirmed(void *arg, struct unconfirmed *u)
{
    struct outbox *o = arg;
    struct amqp_job *j = amqp_job_of(u);

    if (!j->returned) {
        o->refused_ns = 0;
        claims_confirmed(o->queue->claims, j);
        return 0;
    }
    TAILQ_INSERT_HEAD(&o->jobs, u, link);
    o->missing = true;
    snprintf(o->side->link->why, LINK_WHY, "one of the queues was deleted");
    return -ENOENT;
}

/* Mark the job whose copy no queue took. */
static void job_returned(void *arg, amqp_bytes_t properties)
{
    struct outbox *o = arg;
    uint64_t number = envelope_number(properties);
    struct unconfirmed *u;

    TAILQ_FOREACH (u, &o->confirms.sent, link)
        if (u->number == number) {
            amqp_job_of(u)->returned = true;
            log_error("returned", F_STR("queue", o->queue->operand->shown),
                      F_STR("next",
                            o->queue->topology.no_create
                                ? "one of the queues was deleted; declare it "
                                  "again, because with --no-create the worker "
                                  "does not. The worker then publishes the "
                                  "message again"
                                : "one of the queues was deleted; the worker "
                                  "creates it again and publishes the message "
                                  "again"));
        }
}

/* Read all frames that have come, and log when the broker blocks. */
static int outbox_read(struct outbox *o)
{
    bool was = o->side->link->blocked;
    int err = confirms_read(&o->confirms, o->side->link);

    if (was != o->side->link->blocked)
        log_warn(was ? "unblocked" : "blocked",
                 F_STR("queue", o->queue->operand->shown),
                 F_STR("next", was ? "the broker takes messages again"
                                   : "the broker is low on memory or disk: "
                                     "retries and dead letters stay "
                                     "unacknowledged; successful messages are "
                                     "not affected"));
    return err;
}

/* ---- the connection ---- */

/* Prepare a new connection: create the queues again if one of them was deleted,
 * and have the broker confirm what is published. */
static int outbox_begin(struct outbox *o)
{
    struct problem p = {0};
    int err =
        o->missing ? topology_open(o->side->link, &o->queue->topology, &p) : 0;

    memset(o->declared, 0, sizeof o->declared);
    o->missing = err != 0;
    if (!err)
        return confirms_begin(&o->confirms, o->side->link);
    snprintf(o->side->link->why, LINK_WHY, "%.200s", p.text);
    return err;
}

static void outbox_lost(struct outbox *o, int err)
{
    uint64_t wait = o->side->wait_ns;
    uint64_t largest = link_largest_body(o->side->link);

    atomic_store(&o->queue->doubted, o->side->link->host + 1);
    side_wake(&o->queue->inbox);
    side_lost(o->side, err);
    /* The broker refuses messages as long as a queue is full. So wait longer
     * before each try, until a message is confirmed. */
    if (err == -EAGAIN || err == -EPROTO) {
        o->side->wait_ns = o->refused_ns > wait ? o->refused_ns : wait;
        o->refused_ns =
            2 * o->side->wait_ns < NACK_MOST ? 2 * o->side->wait_ns : NACK_MOST;
    }
    confirms_lost(&o->confirms, &o->jobs);
    /* If the connection was not lost because of a large body, another limit may
     * apply now: a node was restarted, or the next host has its own limit. */
    if (largest == 0) {
        TAILQ_CONCAT(&o->too_large, &o->jobs, link);
        TAILQ_CONCAT(&o->jobs, &o->too_large, link);
    }
    o->largest = largest > 0 ? largest : UINT64_MAX;
}

void *outbox_main(void *outbox)
{
    struct outbox *o = outbox;
    struct side *side = o->side;
    uint32_t messages = 0;
    char name[TOPOLOGY_NAME];
    const char *queue;
    struct amqp_job *j;
    int err;

    while (!atomic_load(&o->queue->stopping)) {
        if (!side->link) {
            err = side_reconnect(side) ? outbox_begin(o) : 0;
            if (err)
                outbox_lost(o, err);
            continue;
        }
        err = outbox_read(o);
        /* Answer a thread that waits in outbox_count. */
        pthread_mutex_lock(&o->mtx);
        queue = o->count.asked && !o->count.answered ? o->count.queue : NULL;
        pthread_mutex_unlock(&o->mtx);
        if (!err && queue) {
            err = topology_count(side->link, queue, &messages, NULL);
            pthread_mutex_lock(&o->mtx);
            if (o->count.asked && o->count.queue == queue) { /* still waiting */
                o->count.messages = messages;
                o->count.err = err;
                o->count.answered = true;
                pthread_cond_broadcast(&o->changed);
            }
            pthread_mutex_unlock(&o->mtx);
        }
        /* Publish what follows from verdicts. */
        while (!err && !side->link->blocked && !confirms_full(&o->confirms) &&
               (j = job_next(o)) != NULL) {
            err = target_find(o, j, name);
            if (!err) {
                j->u.number = o->confirms.numbers + 1; /* for job_returned */
                j->returned = false;
                TAILQ_REMOVE(&o->jobs, &j->u, link);
                err = copy_publish(o, j, name, false);
                if (err == -EMSGSIZE)
                    err = copy_publish(o, j, name, true);
                if (err)
                    TAILQ_INSERT_HEAD(&o->jobs, &j->u, link);
                FAULT_POINT("amqp_published");
            }
        }
        if (!err && confirms_late(&o->confirms, side->link))
            err = -ETIMEDOUT;
        if (!err)
            err = outbox_read(o); /* frames that came during a call */
        if (err)
            outbox_lost(o, err);
        else
            side_wait(side, TAILQ_EMPTY(&o->confirms.sent) ? UINT64_MAX
                                                           : LATE_LOOK_NS);
    }
    return NULL;
}

/* ---- open and close ---- */

int outbox_open(struct outbox **out, struct amqp_queue *queue,
                struct problem *p)
{
    struct outbox *o = calloc(1, sizeof *o);
    pthread_condattr_t clock;
    int err;

    *out = o;
    if (!o)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    *o = (struct outbox){.side = &queue->outbox,
                         .queue = queue,
                         .largest = UINT64_MAX,
                         .confirms = {.confirmed = job_confirmed,
                                      .returned = job_returned,
                                      .arg = o}};
    TAILQ_INIT(&o->jobs);
    TAILQ_INIT(&o->confirms.sent);
    TAILQ_INIT(&o->too_large);
    pthread_mutex_init(&o->mtx, NULL);
    pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&o->changed, &clock);
    pthread_condattr_destroy(&clock);
    err = link_open(&o->side->link, &queue->setup, queue->inbox.link->host, p);
    if (err)
        return err;
    err = outbox_begin(o);
    return err ? problem_set(p, EX_UNAVAILABLE, -err,
                             "the broker does not confirm: %s",
                             o->side->link->why)
               : 0;
}

void outbox_close(struct outbox **outbox)
{
    struct outbox *o = *outbox;

    if (!o)
        return;
    *outbox = NULL;
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->mtx);
    free(o);
}

/* Count one queue at a time; other threads wait for their turn. */
int outbox_count(struct outbox *o, const char *queue, uint32_t *messages)
{
    struct timespec until;
    int err = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ASK_S;
    pthread_mutex_lock(&o->mtx);
    if (atomic_load(&o->queue->stopping) || !o->side->running)
        err = ESHUTDOWN;
    while (!err && o->count.asked)
        err = pthread_cond_timedwait(&o->changed, &o->mtx, &until);
    if (!err) {
        o->count = (struct count){.queue = queue, .asked = true};
        side_wake(o->side);
        while (!err && !o->count.answered)
            err = pthread_cond_timedwait(&o->changed, &o->mtx, &until);
        *messages = o->count.messages;
        err = err ? -err : o->count.err;
        o->count.asked = false;
        pthread_cond_broadcast(&o->changed);
    } else {
        err = -err;
    }
    pthread_mutex_unlock(&o->mtx);
    return err;
}
