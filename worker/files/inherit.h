/* inherit.h - opens the files that a worker inherits from the last one
 *
 * WHAT   Locks the folders, opens the queue, custody, the store and the
 *        counters, and checks that they belong together and are complete.
 * WHO    The engine, on its thread: before it starts other threads, and
 *        inherit_totals_keep after they have ended.
 * OWNS   Nothing; the engine owns all that was opened, also after a problem.
 * FAILS  A problem with the exit status of docs/mqworker.8.
 */
#ifndef WORKER_FILES_INHERIT_H
#define WORKER_FILES_INHERIT_H

#include <limits.h>
#include <stdbool.h>

#include "common/base/problem.h"

struct counters;
struct flow;
struct pid_file;
struct runtimedir;
struct source_mq;
struct statedir;
struct store_look;

/* The parts of the engine that are filled in. */
struct inherit {
    struct flow *flow; /* its settings and counters */
    struct source_mq *mq;
    struct statedir *dir;
    struct runtimedir *runtime;
    struct pid_file **lock;
    struct store_look *look;
};

/* Open everything for a POSIX queue. */
int inherit_open(const struct inherit *i, struct problem *p);
/* Open folders, lock and counters for a queue on a broker, which keeps the
 * messages itself. `runs` gets the path of the run file. */
int inherit_broker_open(const struct inherit *i, char runs[PATH_MAX],
                        struct problem *p);
/* Record an orderly end in the counters, and copy them to the state folder,
 * which survives a reboot, unless that is where their file already is. Without
 * `ran` the start was refused, and the record of the last worker stays, because
 * that worker may have been killed. */
void inherit_totals_keep(struct counters *c, bool ran,
                         const struct runtimedir *runtime,
                         const struct statedir *dir);

#endif
