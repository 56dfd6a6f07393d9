/* process_scan.h - the processes of deliveries, wherever they went
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
#ifndef WORKER_PROCESS_PROCESS_SCAN_H
#define WORKER_PROCESS_PROCESS_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process_scan; /* opaque; body in process_scan.c */

struct process_scan_delivery {
    uint64_t seq; /* receive sequence: its mark */
    pid_t group;  /* 0: by the mark alone. Its leader is left out */
};
struct process_scan_choice {
    uint64_t nonce; /* of the custody file, see environment_mark */
    const struct process_scan_delivery *of;
    size_t count;
    bool ours;        /* only our descendants, which costs less */
    bool groups_only; /* only by process group */
};

int process_scan_open(struct process_scan **out);
void process_scan_close(
    struct process_scan **marked); /* NULL-safe; sets NULL */

/* Search anew; how many live, or -errno. Zombies that are our children are
 * reaped. */
int process_scan_find(struct process_scan *m,
                      const struct process_scan_choice *choice);
/* How many of those that were found live still; children of ours that do not
 * are reaped. */
size_t process_scan_living(struct process_scan *m);
/* Readable when one that was found has ended. */
int process_scan_fd(const struct process_scan *m);

/* Find and kill until nothing is found; what was found is gone on return, and
 * reaped if it was ours. How many were killed, or -errno. */
int process_scan_end(struct process_scan *m,
                     const struct process_scan_choice *choice);

#endif
