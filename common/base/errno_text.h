/* errno_text.h - what an errno says, in words
 *
 * WHAT   strerror(3) for several threads: always English, never NULL.
 * WHO    Any thread.
 * OWNS   The text; that of an unknown number until the thread's next call.
 * FAILS  Never.
 */
#ifndef COMMON_BASE_ERRNO_TEXT_H
#define COMMON_BASE_ERRNO_TEXT_H

/* `err` > 0; another number is "Unknown error NUMBER". */
const char *errno_text(int err);

/* Return the error text for a call that opens files or starts processes or
 * threads. If a limit was reached, the text has its name, its value and how to
 * raise it. */
#define ERRNO_LIMIT_TEXT 128
const char *errno_limit_text(int err, char buf[ERRNO_LIMIT_TEXT]);

#endif
