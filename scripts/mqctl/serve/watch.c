/* watch.c - see watch.h */
#include "scripts/mqctl/serve/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/cli/json_line.h"
#include "scripts/mqctl/serve/ask/history.h"
#include "scripts/mqctl/serve/events.h"
#include "scripts/mqctl/serve/look.h"
#include "scripts/mqctl/top/top.h"

#define FAST_MS 1000
#define SLOW_MS 10000
#define LINE    (64u << 10)
#define STEP_NS (5 * NS_PER_S)
/* After QUIET_LOOKS looks without a change, look every QUIET_MS until the next
 * change. Seven idle queues then cost 30 ms of processor time a minute; with
 * 2000 they cost 43 ms. */
#define QUIET_LOOKS 10
#define QUIET_MS    3000

/* ---- the child ---- */

/* Return a duration; null if no handler ended, so that a chart has a gap and
 * not 0. */
static json_t *time_json(uint64_t ns)
{
    return ns ? json_integer((json_int_t)ns) : json_null();
}

/* Look at all queues until the server closes the pipe. */
static _Noreturn void queues_watch(const struct serve_options *serve)
{
    /* Left out, because they change at each look; `ages` has the times. */
    static const char *const left_out[] = {
        "settings",          "oldest_waiting_ns", "oldest_parked_ns",
        "oldest_spooled_ns", "oldest_held_ns",    "oldest_overdue_ns",
        "oldest_queue_ns",   "paused_for_ns"};
    static const struct options every;
    struct top t = {.o = &every, .dirs = serve->state_dirs, .files_only = true};
    struct pollfd in = {.fd = 0, .events = POLLIN};
    int pause_ms = SLOW_MS, wait_ms;
    unsigned same = 0; /* looks in a row without a change */
    char *text = NULL, *before = NULL;
    size_t size;
    FILE *out;
    uint64_t due, last;
    int64_t waits;
    char word;
    json_t *o;

    while (top_look(&t, true) == 0 &&
           (out = open_memstream(&text, &size)) != NULL) {
        /* Print the numbers of each queue, the durations of the last interval,
         * and the times since when the oldest messages wait. */
        for (size_t i = 0; i < t.count; i++) {
            const struct top_row *r = t.rows[i];

            if (r->looked && r->v.has_folder) {
                o = snapshot_json(&r->v);
                for (size_t n = 0; n < sizeof left_out / sizeof *left_out; n++)
                    json_object_del(o, left_out[n]);
                waits = snapshot_waits(&r->v);
                if (waits >= 0 && r->v.depth >= 0)
                    waits += r->v.depth;
                due = r->v.rows.ages.due;
                json_object_update_new(
                    o, json_pack("{s:o, s:o, s:o, s:o, s:{s:o, s:o, s:o, s:o}}",
                                 "p50_ns", time_json(r->p50), "p99_ns",
                                 time_json(r->p99), "last_wait_ns",
                                 time_json(r->wait99), "all_waiting",
                                 json_known(waits), "ages", "spooled",
                                 json_time(r->v.rows.ages.spooled), "overdue",
                                 json_time(due <= clock_wall_ns() ? due : 0),
                                 "blocked", json_time(r->v.rows.ages.parked),
                                 "held", json_time(r->v.held_since_ns)));
            } else {
                o = json_pack("{s:o, s:b}", "queue", json_printable(r->queue),
                              "gone", 1);
            }
            (void)json_print_line(o, out);
        }
        if (fclose(out) != 0)
            break;
        /* Do not send a look that is the same as the last one. */
        if (before && strcmp(text, before) == 0) {
            same++;
        } else {
            same = 0;
            fputs(text, stdout);
        }
        free(before);
        before = text;
        text = NULL;
        puts("{\"round\":true}");
        if (fflush(stdout) != 0)
            break;
        /* Sleep until the next look is due. An order changes the interval, but
         * no look comes sooner than FAST_MS after the last: counts of some
         * milliseconds would be shown as counts per second. */
        last = clock_mono_ns();
        wait_ms = pause_ms == SLOW_MS  ? SLOW_MS
                  : same > QUIET_LOOKS ? QUIET_MS
                                       : FAST_MS;
        while (poll(&in, 1,
                    clock_ms_until(last + (uint64_t)wait_ms * NS_PER_MS))) {
            if (in.revents && read(0, &word, 1) != 1)
                _exit(0); /* the server is gone */
            if (in.revents) {
                wait_ms = pause_ms = word == 'f' ? FAST_MS : SLOW_MS;
                same = 0;
            }
        }
    }
    _exit(0);
}

/* ---- the last look at each queue, and its row of the overview ---- */

struct seen {
    char *text; /* the last look, as the child printed it */
    json_t *look;
    json_t *row;        /* as last sent; NULL: not sent */
    uint64_t kernel_ns; /* since when the first message of the kernel queue
                             waits, wall clock; 0: it is empty */
    bool changed;       /* the look differs from the one before */
    struct seen *next;
};
static struct seen *all;
static json_t *totals; /* as last sent */
static bool looked;    /* a round is complete */
static bool taken;     /* looks came since the last round */

static const char *text_of(const json_t *o, const char *name)
{
    return json_string_value(json_object_get(o, name));
}

static struct seen *seen_find(const char *queue)
{
    struct seen *s = all;

    while (s && strcmp(text_of(s->look, "queue"), queue) != 0)
        s = s->next;
    return s;
}

json_t *rows_look(const char *queue)
{
    const struct seen *s = seen_find(queue);

    return s ? s->look : NULL;
}

/* Store the newest look at a queue; `line` is its text. */
static void look_take(json_t *look, const char *line)
{
    const char *queue = text_of(look, "queue");
    bool gone = json_object_get(look, "gone") != NULL;
    struct seen *s = queue ? seen_find(queue) : NULL;
    json_int_t depth = json_integer_value(json_object_get(look, "depth"));
    uint64_t wait =
        (uint64_t)json_integer_value(json_object_get(look, "last_wait_ns"));

    /* The child reports a queue without a folder as gone at each look; pass
     * that on only for a queue that was shown. */
    if (!s && queue && !gone && (s = calloc(1, sizeof *s)) != NULL) {
        s->next = all;
        all = s;
    }
    if (!s)
        return;
    taken = true;
    if (gone)
        history_forget(queue);
    else
        history_add(queue, look);
    /* The kernel queue cannot be inspected. Assume that its first message has
     * waited as long as the messages that started last, or since the queue was
     * first seen not empty. Round this time, or it would change at each
     * look. */
    if (depth <= 0)
        s->kernel_ns = 0;
    else if (wait)
        s->kernel_ns = clock_wall_ns() - wait;
    else if (!s->kernel_ns)
        s->kernel_ns = clock_wall_ns();
    json_object_set_new(json_object_get(look, "ages"), "kernel",
                        json_time(s->kernel_ns / STEP_NS * STEP_NS));
    s->changed |= !s->text || strcmp(s->text, line) != 0;
    free(s->text);
    s->text = strdup(line);
    json_decref(s->look);
    s->look = json_incref(look);
}

/* Return the row of a queue, without the members that would be null. */
static json_t *row_make(const struct seen *s)
{
    static const char *const copied[][2] = {
        {"queue", "queue"},
        {"state", "state"},
        {"severity", "severity"},
        {"waiting", "all_waiting"},
        {"depth", "depth"},
        {"depth_max", "queue_depth"},
        {"running", "in_flight"},
        {"capacity", "capacity"},
        {"dead", "dead"},
        {"blocked", "groups_held"},
        {"last_error", "last_error"},
        {"last_error_at", "last_error_at"},
        {"paused_until", "paused_until"},
    };
    json_t *row = json_object(), *value;
    const char *name, *oldest = NULL, *text;

    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        value = json_object_get(s->look, copied[i][1]);
        if (value && !json_is_null(value))
            json_object_set(row, copied[i][0], value);
    }
    history_row(text_of(s->look, "queue"), row);
    /* All times have the same form, so the least text is the first time. */
    json_object_foreach(json_object_get(s->look, "ages"), name, value)
    {
        text = json_string_value(value);
        if (text && (!oldest || strcmp(text, oldest) < 0))
            oldest = text;
    }
    if (oldest)
        json_object_set_new(row, "oldest_at", json_string(oldest));
    return row;
}

/* Return the members of `now` that differ from `before`, and null for members
 * of `before` that `now` lacks. */
static json_t *members_changed(json_t *before, json_t *now)
{
    json_t *o = json_object(), *value;
    const char *name;

    json_object_foreach(now, name, value)
    {
        if (!json_equal(value, json_object_get(before, name)))
            json_object_set(o, name, value);
    }
    json_object_foreach(before, name, value)
    {
        if (!json_object_get(now, name))
            json_object_set_new(o, name, json_null());
    }
    return o;
}

/* Return the sums over all rows, the worst severity and the oldest time. */
static json_t *totals_make(void)
{
    static const char *const sums[] = {"waiting", "running", "capacity", "dead",
                                       "blocked", "done_s",  "failed_s"};
    enum { SUMS = sizeof sums / sizeof *sums, RATES = 5 };
    static const char *const severities[] = {"idle", "fine", "warn", "bad"};
    const char *oldest = NULL, *text;
    json_int_t queues = 0;
    double sum[SUMS] = {0};
    size_t worst = 0;
    json_t *o;

    for (const struct seen *s = all; s; s = s->next) {
        queues++;
        text = text_of(s->row, "oldest_at");
        if (text && (!oldest || strcmp(text, oldest) < 0))
            oldest = text;
        text = text_of(s->row, "severity");
        for (size_t i = worst + 1; text && i < 4; i++)
            if (strcmp(text, severities[i]) == 0)
                worst = i;
        for (size_t i = 0; i < SUMS; i++)
            sum[i] += json_number_value(json_object_get(s->row, sums[i]));
    }
    o = json_pack("{s:I, s:s?, s:s}", "queues", queues, "oldest_at", oldest,
                  "severity", severities[worst]);
    for (size_t i = 0; i < SUMS; i++)
        json_object_set_new(o, sums[i],
                            i < RATES ? json_integer((json_int_t)sum[i])
                                      : json_real(round(sum[i] * 10) / 10));
    return o;
}

/* End a round, in which each queue was looked at: send the differences. */
static void round_end(void)
{
    json_t *list = json_array(), *now, *changes;
    bool first = !looked;

    /* A round without a new look means that nothing has changed. */
    for (const struct seen *s = taken ? NULL : all; s; s = s->next)
        history_add(text_of(s->look, "queue"), s->look);
    taken = false;
    looked = true;
    for (struct seen **at = &all, *s; (s = *at) != NULL;) {
        const char *queue = text_of(s->look, "queue");

        if (s->changed)
            event_send("queue", queue, json_incref(s->look));
        s->changed = false;
        if (json_object_get(s->look, "gone")) {
            json_array_append(list, s->look);
            *at = s->next;
            json_decref(s->look);
            json_decref(s->row);
            free(s->text);
            free(s);
            continue;
        }
        now = row_make(s);
        changes = members_changed(s->row, now);
        if (json_object_size(changes)) {
            json_object_set_new(changes, "queue", json_string(queue));
            json_array_append(list, changes);
        }
        json_decref(changes);
        json_decref(s->row);
        s->row = now;
        at = &s->next;
    }
    now = totals_make();
    changes = members_changed(totals, now);
    json_decref(totals);
    totals = now;
    now = json_pack("{s:O, s:O}", "rows", list, "totals", changes);
    if (first || json_array_size(list) || json_object_size(changes))
        event_send("rows", NULL, now);
    else
        json_decref(now);
    json_decref(list);
    json_decref(changes);
}

json_t *rows_all(json_t *about)
{
    json_t *list = json_array();

    for (const struct seen *s = all; s; s = s->next)
        if (s->row)
            json_array_append(list, s->row);
    return json_pack("{s:O, s:b, s:O?, s:o}", "about", about, "looked", looked,
                     "totals", totals, "rows", list);
}

/* ---- the pipes to the child ---- */

static struct {
    const struct serve_options *o;
    pid_t pid;
    int in, out; /* to the child, and from it */
    bool fast;
    uint64_t started_ns;
    char line[LINE];
    size_t used;
} w = {.in = -1, .out = -1};

void watch_end(void)
{
    if (w.out < 0)
        return;
    close(w.in);
    close(w.out);
    w.in = w.out = -1;
    if (w.pid > 0) {
        kill(w.pid, SIGKILL);
        (void)waitpid(w.pid, NULL, 0);
    }
    w.pid = 0;
}

void watch_soon(void)
{
    if (w.in >= 0 && write(w.in, w.fast ? "f" : "s", 1) != 1 && errno != EPIPE)
        watch_end();
}

int watch_start(const struct serve_options *o)
{
    int to[2], from[2];

    w.o = o;
    w.started_ns = clock_mono_ns();
    w.used = 0;
    if (pipe2(to, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(from, O_CLOEXEC) < 0) {
        close(to[0]);
        close(to[1]);
        return -EMFILE;
    }
    fflush(NULL);
    w.pid = fork();
    if (w.pid == 0) {
        look_child(to[0], from[1], 2, SIGKILL);
        queues_watch(o);
    }
    close(to[0]);
    close(from[1]);
    w.in = to[1];
    w.out = from[0];
    (void)fcntl(w.out, F_SETFL, O_NONBLOCK);
    if (w.fast)
        watch_soon();
    return w.pid > 0 ? 0 : -EAGAIN;
}

int watch_fd(void)
{
    return w.out;
}

uint64_t watch_keep(uint64_t now_ns)
{
    uint64_t due = w.started_ns + NS_PER_S;

    if (w.out >= 0)
        return UINT64_MAX;
    if (now_ns < due)
        return due;
    return watch_start(w.o) < 0 ? now_ns + NS_PER_S : UINT64_MAX;
}

void watch_fast(bool fast)
{
    if (!fast && !w.fast)
        return;
    w.fast = fast;
    watch_soon();
}

void watch_read(void)
{
    json_t *look;
    ssize_t n = read(w.out, w.line + w.used, sizeof w.line - 1 - w.used);
    char *end;

    if (n <= 0) {
        if (n == 0 || errno != EAGAIN)
            watch_end();
        return;
    }
    w.used += (size_t)n;
    w.line[w.used] = '\0';
    while ((end = memchr(w.line, '\n', w.used)) != NULL) {
        *end++ = '\0';
        look = json_loads(w.line, 0, NULL);
        if (json_object_get(look, "round"))
            round_end();
        else
            look_take(look, w.line);
        json_decref(look);
        w.used -= (size_t)(end - w.line);
        memmove(w.line, end, w.used);
        w.line[w.used] = '\0';
    }
    if (w.used == sizeof w.line - 1)
        watch_end();
}
