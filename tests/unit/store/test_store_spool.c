/* test_store_spool.c - the table of messages that came faster than they run */
#include <errno.h>

#include "common/store/letters.h"
#include "common/store/spool.h"
#include "common/store/waiting.h"
#include "tests/fixtures/store_fixture.h"

TestSuite(store_spool, .init = fixture_init, .fini = fixture_fini);

static struct store_spooled spooled(uint32_t priority, uint64_t seq,
                                    const char *text)
{
    return (struct store_spooled){.key = store_spool_key(priority, seq),
                                  .received_ns = 1000 + seq,
                                  .data = text,
                                  .size = strlen(text)};
}

static int put_in(struct store *s, const struct store_spooled *rows, size_t n)
{
    struct store_spooled in[64];

    cr_assert(n <= 64);
    memcpy(in, rows, n * sizeof *in);
    return store_spool_change(
        s, &(struct store_spool_change){.in = in, .in_count = n});
}

static int take_out(struct store *s, const int64_t *keys, size_t n)
{
    return store_spool_change(
        s, &(struct store_spool_change){.out = keys, .out_count = n});
}

/* Return what the spool holds, in its order, like "3:a 2:b". */
static const char *order(struct store *s)
{
    static char text[512];
    struct store_spooled rows[32];
    char data[512];
    int n = store_spool_read(s, 0, rows, 32, data, sizeof data);
    cr_assert(n >= 0);
    text[0] = '\0';
    for (int i = 0; i < n; i++)
        sprintf(text + strlen(text), "%s%u:%.*s", i ? " " : "",
                store_spool_priority(rows[i].key), (int)rows[i].size,
                (const char *)rows[i].data);
    return text;
}

static struct store_spool_left begin(struct store *s)
{
    struct store_spool_left left;
    cr_assert(store_spool_left(s, &left) == 0);
    cr_assert(store_spool_begin(s, 4711, left.cut ? left.seq : left.doubt) ==
              0);
    return left;
}

Test(store_spool, the_highest_priority_comes_first_and_then_the_oldest)
{
    const struct store_spooled rows[] = {
        spooled(0, 5, "e"),     spooled(32767, 9, "i"), spooled(3, 4, "d"),
        spooled(32767, 2, "b"), spooled(3, 1, "a"),     spooled(0, 8, "h")};
    struct store *s = fixture_open();
    cr_assert(put_in(s, rows, 6) == 0);
    cr_assert_str_eq(order(s), "32767:b 32767:i 3:a 3:d 0:e 0:h");
    store_close(&s);
}

Test(store_spool, a_key_says_priority_and_sequence)
{
    const uint64_t last = STORE_SPOOL_SEQ_MAX - 1;
    cr_assert(store_spool_key(32767, 1) == 1);
    cr_assert(store_spool_key(0, last) == INT64_MAX);
    cr_assert(store_spool_key(1, last) < store_spool_key(0, 1));
    cr_assert(store_spool_priority(store_spool_key(77, last)) == 77);
    cr_assert(store_spool_seq(store_spool_key(77, last)) == last);
}

Test(store_spool, all_fields_come_back)
{
    static const char body[] = "a\0b\xff";
    struct store_spooled out, m = {.key = store_spool_key(9, 7),
                                   .received_ns = 12345678901234,
                                   .id = ulid_make(5),
                                   .crashes = 2,
                                   .flags = STORE_LENGTH_INFERRED,
                                   .letter = 17,
                                   .data = body,
                                   .size = 4};
    char data[8];
    struct store *s = fixture_open();
    cr_assert(put_in(s, &m, 1) == 0);
    cr_assert(store_spool_read(s, 0, &out, 1, data, sizeof data) == 1);
    cr_assert(out.key == m.key && out.received_ns == m.received_ns);
    cr_assert(!memcmp(&out.id, &m.id, sizeof m.id));
    cr_assert(out.crashes == 2 && out.flags == m.flags && out.letter == 17);
    cr_assert(out.size == 4 && !memcmp(out.data, body, 4));
    m.crashes = 3;
    m.flags = STORE_REDELIVERED;
    m.id = ulid_make(6);
    cr_assert(store_spool_note(s, &m) == 0);
    cr_assert(store_spool_read(s, 0, &out, 1, data, sizeof data) == 1);
    cr_assert(out.crashes == 3 && out.flags == STORE_REDELIVERED);
    cr_assert(!memcmp(&out.id, &m.id, sizeof m.id));
    cr_assert(out.size == 4 && !memcmp(out.data, body, 4));
    m.key++;
    cr_assert(store_spool_note(s, &m) == -ENOENT);
    store_close(&s);
}

/* A delayed message comes in with the others, but to the table of messages, and
 * once. */
Test(store_spool, a_delayed_one_is_a_row_of_the_messages)
{
    const struct store_row later = {.state = STORE_WAITING,
                                    .receive_seq = 2,
                                    .id = ulid_make(7),
                                    .due_ns = 5000,
                                    .data = "later",
                                    .size = 5};
    struct store_spooled in[2] = {spooled(0, 1, "a"), spooled(0, 2, "later")};
    const struct store_spool_change c = {.in = in, .in_count = 2};
    struct store *s = fixture_open();
    struct store_row out;
    char data[8];
    int64_t row;

    in[1].later = &later;
    cr_assert(store_spool_change(s, &c) == 0);
    cr_assert_str_eq(order(s), "0:a");
    cr_assert(store_waits(s).spooled == 1 && rows_waiting(s) == 1);
    cr_assert(store_find_seq(s, 2, &row) == 0);
    cr_assert(store_get(s, row, &out, data, sizeof data, NULL) == 0);
    cr_assert(out.state == STORE_WAITING && out.due_ns == 5000);
    cr_assert(out.size == 5 && !memcmp(data, "later", 5));
    in[0] = spooled(0, 3, "c");
    cr_assert(store_spool_change(s, &c) == 0, "not a second time after a kill");
    cr_assert_str_eq(order(s), "0:a 0:c");
    cr_assert(store_waits(s).spooled == 2 && rows_waiting(s) == 1);
    store_close(&s);
}

Test(store_spool, an_empty_body_and_no_id_come_back)
{
    struct store_spooled out, m = spooled(0, 1, "");
    const struct ulid none = {{0}};
    char data[8];
    struct store *s = fixture_open();
    cr_assert(put_in(s, &m, 1) == 0);
    cr_assert(store_spool_read(s, 0, &out, 1, data, sizeof data) == 1);
    cr_assert(out.size == 0 && out.letter == 0);
    cr_assert(!memcmp(&out.id, &none, sizeof none));
    store_close(&s);
}

Test(store_spool, a_page_ends_where_the_next_body_has_no_room)
{
    const struct store_spooled rows[] = {
        spooled(0, 1, "123"), spooled(0, 2, "4567"), spooled(0, 3, "8")};
    struct store_spooled out[4];
    char data[8];
    struct store *s = fixture_open();
    cr_assert(put_in(s, rows, 3) == 0);
    cr_assert(store_spool_read(s, 0, out, 4, data, 7) == 2);
    cr_assert(!memcmp(out[1].data, "4567", 4));
    cr_assert(store_spool_read(s, 0, out, 1, data, 8) == 1);
    cr_assert(store_spool_read(s, out[0].key, out, 4, data, 3) == -EMSGSIZE);
    cr_assert(out[0].key == rows[1].key && out[0].size == 4);
    cr_assert(store_spool_read(s, rows[2].key, out, 4, data, 8) == 0);
    store_close(&s);
}

struct visited {
    uint64_t next; /* sequence that has to come */
    size_t large;
    uint64_t end; /* the visit ends there */
};

static int visit(const struct store_spooled *m, void *arg)
{
    struct visited *v = arg;

    cr_assert_eq(store_spool_seq(m->key), v->next);
    v->next++;
    if (m->size > 1)
        v->large = m->size;
    return store_spool_seq(m->key) == v->end ? 77 : 0;
}

Test(store_spool, each_goes_through_all_pages_and_past_a_large_body)
{
    static char large[300u << 10];
    struct store *s = fixture_open();
    struct visited v = {.next = 1};

    memset(large, 'l', sizeof large);
    for (uint64_t i = 1; i <= 150; i++) {
        struct store_spooled row = spooled(0, i, "x");

        if (i == 70) {
            row.data = large;
            row.size = sizeof large;
        }
        cr_assert(put_in(s, &row, 1) == 0);
    }
    cr_assert_eq(store_spool_each(s, 0, visit, &v), 0);
    cr_assert_eq(v.next, 151);
    cr_assert_eq(v.large, sizeof large);
    v = (struct visited){.next = 66, .end = 69};
    cr_assert_eq(store_spool_each(s, store_spool_key(0, 65), visit, &v), 77);
    cr_assert_eq(v.next, 70);
    store_close(&s);
}

Test(store_spool, one_commit_brings_in_and_takes_out)
{
    const struct store_spooled a[] = {spooled(0, 1, "a"), spooled(0, 2, "b")};
    struct store_spooled c = spooled(0, 3, "c");
    const int64_t out[] = {a[0].key, 999};
    struct store *s = fixture_open();
    begin(s);
    cr_assert(put_in(s, a, 2) == 0);
    cr_assert(store_waits(s).spooled == 2);
    cr_assert(
        store_spool_change(
            s, &(struct store_spool_change){
                   .in = &c, .in_count = 1, .out = out, .out_count = 2}) == 0);
    cr_assert_str_eq(order(s), "0:b 0:c");
    cr_assert(store_waits(s).spooled == 2 && store_spool_count(s) == 2);
    cr_assert(store_spool_find(s, a[0].key, NULL) == -ENOENT);
    cr_assert(store_spool_find(s, c.key, NULL) == 0);
    store_close(&s);
}

/* The first of a commit has the key, also against one of a later commit that
 * has another place in the order. */
Test(store_spool, a_row_comes_in_with_its_key_or_not_at_all)
{
    struct store_key keys[3];
    struct store_spooled in[3];
    struct store *s = fixture_open();
    begin(s);
    for (unsigned i = 0; i < 3; i++) {
        in[i] = spooled(i, i + 1, "k");
        keys[i] = (struct store_key){.text = "key",
                                     .size = 3,
                                     .seq = i + 1,
                                     .id = {{(unsigned char)(i + 1)}},
                                     .received_ns = 1000 + i,
                                     .until_ns = 2000 + i};
        in[i].unique = &keys[i];
    }
    for (int round = 0; round < 2; round++) {
        struct store_spool_change c = {.in = &in[round], .in_count = 2};

        cr_assert(store_spool_change(s, &c) == 0);
        cr_assert(in[round].taken == (round > 0) && in[round + 1].taken);
        cr_assert(in[round + 1].first.bytes[0] == 1);
        cr_assert_str_eq(order(s), "0:k");
        cr_assert(store_waits(s).spooled == 1 && store_spool_count(s) == 1);
    }
    store_close(&s);
}

/* Cancel one row; return what became of it. */
static enum steered cancel(struct store *s, int64_t key, size_t most)
{
    const int64_t row = -key;
    enum steered out = STEERED_IN_FLIGHT;

    cr_assert(waiting_steer(
                  s,
                  &(struct waiting_steer){
                      .cancel = true, .rows = &row, .count = 1, .most = most},
                  &out) == 0);
    return out;
}

/* Keep the flags of the visited row. */
static int flags_seen(const struct store_spooled *m, void *arg)
{
    *(uint32_t *)arg = m->flags;
    return 0;
}

Test(store_spool, a_cancelled_row_keeps_its_mark)
{
    struct store_spooled a = spooled(0, 1, "a");
    struct store *s = fixture_open();
    uint32_t flags = 0;

    begin(s);
    cr_assert(put_in(s, &a, 1) == 0);
    cr_assert_eq(cancel(s, a.key, 1), STEERED);
    cr_assert_eq(cancel(s, a.key, 1), STEERED_BEFORE);
    cr_assert_eq(cancel(s, a.key + 1, 1), STEERED_GONE);
    a.flags = STORE_REDELIVERED;
    cr_assert(store_spool_note(s, &a) == 0);
    cr_assert(store_spool_each(s, 0, flags_seen, &flags) == 0);
    cr_assert_eq(flags, STORE_CANCELLED | STORE_REDELIVERED);
    store_close(&s);
}

Test(store_spool, what_no_worker_can_lend_or_a_killed_one_had_is_not_cancelled)
{
    struct store_spooled a = spooled(0, 1, "long");
    struct store *s = fixture_open();
    uint32_t flags = 0;

    begin(s);
    cr_assert(put_in(s, &a, 1) == 0);
    cr_assert_eq(cancel(s, a.key, 3), STEERED_IN_FLIGHT,
                 "cancelled, but it is too large");
    cr_assert(store_spool_begin(s, 7, 0) == 0);
    cr_assert_eq(cancel(s, a.key, 0), STEERED_IN_FLIGHT,
                 "cancelled, but it may have run");
    cr_assert(store_spool_each(s, 0, flags_seen, &flags) == 0);
    cr_assert_eq(flags, 0);
    cr_assert(store_spool_end(s) == 0);
    cr_assert_eq(cancel(s, a.key, 0), STEERED);
    store_close(&s);
}

Test(store_spool, a_change_that_fails_changes_nothing)
{
    const struct store_spooled a = spooled(0, 1, "a");
    struct store_spooled more[] = {spooled(0, 2, "b"), a};
    struct store *s = fixture_open();
    begin(s);
    cr_assert(put_in(s, &a, 1) == 0);
    cr_assert(store_spool_change(
                  s, &(struct store_spool_change){.in = more,
                                                  .in_count = 2,
                                                  .out = (int64_t[]){99},
                                                  .out_count = 1}) == -EEXIST);
    cr_assert_str_eq(order(s), "0:a");
    cr_assert(store_waits(s).spooled == 1 && store_spool_count(s) == 1);
    store_close(&s);
}

Test(store_spool, a_delayed_one_of_a_change_that_fails_waits_nowhere)
{
    const struct store_row later = {.state = STORE_WAITING,
                                    .receive_seq = 2,
                                    .id = ulid_make(7),
                                    .data = "later",
                                    .size = 5};
    const struct store_spooled a = spooled(0, 1, "a");
    struct store_spooled in[] = {spooled(0, 2, "later"), a};
    const struct store_spool_change c = {.in = in, .in_count = 2};
    struct store *s = fixture_open();

    in[0].later = &later;
    begin(s);
    cr_assert(put_in(s, &a, 1) == 0);
    cr_assert(store_spool_change(s, &c) == -EEXIST);
    cr_assert(rows_waiting(s) == 0 && store_count(s, STORE_WAITING) == 0);
    in[1] = spooled(0, 3, "c");
    cr_assert(store_spool_change(s, &c) == 0);
    cr_assert(rows_waiting(s) == 1 && store_count(s, STORE_WAITING) == 1);
    store_close(&s);
}

static void count_up(void *arg)
{
    ++*(int *)arg;
}

Test(store_spool, durable_is_told_once_and_only_when_it_is)
{
    int told = 0;
    struct store_spooled a = spooled(0, 1, "a");
    struct store_spool_change c = {
        .in = &a, .in_count = 1, .durable = count_up, .arg = &told};
    struct store *s = fixture_open();
    cr_assert(store_spool_change(s, &c) == 0);
    cr_assert(told == 1);
    cr_assert(store_spool_change(s, &c) == -EEXIST);
    cr_assert(told == 1);
    store_close(&s);
}

Test(store_spool, a_row_that_is_written_leaves_the_spool_in_the_same_commit)
{
    const struct store_spooled a[] = {spooled(0, 1, "a"), spooled(0, 2, "b"),
                                      spooled(0, 3, "c")};
    struct store_row m = fixture_row(STORE_WAITING, "a");
    struct store_row both[2];
    int64_t row;
    struct store *s = fixture_open();
    begin(s);
    cr_assert(put_in(s, a, 3) == 0);
    m.receive_seq = 1;
    m.spool = a[0].key;
    cr_assert(store_put(s, &m, NULL, &row) == 0);
    cr_assert_str_eq(order(s), "0:b 0:c");
    cr_assert(store_put(s, &m, NULL, &row) == -EEXIST);
    both[0] = m; /* there already: only what it says of the spool is done */
    both[0].spool = a[1].key;
    both[1] = fixture_row(STORE_PARKED, "c");
    both[1].receive_seq = 3;
    both[1].spool = a[2].key;
    cr_assert(store_put_all(s, both, 2) == 0);
    cr_assert_str_eq(order(s), "");
    cr_assert(store_waits(s).spooled == 0 && rows_waiting(s) == 2);
    store_close(&s);
}

Test(store_spool, the_next_worker_finds_number_and_highest_sequence)
{
    const struct store_spooled rows[] = {
        spooled(5, 3, "a"), spooled(200, 70, "b"), spooled(0, 8, "c")};
    struct store *s = fixture_open();
    cr_assert(begin(s).seq == 0);
    cr_assert(put_in(s, rows, 3) == 0);
    store_close(&s);
    s = fixture_open();
    struct store_spool_left left = begin(s);
    cr_assert(left.seq == 70 && left.doubt == 0);
    cr_assert(store_waits(s).spooled == 3);
    store_close(&s);
}

Test(store_spool, the_next_worker_is_told_of_a_power_cut)
{
    const struct store_spooled a = spooled(7, 30, "a");
    struct store_spool_left left;
    struct store *s = fixture_open();
    begin(s);
    cr_assert(put_in(s, &a, 1) == 0);
    store_close(&s); /* as a kill: there is no end */
    s = fixture_open();
    left = begin(s);
    cr_assert(left.run == 4711 && !left.cut && left.doubt == 0);
    store_close(&s);
    fixture_sql("UPDATE spool_state SET boot = '11111111-1111-1111-1111-"
                "111111111111@1/ipc:[1]'");
    s = fixture_open();
    left = begin(s);
    cr_assert(left.cut && left.seq == 30 && left.doubt == 0);
    cr_assert(store_spool_end(s) == 0);
    left = begin(s);
    cr_assert(left.run == 0 && !left.cut && left.doubt == 30,
              "an orderly end took the doubt away");
    store_close(&s);
}

/* The letter's replay is spooled, so the letter must not die again. */
Test(store_spool, a_letter_whose_replay_is_spooled_is_not_recalled)
{
    struct store_row m = fixture_row(STORE_DEAD, "letter");
    struct store_spooled a = spooled(0, 1, "a");
    struct store *s = fixture_open();
    m.died_ns = 1;
    a.letter = fixture_put(s, &m);
    fixture_put(s, &m);
    fixture_sql("UPDATE messages SET state = 4, boot = '11111111-1111-1111-"
                "1111-111111111111@1/ipc:[1]'");
    cr_assert(put_in(s, &a, 1) == 0);
    cr_assert(store_recall(s, NULL, NULL) == 1);
    cr_assert(store_count(s, STORE_REPLAYED) == 1);
    cr_assert(take_out(s, &a.key, 1) == 0);
    cr_assert(store_recall(s, NULL, NULL) == 1);
    store_close(&s);
}

/* After random changes the spool holds what a dumb model says. */
Test(store_spool, it_is_as_a_list_of_numbers)
{
    enum { MOST = 200 };
    bool there[MOST] = {false};
    unsigned seed = (unsigned)clock_mono_ns();
    struct store *s = fixture_open();
    begin(s);
    for (int round = 0; round < 120; round++) {
        struct store_spooled in[8] = {{0}};
        int64_t out[8] = {0};
        size_t n = 0, m = 0;
        for (int i = 0; i < 8; i++) {
            uint64_t seq = 1 + (unsigned)rand_r(&seed) % (MOST - 1);
            bool twice = false;
            for (size_t k = 0; k < n; k++)
                twice |= in[k].key == store_spool_key((uint32_t)(seq % 3), seq);
            for (size_t k = 0; k < m; k++)
                twice |= out[k] == store_spool_key((uint32_t)(seq % 3), seq);
            if (twice)
                continue;
            if (there[seq])
                out[m++] = store_spool_key((uint32_t)(seq % 3), seq);
            else
                in[n++] = spooled((uint32_t)(seq % 3), seq, "x");
            there[seq] = !there[seq];
        }
        cr_assert(store_spool_change(
                      s, &(struct store_spool_change){.in = in,
                                                      .in_count = n,
                                                      .out = out,
                                                      .out_count = m}) == 0);
    }
    struct store_spooled rows[MOST];
    char data[MOST];
    int n = store_spool_read(s, 0, rows, MOST, data, sizeof data), want = 0;
    for (int i = 0; i < n; i++) {
        cr_assert(there[store_spool_seq(rows[i].key)], "seed %u", seed);
        cr_assert(i == 0 || rows[i - 1].key < rows[i].key);
    }
    for (int i = 0; i < MOST; i++)
        want += there[i];
    cr_assert(n == want && store_waits(s).spooled == n);
    cr_assert(fixture_sql("SELECT count(*) FROM spool") == n);
    store_close(&s);
}
