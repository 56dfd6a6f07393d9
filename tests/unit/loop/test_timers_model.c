/* test_timers_model.c - the timers beside a dumb array, at random times
 *
 * The model is an array that is searched from end to end. MQW_SEED repeats a
 * run, MQW_OPS sets its length. Time is the test's: it takes the place of
 * clock_now.c and of timerfd_settime(2).
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "worker/loop/timers.h"

#define ITEMS 48
#define OPS   200000

struct item {
    struct timer timer;
    bool pending;
    uint64_t when, start; /* deadline; number of the start */
};

static struct item item[ITEMS];
static struct timers *timers;
static uint64_t now = 1; /* never 0: the timerfd is set to 1 at least */
static uint64_t armed, starts, seed, fired;
static uint64_t run_start; /* starts before the run under way */
static bool running;
static unsigned long op;

uint64_t clock_mono_ns(void)
{
    return now;
}

uint64_t clock_boot_ns(void)
{
    return now;
}

uint64_t clock_wall_ns(void)
{
    return now;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *at,
                    struct itimerspec *before)
{
    (void)fd, (void)flags, (void)before;
    armed = (uint64_t)at->it_value.tv_sec * NS_PER_S +
            (uint64_t)at->it_value.tv_nsec;
    return 0;
}

/* Return a random number of 64 bits (xorshift64*). */
static uint64_t random64(void)
{
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return seed * UINT64_C(2685821657736338717);
}

static uint64_t random_below(uint64_t n)
{
    return random64() % n;
}

/* Show `value` beside what was expected and was not so. */
#define expect(what, value)                             \
    cr_assert(what, "MQW_SEED=%llu, op %lu: %s (%llu)", \
              (unsigned long long)seed, op, #what,      \
              (unsigned long long)(value))

/* Return the pending item that comes first; NULL if there is none. With `due`,
 * of those that the run under way may call. */
static struct item *item_first(bool due)
{
    struct item *first = NULL;

    for (struct item *i = item; i < item + ITEMS; i++)
        if (i->pending && !(due && (i->when > now || i->start > run_start)) &&
            (!first || i->when < first->when ||
             (i->when == first->when && i->start < first->start)))
            first = i;
    return first;
}

/* Choose a deadline around now, far ahead, in the past, or another item's. */
static uint64_t random_when(void)
{
    uint64_t span = random64() >> random_below(64);

    switch (random_below(8)) {
    case 0:
        return now > span ? now - span : 0;
    case 1:
        return item[random_below(ITEMS)].when;
    case 2:
        return UINT64_MAX - random_below(2);
    case 3:
        return now;
    default:
        return ns_add(now, span);
    }
}

/* Start, move or cancel one item. */
static void change_one(void)
{
    struct item *i = &item[random_below(ITEMS)];
    uint64_t when = random_when(), how = random_below(8);

    if (how < 2) {
        bool was = how && !running /* not from a callback */
                       ? timers_cancel_sync(timers, &i->timer)
                       : timers_cancel(timers, &i->timer);

        expect(was == i->pending, i - item);
        i->pending = false;
        return;
    }
    if (how == 2)
        timers_start_after(timers, &i->timer, when > now ? when - now : 0);
    else if (how == 3)
        timers_start_earlier(timers, &i->timer, when);
    else
        timers_start(timers, &i->timer, when);
    if (how == 3 && i->pending && when >= i->when)
        return;
    i->when = how == 2 && when < now ? now : when;
    i->start = ++starts;
    i->pending = true;
}

/* Check that it is this item's turn, then change some others. */
static void on_fire(struct timer *timer)
{
    struct item *i = CONTAINER_OF(timer, struct item, timer);

    expect(running, now);
    expect(i == item_first(true), i - item);
    fired++;
    i->pending = false;
    while (random_below(3) == 0)
        change_one();
}

/* Let time pass, and run the timers if the timerfd has expired; returns true
 * if it has. */
static bool run(void)
{
    struct item *first = item_first(false);

    /* To the next deadline, one before it, one after it, or anywhere. */
    if (first && first->when > now && random_below(4))
        now = ns_add(first->when - 1, random_below(3));
    else if (random_below(4) == 0)
        now = ns_add(now, random64() >> (8 + random_below(56)));
    now -= now == UINT64_MAX; /* a deadline that never comes */
    run_start = starts;
    if (!armed || armed > now) {
        expect(!item_first(true), now);
        return false;
    }
    armed = 0; /* it expires once */
    running = true;
    timers_run(timers);
    running = false;
    expect(!item_first(true), now);
    return true;
}

/* Check that the timerfd is never set later than the first deadline; after a
 * run it is set to exactly that, and 0 switches it off. */
static void check_armed(bool exactly)
{
    struct item *first = item_first(false);
    uint64_t want = !first || first->when == UINT64_MAX ? 0
                    : first->when                       ? first->when
                                                        : 1;

    if (want)
        expect(armed && armed <= want, armed);
    if (exactly)
        expect(armed == want, armed);
}

Test(timers_model, equals_a_sorted_list_at_random_64_bit_times, .timeout = 300)
{
    const char *from = getenv("MQW_SEED"), *length = getenv("MQW_OPS");
    unsigned long ops = length ? strtoul(length, NULL, 10) : OPS;

    seed = from ? strtoull(from, NULL, 10) : (uint64_t)getpid() << 20 | 1;
    fprintf(stderr, "timers model: MQW_SEED=%llu\n", (unsigned long long)seed);
    cr_assert_eq(timers_open(&timers), 0);
    for (struct item *i = item; i < item + ITEMS; i++)
        timer_init(&i->timer, on_fire);
    for (op = 0; op < ops; op++) {
        bool runs = false;

        if (now > UINT64_MAX / 2)
            now = 1; /* timers keep no time of their own */
        if (random_below(3) == 0)
            runs = run();
        else
            change_one();
        check_armed(runs);
    }
    cr_assert_gt(fired, ops / 100, "only %lu timers fired",
                 (unsigned long)fired);
    timers_close(&timers);
}

static void on_fire_note(struct timer *timer)
{
    CONTAINER_OF(timer, struct item, timer)->when = now;
}

Test(timers_model, a_million_starts_of_one_timer_delay_no_other)
{
    cr_assert_eq(timers_open(&timers), 0);
    for (unsigned i = 0; i < ITEMS; i++) {
        timer_init(&item[i].timer, on_fire_note);
        timers_start(timers, &item[i].timer, i * UINT64_C(19991));
    }
    for (now = 1; now <= 1000000; now++) {
        timers_start(timers, &item[0].timer, now + 1 + now % 3);
        timers_run(timers);
    }
    for (unsigned i = 1; i < ITEMS; i++)
        cr_assert_eq(item[i].when, i * UINT64_C(19991));
    timers_close(&timers);
}
