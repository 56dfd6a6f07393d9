/* process.h - start a process for handlers; find and signal one
 *
 * WHAT   A start with what every handler needs: own session and process group,
 *        default signals, no descriptors but 0, 1, 2.
 * WHO    Any thread; start: one that blocks all signals (pool.c).
 * OWNS   Nothing; the caller reaps, and closes the descriptor.
 * FAILS  -errno.
 */
#ifndef WORKER_PROCESS_PROCESS_H
#define WORKER_PROCESS_PROCESS_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/process_stat.h"

/* One that was started. */
struct process {
    pid_t pid;
    int end;        /* pidfd, readable once it has ended */
    uint64_t start; /* clock ticks since boot; with the pid, names a process */
};

/* Where `name` is: as it is if it has a slash, else the first executable file
 * in $PATH. -ENOENT not found, -EACCES found but not executable. */
int process_find(const char *name, char out[PATH_MAX]);

/* Descriptors for the child's 0, 1 and 2; -1: the worker's own. `alive`: the
 * key of the count of living handlers (process_stat.h); 0: not counted. */
int process_start(struct process *out, const char *path, char *const argv[],
                  char *const env[], const int fds[3], int alive);

/* To all of its group, the leader at least (it may have moved). A SIGTERM
 * reaches stopped processes, too. The leader must not be reaped yet. */
void process_group_signal(pid_t leader, int sig);

#endif
