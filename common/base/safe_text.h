/* safe_text.h - untrusted bytes made printable
 *
 * WHAT   What would hide something, move the cursor or is no UTF-8 becomes an
 *        escape that can be read.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef COMMON_BASE_SAFE_TEXT_H
#define COMMON_BASE_SAFE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Untrusted bytes as printable UTF-8: what utf8.h calls hidden and invalid
 * UTF-8 become \n \t \xNN \u{NNNN}. With `one_line`, newlines are escaped too;
 * otherwise \n and \t stay. Writes to `out`. */
void safe_text(FILE *out, const void *data, size_t size, bool one_line);
/* The same on one line into a buffer, cut at `room` - 1 bytes with "..." at the
 * end, never inside a character; returns the number of bytes. */
size_t safe_text_copy(char *buf, size_t room, const void *data, size_t size);

#endif
