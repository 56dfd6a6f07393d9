/* shell_word.h - a text as one word of a command that a person can copy
 *
 * WHAT   Quotes for a POSIX shell, and only where the text needs some.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef COMMON_BASE_SHELL_WORD_H
#define COMMON_BASE_SHELL_WORD_H

#include <stddef.h>

#include "common/base/queue_name.h"

/* Room for a text of `bytes` in quotes: a quote in it takes four bytes. */
#define SHELL_WORD_ROOM(bytes) (4 * (bytes) + 3)

/* Return `buf` with the text in quotes, or `text` itself if it is plain or does
 * not fit. */
const char *shell_word(const char *text, char *buf, size_t room);

/* Return a queue's name as a word, valid until the caller's block ends. */
#define SHELL_QUEUE(name)                                        \
    shell_word(name, (char[SHELL_WORD_ROOM(QUEUE_NAME_MAX)]){0}, \
               SHELL_WORD_ROOM(QUEUE_NAME_MAX))

#endif
