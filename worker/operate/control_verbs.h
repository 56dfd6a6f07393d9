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
#include <sys/types.h>

struct orders;

struct steering;     /* steering.h */
struct steering_end; /* steering.h */

/* One request of a client. */
struct control_call {
    bool again; /* it is asked once more */
    uid_t uid;  /* of the client */
    bool later; /* out: there is no answer yet, ask again */
    /* NULL, or what the request has begun; the client's to drop. */
    struct steering **steering;
    const struct steering_end *end; /* told when that is over */
};
/* `line` is changed. The caller's reference. NULL and `later`: what it needs is
 * being made, ask once more when cap.h or `end` says so, `again`. */
json_t *control_answer(struct orders *orders, char *line,
                       struct control_call *call);
/* {"ok": false, "status": ..., "error": ...} */
static inline json_t *control_refusal(int status, const char *text)
{
    return json_pack("{s:b, s:i, s:s}", "ok", 0, "status", status, "error",
                     text);
}

#endif
