/* mqctl_fds.c - see mqctl_fds.h */
#include "scripts/mqctl/mqctl_fds.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#define DELETED " (deleted)"

/* fd_look - visit one, if it is a message queue's */
static void fd_look(pid_t pid, const char *number,
                    void (*visit)(const struct fd_seen *seen, void *arg),
                    void *arg)
{
    char path[64], name[PATH_MAX];
    struct fd_seen seen = {
        .pid = pid, .fd = (int)strtol(number, NULL, 10), .name = name};
    struct statfs fs;
    ssize_t n;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, seen.fd);
    n = readlink(path, name, sizeof name - 1);
    /* Most are no file at all: "socket:[17]"; no look at those. */
    if (n <= 1 || name[0] != '/' || memchr(name + 1, '/', (size_t)n - 1))
        return;
    name[n] = '\0';
    if (statfs(path, &fs) < 0 || fs.f_type != MQUEUE_MAGIC ||
        stat(path, &seen.st) < 0)
        return;
    if ((size_t)n > strlen(DELETED) &&
        strcmp(name + n - strlen(DELETED), DELETED) == 0)
        name[(size_t)n - strlen(DELETED)] = '\0';
    visit(&seen, arg);
}

/* process_look - all of one; false: it is hidden from us */
static bool process_look(pid_t pid,
                         void (*visit)(const struct fd_seen *seen, void *arg),
                         void *arg)
{
    char path[32];
    struct dirent *entry;
    DIR *dir;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    if (!dir)
        return errno == ENOENT || errno == ESRCH; /* it has just ended */
    while ((entry = readdir(dir)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0]))
            fd_look(pid, entry->d_name, visit, arg);
    closedir(dir);
    return true;
}

/* fds_each - of all processes */
void fds_each(void (*visit)(const struct fd_seen *seen, void *arg), void *arg,
              size_t *hidden)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;

    *hidden = 0;
    while (proc && (entry = readdir(proc)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0]) &&
            !process_look((pid_t)strtol(entry->d_name, NULL, 10), visit, arg))
            ++*hidden;
    if (proc)
        closedir(proc);
}
