/* mqdlq_known.h - which letters are there already
 *
 * WHAT   A set of letters, by their id, and by when and why they died and what
 *        their body is: two messages may have one id.
 * WHO    One thread.
 * OWNS   Its memory; nothing of the letters.
 * FAILS  -ENOMEM.
 */
#ifndef SCRIPTS_MQDLQ_AMQP_MQDLQ_KNOWN_H
#define SCRIPTS_MQDLQ_AMQP_MQDLQ_KNOWN_H

#include <stdbool.h>

#include "common/store/store.h"

struct known {
    struct known_letter *all; /* NULL: none */
    size_t room, count;
};

/* `dated`: m.died_ns is its own; else each letter that is like it in all else
 * will do. */
bool known_has(const struct known *k, const struct store_row *m, bool dated);
int known_add(struct known *k, const struct store_row *m);
void known_free(struct known *k);

#endif
