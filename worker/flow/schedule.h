/* schedule.h - start work items, or wait for the queue
 *
 * WHAT   Whenever something may have changed: one more work item, one more
 *        message for an item that has room, or peek mode.
 * WHO    Any thread; the loop's hooks: the loop.
 * OWNS   Nothing; items.h has the work items that run, gate.h says whether one
 *        may.
 * FAILS  Trouble goes to gate_trouble.
 */
#ifndef WORKER_FLOW_SCHEDULE_H
#define WORKER_FLOW_SCHEDULE_H

#include <stdbool.h>

#include "worker/gate/gate.h"

struct flow;

/* Start a work item or peek. */
void schedule_wake(struct flow *f);
/* Start one more work item, or give one that keeps several deliveries open one
 * more; false if there is no room. */
bool schedule_start(struct flow *f);

/* Why nothing is taken from the queue; the loop. */
enum gate_why schedule_why(struct flow *f);

/* How long the loop may wait for its next event, ms; -1: no limit. */
int schedule_wait_ms(struct flow *f);
/* It waited that long, and nothing came. */
void schedule_quiet(struct flow *f);

#endif
