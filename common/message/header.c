/* header.c - reads and writes the text header (docs/formats/header.md) */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sysexits.h>

#include "common/base/safe_text.h"
#include "common/message/header.h"

#define SAFE_TEXT 44 /* of an untrusted value, so that `why` is never cut */

enum field_type { FIELD_ULID, FIELD_NUMBER, FIELD_TEXT, FIELD_BACKOFF };

struct field {
    const char *name;
    size_t size; /* of the name */
    unsigned bit;
    enum field_type type;
    size_t offset; /* in struct header */
    uint64_t min, max;
};

#define NAME(text) text, sizeof(text) - 1

/* In the order in which header_write writes them. */
static const struct field fields[] = {
    {NAME("id"), HEADER_ID, FIELD_ULID, offsetof(struct header, id), 0, 0},
    {NAME("sent"), HEADER_SENT, FIELD_NUMBER, offsetof(struct header, sent_ns),
     0, UINT64_MAX},
    {NAME("size"), HEADER_SIZE, FIELD_NUMBER, offsetof(struct header, size), 0,
     UINT64_MAX},
    {NAME("group"), HEADER_GROUP, FIELD_TEXT, offsetof(struct header, group), 0,
     0},
    {NAME("not-before"), HEADER_NOT_BEFORE, FIELD_NUMBER,
     offsetof(struct header, not_before_ns), 0, UINT64_MAX},
    {NAME("delay"), HEADER_DELAY, FIELD_NUMBER,
     offsetof(struct header, delay_ms), 1, HEADER_MS_MAX},
    {NAME("expires"), HEADER_EXPIRES, FIELD_NUMBER,
     offsetof(struct header, expires_ns), 0, UINT64_MAX},
    {NAME("timeout"), HEADER_TIMEOUT, FIELD_NUMBER,
     offsetof(struct header, timeout_ms), 1, HEADER_MS_MAX},
    {NAME("letter"), HEADER_LETTER, FIELD_NUMBER,
     offsetof(struct header, letter), 1, INT64_MAX},
    {NAME("letter-token"), HEADER_LETTER_TOKEN, FIELD_ULID,
     offsetof(struct header, letter_token), 0, 0},
    {NAME("max-attempts"), HEADER_MAX_ATTEMPTS, FIELD_NUMBER,
     offsetof(struct header, max_attempts), 1, HEADER_ATTEMPTS},
    {NAME("backoff"), HEADER_BACKOFF, FIELD_BACKOFF,
     offsetof(struct header, backoff), 0, 0},
    {NAME("unique"), HEADER_UNIQUE, FIELD_TEXT, offsetof(struct header, unique),
     0, 0},
    {NAME("unique-for"), HEADER_UNIQUE_FOR, FIELD_NUMBER,
     offsetof(struct header, unique_for_ms), 1, HEADER_MS_MAX},
    {NAME("forwarded"), HEADER_FORWARDED, FIELD_NUMBER,
     offsetof(struct header, forwarded), 1, UINT32_MAX},
    {NAME("resent"), HEADER_RESENT, FIELD_NUMBER,
     offsetof(struct header, resent), 1, 1},
    {NAME("edited-from"), HEADER_EDITED_FROM, FIELD_ULID,
     offsetof(struct header, edited_from), 0, 0},
};
#define FIELDS (sizeof fields / sizeof fields[0])

/* A line that is being read. */
struct line {
    unsigned number; /* the magic line is 1 */
    struct header_text name, value;
    char *why; /* HEADER_WHY bytes; may be NULL */
};

/* Write "line N: ..." to `why`; returns -EBADMSG. */
__attribute__((format(printf, 2, 3))) static int
line_refuse(const struct line *line, const char *fmt, ...)
{
    va_list args;
    int n;

    if (!line->why)
        return -EBADMSG;
    n = snprintf(line->why, HEADER_WHY, "line %u: ", line->number);
    va_start(args, fmt);
    vsnprintf(line->why + n, HEADER_WHY - (size_t)n, fmt, args);
    va_end(args);
    return -EBADMSG;
}

/* Make untrusted bytes printable and cut them, for a sentence. */
static const char *text_show(struct header_text text, char buf[SAFE_TEXT])
{
    safe_text_copy(buf, SAFE_TEXT, text.at, text.size);
    return buf;
}

/* Refuse a line, with the field and its value in front of the sentence. */
static int line_refuse_value(const struct line *line, const char *sentence)
{
    char value[SAFE_TEXT];

    return line_refuse(line, "%.*s: \"%s\" %s", (int)line->name.size,
                       line->name.at, text_show(line->value, value), sentence);
}

/* Return what is wrong with a value; NULL if nothing. */
static const char *value_flaw(const char *text, size_t size)
{
    if (size == 0)
        return "is empty: 1 to 256 bytes are allowed";
    if (size > HEADER_VALUE_MAX)
        return "is too long: 1 to 256 bytes are allowed";
    if (text[0] == ' ' || text[size - 1] == ' ')
        return "starts or ends with a space";
    for (size_t at = 0, step; at < size; at += step) {
        uint32_t point;

        step = 1;
        if ((unsigned char)text[at] - 0x20u < 0x5f) /* nearly all */
            continue;
        step = utf8_read(text + at, size - at, &point);
        if (step == 0 || utf8_hidden(point))
            return "is not printable UTF-8";
    }
    return NULL;
}

bool header_value_ok(const char *text, size_t size)
{
    return !value_flaw(text, size);
}

/* Return true if a name matches [a-z0-9-]{1,32}. */
static bool name_is_ok(struct header_text name)
{
    if (name.size == 0 || name.size > HEADER_NAME_MAX)
        return false;
    for (size_t i = 0; i < name.size; i++) {
        char c = name.at[i];

        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'))
            return false;
    }
    return true;
}

/* Return true if a correct name is that of an x- line. */
static bool name_is_x(struct header_text name)
{
    return name.size > 2 && name.at[0] == 'x' && name.at[1] == '-';
}

bool header_x_name_ok(const char *text, size_t size)
{
    struct header_text name = {text, size};

    return name_is_ok(name) && name_is_x(name);
}

/* Parse a plain decimal number without leading zeros. */
static bool decimal_parse(struct header_text text, uint64_t *out)
{
    uint64_t n = 0;

    if (text.size == 0 || text.size > 20 ||
        (text.at[0] == '0' && text.size > 1))
        return false;
    for (size_t i = 0; i < text.size; i++) {
        unsigned digit = (unsigned char)text.at[i] - (unsigned)'0';

        if (digit > 9 || __builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, digit, &n))
            return false;
    }
    *out = n;
    return true;
}

bool header_backoff(struct header_text text, struct backoff *out)
{
    char spec[HEADER_VALUE_MAX + 1];
    struct problem p;

    if (text.size > HEADER_VALUE_MAX)
        return false;
    memcpy(spec, text.at, text.size);
    spec[text.size] = '\0';
    return backoff_parse(spec, out, &p) == 0;
}

/* Read the value of a known field into `out`. */
static int field_take(const struct line *line, const struct field *field,
                      struct header *out)
{
    void *into = (char *)out + field->offset;
    char range[96];
    struct backoff b;
    uint64_t n;

    if (out->fields & field->bit)
        return line_refuse_value(line, "comes a second time: once is allowed");
    switch (field->type) {
    case FIELD_BACKOFF: /* kept as text, and parsed again after a failure */
        if (!header_backoff(line->value, &b))
            return line_refuse_value(
                line, "is not a backoff, like exp:1s,5m or 1s,5s,30s");
        *(struct header_text *)into = line->value;
        break;
    case FIELD_TEXT:
        *(struct header_text *)into = line->value;
        break;
    case FIELD_NUMBER:
        if (!decimal_parse(line->value, &n) || n < field->min ||
            n > field->max) {
            snprintf(range, sizeof range,
                     "is not a plain decimal number from %" PRIu64
                     " to %" PRIu64,
                     field->min, field->max);
            return line_refuse_value(line, range);
        }
        *(uint64_t *)into = n;
        break;
    case FIELD_ULID:
        if (ulid_parse(line->value.at, line->value.size, into) != 0)
            return line_refuse_value(
                line, "is not a ULID: 26 characters, 0-9 and A-Z "
                      "without I L O U, up to 7ZZ...");
        break;
    }
    out->fields |= field->bit;
    return 0;
}

/* Cut a line of `size` bytes at ": ", and refuse it if it is malformed. */
static int line_split(struct line *line, const char *at, size_t size)
{
    char text[SAFE_TEXT];
    const char *cut = memmem(at, size, ": ", 2);
    const char *flaw;

    if (!cut)
        return line_refuse(line, "\"%s\" is not of the form \"name: value\"",
                           text_show((struct header_text){at, size}, text));
    line->name = (struct header_text){at, (size_t)(cut - at)};
    line->value = (struct header_text){cut + 2, size - line->name.size - 2};
    if (!name_is_ok(line->name))
        return line_refuse(line,
                           "the name \"%s\" is not 1 to 32 characters "
                           "of a-z, 0-9 and -",
                           text_show(line->name, text));
    flaw = value_flaw(line->value.at, line->value.size);
    return flaw ? line_refuse_value(line, flaw) : 0;
}

/* Read all lines up to the empty line; out->bytes is set at the end. *size_line
 * becomes the number of the `size` line. */
static int lines_read(const char *data, size_t size, struct header *out,
                      char *why, unsigned *size_line)
{
    size_t limit = size < HEADER_MAX ? size : HEADER_MAX;
    struct line line = {.number = 2, .why = why};
    const struct field *field;

    for (size_t at = HEADER_MAGIC_BYTES;; line.number++) {
        const char *end = memchr(data + at, '\n', limit - at);
        size_t length;
        int err;

        if (!end)
            return line_refuse(&line,
                               "no end of the header, which is an empty line, "
                               "in the first %zu bytes (%d are allowed)",
                               limit, HEADER_MAX);
        length = (size_t)(end - data) - at;
        if (length == 0) {
            out->bytes = at + 1;
            return 0;
        }
        err = line_split(&line, data + at, length);
        if (err)
            return err;
        for (field = fields; field < fields + FIELDS; field++)
            if (field->size == line.name.size &&
                /* NOLINTNEXTLINE(clang-analyzer-core.*): its size is not 0 */
                memcmp(field->name, line.name.at, field->size) == 0)
                break;
        if (field == fields + FIELDS)
            out->x_count += name_is_x(line.name);
        else
            err = field_take(&line, field, out);
        if (err)
            return err;
        if (*size_line == 0 && (out->fields & HEADER_SIZE))
            *size_line = line.number;
        at += length + 1;
    }
}

int header_parse(const void *data, size_t size, struct header *out,
                 char why[HEADER_WHY])
{
    unsigned size_line = 0;
    int err;

    if (!header_found(data, size)) {
        out->bytes = 0;
        out->fields = 0;
        out->x_count = 0;
        return 0;
    }
    if (header_group_alone(data, size, out))
        return 0;
    *out = (struct header){0};
    err = lines_read(data, size, out, why, &size_line);
    if (err)
        return err;
    if ((out->fields & HEADER_SIZE) && out->size != size - out->bytes) {
        struct line line = {.number = size_line, .why = why};

        return line_refuse(&line,
                           "size: \"%" PRIu64 "\" is not the %zu "
                           "bytes that follow the header",
                           out->size, size - out->bytes);
    }
    return 0;
}

size_t header_message_size(const void *data, size_t room)
{
    struct header h = {0};
    unsigned size_line = 0;

    if (!header_found(data, room) ||
        lines_read(data, room, &h, NULL, &size_line) != 0 ||
        !(h.fields & HEADER_SIZE) || h.size > room - h.bytes)
        return 0;
    return h.bytes + (size_t)h.size;
}

bool header_next(const void *data, const struct header *h, size_t *cursor,
                 struct header_text *name, struct header_text *value)
{
    size_t at = *cursor ? *cursor : HEADER_MAGIC_BYTES;
    const char *text = data, *end = NULL;
    struct line line = {0};

    if (at < h->bytes)
        end = memchr(text + at, '\n', h->bytes - at);
    if (!end || line_split(&line, text + at, (size_t)(end - text) - at)) {
        *cursor = h->bytes;
        return false;
    }
    *name = line.name;
    *value = line.value;
    *cursor = (size_t)(end - text) + 1;
    return true;
}

bool header_next_x(const void *data, const struct header *h, size_t *cursor,
                   struct header_text *name, struct header_text *value)
{
    while (header_next(data, h, cursor, name, value))
        if (name_is_x(*name))
            return true;
    return false;
}

/* State of header_write. If `used` exceeds `room`, the header did not fit. */
struct writer {
    char *at;
    size_t room, used;
};

/* Append bytes if they fit; count them anyway. */
static void writer_add(struct writer *w, const char *text, size_t size)
{
    if (w->used <= w->room && size <= w->room - w->used)
        memcpy(w->at + w->used, text, size);
    w->used += size;
}

/* Append "name: value\n". */
static void line_write(struct writer *w, struct header_text name,
                       struct header_text value)
{
    writer_add(w, name.at, name.size);
    writer_add(w, ": ", 2);
    writer_add(w, value.at, value.size);
    writer_add(w, "\n", 1);
}

/* Append the line of a known field; -EINVAL if its value is malformed. */
static int field_write(struct writer *w, const struct field *field,
                       const struct header *h)
{
    const void *from = (const char *)h + field->offset;
    char text[ULID_TEXT > 21 ? ULID_TEXT : 21];
    struct header_text value = {text, 0};

    if (field->type == FIELD_TEXT || field->type == FIELD_BACKOFF) {
        value = *(const struct header_text *)from;
        if (!header_value_ok(value.at, value.size))
            return -EINVAL;
    } else if (field->type == FIELD_NUMBER) {
        uint64_t n = *(const uint64_t *)from;

        if (n < field->min || n > field->max)
            return -EINVAL;
        value.size = (size_t)snprintf(text, sizeof text, "%" PRIu64, n);
    } else {
        value.size = strlen(ulid_print(*(const struct ulid *)from, text));
    }
    line_write(w, (struct header_text){field->name, strlen(field->name)},
               value);
    return 0;
}

int header_write(char *buf, size_t room, const struct header *h,
                 const struct header_x *x, size_t x_count)
{
    struct writer w = {buf, room < HEADER_MAX ? room : HEADER_MAX, 0};

    writer_add(&w, HEADER_MAGIC, HEADER_MAGIC_BYTES);
    for (size_t i = 0; i < FIELDS; i++) {
        if ((h->fields & fields[i].bit) && field_write(&w, &fields[i], h) != 0)
            return -EINVAL;
    }
    for (size_t i = 0; i < x_count; i++) {
        if (!header_x_name_ok(x[i].name.at, x[i].name.size) ||
            !header_value_ok(x[i].value.at, x[i].value.size))
            return -EINVAL;
        line_write(&w, x[i].name, x[i].value);
    }
    writer_add(&w, "\n", 1);
    return w.used <= w.room ? (int)w.used : -EMSGSIZE;
}

/* ---- a fast path for a header that has only a group ---- */

/* Find the end of the printable ASCII text that starts at `at`, not after
 * `most`. Checks eight bytes at a time: if a byte is not printable ASCII, its
 * top bit is set in byte - 0x20, in byte + 1 or in the byte itself. Only such a
 * byte causes a borrow or a carry into the bytes behind it, so the first byte
 * that is found is right. */
static size_t text_end(const unsigned char *s, size_t at, size_t most)
{
    const uint64_t each = UINT64_C(0x0101010101010101);
    uint64_t word, odd;

    for (; at + sizeof word <= most; at += sizeof word) {
        memcpy(&word, s + at, sizeof word);
        word = le64toh(word);
        odd = ((word - 0x20 * each) | (word + each) | word) & 0x80 * each;
        if (odd)
            return at + (size_t)__builtin_ctzll(odd) / 8;
    }
    while (at < most && s[at] - 0x20u < 0x5f)
        at++;
    return at;
}

bool header_group_alone(const void *data, size_t size, struct header *out)
{
    static const char begin[] = HEADER_MAGIC "group: ";
    const size_t from = sizeof begin - 1;
    const unsigned char *s = data;
    size_t at, most = from + HEADER_VALUE_MAX + 1;

    if (size < from + 3 || memcmp(data, begin, from) != 0)
        return false;
    if (most > size - 1)
        most = size - 1;
    at = text_end(s, from, most);
    if (at == most || s[at] != '\n' || s[at + 1] != '\n')
        return false;
    if (at == from || s[from] == ' ' || s[at - 1] == ' ')
        return false;
    out->group = (struct header_text){(const char *)data + from, at - from};
    out->fields = HEADER_GROUP;
    out->x_count = 0;
    out->bytes = at + 2;
    return true;
}

/* ---- the group of a message that has no header ---- */

int header_group_raw(const void *body, size_t size, char separator,
                     struct header_text *out, char why[HEADER_WHY])
{
    const char *at = body, *end = memchr(at, separator, size);

    *out = (struct header_text){0};
    if (!end)
        return 0;
    if (header_value_ok(at, (size_t)(end - at))) {
        *out = (struct header_text){at, (size_t)(end - at)};
        return 0;
    }
    snprintf(why, HEADER_WHY,
             "group of %zu bytes before the separator; 1 to %d bytes of "
             "printable UTF-8 are allowed",
             (size_t)(end - at), HEADER_VALUE_MAX);
    return -EBADMSG;
}

/* Refuse bytes above 0x7f, which could be a part of a character in a group. */
int header_separator(const char *text, void *into, struct problem *p)
{
    char *separator = into;

    if (text[0] == '\0' || text[1] != '\0' || (unsigned char)text[0] >= 0x80)
        return problem_set(p, EX_USAGE, EINVAL,
                           "--group-separator: \"%s\" is not one ASCII "
                           "character; give one, like ':'",
                           text);
    *separator = text[0];
    return 0;
}
