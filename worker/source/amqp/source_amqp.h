/* source_amqp.h - a queue on a broker, as a source
 *
 * WHAT   What is behind source.h here. Two threads, each with a connection of
 *        its own: the inbox consumes and acknowledges, the outbox publishes. A
 *        message stays unacknowledged until what follows from its verdict is
 *        confirmed.
 * WHO    open, stop, close: the engine. The struct is seen by the front and by
 *        restart/; a worker that runs knows source.h only.
 * OWNS   The connections, and each message that the broker gave.
 * FAILS  open: a problem with the exit status of docs/mqworker.8.
 */
#ifndef WORKER_SOURCE_AMQP_SOURCE_AMQP_H
#define WORKER_SOURCE_AMQP_SOURCE_AMQP_H

#include "common/base/problem.h"
#include "common/broker/broker_operand.h"
#include "worker/config/settings.h"
#include "worker/source/source.h"

struct source_amqp; /* opaque; body in amqp_inner.h */

/* What it works on; all of it outlives it. */
struct source_amqp_setup {
    const struct settings *set;
    const struct broker_operand *operand;
    const char *password; /* not needed any more after open */
    const char *runs;     /* path of the run file */
    struct source_events events;
    struct attention *attention; /* of the worker */
};

int source_amqp_open(struct source_amqp **out,
                     const struct source_amqp_setup *setup, struct problem *p);
struct source *source_amqp_source(struct source_amqp *q);
/* After the pool: verdicts that are on their way are waited for, up to
 * `limit_ns`; then nothing of its own moves any more. */
void source_amqp_stop(struct source_amqp *q, uint64_t limit_ns);
void source_amqp_close(struct source_amqp **source); /* NULL-safe; sets NULL */

#endif
