/* keep.h - what a stop leaves unfinished
 *
 * WHAT   The last step of an orderly end: each message that is lent, as it was
 *        never started or its handler was ended, waits in the source for the
 *        next worker, wherever that runs: custody does not outlive a container.
 * WHO    The engine. keep_all: no other thread of it is left. keep_quiet:
 *        the loop, while handlers that cannot be ended still run.
 * OWNS   Nothing.
 * FAILS  Where the source cannot keep them they stay lent, and that is told:
 *        the next worker recovers them.
 */
#ifndef WORKER_RESTART_KEEP_H
#define WORKER_RESTART_KEEP_H

#include "worker/flow/flow.h"

/* `again`: an earlier call has logged which messages there are. */
int keep_all(struct flow *f, bool again);
/* Where the handlers are threads of ours: nothing that they do counts any more.
 * True: no thread settles anything from here on; false: one is busy still, and
 * what is lent must stay so. */
bool keep_quiet(struct flow *f);

#endif
