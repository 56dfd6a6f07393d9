/* fuzz_clock.c - any text as a duration, size or time: refused, or a value that
 * prints as a text with the same value */
#include "common/base/clock.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>

#define NOW (UINT64_C(1800000000) * NS_PER_S)

static void duration_check(const char *text)
{
    char printed[DURATION_TEXT];
    uint64_t ns = 7, back;
    int err = duration_parse(text, &ns);
    if (err) {
        fuzz_must((err == -EINVAL || err == -ERANGE) && ns == 7);
        return;
    }
    fuzz_must(ns <= INT64_MAX);
    fuzz_must(duration_parse(duration_print(ns, printed), &back) == 0);
    fuzz_must(back == ns);
}

static void size_check(const char *text)
{
    char printed[SIZE_TEXT];
    uint64_t bytes = 7, back;
    int err = size_parse(text, &bytes);
    if (err) {
        fuzz_must((err == -EINVAL || err == -ERANGE) && bytes == 7);
        return;
    }
    fuzz_must(bytes <= INT64_MAX);
    fuzz_must(size_parse(size_print(bytes, printed), &back) == 0);
    fuzz_must(back == bytes);
}

static void time_check(const char *text)
{
    char printed[TIME_TEXT];
    uint64_t ns = 7, back;
    int err = time_parse(text, NOW, &ns);
    if (err) {
        fuzz_must((err == -EINVAL || err == -ERANGE) && ns == 7);
        return;
    }
    fuzz_must(time_parse(time_print(ns, printed), NOW, &back) == 0);
    fuzz_must(back == ns - ns % NS_PER_MS); /* printed to the millisecond */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    duration_check(text);
    size_check(text);
    time_check(text);
    free(text);
    return 0;
}
