/* term_time.c - see term_time.h */
#include "common/text/term_time.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/text/complain.h"

#define MINUTE_NS (60 * NS_PER_S)
#define HOUR_NS   (60 * MINUTE_NS)
#define DAY_NS    (24 * HOUR_NS)

static bool is_local;

void term_time_local(bool local)
{
    is_local = local;
    if (local)
        term_time_zone();
}

void term_time_zone(void)
{
    static bool told;
    const char *unknown = told ? NULL : time_zone_unknown();

    tzset(); /* localtime_r need not */
    if (unknown)
        complain(0,
                 "unknown time zone TZ=%s: times are shown and read in UTC. "
                 "/usr/share/zoneinfo lists the names (Debian: tzdata)",
                 unknown);
    told = told || unknown;
}

const char *term_time(uint64_t wall_ns, char buf[TIME_TEXT])
{
    time_t seconds = (time_t)(wall_ns / NS_PER_S);
    struct tm t;
    size_t size;

    if (!is_local || !localtime_r(&seconds, &t))
        return time_print(wall_ns, buf);
    size = strftime(buf, TIME_TEXT - 1, "%Y-%m-%d %H:%M:%S%z", &t);
    if (size < 2)
        return time_print(wall_ns, buf);
    memmove(buf + size - 1, buf + size - 2, 3); /* +0100 -> +01:00 */
    buf[size - 2] = ':';
    return buf;
}

const char *term_time_ago(uint64_t wall_ns, char buf[TIME_TEXT])
{
    static const struct {
        const char *unit;
        uint64_t ns, most; /* of that unit, before the next one is told */
    } units[] = {{"s", NS_PER_S, 120},
                 {"min", MINUTE_NS, 120},
                 {"h", HOUR_NS, 48},
                 {"days", DAY_NS, UINT64_MAX}};
    uint64_t now = clock_wall_ns(), ns;
    bool past = wall_ns <= now;
    size_t i = 0;

    if (!is_local)
        return time_print(wall_ns, buf);
    ns = past ? now - wall_ns : wall_ns - now;
    while (ns / units[i].ns >= units[i].most)
        i++;
    snprintf(buf, TIME_TEXT, "%s%" PRIu64 " %s%s", past ? "" : "in ",
             ns / units[i].ns, units[i].unit, past ? " ago" : "");
    return buf;
}

const char *term_time_both(uint64_t wall_ns, char buf[TIME_TEXT])
{
    char ago[TIME_TEXT];
    size_t size;

    term_time(wall_ns, buf);
    if (!is_local)
        return buf;
    size = strlen(buf);
    snprintf(buf + size, TIME_TEXT - size, ", %.20s",
             term_time_ago(wall_ns, ago));
    return buf;
}
