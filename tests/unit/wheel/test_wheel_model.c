/* test_wheel_model.c - the wheel beside a dumb list, at random times
 *
 * The model is an array that is searched from end to end. MQW_SEED repeats a
 * run, MQW_OPS sets its length.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/unit/wheel/wheel_check.h"
#include "tests/harness/sweep.h"

#define ITEMS 48
#define OPS   200000

/* LATE: started with a deadline in the past. DUE: was LATE when the advance
 * under way began. */
enum kind { IDLE, FUTURE, LATE, DUE };

struct item {
    struct wheel_timer timer;
    enum kind kind;
    uint64_t when, order;
};

static struct item item[ITEMS];
static struct wheel *wheel;
static uint64_t now, until, order, seed, fired, left;
static bool popping;
static unsigned long op;

/* Return the next number of xorshift64*. */
static uint64_t random64(void)
{
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return seed * UINT64_C(2685821657736338717);
}

/* Return a number from 0 to n - 1. */
static uint64_t random_below(uint64_t n)
{
    return random64() % n;
}

/* Return a span: any number of bits is as likely as any other. */
static uint64_t random_span(void)
{
    return random64() >> random_below(64);
}

/* Say where a run went wrong, and end it. */
static void fail(const char *what, uint64_t value)
{
    cr_assert_fail("MQW_SEED above, op %lu: %s (%llu)", op, what,
                   (unsigned long long)value);
}

/* Check a fact; `value` is shown if it is not so. */
#define expect(what, value)                 \
    do {                                    \
        if (!(what))                        \
            fail(#what, (uint64_t)(value)); \
    } while (0)

/* Check every invariant of the wheel. */
static void expect_sound(void)
{
    const char *wrong = wheel_check(wheel);

    if (wrong)
        fail(wrong, now);
}

/* Return the eligible item that comes first; NULL: there is none. */
static struct item *item_first(bool (*eligible)(const struct item *i))
{
    struct item *first = NULL;

    for (struct item *i = item; i < item + ITEMS; i++)
        if (i->kind != IDLE && eligible(i) &&
            (!first || i->when < first->when ||
             (i->when == first->when && i->order < first->order)))
            first = i;
    return first;
}

static bool is_any(const struct item *i)
{
    return i->kind != IDLE;
}

static bool is_due_kind(const struct item *i)
{
    return i->kind == DUE;
}

static bool is_due_now(const struct item *i)
{
    return i->kind == DUE || (i->kind == FUTURE && i->when <= until);
}

/* Start an item in the model. */
static void model_start(struct item *i, uint64_t when)
{
    i->kind = when > now ? FUTURE : LATE;
    i->when = when;
    i->order = ++order;
}

/* Begin an advance to `to` in the model. */
static void model_begin(uint64_t to)
{
    now = to;
    until = to;
    if (item_first(is_due_kind))
        return;
    for (struct item *i = item; i < item + ITEMS; i++)
        if (i->kind == LATE)
            i->kind = DUE;
}

/* Check that it was the turn of `t`, which came out of the wheel. */
static void model_fired(struct wheel_timer *t)
{
    struct item *i = (struct item *)t, *first = item_first(is_due_now);

    expect(i == first, i - item);
    fired++;
    i->kind = IDLE;
    expect(!wheel_pending(t), i - item);
}

/* Return a time around now, far ahead, past, or that of another item. */
static uint64_t random_when(void)
{
    uint64_t span = random_span();

    switch (random_below(8)) {
    case 0:
        return now > span ? now - span : 0;
    case 1:
        return item[random_below(ITEMS)].when;
    case 2:
        return ns_add(now, random_below(3) + (UINT64_C(1) << span % 64) - 1);
    default:
        return ns_add(now, span);
    }
}

/* Start or move an item. */
static void start_one(struct item *i)
{
    uint64_t when = random_when();

    wheel_start(wheel, &i->timer, when);
    model_start(i, when);
}

/* Start or cancel one item. */
static void change_one(void)
{
    struct item *i = &item[random_below(ITEMS)];

    if (random_below(4)) {
        start_one(i);
    } else {
        expect(wheel_cancel(wheel, &i->timer) == (i->kind != IDLE), now);
        i->kind = IDLE;
    }
}

/* Cancel the earliest item, which may leave the minimum of a slot wrong. */
static void cancel_first(void)
{
    struct item *i = item_first(is_any);

    if (!i)
        return;
    expect(wheel_cancel(wheel, &i->timer), now);
    i->kind = IDLE;
}

/* Check a timer that fires, then change something now and then. */
static void on_fire(struct wheel_timer *t)
{
    expect(left-- > 0, fired);
    model_fired(t);
    while (random_below(3) == 0)
        change_one();
}

/* Return where time goes next; in 1 of 8 cases back. */
static uint64_t random_now(void)
{
    uint64_t next;

    switch (random_below(8)) {
    case 0:
        return now - (now ? random_below(now) : 0);
    case 1:
        return ns_add(now, random_span());
    case 2:
        return now;
    default:
        if (!wheel_next(wheel, &next) || next < now)
            return now;
        return ns_add(next ? next - 1 : 0, random_below(3));
    }
}

/* Do one wheel_advance, and check it. */
static void advance(void)
{
    uint64_t to = random_now();
    size_t budget = random_below(2) ? (size_t)random_below(8) : 0;
    bool more;

    left = budget ? budget : SIZE_MAX;
    if (to >= now) {
        popping = false;
        model_begin(to);
    } else {
        left = 0;
    }
    more = wheel_advance(wheel, to, budget, on_fire);
    expect(!more || (budget && to >= now), now);
    if (to >= now && !more)
        expect(!item_first(is_due_now), to);
}

/* Do one wheel_pop, and check it. */
static void pop(void)
{
    uint64_t to = random_now();
    size_t budget = random_below(2) ? (size_t)random_below(8) : 0;
    struct wheel_timer *t;
    bool more;

    if (to >= now && (!popping || to > until))
        model_begin(to);
    t = wheel_pop(wheel, to, budget, &more);
    if (to < now) {
        expect(!t && !more, now);
        return;
    }
    popping = t || more;
    if (t)
        model_fired(t);
    if (!more)
        expect(!item_first(is_due_now), to);
}

/* Start again at any time. */
static void reset(void)
{
    now = until = random_span();
    popping = false;
    wheel_reset(wheel, now);
    for (struct item *i = item; i < item + ITEMS; i++) {
        expect(!wheel_pending(&i->timer), i - item);
        i->kind = IDLE;
    }
}

/* Compare all that can be asked of a wheel. */
static void compare(void)
{
    struct item *first = item_first(is_any);
    size_t count = 0;
    uint64_t next;

    expect_sound();
    for (struct item *i = item; i < item + ITEMS; i++) {
        expect(wheel_pending(&i->timer) == (i->kind != IDLE), now);
        count += i->kind != IDLE;
    }
    expect(wheel_count(wheel) == count, now);
    expect(wheel_now(wheel) == now, now);
    if (random_below(2)) /* only sometimes, as asking repairs a minimum */
        return;
    expect(wheel_next(wheel, &next) == !!first, now);
    if (first)
        expect(next == first->when, next);
    expect_sound();
}

/* Do one random operation. */
static void step(void)
{
    uint64_t choice = random_below(1000);

    if (choice < 2 || now > UINT64_MAX - 1000)
        reset();
    else if (choice < 70)
        cancel_first();
    else if (choice < 300)
        advance();
    else if (choice < 500)
        pop();
    else
        change_one();
}

Test(wheel_model, equals_a_sorted_list_at_random_64_bit_times, .timeout = 300)
{
    const char *from = getenv("MQW_SEED"), *length = getenv("MQW_OPS");
    unsigned long ops = length ? strtoul(length, NULL, 10)
                               : sweep_share("random operations", OPS);

    seed = from ? strtoull(from, NULL, 10)
                : clock_wall_ns() ^ (uint64_t)getpid() << 40;
    fprintf(stderr, "wheel model: MQW_SEED=%llu\n", (unsigned long long)seed);
    cr_assert_eq(wheel_open(&wheel, 0), 0);
    for (struct item *i = item; i < item + ITEMS; i++)
        wheel_timer_init(&i->timer);
    for (op = 0; op < ops; op++) {
        step();
        compare();
    }
    cr_assert_gt(fired, ops / 100, "only %lu timers fired",
                 (unsigned long)fired);
    wheel_close(&wheel);
}
