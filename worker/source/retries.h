/* retries.h - stored messages whose time has come
 *
 * WHAT   Hands out rows of the store that are due, earliest first. Holds no
 *        timer and no memory for a row that waits: one timer for the earliest,
 *        and up to 64 row numbers that are due. So a million waiting retries
 *        cost what one costs, and a restart reads nothing but the first.
 * WHO    Any thread.
 * OWNS   Row numbers; a row that was taken is not handed out again until it
 *        landed.
 * FAILS  retries_take: -EAGAIN none is due, or the store's error.
 */
#ifndef WORKER_SOURCE_RETRIES_H
#define WORKER_SOURCE_RETRIES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/store/store.h"
#include "worker/loop/timers.h"

struct retries; /* opaque; body in retries.c */

/* `due` is called in the peeker when a row has become due. */
int retries_open(struct retries **out, struct store *store,
                 struct timers *timers, unsigned in_flight_max,
                 void (*due)(void *arg), void *arg);
void retries_close(struct retries **retries);

/* Whether retries_take is worth a call. */
bool retries_ready(const struct retries *r);
/* 1: a row is due that is not in flight; 0: none; asks the store if it has to.
 * -errno: the store's. */
int retries_due(struct retries *r);
/* The next row that is due. */
int retries_take(struct retries *r, int64_t *row);
/* Mark a row as in flight that was not taken here (a held slot, a letter): 0.
 * -EALREADY if it is in flight or about to be, -EXDEV if it is being moved to
 * another queue; -ENOMEM. */
int retries_claim(struct retries *r, int64_t row);
/* The same as a question: whether it was not in flight. */
bool retries_fly(struct retries *r, int64_t row);
/* As retries_fly, for a letter that is to be moved to the dead-letter queue;
 * one at a time. */
bool retries_move(struct retries *r, int64_t row);
/* Whether it is in flight. */
bool retries_flies(struct retries *r, int64_t row);
/* The row is settled or stored again. */
void retries_land(struct retries *r, int64_t row);
/* A row was stored that is due at `due_ns` (clock_steady_ns). */
void retries_note(struct retries *r, uint64_t due_ns);

#endif
