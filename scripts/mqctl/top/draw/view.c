/* view.c - the whole screen (see view.h)
 *
 * From top to bottom: a title, a table of queues with one chosen, what its
 * handlers do and how it went, a line for messages, a line of keys.
 */
#include "scripts/mqctl/top/draw/view.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/text/term.h"
#include "scripts/mqctl/top/draw/keys.h"

#define CLOCK 8 /* columns */

/* title - who, where, how many, when */
static void title(const struct view *v, struct canvas *c)
{
    char now[TIME_TEXT];
    int room = c->columns - CLOCK - 1, left;

    canvas_put(c, 0, PAINT_BOLD, "mqctl top   %zu queue%s%s%s%s   %s", v->count,
               term_plural(v->count), v->sort || v->reverse ? " by " : "",
               v->sort || v->reverse ? view_sort_title(v->sort) : "",
               v->reverse ? ", reversed" : "", v->host);
    left = room - c->lines[c->y].columns - 3;
    canvas_cell(c, c->lines[c->y].columns + 3, left > 6 ? left : 0,
                CANVAS_MIDDLE, PAINT_PLAIN, v->state_dir);
    term_time(v->now_ns, now);
    canvas_put(c, room, PAINT_BOLD, "%.8s", now + 11);
    c->y += 2;
}

/* foot - the two last lines, which nothing else writes to */
static void foot(const struct view *v, struct canvas *c)
{
    c->end = c->rows;
    c->y = c->rows - 2;
    if (v->question)
        canvas_put(c, 0, PAINT_BOLD, "%s", v->question);
    else
        canvas_put(c, 0, PAINT_PLAIN, "%s", v->note);
    c->y = c->rows - 1;
    if (v->question)
        canvas_put(c, 0, PAINT_BOLD, "y does it, any other key does not");
    else if (v->help)
        canvas_put(c, 0, PAINT_DIM, "any key goes back");
    else if (v->page)
        canvas_put(c, 0, PAINT_DIM,
                   "up down scroll  r replay  x discard  any other key goes "
                   "back");
    else
        keys_foot(c, v->letters);
}

/* help - the keys, and what colours mean */
static void help(struct canvas *c)
{
    keys_help(c);
    c->y++;
    canvas_put(c, 0, PAINT_BAD, "red");
    canvas_put(c, 14, PAINT_PLAIN, "nothing is taken until somebody acts");
    c->y++;
    canvas_put(c, 0, PAINT_WARN, "yellow");
    canvas_put(c, 14, PAINT_PLAIN,
               "somebody has to look: paused, full, dead letters");
}

/* ---- a page ---- */

#define PAGE_FROM 2 /* lines above it */
#define PAGE_WIDE 240

/* page_line - the next line of a text that fits: its bytes; *next: of the one
 * after it, NULL: there is none */
static int page_line(const char *text, int columns, const char **next)
{
    size_t line = strcspn(text, "\n"), fits;
    char part[4 * PAGE_WIDE + 1];
    int taken;

    columns = columns > PAGE_WIDE ? PAGE_WIDE : columns < 1 ? 1 : columns;
    snprintf(part, sizeof part, "%.*s", (int)line, text);
    fits = term_fit(part, columns, &taken);
    if (fits < line) {
        *next = text + (fits ? fits : line);
        return (int)(fits ? fits : line);
    }
    *next = text[line] && text[line + 1] ? text + line + 1 : NULL;
    return (int)line;
}

size_t view_page_rest(const char *page, int columns, int rows)
{
    size_t lines = 0, room = rows > PAGE_FROM + 2 ? (size_t)rows - 4 : 1;

    for (const char *at = page; at; lines++)
        (void)page_line(at, columns, &at);
    return lines > room ? lines - room : 0;
}

static void page(const struct view *v, struct canvas *c)
{
    size_t line = 0;

    for (const char *at = v->page; at; line++) {
        const char *text = at;
        int bytes = page_line(text, c->columns, &at);

        if (line < v->page_from)
            continue;
        canvas_put(c, 0, PAINT_PLAIN, "%.*s", bytes, text);
        c->y++;
    }
}

/* ---- the whole ---- */

void view_draw(const struct view *v, struct canvas *c)
{
    c->y = 0;
    c->end = c->rows - 2;
    if (c->end > 0)
        title(v, c);
    if (v->help) {
        help(c);
    } else if (v->page) {
        page(v, c);
    } else if (v->count == 0) {
        canvas_put(c, 0, PAINT_PLAIN, "%s",
                   v->trouble[0] ? v->trouble
                                 : "no worker has run with this state "
                                   "directory");
    } else {
        view_table(v, c);
        c->y++;
        view_chosen(v, c);
    }
    foot(v, c);
}
