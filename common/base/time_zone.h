/* time_zone.h - a time zone that the C library does not know
 *
 * WHAT   tzset(3) takes a $TZ that it cannot use for UTC and does not say so.
 * WHO    Any thread, while nobody changes the environment.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef COMMON_BASE_TIME_ZONE_H
#define COMMON_BASE_TIME_ZONE_H

/* Return $TZ if local times are in UTC because it is unknown, else NULL. */
const char *time_zone_unknown(void);

#endif
