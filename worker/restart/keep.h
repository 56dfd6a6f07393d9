/* keep.h - what a stop leaves in slots goes to the store
 *
 * WHAT   The last step of an orderly end: each message that is in a slot, as it
 *        was never started or its handler was ended, becomes a row that the
 *        next worker runs. So nothing is left in custody, which may be gone by
 *        then: it does not outlive a container.
 * WHO    The engine. keep_all: no other thread of it is left. keep_quiet:
 *        the loop, while handlers that cannot be ended still run.
 * OWNS   Nothing.
 * FAILS  Where the store cannot be written the slots stay as they are, and that
 *        is told: the next worker finds them in custody.
 */
#ifndef WORKER_RESTART_KEEP_H
#define WORKER_RESTART_KEEP_H

#include "worker/flow/flow.h"
#include "worker/source/mq/source_mq.h"

void keep_all(struct flow *f, struct source_mq *mq);
/* Where the handlers are threads of ours: nothing that they do counts any more.
 * True: no thread settles anything from here on; false: one is busy still, and
 * what is in slots must stay there. */
bool keep_quiet(struct flow *f);

#endif
