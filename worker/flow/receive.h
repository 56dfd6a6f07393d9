/* receive.h - the receive work item: one time-limited batch
 *
 * WHAT   Runs on a pool thread; takes one message after another until nothing
 *        is there, the batch time limit is over, or it must leave. Slots that
 *        are held first, then rows that are due and fresh messages in turn.
 * WHO    receive_start: any thread.
 * OWNS   A slot while it runs.
 * FAILS  receive_start says no; trouble goes to engine_trouble.
 */
#ifndef WORKER_FLOW_RECEIVE_H
#define WORKER_FLOW_RECEIVE_H

#include <stdbool.h>
#include <stdint.h>

struct engine;

/* Start one more work item, or give one that keeps several deliveries open one
 * more; false if there is no room. */
bool receive_start(struct engine *e);
/* A hold is on: those that wait for a long-lived child see it at once. */
void receive_hold(struct engine *e);
/* While no work item has a slot but to wait with, and no verdict waits to be
 * written: true, and none gets one before receive_go_on. */
bool receive_still(struct engine *e);
void receive_go_on(struct engine *e);
/* What all work items did so far. */
struct receive_stats {
    uint64_t deliveries; /* handlers started */
    uint64_t ended;      /* of these */
    uint64_t took_ns;    /* they, together */
    uint64_t longest_ns;
};
void receive_stats(struct engine *e, struct receive_stats *out);
/* It is not due yet, and has not waited in the store before. */
bool receive_delayed(const struct engine *e, const struct delivery *d);
void receive_fini(struct engine *e); /* nothing runs any more */

#endif
