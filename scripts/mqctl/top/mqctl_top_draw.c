/* mqctl_top_draw.c - what the screen of top looks like (see mqctl_top.h)
 *
 * From top to bottom: a title, a table of queues with one chosen, what its
 * handlers do and how it went, a line for messages, a line of keys.
 */
#include "scripts/mqctl/top/mqctl_top.h"

#include <inttypes.h>
#include <langinfo.h>
#include <ncurses.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/custody/custody_look.h"
#include "common/message/error_text.h"
#include "common/letter/letters.h"
#include "common/state/runtimedir.h"
#include "common/text/term.h"
#include "common/text/term_time.h"

#define RUNNING  256 /* handlers that are listed */
#define SPARK_AT 24  /* where sparklines begin */
#define MARK     3   /* columns of "..." */

static const char keys[] =
    "p pause  + - concurrency  d dead letters  up down choose  q quit";

/* ---- text ---- */

/* put - a text at a column of the current line, cut at the edge */
__attribute__((format(printf, 3, 4))) static void
put(const struct screen *s, int x, const char *fmt, ...)
{
    char text[SCREEN_TEXT], safe[SCREEN_TEXT];
    int taken;

    va_list args;

    if (s->y >= LINES - 2 || x >= COLS)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    safe_text_copy(safe, sizeof safe, text, strlen(text));
    mvaddnstr(s->y, x, safe, (int)term_fit(safe, COLS - x, &taken));
}

/* put_name - a queue's at the left, cut in the middle: those of one kind begin
 * alike */
static void put_name(const struct screen *s, const char *name, int room)
{
    const char *tail;
    int taken;

    if (term_columns(name) <= room) {
        put(s, 0, "%s", name);
        return;
    }
    tail = term_tail(name, (room - MARK) / 2);
    put(s, 0, "%.*s...%s",
        (int)term_fit(name, room - MARK - term_columns(tail), &taken), name,
        tail);
}

static void paint(const struct screen *s, int colour, bool on)
{
    if (!s->colour)
        return;
    if (on)
        attron(COLOR_PAIR(colour));
    else
        attroff(COLOR_PAIR(colour));
}

static bool utf8(void)
{
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

/* spark_width - columns of a sparkline: one for each look that there was */
static int spark_width(const struct top_row *r)
{
    int width = COLS - SPARK_AT < TOP_HISTORY ? COLS - SPARK_AT : TOP_HISTORY;

    return r->looks < (uint64_t)width ? (int)r->looks : width;
}

/* spark - its name, the most that it shows, then the last values of a ring, one
 * column each, the newest at the right */
static void spark(const struct screen *s, const char *name,
                  const struct top_row *r, const uint64_t *ring,
                  const char *most)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄",
                                         "▅", "▆", "▇", "█"};
    static const char *const plain[] = {" ", ".", ":", "-", "=",
                                        "+", "*", "%", "#"};
    const char *const *steps = utf8() ? blocks : plain;
    int width = spark_width(r);
    uint64_t top = 1, value;

    if (s->y >= LINES - 2 || width < 1)
        return;
    for (int i = 0; i < width; i++)
        if ((value = top_past(r, ring, (uint64_t)i)) > top)
            top = value;
    put(s, 0, "%-8s most %s", name, most);
    move(s->y, SPARK_AT);
    for (int i = width - 1; i >= 0; i--) {
        value = top_past(r, ring, (uint64_t)i);
        addstr(steps[value ? 1 + (value * 7) / top : 0]);
    }
}

/* most_of - the largest value that the sparkline shows */
static uint64_t most_of(const struct top_row *r, const uint64_t *ring)
{
    uint64_t top = 0;

    for (int i = 0; i < spark_width(r); i++)
        if (top_past(r, ring, (uint64_t)i) > top)
            top = top_past(r, ring, (uint64_t)i);
    return top;
}

/* ---- the table ---- */

/* name_room - columns for names: the others leave them */
static int name_room(void)
{
    int room = COLS - 68;

    return room < 12 ? 12 : room > 40 ? 40 : room;
}

static int colour_of(const struct snapshot *v)
{
    if (v->worker != SNAPSHOT_RUNS ||
        strncmp(snapshot_state(v), "breaker", 7) == 0)
        return COLOUR_BAD;
    if (v->dead > 0 || (v->depth >= 0 && v->depth == v->depth_max))
        return COLOUR_WARN; /* somebody has to look, or senders wait */
    return strcmp(snapshot_state(v), "running") == 0 ? 0 : COLOUR_WARN;
}

static void table_row(struct screen *s, size_t i)
{
    const struct top_row *r = s->top->rows[i];
    const struct snapshot *v = &r->v;
    char p50[TOP_SHORT], p99[TOP_SHORT], depth[32], cap[32];
    char waiting[TOP_COUNT], dead[TOP_COUNT];
    int room = name_room(), colour = r->looked ? colour_of(v) : COLOUR_BAD;

    if (i == s->chosen)
        attron(A_REVERSE);
    paint(s, colour, colour != 0);
    put(s, 0, "%*s", COLS, "");
    put_name(s, r->queue, room);
    if (!r->looked) {
        put(s, room + 1, "%s", r->problem.text);
    } else {
        snprintf(depth, sizeof depth, "%ld/%ld", v->depth, v->depth_max);
        snprintf(cap, sizeof cap, "%" PRIu64 "/%u", v->sum.running,
                 v->worker == SNAPSHOT_RUNS ? snapshot_capacity(v) : 0);
        put(s, room + 1, "%-12.12s %9s %9.1f %7s %6s %5s %5s %5s",
            snapshot_state(v), v->depth < 0 ? "-" : depth, r->rate, cap,
            top_count(snapshot_waits(v), waiting), top_count(v->dead, dead),
            top_duration(r->p50, p50), top_duration(r->p99, p99));
    }
    paint(s, colour, false);
    attroff(A_REVERSE);
    s->y++;
}

/* table - as many queues as leave room for the rest; the chosen one is shown */
static void table(struct screen *s)
{
    int room = name_room();
    size_t rows = LINES > 16 ? (size_t)LINES / 2 - 3 : 3;
    size_t first = s->chosen >= rows ? s->chosen - rows + 1 : 0;

    attron(A_BOLD);
    put(s, 0, "%-*s %-12s %9s %9s %7s %6s %5s %5s %5s", room, "QUEUE", "STATE",
        "DEPTH", "RATE/S", "FLIGHT", "WAIT", "DEAD", "P50", "P99");
    attroff(A_BOLD);
    s->y++;
    for (size_t i = first; i < s->top->count && i < first + rows; i++)
        table_row(s, i);
    s->y++;
}

/* ---- the chosen queue ---- */

struct running {
    struct custody_seen seen[RUNNING];
    size_t count;
    uint64_t oldest_ns; /* received first, of all in custody; 0: none */
};

static int running_add(const struct custody_seen *seen, void *arg)
{
    struct running *r = arg;

    if (seen->received_ns &&
        (!r->oldest_ns || seen->received_ns < r->oldest_ns))
        r->oldest_ns = seen->received_ns;
    if (seen->w.state == SLOT_RUNNING && r->count < RUNNING)
        r->seen[r->count++] = *seen;
    return 0;
}

static int longest_first(const void *a, const void *b)
{
    const struct custody_seen *x = a, *y = b;

    return (x->started_ns > y->started_ns) - (x->started_ns < y->started_ns);
}

/* since - how long ago, short */
static const char *since(uint64_t wall_ns, char buf[TOP_SHORT])
{
    uint64_t now = clock_wall_ns();

    return top_duration(now > wall_ns ? now - wall_ns : 1, buf);
}

/* name - its id; a function that ends soon has nobody ask for one */
static const char *name(const struct custody_seen *seen, char id[ULID_TEXT])
{
    static const struct ulid none;

    return memcmp(&seen->id, &none, sizeof none) == 0
               ? "-"
               : ulid_print(seen->id, id);
}

/* handlers - running messages, the longest first */
static void handlers(struct screen *s, const struct running *r)
{
    char time[TOP_SHORT], id[ULID_TEXT];

    attron(A_BOLD);
    put(s, 0, "%-26s %8s %8s %8s  %s", "IN FLIGHT", "FOR", "PID", "ATTEMPT",
        "GROUP");
    attroff(A_BOLD);
    s->y++;
    for (size_t i = 0; i < r->count; i++, s->y++)
        put(s, 0, "%-26s %8s %8d %8" PRIu32 "  %s", name(&r->seen[i], id),
            since(r->seen[i].started_ns, time), (int)r->seen[i].pgid,
            r->seen[i].w.attempt, r->seen[i].group);
}

static int letter_line(const struct letter *l, void *arg)
{
    struct screen *s = arg;
    char time[TOP_SHORT], error[ERROR_JOINED];

    put(s, 0, "%8" PRId64 " %8s ago %6" PRIu32 "  %-10s %s", l->m.row,
        since(l->m.died_ns, time), l->m.attempts, dead_reason_text(l->m.reason),
        error_text_join(error, sizeof error, l->m.error, l->error_text));
    s->y++;
    return s->y >= LINES - 2;
}

/* letters - the newest dead ones */
static void letters(struct screen *s, struct snapshot *v)
{
    struct letter_filter f = {.limit = (uint64_t)LINES};
    struct store *store;

    attron(A_BOLD);
    put(s, 0, "%8s %12s %6s  %-10s %s", "LETTER", "DIED", "TRIES", "REASON",
        "ERROR");
    attroff(A_BOLD);
    s->y++;
    if (snapshot_store(v, &store) < 0)
        return;
    (void)letters_each(store, &f, false, letter_line, s);
    store_close(&store);
}

/* sparks - depth, rate and latency over the last looks */
static void sparks(struct screen *s, const struct top_row *r)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRIu64, most_of(r, r->depth));
    spark(s, "depth", r, r->depth, text);
    s->y++;
    snprintf(text, sizeof text, "%" PRIu64 "/s", most_of(r, r->rates));
    spark(s, "rate", r, r->rates, text);
    s->y++;
    spark(s, "latency", r, r->waits, top_duration(most_of(r, r->waits), text));
    s->y += 2;
}

/* ended - how it went: numbers that are never cut, then the last error */
static void ended(struct screen *s, const struct top_row *r, const char *oldest)
{
    const char *error = r->v.head.texts[COUNTERS_LAST_ERROR];
    char numbers[128];
    int room;

    snprintf(numbers, sizeof numbers,
             "%" PRIu64 " done, %" PRIu64 " retried, %" PRIu64
             " dead; oldest in custody %s",
             r->v.sum.done, r->v.sum.retried, r->v.sum.dead, oldest);
    room = COLS - term_columns(numbers) - 2;
    if (room > term_columns(r->queue))
        room = term_columns(r->queue);
    if (room > 2 * MARK) {
        put_name(s, r->queue, room);
        put(s, room, ": %s", numbers);
    } else {
        put(s, 0, "%s", numbers);
    }
    s->y++;
    if (*error) {
        put(s, 0, "last error %s", error);
        s->y++;
    }
}

/* chosen - all about one queue */
static void chosen(struct screen *s)
{
    static struct running running;
    struct top_row *r = s->top->rows[s->chosen];
    char path[PATH_MAX], oldest[TOP_SHORT] = "-";
    struct problem p;

    if (!r->looked)
        return;
    running.count = 0;
    running.oldest_ns = 0;
    if (r->v.has_folder &&
        runtimedir_file(&r->v.dir, RUNTIMEDIR_CUSTODY, path, &p) == 0)
        (void)custody_look(path, running_add, &running, &p);
    if (running.oldest_ns)
        since(running.oldest_ns, oldest);
    ended(s, r, oldest);
    sparks(s, r);
    if (s->letters) {
        letters(s, &r->v);
    } else {
        qsort(running.seen, running.count, sizeof *running.seen, longest_first);
        handlers(s, &running);
    }
}

/* ---- the whole ---- */

/* foot - the two last lines, which nothing else writes to */
static void foot(const struct screen *s)
{
    char safe[SCREEN_TEXT];
    int taken;

    safe_text_copy(safe, sizeof safe, s->note, strlen(s->note));
    mvaddnstr(LINES - 2, 0, safe, (int)term_fit(safe, COLS, &taken));
    attron(A_DIM);
    mvaddnstr(LINES - 1, 0, keys, COLS - 1);
    attroff(A_DIM);
}

void screen_draw(struct screen *s)
{
    char now[TIME_TEXT];

    erase();
    s->y = 0;
    term_time(clock_wall_ns(), now);
    attron(A_BOLD);
    put(s, 0, "mqctl top   %zu queue%s", s->top->count,
        s->top->count == 1 ? "" : "s");
    put(s, COLS - 9, "%.8s", now + 11);
    attroff(A_BOLD);
    s->y = 2;
    if (s->chosen >= s->top->count)
        s->chosen = s->top->count ? s->top->count - 1 : 0;
    if (s->top->count == 0) {
        put(s, 0, "%s",
            s->top->trouble[0] ? s->top->trouble
                               : "no worker has run with this state directory");
    } else {
        table(s);
        chosen(s);
    }
    foot(s);
    refresh();
}
