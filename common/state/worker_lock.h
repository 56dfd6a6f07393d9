/* worker_lock.h - whether a worker runs: ask the lock, not the pid
 *
 * WHAT   A worker runs if and only if the lock on its pidfile is held, or on
 *        the folder, should somebody have removed the pidfile
 *        (worker/files/pid_file.h takes them, flock(2)). The kernel drops
 *        them as the worker dies, before anybody has waited for it, and every
 *        namespace sees them: a pid can be a zombie's, another process's, or of
 *        another namespace.
 * WHO    Any thread of any program. Changes nothing.
 * OWNS   Nothing.
 * FAILS  By saying WORKER_UNSEEN.
 */
#ifndef COMMON_STATE_WORKER_LOCK_H
#define COMMON_STATE_WORKER_LOCK_H

#include <stddef.h>
#include <sys/types.h>

#include "common/base/clock.h"

/* Waiting for a lock of a process that is just dying: a core dump takes its
 * time. Each look is a flock(2). */
#define WORKER_LOCK_DYING_NS (10 * NS_PER_S)
#define WORKER_LOCK_LOOK_MS  2

enum worker_lock {
    WORKER_NONE,   /* no pidfile: none has run, or the last one ended itself */
    WORKER_GONE,   /* a pidfile that nobody holds: it was killed */
    WORKER_RUNS,   /* held */
    WORKER_UNSEEN, /* we may not look from here */
};

/* To *pid what the pidfile says, in the worker's own namespace; 0: nothing,
 * as in the moment between the lock and the write. `pid` may be NULL. */
enum worker_lock worker_lock_look(const char *pidfile, pid_t *pid);

/* The same of a queue. `state_dir` as in statedir_root. `folder`, if not NULL,
 * gets PATH_MAX bytes: where it was looked, "" if that could not be found. */
enum worker_lock worker_lock_find(const char *state_dir, const char *queue,
                                  pid_t *pid, char *folder);

#define WORKER_CLAUSE 320
/* "no worker runs with state directory /var/lib/mqworker", "worker 123 runs",
 * "whether a worker runs is not seen from here": for a longer sentence. */
const char *worker_lock_clause(const char *state_dir, const char *queue,
                               char buf[WORKER_CLAUSE]);

#endif
