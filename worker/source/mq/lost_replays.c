/* lost_replays.c - letters that were on their way (see lost_replays.h) */
#include "worker/source/mq/lost_replays.h"

#include <errno.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/store/store.h"
#include "worker/loop/dirty.h"
#include "worker/source/mq/due_rows.h"

/* in_flight - its message is in a slot, and ends from there */
static bool in_flight(int64_t row, void *arg)
{
    return due_rows_is_claimed(arg, row);
}

/* recall - letters whose queue is gone can be replayed again
 * Where /proc does not tell the boot id, nothing is known of where letters were
 * sent, and they stay as they are.
 */
static int recall(struct chore *chore)
{
    struct lost_replays *r = CONTAINER_OF(chore, struct lost_replays, chore);
    int n = store_recall(r->store, in_flight, r->due_rows);

    if (n == -ENOENT || n == 0)
        return 0;
    if (n < 0)
        return n;
    log_warn("letters_recalled", F_INT("letters", n),
             F_STR("next", "they were on their way when the machine went down; "
                           "replay them again"));
    dirty_count(r->dirty);
    r->letters(r->arg);
    return 0;
}

static void tell(struct chore *chore, int err)
{
    struct lost_replays *r = CONTAINER_OF(chore, struct lost_replays, chore);

    if (err)
        log_error("letters_not_recalled", F_STR("queue", r->queue),
                  F_STR("error", errno_text(-err)), F_STR("store", r->folder),
                  F_STR("next",
                        "letters that were on their way when the machine "
                        "went down stay marked replayed until the "
                        "store can be written; it is tried again"));
}

void lost_replays_start(struct lost_replays *r)
{
    r->chore.timers = r->timers;
    r->chore.pool = &r->pool;
    chore_run(&r->chore);
}

void lost_replays_init(struct lost_replays *r)
{
    r->chore = (struct chore){.run = recall,
                              .tell = tell,
                              .first_ns = NS_PER_S,
                              .most_ns = 5 * NS_PER_S};
    chore_init(&r->chore);
}
