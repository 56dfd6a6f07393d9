/* control_running.h - ending what runs, by order over the control socket
 *
 * WHAT   "cancel-running ID...": the handlers of these messages are ended, and
 *        the messages as discarded. The answer says whom the order reached; who
 *        asks sees in custody and in the journal what became of it, and asks
 *        again for what runs still: nothing of it is durable before.
 * WHO    The peeker, from control_verbs.c.
 * OWNS   Nothing.
 * FAILS  NULL: no memory; or *wrong says what is wrong with the words.
 */
#ifndef WORKER_OPERATE_CONTROL_RUNNING_H
#define WORKER_OPERATE_CONTROL_RUNNING_H

#include <jansson.h>
#include <stddef.h>

struct flow;

json_t *control_cancel_running(struct flow *f, char *const *words, size_t count,
                               const char **wrong);

#endif
