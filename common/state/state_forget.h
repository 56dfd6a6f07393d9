/* state_forget.h - a queue's folders are removed for good
 *
 * WHAT   The folder of a queue in the state directory gets another name, in one
 *        step; from then on the queue is forgotten. Then its folder in the
 *        runtime directory and its files go. After a crash the rest still has
 *        that other name, where no program looks for queues, and the next call
 *        for that queue removes it.
 * WHO    mqctl forget; one thread.
 * OWNS   The lock of the folder, from open to close: no worker starts.
 * FAILS  A problem: 69 a worker runs; 73 it is no folder of a queue, or cannot
 *        be removed; 77 it is somebody else's.
 */
#ifndef COMMON_STATE_STATE_FORGET_H
#define COMMON_STATE_STATE_FORGET_H

#include "common/base/basics.h"
#include "common/base/problem.h"
#include "common/state/statedir.h"

struct state_forget {
    struct statedir dir;  /* as it is called */
    char place[PATH_MAX]; /* root/.forgotten */
    char away[PATH_MAX];  /* root/.forgotten/NAME */
    int lock;             /* of the folder; -1: none */
};

/* Lock it; -ENOENT without a problem: there is no such folder. */
int state_forget_open(struct state_forget *f, const struct statedir *dir,
                      struct problem *p);
/* Remove all of it, whatever it holds, and what an earlier call has left. */
int state_forget_run(struct state_forget *f, struct problem *p);
void state_forget_close(struct state_forget *f);

/* An earlier call for that folder did not come to its end; this brings it
 * there: YES, NO there was none, or -errno and a problem. `dir` need not be
 * there any more. */
int state_forget_finish(const struct statedir *dir, struct problem *p);

#endif
