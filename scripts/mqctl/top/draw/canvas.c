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

/* Return the current line; NULL if that is below the end. */
static struct canvas_line *line_current(struct canvas *c)
{
    return c->y >= 0 && c->y < c->end && c->y < c->rows ? &c->lines[c->y]
                                                        : NULL;
}

/* Begin a part with that paint; false if the line has too many parts. */
static bool part_begin(struct canvas_line *l, size_t from, enum paint paint)
{
    if (l->count == CANVAS_PARTS)
        return false;
    l->parts[l->count].from = from;
    l->parts[l->count++].paint = paint;
    return true;
}

/* Add a safe text at a column, as far as there is room. Blanks before the text
 * are plain: an underline, or on a chosen line a colour, would show in them. */
static void text_add(const struct canvas *c, struct canvas_line *l, int x,
                     enum paint paint, const char *text)
{
    size_t used = strlen(l->text), n;
    int columns;

    if (x >= c->columns)
        return;
    if (l->columns < x && l->count)
        part_begin(l, used, PAINT_PLAIN);
    while (l->columns < x && used < sizeof l->text - 1) {
        l->text[used++] = ' ';
        l->columns++;
    }
    l->text[used] = '\0';
    n = term_fit(text, c->columns - l->columns, &columns);
    if (n == 0 || used + n >= sizeof l->text || !part_begin(l, used, paint))
        return;
    memcpy(l->text + used, text, n);
    l->text[used + n] = '\0';
    l->columns += columns;
}

void canvas_put(struct canvas *c, int x, enum paint paint, const char *fmt, ...)
{
    struct canvas_line *l = line_current(c);
    char text[CANVAS_TEXT], safe[CANVAS_TEXT];
    va_list args;

    if (!l)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    safe_text_copy(safe, sizeof safe, text, strlen(text));
    text_add(c, l, x, paint, safe);
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
    struct canvas_line *l = line_current(c);
    char safe[CANVAS_TEXT], part[CANVAS_TEXT];
    int columns;

    if (!l || width <= 0)
        return;
    safe_text_copy(safe, sizeof safe, text, strlen(text));
    columns = term_columns(safe);
    if (columns > width) {
        canvas_cut(part, safe, width,
                   side == CANVAS_MIDDLE ? (width - CANVAS_MARK) / 2 : 0);
        text_add(c, l, x, paint, part);
    } else {
        text_add(c, l, side == CANVAS_RIGHT ? x + width - columns : x, paint,
                 safe);
    }
}

void canvas_choose(struct canvas *c)
{
    struct canvas_line *l = line_current(c);

    if (l)
        l->chosen = true;
}
