/* term.h - output for people: width, colour, progress bar, times
 *
 * WHAT   Facts about a terminal; colour, on terminals without NO_COLOR; a
 *        progress bar on stderr; times for people. term_table.h has tables.
 * WHO    The programs mqsend, mqdlq and mqctl, in their only thread; main of
 *        mqworker, before it starts threads.
 */
#ifndef COMMON_CLI_TERM_H
#define COMMON_CLI_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/clock.h"

bool term_is_terminal(FILE *out);
/* Return the columns of a terminal: its own, else $COLUMNS, else 80. For other
 * files return 0, which means "no limit" to tables. */
int term_width(FILE *out);

enum term_colour {
    TERM_PLAIN,
    TERM_BOLD,
    TERM_DIM,
    TERM_RED,
    TERM_GREEN,
    TERM_YELLOW,
};
/* Return the escape sequence, or "" if colour is off. */
const char *term_colour(FILE *out, enum term_colour colour);

/* Return the columns of a UTF-8 text. */
int term_columns(const char *text);
/* Return how many bytes of `text` fit into `columns`; *taken becomes the
 * columns of these bytes. */
size_t term_fit(const char *text, int columns, int *taken);
/* Return the longest end of `text` that fits into `columns`. */
const char *term_tail(const char *text, int columns);

/* Print a text as lines of at most `width` columns (0: one line), escaped
 * (safe_text.h). The first line starts at column `at`, the others at `indent`.
 * A command in `...` is never split, even if it is too long. */
void term_words(FILE *out, const char *text, int at, int indent, int width);

/* Return the ending of a noun after a number: "" or "s". */
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
    const char *note; /* shown instead of the time left; NULL: none */
};
/* Start a bar; `total` 0: unknown. */
void term_progress_start(struct term_progress *p, const char *what,
                         uint64_t total);
void term_progress_step(struct term_progress *p, uint64_t done);
/* Show `note`, the reason why the work is waiting, until the next step. */
void term_progress_wait(struct term_progress *p, const char *note);
/* Erase the bar before a line is printed to stderr. The next step or wait draws
 * it again. */
void term_progress_clear(const struct term_progress *p);
/* Erase the bar for good. */
void term_progress_end(struct term_progress *p);
/* Print the bar to `buf`, `elapsed_ns` after its start; cut at `room`. */
void term_progress_text(const struct term_progress *p, uint64_t elapsed_ns,
                        char *buf, size_t room);

/* ---- times ----
 *
 * RFC 3339 in UTC, for scripts; after term_time_local(true), local time and
 * "3 min ago", for people.
 */

/* Choose between local times and UTC, from here on. */
void term_time_local(bool local);
/* Read the local time zone for localtime_r; complain once if the zone is
 * unknown. */
void term_time_zone(void);

/* Print "2026-11-22 14:22:01+01:00", which time_parse reads. */
const char *term_time(uint64_t wall_ns, char buf[TIME_TEXT]);
/* Print the time since a wall time, as duration_rough does: "3.2s". */
const char *term_since(uint64_t wall_ns, char buf[DURATION_TEXT]);
/* Print "3 min ago" or "in 3 min". */
const char *term_time_ago(uint64_t wall_ns, char buf[TIME_TEXT]);
/* Print "2026-11-22 14:22:01+01:00, 3 min ago". */
const char *term_time_both(uint64_t wall_ns, char buf[TIME_TEXT]);

#endif
