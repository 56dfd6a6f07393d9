/* queue.c - one POSIX message queue (see queue.h)
 *
 * Queues are closed with close(2), which is all that mq_close(3) does, so that
 * the thread sanitizer knows that the number may be reused.
 */
#include "common/mq/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <mqueue.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/mq/mqlimit.h"

#define MODE_DEFAULT 0600

/* Time between checks that a full queue still has a name. */
#define NAME_CHECK_NS NS_PER_S

/* Constant after open: any thread may use it without a lock. */
struct queue {
    int fd;
    int claim; /* our own open file if fd is shared, else -1 */
    size_t depth, message_size;
    char label[QUEUE_NAME_MAX];
};

/* A request to queue_open. */
struct opening {
    char label[QUEUE_NAME_MAX];
    int oflag;
    bool sized;             /* depth or message size was given */
    struct queue_attr want; /* complete: defaults are filled in */
};

/* Call mq_open, non-blocking; returns the descriptor or -errno. */
static int fd_open(const char *label, int oflag, mode_t mode,
                   struct mq_attr *attr)
{
    mqd_t fd = mq_open(label, oflag | O_NONBLOCK, mode, attr);

    return fd == (mqd_t)-1 ? -errno : fd;
}

/* Convert to the kernel's type. A value over `hard` becomes hard + 1, which the
 * kernel refuses. */
static long attr_clamp(uint64_t value, uint64_t hard)
{
    return (long)(value > hard ? hard + 1 : value);
}

/* Create the queue, or open it if it exists; O_EXCL tells which. Another
 * process may create or remove it between the two calls; then try again. On
 * failure nothing is left behind. */
static int fd_create(const struct opening *o, bool *created)
{
    const struct queue_attr *want = &o->want;
    struct mq_attr attr = {
        .mq_maxmsg = attr_clamp(want->depth, MQLIMIT_HARD_DEPTH),
        .mq_msgsize = attr_clamp(want->message_size, MQLIMIT_HARD_MESSAGE_SIZE),
    };

    for (;;) {
        int fd = fd_open(o->label, o->oflag | O_CREAT | O_EXCL, want->mode,
                         o->sized ? &attr : NULL);

        *created = fd >= 0;
        if (fd >= 0 && fchmod(fd, want->mode) != 0) { /* undo the umask */
            int err = errno;
            close(fd);
            mq_unlink(o->label);
            return -err;
        }
        if (fd != -EEXIST)
            return fd;
        fd = fd_open(o->label, o->oflag, 0, NULL);
        if (fd != -ENOENT)
            return fd;
    }
}

/* Find owner, mode and identity of a queue that could not be opened: with a
 * descriptor that only reads or only writes if possible, else by its file in
 * /dev/mqueue. */
static bool owner_find(const char *label, struct stat *st)
{
    static const int less[] = {O_RDONLY, O_WRONLY};
    char path[sizeof "/dev/mqueue" + QUEUE_NAME_MAX];

    for (size_t i = 0; i < sizeof less / sizeof less[0]; i++) {
        int fd = fd_open(label, less[i], 0, NULL);
        int err;

        if (fd < 0)
            continue;
        err = fstat(fd, st);
        close(fd);
        if (!err)
            return true;
    }
    snprintf(path, sizeof path, "/dev/mqueue%s", label);
    return lstat(path, st) == 0;
}

/* Explain why mq_open failed: if access is denied, who owns the queue and which
 * permission is missing. */
static int open_explain(const struct opening *o, int err, struct problem *p)
{
    static const char *const needs[] = {"read", "write", "read and write"};
    static const mode_t bits[] = {4, 2, 6};
    const char *need = needs[o->oflag & O_ACCMODE];
    char safe[QUEUE_NAME_SAFE];
    char ours[FOLDER_USER], his[FOLDER_USER], group[FOLDER_USER];
    const char *group_sends =
        (o->oflag & O_ACCMODE) == O_WRONLY
            ? "; `mqctl create --mode 0620` makes queues to which a group may "
              "send"
            : "";
    bool found = false, denied = false; /* by something but mode bits */
    struct stat st;
    struct mqlimit limit;
    struct mqlimit_request request = {
        .name = safe,
        .depth = o->want.depth,
        .message_size = o->want.message_size,
        .descriptors_gone = err == EMFILE && problem_descriptors_gone(),
    };

    safe_text_copy(safe, sizeof safe, o->label, strlen(o->label));
    if (err == ENOENT)
        return problem_set(p, EX_NOINPUT, err,
                           "queue %s does not exist; start its mqworker "
                           "(without --no-create), or run `mqctl create %s`",
                           safe, SHELL_QUEUE(safe));
    /* A queue that exists and cannot be opened gives EACCES. Everybody may
     * create one, so mode bits have not denied a queue that is missing. */
    if (err == EACCES) {
        int fd = fd_open(o->label, O_RDONLY, 0, NULL);

        if (fd >= 0)
            close(fd);
        found = fd != -ENOENT && owner_find(o->label, &st);
        if (found && mqlimit_allows(st.st_uid, st.st_gid, st.st_mode & 0777,
                                    bits[o->oflag & O_ACCMODE]))
            request.mode = st.st_mode & 07777;
        denied = fd == -ENOENT || request.mode;
    }
    if (err != EACCES || denied) {
        mqlimit_read(&limit);
        mqlimit_fill(&limit, &request.depth, &request.message_size);
        return mqlimit_explain(&limit, &request, err, p);
    }
    folder_user(geteuid(), ours);
    if (!found)
        return problem_set(p, EX_NOPERM, err,
                           "queue %s: no %s permission for %s; run as its "
                           "owner; to see who that is, mount /dev/mqueue as "
                           "root: `mount -t mqueue none /dev/mqueue`%s",
                           safe, need, ours, group_sends);
    return problem_set(p, EX_NOPERM, err,
                       "queue %s: no %s permission for %s: it belongs to "
                       "%s, %s, with mode %04o; run as that user, or have "
                       "the owner `chmod` it where it is mounted "
                       "(/dev/mqueue)%s",
                       safe, need, ours, folder_user(st.st_uid, his),
                       folder_group(st.st_gid, group),
                       (unsigned)(st.st_mode & 07777), group_sends);
}

/* Make a struct queue for a descriptor, with the queue's attributes. */
static int queue_wrap(struct queue **out, const char *label, int fd)
{
    struct mq_attr attr;
    struct queue *queue;

    if (mq_getattr(fd, &attr) != 0)
        return -errno;
    queue = calloc(1, sizeof *queue);
    if (!queue)
        return -ENOMEM;
    queue->fd = fd;
    queue->claim = -1;
    queue->depth = (size_t)attr.mq_maxmsg;
    queue->message_size = (size_t)attr.mq_msgsize;
    snprintf(queue->label, sizeof queue->label, "%s", label);
    *out = queue;
    return 0;
}

int queue_open(struct queue **out, const char *name, int flags,
               const struct queue_attr *attr, bool *created, struct problem *p)
{
    bool both = (flags & QUEUE_RECEIVE) && (flags & QUEUE_SEND), made = false;
    struct opening o = {.want = attr ? *attr : (struct queue_attr){0}};
    struct mqlimit limit;
    int err, fd;

    *out = NULL;
    err = queue_name(name, o.label, p);
    if (err)
        return err;
    o.oflag = both ? O_RDWR : flags & QUEUE_SEND ? O_WRONLY : O_RDONLY;
    o.sized = o.want.depth || o.want.message_size;
    if (o.want.mode == 0)
        o.want.mode = MODE_DEFAULT;
    /* mq_open takes both sizes or neither: fill in the kernel's default for a
     * missing one. */
    if (flags & QUEUE_CREATE) {
        mqlimit_read(&limit);
        mqlimit_fill(&limit, &o.want.depth, &o.want.message_size);
    }
    fd = flags & QUEUE_CREATE ? fd_create(&o, &made)
                              : fd_open(o.label, o.oflag, 0, NULL);
    err = fd < 0 ? fd : queue_wrap(out, o.label, fd);
    if (err) {
        if (fd >= 0)
            close(fd);
        if (made)
            mq_unlink(o.label);
        return open_explain(&o, -err, p);
    }
    if (created)
        *created = made;
    return 0;
}

int queue_replace(struct queue *queue, struct queue **fresh, struct problem *p)
{
    int err = 0;

    if (dup3((*fresh)->fd, queue->fd, O_CLOEXEC) < 0) {
        err = problem_set(p, EX_OSERR, errno, "queue %s: %s", queue->label,
                          errno_text(errno));
    } else {
        if (queue->claim >= 0)
            close(queue->claim);
        queue->claim = -1;
        queue->depth = (*fresh)->depth;
        queue->message_size = (*fresh)->message_size;
    }
    queue_close(fresh);
    return err;
}

/* Return true if the link of a descriptor in /proc has that name, or if there
 * is no /proc. The link of a descriptor of mq_open(3) is the name itself; the
 * link of a file opened below a mount point is a path. A name has one slash, so
 * compare from the last slash. */
static bool fd_has_name(int fd, const struct stat *st, const char *name)
{
    static const char gone[] = " (deleted)";
    char entry[64], target[PATH_MAX], *slash;
    size_t size;
    ssize_t n;

    snprintf(entry, sizeof entry, "/proc/self/fd/%d", fd);
    n = readlink(entry, target, sizeof target - 1);
    if (n < 0)
        return true;
    target[n] = '\0';
    size = (size_t)n;
    if (st->st_nlink == 0 && size > sizeof gone - 1 &&
        strcmp(target + size - (sizeof gone - 1), gone) == 0)
        target[size - (sizeof gone - 1)] = '\0';
    slash = strrchr(target, '/');
    return slash && strcmp(slash, name) == 0;
}

enum queue_match queue_match(int fd, const char *name)
{
    struct mq_attr attr;
    struct stat passed, named;

    if (mq_getattr(fd, &attr) != 0 || fstat(fd, &passed) != 0)
        return QUEUE_NONE;
    if (!owner_find(name, &named))
        return fd_has_name(fd, &passed, name) ? QUEUE_SAME : QUEUE_OTHER;
    return file_same(&passed, &named) ? QUEUE_SAME : QUEUE_OTHER;
}

int queue_adopt(struct queue **out, const char *name, int fd, struct problem *p)
{
    char label[QUEUE_NAME_MAX], safe[QUEUE_NAME_SAFE];
    struct mq_attr attr = {.mq_flags = O_NONBLOCK};
    int err;

    *out = NULL;
    err = queue_name(name, label, p);
    if (err)
        return err;
    safe_text_copy(safe, sizeof safe, label, strlen(label));
    if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY)
        return problem_set(
            p, EX_USAGE, EBADF,
            "queue %s: descriptor %d, passed by the starting program, is open "
            "for writing only. Open it for reading, as ListenMessageQueue= in "
            "a socket unit does",
            safe, fd);
    if (mq_setattr(fd, &attr, NULL) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        err = -errno;
    if (!err)
        err = queue_wrap(out, label, fd);
    if (*out) {
        int claim = fd_open(label, O_RDONLY, 0, NULL);

        (*out)->claim = claim < 0 ? -1 : claim;
        return 0;
    }
    if (err == -EBADF)
        return problem_set(
            p, EX_USAGE, EBADF,
            "queue %s: descriptor %d that was passed in is not an open message "
            "queue; see ListenMessageQueue= in the socket unit",
            safe, fd);
    return problem_set(p, EX_OSERR, -err,
                       "queue %s: cannot take over descriptor %d: %s", safe, fd,
                       errno_text(-err));
}

void queue_close(struct queue **queue)
{
    if (!queue || !*queue)
        return;
    close((*queue)->fd);
    if ((*queue)->claim >= 0)
        close((*queue)->claim);
    free(*queue);
    *queue = NULL;
}

int queue_unlink(const char *name)
{
    char label[QUEUE_NAME_MAX];
    int err = queue_name(name, label, NULL);

    if (err)
        return err;
    return mq_unlink(label) == 0 ? 0 : -errno;
}

int queue_probe(uint64_t depth, uint64_t message_size, char left[QUEUE_PROBE])
{
    struct mq_attr attr = {
        .mq_maxmsg = attr_clamp(depth, MQLIMIT_HARD_DEPTH),
        .mq_msgsize = attr_clamp(message_size, MQLIMIT_HARD_MESSAGE_SIZE)};
    sigset_t all, old;
    char name[QUEUE_PROBE];
    uint64_t random;
    int fd;

    left[0] = '\0';
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return -EAGAIN;
    snprintf(name, sizeof name, "/mqworker-probe-%016" PRIx64, random);
    /* A signal that ends the process waits until the queue is removed. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    fd = fd_open(name, O_CREAT | O_EXCL | O_RDONLY, 0, &attr);
    if (fd >= 0 && mq_unlink(name) < 0 && errno != ENOENT)
        memcpy(left, name, sizeof name);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (fd < 0)
        return fd;
    close(fd);
    return 0;
}

uint64_t queue_charged(char left[QUEUE_PROBE])
{
    const uint64_t cost = mqlimit_cost(1, 1);
    uint64_t low = 0, high; /* limits: all below `low` fail, `high` works */
    struct rlimit before, r;
    int err = 0;

    left[0] = '\0';
    if (getrlimit(RLIMIT_MSGQUEUE, &before) < 0)
        return UINT64_MAX;
    r = before;
    high = before.rlim_max;
    for (uint64_t try = high; !err && !left[0] && low < high;
         try = low + (high - low) / 2) {
        r.rlim_cur = (rlim_t)try;
        err = setrlimit(RLIMIT_MSGQUEUE, &r) < 0 ? -errno
                                                 : queue_probe(1, 1, left);
        if (!err)
            high = try;
        else if (err == -EMFILE && try < before.rlim_max) {
            low = try + 1;
            err = 0;
        }
    }
    (void)setrlimit(RLIMIT_MSGQUEUE, &before);
    return err || left[0] || high < cost ? UINT64_MAX : high - cost;
}

int queue_file_sizes(const char *path, struct queue_attr *out)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), err = 0;
    struct mq_attr attr;

    if (fd < 0)
        return -errno;
    if (mq_getattr(fd, &attr) < 0)
        err = -errno;
    else
        *out = (struct queue_attr){.depth = (uint64_t)attr.mq_maxmsg,
                                   .message_size = (uint64_t)attr.mq_msgsize};
    close(fd);
    return err;
}

int queue_fd(const struct queue *queue)
{
    return queue->fd;
}

const char *queue_label(const struct queue *queue)
{
    return queue->label;
}

size_t queue_message_size(const struct queue *queue)
{
    return queue->message_size;
}

size_t queue_depth(const struct queue *queue)
{
    return queue->depth;
}

long queue_length(const struct queue *queue)
{
    struct mq_attr attr;

    return mq_getattr(queue->fd, &attr) == 0 ? attr.mq_curmsgs : -errno;
}

/* Read the file of the queue, "QSIZE:12 NOTIFY:0 ...", which works without a
 * mounted mqueue file system (mqueue_read_file in ipc/mqueue.c). */
long queue_bytes(const struct queue *q)
{
    static const char name[] = "QSIZE:";
    char text[81];
    ssize_t n = pread(q->fd, text, sizeof text - 1, 0);

    if (n < 0)
        return -errno;
    text[n] = '\0';
    return strncmp(text, name, strlen(name)) == 0
               ? strtol(text + strlen(name), NULL, 10)
               : -EIO;
}

/* The name of a queue counts as its only link, so a queue without links has
 * lost its name. */
bool queue_gone(const struct queue *queue)
{
    struct stat st;

    return fstat(queue->fd, &st) == 0 && st.st_nlink == 0;
}

/* Each claim is a shared lock, which the kernel drops when the process exits. A
 * process can get an exclusive lock only while no other process has a claim.
 * Converting the exclusive lock to a shared one releases it for an instant
 * (flock(2)): if two processes claim the queue at the same time, at least one
 * of them notices the other. */
bool queue_claim(struct queue *queue, pid_t *other)
{
    const struct lock_look look = {.kind = "FLOCK"};
    int fd = queue->claim >= 0 ? queue->claim : queue->fd;
    bool shared = flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    struct stat file;

    /* The holder is not visible from another PID namespace. */
    *other = shared && fstat(fd, &file) == 0 ? lock_find(&file, &look) : 0;
    if (flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        shared = true;
    return !shared;
}

/* Receive by one system call. `priority` is the kernel's own argument, so that
 * it is written first. The call never blocks, so it need not be the
 * cancellation point that mq_receive(3) is, which costs two atomic operations
 * in a process with threads. */
ssize_t queue_receive(struct queue *queue, void *buf, uint32_t *priority)
{
    long size;

    do
        size = syscall(SYS_mq_timedreceive, queue->fd, buf, queue->message_size,
                       priority, NULL);
    while (size < 0 && errno == EINTR); /* no message was received then */
    return size < 0 ? -errno : size;
}

int queue_send(struct queue *queue, const void *data, size_t size,
               uint32_t priority)
{
    const char *from = size ? data : ""; /* mq_send takes no NULL */

    return mq_send(queue->fd, from, size, priority) == 0 ? 0 : -errno;
}

/* mq_timedsend cannot be used, because it runs on the wall clock. Another
 * sender may take the room that poll reported; then wait again.
 * Unlinking a queue wakes no poller, so check the name each second. A queue
 * with room is written to even without a name, because the process that made
 * the room still receives from it. */
int queue_send_wait(struct queue *queue, const void *data, size_t size,
                    uint32_t priority, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd fd = {.fd = queue->fd, .events = POLLOUT};
        int err = queue_send(queue, data, size, priority), n;
        uint64_t now = clock_mono_ns(), left = NAME_CHECK_NS;
        struct timespec limit;

        if (err != -EAGAIN)
            return err;
        if (now >= deadline_ns)
            return -EAGAIN;
        if (deadline_ns - now < left)
            left = deadline_ns - now;
        limit = (struct timespec){(time_t)(left / NS_PER_S),
                                  (long)(left % NS_PER_S)};
        n = ppoll(&fd, 1, &limit, NULL);
        if (n < 0)
            return -errno;
        if (n == 0 && queue_gone(queue))
            return -EIDRM;
    }
}

/* Append a sentence if an attribute was requested and differs. */
static void difference_add(char *text, size_t room, const char *what,
                           bool octal, uint64_t is, uint64_t asked)
{
    if (asked != 0 && asked != is)
        text_append(text, room,
                    octal ? "%s%s is %04jo, not %04jo as requested"
                          : "%s%s is %ju, not %ju as requested",
                    text[0] ? "; " : "", what, (uintmax_t)is, (uintmax_t)asked);
}

bool queue_differs(const struct queue *queue, const struct queue_attr *want,
                   char *text, size_t room)
{
    struct stat st;

    text[0] = '\0';
    difference_add(text, room, "queue depth", false, queue->depth, want->depth);
    difference_add(text, room, "message size", false, queue->message_size,
                   want->message_size);
    if (fstat(queue->fd, &st) == 0)
        difference_add(text, room, "mode", true, st.st_mode & 07777,
                       want->mode);
    return text[0] != '\0';
}

/* ---- patience: how long a send waits before it reports that ---- */

#define SILENCE_NS NS_PER_S

void patience_start(struct patience *p)
{
    p->end_ns = ns_add(clock_mono_ns(), SILENCE_NS);
}

bool patience_over(struct patience *p)
{
    if (p->said || p->end_ns == 0 || clock_mono_ns() < p->end_ns)
        return false;
    p->said = true;
    return true;
}

int patience_send(const struct patient_send *s)
{
    int err = queue_send(s->queue, s->data, s->size, s->priority);

    if (err != -EAGAIN)
        return err;
    patience_start(s->patience);
    if (s->patience->end_ns < s->deadline_ns) {
        err = queue_send_wait(s->queue, s->data, s->size, s->priority,
                              s->patience->end_ns);
        if (err != -EAGAIN)
            return err;
        s->say(patience_over(s->patience), s->arg);
    }
    return queue_send_wait(s->queue, s->data, s->size, s->priority,
                           s->deadline_ns);
}
