/* quick_clock.h - the monotonic clock, for a thread that looks often
 *
 * WHAT   CLOCK_MONOTONIC. For up to QUICK_CLOCK_NS after a look at the kernel's
 *        clock the processor's own counter tells how much time has passed
 *        since: that takes a third of the time, and of the instructions. It
 *        never goes back. It is off by as much as the kernel's clock was
 *        steered meanwhile: by some 50 us at most, as adjtimex(2) allows 500
 *        ppm. That is made up for until the next look.
 * WHO    open: once, when the worker starts; each thread has a copy of that.
 *        One thread at a time.
 * OWNS   Nothing.
 * FAILS  Never. Where the kernel does not go by that counter itself, and of a
 *        struct that is all 0, each look is one at the kernel's clock; so it is
 *        for a while after the two have disagreed.
 */
#ifndef WORKER_LOOP_QUICK_CLOCK_H
#define WORKER_LOOP_QUICK_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/clock.h"

#define QUICK_CLOCK_NS (100 * NS_PER_MS)

/* Both clocks at once, as far as that can be. */
struct quick_reading {
    uint64_t ticks, ns;
    uint64_t spent; /* ticks, on reading them */
};

/* c = constant after open */
struct quick_clock {
    bool counter;   /* c  there is one */
    uint64_t valid; /* so many ticks from `ticks` on; 0: not at all */
    uint64_t ticks; /* of the last look at the kernel's clock */
    uint64_t ns;    /* what it is told to have been then */
    uint64_t pace;  /* ns a tick from then on, times 2^32 */
    uint64_t rate;  /* as measured; 0: not yet, or not to be believed */
    struct quick_reading from; /* where measuring began */
};

/* A counter that all processors share, never stops, and is read without a
 * call; not in order with what stands around it, by some ns. */
static inline uint64_t quick_clock_ticks(void)
{
#if defined __x86_64__
    return __builtin_ia32_rdtsc();
#else
    return 0; /* open finds none */
#endif
}

void quick_clock_open(struct quick_clock *q);

/* True: it is `*ns` when the counter says `ticks`, and never less than `*ns`
 * was, which is what the caller was told before: the counter of another
 * processor may be behind by less than the kernel notices. */
static inline bool quick_clock_at(const struct quick_clock *q, uint64_t ticks,
                                  uint64_t *ns)
{
    uint64_t passed = ticks - q->ticks, now;

    if (__builtin_expect(passed >= q->valid, 0))
        return false;
    now = q->ns + (passed * q->pace >> 32);
    *ns = now > *ns ? now : *ns;
    return true;
}
/* The same of now. False: quick_clock_look must be asked. */
static inline bool quick_clock_read(const struct quick_clock *q, uint64_t *ns)
{
    return quick_clock_at(q, quick_clock_ticks(), ns);
}
/* What the kernel's clock says, and `last_ns` at least, which is what it was
 * told to be before. */
uint64_t quick_clock_look(struct quick_clock *q, uint64_t last_ns);

/* Inside of quick_clock_look: the two clocks were read. Not of one without a
 * counter. */
uint64_t quick_clock_told(struct quick_clock *q, const struct quick_reading *r,
                          uint64_t last_ns);

#endif
