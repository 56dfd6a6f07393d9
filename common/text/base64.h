/* base64.h - bytes as text (RFC 4648, section 4, with padding)
 *
 * WHAT   Both directions, whole buffers.
 * WHO    Any thread.
 * OWNS   The caller frees what it is given; a NUL follows it.
 * FAILS  NULL: no memory, or for decoding text that is not base64 (errno
 *        ENOMEM or EINVAL).
 */
#ifndef COMMON_TEXT_BASE64_H
#define COMMON_TEXT_BASE64_H

#include <stddef.h>

char *base64_encode(const void *data, size_t size);
void *base64_decode(const char *text, size_t size, size_t *out_size);

#endif
