/* keep.c - what a stop leaves unfinished (see keep.h) */
#include "worker/restart/keep.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "worker/flow/known.h"
#include "worker/flow/settle.h"
#include "worker/flow/unsettled.h"
#include "worker/handlers/handler.h"

#define TICK_NS NS_PER_MS

/* Of each message, for the log. */
struct unfinished {
    char id[ULID_TEXT];
    bool half; /* it was half received */
};

struct keep {
    struct flow *flow;
    struct unfinished *all; /* in the source's order; NULL: no memory */
    size_t count;
    unsigned ran; /* may have run */
};

/* place_of - where it waits for the next worker
 * A group's messages are parked: its order is theirs, and messages after them
 * wait for them. A letter that was sent again is before those.
 */
static void place_of(const struct flow *f, const struct delivery *d,
                     struct settle *out)
{
    bool delayed = delivery_delayed(d, f->set->max_delay_ns);

    out->group = d->group;
    out->header_size = d->header.bytes;
    out->kind = SETTLE_RETRY;
    if (delayed)
        out->due_ns = delivery_due(d, &out->due_boot_ns, &out->delay_ns);
    else
        settle_wait(out, 0);
    if (!delayed && d->group.at && !(d->message->flags & MESSAGE_STORED))
        out->kind = SETTLE_PARK;
}

/* place - it gets its id, for who is told of it. Nobody may have looked yet
 * whether it is a letter that was sent again: a second copy of one comes to
 * nothing. enum source_place, or -errno */
static int place(void *arg, struct message *m, bool half, struct settle *out)
{
    struct keep *k = arg;
    struct flow *f = k->flow;
    struct delivery d = {0};
    int err;

    delivery_read(&d, m, f->set->group_separator);
    d.place = LANE_NONE;
    err = known_look(f, &d);
    if (!err && (d.repeat || d.duplicate)) {
        settle_repeat(f, &d);
        return PLACE_SETTLED;
    }
    k->ran += (m->flags & MESSAGE_REDELIVERED) != 0;
    if (k->all) {
        ulid_print(*m->id, k->all[k->count].id);
        k->all[k->count].half = half;
    }
    k->count++;
    place_of(f, &d, out);
    return err < 0 ? err : PLACE_WAITS;
}

/* tell_each - where it is, by its id */
static void tell_each(const struct keep *k, bool kept)
{
    for (size_t i = 0; k->all && i < k->count; i++)
        log_warn("unfinished", F_STR("msg", k->all[i].id),
                 F_STR("what", k->all[i].half ? "was half received" : NULL),
                 F_STR("next", kept ? "it is in the store; the next worker "
                                      "goes on with it, no attempt counted"
                                    : "stays in custody; the next worker goes "
                                      "on with it, no attempt counted"));
}

/* tell - one line for all */
static void tell(const struct keep *k, int err)
{
    const struct flow *f = k->flow;
    char next[512];

    snprintf(next, sizeof next,
             "%s, then start a worker. Until then these messages exist only in "
             "custody: do not delete it",
             disk_advice(err));
    if (err)
        log_error("not_kept", F_STR("queue", f->set->queue),
                  F_UINT("count", k->count), F_STR("error", errno_text(-err)),
                  F_STR("store", f->folder), F_STR("next", next));
    else if (k->count > 0) /* not only second copies of letters */
        log_info("kept", F_STR("queue", f->set->queue),
                 F_UINT("count", k->count), F_UINT("may_have_run", k->ran),
                 F_STR("next", "all are in the store, none in custody; the "
                               "next worker goes on with them"));
}

/* keep_all - without memory for their names they are kept all the same */
int keep_all(struct flow *f, bool again)
{
    struct keep k = {.flow = f};
    int err;

    if (!f->source->local) /* the broker has its messages still */
        return 0;
    k.all = calloc(f->source->ops->lent(f->source), sizeof *k.all);
    err = f->source->local->keep(f->source, place, &k);
    if (!again || !err) {
        tell_each(&k, err == 0);
        tell(&k, err);
    }
    free(k.all);
    return err;
}

/* busy - a thread may settle something still: each work item that runs is in a
 * handler that will never be heard of again, and no verdict is written again */
static bool busy(struct flow *f)
{
    unsigned taken = f->ops->seize(f->handler);

    return atomic_load(&f->growing) || atomic_load(&f->gate.running) > taken ||
           !unsettled_quiet(&f->unsettled) || !items_others_over(&f->items);
}

/* keep_quiet - what a handler of ours returns from here on is not asked for
 * Crash anywhere: a slot that was seized is HELD, and runs again from there.
 * A thread that is about to settle is waited for, as long as a handler is
 * after SIGTERM: a message that it writes must not be written by us as well.
 */
bool keep_quiet(struct flow *f)
{
    const struct timespec tick = {.tv_nsec = TICK_NS};
    uint64_t end = ns_add(clock_mono_ns(), f->set->kill_after_ns);
    bool wait = busy(f);

    while (wait && clock_mono_ns() < end) {
        nanosleep(&tick, NULL);
        wait = busy(f);
    }
    if (wait)
        log_error("not_kept", F_STR("queue", f->set->queue),
                  F_UINT("running", gate_running(&f->gate)),
                  F_STR("error", "a thread of the worker is still busy"),
                  F_STR("next", "their messages stay in custody; start a "
                                "worker, which goes on with them"));
    return !wait;
}
