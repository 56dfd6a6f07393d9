/* totals.h - the counters file of a worker, from one run to the next
 *
 * WHAT   Opens it, with what the last worker left in another place; what an
 *        orderly stop leaves outlives the machine.
 * WHO    The engine; totals_ended: whoever ends the process.
 * OWNS   Nothing; the counters are the engine's.
 * FAILS  open: a problem.
 */
#ifndef WORKER_FLOW_TOTALS_H
#define WORKER_FLOW_TOTALS_H

#include "common/base/problem.h"

struct engine;

int totals_open(struct engine *e, struct problem *p);
/* An orderly end: those who look later find it, and its numbers. */
void totals_ended(struct engine *e);

#endif
