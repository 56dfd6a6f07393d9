/* lost_replays.c - letters that were on their way (see lost_replays.h) */
#include "worker/source/mq/lost_replays.h"

#include <errno.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/store/store.h"
#include "common/base/container.h"
#include "worker/loop/dirty.h"
#include "worker/source/mq/due_rows.h"

#define WAIT_FIRST NS_PER_S
#define WAIT_MOST  (5 * NS_PER_S)

/* in_flight - its message is in a slot, and ends from there */
static bool in_flight(int64_t row, void *arg)
{
    return due_rows_is_claimed(arg, row);
}

/* again_later - said once */
static void again_later(struct lost_replays *r, int err)
{
    if (r->wait_ns == 0)
        log_error("letters_not_recalled", F_STR("queue", r->queue),
                  F_STR("error", strerror(-err)), F_STR("store", r->folder),
                  F_STR("next",
                        "letters that were on their way when the machine "
                        "went down stay marked replayed until the "
                        "store can be written; it is tried again"));
    r->wait_ns = r->wait_ns ? 2 * r->wait_ns : WAIT_FIRST;
    if (r->wait_ns > WAIT_MOST)
        r->wait_ns = WAIT_MOST;
    timers_start(r->timers, &r->timer, clock_mono_ns() + r->wait_ns);
}

/* lost_replays_start - try it, now or later
 * Where /proc does not tell the boot id, nothing is known of where letters were
 * sent, and they stay as they are.
 */
void lost_replays_start(struct lost_replays *r)
{
    int n = store_recall(r->store, in_flight, r->due_rows);

    if (n < 0 && n != -ENOENT)
        again_later(r, n);
    if (n <= 0)
        return;
    log_warn("letters_recalled", F_INT("letters", n),
             F_STR("next", "they were on their way when the machine went down; "
                           "replay them again"));
    dirty_count(r->dirty);
    r->letters(r->arg);
}

/* lost_replays_job - a write may wait for the disk */
static void lost_replays_job(struct pool_job *job)
{
    lost_replays_start(CONTAINER_OF(job, struct lost_replays, job));
}

static void lost_replays_due(struct timer *timer)
{
    struct lost_replays *r = CONTAINER_OF(timer, struct lost_replays, timer);

    if (pool_submit(r->pool, &r->job) < 0)
        timers_start(r->timers, timer, clock_mono_ns() + WAIT_MOST);
}

void lost_replays_init(struct lost_replays *r)
{
    timer_init(&r->timer, lost_replays_due);
    r->job.run = lost_replays_job;
}
