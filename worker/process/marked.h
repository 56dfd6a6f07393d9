/* marked.h - the processes of deliveries, wherever they went
 *
 * WHAT   Finds what handlers started, by three things: the mark in the
 *        environment (environment.h), the process group, and a parent that was
 *        found. So a process that has a session of its own is found, and one
 *        that cleared its environment, as long as its parent lives.
 * WHO    One thread, for one search after the other.
 * OWNS   A pidfd for each that was found: what is signalled and waited for is
 *        the process that was looked at, never one that got its number since.
 * FAILS  -errno: /proc cannot be read, no memory, no descriptor.
 */
#ifndef WORKER_PROCESS_MARKED_H
#define WORKER_PROCESS_MARKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct marked; /* opaque; body in marked.c */

struct marked_delivery {
    uint64_t seq; /* receive sequence: its mark */
    pid_t group;  /* 0: by the mark alone. Its leader is left out */
};
struct marked_choice {
    uint64_t nonce; /* of the custody file, see environment_mark */
    const struct marked_delivery *of;
    size_t count;
    bool ours;        /* only our descendants, which costs less */
    bool groups_only; /* only by process group */
};

int marked_open(struct marked **out);
void marked_close(struct marked **marked); /* NULL-safe; sets NULL */

/* Search anew; how many live, or -errno. Zombies that are our children are
 * reaped. */
int marked_find(struct marked *m, const struct marked_choice *choice);
/* How many of those that were found live still; children of ours that do not
 * are reaped. */
size_t marked_living(struct marked *m);
/* Readable when one that was found has ended. */
int marked_fd(const struct marked *m);

/* Find and kill until nothing is found; what was found is gone on return, and
 * reaped if it was ours. How many were killed, or -errno. */
int marked_end(struct marked *m, const struct marked_choice *choice);

#endif
