/* moment.c - parse a local date and time (see moment.h) */
#include "common/cli/moment.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/cli/term.h"

#define DAY_S  INT64_C(86400)
#define DATE   (sizeof "2026-11-23" - 1)
#define SHOWN  64 /* bytes; a longer text is not a time */
#define LATEST ((uint64_t)INT64_MAX / NS_PER_S)

/* Return the seconds that the local clock is ahead of UTC at that moment. */
static int64_t east_of(int64_t utc)
{
    time_t at = (time_t)utc;
    struct tm t;

    return localtime_r(&at, &t) ? t.tm_gmtoff : 0;
}

/* Parse a date, or date and time, without a zone. Returns the second of two
 * moments if the first is not after `after_ns`. */
static int local_parse(const char *text, uint64_t after_ns, struct moment *m)
{
    int64_t shown, before, after, first, second;
    bool is_before, is_after;
    uint64_t shown_ns, seconds;
    int rc = time_parse(text, 0, &shown_ns); /* as if it were UTC */

    if (rc < 0)
        return rc;
    seconds = shown_ns / NS_PER_S;
    if (seconds < 2 * DAY_S || seconds > LATEST - 2 * DAY_S)
        return -ERANGE;
    /* The local offset from UTC is that of a day before or that of a day after,
     * because no place changes its clock twice within two days. So there are up
     * to two moments at which the clock shows this time. */
    shown = (int64_t)seconds;
    before = shown - east_of(shown - DAY_S);
    after = shown - east_of(shown + DAY_S);
    is_before = before + east_of(before) == shown;
    is_after = after + east_of(after) == shown;
    first = is_after && !is_before ? after : before;
    second = is_after ? after : first;
    m->clock = !is_before && !is_after ? MOMENT_SKIPPED
               : first == second       ? MOMENT_ONCE
                                       : MOMENT_TWICE;
    m->wall_ns = (uint64_t)first * NS_PER_S + shown_ns % NS_PER_S;
    if (m->wall_ns <= after_ns && second > first)
        m->wall_ns += (uint64_t)(second - first) * NS_PER_S;
    return 0;
}

/* Parse a time of the day that is `days` days ahead. */
static int day_parse(const char *time, uint64_t now_ns, int days,
                     uint64_t after_ns, struct moment *m)
{
    int64_t now = (int64_t)(now_ns / NS_PER_S);
    char text[SHOWN];
    char date[DATE + 1];
    time_t shown;
    struct tm t;

    if (strlen(time) >= SHOWN - sizeof date || strspn(time, "0123456789") != 2)
        return -EINVAL;
    shown = (time_t)(now + east_of(now) + days * DAY_S);
    gmtime_r(&shown, &t); /* the date here, as if it were UTC */
    strftime(date, sizeof date, "%Y-%m-%d", &t);
    snprintf(text, sizeof text, "%sT%s", date, time);
    return strpbrk(time, "Zz+-") ? -EINVAL : local_parse(text, after_ns, m);
}

/* Parse a time that has a zone. */
static int utc_parse(const char *text, struct moment *m)
{
    uint64_t wall_ns;
    int rc = time_parse(text, 0, &wall_ns);

    if (rc < 0)
        return rc;
    if (wall_ns / NS_PER_S > LATEST)
        return -ERANGE;
    *m = (struct moment){.wall_ns = wall_ns};
    return 0;
}

int moment_parse(const char *text, uint64_t now_ns, struct moment *m)
{
    struct moment today;
    int rc;

    term_time_zone();
    if (strncmp(text, "today ", 6) == 0)
        return day_parse(text + 6, now_ns, 0, 0, m);
    if (strncmp(text, "tomorrow ", 9) == 0)
        return day_parse(text + 9, now_ns, 1, 0, m);
    if (*text == '@')
        return utc_parse(text, m);
    if (strspn(text, "0123456789") == 4)
        return strlen(text) > DATE && strpbrk(text + DATE, "Zz+-")
                   ? utc_parse(text, m)
                   : local_parse(text, 0, m);
    rc = day_parse(text, now_ns, 0, now_ns, &today);
    if (rc == 0 && today.wall_ns <= now_ns)
        return day_parse(text, now_ns, 1, 0, m);
    if (rc == 0)
        *m = today;
    return rc;
}

int moment_past_parse(const char *text, uint64_t now_ns, uint64_t *wall_ns)
{
    struct moment m;
    uint64_t ago;
    int rc = duration_parse(text, &ago);

    if (rc == 0) {
        *wall_ns = ago > now_ns ? 0 : now_ns - ago;
        return 0;
    }
    if (rc != -EINVAL)
        return rc;
    term_time_zone();
    if (strncmp(text, "yesterday ", 10) == 0) {
        rc = day_parse(text + 10, now_ns, -1, 0, &m);
    } else if (strspn(text, "0123456789") == 2) {
        rc = day_parse(text, now_ns, 0, 0, &m);
        if (rc == 0 && m.wall_ns > now_ns)
            rc = day_parse(text, now_ns, -1, 0, &m);
    } else {
        rc = moment_parse(text, now_ns, &m);
    }
    if (rc == 0)
        *wall_ns = m.wall_ns;
    return rc;
}

int moment_past_read(const char *text, void *into, struct problem *p)
{
    uint64_t *wall_ns = into;

    if (moment_past_parse(text, clock_wall_ns(), wall_ns) < 0)
        return problem_set(
            p, EX_USAGE, EINVAL,
            "\"%.200s\" is not a time; give 14:30, \"yesterday 08:00\", "
            "2026-11-20, 2026-11-20T19:22:59 in local time or with a zone, "
            "@1763666579, or how long ago, like 2h",
            text);
    *wall_ns += *wall_ns == 0;
    return 0;
}

const char *moment_print(uint64_t wall_ns, char buf[MOMENT_TEXT])
{
    time_t seconds = (time_t)(wall_ns / NS_PER_S);
    struct tm t;

    term_time_zone();
    if (!localtime_r(&seconds, &t) ||
        strftime(buf, MOMENT_TEXT, "%Y-%m-%d %H:%M:%S %z", &t) == 0)
        return time_print(wall_ns, buf);
    return buf;
}
