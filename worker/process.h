/* process.h - start a child with its own group; look a process up
 *
 * WHAT   posix_spawn with what every handler needs: own process group, default
 *        signals, no descriptors but 0, 1, 2. And proc(5) look-ups by pid.
 * WHO    Any thread.
 * OWNS   Nothing; the caller reaps.
 * FAILS  -errno.
 */
#ifndef WORKER_PROCESS_H
#define WORKER_PROCESS_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

/* Where `name` is: as it is if it has a slash, else the first executable file
 * in $PATH. -ENOENT not found, -EACCES found but not executable. */
int process_find(const char *name, char out[PATH_MAX]);

/* Descriptors for the child's 0, 1 and 2; -1: the worker's own. */
int process_start(pid_t *out, const char *path, char *const argv[],
                  char *const env[], const int fds[3]);

/* Start time in clock ticks since boot (field 22 of proc_pid_stat(5)); 0 if
 * there is no such process. */
uint64_t process_start_time(pid_t pid);

#endif
