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
    bool colour;
};

/* ---- drawing ---- */

static attr_t paint_attribute(const struct screen *s, enum paint paint)
{
    attr_t bad = s->colour ? (attr_t)COLOR_PAIR(COLOUR_BAD) : 0;
    attr_t warn = s->colour ? (attr_t)COLOR_PAIR(COLOUR_WARN) : 0;

    return paint == PAINT_BOLD     ? A_BOLD
           : paint == PAINT_DIM    ? A_DIM
           : paint == PAINT_SORTED ? A_BOLD | A_UNDERLINE
           : paint == PAINT_BAD    ? A_BOLD | bad
           : paint == PAINT_WARN   ? A_BOLD | warn
                                   : A_NORMAL;
}

/* Draw the view on the terminal in its present size. */
static int screen_draw(struct screen *s)
{
    struct canvas c;

    if (session_update(&s->session, COLS, LINES) < 0 ||
        canvas_open(&c, COLS, LINES) < 0)
        return -ENOMEM;
    view_draw(&s->session.view, &c);
    erase();
    for (int y = 0; y < c.rows; y++) {
        const struct canvas_line *l = &c.lines[y];
        attr_t base = l->chosen ? A_REVERSE : A_NORMAL;

        attrset((int)base);
        if (l->chosen)
            mvhline(y, 0, ' ' | base, COLS);
        move(y, 0);
        for (size_t i = 0; i < l->count; i++) {
            size_t from = i ? l->parts[i].from : 0;
            size_t end =
                i + 1 < l->count ? l->parts[i + 1].from : strlen(l->text);

            attrset((int)(base | paint_attribute(s, l->parts[i].paint)));
            addnstr(l->text + from, (int)(end - from));
        }
        attrset(A_NORMAL);
    }
    refresh();
    canvas_close(&c);
    return 0;
}

/* ---- keys ---- */

/* Translate a key of curses to one of the table of keys. */
static int key_translate(int c)
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

/* Obey keys, and draw after each, until a moment or the end. */
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
                               : session_key(&s->session, key_translate(c));
        *on = next != SESSION_ENDS;
        if (!*on)
            return 0;
        if ((next == SESSION_LOOKS && top_refresh(s->session.top) < 0) ||
            screen_draw(s) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* Restore the terminal if the program exits early (json_needs_memory). */
static void screen_restore(void)
{
    if (!isendwin())
        endwin();
}

int top_screen(struct top *t)
{
    static struct screen s;
    const struct options *o = t->o;
    const char *plain = getenv("NO_COLOR");
    bool on = true;
    int err = 0;

    /* NOLINTNEXTLINE(concurrency-mt-unsafe): mqctl has no threads */
    setlocale(LC_CTYPE, "");
    session_init(&s.session, t, strcmp(nl_langinfo(CODESET), "UTF-8") == 0);
    initscr();
    atexit(screen_restore);
    cbreak();
    noecho();
    curs_set(0);
    keypad(stdscr, TRUE);
    s.colour = has_colors() && !(plain && *plain);
    if (s.colour) {
        start_color();
        use_default_colors();
        init_pair(COLOUR_BAD, COLOR_RED, -1);
        init_pair(COLOUR_WARN, COLOR_YELLOW, -1);
    }
    for (uint64_t round = 0; !err && on && (!o->rounds || round < o->rounds);
         round++) {
        uint64_t end = clock_mono_ns() + o->interval_ns;

        if (top_look(t) < 0 || screen_draw(&s) < 0 ||
            keys_until(&s, end, &on) < 0)
            err = -ENOMEM;
    }
    endwin();
    session_fini(&s.session);
    return err ? complain_memory() : 0;
}
