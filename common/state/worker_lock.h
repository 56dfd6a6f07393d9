/* worker_lock.h - whether a worker is running, and its state: ask the lock, not
 * the pid
 *
 * WHAT   A worker is running if and only if its pidfile is locked or, in case
 *        the pidfile was removed, the folder is (worker/files/pid_file.h locks
 *        both, flock(2)). The kernel releases the locks when the worker dies,
 *        before any process has waited for it, and every namespace sees them; a
 *        pid may be that of a zombie, of another process, or of another
 *        namespace.
 * WHO    mqsend, mqdlq and mqctl; the worker, when it starts. Any thread.
 *        Changes nothing.
 * FAILS  WORKER_UNSEEN: the lock cannot be inspected from here.
 */
#ifndef COMMON_STATE_WORKER_LOCK_H
#define COMMON_STATE_WORKER_LOCK_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/clock.h"
#include "common/state/statedir.h"

/* How long to wait for the lock of a dying process, because a core dump takes
 * its time; and the time between two calls of flock(2). */
#define WORKER_LOCK_DYING_NS (10 * NS_PER_S)
#define WORKER_LOCK_LOOK_MS  2

enum worker_lock {
    WORKER_NONE,   /* no pidfile: none has run, or the last one exited */
    WORKER_GONE,   /* the pidfile is not locked: the last one was killed */
    WORKER_RUNS,   /* the lock is held */
    WORKER_UNSEEN, /* we may not look from here */
};

/* Look at a pidfile. *pid is the worker's pid in its own namespace; 0 if
 * unknown, as between the lock and the write. `pid` may be NULL. */
enum worker_lock worker_lock_look(const char *pidfile, pid_t *pid);

/* Look at the pidfile of a queue. `state_dir` as in statedir_root. `folder`, if
 * not NULL, has PATH_MAX bytes and gets the queue's folder, "" if that is
 * unknown. */
enum worker_lock worker_lock_find(const char *state_dir, const char *queue,
                                  pid_t *pid, char *folder);

/* Find the folder of the worker `pid` by its open pidfile. Returns false if the
 * descriptors of `pid` are not visible from here. */
bool worker_lock_folder(pid_t pid, char folder[PATH_MAX]);

/* The phase of the worker that holds the lock. While it is starting or
 * stopping, its files and its socket may be missing; that is no error. */
enum worker_phase {
    WORKER_PHASE_NONE, /* the lock is free, or not readable for us */
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
/* Print "no worker is running with state directory /var/lib/mqworker", "worker
 * 123 is running" or "it is not visible from here whether a worker is
 * running". */
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
    WORKER_STATE_STOPPED, /* by SIGSTOP or ^Z */
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

/* Return "running", "store.db is gone", ... */
const char *worker_state_text(enum worker_state state);
/* Return the state with that sentence; WORKER_STATES if there is none. */
enum worker_state worker_state_parse(const char *text);
/* Return the severity of a state. `waits`: messages are waiting, so a worker
 * should be running. */
enum worker_severity worker_state_severity(enum worker_state state, bool waits);
/* Return "fine", "idle", "warn" or "bad". */
const char *worker_severity_text(enum worker_severity severity);
/* Return the state for bits of COUNTERS_HOLDS (counters.h): the most important
 * bit's state, or WORKER_STATE_RUNNING without any. */
enum worker_state worker_state_of_holds(uint64_t holds);

#endif
