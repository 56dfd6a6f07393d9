/* mqlimit.h - the kernel's limits on message queues
 *
 * WHAT   Reads fs.mqueue.* and the limits of the process. Turns an errno of
 *        mq_open, which is often misleading, into an error that names the
 *        limit, its value, the requested value, and the command that raises it.
 * WHO    queue.c after a failed mq_open; mqctl doctor and explain. Any thread.
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

#define MQLIMIT_COST 112
/* Print the cost as the kernel calculates it: "10 x 8192 + 96 x 10 = 82880". */
const char *mqlimit_cost_text(uint64_t depth, uint64_t message_size,
                              char buf[MQLIMIT_COST]);

/* Replace a depth and a size of 0 by the kernel's defaults. */
void mqlimit_fill(const struct mqlimit *limit, uint64_t *depth,
                  uint64_t *message_size);

/* Return true if the kernel was built with POSIX message queues. */
bool mqlimit_kernel_has_queues(void);

#define MQLIMIT_GUARD 256
/* Describe what besides mode bits may deny queues to this process: its label
 * of a security module (AppArmor, SELinux), and a filter of system calls. */
const char *mqlimit_guard(char buf[MQLIMIT_GUARD]);
#define MQLIMIT_DENIALS                                 \
    "`journalctl -k | grep DENIED` for AppArmor, "      \
    "`ausearch -m avc -ts recent` for SELinux, and in " \
    "a container its seccomp profile"
/* Return true if the mode bits of a queue allow this process the access `need`:
 * 4 to read, 2 to write, 6 for both. */
bool mqlimit_allows(uid_t owner, gid_t group, mode_t mode, mode_t need);

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
