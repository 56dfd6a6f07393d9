/* backlog.h - how many messages may wait in the store (--max-waiting)
 *
 * WHAT   Counts what waits there: delayed by its not-before, for a retry, or
 *        behind the head of its group. At the bound nothing more is taken from
 *        the queue (HOLD_WAITING); what is due, and what waits in slots, runs
 *        on. Below it the queue is taken from again. Messages in hand at that
 *        moment are stored all the same, so the rows can be more than the bound
 *        by as many messages as there are slots.
 *        It is told once: again only after a sixteenth of it was free.
 * WHO    Any thread, after it has changed the store or the setting.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef WORKER_FLOW_BACKLOG_H
#define WORKER_FLOW_BACKLOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct flow;

struct backlog {
    atomic_bool told; /* that it is full, and not yet that it is not */
};

/* What waits may have become more or less. Before the run nothing is held: the
 * start puts into the store what it finds. */
void backlog_look(struct flow *f);
/* Whether so many more reach the bound. */
bool backlog_fills(const struct flow *f, size_t more);

#endif
