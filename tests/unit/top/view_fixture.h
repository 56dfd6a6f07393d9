/* view_fixture.h - queues that do not exist, drawn without a terminal
 *
 * WHAT   A view of some queues, and the lines that are made of it.
 * WHO    tests/unit/top/
 * FAILS  By ending the test.
 */
#ifndef TESTS_UNIT_TOP_VIEW_FIXTURE_H
#define TESTS_UNIT_TOP_VIEW_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "scripts/mqctl/top/draw/view.h"

#define NOW_NS (1700000000 * NS_PER_S)

static struct history seen_history;
static struct view_detail seen_detail;
static struct canvas drawn;

static inline struct view_queue a_queue(const char *name)
{
    return (struct view_queue){.name = name,
                               .state = WORKER_STATE_RUNNING,
                               .depth_max = 10,
                               .capacity = 4,
                               .past = &seen_history,
                               .last_error = ""};
}

static inline struct view a_view(const struct view_queue *queues, size_t n)
{
    return (struct view){.host = "edge-1",
                         .state_dir = "/var/lib/mqworker",
                         .trouble = "",
                         .now_ns = NOW_NS,
                         .queues = queues,
                         .count = n,
                         .detail = &seen_detail,
                         .utf8 = true,
                         .note = ""};
}

static inline void draw(const struct view *v, int columns, int rows)
{
    canvas_close(&drawn);
    cr_assert_eq(canvas_open(&drawn, columns, rows), 0);
    view_draw(v, &drawn);
}

/* Return the first line with a text; NULL: there is none. */
static inline const struct canvas_line *line_of(const char *text)
{
    for (int y = 0; y < drawn.rows; y++)
        if (strstr(drawn.lines[y].text, text))
            return &drawn.lines[y];
    return NULL;
}

/* Return the first line with a text, which must be there. */
static inline const char *says(const char *text)
{
    const struct canvas_line *l = line_of(text);

    if (!l)
        for (int y = 0; y < drawn.rows; y++)
            fprintf(stderr, "%2d %s\n", y, drawn.lines[y].text);
    cr_assert_not_null(l, "nowhere: %s", text);
    return l->text;
}

/* Return how `text` is painted in the first line that contains `line`. */
static inline enum paint paint_of(const char *line, const char *text)
{
    const struct canvas_line *l = line_of(line);
    const char *at = strstr(says(line), text);
    enum paint paint = PAINT_PLAIN;

    cr_assert_not_null(at, "%s is not in: %s", text, l->text);
    for (size_t i = 0; i < l->count; i++)
        if (l->parts[i].from <= (size_t)(at - l->text))
            paint = l->parts[i].paint;
    return paint;
}

#endif
