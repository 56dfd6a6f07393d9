/* fuzz_decode.c - any line for mqdlq import: refused with a sentence, or a
 * letter that is valid for the store and the worker */
#include "common/cli/json_line.h"
#include "common/message/header.h"
#include "common/mq/queue.h"
#include "scripts/mqdlq/decode.h"
#include "tests/fuzz/fuzz.h"

/* Check what an accepted letter must be. */
static void letter_check(const struct letter_import *l)
{
    const struct store_row *m = &l->m;
    struct header h;
    char why[HEADER_WHY];
    fuzz_must(m->state == STORE_DEAD && m->died_ns > 0);
    fuzz_must(m->died_ns <= INT64_MAX && m->first_received_ns <= INT64_MAX);
    fuzz_must(m->reason < REASON_COUNT);
    fuzz_must(m->priority <= QUEUE_PRIORITY_MAX);
    fuzz_must(m->data && m->header_size <= m->size);
    fuzz_must(m->header_size <= HEADER_MAX);
    fuzz_must(!m->group || header_value_ok(m->group, m->group_size));
    if (m->header_size && m->reason != REASON_BAD_HEADER)
        fuzz_must(header_parse(m->data, m->size, &h, why) == 0 &&
                  h.bytes == m->header_size);
    for (size_t i = 0; i < l->history_count; i++)
        fuzz_must(l->history[i].started_ns <= INT64_MAX &&
                  (l->history[i].stderr_tail || !l->history[i].stderr_size));
}

/* Check that bytes survive base64, and that what was decoded is encoded. */
static void base64_check(const uint8_t *data, size_t size)
{
    size_t n, again;
    char *text = base64_encode(data, size);
    fuzz_must(text);
    void *bytes = base64_decode(text, strlen(text), &n);
    fuzz_must(bytes && n == size && (n == 0 || memcmp(bytes, data, n) == 0));
    free(bytes);
    free(text);
    bytes = base64_decode((const char *)data, size, &n);
    if (!bytes)
        return;
    text = base64_encode(bytes, n);
    free(bytes);
    fuzz_must(text);
    bytes = base64_decode(text, strlen(text), &again);
    fuzz_must(bytes && again == n);
    free(bytes);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[JSON_WHY] = "";
    struct decoding d;
    char *text = fuzz_text(data, size);
    base64_check((uint8_t *)text, size);
    if (decoding_read(&d, text, size, why) == 0) {
        letter_check(&d.letter);
        decoding_free(&d);
    } else {
        fuzz_must(strnlen(why, JSON_WHY) > 0 &&
                  strnlen(why, JSON_WHY) < JSON_WHY);
        fuzz_must(!d.object);
    }
    free(text);
    return 0;
}
