/* alive.h - how many handlers of a queue are alive, seen from any PID namespace
 *
 * WHAT   A System V semaphore that counts the processes which workers of a
 *        queue have started as handlers. The kernel takes a process off the
 *        count when it ends, whatever ended it (SEM_UNDO). Everybody who can
 *        open the queue sees the semaphore, as both belong to the IPC
 *        namespace; a container that shares the queue, and not /proc, sees it
 *        as well.
 * WHO    enter: the new process, before it execs. unseen: a worker that starts.
 *        remove: whoever has the lock of the state directory.
 * OWNS   The semaphore, from the first handler to alive_remove. Its key comes
 *        from the random number that marks the handlers of the queue.
 * FAILS  Never: without semaphores nobody is counted.
 */
#ifndef COMMON_BASE_ALIVE_H
#define COMMON_BASE_ALIVE_H

#include <stdint.h>

/* Return the key of the semaphore; never IPC_PRIVATE. */
int alive_key(uint64_t nonce);
/* Count the calling process until it ends, also after it has exec'ed. It makes
 * system calls only. */
void alive_enter(int key);
/* Return how many handlers are alive if this PID namespace does not show them,
 * else 0. */
int alive_unseen(int key);
/* Remove the semaphore, unless somebody is counted. */
void alive_remove(int key);

#endif
