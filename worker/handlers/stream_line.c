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

/* Each byte of a header may become three; the rest is what stands around it. */
_Static_assert(STREAM_HEAD >= 3 * (HEADER_MAX + HEADER_VALUE_MAX) + 200,
               "a head fits whatever the message says");

/* Bytes as they are */
static char *bytes_put(char *at, const char *text, size_t size)
{
    memcpy(at, text, size);
    return at + size;
}

#define PUT(at, literal) bytes_put(at, literal, sizeof(literal) - 1)

/* In decimal */
static char *put_number(char *at, uint64_t n)
{
    char digits[20];
    size_t i = sizeof digits;

    do
        digits[--i] = (char)('0' + n % 10);
    while ((n /= 10) != 0);
    return bytes_put(at, digits + i, sizeof digits - i);
}

/* What would end the word, or the line, as %XX */
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

/* The x- lines of its header */
static char *put_x(char *at, struct delivery *d)
{
    struct header_text name, value;
    size_t cursor = 0;

    while (
        header_next_x(d->message->data, &d->header, &cursor, &name, &value)) {
        *at++ = ' ';
        at = bytes_put(at, name.at, name.size);
        *at++ = '=';
        at = put_value(at, value.at, value.size);
    }
    return at;
}

/* stream_head - "MSG ..." */
size_t stream_head(char buf[STREAM_HEAD], struct delivery *d)
{
    char *at = PUT(buf, "MSG ");

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
    if (d->header.x_count)
        at = put_x(at, d);
    *at++ = '\n';
    return (size_t)(at - buf);
}

/* The next word of a line; false: there is none */
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

/* Find the verdict that a word of an answer stands for. */
static bool verdict_read(const struct header_text *word, enum mqw_verdict *out)
{
    for (int i = 0; i < VERDICT_COUNT; i++)
        if (strlen(verdict_rules[i].word) == word->size &&
            memcmp(verdict_rules[i].word, word->at, word->size) == 0) {
            *out = (enum mqw_verdict)i;
            return true;
        }
    return false;
}

/* delay_read - "delay=5s", if that is the next word of a retry */
static int delay_read(struct header_text *rest, struct stream_answer *out)
{
    static const char name[] = "delay=";
    struct header_text after = *rest, word;
    char value[DURATION_TEXT];
    size_t skip = sizeof name - 1;

    if (!word_next(&after, &word) || word.size < skip ||
        memcmp(word.at, name, skip) != 0)
        return 0;
    if (word.size - skip >= sizeof value)
        return -EBADMSG;
    memcpy(value, word.at + skip, word.size - skip);
    value[word.size - skip] = '\0';
    if (duration_parse(value, &out->delay_ns) < 0)
        return -EBADMSG;
    out->delayed = true;
    *rest = after;
    return 0;
}

/* Without spaces around it */
static void spaces_trim(struct header_text *text)
{
    while (text->size && text->at[text->size - 1] == ' ')
        text->size--;
    while (text->size && *text->at == ' ') {
        text->at++;
        text->size--;
    }
}

/* The verdict, the id, and what belongs to it */
int stream_answer_parse(const char *line, size_t size,
                        struct stream_answer *out)
{
    struct header_text rest = {line, size}, word;

    if (size && line[size - 1] == '\r')
        rest.size--;
    *out = (struct stream_answer){0};
    if (!size || *line == ' ' || !word_next(&rest, &word) ||
        !verdict_read(&word, &out->verdict) || !word_next(&rest, &out->id))
        return -EBADMSG;
    if (out->verdict == MQW_RETRY && delay_read(&rest, out) < 0)
        return -EBADMSG;
    spaces_trim(&rest);
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
