/* test_top_view.c - what top draws: the same numbers on every terminal, more
 * where there is room, and colour where a person is needed */
#include "common/cli/term.h"
#include "tests/unit/top/view_fixture.h"

/* Give the queue messages that run, and letters. */
static void busy(size_t flights, size_t letters)
{
    seen_detail.flight_count = flights;
    seen_detail.letter_count = letters;
    for (size_t i = 0; i < flights; i++) {
        struct view_flight *f = &seen_detail.flights[i];

        memcpy(f->id, "01M82YYBXD39WZZT6MGE1TYY60", sizeof f->id);
        snprintf(f->body, sizeof f->body, "runs %zu", i);
        f->started_ns = NOW_NS - NS_PER_S;
        f->attempt = 1;
    }
    for (size_t i = 0; i < letters; i++) {
        struct view_letter *l = &seen_detail.letters[i];

        l->row = (int64_t)(letters - i);
        l->died_ns = NOW_NS - 3 * NS_PER_S;
        l->attempts = 2;
        l->reason = "exhausted";
        snprintf(l->error, sizeof l->error, "exit 1: no such order");
        snprintf(l->body, sizeof l->body, "dead %zu", i);
    }
}

/* Give the queue a history of n looks, with one message more each time. */
static void looks(uint64_t n)
{
    seen_history.looks = n;
    for (uint64_t i = 0; i < n; i++)
        seen_history.depth[i % TOP_HISTORY] = i;
}

static int curves_in(const char *line)
{
    int n = 0;

    for (const char *at = line; (at = strstr(at, "█")) != NULL; at++)
        n++;
    return n;
}

Test(top_view, no_line_is_wider_than_the_terminal)
{
    struct view_queue q[] = {a_queue("/a-queue-with-quite-a-long-name-eu"),
                             a_queue("/\xe2\x98\x83snow"), a_queue("/c")};
    struct view v = a_view(q, 3);

    looks(300);
    busy(20, 20);
    v.note = "a note that is longer than a small terminal is wide";
    for (int columns = 1; columns <= 260; columns += 7)
        for (int rows = 1; rows <= 60; rows += 5) {
            draw(&v, columns, rows);
            for (int y = 0; y < rows; y++)
                cr_assert_leq(term_columns(drawn.lines[y].text), columns,
                              "%dx%d: %s", columns, rows, drawn.lines[y].text);
        }
    canvas_close(&drawn);
}

Test(top_view, eighty_columns_have_every_number_and_one_list)
{
    struct view_queue q[] = {a_queue("/orders"), a_queue("/invoices")};
    struct view v = a_view(q, 2);

    looks(20);
    busy(2, 3);
    q[0].depth = 7;
    q[0].rate = 31.9;
    q[0].running = 2;
    q[0].waits = 3;
    q[0].dead = 4;
    q[0].p50 = 239000000;
    q[0].p99 = 277000000;
    draw(&v, 80, 24);
    cr_assert_not_null(
        strstr(says("/orders"),
               "7/10      31.9     2/4      3     4 239ms 277ms"),
        "%s", says("/orders"));
    says("IN FLIGHT");
    says("runs 1");
    cr_assert_null(line_of("LETTER"));
    cr_assert_null(line_of("LAST DEPTHS"));
    says("latency  most");
    v.letters = true;
    draw(&v, 80, 24);
    says("exit 1: no such order");
    cr_assert_null(line_of("IN FLIGHT"));
    cr_assert_null(line_of("latency  most"), "letters have the room");
    draw(&v, 80, 50);
    says("latency  most");
    canvas_close(&drawn);
}

Test(top_view, a_short_name_stands_before_its_numbers)
{
    struct view_queue q[] = {a_queue("/a")};
    struct view v = a_view(q, 1);

    looks(20);
    draw(&v, 80, 24);
    says("/a: 0 done, 0 retried");
    draw(&v, 40, 24);
    says("0 done, 0 retried");
    canvas_close(&drawn);
}

Test(top_view, two_hundred_columns_and_fifty_lines_have_curves_and_both_lists)
{
    struct view_queue q[] = {a_queue("/orders"), a_queue("/invoices")};
    struct view v = a_view(q, 2);

    looks(20);
    busy(2, 40);
    draw(&v, 200, 50);
    says("LAST DEPTHS");
    for (size_t i = 0; i < 2; i++)
        cr_assert_gt(curves_in(says(q[i].name)), 0, "%s", says(q[i].name));
    says("runs 1");
    says("dead 1");
    cr_assert_not_null(strstr(says("dead 1"), "exit 1: no such order"));
    /* No line is left empty while letters have none. */
    cr_assert(strstr(drawn.lines[47].text, "exhausted"), "%s",
              drawn.lines[47].text);
    canvas_close(&drawn);
}

Test(top_view, many_that_run_leave_half_of_the_room_to_letters)
{
    struct view_queue q[] = {a_queue("/orders")};
    struct view v = a_view(q, 1);

    busy(200, 200);
    draw(&v, 200, 50);
    says("runs 10");
    says("dead 10");
    canvas_close(&drawn);
}

Test(top_view, head_names_the_machine_the_state_directory_and_the_queues)
{
    struct view_queue q[] = {a_queue("/a"), a_queue("/b")};
    struct view v = a_view(q, 2);

    draw(&v, 80, 24);
    says("2 queues");
    cr_assert_not_null(strstr(says("mqctl top"), "edge-1"));
    cr_assert_not_null(strstr(says("mqctl top"), "/var/lib/mqworker"));
    canvas_close(&drawn);
}

Test(top_view, the_sum_of_all_queues_counts_also_those_that_are_not_shown)
{
    static char names[30][16];
    struct view_queue q[30] = {0};
    struct view v = a_view(q, 30);

    for (size_t i = 0; i < 30; i++) {
        snprintf(names[i], sizeof names[i], "/q%02zu", i);
        q[i] = a_queue(names[i]);
        q[i].rate = 2;
        q[i].running = 1;
        q[i].waits = i == 0 ? -1 : 10; /* one is not known */
        q[i].dead = 1;
    }
    draw(&v, 80, 24);
    cr_assert_not_null(strstr(says("all 30"), "60.0  30/120    290    30"),
                       "%s", says("all 30"));
    says("all 30, 22 not shown");
    v.chosen = 29;
    draw(&v, 80, 24);
    cr_assert(line_of("/q29")->chosen, "the chosen one is always shown");
    canvas_close(&drawn);
}

Test(top_view, one_queue_needs_no_sum)
{
    struct view_queue q[] = {a_queue("/orders")};
    struct view v = a_view(q, 1);

    draw(&v, 80, 24);
    cr_assert_null(line_of("all 1"));
    canvas_close(&drawn);
}

Test(top_view, a_queue_that_is_well_has_no_colour)
{
    struct view_queue q[] = {a_queue("/orders"), a_queue("/idle")};
    struct view v = a_view(q, 2);

    q[0].depth = 9;
    q[0].running = 4; /* all busy, and senders need not wait */
    q[0].waits = 100;
    q[0].p99 = NS_PER_S;
    q[1].state = WORKER_STATE_NOT_RUNNING; /* and nothing waits for it */
    busy(3, 0);
    draw(&v, 200, 50);
    for (int y = 0; y < drawn.rows; y++)
        for (size_t i = 0; i < drawn.lines[y].count; i++)
            cr_assert(drawn.lines[y].parts[i].paint < PAINT_WARN, "%s",
                      drawn.lines[y].text);
    canvas_close(&drawn);
}

Test(top_view, what_needs_a_person_has_a_colour_and_nothing_beside_it)
{
    static const struct {
        enum worker_state state;
        enum paint paint;
    } states[] = {{WORKER_STATE_PAUSED, PAINT_WARN},
                  {WORKER_STATE_BREAKER_PROBING, PAINT_WARN},
                  {WORKER_STATE_FULL, PAINT_WARN},
                  {WORKER_STATE_BREAKER_OPEN, PAINT_BAD},
                  {WORKER_STATE_KILLED, PAINT_BAD},
                  {WORKER_STATE_STORE_GONE, PAINT_BAD},
                  {WORKER_STATE_STORE_HELD, PAINT_BAD},
                  {WORKER_STATE_RATE_HELD, PAINT_PLAIN},
                  {WORKER_STATE_STOPPING, PAINT_PLAIN},
                  {WORKER_STATE_UNSEEN, PAINT_PLAIN}};
    struct view_queue q[] = {a_queue("/orders")};
    struct view v = a_view(q, 1);

    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        q[0].state = states[i].state;
        cr_assert_eq(view_state_paint(&q[0]), states[i].paint, "%s",
                     worker_state_text(states[i].state));
    }
    q[0] = a_queue("/orders");
    q[0].depth = 10;
    q[0].running = 4;
    q[0].dead = 2;
    draw(&v, 80, 24);
    cr_assert_eq(paint_of("/orders", "/orders"), PAINT_PLAIN);
    cr_assert_eq(paint_of("/orders", "running"), PAINT_PLAIN);
    cr_assert_eq(paint_of("/orders", "10/10"), PAINT_WARN);
    cr_assert_eq(paint_of("/orders", "4/4"), PAINT_WARN);
    cr_assert_eq(paint_of("/orders", "2     -"), PAINT_WARN);
    q[0].state = WORKER_STATE_NOT_RUNNING;
    cr_assert_eq(view_state_paint(&q[0]), PAINT_BAD,
                 "plain, but messages wait for it");
    canvas_close(&drawn);
}

/* A colour or an underline must not go on to the next word. */
Test(top_view, what_is_between_two_parts_is_plain)
{
    struct view_queue q[] = {a_queue("/orders")};
    struct view v = a_view(q, 1);

    q[0].state = WORKER_STATE_PAUSED;
    q[0].depth = 10;
    draw(&v, 80, 24);
    cr_assert_eq(paint_of("/orders", "paused"), PAINT_WARN);
    cr_assert_eq(paint_of("/orders", "         10/10"), PAINT_PLAIN);
    cr_assert_eq(paint_of("/orders", "10/10"), PAINT_WARN);
    cr_assert_eq(paint_of("/orders", "       0.0"), PAINT_PLAIN);
    cr_assert_eq(paint_of("QUEUE", "QUEUE"), PAINT_SORTED);
    cr_assert_eq(paint_of("QUEUE", "  STATE"), PAINT_PLAIN);
    canvas_close(&drawn);
}

Test(top_view, a_queue_that_cannot_be_looked_at_says_why)
{
    struct view_queue q[] = {a_queue("/orders")};
    struct view v = a_view(q, 1);

    q[0].problem = "cannot read its folder: Permission denied";
    draw(&v, 80, 24);
    says("cannot read its folder: Permission denied");
    cr_assert_eq(paint_of("/orders", "cannot read"), PAINT_BAD);
    canvas_close(&drawn);
}

Test(top_view, names_are_cut_in_the_middle_with_a_mark)
{
    struct view_queue q[] = {a_queue("/invoices-of-last-year-eu"),
                             a_queue("/invoices-of-last-year-us")};
    struct view v = a_view(q, 2);

    draw(&v, 80, 24);
    says("...ar-eu running");
    says("...ar-us running");
    draw(&v, 120, 24);
    says("/invoices-of-last-year-eu running");
    canvas_close(&drawn);
}

/* The names begin and end alike; they differ just before the end. */
Test(top_view, names_that_are_cut_are_told_apart)
{
    struct view_queue q[] = {a_queue("/new-invoices-queue-name-eu-west"),
                             a_queue("/new-invoices-queue-name-us-west"),
                             a_queue("/orders")};
    struct view v = a_view(q, 3);

    draw(&v, 80, 24);
    says("...eu-west running");
    says("...us-west running");
    canvas_close(&drawn);
}

/* An escaped byte takes more columns than one that can be printed. */
Test(top_view, names_that_are_escaped_and_cut_are_told_apart)
{
    struct view_queue q[] = {a_queue("/\001\002\003\004\005\006\007-east"),
                             a_queue("/\001\002\003\004\005\006\007-west")};
    struct view v = a_view(q, 2);

    draw(&v, 80, 24);
    says("-east running");
    says("-west running");
    draw(&v, 200, 50);
    says("/\\x01\\x02\\x03\\x04\\x05\\x06\\x07-west running");
    canvas_close(&drawn);
}

Test(top_view, empty_lists_say_so)
{
    struct view_queue q[] = {a_queue("/orders")};
    struct view v = a_view(q, 1);

    draw(&v, 200, 50);
    says("nothing is running");
    says("no dead letters");
    v.count = 0;
    draw(&v, 80, 24);
    says("no worker has run with this state directory");
    canvas_close(&drawn);
}

Test(top_view, what_a_sender_wrote_moves_no_cursor)
{
    struct view_queue q[] = {a_queue("/orders")};
    struct view v = a_view(q, 1);

    busy(1, 1);
    q[0].last_error = "\033[2J";
    snprintf(seen_detail.flights[0].group, HEADER_VALUE_MAX, "\033]0;x\a");
    snprintf(seen_detail.letters[0].error, ERROR_JOINED, "a\rb\033[H");
    draw(&v, 200, 50);
    for (int y = 0; y < drawn.rows; y++)
        for (const char *c = drawn.lines[y].text; *c; c++)
            cr_assert((unsigned char)*c >= ' ', "%s", drawn.lines[y].text);
    canvas_close(&drawn);
}

Test(top_view, without_utf8_curves_are_plain)
{
    struct view_queue q[] = {a_queue("/orders")};
    struct view v = a_view(q, 1);

    looks(20);
    v.utf8 = false;
    draw(&v, 200, 50);
    cr_assert_not_null(strchr(says("depth"), '#'));
    for (int y = 0; y < drawn.rows; y++)
        for (const char *c = drawn.lines[y].text; *c; c++)
            cr_assert_lt((unsigned char)*c, 128);
    canvas_close(&drawn);
}

/* ---- dead letters ---- */

Test(top_view, the_longest_reason_ends_before_the_error)
{
    struct view_queue q[] = {a_queue("/orders")};
    struct view v = a_view(q, 1);
    const char *head;

    busy(0, 1);
    seen_detail.letters[0].reason = "group-closed";
    draw(&v, 200, 50);
    says("group-closed exit 1: no such order");
    head = says("REASON ");
    cr_assert_eq(strstr(head, "ERROR") - head,
                 strstr(says("group-closed"), "exit 1") - says("group-closed"));
    canvas_close(&drawn);
}

Test(top_view, the_letter_that_is_chosen_is_always_shown)
{
    struct view_queue q[] = {a_queue("/orders")};
    struct view v = a_view(q, 1);

    busy(0, 100);
    v.letters = true;
    for (v.letter = 0; v.letter < 100; v.letter += 9) {
        char row[32];

        draw(&v, 80, 24);
        snprintf(row, sizeof row, "%8zu       3s ago", 100 - v.letter);
        says(row);
        cr_assert(line_of(row)->chosen, "%s", row);
    }
    v.letters = false;
    draw(&v, 200, 50);
    cr_assert_not(line_of("dead 0")->chosen,
                  "chosen, but letters are not looked at");
    canvas_close(&drawn);
}

Test(top_view, a_page_is_wrapped_and_scrolls_to_its_end)
{
    struct view_queue q[] = {a_queue("/orders")};
    struct view v = a_view(q, 1);
    char text[4096] = "first\n";

    for (int i = 0; i < 30; i++)
        snprintf(text + strlen(text), 32, "line %d\n", i);
    memset(text + strlen(text), 'x', 200); /* three lines of 80 columns */
    strcat(text, "last");
    v.page = text;
    draw(&v, 80, 24);
    says("first");
    cr_assert_null(line_of("last"));
    cr_assert_null(line_of("/orders"), "there is more than the page");
    v.page_from = view_page_rest(text, 80, 24);
    cr_assert_eq(v.page_from, 34 - 20);
    draw(&v, 80, 24);
    says("last");
    cr_assert_eq(strncmp(drawn.lines[21].text, "xxx", 3), 0,
                 "it fills the screen: %s", drawn.lines[21].text);
    cr_assert_eq(view_page_rest("short", 80, 24), 0);
    canvas_close(&drawn);
}

/* ---- order ---- */

/* Return the names of three queues, ordered by a column. */
static const char *order(const char *title, bool reverse)
{
    static char names[32];
    struct view_queue q[] = {a_queue("/b"), a_queue("/c"), a_queue("/a")};
    size_t sort = 0;

    q[0].dead = 5;
    q[0].depth = -1; /* not known: behind all */
    q[1].dead = 12;
    q[1].state = WORKER_STATE_PAUSED;
    q[2].dead = 12;
    q[2].state = WORKER_STATE_KILLED;
    q[2].rate = 0.5;
    while (sort < view_sorts && strcmp(view_sort_title(sort), title) != 0)
        sort++;
    cr_assert_lt(sort, view_sorts, "no column %s", title);
    view_sort(q, 3, sort, reverse);
    snprintf(names, sizeof names, "%s %s %s", q[0].name, q[1].name, q[2].name);
    return names;
}

Test(top_view, any_column_orders_what_is_largest_or_worst_first)
{
    cr_assert_str_eq(order("QUEUE", false), "/a /b /c");
    cr_assert_str_eq(order("QUEUE", true), "/c /b /a");
    cr_assert_str_eq(order("STATE", false), "/a /c /b");
    cr_assert_str_eq(order("DEAD", false), "/a /c /b");
    cr_assert_str_eq(order("DEAD", true), "/b /a /c", "equal ones by name");
    cr_assert_str_eq(order("RATE/S", false), "/a /b /c");
    cr_assert_str_eq(order("DEPTH", false), "/a /c /b");
}

Test(top_view, the_column_that_orders_is_marked_and_named)
{
    struct view_queue q[] = {a_queue("/b"), a_queue("/a")};
    struct view v = a_view(q, 2);

    draw(&v, 80, 24);
    cr_assert_eq(paint_of("STATE", "QUEUE"), PAINT_SORTED);
    cr_assert_null(line_of(" by "));
    while (strcmp(view_sort_title(v.sort), "DEAD") != 0)
        v.sort++;
    v.reverse = true;
    draw(&v, 80, 24);
    cr_assert_eq(paint_of("STATE", "DEAD"), PAINT_SORTED);
    cr_assert_eq(paint_of("STATE", "QUEUE"), PAINT_BOLD);
    says("2 queues by DEAD, reversed");
    canvas_close(&drawn);
}
