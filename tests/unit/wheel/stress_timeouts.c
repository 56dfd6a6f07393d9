/* stress_timeouts.c - start and cancel against time, for the thread sanitizer
 *
 * stress_timeouts [STARTS [SEED]]. Threads start items with limits around the
 * time that they take, and cancel them; one thread runs what is due. For each
 * start exactly one of the two must happen: the cancel said true, or the
 * callback ran. An item is on the stack of its round, so a callback after
 * timers_cancel_sync is a use after return.
 */
#include "tests/unit/wheel/stress_fixture.h"

#include "common/base/basics.h"

struct item {
    struct timer timer;
    unsigned fired; /* by the peeker; read after timers_cancel_sync */
};

static void on_timeout(struct timer *timer)
{
    CONTAINER_OF(timer, struct item, timer)->fired++;
}

/* Start one item, and cancel it after a random wait. */
static void once(unsigned thread, unsigned *state)
{
    uint64_t limit = (uint64_t)rand_r(state) % FEW_NS;
    uint64_t wait = (uint64_t)rand_r(state) % FEW_NS;
    uint64_t until = clock_mono_ns() + wait;
    struct item item = {.fired = 0};
    bool cancelled;

    (void)thread;
    timer_init(&item.timer, on_timeout);
    timers_start_after(timers, &item.timer, limit);
    while (clock_mono_ns() < until)
        ;
    cancelled = timers_cancel_sync(timers, &item.timer);
    atomic_fetch_add(cancelled ? &in_time : &late, 1);
    if (cancelled + item.fired != 1) {
        fprintf(stderr, "cancel said %d, called back %u times\n", cancelled,
                item.fired);
        atomic_fetch_add(&wrong, 1);
    }
}

int main(int argc, char **argv)
{
    if (!stress_open(argc, argv) || !stress_run(once))
        return 1;
    return stress_close("stress_timeouts");
}
