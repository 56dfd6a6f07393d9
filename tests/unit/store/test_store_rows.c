/* test_store_rows.c - rows in and out of a store, and what is due */
#include <errno.h>

#include "common/store/letters.h"
#include "tests/fixtures/store_fixture.h"

TestSuite(store_rows, .init = fixture_init, .fini = fixture_fini);

Test(store_rows, all_fields_come_back)
{
    static const char body[] = "head\nbo\0dy\xff";
    struct store_attempt a = {1, 2, "exit 1", "oops\n\0\xfe", 7, false};
    struct store_row out, m = {
                              .state = STORE_WAITING,
                              .receive_seq = 42,
                              .priority = 32767,
                              .attempts = 3,
                              .crashes = 2,
                              .flags = STORE_REDELIVERED,
                              .group = "konto-\xc3\xa4",
                              .group_size = 8,
                              .due_ns = 1234567890123,
                              .first_received_ns = 5,
                              .died_ns = 6,
                              .reason = REASON_CRASHED,
                              .error = "signal 11",
                              .data = body,
                              .size = sizeof body - 1,
                              .header_size = 5,
                          };
    char data[64], group[256];
    int64_t row = 0, found;
    uint64_t seq;
    m.id = ulid_make(1);
    struct store *s = fixture_open();
    cr_assert(store_put(s, &m, &a, &row) == 0 && row > 0);
    cr_assert(store_get(s, row, &out, data, sizeof data, group) == 0);
    cr_assert(out.row == row && out.state == m.state);
    cr_assert(out.receive_seq == 42 && out.priority == 32767);
    cr_assert(!memcmp(&out.id, &m.id, sizeof m.id));
    cr_assert(out.attempts == 3 && out.crashes == 2 && out.flags == m.flags);
    cr_assert(out.group == group && out.group_size == 8);
    cr_assert(!memcmp(group, m.group, 8));
    cr_assert(out.due_ns == m.due_ns && out.first_received_ns == 5);
    cr_assert(out.died_ns == 6 && out.reason == REASON_CRASHED && !out.error);
    cr_assert(out.size == m.size && !memcmp(data, body, m.size));
    cr_assert(out.data == data && out.header_size == 5);
    cr_assert(store_find_seq(s, 42, &found) == 0 && found == row);
    cr_assert(store_find_seq(s, 41, &found) == -ENOENT);
    cr_assert(store_max_seq(s, &seq) == 0 && seq == 42);
    cr_assert(fixture_sql("SELECT length(stderr) FROM attempts") == 7);
    store_close(&s);
}

Test(store_rows, a_body_is_read_only_where_there_is_room_for_it)
{
    struct store *s = fixture_open();
    struct store_row out, m = fixture_row(STORE_PARKED, "123456");
    char data[8];
    int64_t row = fixture_put(s, &m);
    cr_assert(store_get(s, row, &out, data, 5, NULL) == -EMSGSIZE);
    cr_assert(store_get(s, row, &out, data, 6, NULL) == 0);
    cr_assert(store_get(s, row, &out, NULL, 0, NULL) == 0);
    cr_assert(out.size == 6 && out.data == NULL && out.group == NULL);
    cr_assert(store_get(s, row + 1, &out, NULL, 0, NULL) == -ENOENT);
    m = fixture_row(STORE_PARKED, "");
    row = fixture_put(s, &m);
    cr_assert(store_get(s, row, &out, data, 0, NULL) == 0 && out.size == 0);
    store_close(&s);
}

Test(store_rows, the_largest_body_fits)
{
    size_t size = 16u << 20;
    unsigned char *body = malloc(size), *data = malloc(size);
    struct store *s = fixture_open();
    struct store_row out, m = fixture_row(STORE_DEAD, "");
    for (size_t i = 0; i < size; i++)
        body[i] = (unsigned char)(i * 2654435761u >> 13);
    m.data = body;
    m.size = size;
    int64_t row = fixture_put(s, &m);
    cr_assert(store_get(s, row, &out, data, size, NULL) == 0);
    cr_assert(memcmp(body, data, size) == 0);
    store_close(&s);
    free(body);
    free(data);
}

Test(store_rows, a_second_row_with_the_same_receive_sequence_is_refused_whole)
{
    struct store *s = fixture_open();
    struct store_attempt a = {.error = "exit 1"};
    struct store_row m = fixture_row(STORE_WAITING, "x");
    int64_t row = 77;
    m.receive_seq = 9;
    fixture_put(s, &m);
    cr_assert(store_put(s, &m, &a, &row) == -EEXIST && row == 77);
    cr_assert(store_count(s, STORE_WAITING) == 1);
    cr_assert(fixture_sql("SELECT count(*) FROM attempts") == 0);
    m.receive_seq = 0; /* none is not the same as none */
    fixture_put(s, &m);
    fixture_put(s, &m);
    cr_assert(store_count(s, STORE_WAITING) == 3);
    store_close(&s);
}

Test(store_rows, an_update_keeps_the_body_and_adds_to_the_history)
{
    struct store *s = fixture_open();
    struct store_attempt a = {.error = "exit 1"};
    struct store_row out, m = fixture_row(STORE_WAITING, "body");
    char data[8];
    cr_assert(store_put(s, &m, &a, &m.row) == 0);
    int64_t row = m.row;
    m.state = STORE_DEAD;
    m.reason = REASON_EXHAUSTED;
    m.data = "other";
    m.size = 5;
    m.attempts = 2;
    cr_assert(store_put(s, &m, &a, &m.row) == 0 && m.row == row);
    cr_assert(store_get(s, row, &out, data, sizeof data, NULL) == 0);
    cr_assert(out.size == 4 && !memcmp(data, "body", 4));
    cr_assert(out.state == STORE_DEAD && out.attempts == 2);
    cr_assert(store_count(s, STORE_WAITING) == 0);
    cr_assert(store_count(s, STORE_DEAD) == 1);
    cr_assert(fixture_sql("SELECT max(n) FROM attempts") == 2);
    store_close(&s);
}

Test(store_rows, a_row_that_is_gone_is_not_written_again)
{
    struct store *s = fixture_open();
    struct store_attempt a = {.error = "exit 1"};
    struct store_row m = fixture_row(STORE_WAITING, "x");
    cr_assert(store_put(s, &m, &a, &m.row) == 0);
    cr_assert(store_delete(s, m.row, NULL) == 0);
    cr_assert(store_delete(s, m.row, NULL) == 0);
    cr_assert(fixture_sql("SELECT count(*) FROM attempts") == 0);
    cr_assert(store_put(s, &m, &a, NULL) == -ENOENT);
    cr_assert(fixture_sql("SELECT count(*) FROM attempts") == 0);
    cr_assert(fixture_sql("SELECT count(*) FROM messages") == 0);
    store_close(&s);
}

Test(store_rows, a_row_number_is_never_used_twice)
{
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_DEAD, "x");
    int64_t last = 0;
    for (int i = 0; i < 5; i++) {
        int64_t row = fixture_put(s, &m);
        cr_assert(row > last);
        last = row;
        cr_assert(store_delete(s, row, NULL) == 0);
        store_close(&s);
        s = fixture_open();
    }
    store_close(&s);
}

Test(store_rows, nonsense_is_refused)
{
    char group[300] = "";
    struct store *s = fixture_open();
    struct store_row m = fixture_row((enum store_state)0, "x");
    cr_assert(store_put(s, &m, NULL, NULL) == -EINVAL);
    m.state = STORE_WAITING;
    m.header_size = 2;
    cr_assert(store_put(s, &m, NULL, NULL) == -EINVAL);
    m.header_size = 0;
    m.group = group;
    m.group_size = 257;
    cr_assert(store_put(s, &m, NULL, NULL) == -EINVAL);
    m.group_size = 256;
    memset(group, 'g', 256);
    cr_assert(store_put(s, &m, NULL, NULL) == 0);
    store_close(&s);
}

Test(store_rows, reasons_have_names)
{
    for (int i = REASON_NONE + 1; i < REASON_COUNT; i++) {
        const char *text = dead_reason_text((enum dead_reason)i);
        cr_assert((int)dead_reason_parse(text) == i, "%s", text);
    }
    cr_assert(dead_reason_parse("none") == REASON_COUNT);
    cr_assert(dead_reason_parse("") == REASON_COUNT);
    cr_assert_str_eq(dead_reason_text(REASON_BAD_HEADER), "bad-header");
    cr_assert_str_eq(dead_reason_text(REASON_GROUP_CLOSED), "group-closed");
}

static bool is_odd(int64_t row, void *arg)
{
    (void)arg;
    return row % 2 != 0;
}

/* Rows from which the result of store_due is computed the slow way. */
struct model {
    struct store_row all[500]; /* row i; due_ns 0: not waiting */
    int64_t count;
};

/* Return true if row a comes before row b. */
static bool before(const struct store_row *a, const struct store_row *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (a->due_ns != b->due_ns)
        return a->due_ns < b->due_ns;
    return a->receive_seq < b->receive_seq;
}

static size_t model_due(const struct model *model, uint64_t now, bool even,
                        size_t room, int64_t *rows, uint64_t *next)
{
    bool taken[500] = {false};
    size_t n = 0;
    *next = UINT64_MAX;
    for (int64_t i = 1; i <= model->count; i++)
        if (model->all[i].due_ns > now && model->all[i].due_ns < *next)
            *next = model->all[i].due_ns;
    while (n < room) {
        int64_t best = 0;
        for (int64_t i = 1; i <= model->count; i++)
            if (model->all[i].due_ns && model->all[i].due_ns <= now &&
                !taken[i] && !(even && i % 2) &&
                (!best || before(&model->all[i], &model->all[best])))
                best = i;
        if (!best)
            break;
        taken[best] = true;
        rows[n++] = best;
    }
    return n;
}

Test(store_rows, due_rows_come_as_a_dumb_model_says)
{
    static struct model model = {.count = 300};
    struct store *s = fixture_open();
    unsigned seed = (unsigned)clock_wall_ns();
    printf("seed %u\n", seed);
    for (int64_t i = 1; i <= model.count; i++) {
        bool waits = rand_r(&seed) % 4 != 0;
        struct store_row m =
            fixture_row(waits ? STORE_WAITING : STORE_PARKED, "x");
        m.due_ns = 1 + (unsigned)rand_r(&seed) % 20;
        m.priority = (unsigned)rand_r(&seed) % 4 * 10;
        m.receive_seq = (uint64_t)(i * 7919 % 1009);
        model.all[i] = m;
        model.all[i].due_ns = waits ? m.due_ns : 0;
        cr_assert(fixture_put(s, &m) == i);
    }
    for (int round = 0; round < 200; round++) {
        int64_t want[500], got[500];
        uint64_t next_want, next_got, now = (unsigned)rand_r(&seed) % 25;
        size_t room = (unsigned)rand_r(&seed) % 400;
        bool even = rand_r(&seed) % 2;
        size_t n = model_due(&model, now, even, room, want, &next_want);
        int found =
            store_due(s, now, got, room, even ? is_odd : NULL, NULL, &next_got);
        cr_assert(found == (int)n, "%d, not %zu", found, n);
        cr_assert(memcmp(want, got, n * sizeof want[0]) == 0);
        cr_assert(next_got == next_want);
    }
    store_close(&s);
}

Test(store_rows, of_many_rows_due_at_the_same_time_none_is_missed)
{
    enum { N = 150 };
    int64_t rows[N + 1];
    uint64_t next;
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_WAITING, "x");
    m.due_ns = 5;
    for (int i = 0; i < N; i++) {
        m.receive_seq = (uint64_t)(N - i);
        fixture_put(s, &m);
    }
    cr_assert(store_due(s, 5, rows, N + 1, NULL, NULL, &next) == N);
    for (int i = 0; i < N; i++)
        cr_assert(rows[i] == N - i, "not in the order of their sequence");
    cr_assert(next == UINT64_MAX);
    store_close(&s);
}

Test(store_rows, a_put_that_fails_half_way_leaves_nothing)
{
    struct store *s = fixture_open();
    struct store_attempt a = {.error = "bad"};
    struct store_row m = fixture_row(STORE_WAITING, "x");
    fixture_sql("CREATE TRIGGER half BEFORE INSERT ON attempts"
                " BEGIN SELECT RAISE(ABORT, 'no'); END");
    cr_assert(store_put(s, &m, &a, NULL) < 0);
    cr_assert(store_count(s, STORE_WAITING) == 0);
    m.row = fixture_put(s, &m);
    m.state = STORE_DEAD;
    cr_assert(store_put(s, &m, &a, NULL) < 0);
    cr_assert(store_count(s, STORE_WAITING) == 1);
    store_close(&s);
}

Test(store_rows, a_due_time_at_the_end_of_time_is_kept)
{
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_WAITING, "x");
    int64_t rows[2];
    uint64_t next;
    m.due_ns = UINT64_MAX;
    fixture_put(s, &m);
    cr_assert(store_due(s, clock_boot_ns(), rows, 2, NULL, NULL, &next) == 0);
    cr_assert(next == INT64_MAX);
    m.due_boot_ns = UINT64_MAX;
    fixture_sql("UPDATE clock SET ahead_ns = 1700000000000000000");
    cr_assert(fixture_put(s, &m) == 2);
    cr_assert(store_get(s, 2, &m, NULL, 0, NULL) == 0);
    cr_assert(m.due_ns == INT64_MAX && m.due_boot_ns == 0);
    cr_assert(store_due(s, UINT64_MAX, rows, 2, NULL, NULL, &next) == 2);
    cr_assert(next == UINT64_MAX);
    store_close(&s);
}

Test(store_rows, the_dead_are_found_in_order_of_death)
{
    static const uint64_t died[] = {50, 10, 50, 30, 10};
    static const int64_t order[] = {2, 5, 4, 1, 3};
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_DEAD, "x");
    int64_t row = 0;
    uint64_t at = 0;
    for (int i = 0; i < 5; i++) {
        m.died_ns = died[i];
        fixture_put(s, &m);
    }
    m.state = STORE_REPLAYED;
    fixture_put(s, &m);
    for (int i = 0; i < 5; i++) {
        cr_assert(store_next_dead(s, at, row, &row) == 0);
        cr_assert(row == order[i]);
        at = died[row - 1];
    }
    cr_assert(store_next_dead(s, at, row, &row) == -ENOENT);
    store_close(&s);
}

Test(store_rows, replayed_letters_of_another_boot_are_dead_again)
{
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_REPLAYED, "x");
    for (int i = 0; i < 3; i++)
        fixture_put(s, &m);
    cr_assert(store_recall(s, NULL, NULL) == 0);
    cr_assert(store_count(s, STORE_REPLAYED) == 3);
    fixture_sql("UPDATE messages SET boot = 'another' WHERE row <= 2");
    cr_assert(store_recall(s, NULL, NULL) == 2);
    cr_assert(store_recall(s, NULL, NULL) == 0);
    cr_assert(store_count(s, STORE_DEAD) == 2);
    cr_assert(store_count(s, STORE_REPLAYED) == 1);
    store_close(&s);
}

Test(store_rows, what_waits_is_marked_as_maybe_begun)
{
    static const enum store_state states[] = {STORE_WAITING, STORE_PARKED,
                                              STORE_DEAD, STORE_REPLAYED};
    struct store *s = fixture_open();

    for (int i = 0; i < 4; i++) {
        struct store_row m = fixture_row(states[i], "x");

        m.flags = i == 0 ? STORE_CANCELLED : STORE_LENGTH_INFERRED;
        fixture_put(s, &m);
    }
    for (int i = 0; i < 2; i++) { /* once more changes nothing */
        cr_assert(store_doubt(s) == 0);
        cr_assert(fixture_sql("SELECT flags FROM messages WHERE row = 1") ==
                  (STORE_CANCELLED | STORE_REDELIVERED));
        cr_assert(fixture_sql("SELECT flags FROM messages WHERE row = 2") ==
                  (STORE_LENGTH_INFERRED | STORE_REDELIVERED));
        cr_assert(fixture_sql("SELECT sum(flags) FROM messages "
                              "WHERE row > 2") == 2 * STORE_LENGTH_INFERRED,
                  "letters are in doubt");
    }
    store_close(&s);
}

/* Return true for the rows that are to be skipped. */
static bool held(int64_t row, void *arg)
{
    const int64_t *only = arg;
    return row % *only == 0;
}

Test(store_rows, letters_that_are_held_are_not_recalled)
{
    int64_t each = 5;
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_REPLAYED, "x");
    for (int i = 0; i < 200; i++) { /* several pages */
        m.died_ns = (uint64_t)(i / 3);
        fixture_put(s, &m);
    }
    fixture_sql("UPDATE messages SET boot = 'another'");
    cr_assert(store_recall(s, held, &each) == 160);
    cr_assert(store_count(s, STORE_REPLAYED) == 40);
    cr_assert(store_recall(s, held, &each) == 0);
    each = 1;
    cr_assert(store_recall(s, held, &each) == 0,
              "recalled, but all of a page is held");
    cr_assert(store_recall(s, NULL, NULL) == 40);
    store_close(&s);
}

Test(store_rows, several_at_once_pass_over_one_that_is_gone_or_there_already)
{
    struct store *s = fixture_open();
    struct store_row m[4] = {fixture_row(STORE_REPLAYED, "discarded"),
                             fixture_row(STORE_PARKED, "a"),
                             fixture_row(STORE_PARKED, "b"),
                             fixture_row(STORE_REPLAYED, "letter")};
    m[0].row = fixture_put(s, &m[0]);
    m[1].receive_seq = 7;
    fixture_put(s, &m[1]);
    m[3].row = fixture_put(s, &m[3]);
    cr_assert(store_delete(s, m[0].row, NULL) == 0);
    m[0].state = m[3].state = STORE_PARKED;
    cr_assert(store_put_all(s, m, 4) == 0);
    cr_assert(store_count(s, STORE_PARKED) == 3);
    cr_assert(store_count(s, STORE_REPLAYED) == 0);
    store_close(&s);
}

/* Return what the store knows of its only group. */
static struct store_group group_of(struct store *s)
{
    struct store_group g = {0};
    char key[256] = "";
    size_t size = 0;
    cr_assert(store_next_group(s, key, &size, &g) == 0);
    cr_assert(size == 1 && key[0] == 'a');
    return g;
}

Test(store_rows,
     a_letter_that_a_stop_kept_is_the_head_and_a_letter_of_its_group)
{
    struct store *s = fixture_open();
    int64_t row, first, retry;
    struct store_row m = fixture_row(STORE_WAITING, "x");
    m.group = "a";
    m.group_size = 1;
    fixture_put(s, &m); /* one that is only delayed */
    cr_assert(group_of(s).head == 0);
    cr_assert(store_group_letter(s, "a", 1, &row) == -ENOENT);
    m.flags = STORE_FRONT;
    first = fixture_put(s, &m);
    fixture_put(s, &m);
    cr_assert(group_of(s).head == first && group_of(s).letters == 0);
    cr_assert(store_group_letter(s, "a", 1, &row) == 0 && row == first);
    m.flags = 0;
    m.attempts = 1;
    retry = fixture_put(s, &m);
    cr_assert(group_of(s).head == retry, "what has begun is not the head");
    m.state = STORE_DEAD;
    cr_assert(store_delete(s, retry, NULL) == 0);
    row = fixture_put(s, &m);
    cr_assert(group_of(s).head == first && group_of(s).letters == 1);
    store_close(&s);
}

/* ---- how many wait ---- */

/* Check the counts of what waits against SQL. */
static void waits_right(struct store *s)
{
    int64_t n =
        fixture_sql("SELECT count(*) FROM messages WHERE state IN (1, 2)");
    int64_t parked = store_count(s, STORE_PARKED);
    cr_assert(rows_waiting(s) == n, "%lld, not %lld",
              (long long)rows_waiting(s), (long long)n);
    cr_assert(store_waits(s).parked == parked, "%lld, not %lld",
              (long long)store_waits(s).parked, (long long)parked);
}

/* Do one of what a worker, or an operator beside it, does to rows. */
static void waits_step(struct store *s, int64_t most, uint64_t *seq)
{
    enum store_state state = (enum store_state)(1 + random() % 4);
    struct store_row m = fixture_row(state, "body"), several[3];
    int64_t row = 1 + random() % most;

    switch (random() % 6) {
    case 0:
    case 1:
        m.receive_seq = random() % 3 ? ++*seq : *seq; /* or one that is there */
        (void)store_put(s, &m, NULL, NULL);
        break;
    case 2:
        m.row = row; /* which may be gone */
        (void)store_put(s, &m, NULL, NULL);
        break;
    case 3:
        for (int i = 0; i < 3; i++) {
            several[i] = fixture_row(state, "several");
            several[i].receive_seq = random() % 3 ? ++*seq : *seq;
        }
        several[1].row = row;
        cr_assert(store_put_all(s, several, 3) == 0);
        break;
    case 4:
        cr_assert(store_delete(s, row, NULL) == 0);
        break;
    default: /* only letters are changed */
        if (store_get(s, row, &m, NULL, 0, NULL) == 0)
            (void)letters_mark_replayed(
                s, &(struct letter_mark){.row = row, .id = m.id}, NULL);
        (void)fixture_discard(s, &row, 1);
    }
}

Test(store_rows, what_waits_is_counted_through_all_that_happens)
{
    unsigned seed = (unsigned)clock_mono_ns();
    struct problem p;
    uint64_t seq = 1;
    struct store *s = fixture_open();
    fprintf(stderr, "seed %u\n", seed);
    srandom(seed);
    cr_assert(store_claim(s, NULL, &p) == 0);
    cr_assert(rows_waiting(s) == 0);
    for (int i = 0; i < 400; i++) {
        waits_step(s, 1 + i, &seq);
        if (i % 20 == 0)
            waits_right(s);
        if (i % 100 == 99) { /* the next worker finds them */
            store_close(&s);
            s = fixture_open();
            cr_assert(store_claim(s, NULL, &p) == 0);
            waits_right(s);
        }
    }
    waits_right(s);
    store_close(&s);
}
