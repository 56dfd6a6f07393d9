/* recover.h - what becomes of the messages that the last worker had
 *
 * WHAT   Ends handlers left over, buries a message that the worker crashed
 *        under too often, and puts the rest in line: in their groups, or on the
 *        ready list in the source's order.
 * WHO    The engine at start, with the lock and before any thread.
 * OWNS   Nothing.
 * FAILS  A problem.
 */
#ifndef WORKER_RESTART_RECOVER_H
#define WORKER_RESTART_RECOVER_H

#include "common/base/problem.h"

struct flow;

int recover(struct flow *f, struct problem *p);

#endif
