/* test_store_key.c - who has a unique key, and until when */
#include <errno.h>

#include "common/base/clock.h"
#include "tests/fixtures/store_fixture.h"

#define MINUTE (60 * NS_PER_S)

TestSuite(store_key, .init = fixture_init, .fini = fixture_fini);

/* Claim a key for the message with this sequence, which came at `from`. Returns
 * 0 if it has the key, or else the sequence of the message that has it. */
static unsigned claim(struct store *s, const char *key, uint64_t seq,
                      uint64_t from, uint64_t until)
{
    struct store_key k = {.text = key,
                          .size = strlen(key),
                          .seq = seq,
                          .id = {{(uint8_t)seq}},
                          .received_ns = from,
                          .until_ns = until};
    struct ulid first = {{0}};
    int err = store_key_claim(s, &k, &first);
    cr_assert(err == 0 || err == -EEXIST, "%s", strerror(-err));
    return err ? first.bytes[0] : 0;
}

Test(store_key, another_message_is_a_duplicate_until_the_time_is_over)
{
    struct store *s = fixture_open();
    cr_assert(claim(s, "k", 5, 100, 200) == 0);
    cr_assert(claim(s, "k", 6, 100, 300) == 5);
    cr_assert(claim(s, "k", 7, 199, 300) == 5, "a duplicate prolongs the time");
    cr_assert(claim(s, "l", 8, 150, 300) == 0, "another key is not free");
    cr_assert(claim(s, "k", 9, 200, 300) == 0);
    cr_assert(claim(s, "k", 10, 250, 300) == 9);
    store_close(&s);
}

/* A kill comes between the answer and the end of the message. */
Test(store_key, each_message_gets_the_same_answer_again)
{
    struct store *s = fixture_open();
    cr_assert(claim(s, "k", 5, 100, 200) == 0);
    cr_assert(claim(s, "k", 6, 150, 300) == 5);
    store_close(&s);
    s = fixture_open();
    cr_assert(claim(s, "k", 5, 100, 200) == 0, "a duplicate of itself");
    cr_assert(claim(s, "k", 6, 150, 300) == 5);
    store_close(&s);
}

/* Message 5 ran for longer than its time, 6 came, and then the kill. */
Test(store_key, no_message_is_a_duplicate_of_a_later_one)
{
    struct store *s = fixture_open();
    cr_assert(claim(s, "k", 5, 100, 200) == 0);
    cr_assert(claim(s, "k", 6, 250, 400) == 0);
    cr_assert(claim(s, "k", 5, 100, 200) == 0);
    cr_assert(claim(s, "k", 7, 300, 500) == 6, "6 has lost the key");
    store_close(&s);
}

/* The disk refused the claim of an earlier one, and let a later one have it. */
Test(store_key, of_two_that_claim_in_the_wrong_order_one_runs)
{
    struct store *s = fixture_open();
    cr_assert(claim(s, "k", 6, 150, 400) == 0);
    cr_assert(claim(s, "k", 5, 100, 200) == 6, "both would run");
    cr_assert(claim(s, "k", 6, 150, 400) == 0);
    cr_assert(claim(s, "k", 4, 50, 150) == 0, "a duplicate after its time");
    cr_assert(claim(s, "k", 7, 399, 500) == 6);
    store_close(&s);
}

Test(store_key, a_key_that_has_been_over_for_a_minute_is_removed)
{
    struct store *s = fixture_open();
    char key[16];
    for (uint64_t i = 1; i <= 100; i++) {
        snprintf(key, sizeof key, "key %u", (unsigned)i);
        cr_assert(claim(s, key, i, i * MINUTE, i * MINUTE + 5 * MINUTE) == 0);
    }
    int64_t left = fixture_sql("SELECT count(*) FROM keys");
    cr_assert(left == 6, "%d", (int)left);
    store_close(&s);
}

/* After a power cut custody is new, and its sequences begin after the store's:
 * none may be that of a key. */
Test(store_key, its_sequence_is_never_used_again)
{
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_DEAD, "x");
    uint64_t seq = 0;
    m.receive_seq = 4;
    fixture_put(s, &m);
    cr_assert(store_max_seq(s, &seq) == 0 && seq == 4);
    cr_assert(claim(s, "k", 9, 100, 200) == 0);
    cr_assert(store_max_seq(s, &seq) == 0 && seq == 9);
    store_close(&s);
}

/* Taken while the clock was a year ahead; then the clock was set right. */
Test(store_key, a_key_that_begins_in_the_future_lasts_as_long_as_it_is)
{
    const uint64_t now = 1000 * MINUTE, ahead = now + 500000 * MINUTE;
    struct store *s = fixture_open();
    cr_assert(claim(s, "k", 5, ahead, ahead + MINUTE) == 0);
    cr_assert(claim(s, "k", 6, now, now + MINUTE) == 5);
    cr_assert(claim(s, "k", 6, now, now + MINUTE) == 5, "another answer");
    cr_assert(claim(s, "k", 5, ahead, ahead + MINUTE) == 0,
              "a duplicate of itself");
    cr_assert(claim(s, "k", 7, now + MINUTE - 1, now + 2 * MINUTE) == 5);
    cr_assert(claim(s, "k", 8, now + MINUTE, now + 2 * MINUTE) == 0);
    store_close(&s);
}

static int first_key(const struct store_key *key, void *arg)
{
    *(struct ulid *)arg = key->id;
    return 1;
}

Test(store_key, keys_are_counted_listed_and_given_back)
{
    struct store *s = fixture_open();
    struct ulid id = {{0}};
    cr_assert(claim(s, "k", 5, 100, 200) == 0);
    cr_assert(claim(s, "l", 6, 100, 300) == 0);
    cr_assert_eq(store_keys_count(s, 150), 2);
    cr_assert_eq(store_keys_count(s, 200), 1);
    cr_assert_eq(store_keys_each(s, 150, first_key, &id), 1);
    cr_assert_eq(id.bytes[0], 5);
    cr_assert_eq(store_key_free(s, 5), 0);
    cr_assert(claim(s, "k", 7, 120, 220) == 0);
    cr_assert_eq(store_key_drop(s, "k", 1), 0);
    cr_assert_eq(store_key_drop(s, "k", 1), -ENOENT);
    cr_assert_eq(store_keys_count(s, 150), 1);
    store_close(&s);
}
