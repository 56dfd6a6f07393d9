/* selection.h - the letters a verb is to work on
 *
 * WHAT   From ids (operands, or stdin for "-") or from the filter: row numbers,
 *        oldest letter first, each once.
 * WHO    One thread.
 * OWNS   The array.
 * FAILS  selection_make: an exit status, the reason is out on stderr. An id
 *        that no letter has is named, the others are chosen, and `missing` is
 *        set.
 */
#ifndef SCRIPTS_MQDLQ_SELECTION_H
#define SCRIPTS_MQDLQ_SELECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scripts/mqdlq/mqdlq.h"

/* Of a summary: the count, "is" or "are", "its" or "their", SHELL_QUEUE. */
#define ON_WAY_CLAUSE \
    "%" PRIu64 " %s on %s way already: see mqdlq list --replayed %s"

struct pick {
    uint64_t died_ns;
    int64_t row;
};

struct selection {
    struct pick *picks;
    size_t count, room;
    bool by_id;
    bool missing; /* an id was not found: exit status 66 at the end */
};

int selection_make(struct selection *c, const struct context *ctx);
void selection_free(struct selection *c);

/* Count the letters being replayed that match the filter, so that a user who
 * acts on all letters knows that these are left out. 0 with ids or
 * --replayed. */
int selection_on_way(const struct selection *c, const struct context *ctx,
                     uint64_t *count);

#endif
