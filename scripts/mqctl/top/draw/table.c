/* table.c - the table of queues (see view.h)
 *
 * As many columns of numbers as there are, then curves of depth, rate and
 * latency where the terminal is wide. Only what needs a person has a colour.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/safe_text.h"
#include "common/text/term.h"
#include "scripts/mqctl/top/draw/view.h"

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

/* full - senders wait */
static bool full(const struct view_queue *q)
{
    return q->depth_max > 0 && q->depth >= q->depth_max;
}

static enum paint depth_paint(const struct view_queue *q)
{
    return full(q) ? PAINT_WARN : PAINT_PLAIN;
}

/* flight_paint - every handler is busy, and senders wait for one */
static enum paint flight_paint(const struct view_queue *q)
{
    return full(q) && q->capacity > 0 && q->running >= q->capacity
               ? PAINT_WARN
               : PAINT_PLAIN;
}

static enum paint dead_paint(const struct view_queue *q)
{
    return q->dead > 0 ? PAINT_WARN : PAINT_PLAIN;
}

/* ---- the columns ---- */

static void depth_text(const struct view_queue *q, char out[CELL])
{
    if (q->depth < 0)
        snprintf(out, CELL, "-");
    else
        snprintf(out, CELL, "%ld/%ld", q->depth, q->depth_max);
}

static void rate_text(const struct view_queue *q, char out[CELL])
{
    snprintf(out, CELL, "%.1f", q->rate);
}

static void flight_text(const struct view_queue *q, char out[CELL])
{
    snprintf(out, CELL, "%" PRId64 "/%" PRId64, q->running, q->capacity);
}

static void count_text(int64_t n, char out[CELL])
{
    char text[TOP_COUNT];

    snprintf(out, CELL, "%s", top_count(n, text));
}

static void waits_text(const struct view_queue *q, char out[CELL])
{
    count_text(q->waits, out);
}

static void dead_text(const struct view_queue *q, char out[CELL])
{
    count_text(q->dead, out);
}

static void duration_text(uint64_t ns, char out[CELL])
{
    char text[TOP_SHORT];

    snprintf(out, CELL, "%s", top_duration(ns, text));
}

static void p50_text(const struct view_queue *q, char out[CELL])
{
    duration_text(q->p50, out);
}

static void p99_text(const struct view_queue *q, char out[CELL])
{
    duration_text(q->p99, out);
}

#define VALUE(member)                                        \
    static double member##_value(const struct view_queue *q) \
    {                                                        \
        return (double)q->member;                            \
    }
VALUE(depth)
VALUE(rate)
VALUE(running)
VALUE(waits)
VALUE(dead)
VALUE(p50)
VALUE(p99)

static const struct column {
    const char *title;
    int width;
    void (*text)(const struct view_queue *q, char out[CELL]);
    double (*value)(const struct view_queue *q);
    enum paint (*paint)(const struct view_queue *q); /* NULL: plain */
    bool total; /* of all queues makes sense */
} columns[] = {
    {"DEPTH", 9, depth_text, depth_value, depth_paint, false},
    {"RATE/S", 9, rate_text, rate_value, NULL, true},
    {"FLIGHT", 7, flight_text, running_value, flight_paint, true},
    {"WAIT", 6, waits_text, waits_value, NULL, true},
    {"DEAD", 5, dead_text, dead_value, dead_paint, true},
    {"P50", 5, p50_text, p50_value, NULL, false},
    {"P99", 5, p99_text, p99_value, NULL, false},
};
#define COLUMNS (sizeof columns / sizeof *columns)

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
    if (q->problem) /* nothing is known of it */
        return sort == SORT_STATE ? PAINT_BAD : -2;
    return sort == SORT_NAME    ? 0
           : sort == SORT_STATE ? (double)view_state_paint(q)
                                : columns[sort - SORTS].value(q);
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

void view_spark(const struct view *v, struct canvas *c, int x, int width,
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
        columns[i].text(q, text);
        canvas_cell(c, x + 1, columns[i].width, CANVAS_RIGHT,
                    columns[i].paint ? columns[i].paint(q) : PAINT_PLAIN, text);
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

void view_table(const struct view *v, struct canvas *c)
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
