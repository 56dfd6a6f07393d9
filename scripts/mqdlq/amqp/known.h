/* known.h - the set of letters that the broker has already
 *
 * WHAT   Recognizes a letter by its id, its body, and when and why it died: two
 *        messages may have one id. Recognizes copies of one letter, too: a
 *        worker that is killed after it published a letter, before the broker
 *        confirmed that, leaves one behind, and the next worker publishes
 *        another.
 * WHO    held.c adds the letters that it fetches, send.c asks before it imports
 *        one. One thread.
 * OWNS   Its memory; nothing of the letters.
 * FAILS  known_add: -ENOMEM.
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

/* Return true if the set has this letter. `dated`: m.died_ns is its own;
 * otherwise any letter matches that is equal in all else. */
bool known_has(const struct known *k, const struct store_row *m, bool dated);
/* Add a letter with its row and its properties; NULL: it has none, and no
 * copies. */
int known_add(struct known *k, const struct store_row *m,
              const struct envelope *e, int64_t row);
/* Return the row of an added letter of which this one is a copy; 0: there is
 * none. Both have one id, one body and one number of replays, and come from one
 * message: the time of sending is the same to the ns, or both come from one
 * copy of it (its line). Two messages that only look alike are not taken for
 * one. */
int64_t known_first(const struct known *k, const struct store_row *m,
                    const struct envelope *e);
void known_free(struct known *k);

#endif
