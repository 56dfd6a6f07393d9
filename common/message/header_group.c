/* header_group.c - the short way to read a header that names its group only
 * (see header.h)
 */
#include "common/message/header.h"

#include <endian.h>
#include <string.h>

/* text_end - where the text from `at` on ends, which is printable ASCII; not
 * after `most`
 * Eight bytes at a time: the top bit of a byte that is none is set in one of
 * three, what is less than 0x20 less that, 0x7f and one more, 0x80 and more. A
 * borrow or a carry comes out of such a byte only, so the first is right. */
static size_t text_end(const unsigned char *s, size_t at, size_t most)
{
    const uint64_t each = UINT64_C(0x0101010101010101);
    uint64_t word, odd;

    for (; at + sizeof word <= most; at += sizeof word) {
        memcpy(&word, s + at, sizeof word);
        word = le64toh(word);
        odd = ((word - 0x20 * each) | (word + each) | word) & 0x80 * each;
        if (odd)
            return at + (size_t)__builtin_ctzll(odd) / 8;
    }
    while (at < most && s[at] - 0x20u < 0x5f)
        at++;
    return at;
}

/* header_group_alone - as it mostly is where messages have groups */
bool header_group_alone(const void *data, size_t size, struct header *out)
{
    static const char begin[] = HEADER_MAGIC "group: ";
    const size_t from = sizeof begin - 1;
    const unsigned char *s = data;
    size_t at, most = from + HEADER_VALUE_MAX + 1;

    if (size < from + 3 || memcmp(data, begin, from) != 0)
        return false;
    if (most > size - 1)
        most = size - 1;
    at = text_end(s, from, most);
    if (at == most || s[at] != '\n' || s[at + 1] != '\n')
        return false;
    if (at == from || s[from] == ' ' || s[at - 1] == ' ')
        return false;
    out->group = (struct header_text){(const char *)data + from, at - from};
    out->fields = HEADER_GROUP;
    out->x_count = 0;
    out->bytes = at + 2;
    return true;
}
