/* known.h - which letters are there already
 *
 * WHAT   A set of letters, by their id, and by when and why they died and what
 *        their body is: two messages may have one id. Finds copies of one
 *        letter, too: a worker that is killed before it hears of a confirm
 *        leaves one behind, and the next worker makes another.
 * WHO    One thread.
 * OWNS   Its memory; nothing of the letters.
 * FAILS  -ENOMEM.
 */
#ifndef SCRIPTS_MQDLQ_AMQP_KNOWN_H
#define SCRIPTS_MQDLQ_AMQP_KNOWN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/amqp/envelope.h"
#include "common/store/store.h"

/* All 0: empty. */
struct known {
    void *spots; /* tsearch(3) */
};

/* `dated`: m.died_ns is its own; else each letter that is like it in all else
 * will do. */
bool known_has(const struct known *k, const struct store_row *m, bool dated);
/* `m` has the row `row`, and `e` is what its properties say; NULL: they are not
 * there, and it has no copies. */
int known_add(struct known *k, const struct store_row *m,
              const struct envelope *e, int64_t row);
/* The row of one that was added, of which this is a copy; 0: of none. Both have
 * one id, one body and one number of replays, and come from one message: its
 * sender's clock said the same ns, or they come from one copy of it (its line).
 * Two messages that only look alike are not taken for one. */
int64_t known_first(const struct known *k, const struct store_row *m,
                    const struct envelope *e);
void known_free(struct known *k);

#endif
