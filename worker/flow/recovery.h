/* recovery.h - from one worker to the next
 *
 * WHAT   At a start: ends handlers left over, buries a message that the worker
 *        crashed under too often, and puts the rest in line: in their groups,
 *        or on the ready list in the source's order.
 *        At an orderly end: each message that is lent, as it was never started
 *        or its handler was ended, waits in the source for the next worker,
 *        wherever that runs: custody does not outlive a container.
 * WHO    The engine. recover: with the lock and before any thread. keep_all: no
 *        other thread is left. keep_quiet: the loop, while handlers that cannot
 *        be ended still run.
 * OWNS   Nothing.
 * FAILS  recover: a problem. Where the source cannot keep messages they stay
 *        lent, and that is logged: the next worker recovers them.
 */
#ifndef WORKER_FLOW_RECOVERY_H
#define WORKER_FLOW_RECOVERY_H

#include <stdbool.h>

#include "common/base/problem.h"

struct flow;

int recover(struct flow *f, struct problem *p);

/* `again`: an earlier call has logged which messages there are. */
int keep_all(struct flow *f, bool again);
/* Where the handlers are threads of ours: nothing that they do counts any more.
 * True: no thread settles anything from here on; false: one is busy still, and
 * what is lent must stay so. */
bool keep_quiet(struct flow *f);

#endif
