/* mqlimit.c - the kernel's limits on message queues (see mqlimit.h)
 *
 * queue.c calls mqlimit_explain when a queue could not be opened or created;
 * mqctl reads the limits to show them. Any thread. */
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

/* Read a number from /proc/self/status; 0 if it is not there. */
static uint64_t status_read(const char *name, int base)
{
    char text[4096];
    const char *at;

    if (file_read_text("/proc/self/status", text, sizeof text) <= 0)
        return 0;
    at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, base) : 0;
}

const char *mqlimit_guard(char buf[MQLIMIT_GUARD])
{
    char label[160] = "";
    bool filter = status_read("\nSeccomp:", 10) == 2;

    /* Without a security module, the file is missing or cannot be read. */
    if (file_read_text("/proc/self/attr/current", label, sizeof label) <= 0)
        label[0] = '\0';
    label[strcspn(label, "\n")] = '\0';
    if (strcmp(label, "unconfined") == 0) /* by AppArmor */
        label[0] = '\0';
    snprintf(buf, MQLIMIT_GUARD, "%s%s%s%s%s", label[0] ? "label \"" : "",
             label, label[0] ? "\"" : "", label[0] && filter ? " and " : "",
             filter ? "a seccomp filter"
             : label[0]
                 ? ""
                 : "no visible AppArmor or SELinux label or seccomp filter");
    return buf;
}

bool mqlimit_allows(uid_t owner, gid_t group, mode_t mode, mode_t need)
{
    gid_t groups[64];
    int n = getgroups(sizeof groups / sizeof *groups, groups);
    bool member = group == getegid();

    /* CAP_DAC_OVERRIDE; it does not reach the files of owners from outside the
     * user namespace, who appear as 65534. */
    if (status_read("\nCapEff:", 16) & 2 && owner != 65534)
        return true;
    if (owner == geteuid())
        return (mode >> 6 & need) == need;
    for (int i = 0; i < n; i++)
        member |= groups[i] == group;
    return (mode >> (member ? 3 : 0) & need) == need;
}

bool mqlimit_kernel_has_queues(void)
{
    char text[4096];

    return file_read_text("/proc/filesystems", text, sizeof text) > 0 &&
           strstr(text, "\tmqueue\n");
}

const char *mqlimit_cost_text(uint64_t depth, uint64_t message_size,
                              char buf[MQLIMIT_COST])
{
    uint64_t cost = mqlimit_cost(depth, message_size);

    if (depth <= PRIORITIES)
        snprintf(buf, MQLIMIT_COST,
                 "%" PRIu64 " x %" PRIu64 " + %d x %" PRIu64 " = %" PRIu64,
                 depth, message_size, MESSAGE_BYTES + NODE_BYTES, depth, cost);
    else
        snprintf(buf, MQLIMIT_COST,
                 "%" PRIu64 " x %" PRIu64 " + %d x %" PRIu64
                 " + %d x %d = %" PRIu64,
                 depth, message_size, MESSAGE_BYTES, depth, NODE_BYTES,
                 PRIORITIES, cost);
    return buf;
}

/* Explain RLIMIT_MSGQUEUE, which the kernel reports as EMFILE. The charge of
 * the user's other queues is not known here: a process with a higher limit may
 * have created them. So the number to set is left to mqctl explain, which
 * counts what is charged. */
static int bytes_explain(const struct mqlimit *limit,
                         const struct mqlimit_request *r, int err,
                         struct problem *p)
{
    char text[MQLIMIT_COST], user[FOLDER_USER];
    bool alone = mqlimit_cost(r->depth, r->message_size) > limit->bytes;

    return problem_set(
        p, EX_OSERR, err,
        "queue %s: this queue costs %s of the %" PRIu64
        " bytes that RLIMIT_MSGQUEUE allows all queues of %s together%s; "
        "%s: `mqctl explain --queue-depth %" PRIu64 " --message-size %" PRIu64
        " EMFILE` counts what is used and has the number for ulimit -q, "
        "LimitMSGQUEUE= and docker",
        r->name, mqlimit_cost_text(r->depth, r->message_size, text),
        limit->bytes, folder_user(getuid(), user),
        alone ? "" : ", and others (removed ones too, while open) use the rest",
        alone ? "raise the limit"
              : "`mqctl remove --orphans` removes those that no process has "
                "open; or raise the limit",
        r->depth, r->message_size);
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

/* Explain which of msg_max and msgsize_max made the kernel return EINVAL. Also
 * name RLIMIT_MSGQUEUE if it would refuse the queue after that. */
static int attributes_explain(const struct mqlimit *limit,
                              const struct mqlimit_request *r, int err,
                              struct problem *p)
{
    uint64_t cost = mqlimit_cost(r->depth, r->message_size);
    char text[600] = "";

    over_print(text, sizeof text, "queue depth", "msg_max", r->depth,
               limit->depth_max, MQLIMIT_HARD_DEPTH);
    over_print(text, sizeof text, "message size", "msgsize_max",
               r->message_size, limit->message_size_max,
               MQLIMIT_HARD_MESSAGE_SIZE);
    if (!text[0])
        text_append(text, sizeof text,
                    "; the kernel refuses depth %" PRIu64
                    " with message size %" PRIu64,
                    r->depth, r->message_size);
    else if (cost > limit->bytes && r->depth <= MQLIMIT_HARD_DEPTH &&
             r->message_size <= MQLIMIT_HARD_MESSAGE_SIZE)
        /* The sum leaves room for all queues that the limit allows now. */
        text_append(text, sizeof text,
                    "; it also costs %" PRIu64 " bytes, over the %" PRIu64
                    " of RLIMIT_MSGQUEUE: raise it too: `ulimit -q %" PRIu64
                    "`, systemd `LimitMSGQUEUE=%" PRIu64 "`",
                    cost, limit->bytes, limit->bytes + cost,
                    limit->bytes + cost);
    return problem_set(p, EX_OSERR, err, "queue %s: %s", r->name, text + 2);
}

int mqlimit_explain(const struct mqlimit *limit,
                    const struct mqlimit_request *request, int err,
                    struct problem *p)
{
    char guard[MQLIMIT_GUARD], mode[64] = "no mode bits were involved";
    uint64_t need;

    switch (err) {
    case EACCES: /* the caller has checked the mode bits */
    case EPERM:  /* the kernel's own checks do not return it */
        if (request->mode)
            snprintf(mode, sizeof mode, "the mode %04o allows it",
                     (unsigned)request->mode);
        return problem_set(p, EX_NOPERM, err,
                           "queue %s: mq_open failed with \"%s\", and %s: a "
                           "security module or a filter of system calls "
                           "(seccomp) denies it; this process has %s; see "
                           "" MQLIMIT_DENIALS,
                           request->name, errno_text(err), mode,
                           mqlimit_guard(guard));
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
            "queue %s: one more queue would exceed fs.mqueue.queues_max = "
            "%" PRIu64
            " of this IPC namespace; `mqctl queues` lists them, `mqctl remove "
            "--orphans` removes those that no process has open, or raise it as "
            "root: `sysctl fs.mqueue.queues_max=%" PRIu64
            "`, `docker run --sysctl fs.mqueue.queues_max=%" PRIu64 "`",
            request->name, limit->queues_max, need, need);
    case ENFILE:
        return problem_set(
            p, EX_OSERR, err,
            "queue %s: the system is out of file handles; "
            "raise as root: `sysctl fs.file-max=N`, with N above "
            "the present value (`sysctl fs.file-max`)",
            request->name);
    case ENOMEM:
        return problem_set(p, EX_OSERR, err,
                           "queue %s: the kernel has no memory for it; see "
                           "`free` and memory.max of the control group",
                           request->name);
    case ENOSYS:
        if (mqlimit_kernel_has_queues())
            return problem_set(
                p, EX_OSERR, err,
                "queue %s: the kernel has POSIX message queues, but a filter "
                "of system calls (seccomp) denies mq_open: allow it, systemd "
                "`SystemCallFilter=`, in a container a newer seccomp profile, "
                "or to try it `docker run --security-opt seccomp=unconfined`",
                request->name);
        return problem_set(p, EX_OSERR, err,
                           "queue %s: this kernel has no POSIX message queues; "
                           "use one that is built with CONFIG_POSIX_MQUEUE=y, "
                           "or a queue on a broker (docs/distributed.md)",
                           request->name);
    default:
        return problem_set(p, EX_OSERR, err, "queue %s: cannot open: %s",
                           request->name, errno_text(err));
    }
}
