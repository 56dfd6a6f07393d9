/* spool_inner.h - inside of the spool: spool*.c
 *
 * WHAT   The body of struct spool.
 * WHO    These files.
 * OWNS   As spool.h.
 * FAILS  As each says.
 */
#ifndef WORKER_SOURCE_MQ_INNER_H
#define WORKER_SOURCE_MQ_INNER_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/base/basics.h"
#include "common/custody/ends.h"
#include "common/store/spool.h"
#include "worker/config/slots.h"
#include "worker/source/mq/source_mq.h"
#include "worker/source/mq/spool.h"

#define SPOOL_AHEAD 64 /* rows that are read at once */

/* A message in a slot, not on the disk. */
struct spool_wait {
    int64_t key;
    struct lent *lent;
    bool unique; /* it asks for a key, in the commit that brings it there */
};

/* Lock order: steer_mtx, write_mtx, mtx, then custody's and the store's.
 * m = under mtx   w = under write_mtx   c = constant after open
 * a = atomic, written under mtx   t = of its thread */
struct spool {
    struct mq_spool hook;      /* c */
    struct source_mq *q;       /* c */
    struct ends *ends;         /* c */
    uint64_t doubt;            /* c  up to there it may have run */
    uint64_t seq;              /* c  the highest that was there at the start */
    int wake;                  /* c  wakes the thread */
    pthread_mutex_t write_mtx; /* one writes; it drops peeked rows */
    pthread_mutex_t mtx;
    pthread_mutex_t steer_mtx; /* one cancels, from seize to release */
    pthread_t thread;          /* c  of started */
    bool started;              /* by who starts and ends it */
    bool grown;                /* t  there are slots for it */
    atomic_bool stop;          /* a */

    /* Not on the disk: the last one comes next. */
    struct spool_wait *waiting; /* m */
    _Atomic size_t waits;       /* a */
    /* On their way there, in any order; nobody may have them meanwhile. */
    struct spool_wait *writing; /* m; w reads it */
    struct store_spooled *rows; /* w  what a commit brings there */
    struct store_key *keys;     /* w  of rows */
    struct store_row *later;    /* w  the same */
    _Atomic size_t writes;      /* a */
    _Atomic size_t failed;      /* a  commits; they are waiting again */
    int64_t writing_first;      /* m  of them comes next */
    /* On the disk: read ahead, in their order. */
    struct store_spooled ahead[SPOOL_AHEAD]; /* m */
    size_t at, count;                        /* m */
    void *bodies;                            /* c  of them */
    size_t room;                             /* c  bytes */
    /* a  by priority: those up to this were lent */
    _Atomic uint64_t *taken;
    _Atomic int64_t left;  /* a  on the disk and not lent yet */
    _Atomic int64_t large; /* a  a row that no slot has room for; 0: none */
    /* Not lent meanwhile: less their keys, and other numbers. */
    const int64_t *seized; /* m */
    size_t seized_count;   /* m */
    /* The next one is on its way to the disk: take has to wait for that. */
    atomic_bool stalled; /* a */

    _Atomic uint64_t direct; /* a  received by who lends it */
    atomic_bool full;        /* a  there is no room for more */
    atomic_bool disk_fails;  /* a  the disk takes nothing */
    bool told_full;          /* t */
};

static inline uint64_t spool_most(const struct spool *sp)
{
    return atomic_load(&sp->q->set->spool);
}
/* Of a spool that is off nothing has to be on the disk. */
static inline bool spool_always(const struct spool *sp)
{
    return sp->q->set->spool_sync == SPOOL_SYNC_ALWAYS && spool_most(sp) > 0;
}
static inline int64_t spool_key_of(const struct slot *slot)
{
    return store_spool_key(slot->priority, slot->seq);
}
/* No more are taken before some get to the disk. */
static inline bool spool_crowded(const struct spool *sp)
{
    return atomic_load(&sp->waits) + atomic_load(&sp->writes) >= SPOOL_SLOTS;
}
/* Receive sequences have room in a key. */
static inline bool spool_numbers(const struct spool *sp)
{
    return custody_seq_next(sp->q->custody) < STORE_SPOOL_SEQ_MAX;
}

static inline struct spool *spool_of(const struct mq_spool *sp)
{
    return CONTAINER_OF((struct mq_spool *)sp, struct spool, hook);
}

/* ---- spool_line.c ---- */

void spool_wake(const struct spool *sp); /* the thread looks */
uint64_t spool_waits(const struct mq_spool *hook);
/* Rows that come before some that were read ahead are there: `first` comes
 * next of them. mtx is held. */
void spool_ahead_locked(struct spool *sp, int64_t first);
/* One more that waits in its slot. mtx is held. */
void spool_wait_locked(struct spool *sp, struct lent *l);
/* One more from the queue: 0, -EAGAIN none, -ENOBUFS no slot, or trouble. mtx
 * is held. */
int spool_receive_locked(struct spool *sp, uint64_t wall_ns);

/* As source_ops. */
bool spool_queued(const struct mq_spool *hook, int64_t number);
/* Whether the row with that key was lent; it may be settled. Only with mtx it
 * stays as it is. */
bool spool_lent(const struct spool *sp, int64_t key);

/* ---- spool.c ---- */

int spool_take(struct mq_spool *hook, unsigned lane, uint64_t wall_ns,
               struct message **out);
int spool_end(struct mq_spool *hook, struct lent *l);
bool spool_ready(const struct mq_spool *hook);
void spool_adopt(struct mq_spool *hook, struct lent *l);

/* ---- spool_start.c ---- */

/* How a stop ended with messages in the queue. */
struct spool_last {
    int got;              /* at the last look; or -errno */
    bool full, slot_free; /* the spool; none waits in a slot any more */
};
/* Why they were left, and what to do before a reboot. */
const char *spool_left_why(const struct spool_last *last);
const char *spool_left_next(const struct spool_last *last);

/* ---- spool_steer.c ---- */

bool spool_seized_locked(const struct spool *sp, int64_t key);
void spool_seize(struct mq_spool *hook, const int64_t *numbers, size_t n,
                 bool *skip);
void spool_release(struct mq_spool *hook, const bool *done);

/* ---- spool_key.c ---- */

/* Whether it is to have a key: then it is no message before it has. */
bool spool_unique(const struct lent *l);
/* The key that it asks for, of the message in its slot. */
void spool_key_ask(struct store_key *key, struct lent *l);

/* ---- spool_on.c ---- */

/* It is on from here on; under the lock of take, or before anybody takes. */
int spool_turn_on(struct spool *sp, struct problem *p);

/* ---- spool_write.c ---- */

/* What ended is deleted, and with `waiting` those that wait get there, and what
 * is too large goes to the letters. */
int spool_write(struct spool *sp, bool waiting);

/* ---- spool_intake.c ---- */

int spool_thread_start(struct spool *sp);
void spool_thread_stop(struct spool *sp);
/* What the queue has gets in line, as far as there is room: how many, or
 * -errno. */
int spool_gather(struct spool *sp);

#endif
