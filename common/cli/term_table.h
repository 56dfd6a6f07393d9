/* term_table.h - a table that fits the terminal
 *
 * WHAT   Cells are collected and made safe (term.h), then printed in columns;
 *        too wide for the terminal, some columns are cut.
 * WHO    One thread.
 * OWNS   The cells until they are printed.
 * FAILS  Without memory for a cell nothing more is printed, and printing says
 *        -ENOMEM. A NULL table swallows everything and says the same.
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
/* How a column is cut: names of one kind begin alike, so the middle goes. A
 * spare one is cut at its end, and left out on a terminal until a cell of it
 * has text; elsewhere, where a program counts columns, it is kept. An extra one
 * is whole, and left out where others would have to be cut to a few letters. */
enum term_cut { TERM_WHOLE, TERM_END, TERM_MIDDLE, TERM_SPARE, TERM_EXTRA };
/* Columns are fixed at open; when it gets narrow names are cut, then the widest
 * of those that can be. */
struct term_column {
    const char *title;
    enum term_align align;
    enum term_cut cut;
};
struct term_table *term_table_open(const struct term_column *columns, size_t n);
/* The cells of a column, counted from 0, have a colour by what is in them. */
typedef enum term_colour term_painter(const char *cell);
void term_table_paint(struct term_table *t, size_t column,
                      term_painter *painter);
/* The next cell, left to right, row by row; made safe here (one line). */
void term_cell(struct term_table *t, const void *text, size_t size);
void term_cellf(struct term_table *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The next cell, a number; "-" below 0, which is not known. */
void term_cell_known(struct term_table *t, int64_t value);
/* The next cell, the time since a wall time in ns; "-" if that is 0 or in the
 * future. */
void term_cell_age(struct term_table *t, uint64_t wall_ns);
/* Print the titles, the first time and when a column joins them, and the rows
 * since the last print: a long table may be printed in parts, and need not be
 * held whole. 0, or -ENOMEM: some cells are missing. */
int term_table_print(struct term_table *t, FILE *out);
void term_table_close(struct term_table **t);

#endif
