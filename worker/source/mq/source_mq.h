/* source_mq.h - a POSIX queue with its custody and store, as a source
 *
 * WHAT   Implements source.h. A message is in the kernel queue, in a slot of
 *        custody (lent), or in a row of the store.
 * WHO    open, watch, stop, close: the engine. The operations: the threads that
 *        source.h names. The engine fills the struct and the files of this
 *        room share it; the running worker uses source.h only.
 * OWNS   What opens after the files: claims, watches, the dead-letter queue.
 *        The engine owns queue, custody and store, and opens them in order.
 * FAILS  open, watch: a problem.
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

struct dirty;
struct group_watch; /* opaque; body in mq_groups.c */
struct loop;
struct mq_reopen;
struct spool;

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
    const struct slot_fill *fill; /* c  custody's */
    /* c  of each lane, for its thread: the FREE slot of the message that it
     * settled last, still in the cache; NULL: none */
    struct lent **lanes;
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

static inline struct source_mq *source_mq_of(const struct source *s)
{
    return CONTAINER_OF((struct source *)s, struct source_mq, source);
}

/* ---- for the other files of this room ---- */

#pragma GCC visibility push(hidden)

/* Receive the next message of the queue into a FREE slot; under the lock of
 * take. After an error the slot is FREE, unless the message may be in it. */
int mq_fetch(struct source_mq *q, struct lent *l, uint64_t wall_ns);
/* Return the FREE slot that a lane takes with; NULL if all are in use. */
struct lent *mq_lane_get(struct source_mq *q, unsigned lane);
/* Lend the message in the lane's slot. Returns 0. */
static inline int mq_lend(struct source_mq *q, unsigned lane,
                          struct message **out)
{
    *out = &q->lanes[lane]->m;
    q->lanes[lane] = NULL;
    return 0;
}
/* Return the message of a slot, with what does not change while it is there. */
struct lent *source_mq_lent(struct source_mq *q, struct slot *slot);

/* Operations of source.h. In dead_letters.c: */
int mq_link(struct source *s, struct message *m, const struct header *h);
/* In mq_groups.c: */
int mq_groups(struct source *s,
              int (*visit)(void *arg, const struct source_group *group),
              void *arg);
int mq_letters(struct source *s, struct header_text key);
void mq_watch(struct source *s, bool soon);
/* In mq_recover.c: */
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

/* Watch the store for held groups whose letter may be gone (mq_groups.c). */
int group_watch_open(struct source_mq *q, struct problem *p);
void group_watch_close(struct source_mq *q);
/* Ask about held groups soon: a letter was removed, or asking failed. */
void group_watch_again(struct group_watch *w);

/* Return 0, or -EBADFD while the store has lost its name: what is written then
 * ends with this process. What a commit wrote just before the loss was seen is
 * there as long as the rest of the store, and put back with it. */
static inline int source_mq_writable(const struct source_mq *q)
{
    return atomic_load(&q->store_gone) ? -EBADFD : 0;
}

/* Begin the actions for new letters. Does nothing before recovery has found all
 * slots, because a letter may be in one of them. */
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
