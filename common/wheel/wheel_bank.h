/* wheel_bank.h - 8 x 256 slots over 64-bit keys: the inside of a wheel
 *
 * WHAT   A queue of timers by deadline. Level = highest byte in which the
 *        deadline differs from `elapsed_ns`, slot = that byte, so that nothing
 *        wraps, nothing is clamped and the lowest level's first slot is always
 *        the earliest. Equal deadlines keep the order they were added in.
 * WHO    common/wheel alone; one thread at a time.
 * OWNS   Nothing but itself.
 * FAILS  Never.
 */
#ifndef COMMON_WHEEL_WHEEL_BANK_H
#define COMMON_WHEEL_WHEEL_BANK_H

#include "common/wheel/wheel.h"

#define BANK_SLOTS  256 /* of one level */
#define BANK_PLACES (8 * BANK_SLOTS)
#define BANK_WORDS  (BANK_PLACES / 64)

/* What is noted of a slot. */
#define SLOT_UNSORTED 1u /* the list may be other than ascending */
#define SLOT_STALE    2u /* the earliest was removed */

/* One cache line. The list is circular with `list` in it, whose deadline is 0.
 * Adding has one branch, the first timer of a slot, and removing has none: with
 * deadlines as random as they are, a wrong guess of the processor costs more
 * than all else. So removing only notes what may have changed, and looking
 * repairs it. */
struct wheel_slot {
    _Alignas(64) struct wheel_timer list; /* next: first, prev: last */
    uint64_t min_ns; /* earliest deadline; if stale, not above it */
    uint64_t notes;  /* SLOT_, one word: one store for all */
};

struct wheel_bank {
    uint64_t elapsed_ns; /* at or before every deadline in here */
    uint64_t floor;      /* 1; while a slot of level L is being spread over the
                            levels below: 1 << 8L, see wheel_bank_add */
    struct wheel_slot *slot;   /* BANK_PLACES of the wheel's */
    uint16_t base;             /* added to a place to make wheel_timer.place */
    uint16_t spreading;        /* that slot; only if floor is not 1 */
    uint32_t summary;          /* bit n: word[n] is not 0 */
    uint64_t word[BANK_WORDS]; /* bit n % 64 of n / 64: slot[n] is, or was
                                  until lately, not empty */
};

/* An empty bank of the slots `base` and on of a wheel. */
void wheel_bank_init(struct wheel_bank *b, struct wheel_slot *slots,
                     uint16_t base);
/* The earliest timer if its deadline is at or before `until_ns`, else NULL.
 * Each timer that had to be moved takes one off *budget; out of it: NULL. */
struct wheel_timer *wheel_bank_due(struct wheel_bank *b, uint64_t until_ns,
                                   size_t *budget);
/* Take off what wheel_bank_due gave. */
void wheel_bank_take(struct wheel_bank *b, struct wheel_timer *t);
/* Would wheel_bank_due have something to give or to move? */
bool wheel_bank_busy(struct wheel_bank *b, uint64_t until_ns);
/* Has it no timer? */
bool wheel_bank_empty(struct wheel_bank *b);
/* Nothing is busy until `now_ns`: deadlines are counted from there on. */
void wheel_bank_settle(struct wheel_bank *b, uint64_t now_ns);
/* Exact earliest deadline; false if empty. */
bool wheel_bank_next(struct wheel_bank *b, uint64_t *when_ns);
/* Forget all; they are not pending any more. */
void wheel_bank_clear(struct wheel_bank *b, uint64_t elapsed_ns);
bool wheel_bank_each(const struct wheel_bank *b,
                     bool (*visit)(const struct wheel_timer *t, void *arg),
                     void *arg);
/* Every invariant; counts its timers. NULL or what is wrong. */
const char *wheel_bank_check(const struct wheel_bank *b, size_t *count);

/* wheel_bank_place - put `t` where its deadline belongs, level >= floor's
 * The floor also keeps clz away from 0 when the deadline is elapsed_ns. */
static inline void wheel_bank_place(struct wheel_bank *b, struct wheel_timer *t,
                                    uint64_t floor)
{
    uint64_t when = t->when_ns, differ = (when ^ b->elapsed_ns) | floor;
    unsigned top = 63 - (unsigned)__builtin_clzll(differ);
    unsigned byte = (unsigned)(when >> (top & 56)) & 255;
    unsigned at = (top >> 3) * BANK_SLOTS + byte;
    struct wheel_slot *slot = &b->slot[at];
    struct wheel_timer *last = slot->list.prev;

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

/* wheel_bank_add - add `t`, whose deadline is not before elapsed_ns
 * While a slot is being spread, what belongs below it goes to its tail: or it
 * would overtake equal deadlines that still wait there. */
static inline void wheel_bank_add(struct wheel_bank *b, struct wheel_timer *t)
{
    wheel_bank_place(b, t, b->floor);
}

/* wheel_bank_remove - take `t` out; it is not pending any more
 * `slots` are all of the wheel's. */
static inline void wheel_bank_remove(struct wheel_slot *slots,
                                     struct wheel_timer *t)
{
    struct wheel_slot *slot = &slots[t->place];
    struct wheel_timer *next = t->next, *prev = t->prev;

    t->next = t->prev = NULL;
    next->prev = prev;
    prev->next = next;
    slot->notes |= t->when_ns == slot->min_ns ? SLOT_STALE : 0;
}

#endif
