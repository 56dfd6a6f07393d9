/* wheel_bank.h - 8 x 256 slots over 64-bit keys: the inside of a wheel
 *
 * WHAT   A queue of timers by deadline. Level = highest byte in which the
 *        deadline differs from `elapsed_ns`, slot = that byte, so that nothing
 *        wraps, nothing is clamped and the lowest level's first slot is always
 *        the earliest. Equal deadlines keep the order they were added in.
 * WHO    common/wheel alone; one thread at a time.
 * OWNS   Nothing but itself; a zeroed bank is empty once `floor` is 1.
 * FAILS  Never.
 */
#ifndef COMMON_WHEEL_BANK_H
#define COMMON_WHEEL_BANK_H

#include "common/wheel.h"

#define BANK_SLOTS  256 /* of one level */
#define BANK_PLACES (8 * BANK_SLOTS)
#define BANK_WORDS  (BANK_PLACES / 64)

struct wheel_slot {
    struct wheel_timer *head; /* circular, head->prev is last; NULL: empty */
    uint64_t min_ns;          /* earliest deadline; if stale, not above it */
    bool unsorted;            /* not ascending: the head need not be first */
    bool stale;               /* the earliest left; only when unsorted */
};

struct wheel_bank {
    uint64_t elapsed_ns; /* at or before every deadline in here */
    uint64_t floor;      /* 1; while a slot of level L is being spread over the
                            levels below: 1 << 8L, see wheel_bank_add */
    uint16_t base;       /* added to a place to make wheel_timer.place */
    uint16_t spreading;  /* that slot; only if floor is not 1 */
    uint32_t summary;    /* bit n: word[n] is not 0 */
    uint64_t word[BANK_WORDS]; /* bit n % 64 of n / 64: slot[n] is not empty */
    struct wheel_slot slot[BANK_PLACES];
};

/* The earliest timer if its deadline is at or before `until_ns`, else NULL.
 * Each timer that had to be moved takes one off *budget; out of it: NULL. */
struct wheel_timer *wheel_bank_due(struct wheel_bank *b, uint64_t until_ns,
                                   size_t *budget);
/* Take off what wheel_bank_due gave. */
void wheel_bank_take(struct wheel_bank *b, struct wheel_timer *t);
/* Would wheel_bank_due have something to give or to move? */
bool wheel_bank_busy(const struct wheel_bank *b, uint64_t until_ns);
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

/* wheel_slot_append - put `t` at the tail of a list that is not empty */
static inline void wheel_slot_append(struct wheel_slot *slot,
                                     struct wheel_timer *t)
{
    struct wheel_timer *head = slot->head, *tail = head->prev;

    t->next = head;
    t->prev = tail;
    tail->next = t;
    head->prev = t;
    if (t->when_ns < tail->when_ns)
        slot->unsorted = true;
    if (t->when_ns <= slot->min_ns) {
        slot->min_ns = t->when_ns;
        slot->stale = false;
    }
}

/* wheel_bank_place - put `t` where its deadline belongs, level >= floor's
 * The floor also keeps clz away from 0 when the deadline is elapsed_ns.
 */
static inline void wheel_bank_place(struct wheel_bank *b, struct wheel_timer *t,
                                    uint64_t floor)
{
    uint64_t differ = (t->when_ns ^ b->elapsed_ns) | floor;
    unsigned top = 63 - (unsigned)__builtin_clzll(differ);
    unsigned byte = (unsigned)(t->when_ns >> (top & 56)) & 255;
    unsigned at = (top >> 3) * BANK_SLOTS + byte;
    struct wheel_slot *slot = &b->slot[at];

    t->place = (uint16_t)(b->base + at);
    if (slot->head) {
        wheel_slot_append(slot, t);
        return;
    }
    t->next = t->prev = t;
    *slot = (struct wheel_slot){.head = t, .min_ns = t->when_ns};
    b->word[at / 64] |= UINT64_C(1) << at % 64;
    b->summary |= UINT32_C(1) << at / 64;
}

/* wheel_bank_add - add `t`, whose deadline is not before elapsed_ns
 * While a slot is being spread, what belongs below it goes to its tail: or it
 * would overtake equal deadlines that still wait there.
 */
static inline void wheel_bank_add(struct wheel_bank *b, struct wheel_timer *t)
{
    wheel_bank_place(b, t, b->floor);
}

/* wheel_bank_empty_slot - note that slot `at` has lost its last timer */
static inline void wheel_bank_empty_slot(struct wheel_bank *b, unsigned at)
{
    b->slot[at].head = NULL;
    b->word[at / 64] &= ~(UINT64_C(1) << at % 64);
    if (!b->word[at / 64])
        b->summary &= ~(UINT32_C(1) << at / 64);
}

/* wheel_bank_remove - take `t` out; it is not pending any more
 * In an ascending list the next earliest is the new head. In another one it
 * would have to be searched, and most cancels are followed by more of them:
 * wheel_bank_next does that when somebody asks.
 */
static inline void wheel_bank_remove(struct wheel_bank *b,
                                     struct wheel_timer *t)
{
    unsigned at = t->place % BANK_PLACES;
    struct wheel_slot *slot = &b->slot[at];
    struct wheel_timer *next = t->next, *prev = t->prev;

    t->next = t->prev = NULL;
    if (next == t) {
        wheel_bank_empty_slot(b, at);
        return;
    }
    next->prev = prev;
    prev->next = next;
    if (slot->head == t)
        slot->head = next;
    if (t->when_ns != slot->min_ns)
        return;
    if (slot->unsorted)
        slot->stale = true;
    else
        slot->min_ns = slot->head->when_ns;
}

#endif
