/* torture_changes.h - notice changes of what outlives a killed worker
 *
 * WHAT   Watches the files that a worker maps and that the next worker reads
 *        (custody, and the ends of a spool) and the notes of the handlers about
 *        the messages of a try. A killed worker's own memory is gone, so a
 *        kill at any instruction between two changes leaves the same as a kill
 *        at the first of them.
 * WHO    A job of torture_steps.c, while the worker is traced.
 * OWNS   The mappings and a copy of each, until changes_close.
 * FAILS  By torture_die.
 *
 * Not watched: the memory that SQLite shares (tracer_pass skips SQLite) and the
 * counters, which no start uses to decide about a message.
 */
#ifndef TESTS_CRASH_TORTURE_CHANGES_H
#define TESTS_CRASH_TORTURE_CHANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct torture;

/* One watched area and its contents at the last call. */
struct changes_view {
    const void *now;
    void *before;
    size_t size;
    bool mapped; /* mapped by changes_open */
};
struct changes {
    struct changes_view views[4];
    unsigned count;
};

/* Watch the files of a running worker and the records of `n` messages of one
 * producer, numbered from `first`. */
void changes_open(struct changes *c, const struct torture *t, uint64_t first,
                  unsigned n);
/* Return true if anything has changed since the last call; a tracer_look. */
bool changes_seen(void *changes);
void changes_close(struct changes *c);

#endif
