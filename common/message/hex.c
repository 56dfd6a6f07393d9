/* hex.c - see hex.h */
#include "common/message/hex.h"

#include <errno.h>
#include <string.h>

static const char digits[] = "0123456789abcdef";

char *hex_print(const void *data, size_t size, char *out)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < size; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * size] = '\0';
    return out;
}

int hex_parse(const char *text, void *out, size_t room)
{
    unsigned char *bytes = out;
    size_t size = strspn(text, digits);

    if (text[size] != '\0' || size % 2 != 0 || size / 2 > room)
        return -EINVAL;
    for (size_t i = 0; i < size; i += 2) {
        size_t high = (size_t)(strchr(digits, text[i]) - digits);
        size_t low = (size_t)(strchr(digits, text[i + 1]) - digits);

        bytes[i / 2] = (unsigned char)(high << 4 | low);
    }
    return (int)(size / 2);
}
