/* error_text.c - see error_text.h */
#include "common/message/error_text.h"

#include <fnmatch.h>
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

/* digit - not by the locale, as bytes are any */
static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* part_of - whether `part` is somewhere in `text`, and cuts no number in two */
static bool part_of(const char *part, const char *text)
{
    size_t size = strlen(part);

    if (size == 0)
        return false;
    for (const char *at = text; (at = strstr(at, part)); at++) {
        bool cut_before = at > text && digit(at[-1]) && digit(at[0]);
        bool cut_behind = digit(at[size - 1]) && digit(at[size]);

        if (!cut_before && !cut_behind)
            return true;
    }
    return false;
}

bool error_text_like(const char *like, const char *error, const char *text)
{
    char both[ERROR_JOINED];
    const char *in[] = {error, text, both};

    if (!like || (!error && !text))
        return false;
    error_text_join(both, sizeof both, error, text);
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        if (in[i] && (part_of(like, in[i]) || fnmatch(like, in[i], 0) == 0))
            return true;
    return false;
}
