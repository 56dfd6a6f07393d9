/* keep.h - what a stop leaves in slots goes to the store
 *
 * WHAT   The last step of an orderly end: each message that is in a slot, as it
 *        was never started or its handler was ended, becomes a row that the
 *        next worker runs. So nothing is left in custody, which may be gone by
 *        then: it does not outlive a container.
 * WHO    The engine. keep_all: no other thread of it is left. keep_and_exit:
 *        the peeker, while handlers that cannot be ended still run.
 * OWNS   Nothing.
 * FAILS  Where the store cannot be written the slots stay as they are, and that
 *        is told: the next worker finds them in custody.
 */
#ifndef WORKER_FLOW_KEEP_H
#define WORKER_FLOW_KEEP_H

#include "worker/engine.h"

void keep_all(struct engine *e);
/* Where the handlers are threads of ours: nothing that they do counts any more,
 * their messages are kept, and the process ends. */
_Noreturn void keep_and_exit(struct engine *e);

#endif
