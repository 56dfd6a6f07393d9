/* term_time.h - times for people
 *
 * WHAT   Local time and "3 min ago" where a person reads; RFC 3339 in UTC, for
 *        scripts, until term_time_local says otherwise.
 * WHO    Programs with one thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef COMMON_TEXT_TERM_TIME_H
#define COMMON_TEXT_TERM_TIME_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/clock.h"

/* Whether times are for a person from here on. */
void term_time_local(bool local);
/* Read the local time zone for localtime_r; complain once if the zone is
 * unknown. */
void term_time_zone(void);

/* "2026-11-22 14:22:01+01:00": local, and time_parse reads it back. */
const char *term_time(uint64_t wall_ns, char buf[TIME_TEXT]);
/* "3 min ago", or "in 3 min". */
const char *term_time_ago(uint64_t wall_ns, char buf[TIME_TEXT]);
/* "2026-11-22 14:22:01+01:00, 3 min ago" */
const char *term_time_both(uint64_t wall_ns, char buf[TIME_TEXT]);

#endif
