/* poison_suspects.h - messages under which the process may have crashed
 *
 * WHAT   A handler that is a C function takes the process with it, and each
 *        message that was running then counts one crash, although one of them
 *        is to blame. Those run again one at a time, with nothing beside them:
 *        so the next crash counts for the right one, and its neighbours are
 *        done.
 * WHO    add: recovery. done, left, forget: any thread.
 * OWNS   Its list; the slots are the custody's.
 * FAILS  add: -ENOMEM.
 */
#ifndef WORKER_RULES_POISON_SUSPECTS_H
#define WORKER_RULES_POISON_SUSPECTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slot;

/* One message: in a slot, or a stored row that runs when it is due. */
struct suspect {
    _Atomic(struct slot *) slot; /* NULL: a row, or it was seen free */
    _Atomic int64_t row;         /* 0: a slot, or it has run */
};

/* c = constant once the worker runs   a = atomic */
struct suspects {
    struct suspect *list; /* c  a: its members */
    size_t count;         /* c */
    atomic_bool any;      /* a  false: all were settled */
};

/* One more: `slot`, or if that is NULL `row`. */
int suspects_add(struct suspects *s, struct slot *slot, int64_t row);
void suspects_fini(struct suspects *s);
/* A row has run, and the process lives. */
void suspects_done(struct suspects *s, int64_t row);
/* None of those that are left can be run now: others need not wait for them. */
void suspects_forget(struct suspects *s);
/* Whether one is left: its slot was not seen free yet, its row has not run.
 * Asked between any two messages. */
bool suspects_left(struct suspects *s);

#endif
