/* header_separator.c - the group of a message that has no header (see
 * header.h)
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/message/header.h"

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

/* header_separator - one byte that cannot be part of a group by accident */
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
