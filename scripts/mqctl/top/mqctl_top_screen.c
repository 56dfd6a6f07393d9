/* mqctl_top_screen.c - see mqctl_top_screen.h */
#include "scripts/mqctl/top/mqctl_top_screen.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <ncurses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/state/statedir.h"
#include "common/text/complain.h"
#include "scripts/mqctl/mqctl_ask.h"
#include "scripts/mqctl/top/mqctl_top_model.h"

#define NOTE 512
#define HOST 65

enum { COLOUR_BAD = 1, COLOUR_WARN };

struct screen {
    struct top *top;
    char chosen[QUEUE_NAME_MAX]; /* the queue; "": the first */
    char note[NOTE], host[HOST], state_dir[PATH_MAX];
    bool colour;
    struct view_queue *queues; /* of the view: `room` of them */
    size_t room;
    struct view_detail detail;
    struct view view;
    struct canvas canvas;
};

/* ---- what is shown ---- */

/* model_update - all of the view, as the last look left it; -ENOMEM */
static int model_update(struct screen *s)
{
    struct view *v = &s->view;
    struct top *t = s->top;

    if (t->count > s->room) {
        struct view_queue *more =
            reallocarray(s->queues, t->count, sizeof *more);

        if (!more)
            return -ENOMEM;
        s->queues = more;
        s->room = t->count;
    }
    v->chosen = 0;
    for (size_t i = 0; i < t->count; i++) {
        model_queue(&s->queues[i], t->rows[i]);
        if (strcmp(s->chosen, t->rows[i]->queue) == 0)
            v->chosen = i;
    }
    v->queues = s->queues;
    v->count = t->count;
    v->trouble = t->trouble;
    v->now_ns = clock_wall_ns();
    if (t->count)
        model_detail(&s->detail, t->rows[v->chosen],
                     v->letters || view_tall(LINES) ? (size_t)LINES : 0);
    return 0;
}

/* ---- drawing ---- */

static attr_t attribute(const struct screen *s, enum paint paint)
{
    attr_t colour = s->colour ? (attr_t)COLOR_PAIR(COLOUR_WARN) : 0;

    switch (paint) {
    case PAINT_BOLD:
        return A_BOLD;
    case PAINT_DIM:
        return A_DIM;
    case PAINT_BAD:
        colour = s->colour ? (attr_t)COLOR_PAIR(COLOUR_BAD) : 0;
        return colour | A_BOLD;
    case PAINT_WARN:
        return colour | A_BOLD;
    default:
        return A_NORMAL;
    }
}

/* line_show - one line of the canvas, part by part */
static void line_show(const struct screen *s, int y)
{
    const struct canvas_line *l = &s->canvas.lines[y];
    attr_t base = l->chosen ? A_REVERSE : A_NORMAL;

    attrset((int)base);
    if (l->chosen)
        mvhline(y, 0, ' ' | base, COLS);
    move(y, 0);
    for (size_t i = 0; i < l->count; i++) {
        size_t from = i ? l->parts[i].from : 0;
        size_t end = i + 1 < l->count ? l->parts[i + 1].from : strlen(l->text);

        attrset((int)(base | attribute(s, l->parts[i].paint)));
        addnstr(l->text + from, (int)(end - from));
    }
    attrset(A_NORMAL);
}

/* show - the view on the terminal, whatever its size is by now */
static int show(struct screen *s)
{
    struct canvas *c = &s->canvas;

    if (c->columns != COLS || c->rows != LINES) {
        canvas_close(c);
        if (canvas_open(c, COLS, LINES) < 0)
            return -ENOMEM;
    }
    canvas_clear(c);
    s->view.note = s->note;
    view_draw(&s->view, c);
    erase();
    for (int y = 0; y < c->rows; y++)
        line_show(s, y);
    refresh();
    return 0;
}

/* ---- keys ---- */

/* chosen_row - NULL: there is no queue, or it cannot be looked at */
static const struct top_row *chosen_row(const struct screen *s)
{
    const struct top_row *r =
        s->top->count ? s->top->rows[s->view.chosen] : NULL;

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

/* choose - the queue above or below */
static void choose(struct screen *s, int change)
{
    size_t at = s->view.chosen;

    if (change < 0)
        at -= at > 0;
    else
        at += at + 1 < s->top->count;
    if (at < s->top->count)
        strlcpy(s->chosen, s->top->rows[at]->queue, sizeof s->chosen);
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
        s->view.letters = !s->view.letters;
        break;
    case KEY_UP:
    case 'k':
        choose(s, -1);
        break;
    case KEY_DOWN:
    case 'j':
        choose(s, +1);
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
    struct problem p;

    /* NOLINTNEXTLINE(concurrency-mt-unsafe): mqctl has no threads */
    setlocale(LC_CTYPE, "");
    initscr();
    cbreak();
    noecho();
    curs_set(0);
    keypad(stdscr, TRUE);
    s->colour = has_colors() && !(plain && *plain);
    if (s->colour) {
        start_color();
        use_default_colors();
        init_pair(COLOUR_BAD, COLOR_RED, -1);
        init_pair(COLOUR_WARN, COLOR_YELLOW, -1);
    }
    if (gethostname(s->host, sizeof s->host - 1) < 0 ||
        statedir_root(s->state_dir, s->top->o->state_dir, &p) < 0)
        s->state_dir[0] = '\0';
    s->view.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    s->view.host = s->host;
    s->view.state_dir = s->state_dir;
    s->view.detail = &s->detail;
}

/* rounds - look, draw, wait for a key or the next look */
static int rounds(struct screen *s)
{
    const struct options *o = s->top->o;
    bool on = true;

    for (uint64_t round = 0; on && (!o->rounds || round < o->rounds); round++) {
        uint64_t end = clock_mono_ns() + o->interval_ns, now;

        if (top_look(s->top) < 0 || model_update(s) < 0 || show(s) < 0)
            return -ENOMEM;
        while (on && (now = clock_mono_ns()) < end) {
            int c;

            timeout((int)((end - now) / NS_PER_MS) + 1);
            c = getch();
            if (c == ERR)
                break;
            on = key(s, c);
            if (strchr("p+=-", c) && c < 128)
                break; /* see what came of it */
            if (model_update(s) < 0 || show(s) < 0)
                return -ENOMEM;
        }
    }
    return 0;
}

int top_screen(struct top *t)
{
    static struct screen s;
    int err;

    s.top = t;
    screen_open(&s);
    err = rounds(&s);
    endwin();
    canvas_close(&s.canvas);
    free(s.queues);
    return err ? complain_memory() : 0;
}
