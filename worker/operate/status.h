/* status.h - what others see of a worker: its title and the counters' header
 *
 * WHAT   Puts the state into the counters file and, unless the worker is part
 *        of another program, into the process title: "mqworker: /orders [3 of 8
 *        busy, 12 waiting, 1 dead]", followed by a pause or a trouble. The rows
 *        of the store are counted while messages run.
 * WHO    init, the first count, and show after each wait of the loop: the
 *        engine. Later counts: a pool thread, at most once a second.
 * OWNS   Its chore.
 * FAILS  Never.
 */
#ifndef WORKER_OPERATE_STATUS_H
#define WORKER_OPERATE_STATUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/loop/chore.h"

/* Called with the title whenever it has changed; in the loop. */
struct status_reader {
    void (*read)(struct status_reader *reader, const char *title);
};

/* c = constant once the worker runs   a = atomic   j = its job's */
struct status {
    struct flow *flow;                /* c */
    struct file_watch *file_watch;    /* c  set before the worker runs */
    struct chore chore;               /* counts the rows */
    _Atomic int64_t rows[4];          /* a  source_count; 0: or not known yet */
    _Atomic uint64_t on_dead_waiting; /* a  letters whose --on-dead failed */
    uint64_t deliveries;              /* j  at the last count */
    struct status_reader *reader;     /* set before the worker runs; or NULL */
};

void status_init(struct status *b, struct flow *f);
/* Count the rows of the source, and have the loop show the result. */
void status_count(struct status *b);
/* Show how many letters wait for --on-dead to run again, and count a run that
 * has failed. Called by on_dead.c, on its thread, with the struct. */
void status_on_dead(void *arg, uint64_t letters, bool failed);
/* Write counters and title if something has changed. */
void status_show(struct status *b);

#endif
