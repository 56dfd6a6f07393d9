/* clock.c - see clock.h */
#include "common/base/clock.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <bsd/string.h>

#include "common/base/safe_text.h"

#define NS_PER_M    (60 * NS_PER_S)
#define NS_PER_H    (60 * NS_PER_M)
#define NS_PER_D    (24 * NS_PER_H)
#define LARGEST     ((uint64_t)INT64_MAX)
#define AHEAD_TRIES 8
#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

struct unit {
    const char *name;
    uint64_t scale;
};

/* Largest first: a duration names its units in this order. */
static const struct unit duration_units[] = {
    {"d", NS_PER_D},   {"h", NS_PER_H},   {"m", NS_PER_M}, {"s", NS_PER_S},
    {"ms", NS_PER_MS}, {"us", NS_PER_US}, {"ns", 1},
};

static const struct unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"k", 1u << 10},
    {"K", 1u << 10},
    {"KiB", 1u << 10},
    {"M", 1u << 20},
    {"MiB", 1u << 20},
    {"G", 1u << 30},
    {"GiB", 1u << 30},
    {"kB", 1000},
    {"KB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
};

/* The two clocks cannot be read at the same instant. Use the try with the
 * shortest interruption. */
int64_t clock_ahead_ns(void)
{
    uint64_t least = UINT64_MAX;
    int64_t ahead = 0;

    for (int i = 0; i < AHEAD_TRIES && least > NS_PER_US; i++) {
        uint64_t before = clock_boot_ns(), wall = clock_wall_ns();
        uint64_t took = clock_boot_ns() - before;

        if (took < least) {
            least = took;
            ahead = (int64_t)(wall - before - took / 2);
        }
    }
    return ahead;
}

uint64_t clock_boot_at(uint64_t wall_ns)
{
    uint64_t now = clock_boot_ns(), wall = clock_wall_ns();

    return ns_add(now, wall_ns > wall ? wall_ns - wall : 0);
}

uint64_t ns_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

int clock_ms_until(uint64_t mono_ns)
{
    uint64_t now, ms;

    if (mono_ns == UINT64_MAX)
        return -1;
    now = clock_mono_ns();
    if (mono_ns <= now)
        return 0;
    ms = (mono_ns - now + NS_PER_MS - 1) / NS_PER_MS;
    return ms > INT32_MAX ? INT32_MAX : (int)ms;
}

/* Return a * b, or UINT64_MAX instead of wrapping. */
static uint64_t ns_mul(uint64_t a, uint64_t b)
{
    uint64_t product;

    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* Unlike isdigit(3), defined for negative chars. */
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Read a decimal number, at most UINT64_MAX; returns false without a digit. */
static bool decimal_read(const char **at, uint64_t *value)
{
    const char *text = *at;
    uint64_t sum = 0;

    if (!is_digit(*text))
        return false;
    for (; is_digit(*text); text++)
        sum = ns_add(ns_mul(sum, 10), (uint64_t)(*text - '0'));
    *at = text;
    *value = sum;
    return true;
}

/* Read ".5" of `scale`, cut at whole units; without a dot the value is 0.
 * Returns false for a lone dot. Goes from the last digit to the first, so that
 * nothing overflows, and flooring in each step floors the exact value. */
static bool fraction_read(const char **at, uint64_t scale, uint64_t *value)
{
    const char *first = *at + 1, *end = first;

    *value = 0;
    if (**at != '.')
        return true;
    while (is_digit(*end))
        end++;
    if (end == first)
        return false;
    for (const char *digit = end; digit-- > first;)
        *value = (*value + (uint64_t)(*digit - '0') * scale) / 10;
    *at = end;
    return true;
}

int duration_parse(const char *text, uint64_t *ns)
{
    uint64_t sum = 0;
    size_t unit = 0; /* no later unit may be larger than an earlier one */

    if (strcmp(text, "0") == 0) {
        *ns = 0;
        return 0;
    }
    if (!*text)
        return -EINVAL;
    while (*text) {
        const char *name = text + strspn(text, "0123456789.");
        size_t size = strspn(name, "abcdefghijklmnopqrstuvwxyz");
        uint64_t whole, fraction, scale;

        while (unit < COUNT(duration_units) &&
               (strlen(duration_units[unit].name) != size ||
                memcmp(duration_units[unit].name, name, size) != 0))
            unit++;
        if (unit == COUNT(duration_units))
            return -EINVAL;
        scale = duration_units[unit++].scale;
        if (!decimal_read(&text, &whole) ||
            !fraction_read(&text, scale, &fraction) || text != name)
            return -EINVAL;
        sum = ns_add(sum, ns_add(ns_mul(whole, scale), fraction));
        text = name + size;
    }
    if (sum > LARGEST)
        return -ERANGE;
    *ns = sum;
    return 0;
}

/* Print days, hours and minutes, then one decimal number in the largest unit
 * that it fills. */
const char *duration_print(uint64_t ns, char buf[DURATION_TEXT])
{
    const struct unit *unit = duration_units;
    uint64_t fraction;
    int digits = 0;

    buf[0] = '\0';
    for (; unit->scale > NS_PER_S; unit++)
        if (ns >= unit->scale) {
            text_append(buf, DURATION_TEXT, "%ju%s",
                        (uintmax_t)(ns / unit->scale), unit->name);
            ns %= unit->scale;
        }
    if (ns == 0) {
        text_append(buf, DURATION_TEXT, "%s", *buf ? "" : "0s");
        return buf;
    }
    while (ns < unit->scale)
        unit++;
    text_append(buf, DURATION_TEXT, "%ju", (uintmax_t)(ns / unit->scale));
    fraction = ns % unit->scale;
    for (uint64_t scale = unit->scale; scale > 1; scale /= 10)
        digits++;
    for (; fraction && fraction % 10 == 0; fraction /= 10)
        digits--;
    if (fraction)
        text_append(buf, DURATION_TEXT, ".%0*ju", digits, (uintmax_t)fraction);
    text_append(buf, DURATION_TEXT, "%s", unit->name);
    return buf;
}

const char *duration_rough(uint64_t ns, char buf[DURATION_TEXT])
{
    size_t i = 0, last = COUNT(duration_units) - 1;
    uint64_t whole, rest;
    const char *unit;

    if (ns == 0) {
        strlcpy(buf, "0s", DURATION_TEXT);
        return buf;
    }
    while (i < last && ns < duration_units[i].scale)
        i++;
    unit = duration_units[i].name;
    whole = ns / duration_units[i].scale;
    rest = ns % duration_units[i].scale;
    if (i < last && duration_units[i].scale > NS_PER_S)
        rest /= duration_units[i + 1].scale;
    else
        rest = rest * 10 / duration_units[i].scale;
    if (whole >= 10 || rest == 0)
        snprintf(buf, DURATION_TEXT, "%ju%s", (uintmax_t)whole, unit);
    else if (duration_units[i].scale > NS_PER_S)
        snprintf(buf, DURATION_TEXT, "%ju%s%ju%s", (uintmax_t)whole, unit,
                 (uintmax_t)rest, duration_units[i + 1].name);
    else
        snprintf(buf, DURATION_TEXT, "%ju.%ju%s", (uintmax_t)whole,
                 (uintmax_t)rest, unit);
    return buf;
}

int size_parse(const char *text, uint64_t *bytes)
{
    uint64_t count;

    if (!decimal_read(&text, &count))
        return -EINVAL;
    for (size_t i = 0; i < COUNT(size_units); i++) {
        uint64_t sum;

        if (strcmp(text, size_units[i].name) != 0)
            continue;
        sum = ns_mul(count, size_units[i].scale);
        if (sum > LARGEST)
            return -ERANGE;
        *bytes = sum;
        return 0;
    }
    return -EINVAL;
}

const char *size_print(uint64_t bytes, char buf[SIZE_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    size_t i = 0;

    for (; i + 1 < COUNT(units) && bytes && bytes % 1024 == 0; i++)
        bytes /= 1024;
    snprintf(buf, SIZE_TEXT, "%ju%s", (uintmax_t)bytes, units[i]);
    return buf;
}

const char *time_print(uint64_t wall_ns, char buf[TIME_TEXT])
{
    time_t seconds = (time_t)(wall_ns / NS_PER_S);
    struct tm t;
    size_t size;

    gmtime_r(&seconds, &t);
    size = strftime(buf, TIME_TEXT, "%Y-%m-%dT%H:%M:%S", &t);
    snprintf(buf + size, TIME_TEXT - size, ".%03uZ",
             (unsigned)(wall_ns % NS_PER_S / NS_PER_MS));
    return buf;
}

/* Return true if a text begins with `form`, in which a 0 stands for any
 * digit. */
static bool has_form(const char *text, const char *form)
{
    for (; *form; form++, text++)
        if (*form == '0' ? !is_digit(*text) : *text != *form)
            return false;
    return true;
}

/* Return the number that two digits make. */
static int two_digits(const char *at)
{
    return 10 * (at[0] - '0') + (at[1] - '0');
}

/* Parse a date, or date and time (RFC 3339). */
static int calendar_parse(const char *text, uint64_t *wall_ns)
{
    struct tm t = {0}, real;
    int64_t seconds, east = 0;
    uint64_t fraction = 0;

    if (!has_form(text, "0000-00-00"))
        return -EINVAL;
    t.tm_year = 100 * two_digits(text) + two_digits(text + 2) - 1900;
    t.tm_mon = two_digits(text + 5) - 1;
    t.tm_mday = two_digits(text + 8);
    text += strlen("0000-00-00");
    if (*text && strchr("Tt ", *text) && has_form(text + 1, "00:00")) {
        t.tm_hour = two_digits(text + 1);
        t.tm_min = two_digits(text + 4);
        text += strlen("T00:00");
        if (has_form(text, ":00")) {
            t.tm_sec = two_digits(text + 1);
            text += strlen(":00");
            if (!fraction_read(&text, NS_PER_S, &fraction))
                return -EINVAL;
        }
        if (has_form(text, "+00:00") || has_form(text, "-00:00")) {
            if (two_digits(text + 1) > 23 || two_digits(text + 4) > 59)
                return -EINVAL;
            east = two_digits(text + 1) * 3600 + two_digits(text + 4) * 60;
            east = *text == '-' ? -east : east;
            text += strlen("+00:00");
        } else if (*text == 'Z' || *text == 'z') {
            text++;
        }
    }
    /* timegm(3) turns February 31 into March 3. RFC 3339 allows second 60. */
    real = t;
    real.tm_sec = 0;
    timegm(&real);
    if (*text || t.tm_sec > 60 || real.tm_mon != t.tm_mon ||
        real.tm_mday != t.tm_mday || real.tm_hour != t.tm_hour ||
        real.tm_min != t.tm_min)
        return -EINVAL;
    seconds = (int64_t)timegm(&t) - east;
    if (seconds < 0 || (uint64_t)seconds > UINT64_MAX / NS_PER_S - 1)
        return -ERANGE;
    *wall_ns = (uint64_t)seconds * NS_PER_S + fraction;
    return 0;
}

int time_parse(const char *text, uint64_t now_ns, uint64_t *wall_ns)
{
    uint64_t ago, seconds, fraction;
    int rc;

    if (*text == '@') {
        text++;
        if (!decimal_read(&text, &seconds) ||
            !fraction_read(&text, NS_PER_S, &fraction) || *text)
            return -EINVAL;
        if (seconds > UINT64_MAX / NS_PER_S - 1)
            return -ERANGE;
        *wall_ns = seconds * NS_PER_S + fraction;
        return 0;
    }
    rc = duration_parse(text, &ago);
    if (rc == -EINVAL)
        return calendar_parse(text, wall_ns);
    if (rc < 0)
        return rc;
    *wall_ns = ago > now_ns ? 0 : now_ns - ago;
    return 0;
}

/* ---- time zone ---- */

#define FOLDER "/usr/share/zoneinfo"

/* Return true for a rule such as "CET-1CEST" (tzset(3)): a name of at least
 * three letters, or any in <>, then an offset. */
static bool is_rule(const char *text)
{
    size_t n = 0;

    if (*text == '<') {
        n = strcspn(text, ">");
        n += text[n] == '>';
    } else {
        while (isalpha((unsigned char)text[n]))
            n++;
    }
    if (n < 3)
        return false;
    n += text[n] == '+' || text[n] == '-';
    return isdigit((unsigned char)text[n]);
}

const char *time_zone_unknown(void)
{
    const char *zone = getenv("TZ"), *folder = getenv("TZDIR"), *name, *last;
    char path[PATH_MAX];
    struct stat st;

    if (!zone)
        return NULL;
    name = zone + (*zone == ':');
    if (!*name || is_rule(name))
        return NULL;
    last = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    if (strcmp(last, "UTC") == 0 || strcmp(last, "GMT") == 0)
        return NULL; /* UTC needs no file */
    snprintf(path, sizeof path, "%s%s%s",
             *name == '/' ? ""
             : folder     ? folder
                          : FOLDER,
             *name == '/' ? "" : "/", name);
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? NULL : zone;
}
