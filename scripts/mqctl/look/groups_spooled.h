/* groups_spooled.h - what each group has in the spool
 *
 * WHAT   The spool is in the order of its turns, and a list of groups in that
 *        of their keys. So all of it is read for the next keys that there are,
 *        as many as fit in memory, and again for those behind them.
 * WHO    One thread.
 * OWNS   The groups that it found; borrows the messages.
 * FAILS  -errno, -ENOMEM.
 */
#ifndef SCRIPTS_MQCTL_LOOK_GROUPS_SPOOLED_H
#define SCRIPTS_MQCTL_LOOK_GROUPS_SPOOLED_H

#include <bsd/sys/tree.h>

#include "scripts/mqctl/look/messages.h"

/* What is in a slot is not counted. */
struct group_spooled {
    RB_ENTRY(group_spooled) node;
    uint64_t count;
    struct ulid head; /* of the first one; all 0: it has no id yet */
    uint64_t received_ns;
    int64_t last; /* the key of the last one */
    size_t size;
    char key[];
};

RB_HEAD(spooled_tree, group_spooled);

/* All 0: nothing was read. */
struct groups_spooled {
    struct spooled_tree all;
    size_t count;
    bool more; /* there are keys behind these */
};

/* Those behind a key (of no bytes: from the first on), or `only` that one. */
int groups_spooled_read(struct groups_spooled *g, struct messages *m,
                        const char *after, size_t size, const char *only);
/* The first of them; NULL: none is left. */
struct group_spooled *groups_spooled_first(const struct groups_spooled *g);
void groups_spooled_drop(struct groups_spooled *g, struct group_spooled *one);
void groups_spooled_free(struct groups_spooled *g);

/* By bytes, as SQLite has it. */
int group_key_order(const char *a, size_t a_size, const char *b, size_t b_size);

#endif
