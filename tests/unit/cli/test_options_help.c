/* test_options_help.c - what --help looks like */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli/options.h"

#define TEXT_ROOM 16384
#define COUNT(a)  (sizeof(a) / sizeof *(a))

static const struct option_row rows[] = {
    {.name = "max-concurrency",
     .letter = 'c',
     .type = OPT_NUMBER,
     .value = "N",
     .preset = "processors",
     .help = "handlers at once, all kinds together"},
    {.name = "log-format",
     .type = OPT_CHOICE,
     .words = "text|json",
     .preset = "text",
     .help = "form of the log lines: for people, or for programs that read "
             "them, or not at all, whatever suits the caf\u00e9 round the "
             "corner"},
    {.name = "exit-when-idle",
     .letter = 'i',
     .type = OPT_DURATION,
     .optional = true,
     .value = "DUR",
     .preset = "0s",
     .help = "exit once nothing is left to do"},
    {.name = "a-flag-with-a-name-that-is-too-long",
     .type = OPT_STRING,
     .value = "NAME",
     .under = "Names and their children",
     .help = "has its sentence on a line of its own"},
    {.name = "stream", .type = OPT_FLAG, .help = "COMMAND is long-lived"},
};

static const struct option_table table = {
    .program = "prog",
    .usage = "[options] QUEUE -- COMMAND\n[options] --plugin FILE QUEUE",
    .about = "Take messages from a queue and run a handler for each of them, "
             "without losing one.",
    .notes = "Examples:\n  prog orders -- ./handle",
    .rows = rows,
    .count = COUNT(rows),
};

/* Return what `print` prints at this width; the caller frees it. */
static char *text_take(void (*print)(FILE *out, int width), int width)
{
    char *text = calloc(1, TEXT_ROOM);
    FILE *out = fmemopen(text, TEXT_ROOM, "w");
    print(out, width);
    cr_assert_lt(ftell(out), TEXT_ROOM);
    fclose(out);
    return text;
}

static void help_print(FILE *out, int width)
{
    options_help(&table, out, width);
}

Test(options_help, is_this_text_at_80_columns)
{
    static const char want[] =
        "Usage: prog [options] QUEUE -- COMMAND\n"
        "       prog [options] --plugin FILE QUEUE\n"
        "\n"
        "Take messages from a queue and run a handler for each of them, "
        "without losing\n"
        "one.\n"
        "\n"
        "Options:\n"
        "  -c, --max-concurrency N     handlers at once, all kinds together "
        "(default\n"
        "                              processors)\n"
        "      --log-format text|json  form of the log lines: for people, or "
        "for programs\n"
        "                              that read them, or not at all, "
        "whatever suits the\n"
        "                              caf\u00e9 round the corner (default "
        "text)\n"
        "  -i, --exit-when-idle[=DUR]  exit once nothing is left to do "
        "(default 0s)\n"
        "\n"
        "Names and their children:\n"
        "      --a-flag-with-a-name-that-is-too-long NAME\n"
        "                              has its sentence on a line of its "
        "own\n"
        "      --stream                COMMAND is long-lived\n"
        "\n"
        "Examples:\n"
        "  prog orders -- ./handle\n";
    char *text = text_take(help_print, 0);
    char *same = text_take(help_print, 80);
    cr_expect_str_eq(text, want);
    cr_expect_str_eq(text, same);
    free(same);
    free(text);
}

/* Count the columns of a line: the bytes that start a character. */
static int columns_of(const char *line, size_t size)
{
    int columns = 0;
    while (size-- > 0)
        columns += ((unsigned char)*line++ & 0xC0) != 0x80;
    return columns;
}

/* Check that no line is wider than `width`, and that none ends in a space. */
static void lines_fit(const char *line, int width)
{
    while (*line) {
        size_t size = strcspn(line, "\n");
        cr_assert_leq(columns_of(line, size), width, "width %d: %.*s", width,
                      (int)size, line);
        cr_assert(size == 0 || line[size - 1] != ' ', "width %d", width);
        line += size + (line[size] == '\n');
    }
}

/* Check that both texts are the same words in the same order; changes both. */
static void words_same(char *one, char *other)
{
    char *a, *b;
    char *x = strtok_r(one, " \n", &a), *y = strtok_r(other, " \n", &b);
    while (x && y) {
        cr_assert_str_eq(x, y);
        x = strtok_r(NULL, " \n", &a);
        y = strtok_r(NULL, " \n", &b);
    }
    cr_assert(!x && !y);
}

Test(options_help, fits_any_width_and_loses_no_word)
{
    for (int width = 48; width < 140; width++) {
        char *text = text_take(help_print, width);
        char *wide = text_take(help_print, 1000);
        lines_fit(text, width);
        words_same(text, wide);
        free(wide);
        free(text);
    }
}

/* Print the help with "cafe" for "caf\u00e9": a byte less, as many columns. */
static void plain_print(FILE *out, int width)
{
    struct option_row plain_rows[COUNT(rows)];
    struct option_table plain = table;
    memcpy(plain_rows, rows, sizeof rows);
    plain_rows[1].help = "form of the log lines: for people, or for programs "
                         "that read them, or not at all, whatever suits the "
                         "cafe round the corner";
    plain.rows = plain_rows;
    options_help(&plain, out, width);
}

Test(options_help, counts_characters_and_not_bytes)
{
    for (int width = 20; width < 180; width++) {
        char *text = text_take(help_print, width);
        char *plain = text_take(plain_print, width);
        char *accent = strstr(text, "\u00e9");
        *accent = 'e';
        memmove(accent + 1, accent + 2, strlen(accent + 2) + 1);
        cr_assert_str_eq(text, plain);
        free(plain);
        free(text);
    }
}

Test(options_help, breaks_a_line_only_where_the_next_word_does_not_fit)
{
    char *text = text_take(help_print, 1000);
    cr_expect_not_null(strstr(text, "all kinds together (default processors)"
                                    "\n"));
    free(text);
    text = text_take(help_print, 30 + 30);
    cr_expect_not_null(strstr(text, "N     handlers at once, all kinds\n"));
    free(text);
    text = text_take(help_print, 30 + 36);
    cr_expect_not_null(strstr(text, "N     handlers at once, all kinds "
                                    "together\n"));
    free(text);
}

Test(options_help, of_a_narrow_terminal_puts_sentences_below_their_flags)
{
    static const int widths[] = {1, 5, 20, 50};
    for (size_t i = 0; i < COUNT(widths); i++) {
        char *text = text_take(help_print, widths[i]);
        char *wide = text_take(help_print, 1000);
        cr_expect_not_null(
            strstr(text, "\n  -c, --max-concurrency N\n        handlers"));
        words_same(text, wide);
        free(wide);
        free(text);
    }
}
