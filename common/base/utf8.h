/* utf8.h - characters that somebody else wrote
 *
 * WHAT   Decodes UTF-8, and knows which characters may not reach a person or
 *        an operator's file as they are. The one table for headers (refused),
 *        the log and terminals (escaped): no group or x- value can hold what
 *        those would have to escape.
 * WHO    Any thread. Pure functions.
 * OWNS   Nothing.
 * FAILS  utf8_read: 0, the bytes are no UTF-8.
 */
#ifndef COMMON_BASE_UTF8_H
#define COMMON_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character that `size` (1 and up) bytes at `text` start with, its
 * code point to *point. 0: it is not well-formed as in RFC 3629: cut short,
 * overlong, a surrogate, or past U+10FFFF. */
size_t utf8_read(const void *text, size_t size, uint32_t *point);

/* Whether a code point draws nothing, or changes its surroundings: controls,
 * line ends, direction marks, zero width, tags, noncharacters. U+0020 is a
 * space, and not hidden. */
bool utf8_hidden(uint32_t point);

#endif
