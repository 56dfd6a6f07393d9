/* term_table.h - a table that fits the terminal
 *
 * WHAT   Collects cells, makes them safe, and prints them in columns. If the
 *        table is wider than the terminal, it cuts or leaves out columns.
 * WHO    The programs mqdlq and mqctl, in their only thread.
 * OWNS   The cells until they are printed.
 * FAILS  If there was no memory for a cell, term_table_print prints nothing and
 *        returns -ENOMEM; so does a NULL table, which accepts all calls.
 */
#ifndef COMMON_CLI_TERM_TABLE_H
#define COMMON_CLI_TERM_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/cli/term.h"

struct term_table;              /* opaque */
#define TERM_TABLE_PART    1000 /* rows of a long list, laid out together */
#define TERM_TABLE_PREVIEW 256  /* bytes of a body in a row */
enum term_align { TERM_LEFT, TERM_RIGHT };
/* How a column is cut if the table is too wide. */
enum term_cut {
    TERM_WHOLE,  /* never */
    TERM_END,    /* at its end */
    TERM_MIDDLE, /* in the middle, because similar names begin alike; cut before
                    other columns, down to a width that tells names apart */
    TERM_SPARE,  /* at its end; left out on a terminal while all cells are
                    empty, but kept for programs, which count columns */
    TERM_EXTRA,  /* never; left out if others would become unreadable */
};
struct term_column {
    const char *title;
    enum term_align align;
    enum term_cut cut;
};
struct term_table *term_table_open(const struct term_column *columns, size_t n);
/* Choose the colour of each cell of a column, counted from 0, by its text. */
typedef enum term_colour term_painter(const char *cell);
void term_table_paint(struct term_table *t, size_t column,
                      term_painter *painter);
/* Add the next cell, from left to right, row by row. Any bytes are allowed. */
void term_cell(struct term_table *t, const void *text, size_t size);
void term_cellf(struct term_table *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Add a number; "-" for a number below 0, which is unknown. */
void term_cell_known(struct term_table *t, int64_t value);
/* Add the time since a wall time in ns; "-" if that is 0 or in the future. */
void term_cell_age(struct term_table *t, uint64_t wall_ns);
/* Print the rows added since the last print, so that a long table can be
 * printed in parts. Prints the titles first if they are new or a column was
 * added. Returns 0 or -ENOMEM. */
int term_table_print(struct term_table *t, FILE *out);
void term_table_close(struct term_table **t);

#endif
