/* torture_syncer.c - a process that writes the worker's files to the disk (see
 * torture.h)
 *
 * What is written back is write-protected until it is stored to again, and a
 * store by the kernel may then have to wait in the middle of mq_receive(2). The
 * flusher does that every few seconds, sync(1), a backup and fsfreeze(8) at any
 * time; here it is done in a loop, so that each worker lives under it. Where
 * custody is on a file system that is never written back it comes to nothing,
 * and that is what is to be seen.
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

/* What both processes see. */
struct syncer {
    atomic_int worker; /* its pid */
    atomic_bool on;
    _Atomic uint64_t count;
};

static struct syncer *syncer; /* NULL: there was none yet */
static pid_t pid;             /* 0: it does not run */

/* custody_find - the file that the worker has mapped; false: not (yet) */
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

/* write_some - the file and, now and then, all that is on its disk */
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

/* sync_all - in a process of its own; one worker's custody file is where the
 * last one's is */
static _Noreturn void sync_all(struct torture *t, struct syncer *s)
{
    char path[PATH_MAX] = "";
    int state = open(t->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN); /* the driver ends us */
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
