/* poison_suspects.h - messages under which the process may have crashed
 *
 * WHAT   A handler may take its worker with it: a C function crashes, a command
 *        uses up the memory of its container. Each message that was running
 *        then counts one crash, although only one of them is to blame. If one
 *        more crash would make a message a dead letter, that message runs
 *        alone, and only a crash while it runs alone makes it a dead letter. So
 *        the message to blame is found, and the others are processed.
 * WHO    add: recovery. done, left, forget: any thread. The two rules: every
 *        source.
 * OWNS   Its list.
 * FAILS  add: -ENOMEM.
 */
#ifndef WORKER_RULES_POISON_SUSPECTS_H
#define WORKER_RULES_POISON_SUSPECTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* c = constant once the worker runs   a = atomic */
struct suspects {
    _Atomic uint64_t *seqs; /* c  a: its members; 0: it was settled */
    size_t count;           /* c */
    atomic_bool any;        /* a  false: all were settled */
};

/* Return true if a message is a suspect: it has crashed, and one more crash may
 * be its last. */
static inline bool crashes_suspect(uint64_t crashes, uint64_t max_crashes)
{
    return crashes > 0 && crashes + 1 >= max_crashes;
}

/* Return true if a message becomes a dead letter for its crashes. `alone`: no
 * other message was running at the last crash. */
static inline bool crashes_too_many(uint64_t crashes, uint64_t max_crashes,
                                    bool alone)
{
    return crashes >= max_crashes && alone;
}

/* One more, by its number (message.seq). */
int suspects_add(struct suspects *s, uint64_t seq);
void suspects_fini(struct suspects *s);
/* It was settled, and the process lives. Where there are none this costs a
 * look. */
void suspects_one_done(struct suspects *s, uint64_t seq);
static inline void suspects_done(struct suspects *s, uint64_t seq)
{
    if (atomic_load_explicit(&s->any, memory_order_relaxed))
        suspects_one_done(s, seq);
}
/* None of those that are left can be run now: others need not wait for them. */
void suspects_forget(struct suspects *s);
/* Whether one is left. Asked between any two messages. */
bool suspects_left(struct suspects *s);

#endif
