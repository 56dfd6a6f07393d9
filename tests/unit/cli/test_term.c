/* test_term.c - terminals, tables, progress bars, and what is safe to print */
#include <criterion/criterion.h>

#include <fcntl.h>
#include <locale.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/term.h"
#include "common/cli/term_table.h"
#include "tests/unit/cli/hidden_fixture.h"

/* Return what safe_text makes of `data`, until the next call. */
static const char *safe(const void *data, size_t size, bool one_line)
{
    static char *text;
    size_t bytes;
    free(text);
    FILE *out = open_memstream(&text, &bytes);
    safe_text(out, data, size, one_line);
    fclose(out);
    return text;
}

Test(term, control_bytes_are_escaped)
{
    cr_assert_str_eq(safe("a\033[2Jb\r\b\0c\x7f", 11, true),
                     "a\\x1b[2Jb\\x0d\\x08\\x00c\\x7f");
}

Test(term, newline_and_tab_stay_only_in_many_lines)
{
    cr_assert_str_eq(safe("a\n\tb", 4, true), "a\\n\\tb");
    cr_assert_str_eq(safe("a\n\tb", 4, false), "a\n\tb");
}

Test(term, every_kind_of_broken_utf8_is_escaped_byte_by_byte)
{
    cr_assert_str_eq(safe("\x80", 1, true), "\\x80");
    cr_assert_str_eq(safe("\xc0\xaf", 2, true), "\\xc0\\xaf"); /* overlong */
    cr_assert_str_eq(safe("\xe0\x80\xaf", 3, true), "\\xe0\\x80\\xaf");
    cr_assert_str_eq(safe("\xed\xa0\x80", 3, true), "\\xed\\xa0\\x80");
    cr_assert_str_eq(safe("\xf4\x90\x80\x80", 4, true), "\\xf4\\x90\\x80\\x80");
    cr_assert_str_eq(safe("\xe2\x82", 2, true), "\\xe2\\x82"); /* cut short */
    cr_assert_str_eq(safe("\xff\xfe", 2, true), "\\xff\\xfe");
}

Test(term, good_utf8_stays)
{
    const char *text = "Zürich 東京 €5 😀";
    cr_assert_str_eq(safe(text, strlen(text), true), text);
}

Test(term, bidi_and_invisible_characters_are_escaped)
{
    cr_assert_str_eq(safe("a\u202Eb", 5, true), "a\\u{202E}b");
    cr_assert_str_eq(safe("\u200B\uFEFF", 6, true), "\\u{200B}\\u{FEFF}");
    cr_assert_str_eq(safe("\xc2\x85", 2, true), "\\u{0085}");
    cr_assert_str_eq(safe("\u2028", 3, true), "\\u{2028}");
    cr_assert_str_eq(safe("\U000E0041", 4, true), "\\u{E0041}");
}

static void is_escaped(uint32_t point, const char *what)
{
    char text[4], want[16];
    size_t size = hidden_put(text, point);
    snprintf(want, sizeof want, point < 0x80 ? "\\x%02x" : "\\u{%04X}", point);
    if (point != '\n' && point != '\t') /* these have short escapes */
        cr_assert_str_eq(safe(text, size, true), want, "U+%04X, %s", point,
                         what);
}

static void is_shown(uint32_t point, const char *what)
{
    char text[5] = "";
    size_t size = hidden_put(text, point);
    if (point < 0xD800 || point > 0xDFFF)
        cr_assert_str_eq(safe(text, size, true), text, "U+%04X, beside %s",
                         point, what);
}

Test(term, both_ends_of_each_hidden_range_are_escaped)
{
    hidden_each(is_escaped, is_shown);
}

/* Return true if the text has no byte that a terminal could act on. */
static bool is_safe(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7F)
            return false;
    return true;
}

Test(term, random_bytes_never_reach_the_output_as_control_bytes)
{
    unsigned seed = (unsigned)clock_mono_ns();
    fprintf(stderr, "seed %u\n", seed);
    srand(seed);
    for (int run = 0; run < 2000; run++) {
        char data[64], copy[40];
        size_t size = (size_t)rand() % sizeof data;
        for (size_t i = 0; i < size; i++)
            data[i] = (char)rand();
        cr_assert(is_safe(safe(data, size, true)), "seed %u", seed);
        size_t room = 1 + (size_t)rand() % sizeof copy;
        memset(copy, 'X', sizeof copy);
        size_t n = safe_text_copy(copy, room, data, size);
        cr_assert_lt(n, room);
        cr_assert_eq(strlen(copy), n, "seed %u", seed);
        cr_assert(is_safe(copy), "seed %u", seed);
        /* Nothing is left to escape: no character was cut. */
        cr_assert_str_eq(safe(copy, n, true), copy);
    }
}

Test(term, a_copy_that_is_cut_says_so_and_keeps_characters_whole)
{
    char buf[16];
    cr_assert_eq(safe_text_copy(buf, 8, "1234567", 7), 7);
    cr_assert_str_eq(buf, "1234567");
    cr_assert_eq(safe_text_copy(buf, 8, "12345678", 8), 7);
    cr_assert_str_eq(buf, "1234...");
    safe_text_copy(buf, 8, "123\u20AC5678", 10);
    cr_assert_str_eq(buf, "123...");
    safe_text_copy(buf, 8, "ab\033\033\033", 5);
    cr_assert_str_eq(buf, "ab...");
    for (size_t room = 0; room < 5; room++)
        cr_assert_leq(safe_text_copy(buf, room, "abcdefgh", 8), room);
}

/* Skip a test of wide characters where the C library cannot read C.UTF-8: the
 * files of a locale have the byte order of the machine that made them. */
static void utf8_locale_needed(void)
{
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);

    if (!utf8)
        cr_skip("the locale C.UTF-8 cannot be read here");
    freelocale(utf8);
}

Test(term, columns_count_wide_and_combining_characters)
{
    utf8_locale_needed();
    cr_assert_eq(term_columns("abc"), 3);
    cr_assert_eq(term_columns("Zürich"), 6);
    cr_assert_eq(term_columns("東京"), 4);
    cr_assert_eq(term_columns("e\u0301"), 1);
}

Test(term, a_file_is_no_terminal_and_gets_no_colour)
{
    FILE *f = tmpfile();
    setenv("TERM", "xterm", 1);
    cr_assert(!term_is_terminal(f));
    cr_assert_eq(term_width(f), 0);
    cr_assert_str_eq(term_colour(f, TERM_RED), "");
    fclose(f);
}

/* Open a pseudo terminal of `columns`; *master reads what is shown. */
static FILE *terminal(int columns, int *master)
{
    int slave;
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    cr_assert_eq(openpty(master, &slave, NULL, NULL, &size), 0);
    return fdopen(slave, "w");
}

/* Return what was written to the terminal since the last call. A last byte,
 * written here, marks its end. */
static const char *shown(int master, FILE *out)
{
    static char text[4096];
    size_t used = 0;
    fputc('\1', out);
    fflush(out);
    while (used == 0 || text[used - 1] != '\1') {
        ssize_t n = read(master, text + used, sizeof text - used);
        cr_assert_gt(n, 0);
        used += (size_t)n;
    }
    text[used - 1] = '\0';
    return text;
}

Test(term, a_terminal_has_its_width_and_colour_unless_refused)
{
    int master;
    FILE *out = terminal(97, &master);
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    cr_assert_eq(term_width(out), 97);
    cr_assert_str_eq(term_colour(out, TERM_RED), "\033[31m");
    setenv("NO_COLOR", "1", 1);
    cr_assert_str_eq(term_colour(out, TERM_RED), "");
    unsetenv("NO_COLOR");
    setenv("TERM", "dumb", 1);
    cr_assert_str_eq(term_colour(out, TERM_RED), "");
    fclose(out);
}

Test(term, without_a_window_size_COLUMNS_counts_then_80)
{
    int master;
    FILE *out = terminal(0, &master);
    setenv("COLUMNS", "123", 1);
    cr_assert_eq(term_width(out), 123);
    setenv("COLUMNS", "-4", 1);
    cr_assert_eq(term_width(out), 80);
    unsetenv("COLUMNS");
    cr_assert_eq(term_width(out), 80);
    fclose(out);
}

static const struct term_column three[] = {
    {"ID", TERM_RIGHT, TERM_WHOLE},
    {"WHAT", TERM_LEFT, TERM_END},
    {"BODY", TERM_LEFT, TERM_END},
};

/* Make a table of two rows; the second one's middle cell is empty. */
static struct term_table *table_fill(void)
{
    struct term_table *t = term_table_open(three, 3);
    term_cellf(t, "%d", 7);
    term_cell(t, "exit 1", 6);
    term_cell(t, "some text that is long\n", 23);
    term_cellf(t, "%d", 1234);
    term_cell(t, "", 0);
    term_cell(t, "x", 1);
    return t;
}

Test(term, a_table_aligns_columns_and_leaves_no_blanks_at_the_end)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    struct term_table *t = table_fill();
    term_table_print(t, out);
    fclose(out);
    cr_assert_str_eq(text, "  ID  WHAT    BODY\n"
                           "   7  exit 1  some text that is long\\n\n"
                           "1234          x\n");
    term_table_close(&t);
    cr_assert_null(t);
    free(text);
}

Test(term, a_table_printed_in_parts_has_its_titles_once)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    struct term_table *t = table_fill();
    term_table_print(t, out);
    term_cell(t, "8", 1);
    term_cell(t, "y", 1);
    term_table_print(t, out);
    fclose(out);
    cr_assert_str_eq(strrchr(text, 'x'), "x\n   8  y\n");
    cr_assert_null(strstr(strstr(text, "ID") + 1, "ID"));
    term_table_close(&t);
    free(text);
}

Test(term, a_narrow_terminal_cuts_the_last_column_that_can_be_cut)
{
    int master;
    setenv("NO_COLOR", "1", 1);
    FILE *out = terminal(24, &master);
    struct term_table *t = table_fill();
    term_table_print(t, out);
    cr_assert_str_eq(shown(master, out), "  ID  WHAT    BODY\r\n"
                                         "   7  exit 1  some te...\r\n"
                                         "1234          x\r\n");
    term_table_close(&t);
    fclose(out);
}

Test(term, a_very_narrow_terminal_cuts_all_columns_that_can_be_cut)
{
    int master;
    setenv("NO_COLOR", "1", 1);
    FILE *out = terminal(10, &master);
    struct term_table *t = table_fill();
    term_table_print(t, out);
    cr_assert_str_eq(shown(master, out), "  ID  WHAT  BODY\r\n"
                                         "   7  e...  s...\r\n"
                                         "1234        x\r\n");
    term_table_close(&t);
    fclose(out);
}

/* Two names that begin alike stay apart, and the state beside them whole. */
Test(term, a_name_is_cut_in_the_middle_and_before_other_columns)
{
    static const struct term_column columns[] = {
        {"QUEUE", TERM_LEFT, TERM_MIDDLE},
        {"STATE", TERM_LEFT, TERM_WHOLE},
        {"WHY", TERM_LEFT, TERM_END},
    };
    int master;
    setenv("NO_COLOR", "1", 1);
    FILE *out = terminal(40, &master);
    struct term_table *t = term_table_open(columns, 3);
    term_cellf(t, "/invoices-with-a-long-name-east");
    term_cellf(t, "running");
    term_cellf(t, "all");
    term_cellf(t, "/invoices-with-a-long-name-west");
    term_cellf(t, "paused");
    term_cellf(t, "%s", "");
    term_table_print(t, out);
    cr_assert_str_eq(shown(master, out),
                     "QUEUE                       STATE    WHY\r\n"
                     "/invoices-wi...g-name-east  running  all\r\n"
                     "/invoices-wi...g-name-west  paused\r\n");
    term_table_close(&t);
    fclose(out);
}

static enum term_colour bad_is_red(const char *cell)
{
    return strcmp(cell, "bad news") == 0 ? TERM_RED : TERM_PLAIN;
}

/* The whole cell decides, also where it is cut. A colour adds no width. */
Test(term, cells_of_a_column_have_a_colour_by_what_is_in_them)
{
    static const struct term_column columns[] = {
        {"QUEUE", TERM_LEFT, TERM_WHOLE}, {"STATE", TERM_RIGHT, TERM_END}};
    int master;
    FILE *out = terminal(14, &master);
    struct term_table *t = term_table_open(columns, 2);

    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    term_table_paint(t, 1, bad_is_red);
    term_cellf(t, "bad news");
    term_cellf(t, "bad news");
    term_cellf(t, "/q");
    term_cellf(t, "fine");
    cr_assert_eq(term_table_print(t, out), 0);
    const char *seen = shown(master, out);
    cr_assert_not_null(strstr(seen, "bad news  \033[31mba...\033[0m\r\n"
                                    "/q         fine\r\n"),
                       "%s", seen);
    term_table_close(&t);
    fclose(out);
}

Test(term, words_go_to_the_next_line_whole_and_indented)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    fputs("name ", out);
    term_words(out, "0 wait for a retry, 1 dead\n", 5, 5, 20);
    fputs("|", out);
    term_words(out, "0 wait for a retry, 1 dead", 5, 5, 0);
    fclose(out);
    cr_assert_str_eq(text, "name 0 wait for a\n"
                           "     retry, 1 dead\\n"
                           "|0 wait for a retry, 1 dead");
    free(text);
}

/* A name with two blanks in it must stay that name. */
Test(term, blanks_within_a_line_stay_as_many)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    term_words(out, "no queue /a  b here  now", 0, 2, 19);
    fclose(out);
    cr_assert_str_eq(text, "no queue /a  b here\n  now");
    free(text);
}

/* A command that is copied from two lines would be two commands. */
Test(term, a_command_stays_on_one_line)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    term_words(out, "run `rm a b`, or (`a long command`) and `x", 0, 2, 12);
    fclose(out);
    cr_assert_str_eq(text, "run\n  `rm a b`,\n  or\n  (`a long command`)\n"
                           "  and `x");
    free(text);
}

Test(term, a_complaint_is_cut_between_words_on_a_terminal)
{
    int master, saved = dup(2);
    FILE *out = terminal(30, &master);
    dup2(fileno(out), 2);
    complain_as("mqsend");
    complain(0, "the queue is full; no worker runs \033[31m");
    dup2(saved, 2);
    cr_assert_str_eq(shown(master, out), "mqsend: the queue is full; no\r\n"
                                         "    worker runs \\x1b[31m\r\n");
    fclose(out);
}

/* Neither of two texts is cut to a letter while the other is whole. */
Test(term, the_widest_column_is_cut_first)
{
    int master;
    setenv("NO_COLOR", "1", 1);
    FILE *out = terminal(32, &master);
    struct term_table *t = term_table_open(three, 3);
    term_cellf(t, "7");
    term_cellf(t, "exit 1: the bank does not answer");
    term_cellf(t, "{\"invoice\": 12}");
    term_table_print(t, out);
    cr_assert_str_eq(shown(master, out),
                     "ID  WHAT           BODY\r\n"
                     " 7  exit 1: th...  {\"invoice\"...\r\n");
    term_table_close(&t);
    fclose(out);
}

/* Return a table with two extra columns, on a terminal of `columns`. */
static const char *extra_print(int columns)
{
    static const struct term_column extra[] = {
        {"ID", TERM_LEFT, TERM_WHOLE},    {"PRIO", TERM_RIGHT, TERM_EXTRA},
        {"ERROR", TERM_LEFT, TERM_SPARE}, {"SIZE", TERM_RIGHT, TERM_EXTRA},
        {"BODY", TERM_LEFT, TERM_END},
    };
    int master;
    FILE *out = terminal(columns, &master);
    struct term_table *t = term_table_open(extra, 5);
    const char *text;

    term_cellf(t, "7");
    term_cellf(t, "0");
    term_cellf(t, "exit 1: the bank sleeps");
    term_cellf(t, "15");
    term_cellf(t, "{\"invoice\": 12}");
    term_table_print(t, out);
    text = shown(master, out);
    term_table_close(&t);
    fclose(out);
    return text;
}

Test(term, extra_columns_leave_the_last_first_before_others_are_unreadable)
{
    setenv("NO_COLOR", "1", 1);
    cr_assert_str_eq(
        extra_print(60),
        "ID  PRIO  ERROR                    SIZE  BODY\r\n"
        "7      0  exit 1: the bank sleeps    15  {\"invoice\": 12}\r\n");
    cr_assert_str_eq(extra_print(36), "ID  PRIO  ERROR         BODY\r\n"
                                      "7      0  exit 1: t...  "
                                      "{\"invoice...\r\n");
    cr_assert_str_eq(extra_print(30), "ID  ERROR         BODY\r\n"
                                      "7   exit 1: t...  "
                                      "{\"invoice...\r\n");
}

static const struct term_column spare[] = {
    {"ID", TERM_RIGHT, TERM_WHOLE},
    {"GROUP", TERM_LEFT, TERM_SPARE},
    {"BODY", TERM_LEFT, TERM_END},
};

/* Add a row to a table with the columns of `spare`. */
static void spare_row(struct term_table *t, int id, const char *group)
{
    term_cellf(t, "%d", id);
    term_cellf(t, "%s", group);
    term_cellf(t, "%s", "body");
}

/* The titles come again when a later part has a column that the first had not.
 */
Test(term, a_spare_column_is_on_a_terminal_once_it_has_text)
{
    int master;
    setenv("NO_COLOR", "1", 1);
    FILE *out = terminal(80, &master);
    struct term_table *t = term_table_open(spare, 3);
    spare_row(t, 1, "");
    spare_row(t, 2, "");
    term_table_print(t, out);
    cr_assert_str_eq(shown(master, out), "ID  BODY\r\n"
                                         " 1  body\r\n"
                                         " 2  body\r\n");
    spare_row(t, 3, "east");
    term_table_print(t, out);
    spare_row(t, 4, "");
    term_table_print(t, out);
    cr_assert_str_eq(shown(master, out), "ID  GROUP  BODY\r\n"
                                         " 3  east   body\r\n"
                                         " 4         body\r\n");
    term_table_close(&t);
    fclose(out);
}

Test(term, a_spare_column_leaves_its_room_to_the_others)
{
    int master;
    setenv("NO_COLOR", "1", 1);
    FILE *out = terminal(8, &master);
    struct term_table *t = term_table_open(spare, 3);
    spare_row(t, 1, "");
    term_table_print(t, out);
    cr_assert_str_eq(shown(master, out), "ID  BODY\r\n"
                                         " 1  body\r\n");
    term_table_close(&t);
    fclose(out);
}

Test(term, a_spare_column_is_always_in_a_file)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    struct term_table *t = term_table_open(spare, 3);
    spare_row(t, 1, "");
    term_table_print(t, out);
    fclose(out);
    cr_assert_str_eq(text, "ID  GROUP  BODY\n"
                           " 1         body\n");
    term_table_close(&t);
    free(text);
}

Test(term, the_end_of_a_text_never_takes_more_than_it_may)
{
    utf8_locale_needed();
    cr_assert_str_eq(term_tail("abcdef", 2), "ef");
    cr_assert_str_eq(term_tail("abcdef", 6), "abcdef");
    cr_assert_str_eq(term_tail("abcdef", 0), "");
    cr_assert_str_eq(term_tail("a\u4e2d\u4e2d", 3), "\u4e2d");
}

Test(term, progress_shows_share_speed_and_time_left)
{
    struct term_progress p = {.what = "sending", .total = 1000, .done = 500};
    char text[160];
    term_progress_text(&p, 2 * NS_PER_S, text, sizeof text);
    cr_assert_str_eq(text, "sending [##########          ] 500/1000  50%  "
                           "250/s  0:02 left");
    p.total = 0;
    term_progress_text(&p, 2 * NS_PER_S, text, sizeof text);
    cr_assert_str_eq(text, "sending 500  250/s");
    p = (struct term_progress){.what = "sending", .total = 5, .done = 7};
    term_progress_text(&p, 0, text, sizeof text);
    cr_assert_str_eq(text, "sending [####################] 7/5  100%  0/s");
}

/* The terminal is stopped as by Ctrl-S: a write would wait until Ctrl-Q. */
Test(term, progress_does_not_wait_for_a_terminal_that_was_stopped,
     .timeout = 20)
{
    int ours = posix_openpt(O_RDWR | O_NOCTTY);
    cr_assert(ours >= 0 && grantpt(ours) == 0 && unlockpt(ours) == 0);
    int theirs = open(ptsname(ours), O_RDWR | O_NOCTTY), saved = dup(2);
    char text[512] = "";
    struct term_progress p;

    cr_assert_geq(theirs, 0);
    cr_assert_eq(dup2(theirs, 2), 2);
    term_progress_start(&p, "sending", 2);
    cr_assert_eq(tcflow(theirs, TCOOFF), 0);
    term_progress_wait(&p, "stopped");
    cr_assert_eq(tcflow(theirs, TCOON), 0);
    term_progress_wait(&p, "waiting");
    term_progress_end(&p);
    dup2(saved, 2);
    cr_assert_gt(read(ours, text, sizeof text - 1), 0);
    cr_expect(strstr(text, "waiting"), "%s", text);
    cr_expect_null(strstr(text, "stopped"), "%s", text);
}

Test(term, no_progress_bar_when_stderr_is_no_terminal)
{
    FILE *file = tmpfile();
    int saved = dup(2);
    dup2(fileno(file), 2);
    struct term_progress p;
    term_progress_start(&p, "sending", 2);
    term_progress_step(&p, 1);
    term_progress_end(&p);
    complain_as("mqsend");
    complain(0, "no queue \"%s\"", "\033[31m\n");
    fflush(stderr);
    dup2(saved, 2);
    char text[100] = "";
    rewind(file);
    cr_assert_gt(fread(text, 1, sizeof text - 1, file), 0);
    cr_assert_str_eq(text, "mqsend: no queue \"\\x1b[31m\\n\"\n");
    fclose(file);
}
