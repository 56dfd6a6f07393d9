/* test_store_replay.c - which message is a letter that was sent again */
#include "common/store/letters.h"
#include "tests/fixtures/store_fixture.h"

TestSuite(store_replay, .init = fixture_init, .fini = fixture_fini);

static struct store *s;
static struct ulid id;

/* Put a letter into the store; return its row. */
static int64_t dead(uint64_t died_ns)
{
    struct store_row m = fixture_row(STORE_DEAD, "body");
    m.died_ns = died_ns;
    id = m.id;
    return fixture_put(s, &m);
}

/* Begin a replay of a letter; return its token. */
static struct ulid sent(int64_t row, uint64_t died_ns)
{
    struct letter_mark m = {
        .row = row, .died_ns = died_ns, .id = id, .marked_ns = 1};
    cr_assert(store_token_make(s, &m.token) == 0);
    cr_assert(letters_mark_replayed(s, &m, NULL) == 0);
    return m.token;
}

/* Return what a message with this row, id and token is. */
static enum store_replay is(int64_t row, struct ulid of, struct ulid token)
{
    enum store_replay out = REPLAY_NONE;
    cr_assert(store_replay_find(s, row, &of, &token, &out) == 0);
    return out;
}

/* Write the row again, as the worker does. */
static void becomes(int64_t row, enum store_state state, uint64_t died_ns)
{
    struct store_row m;
    char group[256];
    cr_assert(store_get(s, row, &m, NULL, 0, group) == 0);
    m.state = state;
    m.died_ns = died_ns;
    cr_assert(store_put(s, &m, NULL, NULL) == 0);
}

Test(store_replay, a_token_is_the_stores_and_no_two_are_the_same)
{
    struct ulid a, b;
    s = fixture_open();
    cr_assert(store_token_make(s, &a) == 0 && store_token_make(s, &b) == 0);
    cr_assert(memcmp(a.bytes, b.bytes, STORE_IDENTITY) == 0);
    cr_assert(memcmp(a.bytes + 8, b.bytes + 8, 8) != 0);
    store_close(&s);
    s = fixture_open();
    cr_assert(store_token_make(s, &b) == 0);
    cr_assert(memcmp(a.bytes, b.bytes, STORE_IDENTITY) == 0);
    store_close(&s);
}

Test(store_replay, only_number_id_and_token_together_are_the_letter)
{
    struct ulid none = {{0}}, made_up;
    s = fixture_open();
    int64_t row = dead(100), other = dead(200);
    struct ulid token = sent(other, 200);
    cr_assert(store_token_make(s, &made_up) == 0);
    cr_assert_eq(is(other, id, token), REPLAY_OPEN);
    cr_assert_eq(is(other, none, token), REPLAY_NONE);
    cr_assert_eq(is(other, id, none), REPLAY_NONE);
    cr_assert_eq(is(other, id, made_up), REPLAY_NONE);
    cr_assert_eq(is(row, id, token), REPLAY_NONE, "taken for another letter");
    store_close(&s);
}

Test(store_replay, a_letter_that_nobody_sent_is_no_replay)
{
    struct ulid token;
    s = fixture_open();
    int64_t row = dead(100);
    cr_assert(store_token_make(s, &token) == 0);
    cr_assert_eq(is(row, id, token), REPLAY_NONE);
    cr_assert_eq(is(row, id, (struct ulid){{0}}), REPLAY_NONE);
    store_close(&s);
}

Test(store_replay, what_failed_died_again_or_is_gone_is_over)
{
    s = fixture_open();
    int64_t row = dead(100);
    struct ulid token = sent(row, 100);
    becomes(row, STORE_WAITING, 100);
    cr_assert_eq(is(row, id, token), REPLAY_OVER);
    becomes(row, STORE_PARKED, 100);
    cr_assert_eq(is(row, id, token), REPLAY_OVER);
    becomes(row, STORE_DEAD, 101);
    cr_assert_eq(is(row, id, token), REPLAY_OVER);
    struct ulid second = sent(row, 101);
    cr_assert_eq(is(row, id, token), REPLAY_OVER, "open: of the replay before");
    cr_assert_eq(is(row, id, second), REPLAY_OPEN);
    cr_assert(store_delete(s, row, NULL) == 0);
    cr_assert_eq(is(row, id, token), REPLAY_OVER);
    cr_assert_eq(is(row, id, second), REPLAY_OVER);
    cr_assert_eq(fixture_sql("SELECT count(*) FROM replays"), 0);
    store_close(&s);
}

Test(store_replay, an_edited_letter_has_another_id_and_its_copies_are_over)
{
    struct ulid new_id = {{7}}, second;
    s = fixture_open();
    int64_t row = dead(100);
    struct ulid first = sent(row, 100);
    becomes(row, STORE_DEAD, 101);
    struct letter_edit e = {.id = new_id, .data = "new", .size = 3};
    struct letter_mark m = {.row = row, .died_ns = 101, .id = id, .edit = &e};
    cr_assert(store_token_make(s, &m.token) == 0);
    cr_assert(letters_mark_replayed(s, &m, NULL) == 0);
    second = m.token;
    cr_assert_eq(is(row, new_id, second), REPLAY_OPEN);
    cr_assert_eq(is(row, id, second), REPLAY_NONE);
    cr_assert_eq(is(row, id, first), REPLAY_OVER);
    cr_assert(letters_unmark(s, &m) == 0);
    cr_assert_eq(is(row, id, first), REPLAY_OVER, "open, but it died again");
    store_close(&s);
}

Test(store_replay, one_that_was_recalled_too_early_is_open)
{
    s = fixture_open();
    int64_t row = dead(100);
    struct ulid token = sent(row, 100);
    fixture_sql("UPDATE messages SET boot = 'another'");
    cr_assert_eq(store_recall(s, NULL, NULL), 1);
    cr_assert_eq(is(row, id, token), REPLAY_OPEN);
    struct ulid second = sent(row, 100);
    cr_assert_eq(is(row, id, token), REPLAY_OVER);
    cr_assert_eq(is(row, id, second), REPLAY_OPEN);
    store_close(&s);
}

/* A number that is gone means something only to the store that gave it. */
Test(store_replay, what_another_store_sent_is_not_over)
{
    s = fixture_open();
    for (int i = 0; i < 3; i++)
        (void)dead(1);
    struct ulid token = sent(3, 1), of = id;
    store_close(&s);
    cr_assert(unlink(fixture_db) == 0);
    s = fixture_open(); /* it was removed, say */
    for (int i = 0; i < 5; i++)
        cr_assert(store_delete(s, dead(1), NULL) == 0);
    cr_assert_eq(is(3, of, token), REPLAY_NONE);
    cr_assert(store_token_make(s, &token) == 0);
    cr_assert_eq(is(3, of, token), REPLAY_OVER);
    cr_assert_eq(is(6, of, token), REPLAY_NONE, "over, but never given");
    cr_assert_eq(is(INT64_MAX, of, token), REPLAY_NONE);
    store_close(&s);
}

Test(store_replay, an_empty_store_knows_none)
{
    struct ulid token;
    s = fixture_open();
    cr_assert(store_token_make(s, &token) == 0);
    cr_assert_eq(is(1, token, token), REPLAY_NONE);
    store_close(&s);
}
