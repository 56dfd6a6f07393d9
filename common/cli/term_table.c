/* term_table.c - a table that fits the terminal (see term_table.h) */
#include "common/cli/term_table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/cli/term.h"

#define CELL_MIN 4  /* columns that a cut cell keeps: a letter and "..." */
#define NAME_MIN 24 /* columns that names keep while other cells can be cut */
/* Columns that a cut cell keeps while extra columns are shown. */
#define READABLE 12
#define MARK     3 /* columns of "..." */
#define GAP      2 /* columns between two cells */

struct column {
    struct term_column is;
    term_painter *painter; /* NULL: none */
    int width;             /* of the widest cell so far, title included */
    bool filled;           /* a cell had text */
};

struct term_table {
    struct column *columns;
    size_t n;
    char **cells; /* row by row; NULL = empty */
    size_t count, room;
    size_t titled; /* columns whose titles are printed; 0: none yet */
    bool broken;   /* a cell is missing, for want of memory */
};

struct term_table *term_table_open(const struct term_column *columns, size_t n)
{
    struct term_table *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    t->columns = calloc(n, sizeof *t->columns);
    if (!t->columns) {
        term_table_close(&t);
        return NULL;
    }
    t->n = n;
    for (size_t i = 0; i < n; i++) {
        t->columns[i].is = columns[i];
        t->columns[i].width = term_columns(columns[i].title);
    }
    return t;
}

void term_table_paint(struct term_table *t, size_t column,
                      term_painter *painter)
{
    if (t)
        t->columns[column].painter = painter;
}

void term_cell(struct term_table *t, const void *text, size_t size)
{
    char **cells, *safe = NULL;
    size_t bytes = 0;
    struct column *c;
    int columns;
    FILE *out;

    if (!t)
        return;
    out = open_memstream(&safe, &bytes);
    if (out) {
        safe_text(out, text, size, true);
        t->broken |= fclose(out) != 0;
    }
    cells = array_grow(t->cells, t->count, &t->room, sizeof *cells);
    t->broken |= !safe || !cells;
    if (!cells) {
        free(safe);
        return;
    }
    c = &t->columns[t->count % t->n];
    columns = safe ? term_columns(safe) : 0;
    if (columns > c->width)
        c->width = columns;
    c->filled |= columns > 0;
    t->cells = cells;
    t->cells[t->count++] = safe;
}

void term_cellf(struct term_table *t, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    int size;

    va_start(args, fmt);
    size = vasprintf(&text, fmt, args);
    va_end(args);
    term_cell(t, size < 0 ? "" : text, size < 0 ? 0 : (size_t)size);
    if (size >= 0)
        free(text);
    else if (t)
        t->broken = true;
}

void term_cell_known(struct term_table *t, int64_t value)
{
    if (value < 0)
        term_cell(t, "-", 1);
    else
        term_cellf(t, "%" PRId64, value);
}

void term_cell_age(struct term_table *t, uint64_t wall_ns)
{
    char text[DURATION_TEXT];

    term_cellf(t, "%s",
               wall_ns && wall_ns < clock_wall_ns() ? term_since(wall_ns, text)
                                                    : "-");
}

/* Narrow a column by at most `over`, but not below `least` or the width of its
 * title. Returns by how much. */
static int width_give(const struct term_column *c, int *width, int least,
                      int over)
{
    int title = term_columns(c->title), give;

    give = *width - (title > least ? title : least);
    if (c->cut == TERM_WHOLE || c->cut == TERM_EXTRA || give <= 0 || over <= 0)
        return 0;
    give = give < over ? give : over;
    *width -= give;
    return give;
}

#define LEFT_OUT (-GAP) /* width of a column left out; cancels its gap */

/* Narrow the widest column by 1 at a time, until the table is no longer too
 * wide by `over` or no column can be narrowed: columns of names if `names`,
 * else the others. Returns by how much the table is still too wide. */
static int widest_give(const struct term_table *t, int over, bool names,
                       int *widths)
{
    size_t widest;

    for (; over > 0; over--, widths[widest]--) {
        widest = t->n;
        for (size_t i = 0; i < t->n; i++) {
            const struct term_column *c = &t->columns[i].is;
            int width = widths[i];

            if ((c->cut == TERM_MIDDLE) == names &&
                width_give(c, &width, CELL_MIN, 1) &&
                (widest == t->n || widths[i] >= widths[widest]))
                widest = i;
        }
        if (widest == t->n)
            break;
    }
    return over;
}

/* Choose the width of each column of the table, for a terminal of `limit`
 * columns (0: no limit). Names are cut first, as long as they can be told
 * apart, then the widest column. Returns the number of columns that
 * have room. */
static size_t widths_fit(const struct term_table *t, int limit, int *widths)
{
    size_t shown = t->n;
    int over;         /* by how much the table is too wide */
    int readable = 0; /* by how much it can shrink and stay readable */

    if (limit == 0) {
        for (size_t i = 0; i < t->n; i++)
            widths[i] = t->columns[i].width;
        return shown;
    }
    /* Begin with the full widths; leave out spare columns that are empty. */
    over = (int)(t->n - 1) * GAP - limit;
    for (size_t i = 0; i < t->n; i++) {
        const struct column *c = &t->columns[i];

        widths[i] = c->is.cut == TERM_SPARE && !c->filled ? LEFT_OUT : c->width;
        over += widths[i];
    }
    /* Leave out extra columns, the last first, until the others can stay
     * readable. */
    for (size_t i = 0; i < t->n; i++) {
        int width = widths[i];

        readable += width_give(&t->columns[i].is, &width, READABLE, width);
    }
    for (size_t i = t->n; i-- > 0 && over > readable;)
        if (t->columns[i].is.cut == TERM_EXTRA) {
            over -= widths[i] - LEFT_OUT;
            widths[i] = LEFT_OUT;
        }
    for (size_t i = 0; i < t->n; i++)
        if (t->columns[i].is.cut == TERM_MIDDLE)
            over -= width_give(&t->columns[i].is, &widths[i], NAME_MIN, over);
    over = widest_give(t, over, false, widths);
    widest_give(t, over, true, widths);
    for (size_t i = 0; i < t->n; i++)
        shown -= widths[i] == LEFT_OUT;
    return shown;
}

/* Print one line; `cells` NULL: the titles. Blanks are printed only in front of
 * a cell, so that the line does not end in blanks. */
static void row_print(const struct term_table *t, FILE *out, const int *widths,
                      char *const *cells, size_t n)
{
    int start = 0, at = 0, taken, from;

    for (size_t i = 0; i < t->n; start += widths[i++] + GAP) {
        const struct term_column *c = &t->columns[i].is;
        const char *text = cells ? (i < n ? cells[i] : NULL) : c->title;
        term_painter *painter = cells && text ? t->columns[i].painter : NULL;
        enum term_colour colour = painter ? painter(text) : TERM_PLAIN;
        const char *on = colour == TERM_PLAIN ? "" : term_colour(out, colour);
        const char *mark = "", *tail = "";
        size_t bytes;

        if (widths[i] == LEFT_OUT || !text)
            continue;
        bytes = term_fit(text, widths[i], &taken);
        if (text[bytes]) { /* cut it */
            int kept = widths[i] - MARK;

            mark = "...";
            if (c->cut == TERM_MIDDLE)
                tail = term_tail(text, kept / 2);
            kept -= term_columns(tail);
            bytes = term_fit(text, kept, &taken);
            taken += MARK + term_columns(tail);
        }
        if (taken == 0)
            continue;
        from = start + (c->align == TERM_RIGHT ? widths[i] - taken : 0);
        fprintf(out, "%*s%s%.*s%s%s%s", from - at, "", on, (int)bytes, text,
                mark, tail, *on ? term_colour(out, TERM_PLAIN) : "");
        at = from + taken;
    }
    fputc('\n', out);
}

int term_table_print(struct term_table *t, FILE *out)
{
    int *widths = t && !t->broken ? calloc(t->n, sizeof *widths) : NULL;
    size_t shown;

    if (!widths) {
        if (t)
            t->broken = true;
        return -ENOMEM;
    }
    shown = widths_fit(t, term_width(out), widths);
    if (t->titled != shown) {
        fputs(term_colour(out, TERM_BOLD), out);
        row_print(t, out, widths, NULL, t->n);
        fputs(term_colour(out, TERM_PLAIN), out);
        t->titled = shown;
    }
    for (size_t at = 0; at < t->count; at += t->n)
        row_print(t, out, widths, t->cells + at, t->count - at);
    for (size_t i = 0; i < t->count; i++)
        free(t->cells[i]);
    t->count = 0;
    free(widths);
    return 0;
}

void term_table_close(struct term_table **t)
{
    if (!*t)
        return;
    for (size_t i = 0; i < (*t)->count; i++)
        free((*t)->cells[i]);
    free((*t)->cells);
    free((*t)->columns);
    free(*t);
    *t = NULL;
}
