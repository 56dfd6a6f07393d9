/* recover.h - what the last worker left in custody
 *
 * WHAT   Kills handlers left over, drops what was settled already, counts
 *        crashes, and puts the rest on the ready list in receive order.
 * WHO    The engine at start, with the lock and before any thread.
 * OWNS   Nothing.
 * FAILS  A problem.
 */
#ifndef WORKER_RESTART_RECOVER_H
#define WORKER_RESTART_RECOVER_H

#include "common/base/problem.h"

struct flow;
struct source_mq;

int recover(struct flow *f, struct source_mq *mq, struct problem *p);

#endif
