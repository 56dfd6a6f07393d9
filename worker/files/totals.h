/* totals.h - the counters file of a worker, from one run to the next
 *
 * WHAT   Opens it, with what the last worker left in another place; what an
 *        orderly stop leaves outlives the machine.
 * WHO    The engine.
 * OWNS   Nothing; the counters are the engine's.
 * FAILS  open: a problem.
 */
#ifndef WORKER_FILES_TOTALS_H
#define WORKER_FILES_TOTALS_H

#include <stdbool.h>

#include "common/base/problem.h"

struct counters;
struct runtimedir;
struct statedir;

int totals_open(struct counters **out, const struct runtimedir *runtime,
                const struct statedir *dir, struct problem *p);
/* An orderly end, for tools that look later. `ran`: its numbers outlive the
 * machine. Else the start was refused, and the tools find the end of the last
 * worker, which may have been killed. */
void totals_ended(struct counters *c, bool ran,
                  const struct runtimedir *runtime, const struct statedir *dir);

#endif
