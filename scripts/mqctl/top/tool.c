/* tool.c - see tool.h */
#include "scripts/mqctl/top/tool.h"

#include <bsd/string.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/problem.h"

#define OUT_MOST (1 << 20)
#define WAIT     "1s" /* for room in the queue: the screen stands still */

/* kept - the text of a file, and its last line; NULL: no memory */
static char *kept(int fd, char why[TOOL_WHY])
{
    off_t size = lseek(fd, 0, SEEK_END);
    size_t room = size > 0 && size < OUT_MOST ? (size_t)size : OUT_MOST;
    char *text = size < 0 ? NULL : calloc(1, room + 1), *line;
    ssize_t n = text ? pread(fd, text, room, 0) : -1;

    if (n < 0) {
        free(text);
        return NULL;
    }
    while (n > 0 && text[n - 1] == '\n')
        text[--n] = '\0';
    line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    if (strncmp(line, "mqdlq: ", 7) == 0)
        line += 7;
    strlcpy(why, line, TOOL_WHY);
    return text;
}

/* run - until it has ended; its exit status, below 0: -errno */
static int run(const char *const argv[], int out)
{
    posix_spawn_file_actions_t files;
    char path[PATH_MAX];
    int status, err;
    pid_t pid;

    err = file_of_program(path, "mqdlq");
    if (err)
        return err;
    err = posix_spawn_file_actions_init(&files);
    if (err)
        return -err;
    err = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    err = err ? err : posix_spawn_file_actions_adddup2(&files, out, 1);
    err = err ? err : posix_spawn_file_actions_adddup2(&files, out, 2);
    err = err ? err
              : posix_spawn(&pid, path, &files, NULL, (char *const *)argv,
                            environ);
    posix_spawn_file_actions_destroy(&files);
    if (err)
        return -err;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EX_SOFTWARE;
}

int tool_letter(const struct options *o, const char *verb, const char *queue,
                int64_t row, char **out, char why[TOOL_WHY])
{
    const char *argv[11] = {"mqdlq", verb};
    char number[32];
    int fd = memfd_create("mqctl-mqdlq", MFD_CLOEXEC), status;
    size_t n = 2;

    snprintf(number, sizeof number, "%" PRId64, row);
    if (strcmp(verb, "replay") == 0) {
        argv[n++] = "--wait";
        argv[n++] = WAIT;
    }
    if (!o->utc)
        argv[n++] = "--local";
    if (o->state_dir) {
        argv[n++] = "--state-dir";
        argv[n++] = o->state_dir;
    }
    argv[n++] = "--";
    argv[n++] = queue;
    argv[n++] = number;
    status = fd < 0 ? -errno : run(argv, fd);
    *out = status < 0 ? NULL : kept(fd, why);
    if (fd >= 0)
        close(fd);
    if (status < 0)
        snprintf(why, TOOL_WHY, "cannot run mqdlq: %s", errno_text(-status));
    else if (!*out)
        strlcpy(why, "what mqdlq said is lost: no memory", TOOL_WHY);
    return status < 0 ? EX_OSERR : status;
}
