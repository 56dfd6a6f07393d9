/* utf8.c - characters that somebody else wrote (see utf8.h) */
#include "common/base/utf8.h"

#define POINT_MAX UINT32_C(0x10FFFF)

/* length_of - bytes that a character needs whose first byte is this; 0: no
 * character starts with it (RFC 3629, section 4) */
static size_t length_of(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first < 0xC2 || first > 0xF4)
        return 0;
    return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/* surrogate - half of a pair of UTF-16, which UTF-8 has no use for */
static bool surrogate(uint32_t point)
{
    return point >= 0xD800 && point <= 0xDFFF;
}

/* utf8_read - one character, strictly */
size_t utf8_read(const void *text, size_t size, uint32_t *point)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *s = text;
    size_t n = length_of(s[0]);
    uint32_t value;

    if (n <= 1) {
        *point = s[0];
        return n;
    }
    if (n > size)
        return 0;
    value = s[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
        value = value << 6 | (s[i] & 0x3Fu);
    }
    if (value < least[n] || value > POINT_MAX || surrogate(value))
        return 0;
    *point = value;
    return n;
}

/* utf8_hidden - by the Unicode Character Database, version 15.0. The ranges are
 * the union of
 *   - general categories Cc, Cf, Zl, Zp and Cs (DerivedGeneralCategory.txt):
 *     controls, format characters, line and paragraph separator, surrogates.
 *     Cf has all that turns the direction of text (Bidi_Control, UAX #9):
 *     U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069;
 *   - Default_Ignorable_Code_Point (DerivedCoreProperties.txt): drawn as
 *   nothing where it is not known, fillers, variation selectors and tags with
 *   their unassigned neighbours among it;
 *   - Noncharacter_Code_Point (PropList.txt).
 * In order. An emoji that is joined with U+200D or styled with U+FE0F is not
 * spared: two texts that look the same would be two groups. */
bool utf8_hidden(uint32_t point)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        {0x00, 0x1F},       {0x7F, 0x9F},       {0xAD, 0xAD},
        {0x34F, 0x34F},     {0x600, 0x605},     {0x61C, 0x61C},
        {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x890, 0x891},
        {0x8E2, 0x8E2},     {0x115F, 0x1160},   {0x17B4, 0x17B5},
        {0x180B, 0x180F},   {0x200B, 0x200F},   {0x2028, 0x202E},
        {0x2060, 0x206F},   {0x3164, 0x3164},   {0xD800, 0xDFFF},
        {0xFDD0, 0xFDEF},   {0xFE00, 0xFE0F},   {0xFEFF, 0xFEFF},
        {0xFFA0, 0xFFA0},   {0xFFF0, 0xFFFB},   {0x110BD, 0x110BD},
        {0x110CD, 0x110CD}, {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3},
        {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF},
    };

    if (point < 0x7F) /* most are */
        return point < 0x20;
    if ((point & 0xFFFE) == 0xFFFE || point > POINT_MAX)
        return true; /* the last two of each plane are noncharacters */
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (point <= ranges[i].last)
            return point >= ranges[i].first;
    return false;
}
