/* clock.h - time in nanoseconds; durations and sizes as text
 *
 * WHAT   Monotonic and wall time as uint64_t ns. "250ms", "8KiB" in and out.
 * WHO    Any thread.
 * FAILS  Parsers: -EINVAL for another form, -ERANGE if the value is too large.
 *        They set nothing then.
 */
#ifndef COMMON_BASE_CLOCK_H
#define COMMON_BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

/* Read CLOCK_MONOTONIC, ns. */
uint64_t clock_mono_ns(void);
/* Read CLOCK_REALTIME, ns since the epoch. Steps when the clock is set. */
uint64_t clock_wall_ns(void);
/* Read CLOCK_BOOTTIME, ns. The clock keeps running while the machine is
 * suspended and cannot be set, so delays are measured with it. */
uint64_t clock_boot_ns(void);
/* Return how far CLOCK_REALTIME is ahead of CLOCK_BOOTTIME, ns. Changes only
 * when the clock is set. */
int64_t clock_ahead_ns(void);
/* Return the CLOCK_BOOTTIME at which the wall clock will show `wall_ns` unless
 * it is set before then; the current time if `wall_ns` has passed. */
uint64_t clock_boot_at(uint64_t wall_ns);

/* Return a + b, or UINT64_MAX instead of wrapping. */
uint64_t ns_add(uint64_t a, uint64_t b);
/* Return the timeout for poll(2) until a monotonic time, ms, rounded up; 0 if
 * the time has passed, -1 (no timeout) for UINT64_MAX. */
int clock_ms_until(uint64_t mono_ns);

/* Parse "250ms", "1.5s", "2h30m" or "0". Units are ns us ms s m h d; a number
 * other than 0 needs one. The longest duration is 292 years (INT64_MAX ns). */
int duration_parse(const char *text, uint64_t *ns);
#define DURATION_TEXT 32
/* Print the shortest exact form, "250ms" "1m30s" "0s", which duration_parse
 * reads. */
const char *duration_print(uint64_t ns, char buf[DURATION_TEXT]);
/* Print for people, in at most five characters up to 1000 d: "2.8ms" "553ms"
 * "1m20s" "12m" "9h59m" "3d". Cuts instead of rounding. */
const char *duration_rough(uint64_t ns, char buf[DURATION_TEXT]);

/* Parse "8192", "8KiB", "1MiB", "8k" or "2M". KiB, MiB, GiB and k/K, M, G are
 * powers of 1024; kB/KB, MB, GB powers of 1000. The largest is INT64_MAX. */
int size_parse(const char *text, uint64_t *bytes);
#define SIZE_TEXT 32
/* Print "8KiB" or, if it is no multiple of 1024, "1000B"; size_parse reads
 * both. */
const char *size_print(uint64_t bytes, char buf[SIZE_TEXT]);

#define TIME_TEXT 48
/* Print RFC 3339 in UTC with milliseconds, cut: 2026-11-20T19:22:59.123Z. */
const char *time_print(uint64_t wall_ns, char buf[TIME_TEXT]);
/* Parse RFC 3339 (date, or date and time; seconds and zone may be missing, the
 * default is UTC), "@seconds" since the epoch, or a duration, which means that
 * long before `now_ns`. */
int time_parse(const char *text, uint64_t now_ns, uint64_t *wall_ns);

/* Return $TZ if tzset(3) silently treats it as UTC because the C library does
 * not know it, else NULL. Nobody may change the environment meanwhile. */
const char *time_zone_unknown(void);

#endif
