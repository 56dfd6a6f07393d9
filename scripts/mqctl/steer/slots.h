/* slots.h - a message in a slot that no handler has is cancelled
 *
 * WHAT   With a worker it is looked for wherever it is by now: in its slot, in
 *        the store or in the spool. Without one it gets a row that is
 *        cancelled, unless it is a run of one.
 * WHO    One thread.
 * OWNS   Nothing.
 * FAILS  As order.h.
 */
#ifndef SCRIPTS_MQCTL_STEER_SLOTS_H
#define SCRIPTS_MQCTL_STEER_SLOTS_H

#include "scripts/mqctl/look/messages.h"

/* Of the worker that runs. IN_FLIGHT: a handler has it by now, if *runs; else
 * it is about to be taken, or written. */
int slot_cancel(const struct messages *m, const struct custody_seen *c,
                enum waiting_steered *out, bool *runs, int *status);
/* What a killed worker left has a row of that number, or with a minus that key
 * in the spool; 0: it has none. -errno. */
int slot_row(const struct messages *m, const struct custody_seen *c,
             int64_t *row);
/* Whether it is a letter of this store that was sent again, or a copy of one:
 * that is for mqdlq. */
bool slot_letter(const struct messages *m, const struct custody_seen *c);
/* What has none. `running`: also one that a handler had. -EAGAIN: a worker
 * runs now. */
int slot_cancel_left(struct messages *m, const struct custody_seen *c,
                     bool running, enum waiting_steered *out, int *status);

#endif
