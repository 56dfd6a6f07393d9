/* mqctl_holder.c - see mqctl_holder.h
 *
 * A worker has its pidfile open as long as it runs, whatever becomes of the
 * name; the link of that descriptor says where the file is now.
 */
#include "scripts/mqctl/mqctl_holder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/mq/queue.h"
#include "common/state/statedir.h"
#include "scripts/mqctl/mqctl_fds.h"

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

/* pidfile_look - visit: whether it is that of a pidfile; its folder, then */
static bool pidfile_look(int fd, void *arg)
{
    struct pidfile_search *s = arg;
    char link[64], path[PATH_MAX], *slash;
    struct stat its, name;

    snprintf(link, sizeof link, "/proc/%d/fd/%d", (int)s->out->pid, fd);
    if (!proc_link(link, path) || path[0] != '/')
        return true;
    slash = strrchr(path, '/');
    if (strcmp(slash + 1, STATEDIR_PIDFILE) != 0)
        return true;
    s->out->there = stat(link, &its) == 0 && stat(path, &name) == 0 &&
                    its.st_dev == name.st_dev && its.st_ino == name.st_ino;
    *slash = '\0';
    slash = strrchr(path, '/');
    s->out->there = s->out->there && slash && strcmp(slash, s->queue) == 0;
    strlcpy(s->out->folder, path, sizeof s->out->folder);
    s->found = true;
    return false;
}

/* holder_is - it has a pidfile open, or its program is called so */
bool holder_is(struct holder *out, pid_t pid, const char *queue)
{
    struct pidfile_search s = {.out = out, .queue = queue};
    char text[64];

    *out = (struct holder){.pid = pid};
    snprintf(text, sizeof text, "/proc/%d/fd", (int)pid);
    (void)proc_numbers(text, pidfile_look, &s);
    return s.found ||
           (proc_text(text, sizeof text, "/proc/%d/comm", (int)pid) &&
            strcmp(text, "mqworker\n") == 0);
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
