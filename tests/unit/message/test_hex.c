/* test_hex.c - bytes as hexadecimal digits, and back */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "common/base/safe_text.h"

Test(hex, every_byte_comes_back)
{
    unsigned char all[256], again[256];
    char text[2 * sizeof all + 1];

    for (int i = 0; i < 256; i++)
        all[i] = (unsigned char)i;
    cr_assert_eq(strlen(hex_print(all, sizeof all, text)), 2 * sizeof all);
    cr_assert_eq(hex_parse(text, again, sizeof again), 256);
    cr_assert_arr_eq(all, again, sizeof all);
    cr_assert_eq(hex_parse(text, again, sizeof again - 1), -EINVAL);
}

Test(hex, other_texts_are_none)
{
    static const char *const wrong[] = {"0", "0g", "AB", "0x00", " 00", "00 "};
    char out[8] = "";

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_assert_eq(hex_parse(wrong[i], out, sizeof out), -EINVAL, "%s",
                     wrong[i]);
    cr_assert_eq(hex_parse("", out, sizeof out), 0);
    cr_assert_str_eq(hex_print("", 0, out), "");
    cr_assert_str_eq(hex_print("\xff", 1, out), "ff");
}
