/* queue.h - one POSIX message queue (mq_overview(7))
 *
 * WHAT   Opens or creates, receives, sends, tells attributes, and says which
 *        kernel limit stood in the way. The only file that calls mq_*.
 * WHO    Any thread may receive and send. Open and close: the owner.
 * OWNS   The descriptor.
 * FAILS  -errno of the call; open fills in a problem with the exit status:
 *        64 bad name or attributes, 66 no such queue, 71 a system limit,
 *        77 no permission.
 */
#ifndef COMMON_MQ_QUEUE_H
#define COMMON_MQ_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/problem.h"

#define QUEUE_PRIORITY_MAX 32767

struct queue; /* opaque; body in queue.c */

struct queue_attr {
    uint64_t depth;        /* messages; 0 = kernel default / not asked for */
    uint64_t message_size; /* bytes; 0 = kernel default / not asked for */
    mode_t mode;           /* of a new queue, exact: the umask is undone;
                               0 = 0600 / not asked for */
};

enum {
    QUEUE_RECEIVE = 1 << 0,
    QUEUE_SEND = 1 << 1,
    QUEUE_CREATE = 1 << 2, /* when missing */
};

/* Always O_NONBLOCK and close-on-exec. `flags` with neither RECEIVE nor SEND:
 * to look only, which needs read permission. `attr` may be NULL. *created (may
 * be NULL) says whether this call made the queue. *out is NULL on failure. */
int queue_open(struct queue **out, const char *name, int flags,
               const struct queue_attr *attr, bool *created, struct problem *p);
/* Take over a descriptor that was passed in (systemd); makes it O_NONBLOCK.
 * On failure the descriptor stays the caller's. */
int queue_adopt(struct queue **out, const char *name, int fd,
                struct problem *p);
/* What a descriptor that somebody else opened is. */
enum queue_match { QUEUE_NONE, QUEUE_OTHER, QUEUE_SAME };
/* Whether `fd` is the queue called `name`, which begins with a slash. Where no
 * queue of that name can be looked at (no permission and no /dev/mqueue, or it
 * was removed) any queue is taken for it. */
enum queue_match queue_match(int fd, const char *name);
void queue_close(struct queue **queue); /* NULL-safe; sets NULL */
/* Remove the name; -ENOENT if there is none. */
int queue_unlink(const char *name);

/* Test whether a new queue of that size is allowed now: create one that no
 * other process can open, and remove it immediately. Returns 0 or -errno. The
 * kernel also counts queues that are not visible from here: queues of other IPC
 * namespaces, and removed queues that a process still has open. */
int queue_probe(uint64_t depth, uint64_t message_size);

int queue_fd(const struct queue *queue);
const char *queue_label(const struct queue *queue); /* "/orders" */
/* As of open; they never change in a queue's life. */
size_t queue_message_size(const struct queue *queue);
size_t queue_depth(const struct queue *queue);
/* Messages in the queue now, or -errno. */
long queue_length(const struct queue *queue);
/* Bytes of their bodies together, or -errno. */
long queue_bytes(const struct queue *queue);
/* Whether the name was unlinked: drain the messages that are left, then open
 * the name again. */
bool queue_gone(const struct queue *queue);

/* The name was removed and what was left is drained: *fresh, of the same name,
 * takes its place. The descriptor keeps its number, depth and message size
 * change; *fresh is closed. On failure the old queue stays. Not while another
 * thread receives. */
int queue_replace(struct queue *queue, struct queue **fresh, struct problem *p);
/* Open the name again as queue_open would, and queue_replace. */
int queue_reopen(struct queue *queue, int flags, const struct queue_attr *attr,
                 struct problem *p);

/* Claim the queue, so that other processes can see that this one takes messages
 * from it. Returns false if another process already does; *other is the pid of
 * that process, or 0 if it is not visible. Call again after queue_replace. */
bool queue_claim(struct queue *queue, pid_t *other);

/* Receive one message straight into `buf`, which must hold
 * queue_message_size() bytes and be writable memory: the kernel frees the
 * message whatever happens to the copy. The kernel writes *priority first, then
 * the body (do_mq_timedreceive in ipc/mqueue.c). Bytes, or -EAGAIN when
 * empty. */
ssize_t queue_receive(struct queue *queue, void *buf, uint32_t *priority);

/* Send without blocking: 0, -EAGAIN full, -EMSGSIZE. */
int queue_send(struct queue *queue, const void *data, size_t size,
               uint32_t priority);
/* Send, waiting for room until the monotonic time `deadline_ns` (UINT64_MAX:
 * as long as it takes): 0, -EAGAIN, -EINTR, -EMSGSIZE, or -EIDRM if the queue
 * was unlinked while it was full, because no process may be left to make room
 * in it. */
int queue_send_wait(struct queue *queue, const void *data, size_t size,
                    uint32_t priority, uint64_t deadline_ns);

/* Compare with what was asked for (0: was not); one sentence per difference
 * that names both values goes to `text`. True if they differ. */
bool queue_differs(const struct queue *queue, const struct queue_attr *want,
                   char *text, size_t room);

/* ---- patience ----
 *
 * After a second of waiting a program says what it waits for, and how to end
 * that: once in a run, on a terminal and in a log alike, as nobody looks at a
 * script of cron that hangs. Embedded in the caller; all zero is a good start.
 */

struct patience {
    uint64_t end_ns; /* monotonic; 0: nothing is waited for */
    bool said;
};

/* From here on something is waited for. */
void patience_start(struct patience *p);
/* Whether a second is over, and it was not said before; true once. */
bool patience_over(struct patience *p);

/* What waits for room, and says so. */
struct patient_send {
    struct patience *patience;
    struct queue *queue;
    const void *data;
    size_t size;
    uint32_t priority;
    uint64_t deadline_ns; /* monotonic; UINT64_MAX: for ever */
    /* Each time that a second is over; `first`: for the first time. */
    void (*say)(bool first, void *arg);
    void *arg;
};
/* As queue_send_wait. */
int patience_send(const struct patient_send *send);

#endif
