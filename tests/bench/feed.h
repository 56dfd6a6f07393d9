/* feed.h - who sends the messages, and who counts them
 *
 * WHAT   A sender process, or a queue that is filled again each time it is
 *        empty; and the clock from the first delivery to the last.
 * WHO    A measuring process. tally_count: any thread that delivers; without
 *        HOW_SENDER one at a time.
 * OWNS   The sender, until tally_rate.
 * FAILS  fail().
 */
#ifndef TESTS_BENCH_FEED_H
#define TESTS_BENCH_FEED_H

#include <mqueue.h>
#include <stdatomic.h>

#include "tests/bench/bench.h"

#define FEED_MOST 8192 /* bytes of a message */

/* Open the queue of this measurement. */
mqd_t feed_open(int flags);
/* Make a body "g00:xxxx..."; name group number `i` modulo 16 in it. */
void feed_body(char body[FEED_MOST]);
void feed_turn(char body[FEED_MOST], unsigned long i);
/* Start a process that sends `n` messages, as fast as there is room. */
int feed_start(const struct task *task);

/* a = atomic; everything else belongs to who delivers number `next` */
struct tally {
    unsigned long n;     /* so many come */
    unsigned long fill;  /* the queue's depth; 0: a process sends */
    atomic_ulong seen;   /* a */
    atomic_ulong next;   /* a  at which there is something to do */
    size_t size;         /* bytes of a message */
    uint64_t from_ns;    /* the clock runs since; 0: it does not */
    unsigned long from;  /* and since that message */
    uint64_t ns;         /* it ran */
    unsigned long timed; /* messages in that time */
    double *fills;       /* ns a message of each filling that was emptied */
    size_t emptied;
    mqd_t mq;
    int sender;
    char body[FEED_MOST];
};

/* Count up to `n` deliveries of no queue. */
void tally_plan(struct tally *t, unsigned long n);
/* Count deliveries of the task. On return the queue is full or being filled. */
void tally_start(struct tally *t, const struct task *task);
/* Do the rare part of tally_count. */
bool tally_mark(struct tally *t, unsigned long at);
/* Return the messages a second, after the last one: with fillings, of the
 * median, because other programs have slowed few of them. */
double tally_rate(struct tally *t);

/* Count a delivery; return true for the last. All that are compared execute the
 * same few instructions. */
static inline bool tally_count(struct tally *t)
{
    unsigned long at =
        1 + atomic_fetch_add_explicit(&t->seen, 1, memory_order_relaxed);

    if (at < atomic_load_explicit(&t->next, memory_order_relaxed))
        return false;
    return tally_mark(t, at);
}

#endif
