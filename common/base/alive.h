/* alive.h - count the living handlers of a queue from any PID namespace
 *
 * WHAT   A System V semaphore that counts the handler processes of a queue. The
 *        kernel decrements the count when a process exits for any reason
 *        (SEM_UNDO). The semaphore belongs to the IPC namespace, as the queue
 *        does, so it is visible to every process that can open the queue,
 *        including one in a container that shares the queue but not /proc.
 * WHO    enter: the new process, before its exec. unseen: a starting worker.
 *        remove: the process that holds the lock of the state directory.
 * OWNS   The semaphore, from the first handler to alive_remove. Its key comes
 *        from the random number that marks the handlers of the queue.
 * FAILS  Never: without semaphores the count stays 0.
 */
#ifndef COMMON_BASE_ALIVE_H
#define COMMON_BASE_ALIVE_H

#include <stdint.h>

/* Return the key of the semaphore; never IPC_PRIVATE. */
int alive_key(uint64_t nonce);
/* Count the calling process until it exits, also across execve(2). Makes system
 * calls only, so a vforked child can call it. */
void alive_enter(int key);
/* Return the number of living handlers if this PID namespace does not show
 * them, else 0. */
int alive_unseen(int key);
/* Remove the semaphore if its count is 0. */
void alive_remove(int key);

#endif
