/* options_help.c - what options.h prints as --help */
#include <string.h>

#include "common/cli/option_value.h"
#include "common/cli/options.h"

#define WIDTH_PRESET 80 /* when the caller knows none */
#define WIDTH_LEAST  20
#define COLUMN_MOST  34 /* where sentences start at most */
#define COLUMN_ALONE 8  /* where they start on lines of their own */
#define SENTENCE_MIN 28 /* columns that a sentence beside its flag needs */
#define LABEL_TEXT   128

/* Words that are wrapped as they come. */
struct wrap {
    FILE *out;
    int width;
    int indent; /* of each line after the first */
    int column; /* columns of this line so far */
    bool fresh; /* no word stands on this line yet */
};

/* columns_count - of UTF-8 text: bytes that start a character */
static int columns_count(const char *text, size_t size)
{
    int columns = 0;

    for (size_t i = 0; i < size; i++)
        columns += ((unsigned char)text[i] & 0xC0) != 0x80;
    return columns;
}

/* wrap_break - start a new line, indented */
static void wrap_break(struct wrap *w)
{
    fprintf(w->out, "\n%*s", w->indent, "");
    w->column = w->indent;
    w->fresh = true;
}

/* wrap_words - each word on this line if it fits, else on a new one; a word
 * longer than a line is left whole */
static void wrap_words(struct wrap *w, const char *text)
{
    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        size_t size = strcspn(text, " ");
        int columns = columns_count(text, size);

        if (!w->fresh && w->column + 1 + columns > w->width)
            wrap_break(w);
        fprintf(w->out, "%s%.*s", w->fresh ? "" : " ", (int)size, text);
        w->column += columns + !w->fresh;
        w->fresh = false;
        text += size;
    }
}

/* label_print - "  -c, --max-concurrency N"; returns its columns */
static int label_print(const struct option_row *row, char buf[LABEL_TEXT])
{
    const char *value = option_value(row);
    char letter[] = "    ";
    const char *open = !*value ? "" : row->optional ? "[=" : " ";

    if (row->letter) {
        const char with[] = {'-', row->letter, ',', ' '};

        memcpy(letter, with, sizeof with);
    }
    snprintf(buf, LABEL_TEXT, "  %s--%s%s%s%s", letter, row->name, open, value,
             *open == '[' ? "]" : "");
    return columns_count(buf, strlen(buf));
}

/* column_choose - where the sentences start */
static int column_choose(const struct option_table *table, int width)
{
    char label[LABEL_TEXT];
    int column = 0;

    for (size_t i = 0; i < table->count; i++) {
        int columns = label_print(&table->rows[i], label) + 2;

        if (columns > column && columns <= COLUMN_MOST)
            column = columns;
    }
    return column + SENTENCE_MIN > width ? COLUMN_ALONE : column;
}

/* row_print - one flag, its sentence, its default */
static void row_print(const struct option_row *row, FILE *out, int column,
                      int width)
{
    char label[LABEL_TEXT];
    struct wrap w = {.out = out, .width = width, .indent = column};

    w.column = label_print(row, label);
    fputs(label, out);
    if (w.column + 2 > column) {
        wrap_break(&w);
    } else {
        fprintf(out, "%*s", column - w.column, "");
        w.column = column;
        w.fresh = true;
    }
    wrap_words(&w, row->help);
    if (row->preset) {
        char preset[LABEL_TEXT];

        snprintf(preset, sizeof preset, "(default %s)", row->preset);
        wrap_words(&w, preset);
    }
    fputc('\n', out);
}

/* usage_print - each way to call the program */
static void usage_print(const struct option_table *table, FILE *out)
{
    const char *usage = table->usage;
    const char *lead = "Usage:";

    while (*usage) {
        size_t size = strcspn(usage, "\n");

        fprintf(out, "%s %s %.*s\n", lead, table->program, (int)size, usage);
        usage += size + (usage[size] == '\n');
        lead = "      ";
    }
}

void options_help(const struct option_table *table, FILE *out, int width)
{
    struct wrap about = {.out = out, .fresh = true};
    int column;

    if (width <= 0)
        width = WIDTH_PRESET;
    if (width < WIDTH_LEAST)
        width = WIDTH_LEAST;
    column = column_choose(table, width);
    about.width = width;
    usage_print(table, out);
    fputc('\n', out);
    wrap_words(&about, table->about);
    fputc('\n', out);
    for (size_t i = 0; i < table->count; i++) {
        const char *under = table->rows[i].under;

        if (i == 0 || under)
            fprintf(out, "\n%s:\n", under ? under : "Options");
        row_print(&table->rows[i], out, column, width);
    }
    if (table->notes)
        fprintf(out, "\n%s\n", table->notes);
}
