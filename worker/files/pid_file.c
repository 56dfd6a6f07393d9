/* pid_file.c - one worker for each state directory (see pid_file.h) */
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

/* Longest wait for an owner that has died or is not visible. A handler that the
 * owner was starting has the lock until its execve, which takes long if the
 * disk is blocked. */
#define DEAD_NS    (30 * NS_PER_S)
#define LOG_NS     NS_PER_S /* until the wait is logged */
#define PF_EXITING 0x4 /* include/linux/sched.h; field 9 of proc_pid_stat(5) */

struct pid_file {
    char path[PATH_MAX], folder_path[PATH_MAX]; /* constant after open */
    int pidfile, folder;                        /* locked; -1: not */
    bool folder_taken; /* another process had the folder at the last try */
    bool logged_wait;
    pid_t last; /* the pid in the pidfile when it was locked; 0: none */
};

/* Return true if a process is gone, a zombie, exiting, or about to be killed by
 * SIGKILL. */
static bool owner_is_dying(pid_t pid)
{
    char path[64], text[4096];
    const char *at;
    char state;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (pid <= 0 || file_read_text(path, text, sizeof text) <= 0)
        return true;
    at = strrchr(text, ')'); /* then field 3, a letter */
    state = at && at[1] ? at[2] : '\0';
    for (int field = 2; at && field < 9; field++)
        at = strchr(at + 1, ' ');
    if (state == 'Z' || state == 'X' ||
        (at && strtoul(at + 1, NULL, 10) & PF_EXITING))
        return true;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (file_read_text(path, text, sizeof text) <= 0)
        return true;
    for (int i = 0; i < 2; i++) {
        at = strstr(text, i ? "ShdPnd:" : "SigPnd:");
        if (at && strtoull(at + 7, NULL, 16) & UINT64_C(1) << (SIGKILL - 1))
            return true;
    }
    return false;
}

/* Return true if a process has the file open, or if its descriptors cannot be
 * listed. A process of another PID namespace, or with hidepid=2, is not visible
 * and counts as gone. */
static bool owner_has_open(pid_t pid, const char *path)
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

/* Return -EAGAIN if the lock will be free soon; otherwise set a problem that
 * says who has it. Two kinds of holders release it soon:
 * - A program that tests the lock (worker_lock_look) has it for a moment, and
 *   shared, so that worker_lock_look tells it from a worker, even if an old
 *   pidfile names a living process.
 * - If the owner has died, a child that it was starting has the lock until its
 *   execve. The owner's pid may belong to another process by then, but that
 *   process does not have our pidfile open. */
static int lock_refuse(struct pid_file *l, const char *queue, uint64_t waited,
                       struct problem *p)
{
    const char *path = l->path;
    char root[PATH_MAX];
    pid_t owner;
    bool held = worker_lock_look(path, &owner) == WORKER_RUNS;
    bool ended = !held || owner_is_dying(owner) || !owner_has_open(owner, path);

    if (ended &&
        waited < (held && owner > 0 ? DEAD_NS : WORKER_LOCK_DYING_NS)) {
        if (waited >= LOG_NS && held && owner > 0 && !l->logged_wait) {
            log_warn("start_waits", F_STR("queue", queue),
                     F_STR("pidfile", path), F_INT("dead", owner));
            l->logged_wait = true;
        }
        return -EAGAIN;
    }
    if (held && owner <= 0 && l->folder_taken)
        return problem_set(p, EX_UNAVAILABLE, EBUSY,
                           "queue %s already has a consumer whose pidfile was "
                           "removed, or mqctl move or mqctl forget is running: "
                           "find the process with `fuser -v %s`, and stop it "
                           "or wait until it exits",
                           queue, l->folder_path);
    if (!held)
        return problem_set(p, EX_UNAVAILABLE, EBUSY,
                           "pidfile %s: a program that checks whether a worker "
                           "is running does not finish; find it with fuser(1) "
                           "and stop it",
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
                           "which is not visible here: it is running in "
                           "another container, or it has exited and a process "
                           "that it was starting still has its lock; find the "
                           "process with fuser(1) and stop it",
                           queue, (int)owner, path);
    if (queue[0] != '/')
        return problem_set(p, EX_UNAVAILABLE, EEXIST,
                           "queue %s already has a worker on this machine with "
                           "this state directory: pid %d (%s). Stop it with "
                           "kill %d, or give this worker its own --state-dir",
                           queue, (int)owner, path, (int)owner);
    strlcpy(root, l->folder_path, sizeof root);
    (void)file_parent(root);
    return problem_set(
        p, EX_UNAVAILABLE, EEXIST,
        "queue %s already has a consumer: pid %d (%s); "
        "stop it with mqctl stop %s, or let it run more handlers "
        "at the same time: mqctl set %s max-concurrency=N",
        queue, (int)owner, path, STATEDIR_OPERAND(root, queue),
        STATEDIR_OPERAND(root, queue));
}

bool pid_file_has_folder(const struct pid_file *l)
{
    struct stat is, named;

    return fstat(l->folder, &is) == 0 && stat(l->folder_path, &named) == 0 &&
           file_same(&is, &named);
}

/* Lock the pidfile. Returns its descriptor, or -1 with errno. pidfile_open(3)
 * cannot be used, because a handler that another thread starts at that moment
 * would inherit its descriptor, and the lock would outlive us. The last owner
 * may remove the file between our open and lock; then try again. */
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

/* Remove the pidfile, with its lock. If another file has its name by now, that
 * file stays. */
static void pidfile_remove(const char *path, int *fd)
{
    if (*fd >= 0 && file_named(*fd, path))
        unlink(path);
    fd_close(fd);
}

/* Lock the folder of the pidfile, then the pidfile: both, or neither, with
 * errno. The folder comes first, because our pidfile must not appear and
 * disappear while another process has only the folder (mqctl move, or a worker
 * whose pidfile was removed). mqctl forget moves the folder away before it
 * removes it, so a folder that has lost its name counts as taken. */
static bool locks_try(struct pid_file *l)
{
    int err = 0;

    l->folder_taken = false;
    l->folder = open(l->folder_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (l->folder < 0)
        return false;
    l->folder = file_fd_raise(l->folder);
    if (flock(l->folder, LOCK_EX | LOCK_NB) < 0)
        err = errno;
    else if (!pid_file_has_folder(l))
        err = EWOULDBLOCK;
    l->folder_taken = err == EWOULDBLOCK;
    if (!err) {
        l->pidfile = pidfile_lock(l->path);
        if (l->pidfile >= 0)
            return true;
        err = errno;
    }
    fd_close(&l->folder);
    errno = err;
    return false;
}

/* Write a pid to the pidfile. */
static int pid_write(int pidfile, pid_t pid)
{
    char text[16];
    int size = snprintf(text, sizeof text, "%d", (int)pid);

    return ftruncate(pidfile, 0) < 0
               ? -errno
               : file_write(pidfile, text, (size_t)size, 0);
}

/* Free the struct; the kernel drops its locks. */
static void pid_file_free(struct pid_file *l)
{
    fd_close(&l->pidfile);
    fd_close(&l->folder);
    free(l);
}

int pid_file_open(struct pid_file **out, const char *path, const char *queue,
                  struct problem *p)
{
    struct pid_file *l = calloc(1, sizeof *l);
    uint64_t start = clock_mono_ns();
    char text[16];
    ssize_t n;
    int err = 0;

    *out = NULL;
    if (!l)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    l->pidfile = l->folder = -1;
    strlcpy(l->path, path, sizeof l->path);
    strlcpy(l->folder_path, path, sizeof l->folder_path);
    (void)file_parent(l->folder_path);
    /* Wait until both locks are ours. Fail as soon as they will not be free
     * soon. */
    while (!err && !locks_try(l)) {
        if (errno == EROFS)
            err = folder_read_only(path, p);
        else if (errno == ENOENT)
            err = problem_set(
                p, EX_CANTCREAT, ENOENT,
                "the folder of %s was removed while the worker was starting, "
                "for example by mqctl forget; start the worker again",
                path);
        else if (errno != EEXIST && errno != EAGAIN && errno != EINTR)
            err = problem_set(p, EX_CANTCREAT, errno,
                              "pidfile %s: %s; give another --state-dir, or "
                              "fix its permissions",
                              path, errno_text(errno));
        else
            err = lock_refuse(l, queue, clock_mono_ns() - start, p);
        if (err == -EAGAIN) {
            poll(NULL, 0, WORKER_LOCK_LOOK_MS);
            err = 0;
        }
    }
    if (!err) {
        n = pread(l->pidfile, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = '\0';
        l->last = (pid_t)strtol(text, NULL, 10); /* pid of a killed worker */
        err = pid_write(l->pidfile, getpid());
        if (err) {
            pidfile_remove(l->path, &l->pidfile);
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

/* Crash in here: the pidfile stays, without a lock, as after a kill. */
void pid_file_give_back(struct pid_file *l)
{
    if (!l || l->last <= 0 || pid_write(l->pidfile, l->last) < 0)
        return;
    fd_close(&l->pidfile);
}

void pid_file_close(struct pid_file **lock)
{
    struct pid_file *l = *lock;

    if (!l)
        return;
    *lock = NULL;
    pidfile_remove(l->path, &l->pidfile);
    pid_file_free(l);
}
