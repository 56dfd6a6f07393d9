/* running.h - messages that run are cancelled, with their handlers
 *
 * WHAT   Has the worker end the handlers of messages, and waits until each has
 *        left its slot: a message counts as cancelled when the journal says
 *        that it was discarded, which the worker writes after that is durable.
 * WHO    One thread.
 * OWNS   The list.
 * FAILS  add: -ENOMEM. cancel: an exit status, the reason is out on stderr.
 */
#ifndef SCRIPTS_MQCTL_STEER_RUNNING_H
#define SCRIPTS_MQCTL_STEER_RUNNING_H

#include "scripts/mqctl/look/messages.h"

struct run {
    struct ulid id;
    uint64_t started_ns; /* wall; of the run that was chosen */
    bool runs;           /* at the last look */
    unsigned looks;      /* since it has left its slot */
};

struct runs {
    struct run *at; /* those of which it is not known yet how they ended */
    size_t count, room;
    uint64_t cancelled, ended; /* how many; the latter by themselves */
};

int running_add(struct runs *r, const struct ulid *id, uint64_t started_ns);
/* The rest that is in `at` after it runs still, or failed by itself. */
int running_cancel(struct runs *r, const struct messages *m);
void running_free(struct runs *r);

#endif
