/* stream_line.c - the lines of a long-lived handler (see stream_line.h)
 *
 * Heads are written without printf(3): with a child that answers in
 * microseconds it would be a tenth of the time.
 */
#include "worker/handlers/stream_line.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "worker/rules/verdict.h"

/* Each byte of a header may become three; 200 bytes are for the other words. */
_Static_assert(STREAM_HEAD >= 3 * (HEADER_MAX + HEADER_VALUE_MAX) + 200,
               "a head fits whatever the message says");

static char *bytes_put(char *at, const char *text, size_t size)
{
    memcpy(at, text, size);
    return at + size;
}

#define PUT(at, literal) bytes_put(at, literal, sizeof(literal) - 1)

static char *put_number(char *at, uint64_t n)
{
    char digits[20];
    size_t i = sizeof digits;

    do
        digits[--i] = (char)('0' + n % 10);
    while ((n /= 10) != 0);
    return bytes_put(at, digits + i, sizeof digits - i);
}

/* Append text; bytes that would end the word or the line become %XX. */
static char *put_value(char *at, const char *text, size_t size)
{
    static const char hex[] = "0123456789ABCDEF";

    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c > ' ' && c < 0x7f && c != '%' && c != '=') {
            *at++ = (char)c;
        } else {
            *at++ = '%';
            *at++ = hex[c >> 4];
            *at++ = hex[c & 15];
        }
    }
    return at;
}

size_t stream_head(char buf[STREAM_HEAD], struct delivery *d)
{
    struct header_text name, value;
    char *at = PUT(buf, "MSG ");
    size_t cursor = 0;

    at = bytes_put(at, delivery_id(d), ULID_TEXT - 1);
    *at++ = ' ';
    at = put_number(at, d->body_size);
    at = put_number(PUT(at, " attempt="), d->message->failures + 1);
    at = put_number(PUT(at, " priority="), d->message->priority);
    if (d->group.at)
        at = put_value(PUT(at, " group="), d->group.at, d->group.size);
    if (d->message->flags & MESSAGE_REDELIVERED)
        at = PUT(at, " redelivered=1");
    if (d->message->flags & MESSAGE_LENGTH_INFERRED)
        at = PUT(at, " length-inferred=1");
    while (d->header.x_count && header_next_x(d->message->data, &d->header,
                                              &cursor, &name, &value)) {
        *at++ = ' ';
        at = bytes_put(at, name.at, name.size);
        *at++ = '=';
        at = put_value(at, value.at, value.size);
    }
    *at++ = '\n';
    return (size_t)(at - buf);
}

/* Cut the next word off a line. Returns false if there is none. */
static bool word_next(struct header_text *rest, struct header_text *word)
{
    const char *space;

    while (rest->size && *rest->at == ' ') {
        rest->at++;
        rest->size--;
    }
    space = memchr(rest->at, ' ', rest->size);
    *word = (struct header_text){.at = rest->at,
                                 .size = space ? (size_t)(space - rest->at)
                                               : rest->size};
    rest->at += word->size;
    rest->size -= word->size;
    return word->size > 0;
}

int stream_answer_parse(const char *line, size_t size,
                        struct stream_answer *out)
{
    static const char name[] = "delay=";
    const size_t skip = sizeof name - 1;
    struct header_text rest = {line, size}, after, word;
    char delay[DURATION_TEXT];
    int verdict = 0;

    if (size && line[size - 1] == '\r')
        rest.size--;
    *out = (struct stream_answer){0};
    if (!size || *line == ' ' || !word_next(&rest, &word))
        return -EBADMSG;
    while (verdict < VERDICT_COUNT &&
           (strlen(verdict_rules[verdict].word) != word.size ||
            memcmp(verdict_rules[verdict].word, word.at, word.size) != 0))
        verdict++;
    if (verdict == VERDICT_COUNT || !word_next(&rest, &out->id))
        return -EBADMSG;
    out->verdict = (enum mqw_verdict)verdict;
    /* The next word of a retry may be "delay=5s". */
    after = rest;
    if (out->verdict == MQW_RETRY && word_next(&after, &word) &&
        word.size >= skip && memcmp(word.at, name, skip) == 0) {
        if (word.size - skip >= sizeof delay)
            return -EBADMSG;
        memcpy(delay, word.at + skip, word.size - skip);
        delay[word.size - skip] = '\0';
        if (duration_parse(delay, &out->delay_ns) < 0)
            return -EBADMSG;
        out->delayed = true;
        rest = after;
    }
    while (rest.size && rest.at[rest.size - 1] == ' ')
        rest.size--;
    while (rest.size && *rest.at == ' ') {
        rest.at++;
        rest.size--;
    }
    if (verdict_rules[out->verdict].explains)
        out->reason = rest;
    else if (rest.size)
        return -EBADMSG; /* nothing may follow */
    return 0;
}

void stream_answer_error(const struct stream_answer *a,
                         char error[OUTCOME_ERROR])
{
    error[0] = '\0';
    if (a->reason.size)
        safe_text_copy(error, OUTCOME_ERROR, a->reason.at, a->reason.size);
    else if (verdict_rules[a->verdict].explains)
        snprintf(error, OUTCOME_ERROR, "answered %s",
                 verdict_rules[a->verdict].word);
}
