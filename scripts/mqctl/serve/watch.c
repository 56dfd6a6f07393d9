/* watch.c - see watch.h */
#include "scripts/mqctl/serve/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/cli/json_line.h"
#include "scripts/mqctl/serve/ask/history.h"
#include "scripts/mqctl/serve/events.h"
#include "scripts/mqctl/serve/look.h"
#include "scripts/mqctl/serve/rows.h"
#include "scripts/mqctl/top/top.h"

#define FAST_MS 1000
#define SLOW_MS 10000
#define LINE    (64u << 10)
#define STEP_NS (5 * NS_PER_S)
/* After so many looks without a change, look less often until the next change.
 * Seven idle queues then cost 30 ms of processor time a minute, 43 with 2 s. */
#define QUIET_LOOKS 10
#define QUIET_MS    3000

/* ---- the child ---- */

/* Return a duration; null if no handler ended, so that a chart has a gap and
 * not 0. */
static json_t *time_json(uint64_t ns)
{
    return ns ? json_integer((json_int_t)ns) : json_null();
}

/* Sleep until the next look is due. An order changes the interval, but no look
 * comes sooner than FAST_MS after the last: counts of some milliseconds would
 * be shown as counts per second. Returns false if the server is gone. */
static bool look_wait(int *pause_ms)
{
    uint64_t last = clock_mono_ns();
    struct pollfd in = {.fd = 0, .events = POLLIN};
    char word;

    for (;;) {
        uint64_t due = last + (uint64_t)*pause_ms * NS_PER_MS;

        if (poll(&in, 1, clock_ms_until(due)) == 0)
            return true;
        if (!in.revents)
            continue;
        if (read(0, &word, 1) != 1)
            return false;
        *pause_ms = word == 'f' ? FAST_MS : SLOW_MS;
    }
}

/* Look at all queues until the server closes the pipe. */
static _Noreturn void queues_watch(const struct serve_options *serve)
{
    /* Numbers that change at each look; `ages` has the times themselves. */
    static const char *const left_out[] = {
        "settings",          "oldest_waiting_ns", "oldest_parked_ns",
        "oldest_spooled_ns", "oldest_held_ns",    "paused_for_ns"};
    static const struct options every;
    struct top t = {.o = &every, .dirs = serve->state_dirs, .files_only = true};
    int pause = SLOW_MS;
    uint64_t due;
    int64_t waits;
    json_t *o;

    while (top_look(&t) == 0) {
        /* Print the numbers of each queue, the durations of the last interval,
         * and the times since when the oldest messages wait. */
        for (size_t i = 0; i < t.count; i++) {
            const struct top_row *r = t.rows[i];

            if (r->looked && r->v.has_folder) {
                o = snapshot_json(&r->v);
                for (size_t n = 0; n < sizeof left_out / sizeof *left_out; n++)
                    json_object_del(o, left_out[n]);
                json_object_set_new(o, "p50_ns", time_json(r->p50));
                json_object_set_new(o, "p99_ns", time_json(r->p99));
                json_object_set_new(o, "last_wait_ns", time_json(r->wait99));
                waits = snapshot_waits(&r->v);
                json_object_set_new(o, "all_waiting",
                                    json_known(waits < 0 || r->v.depth < 0
                                                   ? waits
                                                   : waits + r->v.depth));
                due = r->v.ages.due <= clock_wall_ns() ? r->v.ages.due : 0;
                json_object_set_new(
                    o, "ages",
                    json_pack("{s:o, s:o, s:o, s:o}", "spooled",
                              json_time(r->v.ages.spooled), "overdue",
                              json_time(due), "blocked",
                              json_time(r->v.ages.parked), "held",
                              json_time(r->v.held_since_ns)));
            } else {
                o = json_pack("{s:o, s:b}", "queue", json_printable(r->queue),
                              "gone", 1);
            }
            (void)json_print_line(o, stdout);
        }
        puts("{\"round\":true}");
        if (fflush(stdout) != 0 || !look_wait(&pause))
            break;
    }
    _exit(0);
}

/* ---- the server ---- */

static struct {
    const struct serve_options *o;
    pid_t pid;
    int in, out; /* to the child, and from it */
    bool fast;
    uint64_t started_ns;
    char line[LINE];
    size_t used;
} w = {.in = -1, .out = -1};

void watch_end(void)
{
    if (w.out < 0)
        return;
    close(w.in);
    close(w.out);
    w.in = w.out = -1;
    if (w.pid > 0) {
        kill(w.pid, SIGKILL);
        (void)waitpid(w.pid, NULL, 0);
    }
    w.pid = 0;
}

void watch_soon(void)
{
    if (w.in >= 0 && write(w.in, w.fast ? "f" : "s", 1) != 1 && errno != EPIPE)
        watch_end();
}

int watch_start(const struct serve_options *o)
{
    int to[2], from[2];

    w.o = o;
    w.started_ns = clock_mono_ns();
    w.used = 0;
    if (pipe2(to, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(from, O_CLOEXEC) < 0) {
        close(to[0]);
        close(to[1]);
        return -EMFILE;
    }
    fflush(NULL);
    w.pid = fork();
    if (w.pid == 0) {
        look_child(to[0], from[1], 2, SIGKILL);
        queues_watch(o);
    }
    close(to[0]);
    close(from[1]);
    w.in = to[1];
    w.out = from[0];
    (void)fcntl(w.out, F_SETFL, O_NONBLOCK);
    if (w.fast)
        watch_soon();
    return w.pid > 0 ? 0 : -EAGAIN;
}

int watch_fd(void)
{
    return w.out;
}

uint64_t watch_keep(uint64_t now_ns)
{
    uint64_t due = w.started_ns + NS_PER_S;

    if (w.out >= 0)
        return UINT64_MAX;
    if (now_ns < due)
        return due;
    return watch_start(w.o) < 0 ? now_ns + NS_PER_S : UINT64_MAX;
}

void watch_fast(bool fast)
{
    if (!fast && !w.fast)
        return;
    w.fast = fast;
    watch_soon();
}

void watch_read(void)
{
    json_t *look;
    ssize_t n = read(w.out, w.line + w.used, sizeof w.line - 1 - w.used);
    char *end;

    if (n <= 0) {
        if (n == 0 || errno != EAGAIN)
            watch_end();
        return;
    }
    w.used += (size_t)n;
    w.line[w.used] = '\0';
    while ((end = memchr(w.line, '\n', w.used)) != NULL) {
        *end++ = '\0';
        look = json_loads(w.line, 0, NULL);
        if (json_object_get(look, "round"))
            rows_round();
        else
            rows_take(look, w.line);
        json_decref(look);
        w.used -= (size_t)(end - w.line);
        memmove(w.line, end, w.used);
        w.line[w.used] = '\0';
    }
    if (w.used == sizeof w.line - 1)
        watch_end();
}
