/* decode.h - a dead letter from a JSON object
 *
 * WHAT   Reads a line written by `mqdlq export` (letters.h). The decoded letter
 *        equals the exported letter, byte for byte. Its reason is REASON_NONE
 *        if it has none, which happens only to messages that somebody put into
 *        a broker's dead-letter queue.
 * WHO    import.c, in one thread.
 * OWNS   A decoding owns all that its letter points to.
 * FAILS  -EINVAL and a sentence in `why`; -ENOMEM.
 */
#ifndef SCRIPTS_MQDLQ_DECODE_H
#define SCRIPTS_MQDLQ_DECODE_H

#include <jansson.h>
#include <stdint.h>

#include "common/store/letters.h"

#define JSON_WHY 256

struct decoding {
    struct letter_import letter;
    const char **machines; /* of each attempt; NULL: unknown */
    uint64_t line;         /* number of the line; set by the caller */
    json_t *object;        /* owns the texts of `letter` */
    struct store_attempt *history;
};
/* Read a letter from a line of JSON. After an error `d` is empty. */
int decoding_read(struct decoding *d, const char *text, size_t size,
                  char why[JSON_WHY]);
void decoding_free(struct decoding *d);

#endif
