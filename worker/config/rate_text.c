/* rate_text.c - a rate as one number (see rate_text.h)
 *
 * Bits 0 to 19: N - 1; 20 to 39: BURST - 1; 40 and 41: index in `units`; 42:
 * always set, so that no rate equals RATE_OFF.
 */
#include "worker/config/rate_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"

#define FIELD      20
#define FIELD_MASK ((1u << FIELD) - 1)
#define IS_RATE    (UINT64_C(1) << (2 * FIELD + 2))
_Static_assert(RATE_MOST - 1 <= FIELD_MASK, "a field has room for any number");

static const struct {
    char letter;
    uint64_t ns;
} units[] = {{'s', NS_PER_S}, {'m', 60 * NS_PER_S}, {'h', 3600 * NS_PER_S}};
#define UNITS (sizeof units / sizeof units[0])

static uint64_t rate_number(uint64_t rate)
{
    return (rate & FIELD_MASK) + 1;
}

static size_t unit_of(uint64_t rate)
{
    return (size_t)(rate >> 2 * FIELD & 3);
}

uint64_t rate_interval_ns(uint64_t rate)
{
    return (units[unit_of(rate)].ns + rate_number(rate) - 1) /
           rate_number(rate);
}

uint64_t rate_burst(uint64_t rate)
{
    return (rate >> FIELD & FIELD_MASK) + 1;
}

/* Cut a number of 1 to RATE_MOST off *text. Returns 0 if there is none. */
static uint64_t rate_cut(const char **text)
{
    char *end = (char *)*text;
    unsigned long n = 0;

    if (**text >= '0' && **text <= '9')
        n = strtoul(*text, &end, 10);
    *text = end;
    return n <= RATE_MOST ? n : 0;
}

int rate_parse(const char *text, void *into, struct problem *p)
{
    uint64_t *out = into;
    const char *at = text;
    uint64_t n = rate_cut(&at), burst;
    size_t unit = 0; /* seconds */
    bool given;

    if (*at == '/') {
        while (unit < UNITS && at[1] != units[unit].letter)
            unit++;
        at += unit < UNITS ? 2 : 0;
    }
    given = *at == ',';
    *out = RATE_OFF;
    if (strcmp(text, "off") == 0)
        return 0;
    if (given)
        at++;
    burst = given ? rate_cut(&at) : unit == 0 ? (n + 9) / 10 : 1;
    if (!n || unit == UNITS || !burst || *at)
        return problem_set(
            p, EX_USAGE, EINVAL,
            "--rate: \"%.64s\" is not a rate; give N, N/s, N/m or N/h, and a "
            "burst, like 100/s,20, each 1 to %d; or off",
            text, RATE_MOST);
    *out =
        IS_RATE | (uint64_t)unit << 2 * FIELD | (burst - 1) << FIELD | (n - 1);
    return 0;
}

const char *rate_print(uint64_t rate, char out[RATE_TEXT])
{
    if (rate == RATE_OFF)
        snprintf(out, RATE_TEXT, "off");
    else
        snprintf(out, RATE_TEXT, "%" PRIu64 "/%c,%" PRIu64, rate_number(rate),
                 units[unit_of(rate)].letter, rate_burst(rate));
    return out;
}
