/* quick_clock.c - the monotonic clock, read often (see quick_clock.h) */
#include "worker/loop/quick_clock.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* The kernel watches over the counter, and goes by another clock where it is
 * not the same on all processors or may stop (Documentation/virt/kvm/x86,
 * timekeeping; arch/x86/kernel/tsc.c). */
#define SOURCE \
    "/sys/devices/system/clocksource/clocksource0/current_clocksource"
#define COUNTER "tsc\n"

#define TRIES      4              /* to read both without an interruption */
#define SPENT_MOST 1024           /* ticks; some 0.3 us */
#define RATE_NS    NS_PER_MS      /* at least, to measure a rate */
#define RATE_MOST  (4 * NS_PER_S) /* longer, and it may have been asleep */
#define AHEAD_MOST NS_PER_MS      /* of the kernel's, to be made up for */
#define FINE       16384          /* a rate is as good as 1 / that */
#define SLOW       (UINT64_C(4) << 32) /* 250 MHz, as a rate */
#define FAST       (UINT64_C(1) << 28) /* 16 GHz */

/* has_counter - whether the kernel goes by it */
static bool has_counter(void)
{
#if defined __x86_64__
    char text[sizeof COUNTER] = "";
    int fd = open(SOURCE, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return false;
    n = read(fd, text, sizeof text - 1);
    close(fd);
    return n == sizeof text - 1 && strcmp(text, COUNTER) == 0;
#else
    return false;
#endif
}

/* both - the two clocks; again, if the thread was interrupted between them */
static struct quick_reading both(void)
{
    struct quick_reading r = {0};
    int tries = 0;

    do {
        uint64_t before = quick_clock_ticks();

        r.ns = clock_mono_ns();
        r.spent = quick_clock_ticks() - before;
        r.ticks = before + r.spent / 2;
    } while (r.spent > SPENT_MOST && ++tries < TRIES);
    return r;
}

void quick_clock_open(struct quick_clock *q)
{
    *q = (struct quick_clock){.counter = has_counter()};
    if (q->counter)
        q->from = both();
}

/* rate_of - ns a tick between two readings, times 2^32; 0: they do not tell */
static uint64_t rate_of(const struct quick_reading *a,
                        const struct quick_reading *b)
{
    uint64_t ticks = b->ticks - a->ticks, ns = b->ns - a->ns, rate;

    if (ns > RATE_MOST || ticks == 0 || a->spent + b->spent > ticks / FINE)
        return 0;
    rate = (uint64_t)((double)ns / (double)ticks * (double)(UINT64_C(1) << 32));
    return rate < FAST || rate > SLOW ? 0 : rate;
}

/* measure - how fast the counter is; two that differ are not believed
 * Readings that are too near to each other, for how long they took, are tried
 * again later. */
static void measure(struct quick_clock *q, const struct quick_reading *r)
{
    uint64_t rate, was = q->rate, ns = r->ns - q->from.ns;

    if (ns < RATE_NS)
        return;
    rate = rate_of(&q->from, r);
    if (!rate && ns <= RATE_MOST && r->spent >= q->from.spent)
        return;
    q->from = *r;
    if (!rate)
        return;
    q->rate = rate;
    if (was && (rate > was ? rate - was : was - rate) > was / (FINE / 4))
        q->rate = 0;
}

/* quick_clock_told - from here on the counter tells, and its lead is given back
 * until the next look
 * Slower by that much in that time, so never backwards. One that was far ahead
 * has jumped: then the kernel's clock is looked at until it has caught up. */
uint64_t quick_clock_told(struct quick_clock *q, const struct quick_reading *r,
                          uint64_t last_ns)
{
    uint64_t ahead = last_ns > r->ns ? last_ns - r->ns : 0;

    q->valid = 0;
    measure(q, r);
    if (ahead > AHEAD_MOST)
        q->rate = 0;
    if (q->rate && r->spent <= SPENT_MOST) {
        q->ticks = r->ticks;
        q->ns = r->ns + ahead;
        q->pace = q->rate - q->rate * ahead / QUICK_CLOCK_NS;
        q->valid = (QUICK_CLOCK_NS << 32) / q->rate;
    }
    return r->ns + ahead;
}

uint64_t quick_clock_look(struct quick_clock *q, uint64_t last_ns)
{
    struct quick_reading r;

    if (!q->counter)
        return clock_mono_ns();
    r = both();
    return quick_clock_told(q, &r, last_ns);
}
