/* mqctl_doctor_clock.c - what waits too long since the clock was set back (see
 * mqctl_doctor.h)
 *
 * A row is due by the wall clock, as the worker that stored it had it; a worker
 * fixes at its start what the clock says (clock_steady_ns). So a retry after
 * 1 s waits for 30 days if the clock was set back by 30 days before the next
 * start.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/text/term_time.h"
#include "scripts/mqctl/doctor/mqctl_doctor.h"

#define SLACK_NS  (60 * NS_PER_S)    /* clocks are corrected by less each day */
#define LONGER_NS (86400 * NS_PER_S) /* than a backoff; its handler may ask */

/* now_of - the time that decides what is due: of the worker, or of one that is
 * started now. The time that the machine slept is not the worker's; then it is
 * some hours behind this, and less is found. */
static uint64_t now_of(const struct snapshot *v)
{
    uint64_t tick = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK), up;
    struct timespec now;

    if (v->worker != SNAPSHOT_RUNS || v->head.pid_start == 0)
        return clock_wall_ns();
    clock_gettime(CLOCK_BOOTTIME, &now);
    up = (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
    if (up < v->head.pid_start * tick)
        return clock_wall_ns();
    return v->head.started_ns + up - v->head.pid_start * tick;
}

/* whole_s - digits below a second say nothing */
static const char *whole_s(uint64_t ns, char text[DURATION_TEXT])
{
    return duration_print(ns / NS_PER_S * NS_PER_S, text);
}

/* certain - they are from a time that is yet to come */
static void certain(struct findings *f, const struct snapshot *v,
                    const struct store_stepped *s, uint64_t now)
{
    char due[TIME_TEXT], seen[TIME_TEXT], wait[DURATION_TEXT];

    FOUND(f, WARN, "clock",
          fix(f,
              "date; if it is wrong, set the clock and start the worker again. "
              "If it is right, stop the worker; sqlite3 %s/store.db 'UPDATE "
              "messages SET due_ns = 0 WHERE state = 1 AND (attempts > 0 OR "
              "first_received_ns > unixepoch() * 1000000000)'; and start it: "
              "they run at once",
              v->dir.folder),
          "the clock was set back: %" PRIu64 " message%s from the future, up "
          "to %s, wait until %s, in %s",
          s->future, s->future == 1 ? "" : "s", term_time(s->seen_ns, seen),
          term_time(s->due_ns, due),
          whole_s(s->due_ns > now ? s->due_ns - now : 0, wait));
}

/* doubtful - a handler may have asked for such a delay */
static void doubtful(struct findings *f, const struct snapshot *v,
                     const struct store_stepped *s)
{
    char due[TIME_TEXT], longer[DURATION_TEXT];

    FOUND(
        f, NOTE, "clock",
        fix(f,
            "date; if it is right, mqctl explain %s ID, with an id of the log",
            v->queue),
        "%" PRIu64 " message%s more than %s from one try to the next, until "
        "%s: their handler asked for it, or the clock was set back",
        s->far, s->far == 1 ? " waits" : "s wait",
        duration_print(LONGER_NS, longer), term_time(s->due_ns, due));
}

void clock_check(struct findings *f, struct snapshot *v)
{
    uint64_t now = now_of(v), wall = clock_wall_ns();
    struct store_stepped stepped = {0};
    struct store *s;

    if (v->waiting <= 0 || snapshot_store(v, &s) < 0)
        return;
    if (store_stepped(s, ns_add(now, SLACK_NS), ns_add(wall, SLACK_NS),
                      LONGER_NS, &stepped) == 0) {
        if (stepped.future > 0)
            certain(f, v, &stepped, now);
        else if (stepped.far > 0)
            doubtful(f, v, &stepped);
    }
    store_close(&s);
}
