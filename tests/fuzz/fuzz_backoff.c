/* fuzz_backoff.c - any text as a backoff: refused in one line, or parsed to
 * delays that keep to it */
#include "tests/fuzz/fuzz.h"
#include "common/message/backoff.h"

#include <sysexits.h>

/* Check that each delay is that of its step, and never shorter with jitter. */
static void delays_check(const struct backoff *b)
{
    for (uint32_t failures = 1; failures < 70; failures++) {
        uint64_t plain = backoff_delay(b, failures, 0);
        uint64_t step =
            b->step_ns[failures <= b->count ? failures - 1 : b->count - 1];
        fuzz_must(b->exponential ? plain <= b->step_ns[1] : plain == step);
        fuzz_must(backoff_delay(b, failures, 1000) >= plain);
    }
    fuzz_must(
        backoff_delay(b, UINT32_MAX, 0) ==
        (b->exponential && b->step_ns[0] == 0 ? 0 : b->step_ns[b->count - 1]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct problem p = {0};
    struct backoff b;
    char *text = fuzz_text(data, size);
    if (backoff_parse(text, &b, &p) == 0) {
        fuzz_must(b.count >= 1 && b.count <= BACKOFF_STEPS);
        delays_check(&b);
    } else {
        fuzz_must(p.status == EX_USAGE && p.text[0]);
    }
    free(text);
    return 0;
}
