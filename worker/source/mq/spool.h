/* spool.h - messages wait on disk instead of in the queue (--spool)
 *
 * WHAT   Moves messages from the queue to the store as they come, many in one
 *        commit, and lends them in the order of the queue: the highest priority
 *        first, then the oldest. If no other message comes before a new one,
 *        the new message is lent immediately. docs/design/spool.md has the
 *        states, and explains a kill in each of them.
 * WHO    spool_open, _recovered, _stop, _close: the engine's thread. The other
 *        functions are called by source_mq.c and mq_recover.c, on the threads
 *        that source.h names for their operations. The spool's own thread waits
 *        for the queue and writes to the disk.
 * OWNS   The slots of messages that are on their way to the disk; the file of
 *        ends; the spool's thread.
 * FAILS  spool_open, spool_recovered: a problem with status 71 or 73.
 */
#ifndef WORKER_SOURCE_MQ_SPOOL_H
#define WORKER_SOURCE_MQ_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/problem.h"

struct lent;
struct message;
struct slot;
struct source_mq; /* source_mq.h */
struct spool;     /* opaque; body in spool.c */

/* ---- for the engine ---- */

/* Set q->spool_there. The spool is on (q->spool is set) if the settings have
 * --spool, or if an earlier worker left messages in the spool. Otherwise it can
 * be turned on later. */
int spool_open(struct source_mq *q, struct problem *p);
/* Delete the rows of messages that ended, after recovery has seen all slots.
 * NULL-safe. */
int spool_recovered(struct spool *sp, struct problem *p);
/* Move the messages of the queue, and those in slots that are not lent, to the
 * disk, so that a planned reboot loses none. Called by the engine at a stop,
 * when no thread takes messages any more. NULL-safe. */
void spool_stop(struct spool *sp);
/* Free everything, after all lent messages were settled or left in custody. */
void spool_close(struct source_mq *q);

/* ---- for source_mq. A message that the spool lends has a key in lent.spooled
 * if it has a row. ---- */

/* Lend the next message, as `take` of source.h does. */
int spool_take(struct spool *sp, unsigned lane, uint64_t wall_ns,
               struct message **out);
/* Wake the spool's thread, so that it checks for work. Any thread. */
void spool_wake(const struct spool *sp);
/* Finish a message that has a row, and is done or discarded. Called by settle,
 * on any thread. Returns 0 if the message's slot is FREE. */
int spool_end(struct spool *sp, struct lent *l);
/* Return how many messages wait in the spool. Returns 0 only if there was an
 * instant without any. Any thread. */
uint64_t spool_waits(const struct spool *sp);
/* Start the spool's thread, or wake it if it is running. Called after recovery,
 * on the engine's thread, and after each changed setting, because the setting
 * may turn the spool on. Does nothing while the spool is off. NULL-safe. */
void spool_start(struct spool *sp);
/* Add the message of a HELD slot, which has no row. Called by recovery, on the
 * engine's thread. */
void spool_adopt(struct spool *sp, struct slot *slot);
/* Keep rows from being lent until spool_release, because an operator is about
 * to cancel them. A number below 0 is minus the key of a row; `skip` is set for
 * rows that were lent already. `done` is true for rows that were cancelled.
 * mq_steer calls both functions on the same pool thread. */
void spool_seize(struct spool *sp, const int64_t *numbers, size_t n,
                 bool *skip);
void spool_release(struct spool *sp, const bool *done);

/* Where the message of a slot is. */
enum spool_at {
    SPOOL_AT_NOT,       /* in its slot only */
    SPOOL_AT_ROW,       /* in a row as well */
    SPOOL_AT_CANCELLED, /* in a row that is discarded when it is taken */
    SPOOL_AT_ENDED,     /* in a row as well, and it has ended */
};
/* Find where the message of a slot is, at recovery. The slot is not FREE and
 * names no row of the store's messages (slot->row is 0). */
int spool_find(struct spool *sp, const struct slot *slot, enum spool_at *out);
/* Return the key of a slot's message, for lent.spooled. */
int64_t spool_key_of(const struct slot *slot);
/* Write the slot's marks into the row, and count a crash if the message was
 * running. Called by recovery, on the engine's thread. */
int spool_note(struct spool *sp, const struct slot *slot);

/* ---- for tests ---- */

/* State of the spool after a stop that left messages in the queue. */
struct spool_last {
    int got;              /* messages received last, or -errno */
    bool full, slot_free; /* the spool is full; a slot is free */
};
/* Return why messages were left, with what to do before a reboot. */
const char *spool_left_why(const struct spool_last *last, const char **next);

#endif
