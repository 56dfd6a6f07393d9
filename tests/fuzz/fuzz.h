/* fuzz.h - what the fuzzing targets have in common
 *
 * WHAT   One target a file, fuzz_<noun>.c: libFuzzer calls it with bytes of its
 *        own making. Where to begin is in corpus/<noun>. `make fuzz` runs them.
 * WHO    libFuzzer, one thread.
 * OWNS   Nothing.
 * FAILS  By abort(), which libFuzzer keeps the bytes of.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Not assert: that one goes away with NDEBUG. */
#define fuzz_must(condition)                                           \
    do {                                                               \
        if (!(condition)) {                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, \
                    #condition);                                       \
            abort();                                                   \
        }                                                              \
    } while (0)

/* fuzz_text - the bytes as a string of their very size, so that the sanitizer
 * sees a step over its end; the caller frees */
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
