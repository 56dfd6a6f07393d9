/* worker_lock.c - find out whether a worker is running (see worker_lock.h) */
#include "common/state/worker_lock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/file.h"
#include "common/base/process_stat.h"
#include "common/state/counters.h"
#include "common/state/runtimedir.h"

#define TRIES 100 /* most looks at a pidfile that is replaced each time */

#define PHASE_WAIT_NS (3 * NS_PER_S)  /* a start takes about 20 ms */
#define YOUNG_NS      (30 * NS_PER_S) /* longest start on a slow disk */
#define SECOND_MS     20 /* time between taking the lock and writing the pid */

/* Return YES if another process has the lock, NO, or -errno. The lock taken
 * here is shared, so it disturbs no other reader. A worker that starts in this
 * moment finds the lock taken, and tries again (pidfile_lock in
 * worker/files/pid_file.c). */
static int lock_is_held(int fd)
{
    while (flock(fd, LOCK_SH | LOCK_NB) < 0) {
        if (errno != EINTR)
            return errno == EWOULDBLOCK ? YES : -errno;
    }
    return NO;
}

enum worker_lock worker_lock_look(const char *pidfile, pid_t *pid)
{
    enum worker_lock is = WORKER_NONE;
    char folder[PATH_MAX], text[32];
    bool again = true;
    pid_t seen = 0;
    int fd = -1;

    /* Look again if the pidfile lost its name: a worker has replaced it. */
    for (int i = 0; again && i < TRIES; i++) {
        struct stat st;
        int busy = -EINVAL;

        again = false;
        fd = open(pidfile, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        is = fd < 0 && errno == ENOENT ? WORKER_NONE : WORKER_UNSEEN;
        if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
            busy = lock_is_held(fd);
        if (busy >= 0) {
            ssize_t n = pread(fd, text, sizeof text - 1, 0);
            long long number;

            is = busy == YES ? WORKER_RUNS : WORKER_GONE;
            text[n > 0 ? n : 0] = '\0';
            number = strtoll(text, NULL, 10); /* 0: it is not written yet */
            seen = number > 0 && number <= INT_MAX ? (pid_t)number : 0;
            again = busy == NO && fstat(fd, &st) == 0 && st.st_nlink == 0;
        }
        fd_close(&fd);
    }
    if (is == WORKER_NONE || is == WORKER_GONE) {
        snprintf(folder, sizeof folder, "%s", pidfile);
        (void)file_parent(folder);
        fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd >= 0 && lock_is_held(fd) == YES) {
        is = WORKER_RUNS; /* its pidfile was removed */
        seen = 0;
    }
    fd_close(&fd);
    if (pid)
        *pid = seen;
    return is;
}

/* Find the phase, as worker_phase does. *seen is set if the worker's process is
 * visible from here. The worker sets COUNTERS_CAP in its counters when it
 * begins to take messages. Before that, the counters are missing or are the
 * last worker's. Counters that were removed later look the same, so without its
 * counters only a young worker counts as starting. */
static enum worker_phase phase_look(const struct statedir *dir, bool *seen)
{
    char pidfile[PATH_MAX], path[PATH_MAX];
    struct counters_header h = {.pid = 0};
    struct counters *c = NULL;
    uint64_t now, written;
    struct stat st;
    pid_t pid;

    *seen = true;
    if (statedir_path(dir, STATEDIR_PIDFILE, pidfile, NULL) < 0 ||
        worker_lock_look(pidfile, &pid) != WORKER_RUNS)
        return WORKER_PHASE_NONE;
    if (runtimedir_file(dir, RUNTIMEDIR_COUNTERS, path, NULL) == 0 &&
        counters_attach(&c, path, NULL) == 0)
        counters_header(c, &h);
    counters_close(&c);
    if (!pid || h.pid != pid) {
        /* Starting, if the pidfile was written a short time ago. A time in the
         * future does not count, because the clock was set back since. */
        if (stat(pidfile, &st) < 0)
            return WORKER_PHASE_SERVING;
        now = clock_wall_ns();
        written = (uint64_t)st.st_mtim.tv_sec * NS_PER_S +
                  (uint64_t)st.st_mtim.tv_nsec;
        return written <= now && now - written < YOUNG_NS
                   ? WORKER_PHASE_STARTING
                   : WORKER_PHASE_SERVING;
    }
    *seen = process_start_time(pid) == h.pid_start;
    if (!h.gauges[COUNTERS_CAP])
        return WORKER_PHASE_STARTING;
    return h.gauges[COUNTERS_ENDED_NS] ||
                   h.gauges[COUNTERS_HOLDS] & COUNTERS_STOPPING
               ? WORKER_PHASE_STOPPING
               : WORKER_PHASE_SERVING;
}

enum worker_phase worker_phase(const struct statedir *dir)
{
    bool seen;

    return phase_look(dir, &seen);
}

/* Two looks are needed. A worker holds the lock for some microseconds before it
 * writes its pid; until then, the pidfile is missing or is that of a killed
 * worker. And for a moment after a kill, a child that the worker was starting
 * still holds the lock. */
bool worker_phase_wait(const struct statedir *dir, struct worker_wait *w)
{
    uint64_t now = clock_mono_ns();
    bool seen, was = w->serving;

    if (w->until_ns == 0)
        w->until_ns = ns_add(now, PHASE_WAIT_NS);
    if (now >= w->until_ns)
        return false;
    w->serving = phase_look(dir, &seen) == WORKER_PHASE_SERVING && seen;
    if (w->serving && was)
        return false;
    poll(NULL, 0, w->serving ? SECOND_MS : WORKER_LOCK_LOOK_MS);
    return true;
}

bool worker_lock_folder(pid_t pid, char folder[PATH_MAX])
{
    static const char name[] = "/" STATEDIR_PIDFILE;
    char path[64 + 256];
    struct dirent *entry;
    bool found = false;
    DIR *dir;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    while (dir && !found && (entry = readdir(dir)) != NULL) {
        ssize_t n;

        snprintf(path, sizeof path, "/proc/%d/fd/%s", (int)pid, entry->d_name);
        n = readlink(path, folder, PATH_MAX - 1);
        if (n <= (ssize_t)strlen(name))
            continue;
        folder[n] = '\0';
        found = strcmp(folder + n - strlen(name), name) == 0;
        folder[(size_t)n - strlen(name)] = '\0';
    }
    if (dir)
        closedir(dir);
    return found;
}

/* A state directory without a folder of the queue means that no worker has run.
 */
enum worker_lock worker_lock_find(const char *state_dir, const char *queue,
                                  pid_t *pid, char *folder)
{
    struct statedir dir;
    char path[PATH_MAX];
    int err;

    memset(&dir, 0, sizeof dir);
    err = statedir_open(&dir, state_dir, queue, false, NULL);
    if (folder)
        snprintf(folder, PATH_MAX, "%s", dir.folder);
    if (pid)
        *pid = 0;
    if (err == -ENOENT && dir.folder[0])
        return WORKER_NONE;
    if (err || statedir_path(&dir, STATEDIR_PIDFILE, path, NULL) < 0)
        return WORKER_UNSEEN;
    return worker_lock_look(path, pid);
}

/* Name the state directory, because a worker may be running with another
 * one. */
const char *worker_lock_clause(const char *state_dir, const char *queue,
                               char buf[WORKER_CLAUSE])
{
    char root[PATH_MAX];
    pid_t pid;

    switch (worker_lock_find(state_dir, queue, &pid, NULL)) {
    case WORKER_RUNS:
        if (pid)
            snprintf(buf, WORKER_CLAUSE, "worker %d is running", (int)pid);
        else
            snprintf(buf, WORKER_CLAUSE, "a worker is running");
        return buf;
    case WORKER_NONE:
    case WORKER_GONE:
        if (statedir_root(root, state_dir, NULL) == 0) {
            snprintf(buf, WORKER_CLAUSE,
                     "no worker is running with state directory %.250s", root);
            return buf;
        }
        break;
    case WORKER_UNSEEN:
        break;
    }
    snprintf(buf, WORKER_CLAUSE,
             "it is not visible from here whether a worker is running");
    return buf;
}

/* ---- the states that the tools can show for a worker ---- */

static const struct {
    const char *text;
    enum worker_severity severity;
} states[WORKER_STATES] = {
    [WORKER_STATE_UNSEEN] = {"not seen from here", WORKER_IDLE},
    [WORKER_STATE_NOT_RUNNING] = {"not running", WORKER_IDLE},
    [WORKER_STATE_KILLED] = {"killed", WORKER_BAD},
    [WORKER_STATE_STARTING] = {"starting", WORKER_IDLE},
    [WORKER_STATE_STOPPING] = {"stopping", WORKER_IDLE},
    [WORKER_STATE_STOPPED] = {"stopped by a signal", WORKER_BAD},
    [WORKER_STATE_STORE_GONE] = {"store.db is gone", WORKER_BAD},
    [WORKER_STATE_CUSTODY_GONE] = {"custody is gone", WORKER_BAD},
    [WORKER_STATE_READ_ONLY] = {"its disk is read-only", WORKER_BAD},
    [WORKER_STATE_DAMAGED] = {"store is damaged", WORKER_BAD},
    [WORKER_STATE_PAUSED] = {"paused", WORKER_WARN},
    [WORKER_STATE_STORE_HELD] = {"store cannot be written", WORKER_BAD},
    [WORKER_STATE_QUEUE_HELD] = {"trouble with the queue", WORKER_BAD},
    [WORKER_STATE_BOUND_HELD] = {"bound of deliveries reached", WORKER_IDLE},
    [WORKER_STATE_RATE_HELD] = {"at its --rate", WORKER_IDLE},
    [WORKER_STATE_FULL] = {"full: as many messages wait as --max-waiting "
                           "allows",
                           WORKER_WARN},
    [WORKER_STATE_BREAKER_OPEN] = {"breaker open", WORKER_BAD},
    [WORKER_STATE_BREAKER_PROBING] = {"breaker probing", WORKER_WARN},
    [WORKER_STATE_RUNNING] = {"running", WORKER_FINE},
};

const char *worker_state_text(enum worker_state state)
{
    return states[state].text;
}

enum worker_state worker_state_parse(const char *text)
{
    enum worker_state i = 0;

    while (i < WORKER_STATES && strcmp(states[i].text, text) != 0)
        i++;
    return i;
}

enum worker_severity worker_state_severity(enum worker_state state, bool waits)
{
    return state == WORKER_STATE_NOT_RUNNING && waits ? WORKER_BAD
                                                      : states[state].severity;
}

const char *worker_severity_text(enum worker_severity severity)
{
    static const char *const texts[] = {[WORKER_FINE] = "fine",
                                        [WORKER_IDLE] = "idle",
                                        [WORKER_WARN] = "warn",
                                        [WORKER_BAD] = "bad"};

    return texts[severity];
}

enum worker_state worker_state_of_holds(uint64_t holds)
{
    return holds & COUNTERS_STOPPING       ? WORKER_STATE_STOPPING
           : holds & COUNTERS_STORE_GONE   ? WORKER_STATE_STORE_GONE
           : holds & COUNTERS_CUSTODY_GONE ? WORKER_STATE_CUSTODY_GONE
           : holds & COUNTERS_READ_ONLY    ? WORKER_STATE_READ_ONLY
           : holds & COUNTERS_DAMAGED      ? WORKER_STATE_DAMAGED
           : holds & COUNTERS_PAUSED       ? WORKER_STATE_PAUSED
           : holds & COUNTERS_STORE_HELD   ? WORKER_STATE_STORE_HELD
           : holds & COUNTERS_QUEUE_HELD   ? WORKER_STATE_QUEUE_HELD
           : holds & COUNTERS_BOUND_HELD   ? WORKER_STATE_BOUND_HELD
           : holds & COUNTERS_RATE_HELD    ? WORKER_STATE_RATE_HELD
           : holds & COUNTERS_WAITING_HELD ? WORKER_STATE_FULL
                                           : WORKER_STATE_RUNNING;
}
