/* control_steer.h - orders about messages that wait, over the control socket
 *
 * WHAT   "run-now" and "cancel" of rows by their numbers, "cancel-lent" of a
 *        message that is in a slot and does not run. Each is begun in a pool
 *        job, and asked about again when that is over.
 * WHO    The peeker, from control_verbs.c.
 * OWNS   Nothing: the client owns what it begins (control_verbs.h).
 * FAILS  NULL: no memory; or `later` is set, and there is no answer yet.
 */
#ifndef WORKER_OPERATE_CONTROL_STEER_H
#define WORKER_OPERATE_CONTROL_STEER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "worker/flow/flow.h"

struct control_call;

json_t *control_steer(struct flow *f, enum steer what, char *const *words,
                      size_t count, struct control_call *call, bool *later);
json_t *control_cancel_lent(struct flow *f, char *const *words, size_t count,
                            struct control_call *call, bool *later);

#endif
