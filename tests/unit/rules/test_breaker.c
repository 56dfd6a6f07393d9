/* test_breaker.c - every state and event, then lives of a breaker */
#include <criterion/criterion.h>
#include <string.h>

#include "worker/rules/breaker.h"

#define PAUSE    UINT64_C(1000)
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static struct breaker b;

static void teardown(void)
{
    breaker_fini(&b);
}

TestSuite(breaker, .fini = teardown);

/* Bring a fresh breaker to a state; `limit` failures in a row open it. */
static void bring(enum breaker_state state, uint64_t limit,
                  enum breaker_event opened_by)
{
    breaker_init(&b, limit, PAUSE);
    if (state == BREAKER_CLOSED)
        return;
    for (uint64_t i = 0; i < limit || i == 0; i++)
        breaker_tell(&b, opened_by, "why it opened");
    cr_assert_eq(breaker_state(&b), BREAKER_OPEN);
    if (state == BREAKER_PROBING)
        breaker_tell(&b, BREAKER_PAUSE_OVER, NULL);
    cr_assert_eq(breaker_state(&b), state);
}

/* A cell of the table: what an event does in a state. */
struct cell {
    enum breaker_state state;
    enum breaker_event opened_by; /* how it got there */
    enum breaker_event event;
    enum breaker_state then;
    bool opened, closed, first;
    uint64_t pause; /* in PAUSEs */
};
#define START BREAKER_NOT_STARTED
static const struct cell cells[] = {
    {BREAKER_CLOSED, 0, BREAKER_GOOD, BREAKER_CLOSED, 0, 0, 0, 0},
    {BREAKER_CLOSED, 0, BREAKER_BAD, BREAKER_CLOSED, 0, 0, 0, 0},
    {BREAKER_CLOSED, 0, START, BREAKER_OPEN, 1, 0, 1, 1},
    {BREAKER_CLOSED, 0, BREAKER_PAUSE_OVER, BREAKER_CLOSED, 0, 0, 0, 0},

    {BREAKER_OPEN, START, BREAKER_GOOD, BREAKER_OPEN, 0, 0, 0, 0},
    {BREAKER_OPEN, START, BREAKER_BAD, BREAKER_OPEN, 0, 0, 0, 0},
    {BREAKER_OPEN, START, START, BREAKER_OPEN, 0, 0, 0, 0},
    {BREAKER_OPEN, START, BREAKER_PAUSE_OVER, BREAKER_PROBING, 0, 0, 0, 0},

    {BREAKER_PROBING, START, BREAKER_GOOD, BREAKER_CLOSED, 0, 1, 0, 0},
    {BREAKER_PROBING, START, BREAKER_BAD, BREAKER_CLOSED, 0, 1, 0, 0},
    {BREAKER_PROBING, START, START, BREAKER_OPEN, 1, 0, 0, 2},
    {BREAKER_PROBING, START, BREAKER_PAUSE_OVER, BREAKER_PROBING, 0, 0, 0, 0},

    {BREAKER_PROBING, BREAKER_BAD, BREAKER_GOOD, BREAKER_CLOSED, 0, 1, 0, 0},
    {BREAKER_PROBING, BREAKER_BAD, BREAKER_BAD, BREAKER_OPEN, 1, 0, 0, 2},
    {BREAKER_PROBING, BREAKER_BAD, START, BREAKER_OPEN, 1, 0, 0, 2},
};

Test(breaker, every_state_and_event)
{
    for (size_t i = 0; i < COUNT(cells); i++) {
        const struct cell *c = &cells[i];
        struct breaker_step step;

        bring(c->state, c->opened_by == BREAKER_BAD ? 3 : 0, c->opened_by);
        step = breaker_tell(&b, c->event, "reason");
        cr_assert_eq(breaker_state(&b), c->then, "cell %zu", i);
        cr_assert_eq(step.opened, c->opened, "cell %zu", i);
        cr_assert_eq(step.closed, c->closed, "cell %zu", i);
        cr_assert_eq(step.first, c->first, "cell %zu", i);
        cr_assert_eq(step.pause_ns, c->pause * PAUSE, "cell %zu", i);
        breaker_fini(&b);
    }
    breaker_init(&b, 0, PAUSE);
}

Test(breaker, failures_in_a_row_open_it_at_the_limit)
{
    struct breaker_step step;

    breaker_init(&b, 3, PAUSE);
    breaker_tell(&b, BREAKER_BAD, "1");
    breaker_tell(&b, BREAKER_BAD, "2");
    breaker_tell(&b, BREAKER_GOOD, NULL); /* the row is broken */
    breaker_tell(&b, BREAKER_BAD, "3");
    breaker_tell(&b, BREAKER_BAD, "4");
    cr_assert_eq(breaker_state(&b), BREAKER_CLOSED);
    step = breaker_tell(&b, BREAKER_BAD, "5");
    cr_assert(step.opened && step.first);
    cr_assert_eq(breaker_state(&b), BREAKER_OPEN);
}

Test(breaker, failures_never_open_it_when_that_is_off)
{
    breaker_init(&b, 0, PAUSE);
    for (int i = 0; i < 1000; i++)
        cr_assert_not(breaker_tell(&b, BREAKER_BAD, "x").opened);
    cr_assert_eq(breaker_state(&b), BREAKER_CLOSED);
}

Test(breaker, pause_doubles_up_to_sixteen_times_and_starts_anew_once_closed)
{
    static const uint64_t times[] = {2, 4, 8, 16, 16, 16};
    struct breaker_step step;

    bring(BREAKER_OPEN, 0, BREAKER_NOT_STARTED);
    for (size_t i = 0; i < COUNT(times); i++) {
        breaker_tell(&b, BREAKER_PAUSE_OVER, NULL);
        step = breaker_tell(&b, BREAKER_NOT_STARTED, "x");
        cr_assert(step.opened && !step.first);
        cr_assert_eq(step.pause_ns, times[i] * PAUSE);
    }
    breaker_tell(&b, BREAKER_PAUSE_OVER, NULL);
    cr_assert(breaker_tell(&b, BREAKER_GOOD, NULL).closed);
    step = breaker_tell(&b, BREAKER_NOT_STARTED, "x");
    cr_assert(step.first);
    cr_assert_eq(step.pause_ns, PAUSE);
}

Test(breaker, longest_pause_does_not_wrap)
{
    struct breaker_step step = {.pause_ns = 1};

    breaker_init(&b, 0, INT64_MAX);
    step = breaker_tell(&b, BREAKER_NOT_STARTED, "x");
    for (int i = 0; i < 8; i++) {
        cr_assert_geq(step.pause_ns, (uint64_t)INT64_MAX);
        breaker_tell(&b, BREAKER_PAUSE_OVER, NULL);
        step = breaker_tell(&b, BREAKER_NOT_STARTED, "x");
    }
}

Test(breaker, row_of_failures_starts_anew_after_it_was_open)
{
    bring(BREAKER_PROBING, 3, BREAKER_BAD);
    breaker_tell(&b, BREAKER_GOOD, NULL);
    breaker_tell(&b, BREAKER_BAD, "1");
    breaker_tell(&b, BREAKER_BAD, "2");
    cr_assert_eq(breaker_state(&b), BREAKER_CLOSED);
    breaker_tell(&b, BREAKER_BAD, "3");
    cr_assert_eq(breaker_state(&b), BREAKER_OPEN);
}

Test(breaker, reason_is_of_the_last_opening)
{
    char text[sizeof b.reason], little[5];

    bring(BREAKER_PROBING, 0, BREAKER_NOT_STARTED);
    breaker_reason(&b, text, sizeof text);
    cr_assert_str_eq(text, "why it opened");
    breaker_tell(&b, BREAKER_NOT_STARTED, "second reason");
    breaker_tell(&b, BREAKER_NOT_STARTED, "came while it was open");
    breaker_reason(&b, text, sizeof text);
    cr_assert_str_eq(text, "second reason");
    breaker_reason(&b, little, sizeof little);
    cr_assert_str_eq(little, "seco");
}
