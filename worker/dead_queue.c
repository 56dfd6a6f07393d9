/* dead_queue.c - --dead-letter-queue (see dead_queue.h) */
#include "worker/dead_queue.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sysexits.h>

#include "common/log.h"
#include "common/fault_point.h"
#include "worker/container.h"
#include "worker/engine.h"
#include "worker/peeker.h"

/* c = constant after open   a = atomic   j = the job's thread only */
struct dead_queue {
    struct engine *engine;  /* c */
    struct queue *queue;    /* c */
    struct queue_attr attr; /* c */
    struct pool_job job;
    struct peeker_source source; /* j  waits for room */
    atomic_int wanted;           /* a  pokes not yet looked at; > 0: job runs */
    unsigned char *data;         /* j  one letter */
    size_t room;                 /* c */
};

/* open_flags - how the queue is opened; made when missing, as the worker's own
 * is */
static int open_flags(const struct settings *set)
{
    return QUEUE_SEND | (set->no_create ? 0 : QUEUE_CREATE);
}

/* open_again - its name was removed: nobody would ever find a letter in it */
static int open_again(struct dead_queue *q)
{
    struct problem p;
    int err = queue_reopen(q->queue, open_flags(q->engine->set), &q->attr, &p);

    if (err) {
        log_error("dead_letter_queue_gone", F_STR("to", queue_label(q->queue)),
                  F_STR("error", p.text));
        return -ESTALE;
    }
    q->source.added = false; /* the old one's place in the peeker is gone */
    log_warn("dead_letter_queue_opened_again",
             F_STR("to", queue_label(q->queue)));
    return 0;
}

/* post - to the queue that has the name now: 0, or -errno of queue_send
 * The name may be removed before the message is in it, so look after it, too. A
 * letter that went with the old queue is sent to the new one.
 */
static int post(struct dead_queue *q, const struct store_row *m)
{
    int err = 0;

    do {
        if (queue_gone(q->queue))
            err = open_again(q);
        if (!err)
            err = queue_send(q->queue, q->data, m->size, m->priority);
    } while (!err && queue_gone(q->queue));
    return err;
}

/* send_one - one letter to the queue, then out of the store
 * Crash before the send: it is in the store. Between send and delete: it is in
 * both, and is sent again by the next worker. After: it is in the queue.
 */
static int send_one(struct dead_queue *q, int64_t row, uint64_t *died_ns)
{
    struct engine *e = q->engine;
    struct store_row m;
    char id[ULID_TEXT];
    int err = store_get(e->store, row, &m, q->data, q->room, NULL);

    if (err == -ENOENT)
        return 0;
    if (err && err != -EMSGSIZE)
        return err;
    *died_ns = m.died_ns;
    if (m.state != STORE_DEAD)
        return 0;
    ulid_print(m.id, id);
    FAULT_POINT("dead_queue_before_send");
    if (!err)
        err = post(q, &m);
    FAULT_POINT("dead_queue_after_send");
    if (err == -EMSGSIZE) {
        log_warn("dead_letter_too_large", F_STR("msg", id),
                 F_UINT("size", m.size),
                 F_UINT("allowed", queue_message_size(q->queue)),
                 F_STR("next", "it stays in the store: see mqdlq list"));
        return 0;
    }
    if (!err)
        err = store_delete(e->store, row);
    if (!err)
        log_info("dead_letter_moved", F_STR("msg", id),
                 F_STR("to", queue_label(q->queue)));
    return err;
}

/* move_all - in order of death until the queue is full or none is left */
static int move_all(struct dead_queue *q)
{
    uint64_t died_ns = 0;
    int64_t row = 0;
    int err;

    for (;;) {
        err = store_next_dead(q->engine->store, died_ns, row, &row);
        if (!err)
            err = send_one(q, row, &died_ns);
        if (err)
            return err;
    }
}

/* move_job - on a pool thread */
static void move_job(struct pool_job *job)
{
    struct dead_queue *q = CONTAINER_OF(job, struct dead_queue, job);
    int seen, err;

    do {
        seen = atomic_load(&q->wanted);
        err = move_all(q);
        if (err == -EAGAIN)
            err = peeker_watch(q->engine->peeker, &q->source, EPOLLOUT);
        if (err && err != -ENOENT)
            log_error("dead_letter_not_moved",
                      F_STR("to", queue_label(q->queue)),
                      F_STR("error", strerror(-err)),
                      F_STR("next", "it stays in the store, and moves when "
                                    "the next letter dies"));
    } while (!atomic_compare_exchange_strong(&q->wanted, &seen, 0));
}

/* dead_queue_poke - at most one job at a time; a poke in between makes it look
 * again. What is settled at the very end comes when the pool is gone.
 */
void dead_queue_poke(struct dead_queue *q)
{
    if (!q->engine->pool)
        return;
    if (atomic_fetch_add(&q->wanted, 1) == 0 &&
        pool_submit(q->engine->pool, &q->job) < 0)
        atomic_store(&q->wanted, 0); /* closing: the next worker moves it */
}

static void room_ready(struct peeker_source *source)
{
    dead_queue_poke(CONTAINER_OF(source, struct dead_queue, source));
}

/* dead_queue_open - the queue is made when missing, as the worker's own is */
int dead_queue_open(struct dead_queue **out, struct engine *e,
                    struct problem *p)
{
    const struct settings *set = e->set;
    struct dead_queue *q = calloc(1, sizeof *q);
    int err;

    *out = NULL;
    if (!q)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    q->engine = e;
    q->attr.message_size = queue_message_size(e->queue);
    q->attr.mode = (mode_t)set->mode;
    q->room = custody_body_bytes(e->custody);
    q->data = malloc(q->room);
    err = q->data ? queue_open(&q->queue, set->dead_letter_queue,
                               open_flags(set), &q->attr, NULL, p)
                  : problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    if (err) {
        free(q->data);
        free(q);
        return err;
    }
    q->attr.depth = queue_depth(q->queue); /* if it must be made again */
    q->attr.message_size = queue_message_size(q->queue);
    q->job.run = move_job;
    q->source =
        (struct peeker_source){.fd = queue_fd(q->queue), .ready = room_ready};
    *out = q;
    return 0;
}

void dead_queue_close(struct dead_queue **queue)
{
    struct dead_queue *q = *queue;

    if (!q)
        return;
    *queue = NULL;
    queue_close(&q->queue);
    free(q->data);
    free(q);
}
