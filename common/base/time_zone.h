/* time_zone.h - detect a $TZ that the C library does not know
 *
 * WHAT   tzset(3) silently treats an unusable $TZ as UTC.
 * WHO    Any thread, while nobody changes the environment.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef COMMON_BASE_TIME_ZONE_H
#define COMMON_BASE_TIME_ZONE_H

/* Return $TZ if local times are in UTC because it is unknown, else NULL. */
const char *time_zone_unknown(void);

#endif
