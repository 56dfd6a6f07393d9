/* mqctl_fds.c - see mqctl_fds.h */
#include "scripts/mqctl/mqctl_fds.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#define DELETED " (deleted)"

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
    va_list args;
    ssize_t n;
    int fd;

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

bool proc_link(const char *path, char out[PATH_MAX])
{
    ssize_t n = readlink(path, out, PATH_MAX - 1);
    size_t end = sizeof DELETED - 1, size = n > 0 ? (size_t)n : 0;

    out[size] = '\0';
    if (size > end && strcmp(out + size - end, DELETED) == 0)
        out[size - end] = '\0';
    return size > 0;
}

struct walk {
    void (*visit)(const struct fd_seen *seen, void *arg);
    void *arg;
    pid_t pid;
    size_t *hidden;
};

/* fd_look - visit: one of a process, if it is a message queue's */
static bool fd_look(int fd, void *arg)
{
    const struct walk *w = arg;
    char path[64], name[PATH_MAX];
    struct fd_seen seen = {.pid = w->pid, .fd = fd, .name = name};
    struct statfs fs;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)w->pid, fd);
    /* Most are no file at all: "socket:[17]"; no look at those. */
    if (proc_link(path, name) && name[0] == '/' && name[1] &&
        !strchr(name + 1, '/') && statfs(path, &fs) == 0 &&
        fs.f_type == MQUEUE_MAGIC && stat(path, &seen.st) == 0)
        w->visit(&seen, w->arg);
    return true;
}

/* process_look - visit: all of one; it may be hidden from us, or just end */
static bool process_look(int pid, void *arg)
{
    struct walk *w = arg;
    char path[32];
    int err;

    w->pid = pid;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    err = proc_numbers(path, fd_look, w);
    *w->hidden += err && err != -ENOENT && err != -ESRCH;
    return true;
}

/* fds_each - of all processes */
void fds_each(void (*visit)(const struct fd_seen *seen, void *arg), void *arg,
              size_t *hidden)
{
    struct walk w = {.visit = visit, .arg = arg, .hidden = hidden};

    *hidden = 0;
    (void)proc_numbers("/proc", process_look, &w);
}
