/* history.c - see history.h */
#include "scripts/mqctl/top/draw/history.h"

#include <inttypes.h>
#include <stdio.h>

uint64_t history_past(const struct history *h, const uint64_t *ring,
                      uint64_t back)
{
    if (back >= h->looks || back >= TOP_HISTORY)
        return 0;
    return ring[(h->looks - 1 - back) % TOP_HISTORY];
}

int history_width(const struct history *h, int most)
{
    int width = most < TOP_HISTORY ? most : TOP_HISTORY;

    return width > 0 && h->looks < (uint64_t)width ? (int)h->looks : width;
}

uint64_t history_most(const struct history *h, const uint64_t *ring, int width)
{
    uint64_t most = 0;

    for (int i = 0; i < width; i++)
        if (history_past(h, ring, (uint64_t)i) > most)
            most = history_past(h, ring, (uint64_t)i);
    return most;
}

/* top_count - a number, "-" if it is not known */
const char *top_count(int64_t n, char buf[TOP_COUNT])
{
    if (n < 0)
        return "-";
    snprintf(buf, TOP_COUNT, "%" PRId64, n);
    return buf;
}
