/* shell_word.c - see shell_word.h */
#include "common/base/shell_word.h"

#include <string.h>

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
