/* recovery.h - messages that pass from one worker to the next
 *
 * WHAT   At a start: kills leftover handlers, makes a dead letter of a message
 *        under which the worker crashed too often, and gives the others to
 *        their groups or to the ready list, in the source's order.
 *        At an orderly end: stores each lent message that was never started, or
 *        whose handler was stopped, because the next worker may run in another
 *        container, without this worker's custody file.
 * WHO    The engine's thread. recovery_run: with the worker's lock, before any
 *        other thread is started. keep_all: when no other thread settles
 *        messages any more. keep_quiet: before that, if handlers are threads
 *        that do not return.
 * OWNS   Nothing.
 * FAILS  recovery_run: a problem. If the source cannot keep the messages, that
 *        is logged; they stay lent, and the next worker recovers them.
 */
#ifndef WORKER_FLOW_RECOVERY_H
#define WORKER_FLOW_RECOVERY_H

#include <stdbool.h>

#include "common/base/problem.h"

struct flow;

int recovery_run(struct flow *f, struct problem *p);

/* Have the source keep all lent messages for the next worker, and log each.
 * `again`: an earlier call has failed and logged that. Returns 0 or -errno. */
int keep_all(struct flow *f, bool again);
/* Ignore the results of the handlers' threads from now on. Returns true if no
 * thread settles a message any more; false if one is still busy, so that lent
 * messages must stay lent. */
bool keep_quiet(struct flow *f);

#endif
