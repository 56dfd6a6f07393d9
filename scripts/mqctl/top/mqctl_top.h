/* mqctl_top.h - what top shows: each queue, now and over the last minutes
 *
 * WHAT   Looks at the queues again and again, and makes rates and short-term
 *        quantiles of the differences.
 * WHO    One thread.
 * OWNS   The rows, until top_free.
 * FAILS  -ENOMEM; a queue that cannot be looked at keeps a problem.
 */
#ifndef SCRIPTS_MQCTL_TOP_MQCTL_TOP_H
#define SCRIPTS_MQCTL_TOP_MQCTL_TOP_H

#include "common/base/queue_name.h"
#include "scripts/mqctl/mqctl.h"
#include "scripts/mqctl/mqctl_snapshot.h"

#define TOP_HISTORY 256

struct top_row {
    char queue[QUEUE_NAME_MAX];
    bool looked; /* `v` is there */
    struct snapshot v;
    struct problem problem; /* why not */
    /* ---- of the last interval ---- */
    double rate;       /* handlers that ended, a second */
    uint64_t p50, p99; /* handler time; 0: none ended */
    uint64_t wait99;   /* latency; 0: none started */
    /* ---- one for each look, a ring ---- */
    uint64_t depth[TOP_HISTORY], waits[TOP_HISTORY], rates[TOP_HISTORY];
    uint64_t looks;
    /* ---- the look before ---- */
    uint64_t at_ns; /* monotonic; 0: none */
    struct counters_header head;
    struct counters_sum sum;
    struct histogram_sum handler, latency;
};

struct top {
    const struct options *o;
    bool files_only;       /* do not ask the workers: one may not answer */
    struct top_row **rows; /* in the order of their names */
    size_t count;
    char trouble[256]; /* with the state directory; "": none */
};

/* Look at all of them once more. */
int top_look(struct top *t);
void top_free(struct top *t);
/* On a terminal, until q; an exit status. */
int top_screen(struct top *t);
/* A value of a ring, `back` looks ago; 0 before the first. */
uint64_t top_past(const struct top_row *r, const uint64_t *ring, uint64_t back);
/* "12.3/s", "820us", in at most 8 columns; "-" for 0. */
#define TOP_SHORT 16
const char *top_duration(uint64_t ns, char buf[TOP_SHORT]);
/* A number; "-" for one below 0, which is not known. */
#define TOP_COUNT 24
const char *top_count(int64_t n, char buf[TOP_COUNT]);

/* ---- the screen; curses is on ---- */

#define SCREEN_TEXT 512

enum { COLOUR_BAD = 1, COLOUR_WARN };

struct screen {
    struct top *top;
    size_t chosen;
    bool letters; /* dead letters instead of what runs */
    bool colour;
    char note[SCREEN_TEXT]; /* what the last key brought about */
    int y;                  /* the next line */
};

/* All of it; a terminal that is low loses the lower parts. */
void screen_draw(struct screen *s);

#endif
