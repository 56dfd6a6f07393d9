/* process.h - start a child with its own group; look a process up
 *
 * WHAT   posix_spawn with what every handler needs: own process group, default
 *        signals, no descriptors but 0, 1, 2. And proc(5) look-ups by pid.
 * WHO    Any thread.
 * OWNS   Nothing; the caller reaps.
 * FAILS  -errno.
 */
#ifndef WORKER_PROCESS_PROCESS_H
#define WORKER_PROCESS_PROCESS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/process_stat.h"

/* Where `name` is: as it is if it has a slash, else the first executable file
 * in $PATH. -ENOENT not found, -EACCES found but not executable. */
int process_find(const char *name, char out[PATH_MAX]);

/* Descriptors for the child's 0, 1 and 2; -1: the worker's own. */
int process_start(pid_t *out, const char *path, char *const argv[],
                  char *const env[], const int fds[3]);

/* To all of its group, the leader at least (it may have moved). A SIGTERM
 * reaches stopped processes, too. The leader must not be reaped yet. */
void process_group_signal(pid_t leader, int sig);

/* Now, in the unit of `start`. A process that was started between two calls
 * with the same answer has this start; to ask /proc costs 25 us. */
uint64_t process_tick(void);

#endif
