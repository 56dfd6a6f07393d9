/* term.h - what a person sees: tables, colour, progress, safe text
 *
 * WHAT   Tables that fit the terminal's width; colour only on a terminal and
 *        without NO_COLOR; a progress bar on stderr; untrusted bytes made
 *        printable.
 * WHO    One thread.
 * OWNS   The table's cells until it is printed.
 * FAILS  Never; what cannot be had (memory) leaves a cell empty.
 */
#ifndef COMMON_TERM_H
#define COMMON_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

bool term_is_terminal(FILE *out);
/* Columns: of the terminal, else $COLUMNS, else 80. Not a terminal: 0, which
 * means "no limit" to tables. */
int term_width(FILE *out);

enum term_colour { TERM_PLAIN, TERM_BOLD, TERM_DIM, TERM_RED, TERM_GREEN, TERM_YELLOW };
/* The escape sequence, or "" where colour is off. */
const char *term_colour(FILE *out, enum term_colour colour);

/* Untrusted bytes as printable UTF-8: control bytes, invalid UTF-8, bidi and
 * other format characters become \n \t \xNN \u{NNNN}. With `one_line`, newlines
 * are escaped too; otherwise \n and \t stay. Writes to `out`. */
void term_safe(FILE *out, const void *data, size_t size, bool one_line);
/* The same into a buffer, cut at `room` - 1 bytes with "..." at the end, never
 * inside a character; returns the number of bytes. */
size_t term_safe_copy(char *buf, size_t room, const void *data, size_t size);
/* Columns that a UTF-8 text takes. */
int term_columns(const char *text);

struct term_table; /* opaque */
enum term_align { TERM_LEFT, TERM_RIGHT };
/* Columns are fixed at open; `flexible` columns are cut when it gets narrow,
 * the last such column first. Empty columns are kept. */
struct term_column {
    const char *title;
    enum term_align align;
    bool flexible;
};
struct term_table *term_table_open(const struct term_column *columns, size_t n);
/* The next cell, left to right, row by row; made safe here (one line). */
void term_cell(struct term_table *t, const void *text, size_t size);
void term_cellf(struct term_table *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void term_table_print(struct term_table *t, FILE *out);
void term_table_close(struct term_table **t);

/* "[#####     ] 512/1000  51%  2100/s  0:03 left". Nothing if stderr is no
 * terminal. Draws at most ten times a second. total 0: not known. */
struct term_progress {
    const char *what;
    uint64_t total, done;
    uint64_t started_ns, drawn_ns;
    bool on;
};
void term_progress_start(struct term_progress *p, const char *what, uint64_t total);
void term_progress_step(struct term_progress *p, uint64_t done);
void term_progress_end(struct term_progress *p); /* leaves a clean line */

#endif
