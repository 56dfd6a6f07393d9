/* source_mq.h - a POSIX queue with its custody and store, as a source
 *
 * WHAT   What is behind source.h here. A message is in the kernel's queue, in a
 *        slot of custody (lent), or a row of the store.
 * WHO    open, stop, close: the engine. The struct is seen by the front and by
 *        restart/; a worker that runs knows source.h only.
 * OWNS   What opens after the files: claims, watches, the dead-letter queue.
 *        Queue, custody and store are the engine's, who opens them in order.
 * FAILS  open: a problem.
 */
#ifndef WORKER_SOURCE_MQ_SOURCE_MQ_H
#define WORKER_SOURCE_MQ_SOURCE_MQ_H

#include <pthread.h>

#include "common/base/problem.h"
#include "common/custody/custody.h"
#include "common/mq/queue.h"
#include "common/store/store.h"
#include "worker/config/settings.h"
#include "worker/loop/chore.h"
#include "worker/source/mq/dead_letters.h"
#include "worker/source/mq/due_rows.h"
#include "worker/source/mq/lent.h"
#include "worker/source/source.h"

struct dirty;       /* dirty.c */
struct group_watch; /* mq_groups.c */
struct loop;        /* loop.c */
struct mq_reopen;   /* mq_reopen.c */
struct spool;       /* spool.h */

/* What is kept for one work item; its thread's.
 * Its slot is FREE: of the message that it settled last, still warm in the
 * cache, and for its next one. NULL: none. */
struct mq_lane {
    struct lent *warm;
};

/* c = constant after open   a = atomic   t = under the lock of take */
struct source_mq {
    struct source source;
    struct source_events events; /* c */
    const struct settings *set;  /* c */
    const char *folder;          /* c  of the store */
    struct queue *queue;         /* c */
    struct custody *custody;     /* c */
    struct store *store;         /* c */
    const char *on_disk;         /* c  custody is; slot_warm. NULL: it is not */
    struct timers *timers;       /* c */
    struct loop *loop;           /* c */
    struct pool **pool;          /* c  NULL in there once the pool is gone */
    struct dirty *dirty;         /* c */
    struct lent *lents;          /* c  by the number of the slot */
    const struct slot_fill *fill;      /* c  custody's */
    struct mq_lane *lanes;             /* c */
    struct due_rows *due_rows;         /* c */
    struct mq_reopen *mq_reopen;       /* c */
    struct group_watch *group_watch;   /* c  NULL: no group is ever held */
    struct dead_letters *dead_letters; /* c */
    struct chore clock;                /* after the clock was set */
    struct chore wal;                  /* while the store's -wal is large */
    struct spool *spool_there;         /* c  on or off; NULL: none */
    struct spool *_Atomic spool; /* t  once it is on, for good; NULL: off */
    /* c  from `begins` to its end nobody takes; by one thread at a time */
    void (*hold_take)(void *arg, bool begins);
    void *hold_arg;     /* c */
    struct slot **left; /* from runs to recover, in the order of seq */
    size_t left_count;
    atomic_bool store_gone; /* a  no file of ours has its name */
    atomic_bool started;    /* a  before, letters stay where they are */
};

/* With everything above `lents` set; custody and store can be used after it. */
int source_mq_open(struct source_mq *q, struct problem *p);
/* Then: what looks after the queue, held groups and dead letters. */
int source_mq_watch(struct source_mq *q, struct problem *p);
/* After the pool: nothing of its own moves any more. Lent messages can be
 * settled still, until close. */
void source_mq_stop(struct source_mq *q);
void source_mq_close(struct source_mq *q); /* also one that was not opened */

/* The file of the store is gone, or back: nothing is written while it is. Any
 * thread. */
void source_mq_store_gone(struct source_mq *q, bool gone);
static inline struct source_mq *source_mq_of(const struct source *s)
{
    return CONTAINER_OF((struct source *)s, struct source_mq, source);
}

/* ---- inside of source_mq: mq_take.c, mq_settle.c, mq_groups.c, mq_recover.c,
 * mq_keep.c ---- */

#pragma GCC visibility push(hidden)

/* Operations of the table in source.h, which says which threads call them.
 * steer, groups, letters and count run as jobs of the pool or at the start, as
 * they may wait for a disk. */
/* What is lent from a slot. */
struct lent *source_mq_lent(struct source_mq *q, struct slot *slot);
int mq_take(struct source *s, unsigned lane, uint64_t wall_ns,
            struct message **out);
int mq_take_due(struct source *s, unsigned lane, struct message **out);
int mq_unpark(struct source *s, unsigned lane, struct header_text key, bool low,
              const struct message *before, struct message **out);
int mq_settle(struct source *s, struct settle *list, size_t n);
int mq_done(struct source *s, struct message *m, unsigned lane);
int mq_groups(struct source *s,
              int (*visit)(void *arg, const struct source_group *group),
              void *arg);
int mq_letters(struct source *s, struct header_text key);
void mq_watch(struct source *s, bool soon);
int group_watch_open(struct source_mq *q, struct problem *p);
/* A held group could not be asked about, or its letter removed: look soon. */
void group_watch_again(struct group_watch *w);
void group_watch_close(struct source_mq *q);
int mq_runs(struct source *s,
            void (*visit)(void *arg, const struct source_run *run), void *arg,
            struct problem *p);
int mq_recover(struct source *s,
               int (*visit)(void *arg, const struct source_left *left),
               void *arg);
int mq_keep(struct source *s,
            int (*place)(void *arg, struct message *m, bool half,
                         struct settle *out),
            void *arg);
void mq_warm(struct source *s, unsigned lane);
void mq_rest(struct source *s, unsigned lane);
/* Take the next message of the queue itself. */
int mq_fetch_lane(struct source_mq *q, unsigned lane, uint64_t wall_ns,
                  struct message **out);
/* The next message of the queue into a FREE slot; under the lock of take. After
 * a failure the slot is FREE, unless the message may be in it. */
int mq_fetch(struct source_mq *q, struct lent *l, uint64_t wall_ns);
/* What a lane takes with: a FREE slot; NULL: all are in use. */
struct lent *mq_lane_get(struct source_mq *q, unsigned lane);
/* It is the lane's no more: 0. */
int mq_lend(struct source_mq *q, unsigned lane, struct message **out);
/* What a lane had before; not inline, as it hardly ever has. */
void mq_lane_drop(struct source_mq *q, struct lent *l);
/* A slot that is FREE again. LANE_NONE: it is its settler's. */
static inline void mq_lane_keep(struct source_mq *q, unsigned lane,
                                struct lent *l)
{
    struct lent *was;

    if (lane == LANE_NONE)
        return;
    was = q->lanes[lane].warm;
    q->lanes[lane].warm = l;
    if (was)
        mq_lane_drop(q, was);
}

/* There are more letters than before: the actions for them begin. Not before
 * recovery has found all slots, as a letter may be in one, too. */
static inline void source_mq_died(struct source_mq *q)
{
    if (!atomic_load(&q->started))
        return;
    dead_letters_wake(q);
    if (q->events.hooks)
        q->events.hooks(q->events.arg);
}

#pragma GCC visibility pop

#endif
