/* term_progress.c - see term_progress.h */
#include "common/text/term_progress.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/text/term.h"

#define BAR_COLUMNS   20
#define DRAW_EVERY_NS (100 * NS_PER_MS)

void term_progress_start(struct term_progress *p, const char *what,
                         uint64_t total)
{
    *p = (struct term_progress){
        .what = what, .total = total, .on = term_is_terminal(stderr)};
    if (p->on)
        p->started_ns = p->drawn_ns = clock_mono_ns();
}

/* left_text - "  0:03 left", or nothing while there is nothing to judge by */
static void left_text(char *buf, size_t room, uint64_t left, double rate)
{
    double seconds = rate > 0 ? (double)left / rate : 1e9;
    unsigned s = seconds < 100 * 3600 ? (unsigned)seconds : 0;

    buf[0] = '\0';
    if (seconds >= 100 * 3600)
        return;
    if (s >= 3600)
        snprintf(buf, room, "  %u:%02u:%02u left", s / 3600, s / 60 % 60,
                 s % 60);
    else
        snprintf(buf, room, "  %u:%02u left", s / 60, s % 60);
}

void term_progress_text(const struct term_progress *p, uint64_t elapsed_ns,
                        char *buf, size_t room)
{
    double rate = 0;
    char bar[BAR_COLUMNS + 1], left[32];
    uint64_t done;
    double part;

    if (elapsed_ns > 0)
        rate = (double)p->done * (double)NS_PER_S / (double)elapsed_ns;
    if (p->total == 0) {
        snprintf(buf, room, "%s %" PRIu64 "  %.0f/s%s%s", p->what, p->done,
                 rate, p->note ? "  " : "", p->note ? p->note : "");
        return;
    }
    done = p->done < p->total ? p->done : p->total;
    part = (double)done / (double)p->total;
    memset(bar, ' ', BAR_COLUMNS);
    memset(bar, '#', (size_t)(part * BAR_COLUMNS));
    bar[BAR_COLUMNS] = '\0';
    if (p->note)
        snprintf(left, sizeof left, "  %s", p->note);
    else
        left_text(left, sizeof left, p->total - done, rate);
    snprintf(buf, room, "%s [%s] %" PRIu64 "/%" PRIu64 "  %d%%  %.0f/s%s",
             p->what, bar, p->done, p->total, (int)(part * 100), rate, left);
}

/* Return true unless stderr is a terminal and the program is a background job
 * there: then the line with the cursor belongs to the shell. */
static bool owns_line(void)
{
    pid_t foreground = tcgetpgrp(STDERR_FILENO);

    return foreground < 0 || foreground == getpgrp();
}

/* Return true if the terminal takes text now, so it is not stopped (Ctrl-S) and
 * its reader keeps up. */
static bool takes_text(void)
{
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};

    return poll(&room, 1, 0) > 0 && room.revents == POLLOUT;
}

/* Draw the bar, unless that would delay the work. */
static void draw(struct term_progress *p, uint64_t now)
{
    char text[160];
    int taken;
    size_t fits;

    if (!owns_line() || !takes_text())
        return;
    p->drawn_ns = now;
    term_progress_text(p, now - p->started_ns, text, sizeof text);
    fits = term_fit(text, term_width(stderr) - 1, &taken);
    fprintf(stderr, "\r%.*s\033[K", (int)fits, text);
}

void term_progress_step(struct term_progress *p, uint64_t done)
{
    bool waited = p->note != NULL;
    uint64_t now;

    p->done = done;
    p->note = NULL;
    if (!p->on)
        return;
    now = clock_mono_ns();
    if (waited || now - p->drawn_ns >= DRAW_EVERY_NS)
        draw(p, now);
}

/* term_progress_wait - drawn at once: no step will do it */
void term_progress_wait(struct term_progress *p, const char *note)
{
    p->note = note;
    if (p->on)
        draw(p, clock_mono_ns());
}

void term_progress_clear(const struct term_progress *p)
{
    if (p->on && p->drawn_ns != p->started_ns && owns_line() && takes_text())
        fputs("\r\033[K", stderr);
}

void term_progress_end(struct term_progress *p)
{
    term_progress_clear(p);
    p->on = false;
}
