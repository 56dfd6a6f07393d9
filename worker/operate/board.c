/* board.c - what others see of a worker (see board.h)
 *
 * Nothing here wakes an idle worker: the timer is started by work, and by
 * itself only while work goes on. The last one after the end of work shows what
 * is left.
 */
#include "worker/operate/board.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>
#include <bsd/string.h>
#include <bsd/unistd.h>

#include "common/base/clock.h"
#include "common/base/queue_name.h"
#include "common/state/counters.h"
#include "common/base/container.h"
#include "worker/engine.h"
#include "worker/source/file_watch.h"
#include "worker/flow/ordered.h"
#include "worker/loop/loop.h"

#define COUNT_NS    NS_PER_S
#define COUNT_SHARE 50 /* counting takes at most one part in so many */

enum { ROWS_WAITING, ROWS_PARKED, ROWS_DEAD };

/* rows_count - as the store has them now; a million of them take a while, so
 * the pause until the next time grows with it */
static void rows_count(struct engine *e)
{
    static const enum store_state states[] = {
        [ROWS_WAITING] = STORE_WAITING,
        [ROWS_PARKED] = STORE_PARKED,
        [ROWS_DEAD] = STORE_DEAD,
    };
    struct board *b = &e->board;
    uint64_t before = clock_mono_ns(), pause;

    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        atomic_store(&b->rows[i], store_count(e->store, states[i]));
    pause = COUNT_SHARE * (clock_mono_ns() - before);
    atomic_store(&e->dirty.pause_ns, pause > COUNT_NS ? pause : COUNT_NS);
}

void board_count(struct engine *e)
{
    rows_count(e);
    dirty_state(&e->dirty);
}

/* count_job - on a pool thread; while work goes on, again after a pause */
static void count_job(struct pool_job *job)
{
    struct engine *e = CONTAINER_OF(job, struct engine, board.job);
    struct items_stats s;

    /* Not before: a job that is queued still cannot be queued again. */
    dirty_count_begins(&e->dirty);
    rows_count(e);
    dirty_state(&e->dirty);
    loop_wake(e->loop);
    file_watch_soon(e->file_watch);
    items_stats(&e->items, &s);
    if (s.deliveries != e->board.deliveries &&
        atomic_load(&e->gate.running) > 0)
        dirty_count(
            &e->dirty); /* a batch without an end; others stir as they end */
    e->board.deliveries = s.deliveries;
}

/* count_due - in the peeker; what is done from the job on stirs again */
static void count_due(struct timer *timer)
{
    struct engine *e = CONTAINER_OF(timer, struct engine, dirty.timer);

    if (pool_submit(e->pool, &e->board.job) < 0)
        timers_start_after(e->timers, timer, COUNT_NS);
}

void board_init(struct engine *e)
{
    e->board.job.run = count_job;
    dirty_init(&e->dirty, COUNT_NS, count_due);
}

/* The file says what our bits mean (docs/counters.md). */
_Static_assert((int)HOLD_STOP == COUNTERS_STOPPING &&
                   (int)HOLD_PAUSE == COUNTERS_PAUSED &&
                   (int)HOLD_STORE == COUNTERS_STORE_HELD &&
                   (int)HOLD_QUEUE == COUNTERS_QUEUE_HELD &&
                   (int)HOLD_BOUND == COUNTERS_BOUND_HELD &&
                   (int)HOLD_WAITING == COUNTERS_WAITING_HELD &&
                   (int)HOLD_STORE_GONE == COUNTERS_STORE_GONE &&
                   (int)HOLD_CUSTODY_GONE == COUNTERS_CUSTODY_GONE &&
                   (int)HOLD_READ_ONLY == COUNTERS_READ_ONLY,
               "counters format");

/* state_text - what is not as usual, "" if nothing is; a bound that is reached
 * comes and goes with each message */
static void state_text(struct engine *e, const char *why, char *out,
                       size_t room)
{
    unsigned holds = atomic_load(&e->gate.holds) & ~(unsigned)HOLD_BOUND;

    out[0] = '\0';
    if (holds & HOLD_FILES && !(holds & HOLD_STOP))
        snprintf(out, room, " [takes nothing: %s]",
                 file_watch_text(e->file_watch));
    else if (holds)
        snprintf(out, room, " [%s]", counters_holds_text(holds));
    else if (breaker_state(&e->gate.breaker) != BREAKER_CLOSED)
        snprintf(out, room, " [breaker open: %s]", why);
}

/* title - numbers, then what is not as usual */
static void title(struct engine *e, const char *why)
{
    struct board *b = &e->board;
    int64_t waiting = atomic_load(&b->rows[ROWS_WAITING]);
    int64_t parked = atomic_load(&b->rows[ROWS_PARKED]);
    char state[200], text[QUEUE_NAME_MAX + 300];

    state_text(e, why, state, sizeof state);
    snprintf(text, sizeof text,
             "%s [%u of %u busy, %" PRId64 " waiting, %" PRId64 " dead]%s",
             e->set->queue, atomic_load(&e->gate.running),
             atomic_load(&e->gate.cap), waiting + parked,
             atomic_load(&b->rows[ROWS_DEAD]), state);
    setproctitle("-mqworker: %s", text);
    if (b->reader)
        b->reader->read(b->reader, text);
}

/* gauges - the same for the counters' header */
static void gauges(struct engine *e)
{
    struct counters *c = e->counters;
    struct board *b = &e->board;

    counters_gauge(c, COUNTERS_CAP, atomic_load(&e->gate.cap));
    counters_gauge(c, COUNTERS_HOLDS, atomic_load(&e->gate.holds));
    counters_gauge(c, COUNTERS_BREAKER, breaker_state(&e->gate.breaker));
    counters_gauge(c, COUNTERS_WAITING,
                   (uint64_t)atomic_load(&b->rows[ROWS_WAITING]));
    counters_gauge(c, COUNTERS_PARKED,
                   (uint64_t)atomic_load(&b->rows[ROWS_PARKED]));
    counters_gauge(c, COUNTERS_LETTERS,
                   (uint64_t)atomic_load(&b->rows[ROWS_DEAD]));
    counters_gauge(c, COUNTERS_GROUPS, ordered_groups(e));
    counters_gauge(c, COUNTERS_GROUPS_HELD, ordered_held(e));
    counters_gauge(c, COUNTERS_WINDOW, e->set->window);
}

/* board_show - both; the title of a program that embeds us is its own */
void board_show(struct engine *e)
{
    char why[160];

    if (!dirty_state_take(&e->dirty))
        return;
    breaker_reason(&e->gate.breaker, why, sizeof why);
    gauges(e);
    if (!e->set->inproc)
        title(e, why);
}
