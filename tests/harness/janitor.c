/* janitor.c - a process that outlives the test and cleans up after it
 *
 * A test may end without its fixture: by a crash, Criterion's time limit or
 * Ctrl-C. Queues count against a limit of the user until they are unlinked, and
 * a leftover handler would disturb later tests. So a separate process waits
 * for the end of a pipe and cleans up.
 */
#include "tests/harness/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <mqueue.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/libc.h"

/* Print the name of a queue. It does not contain the test's pid: the kernel
 * reuses pids, and a leftover queue of another test would then have the
 * name. */
void janitor_queue_name(const char *dir, unsigned number, char *out,
                        size_t room)
{
    snprintf(out, room, "%s-%u", strrchr(dir, '/'), number);
}

bool environment_has(const char *pid, const char *wanted)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%.20s/environ", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    char *entry = NULL;
    size_t room = 0;
    bool found = false;
    while (!found && getdelim(&entry, &room, '\0', f) > 0)
        found = strcmp(entry, wanted) == 0;
    free(entry);
    fclose(f);
    return found;
}

/* Kill all processes with that environment; return how many. */
static unsigned processes_kill(const char *wanted)
{
    DIR *proc = opendir("/proc");
    if (!proc)
        return 0;
    unsigned killed = 0;
    for (struct dirent *e; (e = readdir(proc));) {
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid > 1 && pid != getpid() && environment_has(e->d_name, wanted))
            killed += kill(pid, SIGKILL) == 0;
    }
    closedir(proc);
    return killed;
}

/* Remove the semaphore of a killed worker, whose key is in its custody file
 * (docs/formats/custody.md). */
static void semaphore_remove(const char *custody)
{
    int fd = open(custody, O_RDONLY | O_CLOEXEC), id;
    uint64_t n;

    if (fd < 0)
        return;
    if (pread(fd, &n, sizeof n, 40) == (ssize_t)sizeof n) {
        id = semget((int)((n ^ n >> 32) & 0x7ffffffe) | 1, 1, 0);
        if (id >= 0)
            (void)semctl(id, 0, IPC_RMID);
    }
    close(fd);
}

static int file_remove(const char *path, const struct stat *st, int type,
                       struct FTW *at)
{
    (void)st;
    (void)type;
    if (strcmp(path + at->base, "custody") == 0)
        semaphore_remove(path);
    remove(path);
    return 0;
}

/* Remove everything of the test, or all except its files if they are to be
 * kept. */
static void clean_up(const struct janitor *j, const char *dir,
                     const char *runtime)
{
    char wanted[512], name[64];
    snprintf(wanted, sizeof wanted, "TEST_DIR=%s", dir);
    /* Repeat, because a process may fork meanwhile. Zombies have no
     * environment. */
    for (unsigned round = 0; round < 50 && processes_kill(wanted); round++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    for (unsigned n = 1; n <= *j->queues; n++) {
        janitor_queue_name(dir, n, name, sizeof name);
        mq_unlink(name);
    }
    const char *keep = getenv("MQW_TEST_KEEP");
    if (!keep || strcmp(keep, "1") != 0)
        nftw(dir, file_remove, 16, FTW_DEPTH | FTW_PHYS);
    nftw(runtime, file_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* Wait until the other end of `fd` is closed, clean up and exit. */
static _Noreturn void janitor_run(const struct janitor *j, int fd,
                                  const char *dir, const char *runtime)
{
    char byte;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    prctl(PR_SET_NAME, "test-janitor");
    setsid(); /* Ctrl-C is meant for the test */
    signal(SIGTERM, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    /* Criterion's runner would wait for its pipe if it stayed open here. */
    if (fd != 3)
        dup2(fd, 3);
    closefrom(4);
    while (read(3, &byte, 1) < 0 && errno == EINTR)
        ;
    clean_up(j, dir, runtime);
    _exit(0);
}

/* Fork the janitor of this test. */
int janitor_start(struct janitor *j, const char *dir, const char *runtime)
{
    int ends[2];
    j->queues = mmap(NULL, sizeof *j->queues, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (j->queues == MAP_FAILED)
        return -errno;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    j->pid = fork();
    if (j->pid < 0)
        return -errno;
    if (j->pid == 0) {
        close(ends[1]);
        janitor_run(j, ends[0], dir, runtime);
    }
    close(ends[0]);
    j->fd = ends[1];
    return 0;
}

/* Clean up now, and wait for it. */
void janitor_finish(struct janitor *j)
{
    close(j->fd);
    while (waitpid(j->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    munmap(j->queues, sizeof *j->queues);
}
