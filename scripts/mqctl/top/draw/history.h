/* history.h - values of the last looks at a queue
 *
 * WHAT   Rings of numbers, one for each look; and short forms of numbers.
 * WHO    One thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef SCRIPTS_MQCTL_TOP_DRAW_HISTORY_H
#define SCRIPTS_MQCTL_TOP_DRAW_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/clock.h"

#define TOP_HISTORY 256

struct history {
    uint64_t depth[TOP_HISTORY], waits[TOP_HISTORY], rates[TOP_HISTORY];
    uint64_t looks; /* so far */
};

/* A value of a ring, `back` looks ago; 0 before the first. */
uint64_t history_past(const struct history *h, const uint64_t *ring,
                      uint64_t back);
/* Looks of the last `most` that there are. */
int history_width(const struct history *h, int most);
/* The largest value of the last `width` looks. */
uint64_t history_most(const struct history *h, const uint64_t *ring, int width);

/* As duration_rough; "-" for 0, which is not known. */
#define TOP_SHORT DURATION_TEXT
static inline const char *top_duration(uint64_t ns, char buf[TOP_SHORT])
{
    return ns ? duration_rough(ns, buf) : "-";
}
/* A number; "-" for one below 0, which is not known. */
#define TOP_COUNT 24
const char *top_count(int64_t n, char buf[TOP_COUNT]);

#endif
