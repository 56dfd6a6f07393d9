/* error_text.h - describe a failure for people, beside "exit 1"
 *
 * WHAT   One line: the reason that the handler gave, else the last line of its
 *        stderr; and how it is shown beside the error. The reasons for which a
 *        message is dead, and their names.
 * WHO    Any thread.
 */
#ifndef COMMON_MESSAGE_ERROR_TEXT_H
#define COMMON_MESSAGE_ERROR_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#define ERROR_TEXT   160              /* bytes, the NUL included */
#define ERROR_JOINED (2 * ERROR_TEXT) /* error, ": ", text */

/* Print the error text of an attempt and return `buf`. With `said`, the text is
 * the error in the handler's own words. Otherwise the text is the last
 * non-blank line of `tail`, or "", as a terminal shows that line: without
 * surrounding blanks and colours; text overwritten after a carriage return
 * counts as an earlier line. The result is safe to print, and "..." marks a
 * cut. */
const char *error_text(char buf[ERROR_TEXT], const char *error, bool said,
                       const void *tail, size_t size);
/* Print "exit 1: no such order", or one of the two if the other is NULL, "" or
 * the same. Returns `buf`. */
const char *error_text_join(char *buf, size_t room, const char *error,
                            const char *text);
/* Return true if `like` is a part of the error or of its text, or an fnmatch(3)
 * pattern of the error, of the text, or of both joined. A part does not cut a
 * number in two: "exit 1" is no part of "exit 12"; "" is a part of none. NULL
 * for all: false. */
bool error_text_like(const char *like, const char *error, const char *text);

/* ---- why a message is a dead letter ---- */

/* The store has these numbers, so add a reason only before REASON_COUNT. */
enum dead_reason {
    REASON_NONE,
    REASON_EXHAUSTED,
    REASON_REJECTED,
    REASON_EXPIRED,
    REASON_CRASHED,
    REASON_BAD_HEADER,
    REASON_GROUP_CLOSED, /* refused by a closed group, which it never held */
    REASON_COUNT,
};

const char *dead_reason_text(enum dead_reason reason); /* "bad-header" */
/* Parse such a text; REASON_COUNT for another text, or for "none". */
enum dead_reason dead_reason_parse(const char *text);

#endif
