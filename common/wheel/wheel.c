/* wheel.c - a hierarchical timing wheel (see wheel.h)
 *
 * A bank is a queue of timers: 8 levels of 256 slots. The level of a timer is
 * the highest byte in which its deadline differs from `elapsed_ns`; its slot is
 * the value of that byte. So nothing wraps, nothing is clamped, and the first
 * used slot of the lowest used level is the earliest. Equal deadlines keep the
 * order in which they were added. A wheel has three banks.
 */
#include "common/wheel/wheel.h"

#include <errno.h>
#include <stdlib.h>

#define BANK_SLOTS  256 /* of one level */
#define BANK_PLACES (8 * BANK_SLOTS)
#define BANK_WORDS  (BANK_PLACES / 64)

/* Notes about a slot. */
#define SLOT_UNSORTED 1u /* the list may not be ascending */
#define SLOT_STALE    2u /* the earliest timer was removed */

/* One cache line. The list is circular and includes `list`, whose deadline is
 * 0; before the slot is first used, all of it is 0. Deadlines are random, so a
 * mispredicted branch would cost more than everything else. Adding a timer has
 * only one branch that is hard to predict, for the first timer of a list;
 * removing a timer has none: it only sets SLOT_STALE, and slot_min finds the
 * minimum again when it is needed. */
struct wheel_slot {
    _Alignas(64) struct wheel_timer list; /* next: first, prev: last */
    uint64_t min_ns; /* earliest deadline; if stale, not above it */
    uint64_t notes;  /* SLOT_ bits in one word, so that one store sets all */
};

struct wheel_bank {
    uint64_t elapsed_ns; /* at or before every deadline in here */
    uint64_t floor;      /* 1; while a slot of level L is being spread over the
                            levels below: 1 << 8L, see wheel_start */
    struct wheel_slot *slot;   /* BANK_PLACES of the wheel's */
    uint16_t base;             /* added to a place to make wheel_timer.place */
    uint16_t spreading;        /* place of the slot being spread, unless floor
                                * is 1 */
    uint32_t summary;          /* bit n: word[n] is not 0 */
    uint64_t word[BANK_WORDS]; /* bit n % 64 of word[n / 64]: slot[n] may hold
                                * a timer; 0: it is empty */
};

/* ---- a bank ---- */

_Static_assert(sizeof(struct wheel_slot) == 64, "a cache line a slot");

/* Make the list of a slot empty. */
static void slot_clear(struct wheel_slot *slot)
{
    slot->list.next = slot->list.prev = &slot->list;
}

/* Put `t` where its deadline belongs, at the level of `floor` or above. The
 * floor also keeps clz away from 0 when the deadline is elapsed_ns. */
static inline void bank_place(struct wheel_bank *b, struct wheel_timer *t,
                              uint64_t floor)
{
    uint64_t when = t->when_ns, differ = (when ^ b->elapsed_ns) | floor;
    unsigned top = 63 - (unsigned)__builtin_clzll(differ);
    unsigned byte = (unsigned)(when >> (top & 56)) & 255;
    unsigned at = (top >> 3) * BANK_SLOTS + byte;
    struct wheel_slot *slot = &b->slot[at];
    struct wheel_timer *last = slot->list.prev;

    if (!last) { /* the slot's first timer ever */
        slot_clear(slot);
        last = &slot->list;
    }
    t->place = (uint16_t)(b->base + at);
    t->next = &slot->list;
    t->prev = last;
    last->next = t;
    slot->list.prev = t;
    if (last == &slot->list) {
        slot->min_ns = when;
        slot->notes = 0;
        b->word[at / 64] |= UINT64_C(1) << at % 64;
        b->summary |= UINT32_C(1) << at / 64;
        return;
    }
    slot->min_ns = when < slot->min_ns ? when : slot->min_ns;
    slot->notes |= when < last->when_ns ? SLOT_UNSORTED : 0;
}

/* Return true if a slot has no timer. */
static bool slot_is_empty(const struct wheel_slot *slot)
{
    return slot->list.next == &slot->list;
}

/* Note that slot `at` is empty. */
static void place_clear(struct wheel_bank *b, unsigned at)
{
    b->word[at / 64] &= ~(UINT64_C(1) << at % 64);
    if (!b->word[at / 64])
        b->summary &= ~(UINT32_C(1) << at / 64);
}

/* Find the earliest slot that is not empty; returns false if there is none.
 * Clears the bits of empty slots here, because timer_remove does not. */
static bool place_find(struct wheel_bank *b, unsigned *at)
{
    while (b->summary) {
        unsigned n = (unsigned)__builtin_ctz(b->summary);

        *at = n * 64 + (unsigned)__builtin_ctzll(b->word[n]);
        if (!slot_is_empty(&b->slot[*at]))
            return true;
        place_clear(b, *at);
    }
    return false;
}

/* Return the first deadline that slot `at` can hold. */
static uint64_t place_start(const struct wheel_bank *b, unsigned at)
{
    unsigned shift = at / BANK_SLOTS * 8;
    /* Two shifts: level 7 has nothing above it, and << 64 is undefined. */
    uint64_t above = b->elapsed_ns & (UINT64_MAX << shift << 8);

    return above | (uint64_t)(at % BANK_SLOTS) << shift;
}

/* Place the timers of the slot `spreading` again, one or more levels lower.
 * Returns false if the budget ended first; the rest stays in the slot, in
 * order. */
static bool slot_spread(struct wheel_bank *b, size_t *budget)
{
    struct wheel_slot *slot = &b->slot[b->spreading];
    struct wheel_timer *t = slot->list.next, *next;

    for (; t != &slot->list && *budget; --*budget) {
        next = t->next;
        bank_place(b, t, 1);
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

/* Find the earliest timer if it is due; moves timers to find it. */
static struct wheel_timer *bank_first(struct wheel_bank *b, uint64_t until_ns,
                                      size_t *budget)
{
    struct wheel_slot *slot;
    struct wheel_timer *first;
    unsigned at;

    for (;;) {
        if (b->floor == 1) {
            if (!place_find(b, &at))
                return NULL;
            slot = &b->slot[at];
            first = slot->list.next;
            /* An ascending list needs no spreading: fire in place. Lists of
             * level 0, and of a single timer, are always ascending. */
            if ((!(slot->notes & SLOT_UNSORTED) || first == slot->list.prev) &&
                first->when_ns <= until_ns)
                return first;
            if (place_start(b, at) > until_ns)
                return NULL;
            /* Time reaches the start of a slot of a level above 0. */
            b->elapsed_ns = place_start(b, at);
            b->floor = UINT64_C(1) << at / BANK_SLOTS * 8;
            b->spreading = (uint16_t)at;
        }
        if (!slot_spread(b, budget))
            return NULL;
    }
}

/* Return true if a timer is due, or a slot is to be spread. */
static bool bank_busy(struct wheel_bank *b, uint64_t until_ns)
{
    unsigned at;

    if (!place_find(b, &at))
        return false;
    if (b->floor != 1 && !slot_is_empty(&b->slot[b->spreading]))
        return true;
    return place_start(b, at) <= until_ns;
}

/* Search a list from end to end for its earliest deadline; *notes is
 * SLOT_UNSORTED if it is not ascending. */
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

/* Return the earliest deadline of a slot that is not empty. Timers of equal
 * delay make ascending lists, which need no search. */
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

/* Find the earliest deadline of a bank. */
static bool bank_next(struct wheel_bank *b, uint64_t *when_ns)
{
    uint64_t min;
    unsigned at;

    if (!place_find(b, &at))
        return false;
    *when_ns = slot_min(&b->slot[at]);
    if (b->floor == 1 || slot_is_empty(&b->slot[b->spreading]))
        return true;
    /* The rest of the slot being spread may have an earlier deadline. */
    min = slot_min(&b->slot[b->spreading]);
    if (min < *when_ns)
        *when_ns = min;
    return true;
}

/* Forget all timers of a bank, which then counts from `elapsed_ns`. */
static void bank_clear(struct wheel_bank *b, uint64_t elapsed_ns)
{
    unsigned at;

    while (place_find(b, &at)) {
        struct wheel_timer *t = b->slot[at].list.next, *next;

        for (; t != &b->slot[at].list; t = next) {
            next = t->next;
            t->next = t->prev = NULL;
        }
        slot_clear(&b->slot[at]);
    }
    b->elapsed_ns = elapsed_ns;
    b->floor = 1;
}

/* ---- the wheel ---- */

_Static_assert(sizeof(struct wheel_timer) <= 32, "half a cache line a timer");

/* Deadlines after now_ns are in the bank AHEAD, counted from the time reached.
 * A timer started with a deadline in the past goes to the bank `late`, which
 * counts from 0, as a past deadline may be anything. A round turns `late` into
 * `due` and takes timers from AHEAD and `due`: so a timer that is started late
 * during a round waits for the next round, and the timers of a round fire in
 * order of deadline. Of two equal deadlines the one in AHEAD comes first,
 * because its timer was started earlier, before the deadline. */
enum { AHEAD, BANKS = 3 };

struct wheel {
    uint64_t now_ns; /* time reached so far */
    size_t count;    /* pending timers */
    unsigned due;    /* which bank is `due`: 1 or 2; `late` is the other */
    bool popping;    /* wheel_pop has not returned NULL yet */
    void *room;      /* the memory that the wheel is in */
    struct wheel_bank bank[BANKS];
    struct wheel_slot slot[BANKS * BANK_PLACES];
};

/* Return the late timers that this advance fires. */
static struct wheel_bank *bank_due(struct wheel *w)
{
    return &w->bank[w->due];
}

/* Return the late timers that the next advance fires. */
static struct wheel_bank *bank_late(struct wheel *w)
{
    return &w->bank[BANKS - w->due];
}

/* Take out a pending timer. */
static inline void timer_remove(struct wheel *w, struct wheel_timer *t)
{
    struct wheel_slot *slot = &w->slot[t->place];
    struct wheel_timer *next = t->next, *prev = t->prev;

    t->next = t->prev = NULL;
    next->prev = prev;
    prev->next = next;
    slot->notes |= t->when_ns == slot->min_ns ? SLOT_STALE : 0;
    w->count--;
}

/* Drop all timers and set the time to `now_ns`, which may be earlier. */
static void wheel_reset(struct wheel *w, uint64_t now_ns)
{
    bank_clear(&w->bank[AHEAD], now_ns);
    bank_clear(bank_due(w), 0);
    bank_clear(bank_late(w), 0);
    w->now_ns = now_ns;
    w->count = 0;
    w->popping = false;
}

int wheel_open(struct wheel **out, uint64_t now_ns)
{
    const size_t line = _Alignof(struct wheel);
    /* calloc takes no memory for slots until they are used. */
    char *room = calloc(1, sizeof(struct wheel) + line);
    struct wheel *w;

    *out = NULL;
    if (!room)
        return -ENOMEM;
    w = (void *)(room + (line - (uintptr_t)room % line));
    w->room = room;
    w->due = 1;
    for (unsigned i = 0; i < BANKS; i++)
        w->bank[i] = (struct wheel_bank){
            .slot = &w->slot[(size_t)i * (size_t)BANK_PLACES],
            .base = (uint16_t)(i * BANK_PLACES),
            .floor = 1};
    wheel_reset(w, now_ns);
    *out = w;
    return 0;
}

void wheel_close(struct wheel **wheel)
{
    if (!*wheel)
        return;
    wheel_reset(*wheel, 0);
    free((*wheel)->room);
    *wheel = NULL;
}

void wheel_timer_init(struct wheel_timer *timer)
{
    *timer = (struct wheel_timer){0};
}

bool wheel_pending(const struct wheel_timer *timer)
{
    return timer->next;
}

void wheel_start(struct wheel *w, struct wheel_timer *t, uint64_t when_ns)
{
    struct wheel_bank *bank;

    if (t->next)
        timer_remove(w, t);
    t->when_ns = when_ns;
    bank = when_ns > w->now_ns ? &w->bank[AHEAD] : bank_late(w);
    /* While a slot is being spread, timers that belong below it go to its tail;
     * otherwise they would overtake equal deadlines that still wait there. */
    bank_place(bank, t, bank->floor);
    w->count++;
}

bool wheel_cancel(struct wheel *w, struct wheel_timer *t)
{
    if (!t->next)
        return false;
    timer_remove(w, t);
    return true;
}

bool wheel_next(struct wheel *w, uint64_t *when_ns)
{
    uint64_t earliest = UINT64_MAX, when;

    if (!w->count)
        return false;
    for (unsigned i = 0; i < BANKS; i++)
        if (bank_next(&w->bank[i], &when) && when < earliest)
            earliest = when;
    *when_ns = earliest;
    return true;
}

/* Let time reach `now_ns`; the late timers become due. If a budget left some of
 * the last round's late timers, they come first. */
static void round_begin(struct wheel *w, uint64_t now_ns)
{
    unsigned at;

    w->now_ns = now_ns;
    if (!bank_late(w)->summary || place_find(bank_due(w), &at))
        return;
    bank_clear(bank_due(w), 0);
    w->due = BANKS - w->due;
}

/* Return true if there is more to fire or to move in this round. */
static bool round_busy(struct wheel *w)
{
    return bank_busy(&w->bank[AHEAD], w->now_ns) ||
           bank_busy(bank_due(w), w->now_ns);
}

/* Take off the earliest timer of this round. NULL: there is none now; *more is
 * set if that is because the budget ended. If the round is complete, deadlines
 * count from `now_ns`. */
static struct wheel_timer *round_take(struct wheel *w, size_t *budget,
                                      bool *more)
{
    struct wheel_bank *ahead = &w->bank[AHEAD], *bank;
    struct wheel_timer *t = NULL, *due = NULL;

    if (*budget)
        t = bank_first(ahead, w->now_ns, budget);
    if (*budget && bank_due(w)->summary)
        due = bank_first(bank_due(w), w->now_ns, budget);
    if (!t || (due && due->when_ns < t->when_ns))
        t = due;
    /* Out of budget, one of the two banks may hide an earlier timer. */
    if (*budget && t)
        --*budget;
    else
        t = NULL;
    if (!t) {
        *more = !*budget && round_busy(w);
        if (!*more) {
            ahead->floor = 1;
            if (w->now_ns > ahead->elapsed_ns)
                ahead->elapsed_ns = w->now_ns;
        }
        return NULL;
    }
    bank = &w->bank[t->place / BANK_PLACES];
    timer_remove(w, t);
    /* It was likely the last timer of its slot: clear the bit now. */
    if (slot_is_empty(&w->slot[t->place]))
        place_clear(bank, t->place - bank->base);
    return t;
}

struct wheel_timer *wheel_pop(struct wheel *w, uint64_t now_ns, size_t budget,
                              bool *more)
{
    size_t left = budget ? budget : SIZE_MAX;
    struct wheel_timer *t;

    *more = false;
    if (now_ns < w->now_ns)
        return NULL;
    if (!w->popping || now_ns > w->now_ns)
        round_begin(w, now_ns);
    t = round_take(w, &left, more);
    /* The budget ends with this call: report whether more is due. */
    if (t)
        *more = round_busy(w);
    w->popping = t || *more;
    return t;
}
