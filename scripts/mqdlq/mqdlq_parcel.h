/* mqdlq_parcel.h - a dead letter made ready for a queue
 *
 * WHAT   The same body and priority behind a header that lets the worker match
 *        the message with its letter; or the bytes as they were received.
 * WHO    One thread.
 * OWNS   Its buffer.
 * FAILS  open: -ENOMEM. pack: -EKEYEXPIRED, -EMSGSIZE, -EBADMSG, or that of
 *        getrandom(2), and a sentence in `why`.
 */
#ifndef SCRIPTS_MQDLQ_MQDLQ_PARCEL_H
#define SCRIPTS_MQDLQ_MQDLQ_PARCEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/store/letters.h"

#define PARCEL_WHY 256

enum parcel_kind {
    PARCEL_TRACKED,   /* names its letter: the worker settles that */
    PARCEL_UNTRACKED, /* has a header, but the letter is not told of the end */
    PARCEL_RAW,       /* bytes as received; the same */
};

struct parcel {
    bool raw, elsewhere, reset_expiry; /* as asked for */
    const struct store *store;         /* makes tokens */
    size_t room;                       /* bytes that the queue takes */
    char *bytes;
    /* of the letter packed last: */
    enum parcel_kind kind;
    size_t size;
    size_t body_size;
    uint32_t priority;
    struct letter_mark mark; /* what it is sent under, if that is tracked */
};

/* Set raw, elsewhere, reset_expiry, store, room before. */
int parcel_open(struct parcel *p);
int parcel_pack(struct parcel *p, const struct letter *l, uint64_t now_ns,
                char why[PARCEL_WHY]);
void parcel_close(struct parcel *p);

#endif
