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

#endif
