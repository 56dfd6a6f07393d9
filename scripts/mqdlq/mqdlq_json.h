/* mqdlq_json.h - a dead letter as a JSON object, out and in
 *
 * WHAT   The object has everything of a letter but its receive sequence: a
 *        letter that is written and read again is the same, byte for byte.
 *        Bytes that are not UTF-8, or have a NUL, are base64 in NAME_base64.
 * WHO    One thread.
 * OWNS   A decoding owns what its letter points to.
 * FAILS  Writing: -errno. Reading: -EINVAL and a sentence in `why`, -ENOMEM.
 */
#ifndef SCRIPTS_MQDLQ_MQDLQ_JSON_H
#define SCRIPTS_MQDLQ_MQDLQ_JSON_H

#include <stdint.h>
#include <stdio.h>

#include "common/store/letters.h"

#define JSON_WHY 256

/* Print the letter as one line to `out`; -ENOENT if it is gone. */
int json_print_letter(struct store *s, const char *queue, int64_t row,
                      FILE *out);

/* A letter that was read. */
struct decoding {
    struct letter_import letter;
    struct decoding_block *blocks; /* what `letter` points to */
};
int decoding_read(struct decoding *d, const char *text, size_t size,
                  char why[JSON_WHY]);
void decoding_free(struct decoding *d);

#endif
