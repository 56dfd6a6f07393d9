/* rows.c - which letters are to be replayed or discarded (see
 * ask.h) */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sysexits.h>

#include "common/text/complain.h"
#include "common/text/json_line.h"
#include "scripts/mqctl/serve/ask/letters.h"

#define ROWS_MOST 100000 /* of one request */

struct choosing {
    uint64_t count;
};

/* row_print - visit */
static int row_print(const struct letter *l, void *arg)
{
    struct choosing *c = arg;

    printf("%" PRId64 "\n", l->m.row);
    return ++c->count > ROWS_MOST ? -E2BIG : 0;
}

/* filter_of_body - the same names as in a query, as members of an object */
static int filter_of_body(const struct serve_ask *a, const json_t *filter,
                          struct letter_filter *f, struct problem *p)
{
    struct serve_ask other = *a;

    for (int i = 0; i < QUERY_COUNT; i++)
        other.query[i] =
            json_string_value(json_object_get(filter, serve_query_names[i]));
    other.query[QUERY_LIMIT] = NULL;
    other.query[QUERY_AFTER] = NULL;
    return ask_filter(&other, f, p);
}

/* Print each named row once, because a letter named twice must not be sent
 * twice. */
static int named_print(const json_t *rows, struct choosing *c)
{
    json_t *had = json_object();
    const json_t *one;
    int64_t row;
    size_t i;

    json_array_foreach(rows, i, one)
    {
        if (!serve_number_read(json_string_value(one), &row))
            return complain(EX_USAGE, "rows: a row is a string of digits, as "
                                      "`row` of a letter is");
        if (json_object_get(had, json_string_value(one)))
            continue;
        if (json_object_set_new(had, json_string_value(one), json_true()) < 0)
            return complain_memory();
        printf("%" PRId64 "\n", row);
        c->count++;
    }
    json_decref(had);
    return 0;
}

/* chosen_print - those that a filter matches, up to the letter that was the
 * newest when somebody looked */
static int chosen_print(const struct serve_ask *a, const json_t *body,
                        struct choosing *c)
{
    const char *up_to = json_string_value(json_object_get(body, "up_to"));
    struct letter_filter f;
    struct problem p;
    struct store *s;
    int err;

    if (filter_of_body(a, json_object_get(body, "filter"), &f, &p) < 0)
        return complain_of(&p);
    if (!up_to || !ask_cursor(up_to, &f.before_ns, &f.before_row))
        return complain(EX_USAGE, "up_to is missing: give the cursor of the "
                                  "newest letter that is meant");
    f.before_row++;
    f.limit = 0;
    if (ask_store(a, a->path.queue, &s, &p) < 0)
        return complain_of(&p);
    err = s ? letters_each(s, &f, true, row_print, c) : 0;
    if (err == -E2BIG)
        return complain(EX_USAGE,
                        "more than %d letters at once; narrow the "
                        "filter, or use mqdlq",
                        ROWS_MOST);
    if (err < 0)
        (void)ask_failed(&p, err);
    return err < 0 ? complain_of(&p) : 0;
}

int ask_rows(const struct serve_ask *a)
{
    struct problem p;
    json_t *body = ask_body_read(a, &p);
    json_t *rows = json_object_get(body, "rows"),
           *filter = json_object_get(body, "filter"),
           *expected = json_object_get(body, "expect_count");
    struct choosing c = {0};
    int status;

    if (!body || ask_kept_here(a->path.queue, &p) < 0)
        return complain_of(&p);
    if (rows && (filter || json_object_get(body, "up_to")))
        return complain(EX_USAGE, "rows and filter exclude each other, and "
                                  "up_to goes with filter");
    if (!rows && !filter)
        return complain(EX_USAGE,
                        "nothing chosen; give {\"rows\": [\"1\", ...]}, or "
                        "{\"filter\": {...}, \"up_to\": CURSOR, "
                        "\"expect_count\": N}");
    if (!rows && !expected)
        return complain(EX_USAGE, "expect_count is missing: give the number "
                                  "of letters that was shown");
    if (!queue_is_known(a, &p))
        return complain_of(&p);
    status = rows ? named_print(rows, &c) : chosen_print(a, body, &c);
    if (!status && c.count == 0)
        return complain(EX_NOINPUT, "no letter is chosen");
    if (!status && json_is_integer(expected) &&
        json_integer_value(expected) != (json_int_t)c.count)
        return complain(1,
                        "%" PRIu64
                        " letters are meant now, and %" JSON_INTEGER_FORMAT
                        " were expected; look again",
                        c.count, json_integer_value(expected));
    return status;
}

json_t *ask_outcome(const struct serve_ask *a, struct problem *p)
{
    const struct ask_job *j = a->job;
    json_int_t gone = 0, on_way = 0, died_again = 0, kept = 0;
    struct store *s;
    struct store_row m;

    if (ask_store(a, j->queue, &s, p) < 0)
        return NULL;
    for (size_t i = 0; i < j->count; i++) {
        int err = s ? store_get(s, j->rows[i], &m, NULL, 0, NULL) : -ENOENT;

        if (err && err != -ENOENT)
            return ask_failed(p, err);
        gone += err == -ENOENT;
        on_way += !err && m.state != STORE_DEAD;
        died_again +=
            !err && m.state == STORE_DEAD && m.died_ns >= j->started_ns;
        kept += !err && m.state == STORE_DEAD && m.died_ns < j->started_ns;
    }
    return json_pack("{s:o, s:I, s:I, s:I, s:I}", "queue",
                     json_printable(j->queue), "gone", gone, "on_way", on_way,
                     "died_again", died_again, "kept", kept);
}
