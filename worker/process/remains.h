/* remains.h - ends all that is left of a handler that was ended
 *
 * WHAT   Its leader has ended, after a SIGTERM to its process group. The others
 *        of the group may still clean up, until the grace is over; then the
 *        group gets SIGKILL, always, and what escaped from it (own session,
 *        daemon) is found and killed: nothing of it is left.
 * WHO    end: pool threads, each for its own handler; hurry: any thread.
 * OWNS   Nothing of the handler: its leader must not be reaped before the
 *        return, so that the number of its group stays taken.
 * FAILS  open: -errno. What cannot be searched for (no /proc) is logged.
 */
#ifndef WORKER_PROCESS_REMAINS_H
#define WORKER_PROCESS_REMAINS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct remains; /* opaque; body in remains.c */
struct tail;

/* A handler whose leader has ended. */
struct remains_of {
    pid_t group;         /* and leader */
    uint64_t seq;        /* receive sequence: its mark */
    uint64_t kill_at_ns; /* monotonic; end of the grace */
    int stderr_fd;       /* read during the grace, into tail; -1: closed */
    struct tail *tail;   /* it knows the message id */
    const pid_t *known;  /* other handlers that have ended, orphans.h */
    size_t known_count;
};

int remains_open(struct remains **out, uint64_t nonce);
void remains_close(struct remains **remains); /* NULL-safe; sets NULL */

void remains_end(struct remains *s, const struct remains_of *of);
/* No grace for anybody any more. */
void remains_hurry(struct remains *s);

#endif
