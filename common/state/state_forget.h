/* state_forget.h - remove the folders of a queue for good
 *
 * WHAT   Renames the folder of a queue in the state directory; from that step
 *        on the queue is forgotten. Then removes the queue's folder in the
 *        runtime directory and all its files. After a crash the remaining files
 *        are under the new name, where no program looks for queues, and the
 *        next call for that queue removes them.
 * WHO    mqctl forget; one thread.
 * OWNS   The lock of the folder, from open to close: no worker starts.
 * FAILS  A problem: 69 a worker is running; 73 not the folder of a queue, or it
 *        cannot be removed; 77 it belongs to another user.
 */
#ifndef COMMON_STATE_STATE_FORGET_H
#define COMMON_STATE_STATE_FORGET_H

#include "common/base/basics.h"
#include "common/base/problem.h"
#include "common/state/statedir.h"

struct state_forget {
    struct statedir dir;
    char place[PATH_MAX]; /* root/.forgotten */
    char away[PATH_MAX];  /* root/.forgotten/NAME */
    int lock;             /* descriptor; -1: none */
};

/* Lock the folder; -ENOENT without a problem if there is none. */
int state_forget_open(struct state_forget *f, const struct statedir *dir,
                      struct problem *p);
/* Remove the folder with all files, and what an earlier call has left. */
int state_forget_run(struct state_forget *f, struct problem *p);
void state_forget_close(struct state_forget *f);

/* Finish an earlier call for that folder that did not end. Returns YES, NO if
 * there was none, or -errno and a problem. `dir` need not exist any more. */
int state_forget_finish(const struct statedir *dir, struct problem *p);

#endif
