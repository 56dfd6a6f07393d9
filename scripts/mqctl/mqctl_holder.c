/* mqctl_holder.c - see mqctl_holder.h
 *
 * A worker has its pidfile open as long as it runs, whatever becomes of the
 * name; the link of that descriptor says where the file is now.
 */
#include "scripts/mqctl/mqctl_holder.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/mq/queue.h"
#include "common/state/statedir.h"
#include "scripts/mqctl/mqctl_fds.h"

#define DELETED " (deleted)"

/* text_read - a short file of proc(5), NUL-terminated; "" if it is not there */
static void text_read(const char *path, char *buf, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, buf, room - 1) : -1;

    if (fd >= 0)
        close(fd);
    buf[n > 0 ? n : 0] = '\0';
}

bool holder_receives(pid_t pid, int fd)
{
    char path[64], text[512], *at;

    snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", (int)pid, fd);
    text_read(path, text, sizeof text);
    at = strstr(text, "flags:");
    return !at || (strtoul(at + 6, NULL, 8) & O_ACCMODE) != O_WRONLY;
}

/* named - whether its program is called mqworker */
static bool named(pid_t pid)
{
    char path[64], text[64];

    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    text_read(path, text, sizeof text);
    return strcmp(text, "mqworker\n") == 0;
}

/* pidfile_at - whether a descriptor is that of a pidfile; its folder, then */
static bool pidfile_at(struct holder *out, const char *fd, const char *queue)
{
    char path[PATH_MAX];
    struct stat its, name;
    char *slash;
    ssize_t n = readlink(fd, path, sizeof path - 1);

    if (n <= 0 || path[0] != '/')
        return false;
    path[n] = '\0';
    if ((size_t)n > strlen(DELETED) &&
        strcmp(path + n - strlen(DELETED), DELETED) == 0)
        path[(size_t)n - strlen(DELETED)] = '\0';
    slash = strrchr(path, '/');
    if (strcmp(slash + 1, STATEDIR_PIDFILE) != 0)
        return false;
    out->there = stat(fd, &its) == 0 && stat(path, &name) == 0 &&
                 its.st_dev == name.st_dev && its.st_ino == name.st_ino;
    *slash = '\0';
    slash = strrchr(path, '/');
    out->there = out->there && slash && strcmp(slash, queue) == 0;
    snprintf(out->folder, sizeof out->folder, "%s", path);
    return true;
}

bool holder_is(struct holder *out, pid_t pid, const char *queue)
{
    char path[64];
    struct dirent *entry;
    bool is = false;
    DIR *dir;

    *out = (struct holder){.pid = pid};
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    while (dir && !is && (entry = readdir(dir)) != NULL) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%d/fd/%.20s", (int)pid,
                 entry->d_name);
        is = pidfile_at(out, path, queue);
    }
    if (dir)
        closedir(dir);
    return is || named(pid);
}

struct search {
    struct holder *out;
    const char *name;
    struct stat queue;
    bool found;
};

/* fd_look - visit: the first is enough */
static void fd_look(const struct fd_seen *seen, void *arg)
{
    struct search *s = arg;

    if (!s->found && seen->st.st_dev == s->queue.st_dev &&
        seen->st.st_ino == s->queue.st_ino && seen->pid != getpid() &&
        holder_receives(seen->pid, seen->fd))
        s->found = holder_is(s->out, seen->pid, s->name);
}

bool holder_find(struct holder *out, const char *queue)
{
    struct search s = {.out = out, .name = queue};
    struct problem p;
    struct queue *q;
    size_t hidden;

    if (queue_open(&q, queue, 0, NULL, NULL, &p) < 0)
        return false;
    if (fstat(queue_fd(q), &s.queue) == 0)
        fds_each(fd_look, &s, &hidden);
    queue_close(&q);
    return s.found;
}
