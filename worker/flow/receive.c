/* receive.c - the receive work item: one time-limited batch (see receive.h) */
#include "worker/flow/receive_inner.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/container.h"
#include "worker/flow/flow.h"
#include "worker/flow/group_dispatch.h"
#include "worker/flow/straight.h"
#include "worker/loop/loop.h"
#include "worker/loop/peeker.h"

/* A second thread pays off from about here on: waking it costs some
 * microseconds, and two that receive at once slow each other down on the
 * queue's lock in the kernel (docs/performance.md). Where handlers are quick
 * (ITEMS_QUICK_NS) all but one leave; the gap keeps them from coming and going.
 */
#define PAYS_NS 6000
/* How long an empty queue is tried again before its thread goes to sleep: what
 * going to sleep and being woken costs both sides. It is done while it pays:
 * RECEIVE_LUCK times in vain, and one in LUCK_SKIP from then on. A sender that
 * runs beside us costs no thread switch for each message then; for one that
 * waits for our processor it would be in vain. No sched_yield: who yields is
 * preempted by whomever it wakes next, which is a sender at each message of a
 * full queue. */
#define SPIN_NS   (10 * NS_PER_US)
#define PAUSES    16 /* between two tries: some 0.5 us */
#define LUCK_SKIP 64

/* deliver - the handler, then its verdict */
static void deliver(struct receive *item)
{
    struct flow *f = item->flow;
    bool quick = items_quick(&f->items);
    uint64_t before = quick ? item->now_ns : receive_look(item);

    /* Where it may take long, others can see whose it is (mqctl top). */
    if (!quick)
        (void)message_name(item->d->message);
    if (atomic_load_explicit(&f->items.pace_ns, memory_order_relaxed) >=
        PAYS_NS)
        gate_changed(&f->gate);
    receive_begins(item, item->d);
    f->ops->run(f->handler, item->d, &item->out);
    receive_ends(item, item->d, before);
}

/* suspects_stuck - none of those that are left can run now: they wait behind a
 * group that is blocked or held, or were discarded. The one work item asks this
 * between two messages, so nobody runs one. What may take as long as an
 * operator must not keep all others from running beside each other; should one
 * of them crash the process then, all that ran are suspects again.
 */
static void suspects_stuck(struct flow *f)
{
    if (gate_running(&f->gate) != 1 || !ready_empty(&f->ready) ||
        source_due(f->source) || dispatch_ready(f))
        return;
    gate_forget_suspects(&f->gate);
}

/* receive_must_leave - who has coprocesses is in no crowd: its handlers are
 * processes */
bool receive_must_leave(struct receive *item, enum why *why)
{
    struct flow *f = item->flow;

    *why = LEFT_TOLD;
    if (atomic_load_explicit(&f->gate.suspects.any, memory_order_relaxed))
        suspects_stuck(f);
    if (gate_leave_over(&f->gate, gate_room(&f->gate)))
        return true;
    *why = LEFT_CROWD;
    return !item->coprocess && items_quick(&f->items) &&
           gate_running(&f->gate) > 1 && items_crowded(&f->items, item) &&
           gate_leave_over(&f->gate, 1);
}

enum { LEAVE = INT_MIN };

/* relax - tell the processor that this is a wait; others need not be told */
static inline void relax(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__ || (defined __arm__ && __ARM_ARCH >= 7)
    __asm__ volatile("yield" ::: "memory");
#else
    atomic_signal_fence(memory_order_seq_cst); /* the loop stays a loop */
#endif
}

/* rest - the other side gets on meanwhile, without a lock of the queue */
static void rest(void)
{
    for (int i = 0; i < PAUSES; i++)
        relax();
}

/* receive_dwell - whether an empty queue is tried again */
bool receive_dwell(struct receive *item)
{
    if (item->dwells == 0) {
        if (item->luck == 0 && ++item->skipped % LUCK_SKIP != 0)
            return false;
        item->empty_ns = receive_look(item);
    }
    item->dwells++;
    if (receive_look(item) - item->empty_ns > SPIN_NS) {
        if (item->luck > 0)
            item->luck--;
        return false;
    }
    rest();
    return true;
}

/* next - the way that the reasons leave: a message to deliver, TAKEN_NONE, or
 * -errno as take. LEAVE: `why` */
static int next(struct receive *item, enum why *why)
{
    if (item->attend & ATTEND_LEAVE && receive_must_leave(item, why))
        return LEAVE;
    return item->attend & (unsigned)ATTEND_ASK ? take(item)
                                               : take_straight(item);
}

/* receive_batch - until there is a reason to leave; `running` still counts us,
 * unless LEFT_TOLD or LEFT_CROWD */
enum why receive_batch(struct receive *item)
{
    struct flow *f = item->flow;
    enum why why = LEFT_TOLD;

    item->end_ns = ns_add(receive_look(item), f->set->batch_limit_ns);
    item->dwells = 0;
    counters_put(&item->count->since_ns, COUNTERS_BUSY);
    for (;;) {
        int err = straight(item);

        if (err == STRAIGHT_ASK && (err = next(item, &why)) == LEAVE)
            return why;
        if (err == -EAGAIN && receive_dwell(item))
            continue;
        if (err < 0 && err != -EAGAIN)
            gate_trouble(&f->gate, "receiving", -err);
        if (err < 0)
            return LEFT_EMPTY;
        if (err == TAKEN) {
            take_flush(item);
            deliver(item);
        }
        receive_dwelt(item);
        if (item->now_ns >= item->end_ns)
            return LEFT_TIME;
    }
}
