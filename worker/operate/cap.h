/* cap.h - how many work items may run, changed while they do
 *
 * WHAT   Slots, threads, then the cap.
 * WHO    The loop.
 * OWNS   Nothing.
 * FAILS  A problem: the slots cannot be had; the cap stays as it was.
 */
#ifndef WORKER_OPERATE_CAP_H
#define WORKER_OPERATE_CAP_H

#include "common/base/problem.h"

/* Threads beside those of the cap: one each that waits for the queue, writes
 * verdicts again, moves letters, lets groups go on, counts the store, writes
 * the store again. */
#define SPARE_THREADS 6

struct orders;

int cap_set(struct orders *o, unsigned cap, struct problem *p);
/* Some more or fewer; trouble is logged. */
void cap_change(struct orders *o, int change);

#endif
