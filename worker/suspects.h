/* suspects.h - messages under which the process may have crashed
 *
 * WHAT   A handler that is a C function takes the process with it, and each
 *        message that was running then counts one crash, although one of them is
 *        to blame. Those run again one at a time, with nothing beside them: so
 *        the next crash counts for the right one, and its neighbours are done.
 * WHO    add: recovery. left: any thread.
 * OWNS   Its list; the slots are the custody's.
 * FAILS  add: -ENOMEM.
 */
#ifndef WORKER_SUSPECTS_H
#define WORKER_SUSPECTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct slot;

/* c = constant once the worker runs   a = atomic */
struct suspects {
    _Atomic(struct slot *) *slots; /* c  a: NULL once it was seen free */
    size_t count;                  /* c */
    atomic_bool any;               /* a  false: all were settled */
};

int suspects_add(struct suspects *s, struct slot *slot);
void suspects_fini(struct suspects *s);
/* None of those that are left can be run now: others need not wait for them. */
void suspects_forget(struct suspects *s);
/* Whether one is left: its slot was not seen free yet. Asked between any two
 * messages. */
bool suspects_left(struct suspects *s);

#endif
