/* error_text.c - see error_text.h */
#include "common/message/error_text.h"

#include <stdio.h>
#include <string.h>

#include "common/base/safe_text.h"

/* blank - what may surround a line; not by the locale, as bytes are any */
static bool blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0';
}

const char *error_text(char buf[ERROR_TEXT], const char *error, bool said,
                       const void *tail, size_t size)
{
    const char *at = tail, *end = at + size;
    const char *start;

    if (said) {
        safe_text_copy(buf, ERROR_TEXT, error, error ? strlen(error) : 0);
        return buf;
    }
    while (end > at && blank(end[-1]))
        end--;
    start = end;
    while (start > at && start[-1] != '\n')
        start--;
    while (start < end && blank(*start))
        start++;
    safe_text_copy(buf, ERROR_TEXT, start, (size_t)(end - start));
    return buf;
}

const char *error_text_join(char *buf, size_t room, const char *error,
                            const char *text)
{
    const char *first = error ? error : "", *second = text ? text : "";

    if (strcmp(first, second) == 0)
        second = "";
    snprintf(buf, room, "%s%s%s", first, *first && *second ? ": " : "", second);
    return buf;
}
