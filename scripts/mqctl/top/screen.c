/* screen.c - top on a terminal (see top.h) */
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <ncurses.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/cli/complain.h"
#include "scripts/mqctl/top/session.h"

enum { COLOUR_BAD = 1, COLOUR_WARN };

struct screen {
    struct session session;
    struct canvas canvas;
    bool colour;
};

/* ---- drawing ---- */

static attr_t attribute(const struct screen *s, enum paint paint)
{
    attr_t colour = s->colour ? (attr_t)COLOR_PAIR(COLOUR_WARN) : 0;

    switch (paint) {
    case PAINT_BOLD:
        return A_BOLD;
    case PAINT_DIM:
        return A_DIM;
    case PAINT_SORTED:
        return A_BOLD | A_UNDERLINE;
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

    if (session_update(&s->session, COLS, LINES) < 0)
        return -ENOMEM;
    if (c->columns != COLS || c->rows != LINES) {
        canvas_close(c);
        if (canvas_open(c, COLS, LINES) < 0)
            return -ENOMEM;
    }
    canvas_clear(c);
    view_draw(&s->session.view, c);
    erase();
    for (int y = 0; y < c->rows; y++)
        line_show(s, y);
    refresh();
    return 0;
}

/* ---- keys ---- */

/* key_of - what curses read, as the table of keys has it */
static int key_of(int c)
{
    static const struct {
        int curses, key;
    } keys[] = {{KEY_UP, TOP_KEY_UP},       {KEY_DOWN, TOP_KEY_DOWN},
                {KEY_LEFT, TOP_KEY_LEFT},   {KEY_RIGHT, TOP_KEY_RIGHT},
                {KEY_ENTER, TOP_KEY_ENTER}, {'\n', TOP_KEY_ENTER},
                {'\r', TOP_KEY_ENTER}};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].curses == c)
            return keys[i].key;
    return c < 0x80 ? c : 0;
}

/* keys_until - each is obeyed and shown, until a moment or the end */
static int keys_until(struct screen *s, uint64_t end_ns, bool *on)
{
    uint64_t now;
    int c;

    while ((now = clock_mono_ns()) < end_ns) {
        enum session_next next;

        timeout((int)((end_ns - now) / NS_PER_MS) + 1);
        c = getch();
        if (c == ERR)
            return 0;
        next = c == KEY_RESIZE ? SESSION_GOES_ON
                               : session_key(&s->session, key_of(c));
        *on = next != SESSION_ENDS;
        if (!*on)
            return 0;
        if (next == SESSION_LOOKS && top_refresh(s->session.top) < 0)
            return -ENOMEM;
        if (show(s) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* rounds - look, draw, obey keys until the next look */
static int rounds(struct screen *s)
{
    const struct options *o = s->session.top->o;
    bool on = true;

    for (uint64_t round = 0; on && (!o->rounds || round < o->rounds); round++) {
        uint64_t end = clock_mono_ns() + o->interval_ns;

        if (top_look(s->session.top) < 0 || show(s) < 0 ||
            keys_until(s, end, &on) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* screen_left - where the program ends under it (json_needs_memory) */
static void screen_left(void)
{
    if (!isendwin())
        endwin();
}

/* screen_open - the terminal as we want it */
static void screen_open(struct screen *s)
{
    const char *plain = getenv("NO_COLOR");

    initscr();
    atexit(screen_left);
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
}

int top_screen(struct top *t)
{
    static struct screen s;
    int err;

    /* NOLINTNEXTLINE(concurrency-mt-unsafe): mqctl has no threads */
    setlocale(LC_CTYPE, "");
    session_init(&s.session, t, strcmp(nl_langinfo(CODESET), "UTF-8") == 0);
    screen_open(&s);
    err = rounds(&s);
    endwin();
    canvas_close(&s.canvas);
    session_fini(&s.session);
    return err ? complain_memory() : 0;
}
