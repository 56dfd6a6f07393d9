/* leftovers.h - what handlers leave behind
 *
 * WHAT   The worker is the parent of what its handlers leave (child
 *        subreaper), so that it is found among our descendants; it is reaped
 *        within a tenth of a second of its end. A stopped handler is reported
 *        as quickly. Of a handler that was sent SIGTERM nothing is left: the
 *        leader and the others of its process group may clean up until the
 *        grace is over; then the group gets SIGKILL, always, and what escaped
 *        from it (own session, daemon) is found and killed. Of a dead worker's
 *        handlers nothing is left before their messages run again: they are
 *        found by process group and start time, and by the mark in the
 *        environment, which finds what left the group or was started in the
 *        instant before the kill.
 * WHO    open, close: the engine's thread, which becomes the peeker and must be
 *        the main thread. end: pool threads, each for its own handler. hurry,
 *        none_but: any thread. stale_handlers_kill: the engine at start, with
 *        the lock of the state directory.
 * OWNS   Nothing of a handler: its leader must not be reaped before end
 *        returns, so that the number of its group stays taken.
 * FAILS  open: -errno; -ENOTSUP not the main thread. Processes that cannot be
 *        searched for (no /proc) are logged by end; stale_handlers_kill returns
 *        -errno.
 *
 * A handler's status is never taken: the kernel gives orphans to the first
 * living thread of a process, the main thread, and only the main thread's
 * children are reaped here (__WNOTHREAD). A handler is the child of the thread
 * that started it. So a caller that starts a process from another thread must
 * reap it before that thread ends; and the peeker's thread starts none.
 *
 * A search finds the processes of deliveries wherever they went, by three
 * things: the mark in the environment (environment.h), the process group, and a
 * parent that was found. So a process that has a session of its own is found,
 * and one that cleared its environment, as long as its parent lives. It owns a
 * pidfd for each that was found: the process that is signalled and waited for
 * is the process that was looked at, never one that got its number since. One
 * thread makes one search after the other. It fails with -errno if /proc cannot
 * be read, or for lack of memory or descriptors.
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
    uint64_t seq; /* receive sequence: its mark */
    pid_t group;  /* 0: by the mark alone. Its leader is left out */
};
struct process_search_choice {
    uint64_t nonce; /* of the source, see environment_mark */
    const struct process_search_delivery *of;
    size_t count;
    bool ours;        /* only our descendants, which costs less */
    bool groups_only; /* only by process group */
};

/* Why /proc would not show the handlers that are left, NULL if it does: it is
 * empty or another file system, that of another PID namespace, or does not let
 * us read the environment of our own user's processes. */
const char *process_search_blind(void);

int process_search_open(struct process_search **out);
void process_search_close(
    struct process_search **marked); /* NULL-safe; sets NULL */

/* Search anew; how many live, or -errno. Zombies that are our children are
 * reaped. */
int process_search_find(struct process_search *m,
                        const struct process_search_choice *choice);
/* How many of those that were found live still; children of ours that do not
 * are reaped. */
size_t process_search_living(struct process_search *m);
/* Readable when one that was found has ended. */
int process_search_fd(const struct process_search *m);

/* Find and kill until nothing is found; those that were found are gone on
 * return, and reaped if they were ours. How many were killed, or -errno. */
int process_search_end(struct process_search *m,
                       const struct process_search_choice *choice);

/* ---- leaving nothing ---- */

struct leftovers; /* opaque; body in leftovers.c */
struct loop;
struct stderr_tail;
struct timers;

/* A handler that was sent SIGTERM. */
struct leftovers_of {
    pid_t group;              /* and leader */
    int end;                  /* its leader's pidfd; -1: it has ended */
    uint64_t seq;             /* receive sequence: its mark */
    uint64_t kill_at_ns;      /* monotonic; end of the grace */
    int stderr_fd;            /* read during the grace, into tail; -1: closed */
    struct stderr_tail *tail; /* it knows the message id */
    const pid_t *known; /* other handlers that have ended, leftovers_none_but */
    size_t known_count;
};

int leftovers_open(struct leftovers **out, uint64_t nonce,
                   struct timers *timers, struct loop *loop);
void leftovers_close(struct leftovers **leftovers); /* NULL-safe; sets NULL */

void leftovers_end(struct leftovers *s, const struct leftovers_of *of);
/* No grace for anybody any more. */
void leftovers_hurry(struct leftovers *s);
/* Whether nothing was left behind at this moment, running or not reaped yet,
 * but for these: handlers whose threads have ended are the main thread's
 * children as well. False where the kernel does not tell. */
bool leftovers_none_but(const pid_t *known, size_t n);

/* A handler of a worker that died. */
struct stale_handler {
    uint64_t mark;  /* its own, else the receive sequence (environment.h) */
    pid_t pgid;     /* 0: not known */
    uint64_t start; /* of the group's leader */
};

/* How many processes were killed, or -errno; what /proc does not show is not
 * found, so ask process_search_blind before. Returns when they are gone. */
int stale_handlers_kill(uint64_t nonce, const struct stale_handler *list,
                        size_t n);

#endif
