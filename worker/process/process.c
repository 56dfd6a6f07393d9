/* process.c - start a child, look a process up (see process.h) */
#include "worker/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"

/* usable - 0 if `path` is a file that we may execute */
static int usable(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EACCES;
    return access(path, X_OK) < 0 ? -errno : 0;
}

/* process_find - as execvp(3) would find it */
int process_find(const char *name, char out[PATH_MAX])
{
    const char *path = getenv("PATH");
    int err = -ENOENT;

    if (strchr(name, '/')) {
        if (snprintf(out, PATH_MAX, "%s", name) >= PATH_MAX)
            return -ENAMETOOLONG;
        return usable(out);
    }
    for (const char *at = path ? path : "/usr/bin:/bin"; at;) {
        size_t n = strcspn(at, ":");
        int len = n == 0 ? snprintf(out, PATH_MAX, "./%s", name)
                         : snprintf(out, PATH_MAX, "%.*s/%s", (int)n, at, name);

        if (len > 0 && len < PATH_MAX) {
            int one = usable(out);

            if (one == 0)
                return 0;
            if (one == -EACCES)
                err = one;
        }
        at = at[n] ? at + n + 1 : NULL;
    }
    return err;
}

/* process_start - spawn
 * All other descriptors of ours are close-on-exec. Until it execs, the child
 * shares the lock on the state directory (flock(2) belongs to the open file),
 * so a worker that gets the lock after our death sees every handler running
 * under its own name.
 */
int process_start(pid_t *out, const char *path, char *const argv[],
                  char *const env[], const int fds[3])
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t all, none;
    int err = 0;

    sigfillset(&all);
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP |
                                        POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setsigmask(&attr, &none);
    for (int i = 0; i < 3 && !err; i++)
        if (fds[i] >= 0)
            err = posix_spawn_file_actions_adddup2(&actions, fds[i], i);
    if (!err)
        err = posix_spawn(out, path, &actions, &attr, argv, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return -err;
}

/* process_group_signal - a stopped process cannot end: SIGCONT with SIGTERM */
void process_group_signal(pid_t leader, int sig)
{
    if (kill(-leader, sig) < 0)
        kill(leader, sig);
    if (sig == SIGTERM && kill(-leader, SIGCONT) < 0)
        kill(leader, SIGCONT);
}

/* process_tick - as the kernel does it for field 22 (fs/proc/array.c) */
uint64_t process_tick(void)
{
    struct timespec now;
    uint64_t ns_a_tick = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);

    clock_gettime(CLOCK_BOOTTIME, &now);
    return ((uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec) /
           ns_a_tick;
}
