/* test_utf8.c - utf8_read: what is a character, and which are hidden */
#include <criterion/criterion.h>

#include "common/base/safe_text.h"
#include "tests/unit/cli/hidden_fixture.h"

Test(utf8, every_scalar_value_is_read_as_itself)
{
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        uint32_t got = UINT32_MAX;
        char text[5] = "";
        size_t n = hidden_put(text, c);

        if (c >= 0xD800 && c <= 0xDFFF) {
            cr_assert_eq(utf8_read(text, n, &got), 0, "U+%04X", c);
            continue;
        }
        cr_assert_eq(utf8_read(text, 4, &got), n, "U+%04X", c);
        cr_assert_eq(got, c);
        for (size_t less = 1; less < n; less++)
            cr_assert_eq(utf8_read(text, less, &got), 0, "U+%04X cut", c);
    }
}

/* Each character is read as itself (see above). So if as many byte strings are
 * read as there are characters, no others are read. */
Test(utf8, no_other_bytes_are_a_character)
{
    static const unsigned char ends[] = {0x00, 0x7F, 0x80, 0x81,
                                         0xBE, 0xBF, 0xC0, 0xFF};
    size_t of[5] = {0};
    uint32_t point;

    for (unsigned i = 0; i < 1 << 8; i++)
        of[1] += utf8_read(&(unsigned char){(unsigned char)i}, 1, &point) == 1;
    for (unsigned i = 0; i < 1 << 16; i++) {
        unsigned char s[] = {(unsigned char)(i >> 8), (unsigned char)i};

        of[2] += utf8_read(s, 2, &point) == 2;
    }
    for (unsigned i = 0; i < 1 << 24; i++) {
        unsigned char s[] = {(unsigned char)(i >> 16), (unsigned char)(i >> 8),
                             (unsigned char)i};

        of[3] += utf8_read(s, 3, &point) == 3;
    }
    for (unsigned i = 0; i < 1 << 16; i++)
        for (size_t j = 0; j < 64; j++) {
            unsigned char s[] = {(unsigned char)(i >> 8), (unsigned char)i,
                                 ends[j / 8], ends[j % 8]};

            of[4] += utf8_read(s, 4, &point) == 4;
        }
    cr_assert_eq(of[1], 0x80);
    cr_assert_eq(of[2], 0x800 - 0x80);
    cr_assert_eq(of[3], 0x10000 - 0x800 - 2048);
    cr_assert_eq(of[4], (0x110000 - 0x10000) / 4096 * 16);
}

static void is_hidden(uint32_t point, const char *what)
{
    cr_assert(utf8_hidden(point), "U+%04X, %s", point, what);
}

static void is_not_hidden(uint32_t point, const char *what)
{
    cr_assert_not(utf8_hidden(point), "U+%04X, beside %s", point, what);
}

Test(utf8, each_range_ends_where_it_is_said)
{
    hidden_each(is_hidden, is_not_hidden);
}

Test(utf8, nothing_else_is_hidden)
{
    size_t all = 2048, hidden = 0; /* first the surrogates */

    for (size_t i = 0; i < HIDDEN_RANGES; i++)
        all += hidden_ranges[i].last - hidden_ranges[i].first + 1;
    for (uint32_t plane = 2; plane < 16; plane++) /* the last two of each */
        all += plane == 13 ? 0 : 2;               /* listed with the tags */
    for (uint32_t c = 0; c <= 0x10FFFF; c++)
        hidden += utf8_hidden(c);
    cr_assert_eq(hidden, all, "%zu, not %zu", hidden, all);
}

Test(utf8, what_is_no_code_point_is_hidden)
{
    cr_assert(utf8_hidden(0xD800) && utf8_hidden(0xDFFF));
    cr_assert(utf8_hidden(0x110000) && utf8_hidden(UINT32_MAX));
}
