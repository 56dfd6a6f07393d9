/* far_barrier.h - a full barrier in all threads of the process at once
 *
 * WHAT   membarrier(2), private and expedited: between the call and its return
 *        each thread that runs has passed a full barrier, wherever it was. Of
 *        two sides that each store and then look whether the other one has, so
 *        that at least one must see it, the one that comes often needs no
 *        barrier then: it keeps the compiler from changing the order, and the
 *        one that comes seldom pays for both.
 * WHO    Any thread. open: once in a process, before the first barrier; more
 *        often does no harm.
 * OWNS   Nothing.
 * FAILS  False: the kernel has none, or a filter refuses it.
 */
#ifndef COMMON_BASE_FAR_BARRIER_H
#define COMMON_BASE_FAR_BARRIER_H

#include <linux/membarrier.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline bool far_barrier_open(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0,
                   0) == 0;
}

static inline bool far_barrier_once(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/* A process that was restored from a checkpoint has to open it again. */
static inline bool far_barrier(void)
{
    return far_barrier_once() || (far_barrier_open() && far_barrier_once());
}

#endif
