/* letter_json.h - a dead letter as a JSON object
 *
 * WHAT   The object has everything of a letter but its receive sequence; a
 *        letter that is written and read again (mqdlq import) is the same, byte
 *        for byte. Bytes that are not UTF-8, or have a NUL, are base64 in
 *        NAME_base64.
 * WHO    One thread.
 * OWNS   Nothing.
 * FAILS  -ENOENT the letter is gone, -ENOMEM, or as store.h.
 */
#ifndef COMMON_STORE_LETTER_JSON_H
#define COMMON_STORE_LETTER_JSON_H

#include <stdint.h>
#include <stdio.h>

#include "common/store/letters.h"

/* A letter of a broker, which has no number there. */
struct letter_elsewhere {
    /* The machine of attempt `n`, 1 and up; NULL: not known. */
    const char *(*machine)(void *arg, int64_t row, unsigned n);
    void *arg;
};

/* Print the letter as one line to `out`. */
int letter_json_print(struct store *s, const char *queue, int64_t row,
                      const struct letter_elsewhere *elsewhere, FILE *out);

#endif
