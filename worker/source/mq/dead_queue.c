/* dead_queue.c - --dead-letter-queue (see dead_queue.h) */
#include "worker/source/mq/dead_queue.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sysexits.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/mq/queue.h"
#include "common/store/store.h"
#include "worker/config/settings.h"
#include "worker/loop/chore.h"
#include "worker/loop/dirty.h"
#include "worker/loop/loop.h"
#include "worker/source/mq/due_rows.h"
#include "worker/source/mq/mq_name_watch.h"

/* c = constant after open   j = the chore's */
struct dead_queue {
    struct dead_queue_setup with;     /* c */
    struct queue *queue;              /* c */
    struct mq_name_watch *name_watch; /* c  its name */
    struct queue_attr attr;           /* c */
    struct chore chore;               /* moves letters */
    struct loop_source source;        /* j  waits for room */
    unsigned char *data;              /* j  one letter */
    size_t room;                      /* c */
    int64_t sent; /* j  is in the queue and still in the store; 0: none */
    struct ulid sent_id; /* j */
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
    int err = queue_reopen(q->queue, open_flags(q->with.set), &q->attr, &p);

    if (err && q->chore.err != -ESTALE)
        log_error("dead_letter_queue_gone", F_STR("to", queue_label(q->queue)),
                  F_STR("error", p.text));
    if (err)
        return -ESTALE;
    q->source.added = false; /* the old one's place in the peeker is gone */
    mq_name_watch_again(q->name_watch);
    log_warn("dead_letter_queue_opened_again",
             F_STR("to", queue_label(q->queue)));
    return 0;
}

/* post - to the queue that has the name now: 0, or -errno of queue_send
 * The name may be removed before the message is in it, so look after it, too. A
 * letter that went with the old queue is sent to the new one. A queue that is
 * full has its name, and its later removal wakes us (name_watch): nobody makes
 * room in one that nobody finds.
 */
static int post(struct dead_queue *q, const struct store_row *m)
{
    int err = 0;

    do {
        if (queue_gone(q->queue))
            err = open_again(q);
        if (!err)
            err = queue_send(q->queue, q->data, m->size, m->priority);
    } while ((!err || err == -EAGAIN) && queue_gone(q->queue));
    return err;
}

/* sent_forget - what is in the queue leaves the store; until that has happened
 * nothing else is sent, so that no letter is sent twice but after a kill */
static int sent_forget(struct dead_queue *q)
{
    char id[ULID_TEXT];
    int err = store_delete(q->with.store, q->sent);

    if (err)
        return err;
    q->sent = 0;
    dirty_count(q->with.dirty);
    log_info("dead_letter_moved", F_STR("msg", ulid_print(q->sent_id, id)),
             F_STR("to", queue_label(q->queue)));
    return 0;
}

/* letter_send - one letter to the queue, then out of the store
 * Crash before the send: it is in the store. Between send and delete: it is in
 * both, and is sent again by the next worker. After: it is in the queue.
 */
static int letter_send(struct dead_queue *q, const struct store_row *m,
                       bool fits)
{
    char id[ULID_TEXT];
    int err;

    FAULT_POINT("dead_queue_before_send");
    err = fits ? post(q, m) : -EMSGSIZE;
    FAULT_POINT("dead_queue_after_send");
    if (err == -EMSGSIZE) {
        log_warn("dead_letter_too_large", F_STR("msg", ulid_print(m->id, id)),
                 F_UINT("size", m->size),
                 F_UINT("allowed", queue_message_size(q->queue)),
                 F_STR("next", "it stays in the store: see mqdlq list"));
        return 0;
    }
    if (err)
        return err;
    q->sent = m->row;
    q->sent_id = m->id;
    return sent_forget(q);
}

/* move_one - unless it is in flight: a letter that was sent again, recalled
 * when the queue was gone, and found in a slot; it ends from there */
static int move_one(struct dead_queue *q, int64_t row, uint64_t *died_ns)
{
    bool ours = due_rows_move(q->with.due_rows, row);
    struct store_row m;
    int err = store_get(q->with.store, row, &m, q->data, q->room, NULL);
    bool fits = err != -EMSGSIZE;

    if (!err || !fits) {
        *died_ns = m.died_ns;
        err = ours && m.state == STORE_DEAD ? letter_send(q, &m, fits) : 0;
    }
    if (ours && !q->sent)
        due_rows_release(q->with.due_rows, row);
    return err == -ENOENT ? 0 : err;
}

/* move_all - in order of death until the queue is full or none is left */
static int move_all(struct dead_queue *q)
{
    uint64_t died_ns = 0;
    int64_t row = 0, sent = q->sent;
    int err = sent ? sent_forget(q) : 0;

    if (sent && !err)
        due_rows_release(q->with.due_rows, sent);
    while (!err) {
        err = store_next_dead(q->with.store, died_ns, row, &row);
        if (!err)
            err = move_one(q, row, &died_ns);
    }
    return err;
}

static void tell(struct chore *chore, int err)
{
    struct dead_queue *q = CONTAINER_OF(chore, struct dead_queue, chore);

    if (err)
        log_error("dead_letter_not_moved", F_STR("to", queue_label(q->queue)),
                  F_STR("error", errno_text(-err)),
                  F_STR("next", "it stays in the store; it is tried again"));
}

/* move - as many as there are, or as there is room for */
static int move(struct chore *chore)
{
    struct dead_queue *q = CONTAINER_OF(chore, struct dead_queue, chore);
    int err = move_all(q);

    if (err == -EAGAIN)
        err = loop_watch(q->with.loop, &q->source, EPOLLOUT);
    return err == -ENOENT ? 0 : err; /* none is left */
}

/* dead_queue_wake - what is settled at the very end comes when the pool is
 * gone: the next worker moves it */
void dead_queue_wake(struct dead_queue *q)
{
    chore_soon(&q->chore);
}

static void name_gone(void *arg)
{
    dead_queue_wake(arg);
}

static void room_ready(struct loop_source *source)
{
    dead_queue_wake(CONTAINER_OF(source, struct dead_queue, source));
}

/* queue_ready - the queue is made when missing, as the worker's own is */
static int queue_ready(struct dead_queue *q, struct problem *p)
{
    int err;

    q->attr.message_size = q->with.message_size;
    q->attr.mode = (mode_t)q->with.set->mode;
    err = queue_open(&q->queue, q->with.set->dead_letter_queue,
                     open_flags(q->with.set), &q->attr, NULL, p);
    if (err)
        return err;
    q->attr.depth = queue_depth(q->queue); /* if it must be made again */
    q->attr.message_size = queue_message_size(q->queue);
    q->source =
        (struct loop_source){.fd = queue_fd(q->queue), .ready = room_ready};
    if (mq_name_watch_open(&q->name_watch, q->with.loop, q->with.timers,
                           q->queue, name_gone, q) < 0)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    return 0;
}

int dead_queue_open(struct dead_queue **out,
                    const struct dead_queue_setup *setup, struct problem *p)
{
    struct dead_queue *q = calloc(1, sizeof *q);
    int err;

    *out = NULL;
    if (!q)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    q->with = *setup;
    q->chore = (struct chore){.run = move,
                              .tell = tell,
                              .first_ns = NS_PER_S,
                              .most_ns = 30 * NS_PER_S,
                              .timers = setup->timers,
                              .pool = setup->pool};
    chore_init(&q->chore);
    q->room = setup->room;
    q->data = malloc(q->room);
    err = q->data ? queue_ready(q, p)
                  : problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    *out = q;
    if (err)
        dead_queue_close(out);
    return err;
}

/* dead_queue_close - one last try to forget what was sent */
void dead_queue_close(struct dead_queue **queue)
{
    struct dead_queue *q = *queue;

    if (!q)
        return;
    *queue = NULL;
    timers_cancel_sync(q->with.timers, &q->chore.timer);
    mq_name_watch_close(&q->name_watch);
    if (q->sent)
        (void)sent_forget(q);
    queue_close(&q->queue);
    free(q->data);
    free(q);
}
