/* pid_file.h - one worker for each queue and state directory
 *
 * WHAT   Locks the pidfile (flock(2), like pidfile(3) of libbsd) and its
 *        folder, so that no second worker can start even if the pidfile is
 *        removed.
 * WHO    The engine, at start and end. file_watch, on one thread at a time:
 *        pid_file_has_folder, and pid_file_open in a folder that was made
 *        again.
 * OWNS   The descriptors of pidfile and folder. The kernel drops the locks when
 *        the last process with the descriptors exits; a new handler has them
 *        until its exec.
 * FAILS  A problem: status 69 another worker is running (its pid), 73 the file
 *        cannot be used. -ENOENT: the folder was removed meanwhile.
 */
#ifndef WORKER_FILES_PID_FILE_H
#define WORKER_FILES_PID_FILE_H

#include <stdbool.h>

#include "common/base/problem.h"

struct pid_file; /* opaque; body in pid_file.c */

/* Take the locks. Waits for an owner that is exiting, and for a program that
 * tests the lock for a moment (common/state/worker_lock.h). Fails while another
 * worker is running. */
int pid_file_open(struct pid_file **out, const char *path, const char *queue,
                  struct problem *p);
/* Return true if the locked folder still has its name, so no other worker can
 * start. */
bool pid_file_has_folder(const struct pid_file *lock);
/* Leave the pidfile of a killed worker as it was, because this start failed.
 * Call pid_file_close after it. NULL-safe. */
void pid_file_give_back(struct pid_file *lock);
/* Remove the pidfile, unless another file has its name, and drop the locks.
 * NULL-safe. */
void pid_file_close(struct pid_file **lock);

#endif
