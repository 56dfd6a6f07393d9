/* due_rows.h - stored messages that are due
 *
 * WHAT   Hands out rows of the store that are due, the highest priority first,
 *        then the earliest. Only the numbers of up to 64 due rows and one
 *        timer, for the earliest waiting row, are in memory. So a million
 *        waiting retries cost as much as one, and a restart reads only the
 *        first rows. A row that was handed out is claimed: it is "in flight",
 *        and is not handed out again until it is released.
 * WHO    The other files of this room, on any thread. The timer calls `due` in
 *        the loop.
 * OWNS   Numbers of rows; the rows are in the store.
 * FAILS  due_rows_take: -EAGAIN if no row is due, or the store's error.
 */
#ifndef WORKER_SOURCE_MQ_DUE_ROWS_H
#define WORKER_SOURCE_MQ_DUE_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/basics.h"
#include "common/store/store.h"
#include "worker/loop/timers.h"
#include "worker/source/source.h"

struct due_rows; /* opaque; body in due_rows.c */

/* `due` is called when rows may have become due. source->due is 0 while
 * due_rows_take is not worth a call; the source outlives this struct. `all`:
 * every row counts as due, regardless of its time. */
int due_rows_open(struct due_rows **out, struct store *store,
                  struct timers *timers, unsigned in_flight_max, bool all,
                  struct source *source, void (*due)(struct flow *flow),
                  struct flow *flow);
void due_rows_close(struct due_rows **due_rows);

/* Return YES if a row is due and not in flight, NO, or the store's -errno. Asks
 * the store if necessary. */
int due_rows_any(struct due_rows *r);
/* Take the next row that is due. */
int due_rows_take(struct due_rows *r, int64_t *row);
/* Purpose of a claim. */
enum due_claim {
    CLAIM_LEND, /* a slot found at the start, a parked row, a replayed letter */
    CLAIM_STEER, /* an operator cancels the row, even if it is about to be
                  * handed out */
    CLAIM_MOVE,  /* a letter moves to the dead-letter queue, one at a time */
};
/* Mark a row as in flight that due_rows_take did not hand out. -EALREADY: it is
 * in flight or about to be handed out; -EXDEV: it is being moved; -ENOMEM:
 * there are too many claims. */
int due_rows_claim(struct due_rows *r, int64_t row, enum due_claim why);
/* Return true if the row is in flight. `due_rows` is the struct; the order of
 * the parameters is that of the store's callbacks. */
bool due_rows_is_claimed(int64_t row, void *due_rows);
/* Give up the claim on a row that is settled or stored again. */
void due_rows_release(struct due_rows *r, int64_t row);
/* Note that an operator made a row due now. A query skips a row in flight, so
 * the store is asked again when such a row is released. */
void due_rows_sooner(struct due_rows *r, int64_t row);
/* Note that a stored row is due at `due_ns` (CLOCK_BOOTTIME). */
void due_rows_expect(struct due_rows *r, uint64_t due_ns);
/* Ask the store again, because rows may have become due: the timer fired, the
 * clock was set, or an operator changed rows. */
void due_rows_look(struct due_rows *r);

#endif
