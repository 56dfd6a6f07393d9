/* error_text.h - what a person would say of a failure, beside "exit 1"
 *
 * WHAT   One line: the reason that the handler gave, else the last line of its
 *        stderr; and how it is shown beside the error.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef COMMON_MESSAGE_ERROR_TEXT_H
#define COMMON_MESSAGE_ERROR_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#define ERROR_TEXT   160              /* bytes, the NUL included */
#define ERROR_JOINED (2 * ERROR_TEXT) /* error, ": ", text */

/* `said`: the error is the handler's own words, and so the text. Else it is the
 * last line of `tail` that is not blank; "" if there is none. It is as a
 * terminal shows it: without the blanks around it and without colours, and what
 * a carriage return overwrites counts as a line before. Safe to print; what
 * does not fit ends in "...". Returns `buf`. */
const char *error_text(char buf[ERROR_TEXT], const char *error, bool said,
                       const void *tail, size_t size);
/* "exit 1: no such order"; one of both where the other is NULL, "" or the
 * same. Returns `buf`. */
const char *error_text_join(char *buf, size_t room, const char *error,
                            const char *text);
/* Whether a failure is one that is asked for: `like` is a part of the error or
 * of its text, or an fnmatch(3) pattern of the error, of the text, or of both
 * as they are joined. A part does not cut a number in two: "exit 1" is no part
 * of "exit 12". "" is a part of none. NULL, of all: false. */
bool error_text_like(const char *like, const char *error, const char *text);

#endif
