/* subreaper.h - processes that handlers left behind
 *
 * WHAT   Makes the worker the parent of what its handlers leave behind (child
 *        subreaper), so that it can be found by walking our descendants, and
 *        reaps it when it ends, within a tenth of a second.
 * WHO    open, close: the engine's thread, which becomes the peeker and must be
 *        the main thread. none: any thread.
 * OWNS   A signalfd and a timer.
 * FAILS  open: -errno; -ENOTSUP not the main thread.
 *
 * A handler's status is never taken: the kernel gives orphans to the first
 * living thread of a process, the main thread, and only the main thread's
 * children are reaped here (__WNOTHREAD). A handler is the child of the thread
 * that started it. So whoever starts a process from another thread must reap it
 * before that thread ends; and the peeker's thread starts none.
 */
#ifndef WORKER_PROCESS_SUBREAPER_H
#define WORKER_PROCESS_SUBREAPER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct subreaper; /* opaque; body in subreaper.c */
struct loop;
struct timers;

int subreaper_open(struct subreaper **out, struct timers *timers,
                   struct loop *loop);
void subreaper_close(struct subreaper **orphans); /* NULL-safe; sets NULL */

/* Whether nothing was left behind at this moment, running or not reaped yet,
 * but for these: handlers whose threads have ended are the main thread's
 * children as well. False where the kernel does not tell. */
bool subreaper_none_but(const pid_t *known, size_t n);

#endif
