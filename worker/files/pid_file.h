/* pid_file.h - one worker for each queue and state directory
 *
 * WHAT   The pidfile is the lock (flock(2), as pidfile(3) of libbsd has it),
 *        and so is the folder it is in: a pidfile that somebody removes lets no
 *        second worker in.
 * WHO    The engine, at start and end; has_folder: one thread at a time.
 * OWNS   The open pidfile and folder; the kernel drops the locks when their
 *        last owner dies, which includes a handler that has not reached its
 *        exec yet.
 * FAILS  A problem: 69 a worker runs (its pid), 73 the file cannot be used;
 *        -ENOENT: its folder was removed meanwhile.
 */
#ifndef WORKER_FILES_PID_FILE_H
#define WORKER_FILES_PID_FILE_H

#include <stdbool.h>

#include "common/base/problem.h"

struct pid_file; /* opaque; body in pid_file.c */

/* Takes the lock. An owner that is just dying is waited for, a living one is
 * not, and a program that only looks (common/state/worker_lock.h) is no
 * owner. */
int pid_file_open(struct pid_file **out, const char *path, const char *queue,
                  struct problem *p);
/* Return true if the locked folder still has its name, so that no other worker
 * can start. */
bool pid_file_has_folder(const struct pid_file *lock);
/* This start came to nothing: the pidfile of a worker that was killed is left
 * as it was. pid_file_close is to follow. NULL-safe. */
void pid_file_give_back(struct pid_file *lock);
/* The pidfile goes, unless its name is somebody else's. NULL-safe. */
void pid_file_close(struct pid_file **lock);

#endif
