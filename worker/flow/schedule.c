/* schedule.c - start work items, or wait for the queue (see schedule.h) */
#include "worker/flow/schedule.h"

#include <errno.h>

#include "common/custody/custody.h"
#include "common/base/container.h"
#include "worker/loop/loop.h"
#include "worker/flow/ordered.h"
#include "worker/loop/peeker.h"
#include "worker/flow/receive_inner.h"
#include "worker/source/reopen.h"

/* somebody_would - take a message: one more work item, or one that runs and has
 * room in its window */
static bool somebody_would(struct engine *e)
{
    unsigned room = gate_room(&e->gate), running = gate_running(&e->gate);

    return running < room ||
           (running == room && room > 0 && atomic_load(&e->items.wants) > 0 &&
            breaker_state(&e->gate.breaker) == BREAKER_CLOSED);
}

static bool peeks(struct engine *e);

/* left - after `running` fell: somebody else may run, or all are out. True: the
 * caller may wait for the queue, if it is one that `stays`. */
static bool left(struct engine *e, bool stays)
{
    bounds_left(e);
    if (gate_held(&e->gate, HOLD_STOP))
        loop_wake(e->loop);
    else if (stays)
        return peeks(e);
    else
        schedule_poke(e);
    return false;
}

/* put_away - the item has no work; before `running` falls, so that whoever
 * counts itself in finds it */
static void put_away(struct receive *item)
{
    struct engine *e = item->engine;

    if (item->slot)
        custody_release(e->custody, item->slot);
    item->slot = NULL;
    items_put(&e->items, item);
}

/* item_enter - counted in; NULL: no room (who makes some pokes), or no
 * memory */
static struct receive *item_enter(struct engine *e)
{
    struct receive *item;

    if (!gate_enter(&e->gate))
        return NULL;
    item = items_get(&e->items, e);
    if (!item) {
        gate_leave(&e->gate);
        gate_trouble(&e->gate, "starting a work item", ENOMEM);
    }
    return item;
}

/* linger_begin - an item, its slot and what is to be done to it; counted as one
 * that keeps still */
static struct receive *linger_begin(struct engine *e)
{
    struct receive *item = items_get(&e->items, e);

    if (!item)
        return NULL;
    if (!item->slot)
        item->slot = custody_acquire(e->custody);
    items_linger(&e->items, item);
    return item;
}

/* linger - wait for the queue, with all that the next message needs at hand;
 * NULL: there is none, or nobody may take it. One work item more than the cap
 * is in use meanwhile.
 * Crash: its slot is FREE, whatever is in the body; the next start fills it
 * again.
 */
static struct receive *linger(struct engine *e)
{
    struct receive *item;
    bool came;

    if (!peeker_linger(e->peeker)) {
        schedule_poke(e);
        return NULL;
    }
    item = linger_begin(e);
    came = peeker_lingered(e->peeker);
    if (item)
        items_linger_end(&e->items);
    if (came && gate_room(&e->gate) > 1)
        peeker_look_later(e->peeker);
    if (came && item && gate_enter(&e->gate))
        return item;
    if (item)
        put_away(item);
    else if (came)
        gate_trouble(&e->gate, "starting a work item", ENOMEM);
    schedule_poke(e); /* one that runs may want what came */
    return NULL;
}

/* item_run - work items, on a pool thread: one, and another for each message
 * that the thread waits for itself */
static void item_run(struct pool_job *job)
{
    struct receive *item = CONTAINER_OF(job, struct receive, job);
    struct engine *e = item->engine;

    do {
        enum why why = e->ops->lanes ? window_batch(item) : receive_batch(item);

        take_flush(item);
        put_away(item);
        if (why != LEFT_TOLD && why != LEFT_CROWD)
            gate_leave(&e->gate);
        item = NULL;
        if (why == LEFT_CROWD) {
            /* Who stayed has the queue, as long as its handlers are quick. */
            peeker_look_soon(e->peeker);
        } else if (left(e, why == LEFT_EMPTY)) {
            item = linger(e);
        }
    } while (item);
}

/* schedule_start - one more work item */
bool schedule_start(struct engine *e)
{
    struct receive *item = item_enter(e);
    int err;

    if (!item)
        return e->ops->lanes && items_wake_one(&e->items, e->ops->lanes->wake);
    item->job.run = item_run;
    err = pool_submit(e->pool, &item->job);
    if (err) {
        put_away(item);
        gate_leave(&e->gate);
        gate_trouble(&e->gate, "starting a thread", -err);
    }
    return err == 0;
}

/* peeks - start a work item, or say that there is nothing to do but to
 * wait for the queue */
static bool peeks(struct engine *e)
{
    bool slots, room;

    dirty_count(&e->dirty);
    if (!somebody_would(e))
        return false;
    /* Without a free slot, or room for what is received, a work item could only
     * leave, and come here again; but it can park, which frees slots, or else
     * takes a delay (HOLD_QUEUE). */
    slots = custody_free_slots(e->custody) > 0;
    room = slots && gate_takes(&e->gate) && ordered_room(e);
    if (ready_waiting(&e->ready) || (!slots && ordered_stuck(e)) ||
        (slots && (retries_ready(e->retries) || ordered_ready(e))) ||
        (room && reopen_gone(e->reopen))) {
        schedule_start(e);
        return false;
    }
    return room;
}

/* schedule_poke - start a work item or peek
 * Whoever changes a reason not to take messages says so after the change
 * (gate.h), and a work item after it has counted itself out. So of two that
 * happen at once, the later one sees both.
 */
void schedule_poke(struct engine *e)
{
    if (peeks(e))
        peeker_arm(e->peeker);
}

/* schedule_wait_ms - without a limit, unless work items run with peek mode
 * off and more could run: then a handler that takes long would keep others
 * waiting */
int schedule_wait_ms(struct engine *e)
{
    unsigned running = gate_running(&e->gate);

    return running > 0 && running < gate_room(&e->gate) &&
                   !peeker_armed(e->peeker)
               ? PEEKER_STUCK_MS
               : -1;
}

/* schedule_quiet - a round without an event: does a handler keep its thread for
 * long? */
void schedule_quiet(struct engine *e)
{
    struct items_stats s;

    items_stats(&e->items, &s);
    if (s.deliveries == e->seen)
        schedule_poke(e);
    e->seen = s.deliveries;
}
