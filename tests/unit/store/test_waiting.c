/* test_waiting.c - lists of messages that wait: what is in them, in which
 * order, and that they go on behind any row */
#include <errno.h>

#include "common/store/letters.h"
#include "common/store/spool.h"
#include "common/store/waiting.h"
#include "tests/fixtures/store_fixture.h"

TestSuite(waiting, .init = fixture_init, .fini = fixture_fini);

#define NOW  UINT64_C(1000000)
#define MOST 600

/* Rows that were visited. */
struct seen {
    int64_t rows[MOST];
    enum waiting_state states[MOST];
    struct waiting_place places[MOST];
    size_t n, stop; /* 0: at the end */
};

static int see(const struct waiting_row *w, void *arg)
{
    struct seen *seen = arg;

    cr_assert(seen->n < MOST);
    waiting_place_of(w, &seen->places[seen->n]);
    seen->states[seen->n] = w->state;
    seen->rows[seen->n++] = w->m.row;
    return seen->n == seen->stop ? 77 : 0;
}

static struct waiting_filter all(void)
{
    return (struct waiting_filter){
        .states = WAITING_ALL, .now_ns = NOW, .body_most = 64};
}

static struct seen list(struct store *s, struct waiting_filter f)
{
    const struct waiting_place first = {0};
    static struct seen seen;

    seen.n = seen.stop = 0;
    cr_assert(waiting_each(s, &f, &first, see, &seen) == 0);
    return seen;
}

static int64_t add(struct store *s, enum store_state state, uint64_t due_ns,
                   uint32_t attempts, const char *group, uint32_t priority)
{
    static uint64_t seq;
    struct store_row m = fixture_row(state, "some text");

    m.receive_seq = ++seq;
    m.due_ns = due_ns;
    m.attempts = attempts;
    m.error = attempts ? "exit 3" : NULL;
    m.group = group;
    m.group_size = group ? strlen(group) : 0;
    m.priority = priority;
    m.first_received_ns = 100 + seq;
    m.reason = state == STORE_DEAD ? REASON_EXHAUSTED : REASON_NONE;
    return fixture_put(s, &m);
}

static bool is(const struct seen *seen, const int64_t *rows, size_t n)
{
    return seen->n == n && memcmp(seen->rows, rows, n * sizeof *rows) == 0;
}

Test(waiting, each_state_in_the_order_in_which_it_comes)
{
    struct store *s = fixture_open();
    int64_t park_b = add(s, STORE_PARKED, 0, 0, "b", 0);
    int64_t retry = add(s, STORE_WAITING, NOW + 20, 2, NULL, 0);
    int64_t delayed = add(s, STORE_WAITING, NOW + 10, 0, NULL, 0);
    int64_t ready = add(s, STORE_WAITING, NOW, 1, NULL, 0);
    int64_t low = add(s, STORE_PARKED, 0, 0, "a", 1);
    int64_t high = add(s, STORE_PARKED, 0, 0, "a", 9);
    struct seen seen;

    add(s, STORE_DEAD, 0, 1, "b", 0);
    seen = list(s, all());
    cr_assert(
        is(&seen, (int64_t[]){ready, delayed, retry, high, low, park_b}, 6));
    cr_assert_eq(seen.states[0], WAITING_READY);
    cr_assert_eq(seen.states[1], WAITING_DELAYED);
    cr_assert_eq(seen.states[2], WAITING_RETRY);
    cr_assert_eq(seen.states[5], WAITING_PARKED);
    store_close(&s);
}

Test(waiting, a_group_with_a_letter_is_held_where_groups_are)
{
    struct store *s = fixture_open();
    struct waiting_filter f = all();
    int64_t free_row = add(s, STORE_PARKED, 0, 0, "a", 0);
    int64_t held = add(s, STORE_PARKED, 0, 0, "b", 0);
    struct seen seen;

    add(s, STORE_DEAD, 0, 1, "b", 0);
    f.holds = true;
    f.states = WAITING_BIT(WAITING_HELD);
    seen = list(s, f);
    cr_assert(is(&seen, &held, 1));
    cr_assert_eq(seen.states[0], WAITING_HELD);
    f.states = WAITING_BIT(WAITING_PARKED);
    seen = list(s, f);
    cr_assert(is(&seen, &free_row, 1));
    f.holds = false;
    seen = list(s, f);
    cr_assert(is(&seen, (int64_t[]){free_row, held}, 2));
    store_close(&s);
}

Test(waiting, each_filter)
{
    struct store *s = fixture_open();
    int64_t a = add(s, STORE_WAITING, NOW + 1, 0, "a", 0);
    int64_t b = add(s, STORE_WAITING, NOW + 2, 1, "b", 0);
    int64_t c = add(s, STORE_PARKED, 0, 0, "b", 0);
    int64_t d = add(s, STORE_WAITING, NOW - 2, 1, "b", 0);
    struct waiting_filter f = all();
    struct store_row m;
    struct seen seen;

    f.group = "b";
    seen = list(s, f);
    cr_assert(is(&seen, (int64_t[]){d, b, c}, 3));
    f.states = WAITING_BIT(WAITING_DELAYED) | WAITING_BIT(WAITING_READY);
    seen = list(s, f);
    cr_assert(is(&seen, &d, 1), "not with a group");
    f = all();
    f.error_like = "exit ?";
    seen = list(s, f);
    cr_assert(is(&seen, (int64_t[]){d, b}, 2));
    f = all();
    f.match = "nothing";
    cr_assert_eq(list(s, f).n, 0);
    f.match = "me te";
    cr_assert_eq(list(s, f).n, 4);
    f = all();
    cr_assert(store_get(s, b, &m, NULL, 0, (char[256]){0}) == 0);
    f.since_ns = m.first_received_ns;
    seen = list(s, f);
    cr_assert(is(&seen, (int64_t[]){d, b, c}, 3));
    f.until_ns = m.first_received_ns + 1;
    seen = list(s, f);
    cr_assert(is(&seen, &b, 1));
    f = all();
    f.states = WAITING_BIT(WAITING_DELAYED);
    seen = list(s, f);
    cr_assert(is(&seen, &a, 1));
    store_close(&s);
}

/* Check that each row is followed by what follows it in the whole list. */
static void goes_on(struct store *s, struct waiting_filter f)
{
    struct seen whole = list(s, f), rest;

    for (size_t i = 0; i < whole.n; i++) {
        rest.n = rest.stop = 0;
        cr_assert(waiting_each(s, &f, &whole.places[i], see, &rest) == 0);
        cr_assert(is(&rest, whole.rows + i + 1, whole.n - i - 1),
                  "after %zu of %zu", i, whole.n);
    }
}

Test(waiting, goes_on_behind_any_row)
{
    static const char *const groups[] = {"a", "b", "c\xff", ""};
    struct store *s = fixture_open();
    struct waiting_filter f = all();
    unsigned seed = 20261122;

    for (int i = 0; i < 300; i++) {
        const char *group = groups[rand_r(&seed) % 3];

        if (rand_r(&seed) % 2)
            add(s, STORE_PARKED, 0, 0, group, (unsigned)rand_r(&seed) % 3);
        else
            add(s, STORE_WAITING, NOW - 50 + (unsigned)rand_r(&seed) % 100,
                (unsigned)rand_r(&seed) % 2, rand_r(&seed) % 2 ? group : NULL,
                0);
    }
    add(s, STORE_DEAD, 0, 1, "b", 0);
    cr_assert_eq(list(s, f).n, 300);
    goes_on(s, f);
    f.holds = true;
    goes_on(s, f);
    f.states = WAITING_BIT(WAITING_RETRY) | WAITING_BIT(WAITING_HELD);
    goes_on(s, f);
    f.states = WAITING_ALL;
    f.group = "b";
    goes_on(s, f);
    f.states = WAITING_BIT(WAITING_DELAYED) | WAITING_BIT(WAITING_PARKED);
    goes_on(s, f);
    store_close(&s);
}

Test(waiting, a_visit_ends_the_walk)
{
    struct store *s = fixture_open();
    const struct waiting_place first = {0};
    struct waiting_filter f = all();
    struct seen seen = {.stop = 2};

    for (int i = 0; i < 200; i++)
        add(s, STORE_WAITING, NOW + 1, 0, NULL, 0);
    cr_assert_eq(waiting_each(s, &f, &first, see, &seen), 77);
    cr_assert_eq(seen.n, 2);
    store_close(&s);
}

/* Keep the state of the visited row, whose body must be cut to 4 bytes. */
static int one_is(const struct waiting_row *w, void *arg)
{
    *(enum waiting_state *)arg = w->state;
    cr_assert_eq(w->body_size, 4, "not cut to 4 bytes");
    cr_assert_eq(memcmp(w->body, "some", 4), 0);
    return 0;
}

Test(waiting, one_row)
{
    struct store *s = fixture_open();
    struct waiting_filter f = {.now_ns = NOW, .body_most = 4, .holds = true};
    int64_t parked = add(s, STORE_PARKED, 0, 0, "g", 0);
    int64_t letter = add(s, STORE_DEAD, 0, 1, "g", 0);
    enum waiting_state state;

    cr_assert_eq(waiting_get(s, parked, &f, one_is, &state), 0);
    cr_assert_eq(state, WAITING_HELD);
    cr_assert_eq(fixture_discard(s, &letter, 1), 1);
    cr_assert_eq(waiting_get(s, parked, &f, one_is, &state), 0);
    cr_assert_eq(state, WAITING_PARKED);
    cr_assert_eq(waiting_get(s, letter, &f, one_is, &state), -ENOENT);
    letter = add(s, STORE_DEAD, 0, 1, "g", 0);
    cr_assert_eq(waiting_get(s, letter, &f, one_is, &state), -ENOENT);
    store_close(&s);
}

/* ---- how rows are found ---- */

enum {
#define STATEMENT(id, text) id,
#include "common/store/statements.h"
#undef STATEMENT
    STATEMENTS
};
static const char *const texts[] = {
#define STATEMENT(id, text) [id] = (text),
#include "common/store/statements.h"
#undef STATEMENT
};

static void nop(sqlite3_context *context, int n, sqlite3_value **args)
{
    (void)n, (void)args;
    sqlite3_result_int(context, 1);
}

/* Return how SQLite would run a statement, in its words. */
static const char *plan(int id)
{
    static char text[1024];
    char sql[2048];
    sqlite3 *db;
    sqlite3_stmt *st;
    int rc;

    text[0] = '\0';
    snprintf(sql, sizeof sql, "EXPLAIN QUERY PLAN %s", texts[id]);
    cr_assert(sqlite3_open(fixture_db, &db) == SQLITE_OK);
    rc = sqlite3_create_function(db, "error_like", 3, SQLITE_UTF8, NULL, nop,
                                 NULL, NULL);
    rc |= sqlite3_create_function(db, "error_text", 3, SQLITE_UTF8, NULL, nop,
                                  NULL, NULL);
    rc |= sqlite3_create_function(db, "body_has", 3, SQLITE_UTF8, NULL, nop,
                                  NULL, NULL);
    rc |= sqlite3_prepare_v2(db, sql, -1, &st, NULL);
    cr_assert(rc == SQLITE_OK, "%s", sqlite3_errmsg(db));
    while (sqlite3_step(st) == SQLITE_ROW) {
        strcat(text, (const char *)sqlite3_column_text(st, 3));
        strcat(text, "; ");
    }
    sqlite3_finalize(st);
    sqlite3_close(db);
    return text;
}

Test(waiting, no_page_is_sorted_and_each_is_found_by_an_index)
{
    static const struct {
        int id;
        const char *index;
    } all_of[] = {
        {SQL_WAITING, "messages_due (state=? AND due_ns>? AND due_ns<?)"},
        {SQL_WAITING_KIND, "messages_waiting (state=? AND <expr>=? AND "
                           "due_ns>? AND due_ns<?)"},
        {SQL_WAITING_PARKED, "messages_parked (state=? AND group_key=? AND "
                             "priority=? AND receive_seq>?"},
        {SQL_PARKED_NEXT, "messages_parked (state=? AND group_key>?"},
        {SQL_PARKED_PRIORITY, "messages_parked (state=? AND group_key=? AND "
                              "priority<?"},
        {SQL_GROUP_HEAD, "messages_groups (group_key=? AND state=? AND "
                         "attempts>?"},
    };
    struct store *s = fixture_open();

    for (size_t i = 0; i < sizeof all_of / sizeof *all_of; i++) {
        const char *how = plan(all_of[i].id);

        cr_assert_not_null(strstr(how, all_of[i].index), "%d: %s", all_of[i].id,
                           how);
        cr_assert_null(strstr(how, "TEMP B-TREE"), "%s", how);
    }
    store_close(&s);
}

/* Check that each row, in any of the four states, is found by its id alone. */
static void found(struct store *s, const int64_t rows[4])
{
    struct ulid id = {.bytes = {0xff}};
    int64_t row;

    cr_assert_eq(store_find_id(s, &id, &row), -ENOENT);
    for (int i = 0; i < 4; i++) {
        struct store_row m;

        cr_assert_eq(store_get(s, rows[i], &m, NULL, 0, NULL), 0);
        cr_assert_eq(store_find_id(s, &m.id, &row), 0);
        cr_assert_eq(row, rows[i]);
    }
}

Test(waiting, a_letter_is_found_by_its_id_without_a_look_at_the_others)
{
    struct store *s = fixture_open();
    const char *how = plan(SQL_FIND_ID);

    cr_assert_not_null(strstr(how, "messages_letter_ids (id=?)"), "%s", how);
    cr_assert_null(strstr(how, "SCAN messages"), "%s", how);
    store_close(&s);
}

/* Each third of the rows above 9000 is cancelled. */
Test(waiting, cancelled_ones_are_counted_all_and_without_a_look_at_the_others)
{
    struct store *s = fixture_open();

    fixture_sql("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1"
                " FROM n WHERE i < 40000) INSERT INTO spool (key, received_ns,"
                " crashes, flags, data) SELECT i, 0, 0, (i > 9000 AND"
                " i % 3 = 0) * 8, 'x' FROM n");
    fixture_sql("INSERT INTO messages (state, id, priority, attempts, crashes,"
                " flags, due_ns, first_received_ns, died_ns, reason,"
                " header_size, data) SELECT 1 + key % 2, x'00', 0, 0, 0, flags,"
                " 0, 0, 0, 0, 0, data FROM spool");
    cr_expect_eq(store_count_cancelled(s, 0), 10333);
    cr_expect_eq(store_count_cancelled(s, STORE_WAITING) +
                     store_count_cancelled(s, STORE_PARKED),
                 10333);
    cr_expect(strstr(plan(SQL_SPOOL_COUNT_CANCELLED), "INDEX spool_cancelled"));
    cr_expect(strstr(plan(SQL_COUNT_CANCELLED),
                     "INDEX messages_cancelled (state=?)"));
    store_close(&s);
}

Test(waiting, each_is_found_by_its_id)
{
    struct store *s = fixture_open();
    int64_t rows[4] = {add(s, STORE_WAITING, NOW + 1, 0, NULL, 0),
                       add(s, STORE_PARKED, 0, 0, "a", 0),
                       add(s, STORE_DEAD, 0, 1, NULL, 0),
                       add(s, STORE_DEAD, 0, 1, NULL, 0)};

    fixture_sql("UPDATE messages SET state = 4 WHERE row = 4");
    cr_assert_eq(list(s, all()).n, 2);
    found(s, rows);
    store_close(&s);
}
