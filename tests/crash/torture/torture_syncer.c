/* torture_syncer.c - keep writing the worker's files to disk (see torture.h)
 *
 * The kernel write-protects a page that is written back until the next store,
 * and a store by the kernel may then have to wait in the middle of
 * mq_receive(2). The flusher writes back every few seconds, and sync(1), a
 * backup or fsfreeze(8) may do so at any time; this process does so in a loop,
 * so that each worker runs under it. If custody is on a file system that is
 * never written back, the process must have no effect at all.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/crash/torture/torture.h"

#define AT_ONCE 64   /* writes of one file before looking for it again */
#define WHOLE   1024 /* one write in so many also writes the file systems */
#define FREE_NS (10 * NS_PER_US) /* a faster write had nothing to write */
#define IDLE_NS (5 * NS_PER_MS)
#define ENDING  "/custody"

/* State shared by both processes. */
struct syncer {
    atomic_int worker; /* its pid */
    atomic_bool on;
    _Atomic uint64_t count;
};

static struct syncer *syncer; /* NULL: never started */
static pid_t pid;             /* 0: not running */

/* Find the custody file that the worker has mapped. Return false if there is
 * none yet. */
static bool custody_find(int of, char path[PATH_MAX])
{
    char maps[64], line[PATH_MAX + 128];
    bool found = false;
    FILE *f;

    snprintf(maps, sizeof maps, "/proc/%d/maps", of);
    f = fopen(maps, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        char *at = strchr(line, '/');
        size_t n;

        if (!at)
            continue;
        at[strcspn(at, "\n")] = '\0';
        n = strlen(at);
        if (n < strlen(ENDING) || n >= PATH_MAX ||
            strcmp(at + n - strlen(ENDING), ENDING) != 0)
            continue;
        memcpy(path, at, n + 1);
        found = true;
    }
    if (f)
        fclose(f);
    return found;
}

/* Write the file and, now and then, its whole file system. */
static void write_some(struct syncer *s, const char *path, int state)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    for (int i = 0; fd >= 0 && i < AT_ONCE && atomic_load(&s->on); i++) {
        uint64_t began = clock_mono_ns();

        if (fdatasync(fd) == 0 && atomic_fetch_add(&s->count, 1) % WHOLE == 0) {
            (void)syncfs(fd);
            (void)syncfs(state);
        }
        if (clock_mono_ns() - began < FREE_NS)
            torture_nap(FREE_NS);
    }
    if (fd >= 0)
        close(fd);
    else
        torture_nap(IDLE_NS);
}

/* Keep writing; called in a process of its own. Until a worker has mapped its
 * custody file, the path of the last worker's file is used. */
static _Noreturn void sync_all(struct torture *t, struct syncer *s)
{
    char path[PATH_MAX] = "";
    int state = open(t->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN); /* the driver kills this process */
    for (;;) {
        if (atomic_load(&s->on) &&
            (custody_find(atomic_load(&s->worker), path) || path[0]))
            write_some(s, path, state);
        else
            torture_nap(IDLE_NS);
    }
}

void syncer_follow(const struct torture *t)
{
    if (syncer)
        atomic_store(&syncer->worker, (int)t->worker.pid);
}

uint64_t syncer_count(void)
{
    return syncer ? atomic_load(&syncer->count) : 0;
}

void syncer_stop(void)
{
    if (syncer)
        atomic_store(&syncer->on, false);
}

void syncer_end(void)
{
    if (pid <= 0)
        return;
    kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    pid = 0;
}

void syncer_start(struct torture *t)
{
    if (!syncer) {
        syncer = mmap(NULL, sizeof *syncer, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (syncer == MAP_FAILED)
            torture_die("the syncer: %s", strerror(errno));
    }
    atomic_store(&syncer->on, true);
    if (pid > 0)
        return;
    atomic_store(&syncer->count, 0);
    pid = fork();
    if (pid < 0)
        torture_die("fork: %s", strerror(errno));
    if (pid == 0)
        sync_all(t, syncer);
}
