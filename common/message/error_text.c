/* error_text.c - see error_text.h */
#include "common/message/error_text.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "common/base/safe_text.h"

/* Unlike isspace(3), independent of the locale, because bytes may be
 * anything. */
static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0';
}

/* Return the end of the terminal escape sequence that starts at `at`: a colour,
 * a title and the like (ECMA-48, and xterm's ESC ] text BEL). */
static const char *sequence_end(const char *at, const char *end)
{
    char kind = ++at < end ? *at : '\0';

    if (kind == ']') {
        while (at < end && *at != '\a' && *at != '\033')
            at++;
        if (at < end && *at == '\033')
            at++;
        return at < end ? at + 1 : end;
    }
    if (kind == '[')
        at++;
    while (at < end && *at >= ' ' && *at <= (kind == '[' ? '?' : '/'))
        at++;
    return at < end && *at >= '0' && *at <= '~' ? at + 1 : at;
}

/* Copy the visible text of a line, as a terminal would show it, without
 * surrounding blanks, up to the room available; returns its size. */
static size_t line_copy(char *to, size_t room, const char *at, const char *end)
{
    size_t n = 0;

    while (at < end && n < room) {
        if (*at == '\033')
            at = sequence_end(at, end);
        else if (n == 0 && is_blank(*at))
            at++;
        else
            to[n++] = *at++;
    }
    while (n > 0 && is_blank(to[n - 1]))
        n--;
    return n;
}

const char *error_text(char buf[ERROR_TEXT], const char *error, bool said,
                       const void *tail, size_t size)
{
    const char *at = said ? error : tail;
    const char *end = at ? at + (said ? strlen(at) : size) : at, *start;
    char line[2 * ERROR_TEXT]; /* Larger than the result, so that a cut is
                                  noticed. */
    size_t n = 0;

    while (n == 0 && end > at) {
        start = end;
        while (start > at && (said || (start[-1] != '\n' && start[-1] != '\r')))
            start--;
        n = line_copy(line, sizeof line, start, end);
        end = start > at ? start - 1 : start;
    }
    safe_text_copy(buf, ERROR_TEXT, line, n);
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

/* Unlike isdigit(3), defined for negative chars. */
static bool is_decimal(char c)
{
    return c >= '0' && c <= '9';
}

bool error_text_like(const char *like, const char *error, const char *text)
{
    char both[ERROR_JOINED];
    const char *in[] = {error, text, both};
    size_t size = like ? strlen(like) : 0;

    if (!like || (!error && !text))
        return false;
    error_text_join(both, sizeof both, error, text);
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        const char *at = in[i];

        if (at && fnmatch(like, at, 0) == 0)
            return true;
        /* Find `like` where neither end of it splits a number. */
        for (; size && at && (at = strstr(at, like)); at++) {
            bool cut_before =
                at > in[i] && is_decimal(at[-1]) && is_decimal(at[0]);
            bool cut_behind = is_decimal(at[size - 1]) && is_decimal(at[size]);

            if (!cut_before && !cut_behind)
                return true;
        }
    }
    return false;
}

/* ---- why a message is a dead letter ---- */

static const char *const texts[REASON_COUNT] = {
    [REASON_NONE] = "none",
    [REASON_EXHAUSTED] = "exhausted",
    [REASON_REJECTED] = "rejected",
    [REASON_EXPIRED] = "expired",
    [REASON_CRASHED] = "crashed",
    [REASON_BAD_HEADER] = "bad-header",
    [REASON_GROUP_CLOSED] = "group-closed",
};

const char *dead_reason_text(enum dead_reason reason)
{
    if ((unsigned)reason >= REASON_COUNT)
        return "unknown";
    return texts[reason];
}

enum dead_reason dead_reason_parse(const char *text)
{
    for (int i = REASON_NONE + 1; i < REASON_COUNT; i++)
        if (strcmp(text, texts[i]) == 0)
            return (enum dead_reason)i;
    return REASON_COUNT;
}
