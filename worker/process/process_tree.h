/* process_tree.h - ends all that is left of a handler that was ended
 *
 * WHAT   Its process group was sent SIGTERM. The leader and the others of the
 *        group may still clean up, until the grace is over; then the group gets
 *        SIGKILL, always, and what escaped from it (own session, daemon) is
 *        found and killed: nothing of it is left.
 * WHO    end: pool threads, each for its own handler; hurry: any thread.
 * OWNS   Nothing of the handler: its leader must not be reaped before the
 *        return, so that the number of its group stays taken.
 * FAILS  open: -errno. What cannot be searched for (no /proc) is logged.
 */
#ifndef WORKER_PROCESS_PROCESS_TREE_H
#define WORKER_PROCESS_PROCESS_TREE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process_tree; /* opaque; body in process_tree.c */
struct stderr_tail;

/* A handler that was sent SIGTERM. */
struct process_tree_of {
    pid_t group;              /* and leader */
    int end;                  /* its leader's pidfd; -1: it has ended */
    uint64_t seq;             /* receive sequence: its mark */
    uint64_t kill_at_ns;      /* monotonic; end of the grace */
    int stderr_fd;            /* read during the grace, into tail; -1: closed */
    struct stderr_tail *tail; /* it knows the message id */
    const pid_t *known;       /* other handlers that have ended, subreaper.h */
    size_t known_count;
};

int process_tree_open(struct process_tree **out, uint64_t nonce);
void process_tree_close(
    struct process_tree **remains); /* NULL-safe; sets NULL */

void process_tree_end(struct process_tree *s, const struct process_tree_of *of);
/* No grace for anybody any more. */
void process_tree_hurry(struct process_tree *s);

#endif
