/* fuzz.h - what all fuzzing targets use
 *
 * WHAT   libFuzzer calls the target in each fuzz_<noun>.c with bytes that it
 *        makes of those in corpus/<noun>. `make fuzz` runs all targets.
 * WHO    libFuzzer, one thread.
 * OWNS   Nothing.
 * FAILS  By abort(); libFuzzer then saves the bytes.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Check as assert(3) does, but also with NDEBUG. */
#define fuzz_must(condition)                                           \
    do {                                                               \
        if (!(condition)) {                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, \
                    #condition);                                       \
            abort();                                                   \
        }                                                              \
    } while (0)

/* Return the bytes as a string in memory of exactly their size, so that the
 * sanitizer sees a read beyond the end. The caller frees it. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    fuzz_must(text);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

#endif
