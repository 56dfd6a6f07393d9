/* mqlimit.h - the kernel's limits on message queues
 *
 * WHAT   Reads fs.mqueue.* and the limits of the process. Turns an errno of
 *        mq_open, which is often misleading, into an error that names the
 *        limit, its value, the requested value, and the command that raises it.
 * WHO    queue.c after a failed mq_open; mqctl doctor. Any thread.
 * FAILS  Never; a limit that cannot be read counts as the kernel's default.
 */
#ifndef COMMON_MQ_MQLIMIT_H
#define COMMON_MQ_MQLIMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/problem.h"

/* Bounds that no setting lifts (include/linux/ipc_namespace.h). */
#define MQLIMIT_HARD_DEPTH        65536
#define MQLIMIT_HARD_MESSAGE_SIZE (16u << 20)

struct mqlimit {
    uint64_t depth_max, depth_default;               /* fs.mqueue.msg_* */
    uint64_t message_size_max, message_size_default; /* fs.mqueue.msgsize_* */
    uint64_t queues_max;                             /* fs.mqueue.queues_max */
    uint64_t bytes;       /* RLIMIT_MSGQUEUE; UINT64_MAX = unlimited */
    uint64_t descriptors; /* RLIMIT_NOFILE; UINT64_MAX = unlimited */
};

void mqlimit_read(struct mqlimit *out);

/* Return what a new queue is charged against RLIMIT_MSGQUEUE, for its whole
 * capacity (mqueue_get_inode in ipc/mqueue.c). UINT64_MAX: overflow. */
uint64_t mqlimit_cost(uint64_t depth, uint64_t message_size);

/* Replace 0 by the kernel's default. */
void mqlimit_fill(const struct mqlimit *limit, uint64_t *depth,
                  uint64_t *message_size);

/* A queue that could not be created or opened. */
struct mqlimit_request {
    const char *name;             /* printable */
    uint64_t depth, message_size; /* after mqlimit_fill */
    bool descriptors_gone;        /* this process cannot open another file */
    mode_t mode; /* of the queue, if it allows what was denied; else 0 */
};
/* Fill `p` for the errno of a failed mq_open; returns -err. */
int mqlimit_explain(const struct mqlimit *limit,
                    const struct mqlimit_request *request, int err,
                    struct problem *p);

#endif
