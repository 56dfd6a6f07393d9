/* recovery.h - from one worker to the next
 *
 * WHAT   At a start: kills handlers left over, buries a message under which the
 *        worker crashed too often, and puts the rest in line: in their groups,
 *        or on the ready list in the source's order.
 *        At an orderly end: each message that is lent, because it was never
 *        started or its handler was stopped, waits in the source for the next
 *        worker, wherever that runs: custody does not outlive a container.
 * WHO    The engine. recovery_run: with the lock and before any thread.
 *        keep_all: no other thread is left. keep_quiet: the loop, while
 *        handlers that cannot be stopped still run.
 * OWNS   Nothing.
 * FAILS  recovery_run: a problem. Where the source cannot keep messages they
 *        stay lent, and that is logged: the next worker recovers them.
 */
#ifndef WORKER_FLOW_RECOVERY_H
#define WORKER_FLOW_RECOVERY_H

#include <stdbool.h>

#include "common/base/problem.h"

struct flow;

int recovery_run(struct flow *f, struct problem *p);

/* `again`: an earlier call has logged which messages there are. */
int keep_all(struct flow *f, bool again);
/* Make the handlers' threads irrelevant: what they return from here on does not
 * count. Returns true if no thread settles anything any more; false if one is
 * still busy, so that what is lent must stay so. */
bool keep_quiet(struct flow *f);

#endif
