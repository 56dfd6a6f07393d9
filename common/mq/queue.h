/* queue.h - one POSIX message queue (mq_overview(7))
 *
 * WHAT   Opens, creates, receives, sends, and names the kernel limit that was
 *        reached. Only queue.c calls mq_*.
 * WHO    The worker, mqsend, mqctl and mqdlq. Any thread may receive and send;
 *        the owner opens, replaces and closes.
 * OWNS   The descriptor.
 * FAILS  -errno of the call; queue_open and queue_adopt also set a problem with
 *        the exit status: 64 bad name or attributes, 66 no such queue, 71 a
 *        system limit, 77 no permission.
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
    QUEUE_CREATE = 1 << 2, /* if it does not exist */
};

/* Open or create a queue, with O_NONBLOCK and close-on-exec. With neither
 * RECEIVE nor SEND in `flags`, only its attributes are read later, which needs
 * read permission. `attr` may be NULL. *created (may be NULL) is set if this
 * call created the queue. *out is NULL on failure. */
int queue_open(struct queue **out, const char *name, int flags,
               const struct queue_attr *attr, bool *created, struct problem *p);
/* Take over a descriptor that was passed in (systemd); makes it O_NONBLOCK.
 * On failure the descriptor stays the caller's. */
int queue_adopt(struct queue **out, const char *name, int fd,
                struct problem *p);
/* How a descriptor that another program opened compares with a name. */
enum queue_match { QUEUE_NONE, QUEUE_OTHER, QUEUE_SAME };
/* Compare `fd` with the queue called `name`, which begins with a slash. If no
 * queue of that name can be inspected (no permission and no /dev/mqueue, or it
 * was removed), any queue counts as the same. */
enum queue_match queue_match(int fd, const char *name);
void queue_close(struct queue **queue); /* NULL-safe; sets NULL */
/* Remove the name. Returns 0 or -errno; -ENOENT if there is none. */
int queue_unlink(const char *name);

/* Test whether a new queue of that size is allowed now: create one that no
 * other process can open, and remove it immediately. Returns 0 or -errno of its
 * creation; `left` gets its name if it could not be removed, else "". The
 * kernel also counts queues that are not visible from here: queues of other IPC
 * namespaces, and removed queues that a process still has open. */
#define QUEUE_PROBE 48
int queue_probe(uint64_t depth, uint64_t message_size, char left[QUEUE_PROBE]);
/* Find by trial how many bytes of queues the kernel charges this user: search
 * for the lowest RLIMIT_MSGQUEUE that allows a queue of one byte. Changes the
 * soft limit of the process meanwhile, so no other thread may create queues.
 * UINT64_MAX: more than the hard limit allows, or no queue can be created, or
 * one could not be removed (`left` as in queue_probe). */
uint64_t queue_charged(char left[QUEUE_PROBE]);
/* Read the sizes of a queue through its file, such as /proc/PID/fd/3. Returns 0
 * or -errno. */
int queue_file_sizes(const char *path, struct queue_attr *out);

int queue_fd(const struct queue *queue);
const char *queue_label(const struct queue *queue); /* "/orders" */
/* Return an attribute as read by open. The kernel never changes it. */
size_t queue_message_size(const struct queue *queue);
size_t queue_depth(const struct queue *queue);
/* Return the number of messages in the queue, or -errno. */
long queue_length(const struct queue *queue);
/* Return the total size of their bodies in bytes, or -errno. */
long queue_bytes(const struct queue *queue);
/* Return true if the name was unlinked: drain the remaining messages, then open
 * the name again. */
bool queue_gone(const struct queue *queue);

/* Replace a queue whose name was removed, after draining it, by *fresh, which
 * has the same name. The descriptor keeps its number; depth and message size
 * change; *fresh is closed. On failure the old queue stays. No other thread may
 * be receiving. */
int queue_replace(struct queue *queue, struct queue **fresh, struct problem *p);

/* Claim the queue, so that other processes can see that this one takes messages
 * from it. Returns false if another process already does; *other is the pid of
 * that process, or 0 if it is not visible. Call again after queue_replace. */
bool queue_claim(struct queue *queue, pid_t *other);

/* Receive one message straight into `buf`, which must be writable memory of
 * queue_message_size() bytes: the kernel frees the message even if the copy
 * fails. The kernel writes *priority first, then the body (do_mq_timedreceive
 * in ipc/mqueue.c). Returns the number of bytes; -EAGAIN if the queue is
 * empty. */
ssize_t queue_receive(struct queue *queue, void *buf, uint32_t *priority);

/* Send without blocking. Returns 0, -EAGAIN if the queue is full, or
 * -EMSGSIZE. */
int queue_send(struct queue *queue, const void *data, size_t size,
               uint32_t priority);
/* Send, waiting for room until the monotonic time `deadline_ns` (UINT64_MAX: no
 * limit). Returns 0, -EAGAIN, -EINTR, -EMSGSIZE, or -EIDRM if the queue was
 * unlinked while it was full, because no process may be left to make room. */
int queue_send_wait(struct queue *queue, const void *data, size_t size,
                    uint32_t priority, uint64_t deadline_ns);

/* Compare with the requested attributes (0: not requested); returns true if
 * they differ, with a sentence for each difference in `text`. */
bool queue_differs(const struct queue *queue, const struct queue_attr *want,
                   char *text, size_t room);

/* ---- patience ---- */

/* The first second of a wait, for mqsend and mqdlq. After it a program prints
 * once what it is waiting for, and how to stop it, on a terminal as well as in
 * a log, where a script that hangs would otherwise go unnoticed. The caller
 * embeds the struct, zeroed. */
struct patience {
    uint64_t end_ns; /* monotonic; 0: not waiting */
    bool said;
};

/* Begin to wait. */
void patience_start(struct patience *p);
/* Return true once, when a second has passed. */
bool patience_over(struct patience *p);

struct patient_send {
    struct patience *patience;
    struct queue *queue;
    const void *data;
    size_t size;
    uint32_t priority;
    uint64_t deadline_ns; /* monotonic; UINT64_MAX: no limit */
    /* Called if this send has waited for a second; `first`: it is the first
     * such send of `patience`. */
    void (*say)(bool first, void *arg);
    void *arg;
};
/* Send as queue_send_wait does, and call `say` after a second. */
int patience_send(const struct patient_send *send);

#endif
