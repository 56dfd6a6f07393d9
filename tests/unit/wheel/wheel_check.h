/* wheel_check.h - check every invariant of a wheel, from inside
 *
 * WHAT   The checks read fields that wheel.h does not show, so this file
 *        compiles wheel.c into a test.
 * WHO    Tests of the wheel, and its benchmark.
 * OWNS   Nothing.
 * FAILS  wheel_check returns NULL, or what is wrong.
 */
#ifndef TESTS_UNIT_WHEEL_WHEEL_CHECK_H
#define TESTS_UNIT_WHEEL_WHEEL_CHECK_H

/* NOLINTNEXTLINE(bugprone-suspicious-include): it looks inside */
#include "common/wheel/wheel.c"

/* Let time reach `now_ns` and pass the due timers to `fire`, with one `budget`
 * for all; 0: no limit. Returns true if the budget ended first. `fire` may
 * start and cancel timers. */
static inline bool wheel_advance(struct wheel *w, uint64_t now_ns,
                                 size_t budget,
                                 void (*fire)(struct wheel_timer *timer))
{
    size_t left = budget ? budget : SIZE_MAX;
    struct wheel_timer *t;
    bool more = false;

    if (now_ns < w->now_ns)
        return false;
    w->popping = false;
    round_begin(w, now_ns);
    while ((t = round_take(w, &left, &more)))
        fire(t);
    return more;
}

/* Return the time that the wheel has reached. */
static inline uint64_t wheel_now(const struct wheel *w)
{
    return w->now_ns;
}

/* Return the number of pending timers. */
static inline size_t wheel_count(const struct wheel *w)
{
    return w->count;
}

/* Check that `t` is linked well and in the slot of its deadline. */
static inline const char *timer_check(const struct wheel_bank *b, unsigned at,
                                      const struct wheel_timer *t)
{
    unsigned shift = at / BANK_SLOTS * 8;
    uint64_t differ = t->when_ns ^ b->elapsed_ns;

    if (!t->next || !t->prev || t->next->prev != t || t->prev->next != t)
        return "broken list";
    if (t->place != b->base + at)
        return "timer does not know its place";
    if (t->when_ns < b->elapsed_ns)
        return "deadline before the time the bank has reached";
    if ((t->when_ns >> shift & 255) != at % BANK_SLOTS)
        return "timer in another byte's slot";
    if (differ >> shift >> 8)
        return "timer on a level below its own";
    if (shift && !(differ >> shift) && !(b->floor != 1 && b->spreading == at))
        return "timer on a level above its own";
    return NULL;
}

/* Check the list, the notes and the minimum of slot `at`. */
static inline const char *slot_check(const struct wheel_bank *b, unsigned at,
                                     size_t *count)
{
    const struct wheel_slot *slot = &b->slot[at];
    const struct wheel_timer *t = slot->list.next;
    const char *wrong;
    uint64_t min, notes;

    if (!t)
        return slot->list.prev ? "broken unused list" : NULL;
    if (slot_is_empty(slot))
        return slot->list.prev == &slot->list ? NULL : "broken empty list";
    if (!(b->word[at / 64] >> at % 64 & 1))
        return "wrong occupancy bit";
    for (; t != &slot->list; t = t->next, ++*count) {
        wrong = timer_check(b, at, t);
        if (wrong)
            return wrong;
    }
    min = list_min(&slot->list, &notes);
    if (notes & ~slot->notes)
        return "list is not ascending";
    if (slot->list.when_ns)
        return "a list's own deadline is not 0";
    if (slot->notes & SLOT_STALE ? slot->min_ns > min : slot->min_ns != min)
        return "wrong minimum of a slot";
    return NULL;
}

/* Return NULL, or what is wrong with the wheel. */
static inline const char *wheel_check(const struct wheel *w)
{
    uint64_t now = w->now_ns;
    size_t count = 0;
    const char *wrong;

    for (unsigned i = 0; i < BANKS; i++) {
        const struct wheel_bank *b = &w->bank[i];

        for (unsigned k = 0; k < BANK_WORDS; k++)
            if ((b->summary >> k & 1) != (b->word[k] != 0))
                return "wrong summary";
        for (unsigned at = 0; at < BANK_PLACES; at++) {
            const struct wheel_timer *list = &b->slot[at].list, *t;

            wrong = slot_check(b, at, &count);
            if (wrong)
                return wrong;
            for (t = list->next; i != AHEAD && t && t != list; t = t->next)
                if (t->when_ns > now)
                    return "a late timer is not late";
        }
    }
    if (count != w->count)
        return "wrong count";
    if (w->bank[BANKS - w->due].elapsed_ns)
        return "late timers do not count from 0";
    if (w->bank[AHEAD].elapsed_ns > now)
        return "a time before the wheel's own";
    return NULL;
}

#endif
