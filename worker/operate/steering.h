/* steering.h - an order about single messages, and its answer
 *
 * WHAT   A pool job asks the source, which may wait for a disk; the loop has
 *        the answer when it is over.
 * WHO    The loop; the job on a thread of the pool.
 * OWNS   Itself: the last to be done with it, the loop or the job, frees it.
 * FAILS  -ENOMEM, or no thread.
 */
#ifndef WORKER_OPERATE_STEERING_H
#define WORKER_OPERATE_STEERING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/flow/flow.h"

struct steering; /* opaque */

/* Who is told that one is over; on a thread of the pool. */
struct steering_end {
    void (*over)(void *arg);
    void *arg;
};

int steering_begin(struct steering **out, struct flow *f, enum steer what,
                   const int64_t *numbers, size_t n,
                   const struct steering_end *end);
/* Cancel one that is lent and does not run, by its receive sequence; `key` of
 * its group, at NULL: it has none. */
int steering_begin_lent(struct steering **out, struct flow *f, uint64_t seq,
                        struct header_text key, const struct steering_end *end);
bool steering_is_over(const struct steering *s);
/* Once it is over: what became of each number, in their order; 0, or -errno:
 * nothing has happened. */
int steering_results(const struct steering *s, const enum steered **out,
                     size_t *n);
void steering_drop(struct steering **s); /* NULL-safe; sets NULL */

#endif
