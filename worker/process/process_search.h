/* process_search.h - the processes of deliveries, wherever they went
 *
 * WHAT   Finds what handlers started, by three things: the mark in the
 *        environment (environment.h), the process group, and a parent that was
 *        found. So a process that has a session of its own is found, and one
 *        that cleared its environment, as long as its parent lives.
 * WHO    One thread, for one search after the other.
 * OWNS   A pidfd for each that was found: the process that is signalled and
 *        waited for is the process that was looked at, never one that got its
 *        number since.
 * FAILS  -errno: /proc cannot be read, no memory, no descriptor.
 */
#ifndef WORKER_PROCESS_PROCESS_SEARCH_H
#define WORKER_PROCESS_PROCESS_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process_search; /* opaque; body in process_search.c */

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

#endif
