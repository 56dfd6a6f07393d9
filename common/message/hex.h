/* hex.h - bytes as lower-case hexadecimal digits
 *
 * WHAT   For bytes of any kind in a line of words: the keys of groups.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  -EINVAL.
 */
#ifndef COMMON_MESSAGE_HEX_H
#define COMMON_MESSAGE_HEX_H

#include <stddef.h>

/* `out` has room for 2 * size + 1. Returns `out`. */
char *hex_print(const void *data, size_t size, char *out);
/* How many bytes, at most `room`; -EINVAL: other characters, half a byte, or
 * too many. */
int hex_parse(const char *text, void *out, size_t room);

#endif
