/* view.c - the whole screen (see view.h)
 *
 * From top to bottom: a title, a table of queues with one chosen, what its
 * handlers do and how it went, a line for messages, a line of keys.
 */
#include "scripts/mqctl/top/draw/view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/cli/term.h"
#include "scripts/mqctl/top/draw/keys.h"

/* ---- values of the last looks ---- */

/* A value of a ring, `back` looks ago; 0 before the first. */
static uint64_t history_past(const struct history *h, const uint64_t *ring,
                             uint64_t back)
{
    if (back >= h->looks || back >= TOP_HISTORY)
        return 0;
    return ring[(h->looks - 1 - back) % TOP_HISTORY];
}

/* Looks of the last `most` that there are. */
static int history_width(const struct history *h, int most)
{
    int width = most < TOP_HISTORY ? most : TOP_HISTORY;

    return width > 0 && h->looks < (uint64_t)width ? (int)h->looks : width;
}

/* The largest value of the last `width` looks. */
static uint64_t history_most(const struct history *h, const uint64_t *ring,
                             int width)
{
    uint64_t most = 0;

    for (int i = 0; i < width; i++)
        if (history_past(h, ring, (uint64_t)i) > most)
            most = history_past(h, ring, (uint64_t)i);
    return most;
}

/* top_count - a number, "-" if it is not known */
const char *top_count(int64_t n, char buf[TOP_COUNT])
{
    if (n < 0)
        snprintf(buf, TOP_COUNT, "-");
    else
        snprintf(buf, TOP_COUNT, "%" PRId64, n);
    return buf;
}

#define NAME_LEAST  12
#define STATE_LEAST 12
#define STATE_MOST  24
#define CURVE_LEAST 16
#define CURVES      3
#define CELL        64 /* bytes */
#define COMPARED    64 /* names, each with all others, for each picture */

/* ---- what needs a person ---- */

enum paint view_state_paint(const struct view_queue *q)
{
    enum worker_severity severity =
        worker_state_severity(q->state, q->depth > 0 || q->waits > 0);

    return severity == WORKER_BAD    ? PAINT_BAD
           : severity == WORKER_WARN ? PAINT_WARN
                                     : PAINT_PLAIN;
}

/* ---- the columns ---- */

enum { DEPTH, RATE, FLIGHT, WAIT, DEAD, P50, P99, COLUMNS };
static const struct column {
    const char *title;
    int width;
    bool total; /* of all queues makes sense */
} columns[COLUMNS] = {
    [DEPTH] = {"DEPTH", 9, false},  [RATE] = {"RATE/S", 9, true},
    [FLIGHT] = {"FLIGHT", 7, true}, [WAIT] = {"WAIT", 6, true},
    [DEAD] = {"DEAD", 5, true},     [P50] = {"P50", 5, false},
    [P99] = {"P99", 5, false},
};

/* Print what a column says of a queue. Returns the number that orders it. */
static double column_print(const struct view_queue *q, size_t column,
                           char out[CELL])
{
    switch (column) {
    case DEPTH:
        if (q->depth < 0)
            snprintf(out, CELL, "-");
        else
            snprintf(out, CELL, "%ld/%ld", q->depth, q->depth_max);
        return (double)q->depth;
    case RATE:
        snprintf(out, CELL, "%.1f", q->rate);
        return q->rate;
    case FLIGHT:
        snprintf(out, CELL, "%" PRId64 "/%" PRId64, q->running, q->capacity);
        return (double)q->running;
    case WAIT:
        top_count(q->waits, out);
        return (double)q->waits;
    case DEAD:
        top_count(q->dead, out);
        return (double)q->dead;
    case P50:
        top_duration(q->p50, out);
        return (double)q->p50;
    default:
        top_duration(q->p99, out);
        return (double)q->p99;
    }
}

/* Return the paint of a column: senders wait, also because every handler is
 * busy, or messages are dead. */
static enum paint column_paint(const struct view_queue *q, size_t column)
{
    bool full = q->depth_max > 0 && q->depth >= q->depth_max;
    bool busy = full && q->capacity > 0 && q->running >= q->capacity;

    return (column == DEPTH && full) || (column == FLIGHT && busy) ||
                   (column == DEAD && q->dead > 0)
               ? PAINT_WARN
               : PAINT_PLAIN;
}

/* ---- their order ---- */

#define SORT_NAME  0
#define SORT_STATE 1
#define SORTS      2 /* columns before those of numbers */

const size_t view_sorts = SORTS + COLUMNS;

const char *view_sort_title(size_t sort)
{
    return sort == SORT_NAME    ? "QUEUE"
           : sort == SORT_STATE ? "STATE"
                                : columns[sort - SORTS].title;
}

/* rank - what orders them, the largest first */
static double rank(const struct view_queue *q, size_t sort)
{
    char text[CELL];

    if (q->problem) /* nothing is known of it */
        return sort == SORT_STATE ? PAINT_BAD : -2;
    return sort == SORT_NAME    ? 0
           : sort == SORT_STATE ? (double)view_state_paint(q)
                                : column_print(q, sort - SORTS, text);
}

struct order {
    size_t sort;
    bool reverse;
};

static int compare(const void *a, const void *b, void *arg)
{
    const struct view_queue *x = a, *y = b;
    const struct order *o = arg;
    double left = rank(x, o->sort), right = rank(y, o->sort);
    int order = (left < right) - (left > right);

    if (order == 0 && o->sort != SORT_NAME)
        return strcmp(x->name, y->name);
    order = order ? order : strcmp(x->name, y->name);
    return o->reverse ? -order : order;
}

void view_sort(struct view_queue *queues, size_t count, size_t sort,
               bool reverse)
{
    struct order o = {.sort = sort, .reverse = reverse};

    if (count)
        qsort_r(queues, count, sizeof *queues, compare, &o);
}

/* ---- what is where ---- */

/* Where what is, on this screen. */
struct places {
    int name, state; /* columns wide */
    int tail;        /* columns of the end of a name that is cut */
    int curves;      /* where the first one begins */
    int curve;       /* columns of each; 0: there is no room */
};

/* name_of - of a queue, as it can be printed; before anything is cut, so that
 * what is told apart is what is seen */
static const char *name_of(const struct view *v, size_t i,
                           char out[CANVAS_TEXT])
{
    const char *name = v->queues[i].name;

    safe_text_copy(out, CANVAS_TEXT, name, strlen(name));
    return out;
}

/* longest - columns of the longest name, or state */
static int longest(const struct view *v, bool state)
{
    char name[CANVAS_TEXT];
    int most = 0;

    for (size_t i = 0; i < v->count; i++) {
        const struct view_queue *q = &v->queues[i];
        const char *text = !state       ? name_of(v, i, name)
                           : q->problem ? ""
                                        : worker_state_text(q->state);
        int n = term_columns(text);

        most = n > most ? n : most;
    }
    return most;
}

/* clamp - `least` comes before `most` */
static int clamp(int least, int n, int most)
{
    n = n < most ? n : most;
    return n > least ? n : least;
}

/* alike - whether two queues would have one name on the screen */
static bool alike(const struct view *v, int width, int tail)
{
    char name[CANVAS_TEXT], one[CANVAS_TEXT], other[CANVAS_TEXT];

    for (size_t i = 0; i < v->count; i++) {
        canvas_cut(one, name_of(v, i, name), width, tail);
        for (size_t k = 0; k < i; k++) {
            canvas_cut(other, name_of(v, k, name), width, tail);
            if (strcmp(one, other) == 0)
                return true;
        }
    }
    return false;
}

/* tail_find - half of what is shown of a name; where that does not tell all
 * queues apart, as much as does, and one more: a letter alone says little */
static int tail_find(const struct view *v, int width)
{
    int half = (width - CANVAS_MARK) / 2, most = width - CANVAS_MARK, tail;

    if (longest(v, false) <= width || v->count > COMPARED ||
        !alike(v, width, half))
        return half;
    for (tail = half + 1; tail < most && alike(v, width, tail);)
        tail++;
    return alike(v, width, tail) ? half : tail + (tail < most);
}

/* places_find - names first, then states, then curves have what is left */
static struct places places_find(const struct view *v, const struct canvas *c)
{
    struct places p;
    int numbers = 0, room;

    for (size_t i = 0; i < COLUMNS; i++)
        numbers += 1 + columns[i].width;
    room = c->columns - numbers - 2; /* with a blank after name and state */
    p.name = clamp(NAME_LEAST, longest(v, false), room - STATE_LEAST);
    p.tail = tail_find(v, p.name);
    room -= p.name;
    p.state = clamp(STATE_LEAST, longest(v, true),
                    room < STATE_MOST ? room : STATE_MOST);
    p.curves = p.name + 1 + p.state + numbers + 2;
    p.curve = (c->columns - p.curves) / CURVES - 2;
    if (p.curve < CURVE_LEAST)
        p.curve = 0;
    return p;
}

/* ---- curves ---- */

/* One column for each of the last `width` looks, the newest at the right; empty
 * before the first. */
static void view_spark(const struct view *v, struct canvas *c, int x, int width,
                       const struct history *h, const uint64_t *ring)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄",
                                         "▅", "▆", "▇", "█"};
    static const char *const plain[] = {" ", ".", ":", "-", "=",
                                        "+", "*", "%", "#"};
    const char *const *steps = v->utf8 ? blocks : plain;
    char text[TOP_HISTORY * 3 + 1];
    size_t used = 0;
    uint64_t most, value;

    width = history_width(h, width);
    most = history_most(h, ring, width);
    for (int i = width - 1; i >= 0; i--) {
        value = history_past(h, ring, (uint64_t)i);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s",
                                 steps[value ? 1 + (value * 7) / most : 0]);
    }
    text[used] = '\0';
    canvas_put(c, x, PAINT_PLAIN, "%s", text);
}

/* ---- lines ---- */

/* head_paint - of a column's title */
static enum paint head_paint(const struct view *v, size_t sort)
{
    return v->sort == sort ? PAINT_SORTED : PAINT_BOLD;
}

static void heading(const struct view *v, struct canvas *c,
                    const struct places *p)
{
    static const char *const curves[CURVES] = {"LAST DEPTHS", "LAST RATES",
                                               "LAST LATENCIES"};
    int x = p->name + 1 + p->state;

    canvas_put(c, 0, head_paint(v, SORT_NAME), "QUEUE");
    canvas_put(c, p->name + 1, head_paint(v, SORT_STATE), "STATE");
    for (size_t i = 0; i < COLUMNS; x += 1 + columns[i++].width)
        canvas_cell(c, x + 1, columns[i].width, CANVAS_RIGHT,
                    head_paint(v, SORTS + i), columns[i].title);
    for (int i = 0; i < CURVES && p->curve; i++)
        canvas_put(c, p->curves + i * (p->curve + 2), PAINT_BOLD, "%s",
                   curves[i]);
    c->y++;
}

/* numbers - those of a queue, or of all */
static void numbers(struct canvas *c, int x, const struct view_queue *q,
                    bool total)
{
    char text[CELL];

    for (size_t i = 0; i < COLUMNS; x += 1 + columns[i++].width) {
        if (total && !columns[i].total)
            continue;
        column_print(q, i, text);
        canvas_cell(c, x + 1, columns[i].width, CANVAS_RIGHT,
                    column_paint(q, i), text);
    }
}

static void row(const struct view *v, struct canvas *c, const struct places *p,
                size_t i)
{
    const struct view_queue *q = &v->queues[i];
    const struct history *h = q->past;
    char name[CANVAS_TEXT], part[CANVAS_TEXT];
    int next = p->curve + 2;

    if (i == v->chosen)
        canvas_choose(c);
    canvas_cut(part, name_of(v, i, name), p->name, p->tail);
    canvas_cell(c, 0, p->name, CANVAS_LEFT, PAINT_PLAIN, part);
    if (q->problem) {
        canvas_put(c, p->name + 1, PAINT_BAD, "%s", q->problem);
        c->y++;
        return;
    }
    canvas_cell(c, p->name + 1, p->state, CANVAS_LEFT, view_state_paint(q),
                worker_state_text(q->state));
    numbers(c, p->name + 1 + p->state, q, false);
    if (p->curve) {
        view_spark(v, c, p->curves, p->curve, h, h->depth);
        view_spark(v, c, p->curves + next, p->curve, h, h->rates);
        view_spark(v, c, p->curves + 2 * next, p->curve, h, h->waits);
    }
    c->y++;
}

/* total - what can be added up of all queues */
static void total(const struct view *v, struct canvas *c,
                  const struct places *p, size_t shown)
{
    struct view_queue sum = {.depth = -1};
    char name[CELL];

    for (size_t i = 0; i < v->count; i++) {
        const struct view_queue *q = &v->queues[i];

        sum.rate += q->rate;
        sum.running += q->running;
        sum.capacity += q->capacity;
        sum.waits += q->waits > 0 ? q->waits : 0;
        sum.dead += q->dead > 0 ? q->dead : 0;
    }
    if (shown < v->count)
        snprintf(name, sizeof name, "all %zu, %zu not shown", v->count,
                 v->count - shown);
    else
        snprintf(name, sizeof name, "all %zu", v->count);
    canvas_put(c, 0, PAINT_PLAIN, "%s", name);
    numbers(c, p->name + 1 + p->state, &sum, true);
    c->y++;
}

/* The table of queues, from the current line on. */
static void view_table(const struct view *v, struct canvas *c)
{
    struct places p = places_find(v, c);
    bool several = v->count > 1;
    size_t room = c->rows > 16 ? (size_t)c->rows / 2 - 3 : 3;
    size_t rows = room - several, first, shown = 0;

    first = v->chosen >= rows ? v->chosen - rows + 1 : 0;
    heading(v, c, &p);
    for (size_t i = first; i < v->count && shown < rows; i++, shown++)
        row(v, c, &p, i);
    if (several)
        total(v, c, &p, shown);
}

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

static void letters(const struct view *v, struct canvas *c)
{
    const struct view_detail *d = v->detail;
    /* What is left of errors has bodies, if that is enough to read any. */
    int wide = c->columns - 41;
    int error = wide >= 2 * BODY_LEAST ? wide / 2 : wide, body = 42 + error;
    size_t room = 1, i = 0;
    char time[TOP_SHORT];

    canvas_put(c, 0, PAINT_BOLD, "%8s %12s %6s  %-10s %s", "LETTER", "DIED",
               "TRIES", "REASON", "ERROR");
    canvas_put(c, body, PAINT_BOLD, "BODY");
    c->y++;
    if (d->letter_count == 0)
        canvas_put(c, 0, PAINT_PLAIN, "%s",
                   d->no_letters ? d->no_letters : "no dead letters");
    if (c->end > c->y)
        room = (size_t)(c->end - c->y);
    if (v->letters && v->letter >= room) /* the chosen one is shown */
        i = v->letter - room + 1;
    for (; i < d->letter_count && c->y < c->end; i++, c->y++) {
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

/* The queue that is chosen: how it went, and what is in it. */
static void view_chosen(const struct view *v, struct canvas *c)
{
    const struct view_queue *q = &v->queues[v->chosen];
    int end = c->end;

    if (q->problem)
        return;
    ended(v, c, q);
    if (!v->letters || view_tall(c->rows)) /* who asks for letters has them */
        sparks(v, c, q->past);
    else
        c->y++;
    if (view_tall(c->rows)) { /* both; what runs has at most half of it */
        c->end = c->y + (c->end - c->y) / 2;
        flights(v, c);
        c->end = end;
        c->y++;
        letters(v, c);
    } else if (v->letters) {
        letters(v, c);
    } else {
        flights(v, c);
    }
}

/* ---- the screen ---- */

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
static int page_line(const char *text, int width, const char **next)
{
    size_t line = strcspn(text, "\n"), fits;
    char part[4 * PAGE_WIDE + 1];
    int taken;

    width = width > PAGE_WIDE ? PAGE_WIDE : width < 1 ? 1 : width;
    snprintf(part, sizeof part, "%.*s", (int)line, text);
    fits = term_fit(part, width, &taken);
    if (fits < line) {
        *next = text + (fits ? fits : line);
        return (int)(fits ? fits : line);
    }
    *next = text[line] && text[line + 1] ? text + line + 1 : NULL;
    return (int)line;
}

size_t view_page_rest(const char *page, int width, int rows)
{
    size_t lines = 0, room = rows > PAGE_FROM + 2 ? (size_t)rows - 4 : 1;

    for (const char *at = page; at; lines++)
        (void)page_line(at, width, &at);
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
