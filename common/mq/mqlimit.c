/* mqlimit.c - the kernel's limits on message queues (see mqlimit.h) */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/libc.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/mq/mqlimit.h"

/* sizeof(struct msg_msg) and of posix_msg_tree_node, on 64-bit kernels. */
#define MESSAGE_BYTES 48
#define NODE_BYTES    48
#define PRIORITIES    32768 /* MQ_PRIO_MAX */

/* Read the number in /proc/sys/fs/mqueue/`file`; `preset` if there is none. */
static uint64_t sysctl_read(const char *file, uint64_t preset)
{
    char path[64], text[32];

    snprintf(path, sizeof path, "/proc/sys/fs/mqueue/%s", file);
    if (file_read_text(path, text, sizeof text) <= 0 || text[0] < '0' ||
        text[0] > '9')
        return preset;
    return strtoull(text, NULL, 10);
}

/* Read a soft limit; UINT64_MAX if there is none. */
static uint64_t rlimit_read(int which)
{
    struct rlimit r;

    if (getrlimit((__rlimit_resource_t)which, &r) != 0 ||
        r.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return r.rlim_cur;
}

void mqlimit_read(struct mqlimit *out)
{
    *out = (struct mqlimit){
        .depth_max = sysctl_read("msg_max", 10),
        .depth_default = sysctl_read("msg_default", 10),
        .message_size_max = sysctl_read("msgsize_max", 8192),
        .message_size_default = sysctl_read("msgsize_default", 8192),
        .queues_max = sysctl_read("queues_max", 256),
        .bytes = rlimit_read(RLIMIT_MSGQUEUE),
        .descriptors = rlimit_read(RLIMIT_NOFILE),
    };
}

uint64_t mqlimit_cost(uint64_t depth, uint64_t message_size)
{
    /* A queue is charged for each priority that it may have. */
    uint64_t nodes = depth < PRIORITIES ? depth : PRIORITIES, each, all;

    if (__builtin_add_overflow(message_size, MESSAGE_BYTES, &each) ||
        __builtin_mul_overflow(depth, each, &all) ||
        __builtin_add_overflow(all, nodes * NODE_BYTES, &all))
        return UINT64_MAX;
    return all;
}

void mqlimit_fill(const struct mqlimit *limit, uint64_t *depth,
                  uint64_t *message_size)
{
    uint64_t d = limit->depth_default, s = limit->message_size_default;

    if (*depth == 0)
        *depth = d < limit->depth_max ? d : limit->depth_max;
    if (*message_size == 0)
        *message_size =
            s < limit->message_size_max ? s : limit->message_size_max;
}

/* Return an RLIMIT_MSGQUEUE that allows a queue of that cost beside the other
 * queues of the user, which are charged at most the present limit. */
static uint64_t bytes_needed(const struct mqlimit *limit, uint64_t cost)
{
    uint64_t need;

    if (__builtin_add_overflow(cost, limit->bytes, &need))
        need = UINT64_MAX; /* no limit here, but one on the user namespace */
    return need;
}

/* Explain RLIMIT_MSGQUEUE, which the kernel reports as EMFILE. The cost is
 * printed as the kernel calculates it: "10 x 8192 + 96 x 10 = 82880". */
static int bytes_explain(const struct mqlimit *limit,
                         const struct mqlimit_request *r, int err,
                         struct problem *p)
{
    char cost_text[112] = "", user[FOLDER_USER];
    uint64_t cost = mqlimit_cost(r->depth, r->message_size);
    bool alone = cost > limit->bytes; /* too large without any other queue */
    uint64_t need = bytes_needed(limit, cost);

    if (r->depth <= PRIORITIES)
        snprintf(cost_text, sizeof cost_text,
                 "%" PRIu64 " x %" PRIu64 " + %d x %" PRIu64 " = %" PRIu64,
                 r->depth, r->message_size, MESSAGE_BYTES + NODE_BYTES,
                 r->depth, cost);
    else
        snprintf(cost_text, sizeof cost_text,
                 "%" PRIu64 " x %" PRIu64 " + %d x %" PRIu64
                 " + %d x %d = %" PRIu64,
                 r->depth, r->message_size, MESSAGE_BYTES, r->depth, NODE_BYTES,
                 PRIORITIES, cost);
    return problem_set(
        p, EX_OSERR, err,
        "queue %s: this queue costs %s of the %" PRIu64
        " bytes that RLIMIT_MSGQUEUE allows all queues of %s together%s "
        "raise it: `ulimit -q %" PRIu64 "` (as root if that is over the hard "
        "limit), systemd `LimitMSGQUEUE=%" PRIu64
        "`, `docker run --ulimit msgqueue=%" PRIu64 "`",
        r->name, cost_text, limit->bytes, folder_user(getuid(), user),
        alone ? ";"
              : ", and others (unlinked ones too, while open) use the rest; "
                "`mqctl queues` lists them, `mqctl remove --orphans` removes "
                "those that no process has open, or",
        need, need, need);
}

/* Append a sentence if `asked` is over the limit of a sysctl, or over `hard`,
 * the bound that even root cannot lift. */
static void over_print(char *buf, size_t room, const char *what,
                       const char *sysctl, uint64_t asked, uint64_t max,
                       uint64_t hard)
{
    if (asked > hard)
        text_append(buf, room,
                    "; %s %" PRIu64 " is over %" PRIu64
                    ", the most that Linux allows: ask for less",
                    what, asked, hard);
    else if (asked > max)
        text_append(buf, room,
                    "; %s %" PRIu64 " is over fs.mqueue.%s = %" PRIu64
                    ": raise it as root: `sysctl fs.mqueue.%s=%" PRIu64
                    "`, `docker run --sysctl fs.mqueue.%s=%" PRIu64 "`",
                    what, asked, sysctl, max, sysctl, asked, sysctl, asked);
}

/* Explain msg_max and msgsize_max, which give EINVAL; and RLIMIT_MSGQUEUE if
 * that would be the next to refuse. */
static int attributes_explain(const struct mqlimit *limit,
                              const struct mqlimit_request *r, int err,
                              struct problem *p)
{
    uint64_t cost = mqlimit_cost(r->depth, r->message_size);
    char text[600] = "";
    size_t used;

    over_print(text, sizeof text, "queue depth", "msg_max", r->depth,
               limit->depth_max, MQLIMIT_HARD_DEPTH);
    over_print(text, sizeof text, "message size", "msgsize_max",
               r->message_size, limit->message_size_max,
               MQLIMIT_HARD_MESSAGE_SIZE);
    used = strlen(text);
    if (used == 0)
        snprintf(text, sizeof text,
                 "; the kernel refuses depth %" PRIu64
                 " with message size %" PRIu64,
                 r->depth, r->message_size);
    else if (cost > limit->bytes && r->depth <= MQLIMIT_HARD_DEPTH &&
             r->message_size <= MQLIMIT_HARD_MESSAGE_SIZE)
        snprintf(text + used, sizeof text - used,
                 "; it also costs %" PRIu64 " of %" PRIu64
                 " bytes of RLIMIT_MSGQUEUE: `ulimit -q %" PRIu64 "`",
                 cost, limit->bytes, bytes_needed(limit, cost));
    return problem_set(p, EX_OSERR, err, "queue %s: %s", r->name, text + 2);
}

int mqlimit_explain(const struct mqlimit *limit,
                    const struct mqlimit_request *request, int err,
                    struct problem *p)
{
    uint64_t need;

    switch (err) {
    case EMFILE:
        if (!request->descriptors_gone)
            return bytes_explain(limit, request, err, p);
        need = limit->descriptors * 2;
        return problem_set(p, EX_OSERR, err,
                           "queue %s: all %" PRIu64
                           " descriptors that RLIMIT_NOFILE allows this "
                           "process are in use; raise it: `ulimit -n %" PRIu64
                           "`, systemd `LimitNOFILE=%" PRIu64
                           "`, `docker run --ulimit nofile=%" PRIu64 "`",
                           request->name, limit->descriptors, need, need, need);
    case EINVAL:
    case EOVERFLOW:
        return attributes_explain(limit, request, err, p);
    case ENOSPC:
        need = limit->queues_max ? limit->queues_max * 2 : 256;
        return problem_set(
            p, EX_OSERR, err,
            "queue %s: one more queue is over fs.mqueue.queues_max = %" PRIu64
            " of this IPC namespace; `mqctl queues` lists them, `mqctl remove "
            "--orphans` removes those that no process has open, or raise it as "
            "root: `sysctl fs.mqueue.queues_max=%" PRIu64
            "`, `docker run --sysctl fs.mqueue.queues_max=%" PRIu64 "`",
            request->name, limit->queues_max, need, need);
    case ENFILE:
        return problem_set(p, EX_OSERR, err,
                           "queue %s: the system is out of file handles; "
                           "raise as root: `sysctl fs.file-max=N`, N over what "
                           "`sysctl fs.file-max` says now",
                           request->name);
    case ENOMEM:
        return problem_set(p, EX_OSERR, err,
                           "queue %s: the kernel has no memory for it; see "
                           "`free` and memory.max of the control group",
                           request->name);
    case ENOSYS:
        return problem_set(p, EX_OSERR, err,
                           "queue %s: this kernel has no POSIX message queues "
                           "(CONFIG_POSIX_MQUEUE)",
                           request->name);
    default:
        return problem_set(p, EX_OSERR, err, "queue %s: cannot open: %s",
                           request->name, errno_text(err));
    }
}
