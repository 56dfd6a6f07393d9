/* leftovers.h - processes that handlers leave behind
 *
 * WHAT   The worker becomes the parent of processes that its handlers leave
 *        behind (child subreaper), so it finds them among its descendants. It
 *        reaps them within a tenth of a second of their exit, and as quickly
 *        logs a handler that a signal stopped. After SIGTERM, a handler's
 *        process group may clean up until the grace is over; then the group
 *        always gets SIGKILL, and processes that escaped from it (own session,
 *        daemon) are found and killed. The handlers of a dead worker are killed
 *        before their messages run again: they are found by process group and
 *        start time, and by the mark in the environment, which processes still
 *        have if they left the group or were started just before the kill.
 * WHO    open, close: the engine's thread, which becomes the peeker and must be
 *        the main thread. end: pool threads, each for its own handler. hurry,
 *        none_but: any thread. stale_handlers_kill: the engine at start, with
 *        the lock of the state directory.
 * OWNS   No handler. The caller must not reap the leader of a handler before
 *        `end` returns, so that the kernel does not reuse the number of the
 *        process group.
 * FAILS  open: -errno; -ENOTSUP not the main thread. Processes that cannot be
 *        searched for (no /proc) are logged by end; stale_handlers_kill returns
 *        -errno.
 *
 * Reaping here never takes the exit status of a handler. The kernel makes
 * orphans children of the main thread, and only children of the main thread are
 * reaped here (__WNOTHREAD). A handler is the child of the thread that started
 * it. So a thread that starts a process must reap it before the thread ends,
 * and the peeker's thread starts no process.
 *
 * A search finds the processes of deliveries by the mark in the environment
 * (environment.h), by the process group, or because their parent was found. So
 * it also finds processes with a session of their own, and processes that
 * cleared their environment while their parent lives. A search watches each
 * found process (process.h), so a later process with the same pid is neither
 * signalled nor waited for. A struct is used by one thread at a time. A search
 * fails with -errno if /proc cannot be read, or for lack of memory or
 * descriptors.
 */
#ifndef WORKER_PROCESS_LEFTOVERS_H
#define WORKER_PROCESS_LEFTOVERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- searching ---- */

struct process_search; /* opaque; body in leftovers.c */

struct process_search_delivery {
    uint64_t seq; /* in its mark: the receive sequence */
    pid_t group;  /* its leader is left out; 0: search by the mark alone */
};
struct process_search_choice {
    uint64_t nonce; /* of the source, see environment_mark */
    const struct process_search_delivery *of;
    size_t count;
    bool ours;        /* search only our descendants, which costs less */
    bool groups_only; /* search by process group alone */
};

/* Return the reason why /proc does not show remaining handlers; NULL: it does.
 * /proc may be empty, be another file system, show another PID namespace, or
 * deny access to the environment of our own user's processes. */
const char *process_search_blind(void);

int process_search_open(struct process_search **out);
/* NULL-safe; sets NULL. */
void process_search_close(struct process_search **marked);

/* Make a new search. Returns how many of the found processes are alive, or
 * -errno. Reaps those that are dead and our children. */
int process_search_find(struct process_search *m,
                        const struct process_search_choice *choice);
/* Return how many of the found processes are still alive. Reaps those that are
 * dead and our children. */
size_t process_search_living(struct process_search *m);
/* Return a descriptor that is readable when a found process has ended. */
int process_search_fd(const struct process_search *m);

/* Find and kill until nothing is found. On return the found processes are gone,
 * and reaped if they were ours. Returns how many were killed, or -errno. */
int process_search_end(struct process_search *m,
                       const struct process_search_choice *choice);

/* ---- leaving nothing ---- */

struct leftovers; /* opaque; body in leftovers.c */
struct loop;
struct stderr_tail;
struct timers;

/* A handler that was sent SIGTERM. */
struct leftovers_of {
    pid_t group;              /* its number is also that of the leader */
    int end;                  /* `end` of the leader; -1: it has ended */
    uint64_t seq;             /* in its mark: the receive sequence */
    uint64_t kill_at_ns;      /* monotonic; end of the grace */
    int stderr_fd;            /* read into `tail` until then; -1: closed */
    struct stderr_tail *tail; /* has the message id for the log */
    const pid_t *known;       /* for leftovers_none_but */
    size_t known_count;
};

/* Become the parent of what handlers leave behind, and begin to reap it. */
int leftovers_open(struct leftovers **out, uint64_t nonce,
                   struct timers *timers, struct loop *loop);
void leftovers_close(struct leftovers **leftovers); /* NULL-safe; sets NULL */

/* Wait for the end of the handler's grace, then kill what is left of it. */
void leftovers_end(struct leftovers *s, const struct leftovers_of *of);
/* End the grace of all handlers now. */
void leftovers_hurry(struct leftovers *s);
/* Return true if the main thread has no child, running or not reaped yet, that
 * is not in `known`: handlers whose threads have ended are among its children.
 * False if the kernel has no list of children. */
bool leftovers_none_but(const pid_t *known, size_t n);

/* A handler of a worker that died. */
struct stale_handler {
    uint64_t mark;  /* of the long-lived child, or the receive sequence */
    pid_t pgid;     /* 0: not known */
    uint64_t start; /* start time of the group's leader */
};

/* Kill the handlers in `list` with all their processes, and wait until they are
 * gone. Returns how many processes were killed, or -errno. Call
 * process_search_blind before, because a process that /proc does not show is
 * not found. */
int stale_handlers_kill(uint64_t nonce, const struct stale_handler *list,
                        size_t n);

#endif
