/* inherit.h - the files of a worker, with what the last one left
 *
 * WHAT   Locks the folders, opens the queue, custody, the store and the
 *        counters, and carries over what the last worker had in other places.
 * WHO    The engine, before any thread is started.
 * OWNS   Nothing; the engine owns what it opens, also after a problem.
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

/* Where to put them. */
struct inherit {
    struct flow *flow; /* its settings and counters */
    struct source_mq *mq;
    struct statedir *dir;
    struct runtimedir *runtime;
    struct pid_file **lock;
    struct store_look *look;
};

int inherit_open(const struct inherit *i, struct problem *p);
/* The same for a queue on a broker, which has the messages: folders, lock and
 * counters. `runs`: where its run file is to be. */
int inherit_broker_open(const struct inherit *i, char runs[PATH_MAX],
                        struct problem *p);
/* Note an orderly end in the counters, for tools that look later. `ran`: keep a
 * copy in the state folder, which outlives the machine; if that is the runtime
 * folder, too, only after the file was removed. Else the start was refused, and
 * the tools find the end of the last worker, which may have been killed. */
void inherit_totals_keep(struct counters *c, bool ran,
                         const struct runtimedir *runtime,
                         const struct statedir *dir);

#endif
