/* in_hand_limit.c - what stays in hand ends in time (see in_hand_limit.h) */
#include "worker/config/in_hand_limit.h"

#include <errno.h>
#include <inttypes.h>
#include <sysexits.h>

/* A list of waits is at its last one by then, and one of a ns that doubles at
 * its maximum. */
#define SETTLED_AFTER 64
_Static_assert(BACKOFF_STEPS <= SETTLED_AFTER, "the last one repeats");

/* run_ns - of one attempt; without a limit only the operator knows it */
static uint64_t run_ns(const struct settings *s)
{
    uint64_t limit = s->timeout_ns == UINT64_MAX ? 0 : s->timeout_ns;
    uint64_t asked = s->max_timeout_ns == UINT64_MAX ? 0 : s->max_timeout_ns;

    return limit > asked ? limit : asked;
}

/* wait_ns - the longest that the backoff makes it after so many failures */
static uint64_t wait_ns(const struct settings *s, const struct backoff *b,
                        uint32_t failures)
{
    uint64_t wait = backoff_delay(b, failures, 0);

    return ns_add(wait, wait / 100 * s->jitter_percent);
}

/* sum_ns - of all attempts. After SETTLED_AFTER failures each wait is as long
 * as the one before, so that a million attempts cost no more than these. */
static uint64_t sum_ns(const struct settings *s, const struct backoff *b)
{
    uint64_t run = run_ns(s), sum = run, attempts = s->max_attempts, each;
    uint32_t n = 1;

    for (; n < attempts && n < SETTLED_AFTER; n++)
        sum = ns_add(ns_add(sum, wait_ns(s, b, n)), run);
    if (n >= attempts)
        return sum;
    each = ns_add(wait_ns(s, b, n), run);
    attempts -= n;
    return each > UINT64_MAX / attempts ? UINT64_MAX
                                        : ns_add(sum, attempts * each);
}

/* in_hand_limit_wait - the backoff's, and for each an equal part of the rest */
uint64_t in_hand_limit_wait(const struct settings *s, const struct backoff *b,
                            uint32_t failures)
{
    uint64_t attempts = s->max_attempts, sum = sum_ns(s, b), spare = 0;

    if (sum < IN_HAND_LIMIT_NS)
        spare = (IN_HAND_LIMIT_NS - sum) / (attempts ? attempts : 1);
    return ns_add(wait_ns(s, b, failures), spare);
}

int in_hand_limit_check(const struct settings *s, const struct backoff *b,
                        struct problem *p)
{
    char text[DURATION_TEXT];

    if (sum_ns(s, b) < IN_HAND_LIMIT_NS)
        return 0;
    return problem_set(p, EX_USAGE, EINVAL,
                       "--partitions: --max-attempts %" PRIu64 ", each up to "
                       "--timeout or --max-timeout, with the waits of "
                       "--backoff and --jitter between them, take %s or more "
                       "in sum, and a broker gives to another worker what has "
                       "no answer for 30m: make it less than 20m",
                       (uint64_t)s->max_attempts,
                       duration_print(IN_HAND_LIMIT_NS, text));
}
