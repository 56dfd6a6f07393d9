/* pending.h - verdicts that could not be written
 *
 * WHAT   Keeps a verdict, with copies of all it points to, while the store
 *        cannot be written (disk full); nothing is taken meanwhile; the wheel
 *        tries again.
 * WHO    keep: pool threads. init, fini: the engine.
 * OWNS   The slots of what is pending.
 * FAILS  Never towards the caller.
 */
#ifndef WORKER_SOURCE_PENDING_H
#define WORKER_SOURCE_PENDING_H

#include "worker/source/settle_op.h"

void pending_init(struct engine *e);
enum settled pending_keep(struct engine *e, struct slot *slot,
                          const struct op *op, int err);
/* The peeker: nothing is tried again until it returns from its callback. True:
 * nor is it just now. */
bool pending_quiet(struct engine *e);
/* At the end: one last try. */
void pending_fini(struct engine *e);

#endif
