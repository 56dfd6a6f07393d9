#include "common/wheel_bank.h"

#include <string.h>

/* first_place - the earliest slot of a bank that is not empty */
static unsigned first_place(const struct wheel_bank *b)
{
    unsigned word = (unsigned)__builtin_ctz(b->summary);

    return word * 64 + (unsigned)__builtin_ctzll(b->word[word]);
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
 * False if the budget ended first; the rest stays in the slot, in order.
 */
static bool spread(struct wheel_bank *b, size_t *budget)
{
    struct wheel_slot *slot = &b->slot[b->spreading];
    struct wheel_timer *t = slot->head, *end = t, *tail, *next;

    if (t) {
        tail = t->prev;
        do {
            if (!*budget)
                goto cut;
            --*budget;
            next = t->next;
            wheel_bank_place(b, t, 1);
            t = next;
        } while (t != end);
        wheel_bank_empty_slot(b, b->spreading);
    }
    b->floor = 1;
    return true;
cut:
    t->prev = tail;
    tail->next = t;
    slot->head = t;
    slot->unsorted = slot->stale = true;
    return false;
}

/* wheel_bank_due - the earliest timer if it is due; moves timers to find it */
struct wheel_timer *wheel_bank_due(struct wheel_bank *b, uint64_t until_ns,
                                   size_t *budget)
{
    while (b->summary) {
        if (b->floor == 1) {
            unsigned at = first_place(b);
            struct wheel_timer *head = b->slot[at].head;
            bool alone = at < BANK_SLOTS || head->next == head;

            /* All deadlines of a slot of level 0 are equal, and one timer
             * alone in its slot needs no spreading: fire it in place. */
            if (alone && head->when_ns <= until_ns)
                return head;
            if (place_start(b, at) > until_ns)
                return NULL;
            spread_begin(b, at);
        }
        if (!spread(b, budget))
            return NULL;
    }
    return NULL;
}

/* wheel_bank_take - remove the earliest timer; time reaches its deadline */
void wheel_bank_take(struct wheel_bank *b, struct wheel_timer *t)
{
    b->elapsed_ns = t->when_ns;
    wheel_bank_remove(b, t);
}

/* wheel_bank_busy - is something due, or a slot to be spread? */
bool wheel_bank_busy(const struct wheel_bank *b, uint64_t until_ns)
{
    if (!b->summary)
        return false;
    if (b->floor != 1 && b->slot[b->spreading].head)
        return true;
    return place_start(b, first_place(b)) <= until_ns;
}

/* wheel_bank_settle - count deadlines from `now_ns` on */
void wheel_bank_settle(struct wheel_bank *b, uint64_t now_ns)
{
    b->floor = 1;
    if (now_ns > b->elapsed_ns)
        b->elapsed_ns = now_ns;
}

/* slot_min - the earliest deadline of a slot that is not empty
 * Walks a list only if the earliest was cancelled and the list was not
 * ascending; if it has become so, this was the last walk.
 */
static uint64_t slot_min(struct wheel_slot *slot)
{
    const struct wheel_timer *t = slot->head;
    uint64_t last = t->when_ns;

    if (!slot->stale)
        return slot->min_ns;
    slot->stale = slot->unsorted = false;
    slot->min_ns = last;
    while ((t = t->next) != slot->head) {
        if (t->when_ns < last)
            slot->unsorted = true;
        if (t->when_ns < slot->min_ns)
            slot->min_ns = t->when_ns;
        last = t->when_ns;
    }
    return slot->min_ns;
}

/* wheel_bank_next - the earliest deadline */
bool wheel_bank_next(struct wheel_bank *b, uint64_t *when_ns)
{
    uint64_t min;

    if (!b->summary)
        return false;
    *when_ns = slot_min(&b->slot[first_place(b)]);
    if (b->floor == 1 || !b->slot[b->spreading].head)
        return true;
    /* Half of that slot is on the levels below it, half is not. */
    min = slot_min(&b->slot[b->spreading]);
    if (min < *when_ns)
        *when_ns = min;
    return true;
}

/* list_forget - no timer of the list is pending any more */
static void list_forget(struct wheel_timer *head)
{
    struct wheel_timer *t = head, *next;

    do {
        next = t->next;
        t->next = t->prev = NULL;
        t = next;
    } while (t != head);
}

/* wheel_bank_clear - an empty bank that counts from `elapsed_ns` */
void wheel_bank_clear(struct wheel_bank *b, uint64_t elapsed_ns)
{
    while (b->summary) {
        unsigned at = first_place(b);

        list_forget(b->slot[at].head);
        wheel_bank_empty_slot(b, at);
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
        const struct wheel_timer *head = b->slot[at].head, *t = head;

        if (!head)
            continue;
        do {
            if (!visit(t, arg))
                return false;
            t = t->next;
        } while (t != head);
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
    const struct wheel_timer *t = slot->head;
    uint64_t min = UINT64_MAX;
    const char *wrong;

    do {
        wrong = timer_check(b, at, t);
        if (wrong)
            return wrong;
        if (t->when_ns < min)
            min = t->when_ns;
        if (!slot->unsorted && t->next != slot->head &&
            t->next->when_ns < t->when_ns)
            return "list is not ascending";
        ++*count;
        t = t->next;
    } while (t != slot->head);
    if (slot->stale && !slot->unsorted)
        return "stale minimum of an ascending list";
    if (slot->stale ? slot->min_ns > min : slot->min_ns != min)
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
    for (unsigned at = 0; at < BANK_PLACES && !wrong; at++) {
        if ((b->word[at / 64] >> at % 64 & 1) != (b->slot[at].head != NULL))
            return "wrong occupancy bit";
        if (b->slot[at].head)
            wrong = slot_check(b, at, count);
    }
    return wrong;
}
