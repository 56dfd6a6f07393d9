/* attention.h - the one word that says whether something needs attention
 *
 * WHAT   One bit for each reason that may keep a work item from taking its next
 *        message the short way. The item reads the word once for each message;
 *        while the word is 0, the item checks none of the reasons.
 * WHO    Any thread reads. Only its owner, named below, changes a bit.
 * OWNS   Nothing; the gate has the word.
 * FAILS  Never.
 *
 * An owner changes the reason first, then the bit. Each bit follows its reason
 * in one of two ways. Either the bit is derived from the reason under a lock
 * after each change. Or each thread that changes the reason then sets or
 * clears the bit to match, and repeats this until bit and reason agree. These
 * accesses are sequentially consistent.
 *
 * The word is read relaxed, so a change may be seen late. No wake-up or stop is
 * missed: the word only chooses the path of a running work item's next message.
 * A thread that is about to sleep, to start or to end checks the reasons
 * themselves (items.c, gate.c).
 */
#ifndef WORKER_RULES_ATTENTION_H
#define WORKER_RULES_ATTENTION_H

#include <stdatomic.h>

enum {
    ATTEND_HOLD = 1 << 0,    /* gate: a HOLD_ bit is set */
    ATTEND_CAP = 1 << 1,     /* gate: more work items run than the cap */
    ATTEND_SUSPECT = 1 << 2, /* gate: a suspect runs alone, or waits to */
    ATTEND_BREAKER = 1 << 3, /* gate: the breaker is open, probes or counts */
    ATTEND_OTHERS = 1 << 4,  /* gate: more than one work item runs */
    ATTEND_READY = 1 << 5,   /* ready: a message waits for a thread */
    ATTEND_GROUP = 1 << 6,   /* groups: a message waits, is parked or may run */
    ATTEND_DUE = 1 << 7,     /* source: take_due may have something */
    ATTEND_LIMIT = 1 << 8,   /* run_limits: the run ends by itself */
    ATTEND_LATE = 1 << 9,    /* engine: a broker, which confirms later */
    ATTEND_RATE = 1 << 10,   /* rate: a delivery costs a token */
    /* A work item may have to leave; the gate's bits. */
    ATTEND_LEAVE = ATTEND_HOLD | ATTEND_CAP | ATTEND_SUSPECT | ATTEND_BREAKER |
                   ATTEND_OTHERS,
    /* The next message is not taken the short way. */
    ATTEND_ASK = ~ATTEND_OTHERS,
    /* The verdict on a message is not settled the short way. */
    ATTEND_END = ATTEND_SUSPECT | ATTEND_BREAKER | ATTEND_LATE,
};

struct attention {
    atomic_uint bits;
};

static inline unsigned attention_look(const struct attention *a)
{
    return atomic_load_explicit(&a->bits, memory_order_relaxed);
}

static inline void attention_on(struct attention *a, unsigned bits)
{
    if (bits & ~atomic_load(&a->bits))
        atomic_fetch_or(&a->bits, bits);
}

static inline void attention_off(struct attention *a, unsigned bits)
{
    if (bits & atomic_load(&a->bits))
        atomic_fetch_and(&a->bits, ~bits);
}

/* Set each bit of `mine` as it is in `bits`, and leave all other bits. */
static inline void attention_set(struct attention *a, unsigned mine,
                                 unsigned bits)
{
    attention_on(a, mine & bits);
    attention_off(a, mine & ~bits);
}

#endif
