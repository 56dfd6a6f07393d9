/* term.c - width, colour, progress and times on a terminal (see term.h) */
#include "common/cli/term.h"

#include <inttypes.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"

#define DEFAULT_WIDTH 80

bool term_is_terminal(FILE *out)
{
    return isatty(fileno(out)) == 1;
}

int term_width(FILE *out)
{
    struct winsize size;
    const char *text;
    long columns;

    if (!term_is_terminal(out))
        return 0;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    text = getenv("COLUMNS");
    columns = text ? strtol(text, NULL, 10) : 0;
    return columns > 0 && columns < 10000 ? (int)columns : DEFAULT_WIDTH;
}

const char *term_colour(FILE *out, enum term_colour colour)
{
    static const char *const codes[] = {
        [TERM_PLAIN] = "\033[0m",  [TERM_BOLD] = "\033[1m",
        [TERM_DIM] = "\033[2m",    [TERM_RED] = "\033[31m",
        [TERM_GREEN] = "\033[32m", [TERM_YELLOW] = "\033[33m",
    };

    const char *off = getenv("NO_COLOR"), *kind = getenv("TERM");

    /* no-color.org */
    return term_is_terminal(out) && !(off && *off) && kind &&
                   strcmp(kind, "dumb") != 0
               ? codes[colour]
               : "";
}

/* Return the columns of a character. wcwidth(3) uses the thread's locale, which
 * a program need not have set: use a locale with UTF-8. */
static int rune_columns(uint32_t rune)
{
    static locale_t utf8;
    locale_t before;
    int columns;

    if (rune < 0x300)
        return 1;
    if (!utf8)
        utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (!utf8)
        return 1;
    before = uselocale(utf8);
    columns = wcwidth((wchar_t)rune);
    uselocale(before);
    return columns < 0 ? 1 : columns;
}

size_t term_fit(const char *text, int columns, int *taken)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t size = strlen(text);
    size_t at = 0;

    *taken = 0;
    while (at < size) {
        uint32_t rune;
        size_t n = utf8_read(s + at, size - at, &rune);
        int wide = n ? rune_columns(rune) : 1;

        if (*taken + wide > columns)
            break;
        *taken += wide;
        at += n ? n : 1;
    }
    return at;
}

int term_columns(const char *text)
{
    int columns;

    term_fit(text, INT32_MAX, &columns);
    return columns;
}

const char *term_tail(const char *text, int columns)
{
    int over = term_columns(text) - columns, taken;
    size_t at;

    if (over <= 0)
        return text;
    at = term_fit(text, over, &taken);
    return text + (taken < over ? term_fit(text, over + 1, &taken) : at);
}

void term_words(FILE *out, const char *text, int at, int indent, int width)
{
    char safe[4096];
    const char *end = safe; /* of the word before */
    int taken;

    safe_text_copy(safe, sizeof safe, text, strlen(text));
    for (const char *word = safe; *word; word += strspn(word, " ")) {
        size_t size = strcspn(word, " ");
        const char *open = memchr(word, '`', size);
        const char *close = open ? strchr(open + 1, '`') : NULL;
        bool first = word == safe;
        int blanks = (int)(word - end);
        char copy[sizeof safe];

        /* A command in `...` is one word, because a command copied from two
         * lines would be two commands. */
        if (close && close >= word + size)
            size = (size_t)(close - word) + strcspn(close, " ");
        memcpy(copy, word, size);
        copy[size] = '\0';
        taken = term_columns(copy);
        if (width && !first && at + blanks + taken > width && at > indent) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
        } else {
            fprintf(out, "%*s", blanks, "");
            at += blanks;
        }
        fputs(copy, out);
        at += taken;
        word += size;
        end = word;
    }
}

/* ---- a progress bar ---- */

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

void term_progress_text(const struct term_progress *p, uint64_t elapsed_ns,
                        char *buf, size_t room)
{
    double rate = 0;
    char bar[BAR_COLUMNS + 1], left[32] = "";
    uint64_t done;
    double part, seconds = 1e9;

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
    if (rate > 0)
        seconds = (double)(p->total - done) / rate;
    if (p->note)
        snprintf(left, sizeof left, "  %s", p->note);
    else if (seconds < 3600)
        snprintf(left, sizeof left, "  %u:%02u left", (unsigned)seconds / 60,
                 (unsigned)seconds % 60);
    else if (seconds < 100 * 3600)
        snprintf(left, sizeof left, "  %u:%02u:%02u left",
                 (unsigned)seconds / 3600, (unsigned)seconds / 60 % 60,
                 (unsigned)seconds % 60);
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
static void bar_draw(struct term_progress *p, uint64_t now)
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
        bar_draw(p, now);
}

/* Draw the bar immediately, because no step comes during a wait. */
void term_progress_wait(struct term_progress *p, const char *note)
{
    p->note = note;
    if (p->on)
        bar_draw(p, clock_mono_ns());
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

/* ---- times ---- */

#define MINUTE_NS (60 * NS_PER_S)
#define HOUR_NS   (60 * MINUTE_NS)
#define DAY_NS    (24 * HOUR_NS)

static bool is_local;

void term_time_local(bool local)
{
    is_local = local;
    if (local)
        term_time_zone();
}

void term_time_zone(void)
{
    static bool told;
    const char *unknown = told ? NULL : time_zone_unknown();

    tzset(); /* localtime_r(3) need not read TZ */
    if (unknown)
        complain(0,
                 "unknown time zone TZ=%s: times are shown and read in UTC. "
                 "/usr/share/zoneinfo lists the names (Debian: tzdata)",
                 unknown);
    told = told || unknown;
}

const char *term_time(uint64_t wall_ns, char buf[TIME_TEXT])
{
    time_t seconds = (time_t)(wall_ns / NS_PER_S);
    struct tm t;
    size_t size;

    if (!is_local || !localtime_r(&seconds, &t))
        return time_print(wall_ns, buf);
    size = strftime(buf, TIME_TEXT - 1, "%Y-%m-%d %H:%M:%S%z", &t);
    if (size < 2)
        return time_print(wall_ns, buf);
    memmove(buf + size - 1, buf + size - 2, 3); /* +0100 -> +01:00 */
    buf[size - 2] = ':';
    return buf;
}

const char *term_since(uint64_t wall_ns, char buf[DURATION_TEXT])
{
    uint64_t now = clock_wall_ns();

    return duration_rough(now > wall_ns ? now - wall_ns : 0, buf);
}

const char *term_time_ago(uint64_t wall_ns, char buf[TIME_TEXT])
{
    static const struct {
        const char *unit;
        uint64_t ns,
            most; /* of that unit, before the next larger one is used */
    } units[] = {{"s", NS_PER_S, 120},
                 {"min", MINUTE_NS, 120},
                 {"h", HOUR_NS, 48},
                 {"days", DAY_NS, UINT64_MAX}};
    uint64_t now = clock_wall_ns(), ns;
    bool past = wall_ns <= now;
    size_t i = 0;

    if (!is_local)
        return time_print(wall_ns, buf);
    ns = past ? now - wall_ns : wall_ns - now;
    while (ns / units[i].ns >= units[i].most)
        i++;
    snprintf(buf, TIME_TEXT, "%s%" PRIu64 " %s%s", past ? "" : "in ",
             ns / units[i].ns, units[i].unit, past ? " ago" : "");
    return buf;
}

const char *term_time_both(uint64_t wall_ns, char buf[TIME_TEXT])
{
    char ago[TIME_TEXT];

    term_time(wall_ns, buf);
    if (is_local)
        text_append(buf, TIME_TEXT, ", %.20s", term_time_ago(wall_ns, ago));
    return buf;
}
