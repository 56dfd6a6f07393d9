/* wheel_bank.c - one bank of a wheel (see wheel_bank.h) */
#include "common/wheel/wheel_bank.h"

_Static_assert(sizeof(struct wheel_slot) == 64, "a cache line a slot");

/* slot_clear - no timers in it */
static void slot_clear(struct wheel_slot *slot)
{
    slot->list.next = slot->list.prev = &slot->list;
}

/* slot_empty - has the slot no timer? */
static bool slot_empty(const struct wheel_slot *slot)
{
    return slot->list.next == &slot->list;
}

/* wheel_bank_init - an empty bank */
void wheel_bank_init(struct wheel_bank *b, struct wheel_slot *slots,
                     uint16_t base)
{
    *b = (struct wheel_bank){.slot = &slots[base], .base = base, .floor = 1};
    for (unsigned at = 0; at < BANK_PLACES; at++) {
        b->slot[at] = (struct wheel_slot){0};
        slot_clear(&b->slot[at]);
    }
}

/* place_clear - note that slot `at` is empty */
static void place_clear(struct wheel_bank *b, unsigned at)
{
    b->word[at / 64] &= ~(UINT64_C(1) << at % 64);
    if (!b->word[at / 64])
        b->summary &= ~(UINT32_C(1) << at / 64);
}

/* first_place - the earliest slot that is not empty; false: there is none
 * Clears the bits of slots that have become empty, once for many adds. */
static bool first_place(struct wheel_bank *b, unsigned *at)
{
    while (b->summary) {
        unsigned n = (unsigned)__builtin_ctz(b->summary);

        *at = n * 64 + (unsigned)__builtin_ctzll(b->word[n]);
        if (!slot_empty(&b->slot[*at]))
            return true;
        place_clear(b, *at);
    }
    return false;
}

/* wheel_bank_empty - has the bank no timer? */
bool wheel_bank_empty(struct wheel_bank *b)
{
    unsigned at;

    return !first_place(b, &at);
}

/* place_start - the first deadline that slot `at` can hold */
static uint64_t place_start(const struct wheel_bank *b, unsigned at)
{
    unsigned shift = at / BANK_SLOTS * 8;
    /* Two shifts: level 7 has nothing above it, and << 64 is undefined. */
    uint64_t above = b->elapsed_ns & (UINT64_MAX << shift << 8);

    return above | (uint64_t)(at % BANK_SLOTS) << shift;
}

/* spread_begin - let time reach the start of slot `at` of a level above 0 */
static void spread_begin(struct wheel_bank *b, unsigned at)
{
    b->elapsed_ns = place_start(b, at);
    b->floor = UINT64_C(1) << at / BANK_SLOTS * 8;
    b->spreading = (uint16_t)at;
}

/* spread - place the slot's timers again, one or more levels lower
 * False if the budget ended first; the rest stays in the slot, in order. */
static bool spread(struct wheel_bank *b, size_t *budget)
{
    struct wheel_slot *slot = &b->slot[b->spreading];
    struct wheel_timer *t = slot->list.next, *next;

    for (; t != &slot->list && *budget; --*budget) {
        next = t->next;
        wheel_bank_place(b, t, 1);
        t = next;
    }
    if (t != &slot->list) {
        slot->list.next = t;
        t->prev = &slot->list;
        slot->notes = SLOT_UNSORTED | SLOT_STALE;
        return false;
    }
    slot_clear(slot);
    place_clear(b, b->spreading);
    b->floor = 1;
    return true;
}

/* wheel_bank_due - the earliest timer if it is due; moves timers to find it */
struct wheel_timer *wheel_bank_due(struct wheel_bank *b, uint64_t until_ns,
                                   size_t *budget)
{
    struct wheel_slot *slot;
    struct wheel_timer *first;
    unsigned at;

    for (;;) {
        if (b->floor == 1) {
            if (!first_place(b, &at))
                return NULL;
            slot = &b->slot[at];
            first = slot->list.next;
            /* An ascending list, as all of level 0 are and one timer alone
             * is, needs no spreading: fire in place. */
            if ((!(slot->notes & SLOT_UNSORTED) || first == slot->list.prev) &&
                first->when_ns <= until_ns)
                return first;
            if (place_start(b, at) > until_ns)
                return NULL;
            spread_begin(b, at);
        }
        if (!spread(b, budget))
            return NULL;
    }
}

/* wheel_bank_take - remove the earliest timer
 * Likely the last of its slot: its bit goes at once. */
void wheel_bank_take(struct wheel_bank *b, struct wheel_timer *t)
{
    unsigned at = t->place - b->base;

    wheel_bank_remove(b->slot - b->base, t);
    if (slot_empty(&b->slot[at]))
        place_clear(b, at);
}

/* wheel_bank_busy - is something due, or a slot to be spread? */
bool wheel_bank_busy(struct wheel_bank *b, uint64_t until_ns)
{
    unsigned at;

    if (!first_place(b, &at))
        return false;
    if (b->floor != 1 && !slot_empty(&b->slot[b->spreading]))
        return true;
    return place_start(b, at) <= until_ns;
}

/* wheel_bank_settle - count deadlines from `now_ns` on */
void wheel_bank_settle(struct wheel_bank *b, uint64_t now_ns)
{
    b->floor = 1;
    if (now_ns > b->elapsed_ns)
        b->elapsed_ns = now_ns;
}

/* list_min - the earliest deadline, from end to end; is the list ascending? */
static uint64_t list_min(const struct wheel_timer *list, uint64_t *notes)
{
    uint64_t min = UINT64_MAX, last = 0;

    *notes = 0;
    for (const struct wheel_timer *t = list->next; t != list; t = t->next) {
        *notes |= t->when_ns < last ? SLOT_UNSORTED : 0;
        last = t->when_ns;
        if (last < min)
            min = last;
    }
    return min;
}

/* slot_min - the earliest deadline of a slot that is not empty
 * Timers of one and the same delay make ascending lists: no walk there. */
static uint64_t slot_min(struct wheel_slot *slot)
{
    if (!(slot->notes & SLOT_STALE))
        return slot->min_ns;
    slot->min_ns = slot->notes & SLOT_UNSORTED
                       ? list_min(&slot->list, &slot->notes)
                       : slot->list.next->when_ns;
    slot->notes &= ~(uint64_t)SLOT_STALE;
    return slot->min_ns;
}

/* wheel_bank_next - the earliest deadline */
bool wheel_bank_next(struct wheel_bank *b, uint64_t *when_ns)
{
    uint64_t min;
    unsigned at;

    if (!first_place(b, &at))
        return false;
    *when_ns = slot_min(&b->slot[at]);
    if (b->floor == 1 || slot_empty(&b->slot[b->spreading]))
        return true;
    /* Part of that slot is on the levels below it already, part is not. */
    min = slot_min(&b->slot[b->spreading]);
    if (min < *when_ns)
        *when_ns = min;
    return true;
}

/* slot_forget - no timer of the slot is pending any more */
static void slot_forget(struct wheel_slot *slot)
{
    struct wheel_timer *t = slot->list.next, *next;

    for (; t != &slot->list; t = next) {
        next = t->next;
        t->next = t->prev = NULL;
    }
}

/* wheel_bank_clear - an empty bank that counts from `elapsed_ns` */
void wheel_bank_clear(struct wheel_bank *b, uint64_t elapsed_ns)
{
    unsigned at;

    while (first_place(b, &at)) {
        slot_forget(&b->slot[at]);
        slot_clear(&b->slot[at]);
    }
    b->elapsed_ns = elapsed_ns;
    b->floor = 1;
}

/* wheel_bank_each - visit all timers; false once a visit was */
bool wheel_bank_each(const struct wheel_bank *b,
                     bool (*visit)(const struct wheel_timer *t, void *arg),
                     void *arg)
{
    for (unsigned at = 0; at < BANK_PLACES; at++) {
        const struct wheel_timer *list = &b->slot[at].list, *t;

        for (t = list->next; t != list; t = t->next)
            if (!visit(t, arg))
                return false;
    }
    return true;
}

/* timer_check - is `t` linked well and in the slot of its deadline? */
static const char *timer_check(const struct wheel_bank *b, unsigned at,
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

/* slot_check - list, order mark and minimum of slot `at` */
static const char *slot_check(const struct wheel_bank *b, unsigned at,
                              size_t *count)
{
    const struct wheel_slot *slot = &b->slot[at];
    const struct wheel_timer *t = slot->list.next;
    const char *wrong;
    uint64_t min, notes;

    if (slot_empty(slot))
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

/* wheel_bank_check - every invariant of a bank */
const char *wheel_bank_check(const struct wheel_bank *b, size_t *count)
{
    const char *wrong = NULL;

    *count = 0;
    for (unsigned i = 0; i < BANK_WORDS; i++)
        if ((b->summary >> i & 1) != (b->word[i] != 0))
            return "wrong summary";
    for (unsigned at = 0; at < BANK_PLACES && !wrong; at++)
        wrong = slot_check(b, at, count);
    return wrong;
}
