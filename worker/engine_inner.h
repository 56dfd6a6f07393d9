/* engine_inner.h - inside of the engine: engine.c, engine_flow.c, recover.c
 *
 * WHAT   What opening the parts and letting messages through have in common.
 * WHO    As each says.
 * OWNS   Nothing.
 * FAILS  Nothing here does.
 */
#ifndef WORKER_ENGINE_INNER_H
#define WORKER_ENGINE_INNER_H

#include "worker/engine.h"

/* Threads beside those of the cap: one each that waits for the queue, writes
 * verdicts again, moves letters, lets groups go on, counts the store, writes
 * the store again. */
#define SPARE_THREADS 6

/* An orderly end: those who look later find it, and its numbers. */
void engine_ended(struct engine *e);
/* Before anything else of engine_flow.c: nothing is held. */
void engine_flow_init(struct engine *e);

#endif
