/* base64.c - see base64.h */
#include "common/text/base64.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* base64_encode - four digits for each three bytes, "=" for those that lack */
char *base64_encode(const void *data, size_t size)
{
    const unsigned char *s = data;
    char *text = malloc((size + 2) / 3 * 4 + 1);
    char *out = text;

    if (!text)
        return NULL;
    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        uint32_t three = (uint32_t)s[i] << 16;

        three |= left > 1 ? (uint32_t)s[i + 1] << 8 : 0;
        three |= left > 2 ? s[i + 2] : 0;
        *out++ = digits[three >> 18];
        *out++ = digits[three >> 12 & 63];
        *out++ = left > 1 ? digits[three >> 6 & 63] : '=';
        *out++ = left > 2 ? digits[three & 63] : '=';
    }
    *out = '\0';
    return text;
}

/* four_read - the value of four digits, the last `pad` of them "="; -1 if one
 * is no digit, or if bits are set that belong to no byte */
static int64_t four_read(const char *text, size_t pad)
{
    int64_t value = 0;

    for (size_t i = 0; i < 4; i++) {
        const char *at =
            i < 4 - pad && text[i] ? strchr(digits, text[i]) : NULL;

        if (!at && i < 4 - pad)
            return -1;
        value = value << 6 | (at ? at - digits : 0);
    }
    return value & ((1 << 8 * pad) - 1) ? -1 : value;
}

/* padding - how many "=" end the text */
static size_t padding(const char *text, size_t size)
{
    if (size < 4 || text[size - 1] != '=')
        return 0;
    return text[size - 2] == '=' ? 2 : 1;
}

/* base64_decode - the bytes; strict, so that one text has one reading */
void *base64_decode(const char *text, size_t size, size_t *out_size)
{
    size_t pad = padding(text, size);
    unsigned char *data = malloc(size / 4 * 3 + 1);
    size_t at = 0;

    if (!data)
        return NULL;
    for (size_t i = 0; i + 4 <= size; i += 4) {
        int64_t value = four_read(text + i, i + 4 == size ? pad : 0);

        if (value < 0)
            break;
        data[at++] = (unsigned char)(value >> 16);
        data[at++] = (unsigned char)(value >> 8);
        data[at++] = (unsigned char)value;
    }
    if (at != size / 4 * 3 || size % 4 != 0) {
        free(data);
        errno = EINVAL;
        return NULL;
    }
    *out_size = at - pad;
    data[*out_size] = '\0';
    return data;
}
