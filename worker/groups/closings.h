/* closings.h - groups that are closing: which messages they refuse
 *
 * WHAT   For each close of a group the sequences that it refuses. A close
 *        starts when an operator gives the order, and ends when the messages
 *        that came before it are finished. A group that is closed again before
 *        then has two closes. A list is enough, because an operator closes
 *        groups one by one.
 * WHO    Any thread, under a lock of the caller's; closings_any without it.
 * OWNS   The closes.
 * FAILS  closings_add: -ENOMEM.
 */
#ifndef WORKER_GROUPS_CLOSINGS_H
#define WORKER_GROUPS_CLOSINGS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <bsd/sys/queue.h>

struct closing {
    LIST_ENTRY(closing) link;
    uint64_t from;  /* the first sequence that is refused */
    uint64_t until; /* the first that is not, set by the caller; 0: the group
                     * is still closing */
    int64_t last;   /* the last that waited at the source; 0: none */
    size_t size;
    char key[];
};

/* All 0: none. */
struct closings {
    LIST_HEAD(, closing) all;
    atomic_size_t count; /* all closes; read freely */
};

void closings_fini(struct closings *c); /* frees them */

static inline bool closings_any(const struct closings *c)
{
    return atomic_load_explicit(&c->count, memory_order_relaxed) > 0;
}
/* Close a group that is not closing. */
int closings_add(struct closings *c, const char *key, size_t size,
                 uint64_t from, int64_t last);
/* Find the close of a group that is still closing; NULL: it is not. */
struct closing *closings_find(const struct closings *c, const char *key,
                              size_t size);
/* Return true if a close of that group refuses that sequence. */
bool closings_refuse(const struct closings *c, const char *key, size_t size,
                     uint64_t seq);
void closings_remove(struct closings *c, struct closing *one);
/* Remove all closes of a group. Returns true if there was one. */
bool closings_open(struct closings *c, const char *key, size_t size);
/* Forget the closes that have an end. */
void closings_prune(struct closings *c);
/* Copy the keys of all groups that are still closing, one after the other, each
 * as a size_t and its bytes. The caller frees them; NULL if there is none. */
char *closings_keys(const struct closings *c, size_t *bytes);

#endif
