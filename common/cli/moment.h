/* moment.h - a moment that an operator names on a command line
 *
 * WHAT   "14:30", "tomorrow 08:00", RFC 3339: read in the local time zone ($TZ)
 *        unless a zone is given.
 * WHO    Any thread.
 * FAILS  -EINVAL not such a text, -ERANGE before 1970 or too late to hold. No
 *        output then.
 */
#ifndef COMMON_CLI_MOMENT_H
#define COMMON_CLI_MOMENT_H

#include <stdint.h>

#include "common/base/problem.h"

/* What the local clock does at that moment. */
enum moment_clock {
    MOMENT_ONCE,   /* it shows that time once, or a zone was given */
    MOMENT_TWICE,  /* twice, as it is set back */
    MOMENT_SKIPPED /* never, as it is set forward */
};

struct moment {
    uint64_t wall_ns;
    enum moment_clock clock;
};

/* "HH:MM[:SS]": the next time the clock shows that. "today HH:MM[:SS]",
 * "tomorrow HH:MM[:SS]", "YYYY-MM-DD[THH:MM[:SS]]": that one, which may be
 * past. With "Z" or "+HH:MM" at its end, or "@seconds", the zone is not asked.
 * A time that the clock shows twice is the first of the two, and one that it
 * skips as much later as the clock is set forward (RFC 5545, 3.3.5). */
int moment_parse(const char *text, uint64_t now_ns, struct moment *m);

/* Parse a moment in the past, for --since and --until. Accepts the forms of
 * moment_parse, except that "HH:MM[:SS]" is the last time the clock showed it,
 * and also "yesterday HH:MM[:SS]" and a duration ("2h") for that long ago. */
int moment_past_parse(const char *text, uint64_t now_ns, uint64_t *wall_ns);
/* Read such a moment as the value of a flag, for a row's `call`: *into is a
 * uint64_t, ns of the wall clock. The epoch becomes 1, because 0 stands for
 * "not given". Fails with a problem that names the accepted forms. */
int moment_past_read(const char *text, void *into, struct problem *p);

#define MOMENT_TEXT 48
/* Local time with its zone: "2026-11-23 14:30:00 +0100". */
const char *moment_print(uint64_t wall_ns, char buf[MOMENT_TEXT]);

#endif
