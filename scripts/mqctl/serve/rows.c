/* rows.c - see rows.h */
#include "scripts/mqctl/serve/rows.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/cli/json_line.h"
#include "scripts/mqctl/serve/ask/history.h"
#include "scripts/mqctl/serve/events.h"

#define KERNEL_STEP (5 * NS_PER_S)

/* A queue that was looked at. */
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

void rows_take(json_t *look, const char *line)
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
    if (gone)
        history_forget(queue);
    else
        history_add(queue, look);
    /* Nobody can look into the kernel queue. Its first message has waited about
     * as long as those did that started last, or since the queue was seen not
     * to be empty. An estimate is rounded, as it would change at each look. */
    if (depth <= 0)
        s->kernel_ns = 0;
    else if (wait)
        s->kernel_ns = clock_wall_ns() - wait;
    else if (!s->kernel_ns)
        s->kernel_ns = clock_wall_ns();
    json_object_set_new(json_object_get(look, "ages"), "kernel",
                        json_time(s->kernel_ns / KERNEL_STEP * KERNEL_STEP));
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

/* Return the members of `now` that differ from `before`, and null for those
 * that it lacks. */
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

/* Return the sum of a member over all rows. */
static double rows_sum(const char *name)
{
    double sum = 0;

    for (const struct seen *s = all; s; s = s->next)
        sum += json_number_value(json_object_get(s->row, name));
    return sum;
}

/* Return the sums over all rows, the worst severity and the oldest time. */
static json_t *totals_make(void)
{
    static const char *const counts[] = {"waiting", "running", "capacity",
                                         "dead", "blocked"};
    static const char *const rates[] = {"done_s", "failed_s"};
    static const char *const severities[] = {"idle", "fine", "warn", "bad"};
    const char *oldest = NULL, *text;
    json_t *o = json_object();
    json_int_t queues = 0;
    size_t worst = 0;

    for (const struct seen *s = all; s; s = s->next) {
        queues++;
        text = text_of(s->row, "oldest_at");
        if (text && (!oldest || strcmp(text, oldest) < 0))
            oldest = text;
        text = text_of(s->row, "severity");
        for (size_t i = worst + 1; text && i < 4; i++)
            if (strcmp(text, severities[i]) == 0)
                worst = i;
    }
    json_object_set_new(o, "queues", json_integer(queues));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        json_object_set_new(o, counts[i],
                            json_integer((json_int_t)rows_sum(counts[i])));
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        json_object_set_new(o, rates[i],
                            json_real(round(rows_sum(rates[i]) * 10) / 10));
    json_object_set_new(o, "oldest_at",
                        oldest ? json_string(oldest) : json_null());
    json_object_set_new(o, "severity", json_string(severities[worst]));
    return o;
}

void rows_round(void)
{
    json_t *list = json_array(), *now, *changes;
    bool first = !looked;

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
