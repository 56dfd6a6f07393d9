/* decode.h - a dead letter from a JSON object
 *
 * WHAT   Reads what letters.h writes: the letter is the same, byte for
 *        byte. REASON_NONE stands for a message without a reason, which only a
 *        broker has among its letters.
 * WHO    One thread.
 * OWNS   A decoding owns what its letter points to.
 * FAILS  -EINVAL and a sentence in `why`; -ENOMEM.
 */
#ifndef SCRIPTS_MQDLQ_DECODE_H
#define SCRIPTS_MQDLQ_DECODE_H

#include <jansson.h>
#include <stdint.h>

#include "common/store/letters.h"

#define JSON_WHY 256

/* A letter that was read. */
struct decoding {
    struct letter_import letter;
    const char **machines; /* for each attempt; NULL: not known */
    uint64_t line;         /* number of the line; set by the caller */
    json_t *object;        /* owns what `letter` points to */
    struct store_attempt *history;
};
int decoding_read(struct decoding *d, const char *text, size_t size,
                  char why[JSON_WHY]);
void decoding_free(struct decoding *d);

#endif
