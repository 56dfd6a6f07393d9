/* leftover.c - handlers that outlived their worker (see leftover.h) */
#include "worker/leftover.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "common/log.h"
#include "worker/process.h"

#define WARN_MS 1000 /* a process that does not go is named each second */

/* An environment, read whole. */
struct text {
    char *data;
    size_t size, room;
};

/* read_whole - a file of /proc to `t`; false: gone, not ours, no memory */
static bool read_whole(const char *path, struct text *t)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = 1;

    t->size = 0;
    if (fd < 0)
        return false;
    while (n > 0) {
        if (t->room - t->size < 4096) {
            size_t room = t->room ? t->room * 2 : 16384;
            char *more = realloc(t->data, room);

            if (!more)
                break;
            t->data = more;
            t->room = room;
        }
        n = read(fd, t->data + t->size, t->room - t->size - 1);
        if (n > 0)
            t->size += (size_t)n;
    }
    close(fd);
    if (t->data)
        t->data[t->size] = '\0';
    return n == 0 && t->size > 0;
}

/* marked - whether an environment carries the mark of one of these
 * deliveries: a variable of its own, so at the start or after a NUL. */
static bool marked(const struct text *env, uint64_t nonce,
                   const struct leftover *list, size_t n)
{
    char prefix[48];
    int len =
        snprintf(prefix, sizeof prefix, "MQW_DELIVERY=%016" PRIx64 "-", nonce);
    const char *at = env->data, *end = env->data + env->size;

    while (at < end) {
        if (strncmp(at, prefix, (size_t)len) == 0) {
            uint64_t seq = strtoull(at + len, NULL, 10);

            for (size_t i = 0; i < n; i++)
                if (list[i].seq == seq)
                    return true;
        }
        at += strlen(at) + 1;
    }
    return false;
}

/* wait_gone - until the process has ended; says so when that takes long */
static void wait_gone(int pidfd, pid_t pid)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};

    while (poll(&p, 1, WARN_MS) <= 0)
        log_warn("leftover_stays", F_INT("pid", pid),
                 F_STR("next", "its message waits until it has ended; see "
                               "what it waits for in /proc/PID/stack"));
}

/* kill_group - all of a process group; its leader is gone on return. The others
 * of it carry the mark and are waited for one by one. */
static void kill_group(pid_t pgid)
{
    int fd = pidfd_open(pgid, 0);

    kill(-pgid, SIGKILL);
    if (fd < 0)
        return;
    wait_gone(fd, pgid);
    close(fd);
}

/* kill_marked - one process, if it still carries the mark
 * The descriptor comes first: what is looked at through the number after that
 * is the process that the descriptor stands for, or nothing.
 */
static bool kill_marked(pid_t pid, uint64_t nonce, const struct leftover *list,
                        size_t n, struct text *env)
{
    char path[32];
    int fd = pidfd_open(pid, 0);
    bool found;

    if (fd < 0)
        return false;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    found = read_whole(path, env) && marked(env, nonce, list, n) &&
            pidfd_send_signal(fd, SIGKILL, NULL, 0) == 0;
    if (found)
        wait_gone(fd, pid);
    close(fd);
    return found;
}

/* scan - one walk over /proc; how many were killed, or -errno */
static int scan(uint64_t nonce, const struct leftover *list, size_t n,
                struct text *env)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    int killed = 0;

    if (!proc)
        return -errno;
    while ((entry = readdir(proc)) != NULL) {
        pid_t pid;

        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid != getpid() && kill_marked(pid, nonce, list, n, env))
            killed++;
    }
    closedir(proc);
    return killed;
}

/* leftover_kill - until nothing is found any more
 * A process that is killed cannot fork; one that was not reached yet can, so
 * the walk is repeated until it finds none.
 */
int leftover_kill(uint64_t nonce, const struct leftover *list, size_t n)
{
    struct text env = {0};
    int sum = 0, killed;

    for (size_t i = 0; i < n; i++)
        if (list[i].pgid > 1 && list[i].start != 0 &&
            process_start_time(list[i].pgid) == list[i].start) {
            kill_group(list[i].pgid);
            sum++;
        }
    do {
        killed = n ? scan(nonce, list, n, &env) : 0;
        if (killed > 0)
            sum += killed;
    } while (killed > 0);
    free(env.data);
    return killed < 0 ? killed : sum;
}
