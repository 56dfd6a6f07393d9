/* chosen.c - what top shows of the queue that is chosen (see
 * view.h) */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/safe_text.h"
#include "common/text/term.h"
#include "scripts/mqctl/top/draw/view.h"

#define SPARK_AT   24 /* where curves begin */
#define TALL       36 /* lines of a screen with both lists */
#define GROUP_MOST 24
#define BODY_LEAST 60 /* columns beside the error, for a body as well */

bool view_tall(int rows)
{
    return rows >= TALL;
}

/* since - how long ago, short */
static const char *since(const struct view *v, uint64_t wall_ns,
                         char buf[TOP_SHORT])
{
    return top_duration(v->now_ns > wall_ns ? v->now_ns - wall_ns : 1, buf);
}

/* ---- how it went ---- */

/* ended - numbers that are never cut, then the last error */
static void ended(const struct view *v, struct canvas *c,
                  const struct view_queue *q)
{
    char numbers[160], oldest[TOP_SHORT] = "-", text[CANVAS_TEXT];
    int room, name;

    safe_text_copy(text, sizeof text, q->name, strlen(q->name));
    name = term_columns(text);
    if (v->detail->oldest_ns)
        since(v, v->detail->oldest_ns, oldest);
    snprintf(numbers, sizeof numbers,
             "%" PRIu64 " done, %" PRIu64 " retried, %" PRIu64
             " dead; oldest in custody %s",
             q->done, q->retried, q->died, oldest);
    room = c->columns - term_columns(numbers) - 2;
    if (room > name)
        room = name;
    if (room == name || room > 6) { /* less of a name says nothing */
        canvas_cell(c, 0, room, CANVAS_MIDDLE, PAINT_PLAIN, text);
        canvas_put(c, room, PAINT_PLAIN, ": %s", numbers);
    } else {
        canvas_put(c, 0, PAINT_PLAIN, "%s", numbers);
    }
    c->y++;
    if (*q->last_error) {
        canvas_put(c, 0, PAINT_PLAIN, "last error %s", q->last_error);
        c->y++;
    }
}

/* spark - its name, the most that it shows, then the curve */
static void spark(const struct view *v, struct canvas *c, const char *name,
                  const struct history *h, const uint64_t *ring,
                  const char *most)
{
    if (c->columns <= SPARK_AT)
        return;
    canvas_put(c, 0, PAINT_PLAIN, "%-8s most %s", name, most);
    view_spark(v, c, SPARK_AT, c->columns - SPARK_AT, h, ring);
    c->y++;
}

/* sparks - depth, rate and latency over the last looks */
static void sparks(const struct view *v, struct canvas *c,
                   const struct history *h)
{
    int width = history_width(h, c->columns - SPARK_AT);
    char text[32];

    snprintf(text, sizeof text, "%" PRIu64, history_most(h, h->depth, width));
    spark(v, c, "depth", h, h->depth, text);
    snprintf(text, sizeof text, "%" PRIu64 "/s",
             history_most(h, h->rates, width));
    spark(v, c, "rate", h, h->rates, text);
    spark(v, c, "latency", h, h->waits,
          top_duration(history_most(h, h->waits, width), text));
    c->y++;
}

/* ---- what it runs ---- */

/* group_width - columns for groups; 0: none of them is in one */
static int group_width(const struct view_detail *d)
{
    int most = 0, n;

    for (size_t i = 0; i < d->flight_count; i++)
        if ((n = term_columns(d->flights[i].group)) > most)
            most = n;
    return most == 0 ? 0 : most < 5 ? 5 : most < GROUP_MOST ? most : GROUP_MOST;
}

/* flights - messages that handlers have, the longest first */
static void flights(const struct view *v, struct canvas *c)
{
    const struct view_detail *d = v->detail;
    int group = group_width(d), body = 55 + (group ? group + 1 : 0);
    char time[TOP_SHORT];

    canvas_put(c, 0, PAINT_BOLD, "%-26s %8s %8s %8s", "IN FLIGHT", "FOR", "PID",
               "ATTEMPT");
    canvas_cell(c, 55, group, CANVAS_LEFT, PAINT_BOLD, "GROUP");
    canvas_put(c, body, PAINT_BOLD, "BODY");
    c->y++;
    if (d->flight_count == 0)
        canvas_put(c, 0, PAINT_PLAIN, "nothing runs");
    c->y += d->flight_count == 0;
    for (size_t i = 0; i < d->flight_count && c->y < c->end; i++, c->y++) {
        const struct view_flight *f = &d->flights[i];

        canvas_put(c, 0, PAINT_PLAIN, "%-26s %8s %8d %8" PRIu32, f->id,
                   since(v, f->started_ns, time), f->pid, f->attempt);
        canvas_cell(c, 55, group, CANVAS_LEFT, PAINT_PLAIN, f->group);
        canvas_cell(c, body, c->columns - body, CANVAS_LEFT, PAINT_PLAIN,
                    f->body);
    }
}

/* ---- its dead letters ---- */

/* error_width - columns for errors; what is left has bodies, if that is
 * enough to read any */
static int error_width(const struct canvas *c)
{
    int room = c->columns - 41;

    return room >= 2 * BODY_LEAST ? room / 2 : room;
}

/* first_letter - so that the one that is chosen is shown */
static size_t first_letter(const struct view *v, const struct canvas *c)
{
    size_t room = c->end > c->y ? (size_t)(c->end - c->y) : 1;

    return v->letters && v->letter >= room ? v->letter - room + 1 : 0;
}

static void letters(const struct view *v, struct canvas *c)
{
    const struct view_detail *d = v->detail;
    int error = error_width(c), body = 42 + error;
    char time[TOP_SHORT];

    canvas_put(c, 0, PAINT_BOLD, "%8s %12s %6s  %-10s %s", "LETTER", "DIED",
               "TRIES", "REASON", "ERROR");
    canvas_put(c, body, PAINT_BOLD, "BODY");
    c->y++;
    if (d->letter_count == 0)
        canvas_put(c, 0, PAINT_PLAIN, "%s",
                   d->no_letters ? d->no_letters : "no dead letters");
    for (size_t i = first_letter(v, c); i < d->letter_count && c->y < c->end;
         i++, c->y++) {
        const struct view_letter *l = &d->letters[i];

        if (v->letters && i == v->letter)
            canvas_choose(c);
        canvas_put(c, 0, PAINT_PLAIN,
                   "%8" PRId64 " %8s ago %6" PRIu32 "  %-10s", l->row,
                   since(v, l->died_ns, time), l->attempts, l->reason);
        canvas_cell(c, 41, error, CANVAS_LEFT, PAINT_PLAIN, l->error);
        canvas_cell(c, body, c->columns - body, CANVAS_LEFT, PAINT_PLAIN,
                    l->body);
    }
}

/* both - what runs above, at most half of the lines, and letters below */
static void both(const struct view *v, struct canvas *c)
{
    int end = c->end, most = c->y + (c->end - c->y) / 2;

    c->end = most;
    flights(v, c);
    c->end = end;
    c->y++;
    letters(v, c);
}

void view_chosen(const struct view *v, struct canvas *c)
{
    const struct view_queue *q = &v->queues[v->chosen];

    if (q->problem)
        return;
    ended(v, c, q);
    if (!v->letters || view_tall(c->rows)) /* who asks for letters has them */
        sparks(v, c, q->past);
    else
        c->y++;
    if (view_tall(c->rows))
        both(v, c);
    else if (v->letters)
        letters(v, c);
    else
        flights(v, c);
}
