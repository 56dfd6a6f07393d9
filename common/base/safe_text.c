/* safe_text.c - untrusted bytes made printable (see safe_text.h) */
#include "common/base/safe_text.h"

#include <string.h>

#include "common/base/utf8.h"

#define ESCAPE_MAX 16

/* next_printable - the printable form of the first character of `s` to `out`;
 * *used = the bytes of `s` it stands for; the number of bytes written */
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

/* plain_run - how many bytes from the start are printable ASCII: most are */
static size_t plain_run(const unsigned char *s, size_t size)
{
    size_t n = 0;

    while (n < size && s[n] >= 0x20 && s[n] < 0x7F)
        n++;
    return n;
}

void safe_text(FILE *out, const void *data, size_t size, bool one_line)
{
    const unsigned char *s = data;
    char text[ESCAPE_MAX];

    for (size_t used; size > 0; s += used, size -= used) {
        size_t n;

        used = plain_run(s, size);
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
    size_t cut = 0; /* where "..." still fits */

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
