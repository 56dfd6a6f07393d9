/* source_mq.h - a POSIX queue with its custody and store, as a source
 *
 * WHAT   Implements source.h. A message is in the kernel queue, in a slot of
 *        custody (lent), or in a row of the store.
 * WHO    The engine fills the struct, and calls open, watch, stop and close on
 *        its thread. The running worker calls only the operations of source.h,
 *        on the threads named there. The files of this room share the struct.
 * OWNS   Claims on rows, watches, the dead-letter queue. The engine owns queue,
 *        custody and store.
 * FAILS  source_mq_open, source_mq_watch: a problem.
 */
#ifndef WORKER_SOURCE_MQ_SOURCE_MQ_H
#define WORKER_SOURCE_MQ_SOURCE_MQ_H

#include "common/base/problem.h"
#include "common/custody/custody.h"
#include "common/mq/queue.h"
#include "common/store/store.h"
#include "worker/config/settings.h"
#include "worker/loop/chore.h"
#include "worker/source/mq/due_rows.h"
#include "worker/source/mq/lent.h"
#include "worker/source/source.h"

struct dead_letters; /* opaque; body in dead_letters.c */
struct group_watch;  /* opaque; body in mq_groups.c */

/* c = constant after open   a = atomic   t = under the lock of take */
struct source_mq {
    struct source source;
    /* Set by the engine before open. */
    struct source_events events; /* c */
    const struct settings *set;  /* c */
    const char *folder;          /* c  folder of the store */
    struct queue *queue;         /* c */
    struct custody *custody;     /* c */
    struct store *store;         /* c */
    const char *on_disk; /* c  file system of custody; NULL: it is in memory */
    struct timers *timers;        /* c */
    struct loop *loop;            /* c */
    struct pool **pool;           /* c  *pool is NULL when the pool has ended */
    struct dirty *dirty;          /* c */
    struct counters *counters;    /* c */
    struct peeker *peeker;        /* c  waits for poll_fd */
    struct quick_lock *take_lock; /* c  held by each call of take */

    struct lent *lents; /* c  messages, indexed by slot number */
    /* c by lane, for its thread only: the FREE slot of the message that the
     * lane settled last, still in the cache; NULL: none */
    struct lent **lanes;
    const struct slot_fill *fill;      /* c  custody's */
    struct due_rows *due_rows;         /* c */
    struct mq_name_watch *name_watch;  /* c */
    struct group_watch *group_watch;   /* c  NULL: groups are never held */
    struct dead_letters *dead_letters; /* c */
    struct spool *spool_there;         /* c  the spool, on or off; NULL: none */
    struct spool *_Atomic spool; /* t  spool_there once it is on; NULL: off */
    struct chore clock;          /* follows a clock that was set */
    struct chore wal;            /* empties a large -wal */
    struct chore large;          /* ends the worker; see mq_large_end */
    struct slot **left; /* slots in use, by seq; from mq_runs to mq_recover */
    size_t left_count;
    atomic_bool store_gone; /* a  the store has lost its name (file_watch.c) */
    atomic_bool started;    /* a set by start; letters are not moved before */
    atomic_bool name_gone;  /* a  the queue's name was removed */
    bool logged_large;      /* t  event=queue_messages_larger */
};

/* Initialize the struct, and open due_rows, after custody and store were
 * opened. */
int source_mq_open(struct source_mq *q, struct problem *p);
/* Watch the queue's name and held groups, and open dead_letters. */
int source_mq_watch(struct source_mq *q, struct problem *p);
/* Stop what source_mq_watch opened, after the pool has ended. Lent messages can
 * be settled until source_mq_close. */
void source_mq_stop(struct source_mq *q);
/* Free everything that open and watch have made. Called also after
 * source_mq_open has failed or was never called. */
void source_mq_close(struct source_mq *q);

static inline struct source_mq *source_mq_of(const struct source *s)
{
    return CONTAINER_OF((struct source *)s, struct source_mq, source);
}

/* ---- for the other files of this room ---- */

#pragma GCC visibility push(hidden)

/* Receive the next message of the queue into a FREE slot. The caller holds
 * take_lock, or spool.mtx while the spool is on. After an error the slot is
 * FREE, unless a part of the message may be in it. */
int mq_fetch(struct source_mq *q, struct lent *l, uint64_t wall_ns);
/* Return the FREE slot into which the lane takes its next message; NULL if all
 * slots are in use. Called on the lane's thread. */
struct lent *mq_lane_get(struct source_mq *q, unsigned lane);
/* Lend the message in the lane's slot. Returns 0. */
static inline int mq_lend(struct source_mq *q, unsigned lane,
                          struct message **out)
{
    *out = &q->lanes[lane]->m;
    q->lanes[lane] = NULL;
    return 0;
}
/* Initialize the message of a slot, and return it. */
struct lent *source_mq_lent(struct source_mq *q, struct slot *slot);

/* Operations of source.h, on the threads named there. In dead_letters.c: */
int mq_link(struct source *s, struct message *m, const struct header *h);
/* In mq_groups.c: */
int mq_groups(struct source *s,
              int (*visit)(void *arg, const struct source_group *group),
              void *arg);
int mq_letters(struct source *s, struct header_text key);
void mq_watch(struct source *s, bool soon);
/* In spool.c: */
bool mq_pending(const struct source *s);
bool mq_queued(const struct source *s, int64_t number);
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

/* Watch the worker's queue: q->name_gone is set when its name is removed. The
 * engine's thread (mq_reopen.c). */
int mq_reopen_watch(struct source_mq *q, struct problem *p);
/* End the worker, because the queue now takes messages larger than a slot. Run
 * by the pool, as the chore q->large. */
int mq_large_end(struct chore *chore);
/* Open the name again, when the old queue is empty. Called by mq_fetch, under
 * its lock. After -errno the old queue stays. */
int mq_reopen_now(struct source_mq *q);
/* Watch the name of any queue, which is borrowed. `gone` is called in the
 * peeker, maybe more than once. It is not called for a name that was removed
 * before, so check queue_gone once after this call. Returns 0 or -ENOMEM. */
int mq_name_watch_open(struct mq_name_watch **out, struct loop *loop,
                       struct timers *timers, struct queue *queue,
                       void (*gone)(void *arg), void *arg);
/* Watch the new queue after the one behind the descriptor was replaced. Called
 * by the thread that replaced it, one at a time. */
void mq_name_watch_again(struct mq_name_watch *l);
void mq_name_watch_close(struct mq_name_watch **watch); /* NULL-safe */

/* Open the chores that move and remove dead letters (dead_letters.c). */
int dead_letters_open(struct source_mq *q, struct problem *p);
/* Make replayed letters dead again if the machine went down while they were in
 * the queue. Called by mq_start. */
void dead_letters_start(struct source_mq *q);
/* Look for letters to move or remove, after a death or a changed setting. Any
 * thread; never waits. Does nothing before recovery has found all slots,
 * because a letter may be in one of them. */
void dead_letters_wake(struct source_mq *q);
void dead_letters_close(struct source_mq *q);

/* Watch the store for held groups whose letter may be gone (mq_groups.c). */
int group_watch_open(struct source_mq *q, struct problem *p);
void group_watch_close(struct source_mq *q);

/* Return 0, or -EBADFD while the store has lost its name, because a commit made
 * then is lost when this process exits. Called before each write to the store,
 * on any thread. A commit made just before the loss was noticed shares the fate
 * of the rest of the store, and is restored with the rest. */
static inline int source_mq_writable(const struct source_mq *q)
{
    return atomic_load(&q->store_gone) ? -EBADFD : 0;
}

/* Prepare a chore of the source, which runs in the pool. Called on the engine's
 * thread. `most_ns` is the longest wait after a failed run. */
static inline void source_mq_chore(const struct source_mq *q, struct chore *c,
                                   int (*run)(struct chore *c),
                                   uint64_t first_ns, uint64_t most_ns)
{
    *c = (struct chore){.run = run,
                        .first_ns = first_ns,
                        .most_ns = most_ns,
                        .timers = q->timers,
                        .pool = q->pool};
    chore_init(c);
}

/* Start the actions for new dead letters. Any thread. Does nothing before
 * recovery has found all slots, because a letter may be in one of them. */
static inline void source_mq_died(struct source_mq *q)
{
    if (!atomic_load(&q->started))
        return;
    dead_letters_wake(q);
    if (q->events.hooks)
        q->events.hooks(*q->events.on_dead);
}

#pragma GCC visibility pop

#endif
