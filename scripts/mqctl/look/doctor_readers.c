/* doctor_readers.c - who else receives from a queue (see doctor.h)
 *
 * The kernel hands a message directly to a process that is blocked in
 * mq_receive. A process that waits in poll or epoll, as a worker does, is not
 * even woken (pipelined_send in ipc/mqueue.c).
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/process_stat.h"
#include "common/base/safe_text.h"
#include "common/mq/queue.h"
#include "scripts/mqctl/look/doctor.h"
#include "scripts/mqctl/proc.h"

#define AGAIN_NS 20000000 /* until the second check of a process */

struct readers {
    struct findings *f;
    const struct snapshot *v;
    dev_t dev; /* of the queue */
    ino_t ino;
    unsigned others;
};

/* A descriptor that a thread may wait at. */
struct waiting {
    pid_t pid;
    int fd;
    bool is;
};

/* thread_look - visit: a thread that is in mq_timedreceive(fd) now */
static bool thread_look(int thread, void *arg)
{
    struct waiting *w = arg;
    char text[256], *at;

    /* "243 0x3 ...", in numbers of this machine; "running" is neither. */
    w->is = proc_text(text, sizeof text, "/proc/%d/task/%d/syscall",
                      (int)w->pid, thread) &&
            strtol(text, &at, 10) == SYS_mq_timedreceive &&
            strtol(at, NULL, 16) == w->fd;
    return !w->is;
}

/* blocked - any thread of a process */
static bool blocked(pid_t pid, int fd)
{
    struct waiting w = {.pid = pid, .fd = fd};
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    (void)proc_numbers(path, thread_look, &w);
    return w.is;
}

/* child_of - its parent is that worker, or a child of it that runs the same
 * program still */
static bool child_of(pid_t pid, pid_t worker)
{
    struct process_stat st;

    if (!process_stat(pid, &st))
        return false;
    if (st.parent == worker)
        return true;
    return proc_same_program(st.parent, worker) &&
           process_stat(st.parent, &st) && st.parent == worker;
}

/* Return true if the process has the queue open only for a moment and takes no
 * messages: another mqctl, or a starting handler. Until its exec a handler has
 * copies of all descriptors of the worker; the exec first changes the name of
 * the program and then closes the descriptors. So check each process twice: a
 * handler that has opened the queue for itself does take messages. */
static bool is_passing(const struct readers *r, const struct fd_seen *seen)
{
    pid_t worker = r->v->worker == SNAPSHOT_RUNS ? r->v->pid : 0;
    uint64_t start = process_start_time(seen->pid);
    struct timespec nap = {.tv_nsec = AGAIN_NS};
    struct stat st;
    char path[64];

    if (proc_same_program(seen->pid, getpid()))
        return true;
    if (worker && child_of(seen->pid, worker) &&
        proc_same_program(seen->pid, worker))
        return true;
    while (nanosleep(&nap, &nap) < 0 && errno == EINTR)
        ;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)seen->pid, seen->fd);
    return stat(path, &st) < 0 || st.st_dev != r->dev || st.st_ino != r->ino ||
           process_start_time(seen->pid) != start;
}

/* worker_found - an mqworker: it may have the only copy of its messages, so the
 * advice is never to kill it */
static void worker_found(const struct readers *r, const struct holder *h)
{
    if (h->there)
        FOUND(r->f, WARN, "other consumers",
              fix(r->f, "mqctl doctor --state-dir %.*s %s",
                  (int)(strrchr(h->folder, '/') - h->folder), h->folder,
                  SHELL_QUEUE(r->v->queue)),
              "an mqworker (pid %d) takes messages of this queue, too: its "
              "state is in %s",
              (int)h->pid, h->folder);
    else
        FOUND(r->f, BAD, "other consumers",
              "do not kill it: put the folder back, then it goes on by itself; "
              "a removed one it writes again (docs/runbook.md, A file is gone)",
              "an mqworker (pid %d) has the queue open, and its state "
              "directory is not to be seen here: it was removed, moved, "
              "unmounted or mounted over%s%s",
              (int)h->pid, h->folder[0] ? "; it has files open in " : "",
              h->folder);
}

/* Read the name of a program. */
static void name_read(pid_t pid, char name[64])
{
    (void)proc_text(name, 64, "/proc/%d/comm", (int)pid);
    name[strcspn(name, "\n")] = '\0';
}

/* Note that systemd created the queue (mqworker@.socket) and only waits for the
 * first message. */
static bool is_systemd(const struct readers *r, pid_t pid)
{
    char name[64];

    name_read(pid, name);
    if (strcmp(name, "systemd") != 0)
        return false;
    FOUND(r->f, NOTE, "other consumers",
          "systemctl --version; see \"A queue made by systemd\" in "
          "docs/systemd.md",
          "systemd (pid %d) has the queue open, for a socket unit; a systemd "
          "before version 258 hangs at a reboot if messages are left in it",
          (int)pid);
    return true;
}

/* other_found - any other program */
static void other_found(const struct readers *r, pid_t pid, bool waits)
{
    char name[64];

    name_read(pid, name);
    (void)fix(r->f, "kill %d", (int)pid);
    if (waits)
        FOUND(r->f, BAD, "other consumers", r->f->fix,
              "pid %d (%s) is blocked in mq_receive: the kernel hands it each "
              "message before a worker is woken",
              (int)pid, name);
    else
        FOUND(
            r->f, WARN, "other consumers", r->f->fix,
            "pid %d (%s) has the queue open to receive, and may take messages "
            "from the worker",
            (int)pid, name);
}

/* reader_look - visit: a descriptor of this queue in another process */
static void reader_look(const struct fd_seen *seen, void *arg)
{
    struct readers *r = arg;
    struct holder h;
    bool waits, holds;

    if (seen->st.st_dev != r->dev || seen->st.st_ino != r->ino ||
        seen->pid == getpid() ||
        (r->v->worker == SNAPSHOT_RUNS && seen->pid == r->v->pid) ||
        !holder_receives(seen->pid, seen->fd))
        return;
    waits = blocked(seen->pid, seen->fd);
    if (!waits && is_passing(r, seen))
        return;
    holds = holder_is(&h, seen->pid, r->v->queue);
    if (holds && holder_is_of(&h, r->v->dir.folder))
        return; /* our own worker, started since its lock was checked */
    if (!waits && is_systemd(r, seen->pid))
        return;
    r->others++;
    if (holds)
        worker_found(r, &h);
    else
        other_found(r, seen->pid, waits);
}

/* readers_check - all descriptors of this queue that we can see */
void readers_check(struct findings *f, const struct snapshot *v)
{
    struct readers r = {.f = f, .v = v};
    struct problem p;
    struct queue *q;
    struct stat st;
    size_t hidden = 0;

    if (queue_open(&q, v->queue, 0, NULL, NULL, &p) < 0)
        return; /* kernel_check has said why */
    if (fstat(queue_fd(q), &st) == 0) {
        r.dev = st.st_dev;
        r.ino = st.st_ino;
        fds_each(reader_look, &r, &hidden);
    }
    queue_close(&q);
    if (r.others == 0)
        FOUND(f, FINE, "other consumers", NULL, "none%s",
              hidden ? " among the processes that we may look into" : "");
    if (hidden)
        FOUND(f, NOTE, "other consumers", "run mqctl doctor as root",
              "%zu process%s of other users could not be looked into", hidden,
              hidden == 1 ? "" : "es");
}
