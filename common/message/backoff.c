/* backoff.c - how long a failed message waits (see backoff.h) */
#include "common/message/backoff.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sysexits.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"

#define EXP_PREFIX "exp:"

static int spec_refuse(struct problem *p, const char *spec, const char *why)
{
    return problem_set(p, EX_USAGE, EINVAL,
                       "--backoff: \"%s\" %s; give exp:BASE,MAX like "
                       "exp:1s,5m, or a list like 1s,5s,30s (1 to %d "
                       "durations, the last one repeats)",
                       spec, why, BACKOFF_STEPS);
}

int backoff_parse(const char *spec, void *into, struct problem *p)
{
    char text[DURATION_TEXT * BACKOFF_STEPS];
    char *rest = text, *entry;
    struct backoff b = {0};

    b.exponential = strncmp(spec, EXP_PREFIX, strlen(EXP_PREFIX)) == 0;
    if (strlcpy(text, spec + (b.exponential ? strlen(EXP_PREFIX) : 0),
                sizeof text) >= sizeof text)
        return spec_refuse(p, spec, "is too long");
    while ((entry = strsep(&rest, ",")) != NULL) {
        if (*entry == '\0')
            return spec_refuse(p, spec, "has an empty entry");
        if (b.count == BACKOFF_STEPS)
            return spec_refuse(p, spec, "has too many entries");
        if (duration_parse(entry, &b.step_ns[b.count++]) < 0)
            return spec_refuse(p, spec, "has an entry that is not a duration");
    }
    if (b.exponential && b.count != 2)
        return spec_refuse(p, spec, "needs a base and a maximum");
    if (b.exponential && b.step_ns[0] > b.step_ns[1])
        return spec_refuse(p, spec, "has a base over its maximum");
    *(struct backoff *)into = b;
    return 0;
}

void backoff_print(const struct backoff *b, char *out, size_t room)
{
    char step[DURATION_TEXT];

    strlcpy(out, b->exponential ? EXP_PREFIX : "", room);
    for (size_t i = 0; i < b->count; i++)
        text_append(out, room, "%s%s", i ? "," : "",
                    duration_print(b->step_ns[i], step));
}

uint64_t backoff_delay(const struct backoff *b, uint32_t failures,
                       unsigned jitter_percent)
{
    uint64_t delay = b->step_ns[0];
    double extra = 0;
    uint32_t random;

    failures += failures == 0;
    if (!b->exponential)
        delay = b->step_ns[failures <= b->count ? failures - 1 : b->count - 1];
    for (uint32_t i = 1;
         b->exponential && i < failures && delay < b->step_ns[1] && delay; i++)
        delay = ns_add(delay, delay);
    if (b->exponential && delay > b->step_ns[1])
        delay = b->step_ns[1];
    if (jitter_percent) {
        /* Not arc4random(3), which ends the process when it gets no memory. */
        if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
            random = (uint32_t)clock_mono_ns() * 2654435761u; /* Knuth, 6.4 */
        extra = (double)delay * ((double)jitter_percent / 100.0) *
                ((double)random / 4294967296.0);
    }
    return extra >= (double)INT64_MAX ? INT64_MAX
                                      : ns_add(delay, (uint64_t)extra);
}
