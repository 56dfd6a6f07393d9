/* fuzz_header.c - any message is read within its bounds; a header that was read
 * is the same when it is written and read again */
#include "common/message/header.h"
#include "tests/fuzz/fuzz.h"

/* More lines than the largest header has. */
#define X_ROOM HEADER_MAX

/* Return whether the text lies in the header of the message. */
static bool within(const uint8_t *data, const struct header *h,
                   struct header_text t)
{
    const char *from = (const char *)data;
    return t.at >= from && t.size <= h->bytes &&
           t.at + t.size <= from + h->bytes;
}

/* Return whether both are the same bytes. */
static bool text_same(struct header_text a, struct header_text b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.at, b.at, a.size) == 0);
}

/* Collect all x- lines; return how many. */
static size_t x_collect(const uint8_t *data, const struct header *h,
                        struct header_x x[X_ROOM])
{
    size_t n = 0, cursor = 0;
    while (header_next_x(data, h, &cursor, &x[n].name, &x[n].value)) {
        fuzz_must(within(data, h, x[n].name) && within(data, h, x[n].value));
        fuzz_must(header_x_name_ok(x[n].name.at, x[n].name.size));
        fuzz_must(header_value_ok(x[n].value.at, x[n].value.size));
        fuzz_must(++n < X_ROOM);
    }
    fuzz_must(cursor == h->bytes);
    fuzz_must(n == h->x_count);
    return n;
}

/* Return whether the texts are equal, if the field is set. */
static bool text_kept(unsigned fields, struct header_text a,
                      struct header_text b)
{
    return fields == 0 || text_same(a, b);
}

/* Return whether the numbers are equal, if the field is set. */
static bool number_kept(unsigned fields, uint64_t a, uint64_t b)
{
    return fields == 0 || a == b;
}

/* Return whether the ids are equal, if the field is set. */
static bool id_kept(unsigned fields, struct ulid a, struct ulid b)
{
    return fields == 0 || memcmp(&a, &b, sizeof a) == 0;
}

/* Return whether the numbers of two headers with the same fields are equal. */
static bool numbers_kept(const struct header *a, const struct header *b)
{
    unsigned f = a->fields;
    return number_kept(f & HEADER_SENT, a->sent_ns, b->sent_ns) &&
           number_kept(f & HEADER_SIZE, a->size, b->size) &&
           number_kept(f & HEADER_NOT_BEFORE, a->not_before_ns,
                       b->not_before_ns) &&
           number_kept(f & HEADER_EXPIRES, a->expires_ns, b->expires_ns) &&
           number_kept(f & HEADER_TIMEOUT, a->timeout_ms, b->timeout_ms) &&
           number_kept(f & HEADER_LETTER, a->letter, b->letter) &&
           number_kept(f & HEADER_MAX_ATTEMPTS, a->max_attempts,
                       b->max_attempts) &&
           number_kept(f & HEADER_UNIQUE_FOR, a->unique_for_ms,
                       b->unique_for_ms);
}

/* Return whether two headers are equal. */
static bool fields_same(const struct header *a, const struct header *b)
{
    unsigned f = a->fields;
    return f == b->fields && a->x_count == b->x_count && numbers_kept(a, b) &&
           id_kept(f & HEADER_ID, a->id, b->id) &&
           id_kept(f & HEADER_LETTER_TOKEN, a->letter_token, b->letter_token) &&
           text_kept(f & HEADER_GROUP, a->group, b->group) &&
           text_kept(f & HEADER_BACKOFF, a->backoff, b->backoff) &&
           text_kept(f & HEADER_UNIQUE, a->unique, b->unique);
}

/* Write the header and read it again; it must be the same. */
static void again(const struct header *h, const struct header_x *x, size_t n,
                  size_t body)
{
    static struct header_x x_again[X_ROOM];
    char why[HEADER_WHY] = "";
    struct header back;
    char text[HEADER_MAX];
    int bytes = header_write(text, sizeof text, h, x, n);
    /* It does not grow, because the header reader only accepts canonical
     * numbers and ids. */
    fuzz_must(bytes > 0 && (size_t)bytes <= h->bytes);
    char *whole = calloc(1, (size_t)bytes + body + 1);
    fuzz_must(whole);
    memcpy(whole, text, (size_t)bytes);
    int err = header_parse(whole, (size_t)bytes + body, &back, why);
    fuzz_must(err == 0 && back.bytes == (size_t)bytes);
    fuzz_must(fields_same(h, &back));
    fuzz_must(x_collect((uint8_t *)whole, &back, x_again) == n);
    for (size_t i = 0; i < n; i++)
        fuzz_must(text_same(x[i].name, x_again[i].name) &&
                  text_same(x[i].value, x_again[i].value));
    free(whole);
}

/* Check that the reason of a refusal fits into one line of a log. */
static void refused(const char why[HEADER_WHY])
{
    size_t n = strnlen(why, HEADER_WHY);
    fuzz_must(n > 0 && n < HEADER_WHY);
    for (size_t i = 0; i < n; i++)
        fuzz_must((unsigned char)why[i] >= ' ' && why[i] != 0x7f);
}

static bool has_magic(const uint8_t *data, size_t size)
{
    return size >= 6 && memcmp(data, "MQW/1\n", 6) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct header_x x[X_ROOM];
    char why[HEADER_WHY] = "";
    struct header h;
    size_t told = header_message_size(data, size);
    fuzz_must(told <= size);
    if (header_parse(data, size, &h, why) != 0) {
        fuzz_must(has_magic(data, size));
        refused(why);
        return 0;
    }
    fuzz_must(h.bytes <= size && h.bytes <= HEADER_MAX);
    fuzz_must((h.bytes > 0) == has_magic(data, size));
    if (h.bytes == 0)
        return 0;
    fuzz_must(told == (h.fields & HEADER_SIZE ? size : 0));
    if (h.fields & HEADER_GROUP)
        fuzz_must(within(data, &h, h.group) &&
                  header_value_ok(h.group.at, h.group.size));
    again(&h, x, x_collect(data, &h, x), size - h.bytes);
    return 0;
}
