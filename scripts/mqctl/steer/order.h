/* order.h - an order about messages that wait, to the worker that runs
 *
 * WHAT   Rows by their numbers, or one message by its slot; what the worker
 *        says that became of each.
 * WHO    One thread.
 * OWNS   Nothing.
 * FAILS  -EAGAIN: no worker runs any more. -EIO: the reason is out on stderr,
 *        and *status is the exit status.
 */
#ifndef SCRIPTS_MQCTL_STEER_ORDER_H
#define SCRIPTS_MQCTL_STEER_ORDER_H

#include "scripts/mqctl/look/messages.h"

#define ORDER_MOST 64 /* rows of a request */

/* `verb` is run-now or cancel. */
int order_rows(const struct messages *m, const char *verb, const int64_t *rows,
               size_t count, enum waiting_steered *out, int *status);
/* cancel-lent: of WAITING_STEERED and WAITING_IN_FLIGHT one. */
int order_slot(const struct messages *m, const struct custody_seen *c,
               enum waiting_steered *out, int *status);

#endif
