/* term.h - what a person sees: width, colour, progress, times
 *
 * WHAT   Facts about a terminal, and colour only there and without NO_COLOR; a
 *        progress bar on stderr; times for people. Tables: term_table.h.
 * WHO    One thread.
 */
#ifndef COMMON_CLI_TERM_H
#define COMMON_CLI_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/clock.h"

bool term_is_terminal(FILE *out);
/* Columns: of the terminal, else $COLUMNS, else 80. Not a terminal: 0, which
 * means "no limit" to tables. */
int term_width(FILE *out);

enum term_colour {
    TERM_PLAIN,
    TERM_BOLD,
    TERM_DIM,
    TERM_RED,
    TERM_GREEN,
    TERM_YELLOW,
};
/* The escape sequence, or "" where colour is off. */
const char *term_colour(FILE *out, enum term_colour colour);

/* Columns that a UTF-8 text takes. */
int term_columns(const char *text);
/* Bytes of `text` that take at most `columns`; *taken: how many they take. */
size_t term_fit(const char *text, int columns, int *taken);
/* The end of `text` that takes at most `columns`. */
const char *term_tail(const char *text, int columns);

/* A text that is made safe to print, its words on lines of at most `width`
 * columns (0: one line), each but the first indented; `at` columns of the first
 * are taken. A command in `...` stays on one line, also if it is too long. */
void term_words(FILE *out, const char *text, int at, int indent, int width);

/* The end of a noun after a number: "", or "s". */
static inline const char *term_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* ---- a progress bar ----
 *
 * "sending [#####     ] 512/1000  51%  2100/s  0:03 left", drawn at most ten
 * times a second; nothing if stderr is no terminal. Embedded in the caller.
 */

struct term_progress {
    const char *what;
    uint64_t total, done;
    uint64_t started_ns, drawn_ns;
    bool on;
    const char *note; /* in the place of the time that is left; or NULL */
};
/* total 0: not known. */
void term_progress_start(struct term_progress *p, const char *what,
                         uint64_t total);
void term_progress_step(struct term_progress *p, uint64_t done);
/* Nothing goes on, because of `note`: says so until the next step. */
void term_progress_wait(struct term_progress *p, const char *note);
/* Makes room for a line on stderr; the next step or wait draws the bar
 * again. */
void term_progress_clear(const struct term_progress *p);
void term_progress_end(struct term_progress *p); /* leaves a clean line */
/* The bar as text, for `elapsed_ns` since the start; cut at `room`. */
void term_progress_text(const struct term_progress *p, uint64_t elapsed_ns,
                        char *buf, size_t room);

/* ---- times ----
 *
 * Local time and "3 min ago" where a person reads; RFC 3339 in UTC, for
 * scripts, until term_time_local says otherwise.
 */

/* Whether times are for a person from here on. */
void term_time_local(bool local);
/* Read the local time zone for localtime_r; complain once if the zone is
 * unknown. */
void term_time_zone(void);

/* "2026-11-22 14:22:01+01:00": local, and time_parse reads it back. */
const char *term_time(uint64_t wall_ns, char buf[TIME_TEXT]);
/* "3 min ago", or "in 3 min". */
const char *term_time_ago(uint64_t wall_ns, char buf[TIME_TEXT]);
/* "2026-11-22 14:22:01+01:00, 3 min ago" */
const char *term_time_both(uint64_t wall_ns, char buf[TIME_TEXT]);

#endif
