/* pid_file.c - one worker for each queue and state directory (see pid_file.h)
 *  */
#include "worker/files/pid_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/state/worker_lock.h"

#define DEAD_NS    (30 * NS_PER_S) /* for what it was starting, a slow disk */
#define TOLD_NS    NS_PER_S
#define PF_EXITING 0x4 /* include/linux/sched.h; field 9 of proc_pid_stat(5) */

struct pid_file {
    char path[PATH_MAX];
    int pidfile, folder; /* locked; -1: not */
    bool folder_taken;   /* by somebody, when it was tried last */
    bool told;           /* that it is waited for */
    pid_t last;          /* of the pidfile when we got it; 0: none was in it */
};

/* proc_text - a file of /proc/PID; false if the process is gone */
static bool proc_text(pid_t pid, const char *name, char *buf, size_t room)
{
    char path[64];
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, buf, room - 1);
    close(fd);
    buf[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* dying - gone, a zombie, exiting, or with a SIGKILL on its way */
static bool dying(pid_t pid)
{
    char text[4096];
    const char *at;
    char state;

    if (pid <= 0 || !proc_text(pid, "stat", text, sizeof text))
        return true;
    at = strrchr(text, ')'); /* then field 3, a letter */
    state = at && at[1] ? at[2] : '\0';
    for (int field = 2; at && field < 9; field++)
        at = strchr(at + 1, ' ');
    if (state == 'Z' || state == 'X' ||
        (at && strtoul(at + 1, NULL, 10) & PF_EXITING))
        return true;
    if (!proc_text(pid, "status", text, sizeof text))
        return true;
    for (int i = 0; i < 2; i++) {
        at = strstr(text, i ? "ShdPnd:" : "SigPnd:");
        if (at && strtoull(at + 7, NULL, 16) & UINT64_C(1) << (SIGKILL - 1))
            return true;
    }
    return false;
}

/* has_open - whether the process has the file open; true where it is seen and
 * its descriptors are not. Of another PID namespace, or with hidepid=2, it is
 * not seen: false, and a start waits as for one that is gone. */
static bool has_open(pid_t pid, const char *path)
{
    const struct dirent *entry;
    struct stat file, is;
    char folder[64];
    bool has = false;
    DIR *dir;

    if (stat(path, &file) < 0)
        return false;
    snprintf(folder, sizeof folder, "/proc/%d/fd", (int)pid);
    dir = opendir(folder);
    if (!dir)
        return errno != ENOENT;
    while (!has && (entry = readdir(dir)))
        has = fstatat(dirfd(dir), entry->d_name, &is, 0) == 0 &&
              file_same(&is, &file);
    closedir(dir);
    return has;
}

/* gone - no worker any more, or not for long
 * A child that it was starting has the lock until its execve, and the number
 * may be another process's by then: that one has no pidfile of ours open.
 */
static bool gone(pid_t pid, const char *path)
{
    return dying(pid) || !has_open(pid, path);
}

/* patience - how long an owner that has ended, or does not look like one, is
 * waited for
 * Nobody else has the lock then, and it can only come free. The longest known
 * wait is that of a child in its execve, for the kernel, on a machine whose
 * disk stands still.
 */
static uint64_t patience(bool held, pid_t owner)
{
    return held && owner > 0 ? DEAD_NS : WORKER_LOCK_DYING_NS;
}

/* refused - why the lock cannot be had: -EAGAIN if it will be, soon
 * A program that only looks (worker_lock_look) holds it shared, for a moment.
 * The kernel tells the two apart: beside a worker's lock no other can be had,
 * beside that of a program that looks a shared one can. So a look cannot refuse
 * a start, whatever number an old pidfile names; it can only delay it.
 */
static int refused(struct pid_file *l, const char *queue, uint64_t waited,
                   struct problem *p)
{
    const char *path = l->path;
    pid_t owner;
    bool held = worker_lock_look(path, &owner) == WORKER_RUNS;
    bool ended = !held || gone(owner, path);

    if (ended && waited < patience(held, owner)) {
        if (waited >= TOLD_NS && held && owner > 0 && !l->told) {
            log_warn("start_waits", F_STR("queue", queue),
                     F_STR("pidfile", path), F_INT("dead", owner));
            l->told = true;
        }
        return -EAGAIN;
    }
    if (held && owner <= 0 && l->folder_taken)
        return problem_set(p, EX_UNAVAILABLE, EBUSY,
                           "queue %s already has a consumer whose pidfile was "
                           "removed, or mqctl move or mqctl forget has it: "
                           "find it with `fuser -v %.*s`, and wait for its end "
                           "or stop it",
                           queue, (int)(strrchr(path, '/') - path), path);
    if (!held)
        return problem_set(p, EX_UNAVAILABLE, EBUSY,
                           "pidfile %s: another program looks whether a worker "
                           "runs, and does not end; find it with fuser(1) and "
                           "stop it",
                           path);
    if (owner <= 0)
        return problem_set(p, EX_UNAVAILABLE, EEXIST,
                           "queue %s already has a consumer, which has not "
                           "written its pid to %s; find it with fuser(1) "
                           "and stop it",
                           queue, path);
    if (ended)
        return problem_set(p, EX_UNAVAILABLE, EEXIST,
                           "queue %s already has a consumer: pid %d (%s), "
                           "which is not seen from here: it runs in another "
                           "container, or has ended and what it was starting "
                           "has its lock; find it with fuser(1) and stop it",
                           queue, (int)owner, path);
    if (queue[0] != '/')
        return problem_set(p, EX_UNAVAILABLE, EEXIST,
                           "queue %s already has a worker on this machine with "
                           "this state directory: pid %d (%s). Stop it with "
                           "kill %d, or give this worker its own --state-dir",
                           queue, (int)owner, path, (int)owner);
    return problem_set(p, EX_UNAVAILABLE, EEXIST,
                       "queue %s already has a consumer: pid %d (%s); "
                       "stop it with kill %d, or have it run more at "
                       "once: mqctl set %s max-concurrency=N",
                       queue, (int)owner, path, (int)owner, SHELL_QUEUE(queue));
}

/* is_named - whether the folder has its name still */
static bool is_named(int fd, const char *folder)
{
    struct stat is, named;

    return fstat(fd, &is) == 0 && stat(folder, &named) == 0 &&
           file_same(&is, &named);
}

/* folder_lock - the folder of the pidfile, ours alone; -1 with errno
 * mqctl forget moves it away before it removes it: a file opened before that is
 * locked in vain, and counts as taken.
 */
static int folder_lock(const char *path)
{
    char folder[PATH_MAX];
    int fd, err;

    strlcpy(folder, path, sizeof folder);
    (void)file_parent(folder);
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    fd = file_fd_raise(fd);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        err = errno;
    else if (is_named(fd, folder))
        return fd;
    else
        err = EWOULDBLOCK;
    close(fd);
    errno = err;
    return -1;
}

/* pidfile_lock - the pidfile, ours alone; -1 with errno
 * Not by pid_file_open(3), which leaves the descriptor to a handler that
 * another thread starts at that moment: a lock that outlives us. Its owner may
 * remove the file before we lock what we opened.
 */
static int pidfile_lock(const char *path)
{
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        int err;

        if (fd < 0)
            return -1;
        fd = file_fd_raise(fd);
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && file_named(fd, path))
            return fd;
        err = errno;
        if (file_named(fd, path)) {
            close(fd);
            errno = err;
            return -1;
        }
        close(fd);
    }
}

/* pidfile_end - it goes, and the lock with it; what has its name by now, and is
 * another file, stays */
static void pidfile_end(const char *path, int *fd)
{
    if (*fd < 0)
        return;
    if (file_named(*fd, path))
        unlink(path);
    close(*fd);
    *fd = -1;
}

/* try - both locks, or neither, and errno
 * The folder first: a holder of only that, as mqctl move, or a worker whose
 * pidfile was removed, must not see ours come and go.
 */
static bool try(struct pid_file *l)
{
    int err;

    l->folder = folder_lock(l->path);
    l->folder_taken = l->folder < 0 && errno == EWOULDBLOCK;
    if (l->folder < 0)
        return false;
    l->pidfile = pidfile_lock(l->path);
    if (l->pidfile >= 0)
        return true;
    err = errno;
    close(l->folder);
    l->folder = -1;
    errno = err;
    return false;
}

/* pid_file_wait - until both are ours; wait only for one that is on its way
 * out, or only looks */
static int pid_file_wait(struct pid_file *l, const char *queue,
                         struct problem *p)
{
    uint64_t start = clock_mono_ns();
    int err;

    while (!try(l)) {
        if (errno == EROFS)
            return folder_read_only(l->path, p);
        if (errno == ENOENT)
            return problem_set(
                p, EX_CANTCREAT, ENOENT,
                "the folder of %s was removed while the worker was starting, "
                "for example by mqctl forget; start the worker again",
                l->path);
        if (errno != EEXIST && errno != EAGAIN && errno != EINTR)
            return problem_set(p, EX_CANTCREAT, errno,
                               "pidfile %s: %s; give another --state-dir, or "
                               "fix its permissions",
                               l->path, errno_text(errno));
        err = refused(l, queue, clock_mono_ns() - start, p);
        if (err != -EAGAIN)
            return err;
        poll(NULL, 0, WORKER_LOCK_LOOK_MS);
    }
    return 0;
}

/* pid_read - who was killed with this pidfile; 0: nobody */
static pid_t pid_read(int pidfile)
{
    char text[16];
    ssize_t n = pread(pidfile, text, sizeof text - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    return (pid_t)strtol(text, NULL, 10);
}

/* pid_write - for those who ask whom to stop */
static int pid_write(int pidfile, pid_t pid)
{
    char text[16];
    int size = snprintf(text, sizeof text, "%d", (int)pid);

    if (ftruncate(pidfile, 0) < 0)
        return -errno;
    errno = ENOSPC; /* of a write that is cut short */
    return pwrite(pidfile, text, (size_t)size, 0) == size ? 0 : -errno;
}

/* pid_file_free - the kernel drops what is locked */
static void pid_file_free(struct pid_file *l)
{
    if (l->pidfile >= 0)
        close(l->pidfile);
    if (l->folder >= 0)
        close(l->folder);
    free(l);
}

int pid_file_open(struct pid_file **out, const char *path, const char *queue,
                  struct problem *p)
{
    struct pid_file *l = calloc(1, sizeof *l);
    int err;

    *out = NULL;
    if (!l)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    l->pidfile = l->folder = -1;
    strlcpy(l->path, path, sizeof l->path);
    err = pid_file_wait(l, queue, p);
    if (!err) {
        l->last = pid_read(l->pidfile);
        err = pid_write(l->pidfile, getpid());
        if (err) {
            pidfile_end(l->path, &l->pidfile);
            err = problem_set(p, EX_CANTCREAT, -err,
                              "pidfile %s: %s; %s, or give another --state-dir",
                              path, errno_text(-err), folder_room(path));
        }
    }
    if (err)
        pid_file_free(l);
    else
        *out = l;
    return err;
}

bool pid_file_has_folder(const struct pid_file *l)
{
    char folder[PATH_MAX];

    strlcpy(folder, l->path, sizeof folder);
    (void)file_parent(folder);
    return is_named(l->folder, folder);
}

/* pid_file_give_back - a kill in here leaves a pidfile that nobody holds, too
 *  */
void pid_file_give_back(struct pid_file *l)
{
    if (!l || l->last <= 0 || pid_write(l->pidfile, l->last) < 0)
        return;
    close(l->pidfile);
    l->pidfile = -1;
}

/* pid_file_close - the file goes with the lock */
void pid_file_close(struct pid_file **lock)
{
    struct pid_file *l = *lock;

    if (!l)
        return;
    *lock = NULL;
    pidfile_end(l->path, &l->pidfile);
    pid_file_free(l);
}
