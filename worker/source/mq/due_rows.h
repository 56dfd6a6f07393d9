/* due_rows.h - stored messages that are due
 *
 * WHAT   Hands out rows of the store that are due, the highest priority first,
 *        then the earliest. Waiting rows need no timer and no memory of their
 *        own: there is one timer for the earliest row, and up to 64 numbers of
 *        due rows. So a million waiting retries cost as much as one, and a
 *        restart reads only the first.
 * WHO    Any thread.
 * OWNS   Row numbers; a taken row is not handed out again until it is released.
 * FAILS  due_rows_take: -EAGAIN none is due, or the store's error.
 */
#ifndef WORKER_SOURCE_MQ_DUE_ROWS_H
#define WORKER_SOURCE_MQ_DUE_ROWS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/basics.h"
#include "common/store/store.h"
#include "worker/loop/timers.h"
#include "worker/source/source.h"

struct due_rows; /* opaque; body in due_rows.c */

/* `due` is called in the loop when a row has become due. source->due is 0 while
 * due_rows_take is not worth a call; the source outlives this. `all`: every
 * row counts as due, whatever its time. */
int due_rows_open(struct due_rows **out, struct store *store,
                  struct timers *timers, unsigned in_flight_max, bool all,
                  struct source *source, void (*due)(void *arg), void *arg);
void due_rows_close(struct due_rows **due_rows);

/* Return YES if a row is due that is not in flight, NO, or the store's -errno.
 * Asks the store if necessary. */
int due_rows_any(struct due_rows *r);
/* Take the next row that is due. */
int due_rows_take(struct due_rows *r, int64_t *row);
/* Mark a row as in flight that was not taken here (a held slot, a letter).
 * -EALREADY: it is in flight or about to be; -EXDEV: it is being moved to
 * another queue; -ENOMEM. */
int due_rows_claim(struct due_rows *r, int64_t row);
/* Mark a row as in flight, even if it is about to be handed out. Returns true
 * if it was not in flight. */
bool due_rows_seize(struct due_rows *r, int64_t row);
/* Claim a letter to move it to the dead-letter queue, one at a time. Returns
 * true if it was not in flight. */
bool due_rows_move(struct due_rows *r, int64_t row);
/* Return true if the row is in flight. */
bool due_rows_is_claimed(struct due_rows *r, int64_t row);
/* Give up a claim: the row is settled or stored again. */
void due_rows_release(struct due_rows *r, int64_t row);
/* Note that a row was made due now in the store. A look passes a row in flight
 * over, so there is one more look when such a row is released. */
void due_rows_sooner(struct due_rows *r, int64_t row);
/* Note that a stored row is due at `due_ns` (CLOCK_BOOTTIME). */
void due_rows_expect(struct due_rows *r, uint64_t due_ns);
/* Find due rows again after the clock was set. */
void due_rows_look(struct due_rows *r);

#endif
