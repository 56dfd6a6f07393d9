/* proc.c - see proc.h
 *
 * A worker keeps its pidfile open as long as it runs, even if the file is moved
 * or removed; the link of that descriptor says where the file is now.
 */
#include "scripts/mqctl/proc.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/basics.h"
#include "common/base/file.h"
#include "common/base/problem.h"
#include "common/mq/queue.h"
#include "common/state/statedir.h"

#define DELETED      " (deleted)"
#define MQUEUE_MAGIC 0x19800202 /* include/uapi/linux/magic.h lacks it */

int proc_numbers(const char *folder, bool (*visit)(int number, void *arg),
                 void *arg)
{
    struct dirent *entry;
    DIR *dir = opendir(folder);

    if (!dir)
        return -errno;
    while ((entry = readdir(dir)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0]) &&
            !visit((int)strtol(entry->d_name, NULL, 10), arg))
            break;
    closedir(dir);
    return 0;
}

bool proc_text(char *buf, size_t room, const char *fmt, ...)
{
    char path[64];
    ssize_t n;
    int fd;

    va_list args;

    va_start(args, fmt);
    vsnprintf(path, sizeof path, fmt, args);
    va_end(args);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd >= 0 ? read(fd, buf, room - 1) : -1;
    if (fd >= 0)
        close(fd);
    buf[n > 0 ? n : 0] = '\0';
    return n > 0;
}

bool proc_same_program(pid_t a, pid_t b)
{
    char path[32];
    struct stat x, y;

    snprintf(path, sizeof path, "/proc/%d/exe", (int)a);
    if (stat(path, &x) < 0)
        return false;
    snprintf(path, sizeof path, "/proc/%d/exe", (int)b);
    return stat(path, &y) == 0 && file_same(&x, &y);
}

/* Read a link without " (deleted)"; false if there is none. */
static bool link_read(const char *path, char out[PATH_MAX])
{
    ssize_t n = readlink(path, out, PATH_MAX - 1);
    size_t end = sizeof DELETED - 1, size = n > 0 ? (size_t)n : 0;

    out[size] = '\0';
    if (size > end && strcmp(out + size - end, DELETED) == 0)
        out[size - end] = '\0';
    return size > 0;
}

struct walk {
    struct fds *out;
    pid_t pid;
    int err;
};

/* Visit a descriptor of a process: list it if it is a message queue. */
static bool fd_visit(int fd, void *arg)
{
    struct walk *w = arg;
    struct fds *all = w->out;
    char path[64], name[PATH_MAX];
    struct fd_seen *seen;
    struct statfs fs;
    struct stat st;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)w->pid, fd);
    /* Most descriptors have no path ("socket:[17]"): skip them early. */
    if (!link_read(path, name) || name[0] != '/' || !name[1] ||
        strchr(name + 1, '/') || statfs(path, &fs) < 0 ||
        fs.f_type != MQUEUE_MAGIC || stat(path, &st) < 0)
        return true;
    seen = array_grow(all->at, all->count, &all->room, sizeof *seen);
    if (!seen) {
        w->err = -ENOMEM;
        return false;
    }
    all->at = seen;
    seen += all->count++;
    *seen = (struct fd_seen){
        .pid = w->pid, .fd = fd, .dev = st.st_dev, .ino = st.st_ino};
    strlcpy(seen->name, name, sizeof seen->name);
    return true;
}

/* Visit the descriptors of a process, which may be hidden from us, or exit. */
static bool process_look(int pid, void *arg)
{
    struct walk *w = arg;
    char path[32];
    int err;

    w->pid = pid;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    err = proc_numbers(path, fd_visit, w);
    w->out->hidden += err && err != -ENOENT && err != -ESRCH;
    return !w->err;
}

int fds_read(struct fds *out)
{
    struct walk w = {.out = out};

    *out = (struct fds){.count = 0};
    (void)proc_numbers("/proc", process_look, &w);
    if (w.err)
        fds_free(out);
    return w.err;
}

void fds_free(struct fds *f)
{
    free(f->at);
    *f = (struct fds){.count = 0};
}

/* ---- workers ---- */

bool holder_receives(pid_t pid, int fd)
{
    char text[512], *at;

    (void)proc_text(text, sizeof text, "/proc/%d/fdinfo/%d", (int)pid, fd);
    at = strstr(text, "flags:");
    return !at || (strtoul(at + 6, NULL, 8) & O_ACCMODE) != O_WRONLY;
}

struct pidfile_search {
    struct holder *out;
    const char *queue;
    bool found;
};

/* Visit a descriptor: if it is a pidfile, note its folder. */
static bool pidfile_find(int fd, void *arg)
{
    struct pidfile_search *s = arg;
    char entry[64], target[PATH_MAX], *slash;
    struct stat its, name;

    snprintf(entry, sizeof entry, "/proc/%d/fd/%d", (int)s->out->pid, fd);
    if (!link_read(entry, target) || target[0] != '/')
        return true;
    slash = strrchr(target, '/');
    if (strcmp(slash + 1, STATEDIR_PIDFILE) != 0)
        return true;
    s->out->there = stat(entry, &its) == 0 && stat(target, &name) == 0 &&
                    file_same(&its, &name);
    *slash = '\0';
    slash = strrchr(target, '/');
    s->out->there = s->out->there && slash && strcmp(slash, s->queue) == 0;
    strlcpy(s->out->folder, target, sizeof s->out->folder);
    s->found = true;
    return false;
}

bool holder_is(struct holder *out, pid_t pid, const char *queue)
{
    struct pidfile_search s = {.out = out, .queue = queue};
    char text[64];

    *out = (struct holder){.pid = pid};
    snprintf(text, sizeof text, "/proc/%d/fd", (int)pid);
    (void)proc_numbers(text, pidfile_find, &s);
    return s.found ||
           (proc_text(text, sizeof text, "/proc/%d/comm", (int)pid) &&
            strcmp(text, "mqworker\n") == 0);
}

bool holder_is_of(const struct holder *h, const char *folder)
{
    struct stat its, ours;

    return h->there && stat(h->folder, &its) == 0 && stat(folder, &ours) == 0 &&
           file_same(&its, &ours);
}

bool holder_find(struct holder *out, const char *queue, const struct fds *fds)
{
    struct fds own = {.count = 0};
    struct stat st = {.st_ino = 0};
    bool found = false;
    struct problem p;
    struct queue *q;

    if (queue_open(&q, queue, 0, NULL, NULL, &p) < 0)
        return false;
    if (!fds && fds_read(&own) == 0)
        fds = &own;
    if (fds && fstat(queue_fd(q), &st) == 0)
        for (size_t i = 0; i < fds->count && !found; i++) {
            const struct fd_seen *seen = &fds->at[i];

            found = seen->dev == st.st_dev && seen->ino == st.st_ino &&
                    seen->pid != getpid() &&
                    holder_receives(seen->pid, seen->fd) &&
                    holder_is(out, seen->pid, queue);
        }
    queue_close(&q);
    fds_free(&own);
    return found;
}
