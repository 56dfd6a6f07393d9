/* top.h - the queues of mqctl top, now and over the last minutes
 *
 * WHAT   Takes a snapshot of each queue again and again, and computes rates and
 *        short-term quantiles from the differences.
 * WHO    mqctl top, and the child of mqctl serve that watches queues; on the
 *        only thread of the process.
 * OWNS   The rows, until the process or top_run ends.
 * FAILS  -ENOMEM; the row of a queue that cannot be read has a problem.
 */
#ifndef SCRIPTS_MQCTL_TOP_TOP_H
#define SCRIPTS_MQCTL_TOP_TOP_H

#include "common/base/safe_text.h"
#include "scripts/mqctl/look/snapshot.h"
#include "scripts/mqctl/mqctl.h"
#include "scripts/mqctl/top/draw/view.h"

struct top_row {
    char queue[QUEUE_NAME_MAX];
    bool looked; /* `v` is open */
    struct snapshot v;
    struct snapshot_last last;
    struct problem problem; /* why not, if `v` is not open */
    /* ---- of the last interval ---- */
    bool measured;     /* there was an interval between two looks */
    double rate;       /* finished handlers per second */
    uint64_t p50, p99; /* handler time, ns; 0: no handler finished */
    uint64_t wait99;   /* latency, ns; 0: no handler started */
    struct history past;
    /* ---- of the previous look ---- */
    bool counted;   /* counters were found, so the fields below are set */
    uint64_t at_ns; /* time of that look, monotonic */
    struct counters_header head;
    struct counters_sum sum;
    struct histogram_sum handler, latency;
};

struct top {
    const struct options *o;
    struct words dirs;     /* state directories; NULL: as the worker finds it */
    bool files_only;       /* do not ask workers, which may be slow to answer */
    struct top_row **rows; /* in the order of their names */
    size_t count;
    char trouble[256]; /* why the state directory cannot be read; "": it can */
};

/* Look at all queues. With `interval`, compute rates, quantiles and curves of
 * the time since the last such look; else they stay as they are. */
int top_look(struct top *t, bool interval);

/* Show a screen on the terminal, and obey keys until q; returns an exit status.
 * (screen.c) */
int top_screen(struct top *t);

#endif
