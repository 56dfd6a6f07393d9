/* recall.c - letters that were on their way (see recall.h) */
#include "worker/source/recall.h"

#include <errno.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/store/store.h"
#include "common/base/container.h"
#include "worker/loop/dirty.h"
#include "worker/source/retries.h"

#define WAIT_FIRST NS_PER_S
#define WAIT_MOST  (5 * NS_PER_S)

/* in_flight - its message is in a slot, and ends from there */
static bool in_flight(int64_t row, void *arg)
{
    return retries_flies(arg, row);
}

/* again_later - said once */
static void again_later(struct recall *r, int err)
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

/* recall_start - try it, now or later
 * Where /proc does not tell the boot id, nothing is known of where letters were
 * sent, and they stay as they are.
 */
void recall_start(struct recall *r)
{
    int n = store_recall(r->store, in_flight, r->retries);

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

/* recall_job - a write may wait for the disk */
static void recall_job(struct pool_job *job)
{
    recall_start(CONTAINER_OF(job, struct recall, job));
}

static void recall_due(struct timer *timer)
{
    struct recall *r = CONTAINER_OF(timer, struct recall, timer);

    if (pool_submit(r->pool, &r->job) < 0)
        timers_start(r->timers, timer, clock_mono_ns() + WAIT_MOST);
}

void recall_init(struct recall *r)
{
    timer_init(&r->timer, recall_due);
    r->job.run = recall_job;
}
