/* lock.h - one worker for each queue and state directory
 *
 * WHAT   The pidfile is the lock (pidfile(3) of libbsd, flock(2) below it).
 * WHO    The engine, at start and end.
 * OWNS   The open pidfile; the kernel drops the lock when its last owner dies,
 *        which includes a handler that has not reached its exec yet.
 * FAILS  A problem: 69 a worker runs (its pid), 73 the file cannot be used.
 */
#ifndef WORKER_LOCK_H
#define WORKER_LOCK_H

#include "common/problem.h"

struct pidfh;

/* Takes the lock. An owner that is just dying is waited for, a living one is
 * not, and who only looks (common/worker_lock.h) is no owner. */
int lock_open(struct pidfh **out, const char *path, const char *queue,
              struct problem *p);
void lock_close(struct pidfh **lock);

#endif
