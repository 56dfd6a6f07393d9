/* lock.c - one worker for each queue and state directory (see lock.h) */
#include "worker/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/libutil.h>

#include "common/clock.h"
#include "common/worker_lock.h"

#define DYING_NS   (10 * NS_PER_S) /* a core dump takes its time */
#define LOOK_MS    2
#define PF_EXITING 0x4 /* include/linux/sched.h; field 9 of proc_pid_stat(5) */

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

/* refused - why the lock cannot be had: -EAGAIN if it will be, soon
 * Who only looks (worker_lock_look) holds it shared, for a moment. The kernel
 * tells it apart: next to a worker's lock no other can be had, next to one of
 * those a shared one can. So somebody who looks cannot refuse a start, whatever
 * number an old pidfile names; what he may do is delay it.
 */
static int refused(const char *path, const char *queue, bool late,
                   struct problem *p)
{
    pid_t owner;
    bool held = worker_lock_look(path, &owner) == WORKER_RUNS;

    if (!late && (!held || dying(owner)))
        return -EAGAIN;
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
    return problem_set(p, EX_UNAVAILABLE, EEXIST,
                       "queue %s already has a consumer: pid %d (%s); "
                       "stop it with kill %d, or have it run more at "
                       "once: mqctl set %s max-concurrency=N",
                       queue, (int)owner, path, (int)owner, queue);
}

/* lock_open - try; wait only for one that is on its way out, or only looks */
int lock_open(struct pidfh **out, const char *path, const char *queue,
              struct problem *p)
{
    uint64_t end = clock_mono_ns() + DYING_NS;
    pid_t said; /* by a file that may be an old one: not used */
    int err;

    while ((*out = pidfile_open(path, 0600, &said)) == NULL) {
        if (errno == ENOMEM || errno == EFAULT) /* libbsd's own strdup */
            return problem_set(p, EX_OSERR, ENOMEM, "pidfile %s: out of memory",
                               path);
        if (errno != EEXIST && errno != EAGAIN && errno != EINTR)
            return problem_set(p, EX_CANTCREAT, errno,
                               "pidfile %s: %s; give another --state-dir, or "
                               "fix its permissions",
                               path, strerror(errno));
        err = refused(path, queue, clock_mono_ns() >= end, p);
        if (err != -EAGAIN)
            return err;
        poll(NULL, 0, LOOK_MS);
    }
    fcntl(pidfile_fileno(*out), F_SETFD, FD_CLOEXEC);
    if (pidfile_write(*out) < 0) {
        err = errno;
        pidfile_close(*out);
        *out = NULL;
        return problem_set(p, EX_CANTCREAT, err,
                           "pidfile %s: %s; free some space, or give another "
                           "--state-dir",
                           path, strerror(err));
    }
    return 0;
}

/* lock_close - the file goes with the lock */
void lock_close(struct pidfh **lock)
{
    if (*lock)
        pidfile_remove(*lock);
    *lock = NULL;
}
