/* moment.h - parse a date and time of a command line
 *
 * WHAT   Reads "14:30", "tomorrow 08:00" or RFC 3339, in the local time zone
 *        ($TZ) unless the text names a zone.
 * WHO    The programs mqsend, mqdlq and mqctl, and the children of mqctl serve,
 *        in their only thread.
 * FAILS  -EINVAL: another form; -ERANGE: before 1970 or too late to hold. The
 *        result is not set then.
 */
#ifndef COMMON_CLI_MOMENT_H
#define COMMON_CLI_MOMENT_H

#include <stdint.h>

#include "common/base/problem.h"

/* How often the local clock shows the time. */
enum moment_clock {
    MOMENT_ONCE,   /* once, or the text names a zone */
    MOMENT_TWICE,  /* twice, because the clock is set back */
    MOMENT_SKIPPED /* never, because the clock is set forward */
};

struct moment {
    uint64_t wall_ns;
    enum moment_clock clock;
};

/* Parse a moment. "HH:MM[:SS]" is the next time that the clock shows it; "today
 * HH:MM[:SS]", "tomorrow HH:MM[:SS]" and "YYYY-MM-DD[THH:MM[:SS]]" may be past.
 * Texts with "Z" or "+HH:MM" at the end, and "@seconds", do not depend on the
 * zone. If the clock shows a time twice, the first moment is taken. If the
 * clock skips a time, the time is moved forward by as much as the clock (RFC
 * 5545, 3.3.5). */
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
/* Print local time with its zone: "2026-11-23 14:30:00 +0100". */
const char *moment_print(uint64_t wall_ns, char buf[MOMENT_TEXT]);

#endif
