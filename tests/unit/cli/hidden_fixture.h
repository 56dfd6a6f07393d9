/* hidden_fixture.h - the characters that utf8_hidden must find, listed a second
 * time from Unicode 15.0, by what they are */
#ifndef TESTS_HIDDEN_FIXTURE_H
#define TESTS_HIDDEN_FIXTURE_H

#include <stddef.h>
#include <stdint.h>

static const struct hidden {
    uint32_t first, last;
    const char *what;
} hidden_ranges[] = {
    {0x00, 0x1F, "C0 controls"},
    {0x7F, 0x9F, "DEL and C1 controls"},
    {0xAD, 0xAD, "soft hyphen"},
    {0x34F, 0x34F, "combining grapheme joiner"},
    {0x600, 0x605, "Arabic number signs"},
    {0x61C, 0x61C, "Arabic letter mark"},
    {0x6DD, 0x6DD, "Arabic end of ayah"},
    {0x70F, 0x70F, "Syriac abbreviation mark"},
    {0x890, 0x891, "Arabic currency marks above"},
    {0x8E2, 0x8E2, "Arabic disputed end of ayah"},
    {0x115F, 0x1160, "Hangul fillers"},
    {0x17B4, 0x17B5, "Khmer inherent vowels"},
    {0x180B, 0x180F, "Mongolian selectors and vowel separator"},
    {0x200B, 0x200F, "zero width, direction marks"},
    {0x2028, 0x202E, "line and paragraph separator, embeddings, overrides"},
    {0x2060, 0x206F, "word joiner, invisible operators, isolates"},
    {0x3164, 0x3164, "Hangul filler"},
    {0xFDD0, 0xFDEF, "noncharacters"},
    {0xFE00, 0xFE0F, "variation selectors"},
    {0xFEFF, 0xFEFF, "byte order mark"},
    {0xFFA0, 0xFFA0, "half width Hangul filler"},
    {0xFFF0, 0xFFFB, "unassigned ignorables, interlinear annotation"},
    {0xFFFE, 0xFFFF, "noncharacters"},
    {0x110BD, 0x110BD, "Kaithi number sign"},
    {0x110CD, 0x110CD, "Kaithi number sign above"},
    {0x13430, 0x1343F, "hieroglyph format controls"},
    {0x1BCA0, 0x1BCA3, "shorthand format controls"},
    {0x1D173, 0x1D17A, "musical format controls"},
    {0x1FFFE, 0x1FFFF, "noncharacters"},
    {0xDFFFE, 0xE0FFF, "noncharacters, tags, variation selectors"},
    {0x10FFFE, 0x10FFFF, "noncharacters"},
};
#define HIDDEN_RANGES (sizeof hidden_ranges / sizeof hidden_ranges[0])

/* Encode a character as UTF-8, without a NUL; return the number of bytes. */
static inline size_t hidden_put(char out[4], uint32_t point)
{
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    size_t n = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;

    for (size_t i = n; i-- > 1; point >>= 6)
        out[i] = (char)(0x80 | (point & 0x3F));
    out[0] = (char)(n == 1 ? point : lead[n] | point);
    return n;
}

/* Run `seen` for both ends of each range, and `spared` for what lies beside
 * it. */
static inline void hidden_each(void (*seen)(uint32_t point, const char *what),
                               void (*spared)(uint32_t point, const char *what))
{
    for (size_t i = 0; i < HIDDEN_RANGES; i++) {
        const struct hidden *r = &hidden_ranges[i];

        seen(r->first, r->what);
        seen(r->last, r->what);
        if (r->first > 0)
            spared(r->first - 1, r->what);
        if (r->last < 0x10FFFF)
            spared(r->last + 1, r->what);
    }
}

#endif
