/* engine_source.h - the source that a worker takes from
 *
 * WHAT   Opens a POSIX queue or a queue on a broker, as the settings say, and
 *        tells the parts that are concerned of its events.
 * WHO    open, stop, close: the engine's thread. trouble: any thread.
 * OWNS   Nothing; the engine does.
 * FAILS  open: a problem with its exit status.
 */
#ifndef WORKER_ENGINE_SOURCE_H
#define WORKER_ENGINE_SOURCE_H

#include "worker/engine.h"

int engine_source_open(struct engine *e, struct problem *p);
/* Verdicts on their way to a broker are confirmed, and nothing else comes; of a
 * POSIX queue nothing is to be done. */
void engine_broker_stop(struct engine *e);
void engine_broker_close(struct engine *e);
/* Nothing is taken for a while: source.h, trouble; `arg` is the engine. */
void engine_trouble(void *arg, const char *what, int err);

#endif
