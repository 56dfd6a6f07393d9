/* status.c - what others see of a worker (see status.h)
 *
 * Nothing here wakes an idle worker: each batch of messages starts the timer of
 * a count at its start and end, and a count starts the timer again only while
 * messages run. The count after the last batch shows what is left.
 */
#include "worker/operate/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>
#include <bsd/unistd.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/state/counters.h"
#include "common/state/worker_lock.h"
#include "worker/files/file_watch.h"
#include "worker/flow/flow.h"
#include "worker/flow/dispatch.h"

#define COUNT_NS    NS_PER_S
#define COUNT_SHARE 50 /* counting takes at most this part of the time */

/* A number that the source cannot give stays as it was. A million rows take a
 * while, so the pause before the next count grows with the time of this one. */
void status_count(struct status *b)
{
    struct flow *f = b->flow;
    struct source *s = f->source;
    uint64_t before = clock_mono_ns(), pause;

    for (enum source_count i = COUNT_WAITING; i <= COUNT_DEAD; i++) {
        int64_t n = s->ops->count(s, i);

        if (n >= 0)
            atomic_store(&b->rows[i], n);
    }
    pause = COUNT_SHARE * (clock_mono_ns() - before);
    atomic_store(&f->dirty.pause_ns, pause > COUNT_NS ? pause : COUNT_NS);
    dirty_state_now(&f->dirty);
}

void status_on_dead(void *arg, uint64_t letters, bool failed)
{
    struct status *b = arg;

    if (failed) {
        counters_add(&counters_rest(b->flow->counters)->hooks_failed, 1);
        counters_rest_done(b->flow->counters);
    }
    atomic_store(&b->on_dead_waiting, letters);
    dirty_state_now(&b->flow->dirty);
}

/* Count the rows, and again after a pause while work goes on. */
static int count_run(struct chore *chore)
{
    struct status *b = CONTAINER_OF(chore, struct status, chore);
    struct flow *f = b->flow;
    struct items_stats s;

    status_count(b);
    file_watch_soon(b->file_watch);
    items_stats(&f->items, &s);
    if (s.deliveries != b->deliveries && atomic_load(&f->gate.running) > 0)
        dirty_count(&f->dirty); /* for a batch that runs on for long */
    b->deliveries = s.deliveries;
    return 0;
}

static void count_wanted(void *arg)
{
    struct status *b = arg;

    chore_soon(&b->chore);
}

void status_init(struct status *b, struct flow *f)
{
    b->flow = f;
    b->chore = (struct chore){
        .run = count_run, .first_ns = COUNT_NS, .pool = &f->pool};
    chore_init(&b->chore);
    dirty_init(&f->dirty, COUNT_NS, count_wanted, b);
}

/* The bits are written to the file as they are (docs/formats/counters.md). */
_Static_assert((int)HOLD_STOP == COUNTERS_STOPPING &&
                   (int)HOLD_PAUSE == COUNTERS_PAUSED &&
                   (int)HOLD_STORE == COUNTERS_STORE_HELD &&
                   (int)HOLD_QUEUE == COUNTERS_QUEUE_HELD &&
                   (int)HOLD_BOUND == COUNTERS_BOUND_HELD &&
                   (int)HOLD_WAITING == COUNTERS_WAITING_HELD &&
                   (int)HOLD_STORE_GONE == COUNTERS_STORE_GONE &&
                   (int)HOLD_CUSTODY_GONE == COUNTERS_CUSTODY_GONE &&
                   (int)HOLD_READ_ONLY == COUNTERS_READ_ONLY &&
                   (int)HOLD_RATE == COUNTERS_RATE_HELD &&
                   (int)HOLD_DAMAGED == COUNTERS_DAMAGED,
               "counters format");

void status_show(struct status *b)
{
    struct flow *f = b->flow;
    struct gate *g = &f->gate;
    struct counters *c = f->counters;
    unsigned holds = atomic_load(&g->holds);
    char state[200] = "", text[QUEUE_NAME_MAX + 300], breaker[160];
    struct file_trouble file;
    int64_t rows[COUNT_DEAD + 1];

    if (!dirty_state_take(&f->dirty))
        return;
    for (enum source_count i = COUNT_WAITING; i <= COUNT_DEAD; i++)
        rows[i] = atomic_load(&b->rows[i]);
    counters_gauge(c, COUNTERS_CAP, gate_cap(g));
    counters_gauge(c, COUNTERS_HOLDS, holds);
    counters_gauge(c, COUNTERS_BREAKER, breaker_state(&g->breaker));
    counters_gauge(c, COUNTERS_WAITING, (uint64_t)rows[COUNT_WAITING]);
    counters_gauge(c, COUNTERS_PARKED, (uint64_t)rows[COUNT_PARKED]);
    counters_gauge(c, COUNTERS_LETTERS, (uint64_t)rows[COUNT_DEAD]);
    counters_gauge(c, COUNTERS_GROUPS, groups_count(f->groups));
    counters_gauge(c, COUNTERS_GROUPS_HELD, groups_held(f->groups));
    counters_gauge(c, COUNTERS_WINDOW, f->set->window);
    counters_gauge(c, COUNTERS_ON_DEAD, atomic_load(&b->on_dead_waiting));
    if (f->set->inproc)
        return;
    /* The process title: numbers, then a hold or the breaker. HOLD_BOUND is
     * left out, because it comes and goes with each message. */
    holds &= ~(unsigned)HOLD_BOUND;
    if (gate_why(g) == WHY_FILES) {
        file_watch_trouble(b->file_watch, &file);
        snprintf(state, sizeof state, " [takes nothing: %s]", file.text);
    } else if (holds) {
        snprintf(state, sizeof state, " [%s]",
                 worker_state_text(worker_state_of_holds(holds)));
    } else if (breaker_state(&g->breaker) != BREAKER_CLOSED) {
        breaker_reason(&g->breaker, breaker, sizeof breaker);
        snprintf(state, sizeof state, " [breaker open: %s]", breaker);
    }
    snprintf(text, sizeof text,
             "%s [%u of %u busy, %" PRId64 " waiting, %" PRId64 " dead]%s",
             f->set->queue, atomic_load(&g->running), gate_cap(g),
             rows[COUNT_WAITING] + rows[COUNT_PARKED] + rows[COUNT_SPOOLED],
             rows[COUNT_DEAD], state);
    setproctitle("-mqworker: %s", text);
    if (b->reader)
        b->reader->read(b->reader, text);
}
