/* test_shell_word.c - shell_word: a shell reads the quoted word as the text */
#include <criterion/criterion.h>

#include "common/base/safe_text.h"

Test(shell_word, quotes_stand_only_where_a_shell_needs_them)
{
    static const char *const words[][2] = {
        {"/orders", "/orders"},
        {"/a-b.c:d@e%f+g=h_i", "/a-b.c:d@e%f+g=h_i"},
        {"", "''"},
        {"/a b", "'/a b'"},
        {"/a;reboot", "'/a;reboot'"},
        {"/$(id)", "'/$(id)'"},
        {"/a*", "'/a*'"},
        {"/it's", "'/it'\\''s'"},
        {"/a\\b", "'/a\\b'"},
    };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        cr_assert_str_eq(SHELL_QUEUE(words[i][0]), words[i][1]);
}

Test(shell_word, the_longest_name_of_quotes_fits)
{
    char name[QUEUE_NAME_MAX] = "/", small[12];
    const char *word;

    memset(name + 1, '\'', QUEUE_NAME_MAX - 2);
    word = SHELL_QUEUE(name);
    cr_assert_eq(strlen(word), 3 + 4 * (QUEUE_NAME_MAX - 2));
    cr_assert_str_eq(shell_word("a b c d e", small, sizeof small),
                     "'a b c d e'");
    cr_assert_str_eq(shell_word("a b c d e ", small, sizeof small),
                     "a b c d e ");
}
