/* backoff.c - how long a failed message waits (see backoff.h) */
#include "common/message/backoff.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sysexits.h>
#include <bsd/string.h>

#include "common/base/clock.h"

#define EXP_PREFIX "exp:"

/* refuse - one line that names the flag, the spec and what is allowed */
static int refuse(struct problem *p, const char *spec, const char *why)
{
    return problem_set(p, EX_USAGE, EINVAL,
                       "--backoff: \"%s\" %s; give exp:BASE,MAX like "
                       "exp:1s,5m, or a list like 1s,5s,30s (1 to %d "
                       "durations, the last one repeats)",
                       spec, why, BACKOFF_STEPS);
}

int backoff_parse(const char *spec, struct backoff *out, struct problem *p)
{
    char text[DURATION_TEXT * BACKOFF_STEPS];
    char *rest = text, *entry;
    struct backoff b = {0};

    b.exponential = strncmp(spec, EXP_PREFIX, strlen(EXP_PREFIX)) == 0;
    if (strlcpy(text, spec + (b.exponential ? strlen(EXP_PREFIX) : 0),
                sizeof text) >= sizeof text)
        return refuse(p, spec, "is too long");
    while ((entry = strsep(&rest, ",")) != NULL) {
        if (*entry == '\0')
            return refuse(p, spec, "has an empty entry");
        if (b.count == BACKOFF_STEPS)
            return refuse(p, spec, "has too many entries");
        if (duration_parse(entry, &b.step_ns[b.count++]) < 0)
            return refuse(p, spec, "has an entry that is not a duration");
    }
    if (b.exponential && b.count != 2)
        return refuse(p, spec, "needs a base and a maximum");
    if (b.exponential && b.step_ns[0] > b.step_ns[1])
        return refuse(p, spec, "has a base over its maximum");
    *out = b;
    return 0;
}

void backoff_print(const struct backoff *b, char *out, size_t room)
{
    char step[DURATION_TEXT];

    strlcpy(out, b->exponential ? EXP_PREFIX : "", room);
    for (size_t i = 0; i < b->count; i++) {
        strlcat(out, i ? "," : "", room);
        strlcat(out, duration_print(b->step_ns[i], step), room);
    }
}

/* step_of - the delay without jitter */
static uint64_t step_of(const struct backoff *b, uint32_t failures)
{
    uint64_t delay = b->step_ns[0];

    if (!b->exponential)
        return b->step_ns[failures <= b->count ? failures - 1 : b->count - 1];
    for (uint32_t i = 1; i < failures && delay < b->step_ns[1] && delay; i++)
        delay = ns_add(delay, delay);
    return delay < b->step_ns[1] ? delay : b->step_ns[1];
}

/* part_random - 0 to 1 in steps of 2^-32; fine enough for a spread
 * Not arc4random(3), which ends the process when it gets no memory. */
static double part_random(void)
{
    uint32_t n;

    if (getrandom(&n, sizeof n, GRND_NONBLOCK) != sizeof n)
        n = (uint32_t)clock_mono_ns() * 2654435761u; /* Knuth, 6.4 */
    return (double)n / 4294967296.0;
}

uint64_t backoff_delay(const struct backoff *b, uint32_t failures,
                       unsigned jitter_percent)
{
    uint64_t delay = step_of(b, failures ? failures : 1);
    double part = jitter_percent ? part_random() : 0; /* a call */
    double extra = (double)delay * ((double)jitter_percent / 100.0) * part;

    return extra >= (double)INT64_MAX ? INT64_MAX
                                      : ns_add(delay, (uint64_t)extra);
}
