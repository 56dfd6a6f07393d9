/* sweep.c - count the positions of a sweep and choose some by the date */
#include "tests/harness/sweep.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static unsigned seen, taken; /* since the last sweep_end */

unsigned sweep_step(void)
{
    const char *whole = getenv("MQW_TEST_WHOLE");

    return whole && whole[0] ? 1 : SWEEP_DAYS;
}

unsigned sweep_first(void)
{
    const time_t day_s = 24 * 60 * 60;

    return (unsigned)(time(NULL) / day_s) % sweep_step();
}

bool sweep_takes(void)
{
    bool takes = seen++ % sweep_step() == sweep_first();

    taken += takes;
    return takes;
}

static void print(const char *name, unsigned part, unsigned whole)
{
    fprintf(stderr, "sweep: %u of %u: %s\n", part, whole, name);
}

void sweep_end(const char *name)
{
    print(name, taken, seen);
    cr_assert_gt(taken, 0, "%s: too short for a sweep", name);
    seen = taken = 0;
}

unsigned sweep_share(const char *name, unsigned whole)
{
    unsigned part = whole / sweep_step();

    if (part == 0)
        part = 1;
    print(name, part, whole);
    return part;
}
