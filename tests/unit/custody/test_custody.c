/* test_custody.c - making, refusing and growing the file; slots, sequence */
#include "tests/unit/custody/custody_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sysexits.h>
#include <bsd/stdlib.h>

#include "common/base/file.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

TestSuite(custody, .init = fixture_init, .fini = fixture_fini);

/* ---- making and refusing ---- */

Test(custody, new_file_is_private_empty_and_allocated)
{
    struct custody *c = fixture_open(4);
    struct stat st;

    cr_assert_eq(stat(fixture_file, &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0600);
    cr_assert_geq(st.st_blocks * 512, st.st_size,
                  "the file has holes, which the disk may have no room for");
    cr_assert_eq(custody_slots(c), 4);
    cr_assert_eq(custody_body_bytes(c), FIXTURE_ROOM);
    cr_assert_eq(custody_free_slots(c), 0, "slots are free before recovery");
    cr_assert_eq(fixture_recover(c).count, 0);
    cr_assert_eq(custody_free_slots(c), 4);
    cr_assert_eq(custody_seq_next(c), 1);
    cr_assert_not(custody_torn(c));
    cr_assert_eq(fixture_names("custody"), 1, "a temporary file is left");
    custody_close(&c);
    cr_assert_null(c);
    custody_close(&c);
}

/* Check that custody_open fails with this status and changes nothing. */
static void refused(int status, const char *text)
{
    struct custody_spec spec = fixture_spec(4);
    struct custody *c = (struct custody *)1;
    struct problem p = {0};
    size_t before_size, after_size;
    char *before = fixture_bytes(fixture_file, &before_size), *after;

    cr_assert_lt(custody_open(&c, fixture_file, &spec, &p), 0);
    cr_assert_null(c);
    cr_assert_eq(p.status, status, "%d: %s", p.status, p.text);
    cr_assert(strstr(p.text, text), "no \"%s\" in: %s", text, p.text);
    after = fixture_bytes(fixture_file, &after_size);
    cr_assert_eq(before_size, after_size);
    cr_assert_arr_eq(before, after, before_size);
    cr_assert_eq(fixture_names("custody"), 1);
    free(before);
    free(after);
}

/* Make a file as a killed worker leaves it, with one message. */
static void made(void)
{
    struct custody *c = fixture_open(4);

    fixture_recover(c);
    fixture_take(c, "hello");
    custody_close(&c);
}

Test(custody, other_version_is_refused_with_78_and_left_untouched)
{
    const uint32_t none = FILE_MACHINE, next = none | (CUSTODY_VERSION + 1);

    made();
    fixture_patch(fixture_file, AT_VERSION, &next, 4);
    refused(EX_CONFIG, "version 2");
    fixture_patch(fixture_file, AT_VERSION, &none, 4);
    refused(EX_CONFIG, "version 0");
}

/* The numbers are swapped as a machine of the other byte order writes them. */
Test(custody, other_byte_order_is_refused_with_78_and_says_so)
{
    static const struct {
        off_t at;
        size_t size;
    } fields[] = {{8, 4},  {12, 4}, {16, 4}, {20, 4}, {24, 8}, {32, 8},
                  {40, 8}, {48, 8}, {56, 4}, {60, 4}, {64, 8}, {112, 8}};
    unsigned char byte[8], swapped[8];

    made();
    for (size_t i = 0; i < COUNT(fields); i++) {
        size_t n = fields[i].size;

        fixture_peek(fixture_file, fields[i].at, byte, n);
        for (size_t k = 0; k < n; k++)
            swapped[k] = byte[n - 1 - k];
        fixture_patch(fixture_file, fields[i].at, swapped, n);
    }
    refused(EX_CONFIG, "the other byte order");
}

Test(custody, other_word_size_is_refused_with_78_and_says_so)
{
    const uint32_t other = FILE_MACHINE ^ 32u << 16;

    made();
    fixture_patch(fixture_file, AT_VERSION,
                  &(uint32_t){CUSTODY_VERSION | other}, 4);
    refused(EX_CONFIG, other ? "32-bit words" : "64-bit words");
}

Test(custody, other_layout_is_refused_with_78)
{
    made();
    fixture_patch(fixture_file, 16, &(uint32_t){192}, 4);
    refused(EX_CONFIG, "192");
}

Test(custody, foreign_file_is_refused_with_78)
{
    made();
    fixture_patch(fixture_file, 0, "SQLite f", 8);
    refused(EX_CONFIG, "not a custody file");
}

Test(custody, empty_file_is_refused_with_78)
{
    made();
    cr_assert_eq(truncate(fixture_file, 0), 0);
    refused(EX_CONFIG, "not a custody file");
}

Test(custody, each_damaged_byte_of_what_has_a_sum_is_refused_with_78)
{
    static const off_t at[] = {20, 24, 25, 31, 32, 39,  40,  47,
                               48, 55, 60, 63, 72, 107, 112, 119};

    made();
    fixture_patch(fixture_file, AT_CLEAN, &(uint32_t){0}, 4); /* after a kill */
    for (size_t i = 0; i < COUNT(at); i++) {
        unsigned char byte, other;

        fixture_peek(fixture_file, at[i], &byte, 1);
        other = byte ^ 0x11;
        fixture_patch(fixture_file, at[i], &other, 1);
        refused(EX_CONFIG, "damaged");
        fixture_patch(fixture_file, at[i], &byte, 1);
    }
}

Test(custody, file_cut_short_is_refused_with_78)
{
    made();
    cr_assert_eq(truncate(fixture_file, AT_SLOT + 100), 0);
    refused(EX_CONFIG, "cut short");
}

Test(custody, impossible_number_of_slots_is_refused_with_78)
{
    made();
    fixture_patch(fixture_file, AT_SLOTS, &(uint32_t){UINT32_MAX}, 4);
    refused(EX_CONFIG, "cut short");
}

Test(custody, symbolic_link_is_refused_with_73)
{
    struct custody_spec spec = fixture_spec(4);
    char other[160];
    struct custody *c;
    struct problem p = {0};

    snprintf(other, sizeof other, "%s/other", fixture_dir);
    made();
    cr_assert_eq(rename(fixture_file, other), 0);
    cr_assert_eq(symlink(other, fixture_file), 0);
    cr_assert_lt(custody_open(&c, fixture_file, &spec, &p), 0);
    cr_assert_eq(p.status, EX_CANTCREAT, "%s", p.text);
}

Test(custody, file_of_another_user_is_refused_with_73)
{
    if (geteuid() != 0) {
        fixture_fini(); /* a skip does not */
        cr_skip_test("needs root to give a file away");
    }
    made();
    cr_assert_eq(chown(fixture_file, 65534, 0), 0);
    refused(EX_CANTCREAT, "of another user");
}

Test(custody, directory_that_is_missing_is_refused_with_73)
{
    struct custody_spec spec = fixture_spec(4);
    char path[160];
    struct custody *c;
    struct problem p = {0};

    snprintf(path, sizeof path, "%s/none/custody", fixture_dir);
    cr_assert_lt(custody_open(&c, path, &spec, &p), 0);
    cr_assert_eq(p.status, EX_CANTCREAT, "%s", p.text);
    cr_assert(strstr(p.text, path), "%s", p.text);
}

/* ---- slots ---- */

Test(custody, slots_are_handed_out_once_and_told_apart)
{
    struct custody *c = fixture_open(4);
    struct slot *s[4];
    unsigned seen = 0;

    fixture_recover(c);
    for (int i = 0; i < 4; i++) {
        s[i] = custody_acquire(c);
        cr_assert(s[i]);
        seen |= 1u << custody_index(c, s[i]);
    }
    cr_assert_eq(seen, 15);
    cr_assert_null(custody_acquire(c));
    cr_assert_eq(custody_free_slots(c), 0);
    custody_release(c, s[2]);
    cr_assert_eq(custody_acquire(c), s[2]);
    for (int i = 0; i < 4; i++)
        custody_release(c, s[i]);
    cr_assert_eq(custody_free_slots(c), 4);
    custody_close(&c);
}

struct traffic {
    struct custody *c;
    atomic_bool stop;
    atomic_uint bad;
};

/* Take a slot, mark it, check the mark and release it, until `stop`. */
static void *traffic_run(void *arg)
{
    struct traffic *t = arg;

    while (!atomic_load(&t->stop)) {
        struct slot *slot = custody_acquire(t->c);
        uint64_t mark = (uint64_t)(uintptr_t)&mark;

        if (!slot)
            continue;
        slot->started_ns = mark;
        memcpy(slot->body, "traffic", 7);
        if (slot->started_ns != mark || memcmp(slot->body, "traffic", 7) != 0)
            atomic_fetch_add(&t->bad, 1);
        custody_release(t->c, slot);
    }
    return NULL;
}

Test(custody, grows_while_slots_are_in_use)
{
    struct traffic t = {.c = fixture_open(2)};
    struct slot *held;
    pthread_t thread[2];
    struct problem p;

    fixture_recover(t.c);
    held = fixture_take(t.c, "held all the while");
    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, traffic_run, &t);
    for (unsigned n = 3; n <= 64; n++)
        cr_assert_eq(custody_grow(t.c, n, &p), 0);
    atomic_store(&t.stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    cr_assert_eq(atomic_load(&t.bad), 0);
    cr_assert_eq(custody_slots(t.c), 64);
    cr_assert_eq(custody_free_slots(t.c), 63);
    fixture_text_is(held, "held all the while");
    custody_close(&t.c);
}

Test(custody, grown_slots_are_there_and_filled_after_a_kill)
{
    struct custody *c = fixture_open(2);
    struct problem p;
    struct fixture_found f;
    char copy[160];

    snprintf(copy, sizeof copy, "%s/copy", fixture_dir);
    fixture_recover(c);
    cr_assert_eq(custody_grow(c, 40, &p), 0);
    for (int i = 0; i < 40; i++)
        fixture_take(c, "one of forty");
    fixture_copy(fixture_file, copy);
    custody_close(&c);
    c = fixture_open_at(copy, FIXTURE_ROOM, 2);
    cr_assert_eq(custody_slots(c), 40);
    f = fixture_recover(c);
    cr_assert_eq(f.count, 40);
    for (unsigned i = 0; i < 40; i++)
        fixture_text_is(f.slot[i], "one of forty");
    custody_close(&c);
}

Test(custody, growing_over_what_was_reserved_is_refused_and_changes_nothing)
{
    struct custody *c = fixture_open(2);
    struct problem p = {0};

    fixture_recover(c);
    cr_assert_eq(custody_grow(c, 100000, &p), -ENOSPC);
    cr_assert(strstr(p.text, "100000"), "%s", p.text);
    cr_assert_eq(custody_slots(c), 2);
    cr_assert_eq(custody_grow(c, 1, &p), 0,
                 "a number below the present one is refused");
    cr_assert_eq(custody_slots(c), 2);
    custody_close(&c);
}

/* Other parts have room for custody_slots_most slots only, although the last
 * page of the file may hold more. */
Test(custody, grows_to_the_number_that_was_reserved_and_not_by_one_more)
{
    struct custody_spec spec = fixture_spec(2);
    struct custody *c;
    struct problem p = {0};

    spec.slots_max = 3;
    spec.slots_more = 2;
    cr_assert_eq(custody_open(&c, fixture_file, &spec, &p), 0, "%s", p.text);
    fixture_recover(c);
    cr_assert_eq(custody_slots_most(c), 5);
    cr_assert_eq(custody_grow(c, 6, &p), -ENOSPC);
    cr_assert_eq(custody_slots(c), 2);
    cr_assert_eq(custody_grow(c, 5, &p), 0);
    cr_assert_eq(custody_slots(c), 5);
    cr_assert_eq(custody_free_slots(c), 5);
    custody_close(&c);
}

Test(custody, a_file_with_more_slots_than_asked_for_can_grow_all_the_same)
{
    struct custody_spec spec = fixture_spec(2);
    struct custody *c = fixture_open(60);
    struct problem p = {0};

    fixture_recover(c);
    for (int i = 0; i < 60; i++)
        fixture_take(c, "one of sixty");
    custody_close(&c);
    spec.slots_max = 3;
    spec.slots_more = 20; /* two pages and more */
    cr_assert_eq(custody_open(&c, fixture_file, &spec, &p), 0, "%s", p.text);
    cr_assert_eq(fixture_recover(c).count, 60);
    cr_assert_eq(custody_slots_most(c), 80);
    cr_assert_eq(custody_grow(c, 80, &p), 0, "%s", p.text);
    for (int i = 0; i < 20; i++)
        fixture_take(c, "one of twenty");
    cr_assert_null(custody_acquire(c));
    cr_assert_eq(custody_grow(c, 81, &p), -ENOSPC);
    custody_close(&c);
}

Test(custody, more_slots_asked_for_at_the_next_start_are_added)
{
    struct custody *c = fixture_open(2);
    struct fixture_found f;

    fixture_recover(c);
    fixture_take(c, "kept");
    custody_close(&c);
    c = fixture_open(10);
    cr_assert_eq(custody_slots(c), 10);
    f = fixture_recover(c);
    cr_assert_eq(f.count, 1);
    fixture_text_is(f.slot[0], "kept");
    cr_assert_eq(custody_free_slots(c), 9);
    custody_close(&c);
}

/* ---- sequence ---- */

Test(custody, sequence_counts_on_over_restarts_and_new_geometries)
{
    uint64_t last = 0;

    for (size_t room = 128; room <= 1024; room += 128) {
        struct custody *c = fixture_open_at(fixture_file, room, 2);
        struct slot *slot;

        fixture_recover(c);
        cr_assert_gt(custody_seq_next(c), last, "with %zu bytes", room);
        slot = fixture_take(c, "x");
        cr_assert_gt(slot->seq, last);
        last = slot->seq;
        slot_retire(slot);
        custody_release(c, slot);
        custody_close(&c);
    }
}

Test(custody, sequence_counts_on_when_bodies_shrink)
{
    struct custody *c = fixture_open_at(fixture_file, 1024, 2);

    fixture_recover(c);
    custody_seq_raise(c, 1000);
    custody_close(&c);
    c = fixture_open_at(fixture_file, 128, 2);
    fixture_recover(c);
    cr_assert_geq(custody_seq_next(c), 1000);
    custody_close(&c);
}

Test(custody, sequence_is_raised_and_never_lowered)
{
    struct custody *c = fixture_open(2);

    fixture_recover(c);
    custody_seq_raise(c, 500);
    cr_assert_eq(custody_seq_next(c), 500);
    custody_seq_raise(c, 3);
    cr_assert_eq(custody_seq_next(c), 500);
    custody_seq_used(c);
    cr_assert_eq(custody_seq_next(c), 501);
    custody_close(&c);
}

Test(custody, sequence_of_a_held_slot_is_not_given_twice)
{
    struct custody *c = fixture_open(2);

    fixture_recover(c);
    custody_seq_raise(c, 70);
    fixture_take(c, "seventy");
    custody_close(&c);
    fixture_patch(fixture_file, 64, &(uint64_t){1}, 8); /* an older header */
    c = fixture_open(2);
    fixture_recover(c);
    cr_assert_eq(custody_seq_next(c), 71);
    custody_close(&c);
}

Test(custody, nonce_is_of_the_file)
{
    struct custody *c = fixture_open(2);
    uint64_t nonce = custody_nonce(c);

    custody_close(&c);
    c = fixture_open(2);
    cr_assert_eq(custody_nonce(c), nonce);
    custody_close(&c);
    cr_assert_eq(unlink(fixture_file), 0);
    c = fixture_open(2);
    cr_assert_neq(custody_nonce(c), nonce);
    custody_close(&c);
}

/* ---- a file that is removed under its worker ---- */

Test(custody, a_file_without_a_name_is_known)
{
    struct custody *c = fixture_open(2);
    char away[160];

    snprintf(away, sizeof away, "%s/away", fixture_dir);
    cr_assert(!custody_is_unnamed(c));
    cr_assert_eq(rename(fixture_file, away), 0);
    cr_assert(!custody_is_unnamed(c),
              "a file that was moved counts as removed");
    cr_assert_eq(unlink(away), 0);
    cr_assert(custody_is_unnamed(c));
    custody_close(&c);
}
