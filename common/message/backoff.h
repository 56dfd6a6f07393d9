/* backoff.h - how long a failed message waits
 *
 * WHAT   Reads a spec such as "exp:1s,5m" or "1s,5s,30s", and computes the
 *        delay before a retry.
 * WHO    settings.c and header.c parse, settle.c computes the delay of each
 *        retry. Any thread; a struct backoff is not changed after parsing.
 * FAILS  backoff_parse: a problem with status 64.
 */
#ifndef COMMON_MESSAGE_BACKOFF_H
#define COMMON_MESSAGE_BACKOFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/problem.h"

#define BACKOFF_STEPS 32

struct backoff {
    bool exponential; /* step[0] doubles up to step[1] */
    size_t count;     /* of step[]; the last one repeats */
    uint64_t step_ns[BACKOFF_STEPS];
};

/* Read "exp:1s,5m" or "1s,5s,30s" into a struct backoff (`call` of
 * options.h). */
int backoff_parse(const char *spec, void *into, struct problem *p);
/* Print a spec that backoff_parse reads, cut to the room. */
void backoff_print(const struct backoff *b, char *out, size_t room);
/* Return the delay after the `failures`th failure (1 or more), with up to
 * `jitter_percent` (0 to 1000) added at random; never less than the delay of
 * the spec. */
uint64_t backoff_delay(const struct backoff *b, uint32_t failures,
                       unsigned jitter_percent);

#endif
