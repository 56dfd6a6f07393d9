/* source_amqp.h - a queue on a broker, as a source
 *
 * WHAT   What the source is made of. Two threads, each with a connection of
 *        its own: the inbox consumes and acknowledges, the outbox publishes. A
 *        message stays unacknowledged until what follows from its verdict is
 *        confirmed.
 * WHO    The engine, through broker_engine.h: open, stop and close. A worker
 *        that runs uses source.h only.
 * OWNS   The connections, and each message that the broker gave.
 * FAILS  open: a problem with the exit status of docs/mqworker.8.
 */
#ifndef WORKER_SOURCE_AMQP_SOURCE_AMQP_H
#define WORKER_SOURCE_AMQP_SOURCE_AMQP_H

#include "worker/config/settings.h"
#include "worker/source/source.h"

/* What the source works on; all of it outlives the source. */
struct broker_source_setup {
    const struct settings *set; /* with the queue, and what opens it */
    const char *runs;           /* path of the run file */
    struct source_events events;
    struct attention *attention; /* of the worker */
};

#endif
