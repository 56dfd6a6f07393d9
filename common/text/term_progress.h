/* term_progress.h - a progress bar on stderr
 *
 * WHAT   "sending [#####     ] 512/1000  51%  2100/s  0:03 left", drawn at most
 *        ten times a second; nothing if stderr is no terminal.
 * WHO    One thread.
 * OWNS   Nothing; embedded in the caller.
 * FAILS  Never.
 */
#ifndef COMMON_TEXT_TERM_PROGRESS_H
#define COMMON_TEXT_TERM_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
