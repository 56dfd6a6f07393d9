/* process_stat.c - look a process up (see process_stat.h) */
#include "common/base/process_stat.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Read fields 3, 4, 5 and 22. The name in field 2 may hold any byte. */
bool process_stat(pid_t pid, struct process_stat *out)
{
    char path[32], text[512], *at;
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    at = strrchr(text, ')');
    if (!at || strlen(at) < 4)
        return false;
    out->state = at[2];
    out->parent = (pid_t)strtol(at + 4, &at, 10); /* after ") S " */
    out->group = (pid_t)strtol(at, &at, 10);
    for (int field = 6; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    out->start = at ? strtoull(at, NULL, 10) : 0;
    return at != NULL;
}

uint64_t process_start_time(pid_t pid)
{
    struct process_stat st;

    return process_stat(pid, &st) ? st.start : 0;
}
