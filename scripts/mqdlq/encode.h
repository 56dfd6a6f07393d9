/* encode.h - a dead letter made ready for a queue
 *
 * WHAT   The same body and priority behind a header that lets the worker match
 *        the message with its letter; or the bytes as they were received.
 * WHO    One thread.
 * OWNS   Its buffer.
 * FAILS  open: -ENOMEM. pack: -EKEYEXPIRED, -EMSGSIZE, -EBADMSG, or that of
 *        getrandom(2), and a sentence in `why`.
 */
#ifndef SCRIPTS_MQDLQ_ENCODE_H
#define SCRIPTS_MQDLQ_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/store/letters.h"

#define ENCODING_WHY 256

enum encoding_kind {
    ENCODING_TRACKED,   /* names its letter: the worker settles that */
    ENCODING_UNTRACKED, /* has a header; nothing tells the letter of its end */
    ENCODING_RAW,       /* bytes as received; the same */
};

struct encoding {
    bool raw, elsewhere, reset_expiry; /* as asked for */
    const struct store *store;         /* makes tokens */
    size_t room;                       /* bytes that the queue takes */
    char *bytes;
    /* of the letter packed last: */
    enum encoding_kind kind;
    size_t size;
    size_t body_size;
    uint32_t priority;
    struct letter_mark mark; /* it is sent with this, if it is tracked */
};

/* Set raw, elsewhere, reset_expiry, store, room before. */
int encoding_open(struct encoding *p);
int encoding_pack(struct encoding *p, const struct letter *l, uint64_t now_ns,
                  char why[ENCODING_WHY]);
void encoding_close(struct encoding *p);

#endif
