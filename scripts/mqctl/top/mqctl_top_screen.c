/* mqctl_top_screen.c - top on a terminal: its keys and rounds (see
 * mqctl_top.h) */
#include <locale.h>
#include <ncurses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "scripts/mqctl/mqctl_ask.h"
#include "common/text/complain.h"
#include "scripts/mqctl/top/mqctl_top.h"

/* chosen_row - NULL: there is no queue, or it cannot be looked at */
static const struct top_row *chosen_row(const struct screen *s)
{
    const struct top_row *r = s->chosen < s->top->count && s->top->rows
                                  ? s->top->rows[s->chosen]
                                  : NULL;

    return r && r->looked ? r : NULL;
}

/* order - tell the worker of the chosen queue */
static void order(struct screen *s, const char *line)
{
    const struct top_row *r = chosen_row(s);
    const char *error = NULL;
    json_t *answer = NULL;
    struct problem p;

    if (!r || !r->v.has_folder)
        strlcpy(s->note, "there is no worker to tell", sizeof s->note);
    else if (ask(&r->v.dir, r->queue, line, &answer, &p) < 0)
        strlcpy(s->note, p.text, sizeof s->note);
    else if (json_unpack(answer, "{s:s}", "error", &error) == 0)
        strlcpy(s->note, error, sizeof s->note);
    else
        snprintf(s->note, sizeof s->note, "%s: %s", r->queue, line);
    json_decref(answer);
}

/* cap_change - one more or fewer */
static void cap_change(struct screen *s, int change)
{
    const struct top_row *r = chosen_row(s);
    char line[64];

    if (!r)
        return;
    snprintf(line, sizeof line, "set max-concurrency=%d",
             (int)snapshot_cap(&r->v) + change);
    order(s, line);
}

/* key - false: it ends. A key that changes something is looked at at once. */
static bool key(struct screen *s, int c)
{
    const struct top_row *r = chosen_row(s);
    bool paused = r && snapshot_paused(&r->v);

    switch (c) {
    case 'q':
    case 'Q':
        return false;
    case 'p':
        order(s, paused ? "resume" : "pause");
        break;
    case '+':
    case '=':
        cap_change(s, +1);
        break;
    case '-':
        cap_change(s, -1);
        break;
    case 'd':
        s->letters = !s->letters;
        break;
    case KEY_UP:
    case 'k':
        s->chosen -= s->chosen > 0;
        break;
    case KEY_DOWN:
    case 'j':
        s->chosen += s->chosen + 1 < s->top->count;
        break;
    default:
        break;
    }
    return true;
}

/* screen_open - the terminal as we want it */
static void screen_open(struct screen *s)
{
    const char *plain = getenv("NO_COLOR");

    /* NOLINTNEXTLINE(concurrency-mt-unsafe): mqctl has no threads */
    setlocale(LC_CTYPE, "");
    initscr();
    cbreak();
    noecho();
    curs_set(0);
    keypad(stdscr, TRUE);
    s->colour = has_colors() && !(plain && *plain);
    if (!s->colour)
        return;
    start_color();
    use_default_colors();
    init_pair(COLOUR_BAD, COLOR_RED, -1);
    init_pair(COLOUR_WARN, COLOR_YELLOW, -1);
}

/* rounds - look, draw, wait for a key or the next look */
static int rounds(struct screen *s)
{
    const struct options *o = s->top->o;
    bool on = true;

    for (uint64_t round = 0; on && (!o->rounds || round < o->rounds); round++) {
        uint64_t end = clock_mono_ns() + o->interval_ns, now;

        if (top_look(s->top) < 0)
            return -1;
        screen_draw(s);
        while (on && (now = clock_mono_ns()) < end) {
            int c;

            timeout((int)((end - now) / NS_PER_MS) + 1);
            c = getch();
            if (c == ERR)
                break;
            on = key(s, c);
            if (strchr("p+=-", c) && c < 128)
                break; /* see what came of it */
            screen_draw(s);
        }
    }
    return 0;
}

int top_screen(struct top *t)
{
    struct screen s = {.top = t};
    int err;

    screen_open(&s);
    err = rounds(&s);
    endwin();
    return err ? complain_memory() : 0;
}
