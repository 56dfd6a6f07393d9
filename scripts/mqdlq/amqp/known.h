/* known.h - the set of letters that the broker has already
 *
 * WHAT   Recognizes a letter by its id, its body, and when and why it died: two
 *        messages may have one id. Also recognizes copies of one letter: if a
 *        worker is killed after it published a letter and before the broker
 *        confirmed it, the next worker publishes the letter again.
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

/* Return true if the set has this letter. `dated`: also compare the times of
 * death; without it, any letter matches that is equal in all else. */
bool known_has(const struct known *k, const struct store_row *m, bool dated);
/* Add a letter with its row and its properties. `e` is NULL if it has none;
 * then no copies of it are recognized. */
int known_add(struct known *k, const struct store_row *m,
              const struct envelope *e, int64_t row);
/* Return the row of an added letter of which this one is a copy; 0: there is
 * none. Copies have the same id, body and number of replays, and also the same
 * time of sending, to the ns, or the same line (envelope.h). So two messages
 * that only look alike are not taken for copies. */
int64_t known_first(const struct known *k, const struct store_row *m,
                    const struct envelope *e);
void known_free(struct known *k);

#endif
