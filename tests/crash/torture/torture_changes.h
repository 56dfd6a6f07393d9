/* torture_changes.h - what outlives a worker that is killed, as it changes
 *
 * WHAT   The files that a worker has mapped and that the next one goes by:
 *        custody, and the ends of a spool; and what handlers noted of the
 *        messages of a try. Seen as the worker's stores leave them. Its memory
 *        goes with it, so a kill at any instruction between two changes leaves
 *        the same as at the first of them.
 * WHO    A job of torture_steps.c, while the worker is traced.
 * OWNS   The mappings and a copy of each, until changes_close.
 * FAILS  By torture_die.
 *
 * Not seen: what SQLite shares (tracer_pass leaves it out), and the counters,
 * by which no start decides what becomes of a message.
 */
#ifndef TESTS_CRASH_TORTURE_CHANGES_H
#define TESTS_CRASH_TORTURE_CHANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct torture;

/* A part of it, and how it was. */
struct changes_view {
    const void *now;
    void *before;
    size_t size;
    bool mapped; /* by changes_open */
};
struct changes {
    struct changes_view views[4];
    unsigned count;
};

/* The worker runs; `first` and the `n` - 1 after it are the numbers of its
 * messages, all of one producer. */
void changes_open(struct changes *c, const struct torture *t, uint64_t first,
                  unsigned n);
/* Whether anything has changed since the last call; a tracer_look. */
bool changes_seen(void *changes);
void changes_close(struct changes *c);

#endif
