/* canvas.c - see canvas.h */
#include "scripts/mqctl/top/draw/canvas.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/safe_text.h"
#include "common/cli/term.h"

int canvas_open(struct canvas *c, int columns, int rows)
{
    *c = (struct canvas){.columns = columns, .rows = rows, .end = rows};
    c->lines = calloc(rows > 0 ? (size_t)rows : 1, sizeof *c->lines);
    return c->lines ? 0 : -ENOMEM;
}

void canvas_close(struct canvas *c)
{
    free(c->lines);
    *c = (struct canvas){0};
}

void canvas_clear(struct canvas *c)
{
    for (int y = 0; y < c->rows; y++) {
        c->lines[y].text[0] = '\0';
        c->lines[y].columns = 0;
        c->lines[y].count = 0;
        c->lines[y].chosen = false;
    }
    c->y = 0;
    c->end = c->rows;
}

/* current - the line that is written; NULL: it is below the end */
static struct canvas_line *current(struct canvas *c)
{
    return c->y >= 0 && c->y < c->end && c->y < c->rows ? &c->lines[c->y]
                                                        : NULL;
}

/* paint_from - what follows has that paint; false: there is no room for one
 * more part */
static bool paint_from(struct canvas_line *l, size_t from, enum paint paint)
{
    if (l->count == CANVAS_PARTS)
        return false;
    l->parts[l->count].from = from;
    l->parts[l->count++].paint = paint;
    return true;
}

/* fill - blanks up to a column; plain, as an underline or the colour of a line
 * that is chosen would show */
static void fill(struct canvas_line *l, int x)
{
    size_t used = strlen(l->text);

    if (l->columns < x && l->count)
        paint_from(l, used, PAINT_PLAIN);
    while (l->columns < x && used < sizeof l->text - 1) {
        l->text[used++] = ' ';
        l->columns++;
    }
    l->text[used] = '\0';
}

/* add - a text that is safe, as far as there is room */
static void add(const struct canvas *c, struct canvas_line *l, int x,
                enum paint paint, const char *text)
{
    int columns;
    size_t used, n;

    if (x >= c->columns)
        return;
    fill(l, x);
    used = strlen(l->text);
    n = term_fit(text, c->columns - l->columns, &columns);
    if (n == 0 || used + n >= sizeof l->text || !paint_from(l, used, paint))
        return;
    memcpy(l->text + used, text, n);
    l->text[used + n] = '\0';
    l->columns += columns;
}

void canvas_put(struct canvas *c, int x, enum paint paint, const char *fmt, ...)
{
    struct canvas_line *l = current(c);
    char text[CANVAS_TEXT], safe[CANVAS_TEXT];
    va_list args;

    if (!l)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    safe_text_copy(safe, sizeof safe, text, strlen(text));
    add(c, l, x, paint, safe);
}

void canvas_cut(char out[CANVAS_TEXT], const char *text, int width, int tail)
{
    int mark = width > 2 * CANVAS_MARK ? CANVAS_MARK : 0, taken;
    const char *end = "";

    if (term_columns(text) <= width) {
        snprintf(out, CANVAS_TEXT, "%s", text);
        return;
    }
    if (tail > 0)
        end = term_tail(text, tail < width - mark ? tail : width - mark);
    snprintf(out, CANVAS_TEXT, "%.*s%.*s%s",
             (int)term_fit(text, width - mark - term_columns(end), &taken),
             text, mark, "...", end);
}

void canvas_cell(struct canvas *c, int x, int width, enum canvas_side side,
                 enum paint paint, const char *text)
{
    struct canvas_line *l = current(c);
    char safe[CANVAS_TEXT], part[CANVAS_TEXT];
    int columns;

    if (!l || width <= 0)
        return;
    safe_text_copy(safe, sizeof safe, text, strlen(text));
    columns = term_columns(safe);
    if (columns > width) {
        canvas_cut(part, safe, width,
                   side == CANVAS_MIDDLE ? (width - CANVAS_MARK) / 2 : 0);
        add(c, l, x, paint, part);
    } else {
        add(c, l, side == CANVAS_RIGHT ? x + width - columns : x, paint, safe);
    }
}

void canvas_choose(struct canvas *c)
{
    struct canvas_line *l = current(c);

    if (l)
        l->chosen = true;
}
