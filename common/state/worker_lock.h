/* worker_lock.h - whether a worker runs, and its state: ask the lock, not the
 * pid
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

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/clock.h"
#include "common/state/statedir.h"

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

/* Find the folder of the worker `pid` by its open pidfile. Returns false if the
 * descriptors of `pid` are not visible from here. */
bool worker_lock_folder(pid_t pid, char folder[PATH_MAX]);

/* The phase of the worker that holds the lock. The files and the socket of a
 * starting or stopping worker may be missing; that is no error. */
enum worker_phase {
    WORKER_PHASE_NONE, /* the lock is free, or we lack the permission to read
                          it */
    WORKER_PHASE_STARTING,
    WORKER_PHASE_SERVING, /* all files and the socket should exist */
    WORKER_PHASE_STOPPING,
};
enum worker_phase worker_phase(const struct statedir *dir);

/* Call worker_phase_wait when the worker of a queue holds the lock but a file,
 * the socket or an answer is missing. Returns true, after a moment, if the
 * caller should check again because the worker is starting or stopping, has
 * exited, or may have become ready after the check. Returns false if something
 * is really missing, or 3 s after the first call. `w` is all 0 before the first
 * call. */
struct worker_wait {
    uint64_t until_ns;
    bool serving; /* as of the last call; the caller has checked since */
};
bool worker_phase_wait(const struct statedir *dir, struct worker_wait *w);

#define WORKER_CLAUSE 320
/* "no worker is running with state directory /var/lib/mqworker", "worker 123 is
 * running", "it is not visible from here whether a worker is running": for a
 * longer sentence. */
const char *worker_lock_clause(const char *state_dir, const char *queue,
                               char buf[WORKER_CLAUSE]);

/* ---- the states that the tools can show for a worker ----
 *
 * One table has the sentence and the severity of each state, for status, top,
 * doctor and the web page.
 */

enum worker_state {
    WORKER_STATE_UNSEEN,
    WORKER_STATE_NOT_RUNNING,
    WORKER_STATE_KILLED,
    WORKER_STATE_STARTING,
    WORKER_STATE_STOPPING,
    WORKER_STATE_STOPPED, /* by SIGSTOP or ^Z; the process still exists */
    WORKER_STATE_STORE_GONE,
    WORKER_STATE_CUSTODY_GONE,
    WORKER_STATE_READ_ONLY,
    WORKER_STATE_DAMAGED,
    WORKER_STATE_PAUSED,
    WORKER_STATE_STORE_HELD,
    WORKER_STATE_QUEUE_HELD,
    WORKER_STATE_BOUND_HELD,
    WORKER_STATE_RATE_HELD,
    WORKER_STATE_FULL,
    WORKER_STATE_BREAKER_OPEN,
    WORKER_STATE_BREAKER_PROBING,
    WORKER_STATE_RUNNING,
    WORKER_STATES,
};

/* Severity of a state. */
enum worker_severity {
    WORKER_FINE, /* the worker takes messages */
    WORKER_IDLE, /* the worker takes no messages; no action is needed */
    WORKER_WARN, /* action is needed sooner or later */
    WORKER_BAD,  /* action is needed soon */
};

/* "running", "store.db is gone", ... */
const char *worker_state_text(enum worker_state state);
/* Return the state with that sentence; WORKER_STATES if there is none. */
enum worker_state worker_state_parse(const char *text);
/* Return the severity of a state. `waits`: messages are waiting, so a worker
 * should be running. */
enum worker_severity worker_state_severity(enum worker_state state, bool waits);
/* "fine", "idle", "warn" or "bad". */
const char *worker_severity_text(enum worker_severity severity);
/* Return the state for bits of COUNTERS_HOLDS (counters.h): the most important
 * bit's state, or WORKER_STATE_RUNNING without any. */
enum worker_state worker_state_of_holds(uint64_t holds);

#endif
