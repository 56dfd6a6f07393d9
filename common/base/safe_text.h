/* safe_text.h - make untrusted text safe to print
 *
 * WHAT   Decodes UTF-8; escapes bytes that would hide text or move the cursor,
 *        and bytes that are not UTF-8; builds a text in parts; quotes a word
 *        for a shell; checks the name of a queue.
 * WHO    Every program, on any thread.
 * FAILS  utf8_read: 0, the bytes are not UTF-8. queue_name: a problem with
 *        status 64.
 */
#ifndef COMMON_BASE_SAFE_TEXT_H
#define COMMON_BASE_SAFE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/problem.h"

/* Print untrusted bytes as UTF-8: what utf8_hidden names and invalid UTF-8
 * become \n \t \xNN \u{NNNN}. Newlines and tabs are escaped only with
 * `one_line`. */
void safe_text(FILE *out, const void *data, size_t size, bool one_line);
/* Print untrusted bytes to a buffer in the same way, as one line. A line that
 * does not fit ends with "...", and is never cut inside a character. Returns
 * the number of bytes. */
size_t safe_text_copy(char *buf, size_t room, const void *data, size_t size);

/* Append to a text in a buffer of `room` bytes; what does not fit is cut. */
void text_append(char *text, size_t room, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- UTF-8 ----
 *
 * One table says which characters may not reach a person or an operator's file
 * as they are. Headers with such a character are refused, and the log and
 * terminals escape it. So no group or x- value ever needs an escape.
 */

/* Decode the character that `size` (1 or more) bytes at `text` start with.
 * Returns its number of bytes; 0 if it is not well-formed (RFC 3629): cut
 * short, overlong, a surrogate, or past U+10FFFF. */
size_t utf8_read(const void *text, size_t size, uint32_t *point);

/* Return true if a code point draws nothing, or changes its surroundings:
 * controls, line ends, direction marks, zero width, tags, noncharacters. U+0020
 * is not hidden. */
bool utf8_hidden(uint32_t point);

/* ---- the name of a queue ---- */

#define QUEUE_NAME_MAX  256 /* "/", up to 254 bytes, NUL */
#define QUEUE_NAME_SAFE 100 /* of one in a sentence, so that the rest fits */

/* Make "/orders" of "/orders" or "orders". Refuses an empty name, "." and
 * "..", a second slash, control bytes, over 254 bytes. */
int queue_name(const char *text, char out[QUEUE_NAME_MAX], struct problem *p);

/* ---- a word of a command that a person can copy ---- */

/* Room for a text of `bytes` in quotes: a quote in it takes four bytes. */
#define SHELL_WORD_ROOM(bytes) (4 * (bytes) + 3)

/* Return `buf` with the text in quotes, or `text` itself if it is plain or does
 * not fit. */
const char *shell_word(const char *text, char *buf, size_t room);

/* Return a queue's name as a word, valid until the caller's block ends. */
#define SHELL_QUEUE(name)                                        \
    shell_word(name, (char[SHELL_WORD_ROOM(QUEUE_NAME_MAX)]){0}, \
               SHELL_WORD_ROOM(QUEUE_NAME_MAX))

/* ---- bytes as hexadecimal digits ---- */

/* Print bytes in lower case, such as the key of a group. `out` has room for
 * 2 * size + 1. Returns `out`. */
char *hex_print(const void *data, size_t size, char *out);
/* Parse such text; returns the number of bytes, at most `room`. -EINVAL: other
 * characters, half a byte, or too many. */
int hex_parse(const char *text, void *out, size_t room);

#endif
