/* safe_text.c - untrusted bytes made printable (see safe_text.h) */
#include "common/base/safe_text.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sysexits.h>

#define ESCAPE_MAX 16

/* Print the first character of `s`; *used is the number of its bytes. Returns
 * the number of bytes printed. */
static size_t next_printable(char out[ESCAPE_MAX], const unsigned char *s,
                             size_t size, bool one_line, size_t *used)
{
    uint32_t rune;

    *used = utf8_read(s, size, &rune);
    if (*used == 0) {
        *used = 1;
        return (size_t)snprintf(out, ESCAPE_MAX, "\\x%02x", s[0]);
    }
    if (rune == '\n' || rune == '\t') {
        if (one_line)
            return (size_t)snprintf(out, ESCAPE_MAX, "\\%c",
                                    rune == '\n' ? 'n' : 't');
    } else if (rune < 0x20 || rune == 0x7F) {
        return (size_t)snprintf(out, ESCAPE_MAX, "\\x%02x", (unsigned)rune);
    } else if (utf8_hidden(rune)) {
        return (size_t)snprintf(out, ESCAPE_MAX, "\\u{%04X}", (unsigned)rune);
    }
    memcpy(out, s, *used);
    return *used;
}

void safe_text(FILE *out, const void *data, size_t size, bool one_line)
{
    const unsigned char *s = data;
    char text[ESCAPE_MAX];

    for (size_t used; size > 0; s += used, size -= used) {
        size_t n;

        used = 0; /* printable ASCII, which most text is */
        while (used < size && s[used] >= 0x20 && s[used] < 0x7F)
            used++;
        if (used > 0) {
            fwrite(s, 1, used, out);
            continue;
        }
        n = next_printable(text, s, size, one_line, &used);
        fwrite(text, 1, n, out);
    }
}

size_t safe_text_copy(char *buf, size_t room, const void *data, size_t size)
{
    const unsigned char *s = data;
    char text[ESCAPE_MAX];
    size_t at = 0;
    size_t cut = 0; /* the last place after which "..." fits */

    if (room == 0)
        return 0;
    for (size_t used; size > 0; s += used, size -= used) {
        size_t n = next_printable(text, s, size, true, &used);

        if (at + n >= room) {
            at = cut + (size_t)snprintf(buf + cut, room - cut, "...");
            return at < room ? at : room - 1;
        }
        memcpy(buf + at, text, n);
        at += n;
        if (at + 3 < room)
            cut = at;
    }
    buf[at] = '\0';
    return at;
}

void text_append(char *text, size_t room, const char *fmt, ...)
{
    size_t used = strlen(text);

    va_list args;

    va_start(args, fmt);
    vsnprintf(text + used, room - used, fmt, args);
    va_end(args);
}

/* ---- UTF-8 ---- */

#define POINT_MAX UINT32_C(0x10FFFF)

size_t utf8_read(const void *text, size_t size, uint32_t *point)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *s = text;
    size_t n = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4; /* RFC 3629, section 4 */
    uint32_t value;

    if (s[0] < 0x80) {
        *point = s[0];
        return 1;
    }
    if (s[0] < 0xC2 || s[0] > 0xF4 || n > size)
        return 0;
    value = s[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
        value = value << 6 | (s[i] & 0x3Fu);
    }
    /* UTF-8 must not encode the halves of a surrogate pair of UTF-16. */
    if (value < least[n] || value > POINT_MAX ||
        (value >= 0xD800 && value <= 0xDFFF))
        return 0;
    *point = value;
    return n;
}

/* The table follows the Unicode Character Database, version 15.0. The ranges
 * are the union of
 *   - general categories Cc, Cf, Zl, Zp and Cs (DerivedGeneralCategory.txt):
 *     controls, format characters, line and paragraph separator, surrogates.
 *     Cf includes the characters that change the direction of text
 *     (Bidi_Control, UAX #9):
 *     U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069;
 *   - Default_Ignorable_Code_Point (DerivedCoreProperties.txt): characters that
 *     a program draws as nothing if it does not support them, among them
 *     fillers, variation selectors, and tags with their unassigned neighbours;
 *   - Noncharacter_Code_Point (PropList.txt),
 * in order. So an emoji joined with U+200D or styled with U+FE0F counts as
 * hidden, too: otherwise two texts that look the same could name two groups. */
bool utf8_hidden(uint32_t point)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        {0x00, 0x1F},       {0x7F, 0x9F},       {0xAD, 0xAD},
        {0x34F, 0x34F},     {0x600, 0x605},     {0x61C, 0x61C},
        {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x890, 0x891},
        {0x8E2, 0x8E2},     {0x115F, 0x1160},   {0x17B4, 0x17B5},
        {0x180B, 0x180F},   {0x200B, 0x200F},   {0x2028, 0x202E},
        {0x2060, 0x206F},   {0x3164, 0x3164},   {0xD800, 0xDFFF},
        {0xFDD0, 0xFDEF},   {0xFE00, 0xFE0F},   {0xFEFF, 0xFEFF},
        {0xFFA0, 0xFFA0},   {0xFFF0, 0xFFFB},   {0x110BD, 0x110BD},
        {0x110CD, 0x110CD}, {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3},
        {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF},
    };

    if (point < 0x7F) /* most are */
        return point < 0x20;
    if ((point & 0xFFFE) == 0xFFFE || point > POINT_MAX)
        return true; /* the last two of each plane are noncharacters */
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (point <= ranges[i].last)
            return point >= ranges[i].first;
    return false;
}

/* ---- a word of a command that a person can copy ---- */

/* scripts/mqctl/serve/web/act.js has the same list. */
static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                            "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                            "_./:@%+=-";

const char *shell_word(const char *text, char *buf, size_t room)
{
    size_t n = 0;

    if ((*text && text[strspn(text, plain)] == '\0') || room < sizeof "''")
        return text;
    buf[n++] = '\'';
    for (const char *at = text; *at; at++) {
        const char *part = *at == '\'' ? "'\\''" : at;
        size_t size = *at == '\'' ? 4 : 1;

        if (n + size + sizeof "'" > room)
            return text;
        memcpy(buf + n, part, size);
        n += size;
    }
    memcpy(buf + n, "'", sizeof "'");
    return buf;
}

/* ---- the name of a queue ---- */

int queue_name(const char *text, char out[QUEUE_NAME_MAX], struct problem *p)
{
    const char *name = text[0] == '/' ? text + 1 : text;
    const char *flaw = NULL;
    char safe[QUEUE_NAME_SAFE];

    for (const char *c = name; *c && !flaw; c++)
        if (*c == '/')
            flaw = "has a slash inside: a queue is called /NAME";
        else if ((unsigned char)*c < 0x20 || *c == 0x7f)
            flaw = "has a control character, which is not allowed";
    if (name[0] == '\0')
        flaw = "is empty: a queue is called /NAME";
    else if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        flaw = "is not allowed: it names a directory";
    else if (strlen(name) > QUEUE_NAME_MAX - 2)
        flaw = "is too long: 254 bytes after the slash are allowed";
    if (flaw) {
        safe_text_copy(safe, sizeof safe, text, strlen(text));
        return problem_set(p, EX_USAGE, EINVAL, "queue name \"%s\" %s", safe,
                           flaw);
    }
    snprintf(out, QUEUE_NAME_MAX, "/%s", name);
    return 0;
}

/* ---- bytes as hexadecimal digits ---- */

static const char digits[] = "0123456789abcdef";

char *hex_print(const void *data, size_t size, char *out)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < size; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * size] = '\0';
    return out;
}

int hex_parse(const char *text, void *out, size_t room)
{
    unsigned char *bytes = out;
    size_t size = strspn(text, digits);

    if (text[size] != '\0' || size % 2 != 0 || size / 2 > room)
        return -EINVAL;
    for (size_t i = 0; i < size; i += 2) {
        size_t high = (size_t)(strchr(digits, text[i]) - digits);
        size_t low = (size_t)(strchr(digits, text[i + 1]) - digits);

        bytes[i / 2] = (unsigned char)(high << 4 | low);
    }
    return (int)(size / 2);
}
