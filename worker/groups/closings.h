/* closings.h - groups that are closing: which messages they refuse
 *
 * WHAT   For each close of a group the sequences that it refuses: from the
 *        close on, until what was there before has come to its end. Sorted by
 *        key. A pure data structure.
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
#include <bsd/sys/tree.h>

struct closing {
    RB_ENTRY(closing) node;
    uint64_t from;  /* the first sequence that is refused */
    uint64_t until; /* the first that is not; 0: the group is closing still */
    int64_t last;   /* the last that waited at the source; 0: none */
    size_t size;
    char key[];
};

RB_HEAD(closing_tree, closing);

/* All 0: none. */
struct closings {
    struct closing_tree all;
    size_t over;         /* of them */
    atomic_size_t count; /* of all; read freely */
};

void closings_fini(struct closings *c); /* frees them */

static inline bool closings_any(const struct closings *c)
{
    return atomic_load_explicit(&c->count, memory_order_relaxed) > 0;
}
/* Close a group that is not closing. */
int closings_add(struct closings *c, const char *key, size_t size,
                 uint64_t from, int64_t last);
/* The close of a group that is closing still; NULL: it is not. */
struct closing *closings_find(const struct closings *c, const char *key,
                              size_t size);
/* Whether a close of that group refuses that sequence. */
bool closings_refuse(const struct closings *c, const char *key, size_t size,
                     uint64_t seq);
/* It refuses nothing from that sequence on. */
void closings_end(struct closings *c, struct closing *one, uint64_t until);
void closings_remove(struct closings *c, struct closing *one);
/* Remove all closes of a group, those that are over, too: whether there was
 * any. */
bool closings_open(struct closings *c, const char *key, size_t size);
/* Forget those that are over. */
void closings_prune(struct closings *c);
/* Copies of the keys of all that are closing still, one after the other, each
 * as a size_t and its bytes. The caller frees them; NULL if there is none. */
char *closings_keys(const struct closings *c, size_t *bytes);

#endif
