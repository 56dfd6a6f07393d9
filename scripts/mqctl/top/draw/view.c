/* view.c - draws the screen of mqctl top (see view.h)
 *
 * screen.c calls view_draw, on the only thread. From top to bottom the screen
 * has a title, the table of queues, the curves and messages of the chosen
 * queue, a line for notes and a line of keys.
 */
#include "scripts/mqctl/top/draw/view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/cli/term.h"
#include "common/message/error_text.h"

/* ---- values of the last looks ---- */

/* Return a value of a ring, `back` looks ago; 0 before the first. */
static uint64_t history_past(const struct history *h, const uint64_t *ring,
                             uint64_t back)
{
    if (back >= h->looks || back >= TOP_HISTORY)
        return 0;
    return ring[(h->looks - 1 - back) % TOP_HISTORY];
}

/* Return the number of looks to show in `width` columns, and their largest
 * value. */
static int history_fit(const struct history *h, const uint64_t *ring, int width,
                       uint64_t *most)
{
    if (width > TOP_HISTORY)
        width = TOP_HISTORY;
    if (width > 0 && h->looks < (uint64_t)width)
        width = (int)h->looks;
    *most = 0;
    for (int i = 0; i < width; i++)
        if (history_past(h, ring, (uint64_t)i) > *most)
            *most = history_past(h, ring, (uint64_t)i);
    return width;
}

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
#define COMPARED    64 /* names; above that, drawing would be slow */

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
    bool total; /* the line "all" has a sum of this column */
} columns[COLUMNS] = {
    [DEPTH] = {"DEPTH", 9, false},  [RATE] = {"RATE/S", 9, true},
    [FLIGHT] = {"FLIGHT", 7, true}, [WAIT] = {"WAIT", 6, true},
    [DEAD] = {"DEAD", 5, true},     [P50] = {"P50", 5, false},
    [P99] = {"P99", 5, false},
};

/* Print a column of a queue. Returns the number by which queues are sorted. */
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

/* ---- sorting ---- */

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

/* Return the number by which a queue is sorted, the largest first. */
static double sort_rank(const struct view_queue *q, size_t sort)
{
    char text[CELL];

    if (q->problem) /* it has no numbers: the last, but the worst state */
        return sort == SORT_STATE ? PAINT_BAD : -2;
    return sort == SORT_NAME    ? 0
           : sort == SORT_STATE ? (double)view_state_paint(q)
                                : column_print(q, sort - SORTS, text);
}

struct order {
    size_t sort;
    bool reverse;
};

static int queue_order(const void *a, const void *b, void *arg)
{
    const struct view_queue *x = a, *y = b;
    const struct order *o = arg;
    double left = sort_rank(x, o->sort), right = sort_rank(y, o->sort);
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
        qsort_r(queues, count, sizeof *queues, queue_order, &o);
}

/* ---- the layout of the table ---- */

/* Widths and places in the table, all in columns of the terminal. */
struct places {
    int name, state; /* widths */
    int tail;        /* how much of the end of a shortened name is kept */
    int curves;      /* where the first curve begins */
    int curve;       /* width of each curve; 0: there is no room */
};

/* Make the name of a queue safe to print. Call this before a name is shortened:
 * the widths are those of the printed text. */
static const char *queue_name_print(const struct view *v, size_t i,
                                    char out[CANVAS_TEXT])
{
    const char *name = v->queues[i].name;

    safe_text_copy(out, CANVAS_TEXT, name, strlen(name));
    return out;
}

/* Return the width of the longest name, or with `state` of the longest
 * state. */
static int width_most(const struct view *v, bool state)
{
    char name[CANVAS_TEXT];
    int most = 0;

    for (size_t i = 0; i < v->count; i++) {
        const struct view_queue *q = &v->queues[i];
        const char *text = !state       ? queue_name_print(v, i, name)
                           : q->problem ? ""
                                        : worker_state_text(q->state);
        int n = term_columns(text);

        most = n > most ? n : most;
    }
    return most;
}

/* Bring `n` into the range; if the range is empty, `least` wins. */
static int int_clamp(int least, int n, int most)
{
    n = n < most ? n : most;
    return n > least ? n : least;
}

/* Return true if two queues would have the same name on the screen. */
static bool has_twins(const struct view *v, int width, int tail)
{
    char name[CANVAS_TEXT], one[CANVAS_TEXT], other[CANVAS_TEXT];

    for (size_t i = 0; i < v->count; i++) {
        canvas_cut(one, queue_name_print(v, i, name), width, tail);
        for (size_t k = 0; k < i; k++) {
            canvas_cut(other, queue_name_print(v, k, name), width, tail);
            if (strcmp(one, other) == 0)
                return true;
        }
    }
    return false;
}

/* Divide the width of the screen: first names, then states; curves get the
 * rest. */
static struct places places_find(const struct view *v, const struct canvas *c)
{
    struct places p;
    int numbers = 0, room, most, tail;

    for (size_t i = 0; i < COLUMNS; i++)
        numbers += 1 + columns[i].width;
    room = c->columns - numbers - 2; /* less the blanks after name and state */
    p.name = int_clamp(NAME_LEAST, width_most(v, false), room - STATE_LEAST);
    /* A shortened name keeps as much of its end as of its beginning. If two
     * names then look the same, keep more of the end, until they differ, and
     * one more column, because a single different letter is easily missed. */
    most = p.name - CANVAS_MARK;
    p.tail = tail = most / 2;
    if (width_most(v, false) > p.name && v->count <= COMPARED)
        while (tail < most && has_twins(v, p.name, tail))
            tail++;
    if (tail > p.tail && !has_twins(v, p.name, tail))
        p.tail = tail + (tail < most);
    room -= p.name;
    p.state = int_clamp(STATE_LEAST, width_most(v, true),
                        room < STATE_MOST ? room : STATE_MOST);
    p.curves = p.name + 1 + p.state + numbers + 2;
    p.curve = (c->columns - p.curves) / CURVES - 2;
    if (p.curve < CURVE_LEAST)
        p.curve = 0;
    return p;
}

/* ---- curves ---- */

/* Draw a curve: one column for each of the last `width` looks, the newest at
 * the right. */
static void curve_draw(const struct view *v, struct canvas *c, int x, int width,
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

    width = history_fit(h, ring, width, &most);
    for (int i = width - 1; i >= 0; i--) {
        value = history_past(h, ring, (uint64_t)i);
        /* No value is above `most`. */
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s",
                             steps[value && most ? 1 + value * 7 / most : 0]);
    }
    text[used] = '\0';
    canvas_put(c, x, PAINT_PLAIN, "%s", text);
}

/* ---- lines ---- */

/* Draw the numbers of a queue, or of all queues. */
static void numbers_draw(struct canvas *c, int x, const struct view_queue *q,
                         bool total)
{
    bool full = q->depth_max > 0 && q->depth >= q->depth_max;
    bool busy = full && q->capacity > 0 && q->running >= q->capacity;
    char text[CELL];

    for (size_t i = 0; i < COLUMNS; x += 1 + columns[i++].width) {
        /* Warn of a full queue, whose senders are waiting; of busy handlers
         * beside it; and of dead letters. */
        bool warn = (i == DEPTH && full) || (i == FLIGHT && busy) ||
                    (i == DEAD && q->dead > 0);

        if (total && !columns[i].total)
            continue;
        column_print(q, i, text);
        canvas_cell(c, x + 1, columns[i].width, CANVAS_RIGHT,
                    warn ? PAINT_WARN : PAINT_PLAIN, text);
    }
}

/* Draw the table of queues, from the current line on. */
static void table_draw(const struct view *v, struct canvas *c)
{
    static const char *const curves[CURVES] = {"LAST DEPTHS", "LAST RATES",
                                               "LAST LATENCIES"};
    struct places p = places_find(v, c);
    struct view_queue sum = {.depth = -1};
    bool several = v->count > 1;
    size_t room = c->rows > 16 ? (size_t)c->rows / 2 - 3 : 3;
    size_t rows = room - several, first, shown = 0;
    int x = p.name + 1 + p.state, next = p.curve + 2;
    char name[CANVAS_TEXT], part[CANVAS_TEXT];

    canvas_put(c, 0, v->sort == SORT_NAME ? PAINT_SORTED : PAINT_BOLD, "QUEUE");
    canvas_put(c, p.name + 1, v->sort == SORT_STATE ? PAINT_SORTED : PAINT_BOLD,
               "STATE");
    for (size_t i = 0; i < COLUMNS; x += 1 + columns[i++].width)
        canvas_cell(c, x + 1, columns[i].width, CANVAS_RIGHT,
                    v->sort == SORTS + i ? PAINT_SORTED : PAINT_BOLD,
                    columns[i].title);
    for (int i = 0; i < CURVES && p.curve; i++)
        canvas_put(c, p.curves + i * (p.curve + 2), PAINT_BOLD, "%s",
                   curves[i]);
    c->y++;
    first = v->chosen >= rows ? v->chosen - rows + 1 : 0;
    for (size_t i = first; i < v->count && shown < rows; i++, shown++, c->y++) {
        const struct view_queue *q = &v->queues[i];
        const struct history *h = q->past;

        if (i == v->chosen)
            canvas_choose(c);
        canvas_cut(part, queue_name_print(v, i, name), p.name, p.tail);
        canvas_cell(c, 0, p.name, CANVAS_LEFT, PAINT_PLAIN, part);
        if (q->problem) {
            canvas_put(c, p.name + 1, PAINT_BAD, "%s", q->problem);
            continue;
        }
        canvas_cell(c, p.name + 1, p.state, CANVAS_LEFT, view_state_paint(q),
                    worker_state_text(q->state));
        numbers_draw(c, p.name + 1 + p.state, q, false);
        if (p.curve == 0)
            continue;
        curve_draw(v, c, p.curves, p.curve, h, h->depth);
        curve_draw(v, c, p.curves + next, p.curve, h, h->rates);
        curve_draw(v, c, p.curves + 2 * next, p.curve, h, h->waits);
    }
    if (!several)
        return;
    for (size_t i = 0; i < v->count; i++) {
        const struct view_queue *q = &v->queues[i];

        sum.rate += q->rate;
        sum.running += q->running;
        sum.capacity += q->capacity;
        sum.waits += q->waits > 0 ? q->waits : 0;
        sum.dead += q->dead > 0 ? q->dead : 0;
    }
    canvas_put(c, 0, PAINT_PLAIN, "all %zu", v->count);
    if (shown < v->count)
        canvas_put(c, 0, PAINT_PLAIN, ", %zu not shown", v->count - shown);
    numbers_draw(c, p.name + 1 + p.state, &sum, true);
    c->y++;
}

#define SPARK_AT   24 /* where curves begin */
#define TALL       36 /* lines of a screen with both lists */
#define GROUP_MOST 24
#define BODY_LEAST 60 /* columns beside the error, for a body as well */

bool view_tall(int rows)
{
    return rows >= TALL;
}

/* Print the time that has passed, short. */
static const char *time_since(const struct view *v, uint64_t wall_ns,
                              char buf[TOP_SHORT])
{
    return top_duration(v->now_ns > wall_ns ? v->now_ns - wall_ns : 1, buf);
}

/* ---- the chosen queue ---- */

/* Draw the running messages, those that started first at the top. */
static void flights_draw(const struct view *v, struct canvas *c)
{
    const struct view_detail *d = v->detail;
    int group = 0, body; /* columns of the longest group; column of bodies */
    char time[TOP_SHORT];

    for (size_t i = 0; i < d->flight_count; i++)
        if (term_columns(d->flights[i].group) > group)
            group = term_columns(d->flights[i].group);
    if (group)
        group = int_clamp(5, group, GROUP_MOST);
    body = 55 + (group ? group + 1 : 0);
    canvas_put(c, 0, PAINT_BOLD, "%-26s %8s %8s %8s", "IN FLIGHT", "FOR", "PID",
               "ATTEMPT");
    canvas_cell(c, 55, group, CANVAS_LEFT, PAINT_BOLD, "GROUP");
    canvas_put(c, body, PAINT_BOLD, "BODY");
    c->y++;
    if (d->flight_count == 0)
        canvas_put(c, 0, PAINT_PLAIN, "nothing is running");
    c->y += d->flight_count == 0;
    for (size_t i = 0; i < d->flight_count && c->y < c->end; i++, c->y++) {
        const struct view_flight *f = &d->flights[i];

        canvas_put(c, 0, PAINT_PLAIN, "%-26s %8s %8d %8" PRIu32, f->id,
                   time_since(v, f->started_ns, time), f->pid, f->attempt);
        canvas_cell(c, 55, group, CANVAS_LEFT, PAINT_PLAIN, f->group);
        canvas_cell(c, body, c->columns - body, CANVAS_LEFT, PAINT_PLAIN,
                    f->body);
    }
}

/* Draw the dead letters. */
static void letters_draw(const struct view *v, struct canvas *c)
{
    const struct view_detail *d = v->detail;
    int reason = 0; /* columns of the longest reason */
    int wide, error, error_at, body;
    size_t room = 1, i = 0;
    char time[TOP_SHORT];

    for (int r = 0; r < REASON_COUNT; r++) {
        int n = term_columns(dead_reason_text((enum dead_reason)r));

        reason = n > reason ? n : reason;
    }
    /* Errors and bodies share the remaining width; on a narrow screen only
     * errors are drawn. */
    error_at = 31 + reason;
    wide = c->columns - error_at;
    error = wide >= 2 * BODY_LEAST ? wide / 2 : wide;
    body = error_at + error + 1;
    canvas_put(c, 0, PAINT_BOLD, "%8s %12s %6s  %-*s %s", "LETTER", "DIED",
               "TRIES", reason, "REASON", "ERROR");
    canvas_put(c, body, PAINT_BOLD, "BODY");
    c->y++;
    if (d->letter_count == 0)
        canvas_put(c, 0, PAINT_PLAIN, "%s",
                   d->no_letters ? d->no_letters : "no dead letters");
    if (c->end > c->y)
        room = (size_t)(c->end - c->y);
    if (v->letters && v->letter >= room) /* scroll to the chosen letter */
        i = v->letter - room + 1;
    for (; i < d->letter_count && c->y < c->end; i++, c->y++) {
        const struct view_letter *l = &d->letters[i];

        if (v->letters && i == v->letter)
            canvas_choose(c);
        canvas_put(c, 0, PAINT_PLAIN, "%8" PRId64 " %8s ago %6" PRIu32 "  %s",
                   l->row, time_since(v, l->died_ns, time), l->attempts,
                   l->reason);
        canvas_cell(c, error_at, error, CANVAS_LEFT, PAINT_PLAIN, l->error);
        canvas_cell(c, body, c->columns - body, CANVAS_LEFT, PAINT_PLAIN,
                    l->body);
    }
}

/* Draw the chosen queue: its totals, which are never cut, its last error, the
 * curves of its last looks, and its messages. */
static void chosen_draw(const struct view *v, struct canvas *c)
{
    const struct view_queue *q = &v->queues[v->chosen];
    const struct history *h = q->past;
    const struct {
        const char *name;
        const uint64_t *ring;
    } all[] = {{"depth", h->depth}, {"rate", h->rates}, {"latency", h->waits}};
    char numbers[160], oldest[TOP_SHORT] = "-", text[CANVAS_TEXT];
    char time[TOP_SHORT];
    bool tall = view_tall(c->rows);
    int end = c->end, room, name;
    uint64_t most;

    if (q->problem)
        return;
    safe_text_copy(text, sizeof text, q->name, strlen(q->name));
    name = term_columns(text);
    if (v->detail->oldest_ns)
        time_since(v, v->detail->oldest_ns, oldest);
    snprintf(numbers, sizeof numbers,
             "%" PRIu64 " done, %" PRIu64 " retried, %" PRIu64
             " dead; oldest in custody %s",
             q->done, q->retried, q->died, oldest);
    room = c->columns - term_columns(numbers) - 2;
    if (room > name)
        room = name;
    if (room == name || room > 6) { /* do not show a few letters of a name */
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
    /* On a low screen the list of letters needs the lines of the curves. */
    for (size_t i = 0; (!v->letters || tall) && i < 3 && c->columns > SPARK_AT;
         i++) {
        (void)history_fit(h, all[i].ring, c->columns - SPARK_AT, &most);
        if (all[i].ring == h->waits)
            canvas_put(c, 0, PAINT_PLAIN, "%-8s most %s", all[i].name,
                       top_duration(most, time));
        else
            canvas_put(c, 0, PAINT_PLAIN, "%-8s most %" PRIu64 "%s",
                       all[i].name, most, all[i].ring == h->rates ? "/s" : "");
        curve_draw(v, c, SPARK_AT, c->columns - SPARK_AT, h, all[i].ring);
        c->y++;
    }
    c->y++;
    if (tall) { /* draw both lists; running messages get at most half */
        c->end = c->y + (c->end - c->y) / 2;
        flights_draw(v, c);
        c->end = end;
        c->y++;
    } else if (!v->letters) {
        flights_draw(v, c);
        return;
    }
    letters_draw(v, c);
}

/* ---- the keys ---- */

#define WHAT_AT 14 /* column of the second half of the help */

/* Values of `asks` and `letters` */
#define LOOKS      false, false
#define ASKS       true, false
#define LETTER     false, true
#define LETTER_ASK true, true

/* clang-format off */
const struct key top_keys[] = {
    {{'?', 'h'}, KEY_HELPS, LOOKS, "?", "these keys", "? help", "? help"},
    {{TOP_KEY_UP, 'k'}, KEY_GOES_UP, LOOKS, "up, down",
     "choose a queue, or a dead letter", NULL, NULL},
    {{TOP_KEY_DOWN, 'j'}, KEY_GOES_DOWN, LOOKS, NULL, NULL, NULL, NULL},
    {{'<', TOP_KEY_LEFT}, KEY_SORTS_LEFT, LOOKS, "<, >",
     "sort by the column to the left, to the right", "< > sort", NULL},
    {{'>', TOP_KEY_RIGHT}, KEY_SORTS_RIGHT, LOOKS, NULL, NULL, NULL, NULL},
    {{'o', 0}, KEY_TURNS, LOOKS, "o", "reverse the order", NULL, NULL},
    {{'p', 0}, KEY_PAUSES, ASKS, "p",
     "pause its worker, or resume it", "p pause", NULL},
    {{'+', '='}, KEY_ADDS, ASKS, "+, -",
     "raise or lower its concurrency", "+ - concurrency", NULL},
    {{'-', 0}, KEY_TAKES, ASKS, NULL, NULL, NULL, NULL},
    {{'D', 0}, KEY_DRAINS, ASKS, "D",
     "drain: take no more, finish running messages, exit", NULL, NULL},
    {{'S', 0}, KEY_STOPS, ASKS, "S",
     "stop: the same within its --grace", NULL, NULL},
    {{'d', 0}, KEY_LISTS, LOOKS, "d",
     "go to its dead letters, and back to the queues",
     "d dead letters", "d back"},
    {{TOP_KEY_ENTER, 's'}, KEY_SHOWS, LETTER, "enter",
     "show a dead letter: its body, why it died", NULL, "enter show"},
    {{'r', 0}, KEY_REPLAYS, LETTER_ASK, "r",
     "replay it: send it into the queue again", NULL, "r replay"},
    {{'x', 0}, KEY_DISCARDS, LETTER_ASK, "x",
     "discard it: remove it permanently", NULL, "x discard"},
    {{'q', 'Q'}, KEY_QUITS, LOOKS, "q", "quit", "q quit", "q quit"},
};
/* clang-format on */
const size_t top_key_count = sizeof top_keys / sizeof *top_keys;

const struct key *key_find(int key)
{
    for (size_t i = 0; i < top_key_count; i++)
        for (size_t k = 0; k < 2; k++)
            if (key && top_keys[i].keys[k] == key)
                return &top_keys[i];
    return NULL;
}

/* ---- the screen ---- */

#define CLOCK 8 /* columns */

/* Draw the last two lines: a question or a note, and the keys. */
static void foot_draw(const struct view *v, struct canvas *c)
{
    c->end = c->rows;
    c->y = c->rows - 2;
    canvas_put(c, 0, v->question ? PAINT_BOLD : PAINT_PLAIN, "%s",
               v->question ? v->question : v->note);
    c->y = c->rows - 1;
    if (v->question)
        canvas_put(c, 0, PAINT_BOLD,
                   "Press y to confirm, any other key to cancel");
    else if (v->help)
        canvas_put(c, 0, PAINT_DIM, "any key goes back");
    else if (v->page)
        canvas_put(c, 0, PAINT_DIM,
                   "up down scroll  r replay  x discard  any other key goes "
                   "back");
    for (size_t i = 0;
         !v->question && !v->help && !v->page && i < top_key_count; i++) {
        const char *foot =
            v->letters ? top_keys[i].letters_foot : top_keys[i].foot;
        int x = c->lines[c->y].columns;

        if (foot)
            canvas_put(c, x ? x + 2 : 0, PAINT_DIM, "%s", foot);
    }
}

/* ---- a page: the text of a letter ---- */

#define PAGE_FROM 2 /* lines above the page */
#define PAGE_WIDE 240

/* Return how many bytes of the text make the next line of the screen. *next
 * gets the rest; NULL if that was the last line. */
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

/* ---- the whole ---- */

void view_draw(const struct view *v, struct canvas *c)
{
    const char *next = v->help ? NULL : v->page;
    int room = c->columns - CLOCK - 1, left;
    char now[TIME_TEXT];

    c->y = 0;
    c->end = c->rows - 2;
    if (c->end > 0) { /* draw the title */
        canvas_put(c, 0, PAINT_BOLD, "mqctl top   %zu queue%s%s%s%s   %s",
                   v->count, term_plural(v->count),
                   v->sort || v->reverse ? " by " : "",
                   v->sort || v->reverse ? view_sort_title(v->sort) : "",
                   v->reverse ? ", reversed" : "", v->host);
        left = room - c->lines[0].columns - 3;
        canvas_cell(c, c->lines[0].columns + 3, left > 6 ? left : 0,
                    CANVAS_MIDDLE, PAINT_PLAIN, v->state_dir);
        term_time(v->now_ns, now);
        canvas_put(c, room, PAINT_BOLD, "%.8s", now + 11);
        c->y += 2;
    }
    for (size_t line = 0; next; line++) {
        const char *text = next;
        int bytes = page_line(text, c->columns, &next);

        if (line < v->page_from)
            continue;
        canvas_put(c, 0, PAINT_PLAIN, "%.*s", bytes, text);
        c->y++;
    }
    if (v->help) { /* draw the table of keys, and the meaning of colours */
        canvas_put(c, 0, PAINT_BOLD, "KEY");
        canvas_put(c, WHAT_AT, PAINT_BOLD, "WHAT IT DOES");
        c->y++;
        for (size_t i = 0; i < top_key_count; i++) {
            const struct key *k = &top_keys[i];

            if (!k->name)
                continue;
            canvas_put(c, 0, PAINT_PLAIN, "%s", k->name);
            canvas_put(c, WHAT_AT, PAINT_PLAIN, "%s%s", k->what,
                       k->asks ? "; asks first" : "");
            c->y++;
        }
        c->y++;
        canvas_put(c, 0, PAINT_BAD, "red");
        canvas_put(c, WHAT_AT, PAINT_PLAIN,
                   "no messages are taken until you act");
        c->y++;
        canvas_put(c, 0, PAINT_WARN, "yellow");
        canvas_put(c, WHAT_AT, PAINT_PLAIN,
                   "needs attention: paused, full, dead letters");
    } else if (!v->page && v->count == 0) {
        canvas_put(c, 0, PAINT_PLAIN, "%s",
                   v->trouble[0] ? v->trouble
                                 : "no worker has run with this state "
                                   "directory");
    } else if (!v->page) {
        table_draw(v, c);
        c->y++;
        chosen_draw(v, c);
    }
    foot_draw(v, c);
}
