/* fuzz_stream_line.c - any answer of a handler is read within its bounds and
 * reported in one safe line; the head of any message is one line of words */
#include "tests/fuzz/fuzz.h"
#include "worker/handlers/stream_line.h"
#include "worker/source/mq/lent.h"

/* Return whether the text lies in the line. */
static bool within(const uint8_t *data, size_t size, struct header_text t)
{
    const char *from = (const char *)data;
    return t.at >= from && t.size <= size && t.at + t.size <= from + size;
}

static void answer_check(const uint8_t *data, size_t size)
{
    struct stream_answer a;
    char error[OUTCOME_ERROR];
    if (stream_answer_parse((const char *)data, size, &a) != 0)
        return;
    fuzz_must(within(data, size, a.id) && a.id.size > 0);
    fuzz_must(!memchr(a.id.at, ' ', a.id.size));
    fuzz_must(!a.delayed ||
              (a.verdict == MQW_RETRY && a.delay_ns <= INT64_MAX));
    if (a.reason.size)
        fuzz_must(within(data, size, a.reason) &&
                  (a.verdict == MQW_RETRY || a.verdict == MQW_DEAD));
    stream_answer_error(&a, error);
    fuzz_must(memchr(error, '\0', sizeof error));
    fuzz_must(!error[0] || header_value_ok(error, strlen(error)) ||
              error[0] == ' ' || error[strlen(error) - 1] == ' ');
}

/* Check "name=value", with one '='. */
static void word_check(const char *word, size_t size)
{
    const char *cut = memchr(word, '=', size);
    fuzz_must(cut && cut > word);
    fuzz_must(!memchr(cut + 1, '=', (size_t)(word + size - cut - 1)));
}

/* Check that the head is printable ASCII words with one newline at its end. */
static void head_check(const char *head, size_t n, struct delivery *d)
{
    char start[96];
    fuzz_must(n > 0 && n <= STREAM_HEAD && head[n - 1] == '\n');
    for (size_t i = 0; i + 1 < n; i++)
        fuzz_must(head[i] >= ' ' && head[i] < 0x7f);
    size_t at = (size_t)snprintf(start, sizeof start, "MSG %s %zu",
                                 delivery_id(d), d->body_size);
    fuzz_must(at < n && memcmp(head, start, at) == 0);
    while (head[at] == ' ') {
        size_t size = strcspn(head + at + 1, " \n");
        word_check(head + at + 1, size);
        at += 1 + size;
    }
    fuzz_must(at + 1 == n);
}

/* Check the head of a message with these bytes as its body. */
static void message_check(const uint8_t *data, size_t size)
{
    static char head[STREAM_HEAD + 1];
    struct slot *slot = aligned_alloc(64, (SLOT_HEADER + size + 64) / 64 * 64);
    struct delivery d = {0};
    struct lent lent = {0};
    struct slot_meta meta = {
        .length = (uint32_t)size, .seq = 1, .flags = size & 3};
    fuzz_must(slot);
    memset(slot, 0, SLOT_HEADER);
    memcpy(slot->body, data, size);
    slot_hold(slot, &meta);
    lent_init(&lent, slot, false);
    lent_fill(&lent);
    delivery_read(&d, &lent.m, ':');
    slot_run(slot, 1);
    if (!d.unfit) {
        size_t n = stream_head(head, &d);
        head[n] = '\0';
        head_check(head, n, &d);
    }
    free(slot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);
    fuzz_must(copy);
    if (size)
        memcpy(copy, data, size);
    answer_check(copy, size);
    message_check(copy, size);
    free(copy);
    return 0;
}
