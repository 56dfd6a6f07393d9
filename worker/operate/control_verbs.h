/* control_verbs.h - what can be said over the control socket
 *
 * WHAT   One request in, one JSON object out.
 * WHO    The peeker, from control.c.
 * OWNS   Nothing.
 * FAILS  NULL: no memory. Anything else that is wrong is in the answer.
 */
#ifndef WORKER_OPERATE_CONTROL_VERBS_H
#define WORKER_OPERATE_CONTROL_VERBS_H

#include <jansson.h>
#include <stdbool.h>

struct orders;

/* `line` is changed. The caller's reference. `*later`, and NULL: what it needs
 * is being made, ask once more when cap.h says so, `again`. */
json_t *control_answer(struct orders *orders, char *line, bool again,
                       bool *later);
/* {"ok": false, "status": ..., "error": ...} */
json_t *control_refusal(int status, const char *text);

#endif
