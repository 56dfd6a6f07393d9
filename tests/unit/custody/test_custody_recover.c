/* test_custody_recover.c - what comes back after a kill, a power cut, damage
 *
 * A kill is played by opening a copy of the file: what other processes see in
 * the page cache is what a SIGKILL leaves. For the steps that make system calls
 * the copy is taken before and after each of them.
 */
#include "tests/harness/custody_seal.h"
#include "tests/unit/custody/custody_fixture.h"

#include <errno.h>
#include <sys/mman.h>
#include <sysexits.h>

#include "tests/fixtures/stepper.h"

static char twin[128]; /* path of the copies */

static void setup(void)
{
    fixture_init();
    snprintf(twin, sizeof twin, "%s/twin", fixture_dir);
}

TestSuite(custody_recover, .init = setup, .fini = fixture_fini);

/* Open a copy of the file as it is now: what a kill leaves to a next worker. */
static struct custody *after_kill(void)
{
    fixture_copy(fixture_file, twin);
    return fixture_open_at(twin, FIXTURE_ROOM, 4);
}

Test(custody_recover, slots_come_back_in_receive_order)
{
    static const char *const text[] = {"first", "second", "third", "fourth"};
    struct custody *c = fixture_open(8), *next;
    struct fixture_found f;
    struct slot *gap;

    fixture_recover(c);
    gap = fixture_take(c, "done meanwhile");
    fixture_take(c, text[0]);
    fixture_take(c, text[1]);
    slot_retire(gap); /* so that the file's order is not the receive order */
    custody_release(c, gap);
    fixture_take(c, text[2]);
    fixture_take(c, text[3]);
    next = after_kill();
    f = fixture_recover(next);
    cr_assert_eq(f.count, 4);
    for (unsigned i = 0; i < 4; i++)
        fixture_text_is(f.slot[i], text[i]);
    cr_assert_eq(custody_free_slots(next), 4);
    custody_close(&next);
    custody_close(&c);
}

Test(custody_recover, each_state_comes_back_as_the_table_says)
{
    struct custody *c = fixture_open(4), *next;
    struct fixture_found f;
    struct slot *slot;

    fixture_recover(c);
    slot = custody_acquire(c); /* armed, but nothing came */
    slot_arm(slot, custody_fill(c), custody_seq_next(c));
    fixture_take(c, "held");
    slot = fixture_take(c, "running");
    slot_run(slot, 44);
    slot->handler_start = 4242;
    atomic_store(&slot->handler_pgid, 42);
    slot = custody_acquire(c); /* the kernel wrote, the length was not noted */
    slot_arm(slot, custody_fill(c), custody_seq_next(c));
    slot->priority = 1;
    memcpy(slot->body, "cut off", 7);

    next = after_kill();
    f = fixture_recover(next);
    cr_assert_eq(f.count, 3);
    fixture_text_is(f.slot[0], "held");
    cr_assert_eq(slot_word(f.slot[0]).state, SLOT_HELD);
    fixture_text_is(f.slot[1], "running");
    cr_assert_eq(slot_word(f.slot[1]).state, SLOT_RUNNING);
    cr_assert_eq(f.slot[1]->handler_start, 4242);
    cr_assert_eq(atomic_load(&f.slot[1]->handler_pgid), 42);
    fixture_text_is(f.slot[2], "cut off");
    cr_assert_eq(slot_word(f.slot[2]).state, SLOT_HELD);
    cr_assert_eq(slot_word(f.slot[2]).flags, SLOT_LENGTH_INFERRED);
    cr_assert_eq(custody_free_slots(next), 1);
    cr_assert_gt(custody_seq_next(next), f.slot[2]->seq);
    custody_close(&next);
    custody_close(&c);
}

Test(custody_recover, slot_of_the_dead_worker_is_fill_before_it_is_used)
{
    struct custody *c = fixture_open(1), *next;
    struct slot *slot;

    fixture_recover(c);
    slot = custody_acquire(c); /* killed while a row was loaded into it */
    memset(slot->body, 'r', FIXTURE_ROOM);
    next = after_kill();
    fixture_recover(next);
    slot = custody_acquire(next);
    slot_arm(slot, custody_fill(next), 9);
    cr_assert_arr_eq(slot->body, custody_fill(next)->bytes, FIXTURE_ROOM);
    custody_close(&next);
    custody_close(&c);
}

/* ---- clean and torn ---- */

static void boot_id_edit(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    cr_assert(custody_seal(fd, CUSTODY_OTHER_RUN));
    close(fd);
}

Test(custody_recover, killed_worker_leaves_no_torn_file)
{
    struct custody *c = fixture_open(4), *next;

    fixture_recover(c);
    fixture_take(c, "x");
    next = after_kill();
    cr_assert_not(custody_torn(next));
    custody_close(&next);
    custody_close(&c);
}

Test(custody_recover, power_cut_makes_the_file_torn_until_it_is_mended)
{
    struct custody *c = fixture_open(4);
    uint32_t clean;

    fixture_recover(c);
    fixture_take(c, "x");
    fixture_copy(fixture_file, twin);
    custody_close(&c);
    boot_id_edit(twin);

    for (int i = 0; i < 2; i++) { /* 0: killed before the repair */
        char third[160];

        c = fixture_open_at(twin, FIXTURE_ROOM, 4);
        cr_assert(custody_torn(c));
        cr_assert_eq(fixture_recover(c).count, 1);
        snprintf(third, sizeof third, "%s/third%d", fixture_dir, i);
        fixture_copy(twin, third);
        if (i == 1)
            custody_fix(c);
        cr_assert_eq(custody_torn(c), i == 0);
        fixture_copy(i == 1 ? twin : third, i == 1 ? third : twin);
        custody_close(&c);
        fixture_copy(third, twin);
    }
    fixture_peek(twin, AT_CLEAN, &clean, 4);
    cr_assert_eq(clean, 0);
    c = fixture_open_at(twin, FIXTURE_ROOM, 4);
    cr_assert_not(custody_torn(c));
    custody_close(&c);
}

Test(custody_recover, orderly_close_is_no_tear_at_the_next_boot)
{
    struct custody *c = fixture_open(4);
    struct fixture_found f;

    fixture_recover(c);
    fixture_take(c, "waited through the reboot");
    custody_close(&c);
    boot_id_edit(fixture_file);
    c = fixture_open(4);
    cr_assert_not(custody_torn(c));
    f = fixture_recover(c);
    cr_assert_eq(f.count, 1);
    fixture_text_is(f.slot[0], "waited through the reboot");
    custody_close(&c);
}

Test(custody_recover, file_in_use_is_marked_so_before_its_first_slot_is_given)
{
    struct custody *c = fixture_open(4);
    uint32_t clean;

    fixture_recover(c);
    custody_close(&c);
    fixture_peek(fixture_file, AT_CLEAN, &clean, 4);
    cr_assert_eq(clean, 1);
    c = fixture_open(4);
    fixture_peek(fixture_file, AT_CLEAN, &clean, 4);
    cr_assert_eq(clean, 0);
    custody_close(&c);
}

Test(custody_recover, start_that_failed_does_not_call_a_torn_file_clean)
{
    struct custody *c = fixture_open(4);

    fixture_recover(c);
    fixture_take(c, "may be damaged");
    fixture_copy(fixture_file, twin);
    custody_close(&c);
    boot_id_edit(twin);

    c = fixture_open_at(twin, FIXTURE_ROOM, 4);
    fixture_recover(c);
    custody_close(&c); /* something later in the start failed: no repair */
    c = fixture_open_at(twin, FIXTURE_ROOM, 4);
    cr_assert(custody_torn(c));
    custody_close(&c);
}

/* ---- damage ---- */

/* Damage the last slot: give it a priority that cannot be. */
static void damage_last(const char *path, unsigned slots)
{
    size_t stride = (SLOT_HEADER + FIXTURE_ROOM + 63) / 64 * 64;

    fixture_patch(path, (off_t)(AT_SLOT + stride * (slots - 1) + 12),
                  &(uint32_t){99999}, 4);
}

/* Copy a file with four messages as a worker that dies leaves it. */
static void four_held(void)
{
    struct custody *c = fixture_open(4);

    fixture_recover(c);
    for (int i = 0; i < 4; i++)
        fixture_take(c, "good");
    fixture_copy(fixture_file, twin);
    custody_close(&c);
}

Test(custody_recover, damaged_slot_is_copied_aside_and_the_rest_goes_on)
{
    struct custody *c;
    size_t before_size, after_size;
    char *before, *after;
    const char *copy;

    four_held();
    damage_last(twin, 4);
    before = fixture_bytes(twin, &before_size);
    c = fixture_open_at(twin, FIXTURE_ROOM, 4);
    cr_assert_eq(custody_damaged(c, &copy), 0);
    cr_assert_eq(fixture_recover(c).count, 3);
    cr_assert_eq(custody_damaged(c, &copy), 1);
    cr_assert_eq(custody_free_slots(c), 1);
    after = fixture_bytes(copy, &after_size);
    cr_assert_eq(before_size, after_size);
    cr_assert_arr_eq(before + AT_SLOT, after + AT_SLOT, before_size - AT_SLOT);
    free(before);
    free(after);
    custody_close(&c);
}

Test(custody_recover, number_of_dirty_bytes_is_not_taken_on_trust)
{
    struct custody *c = fixture_open(2);
    uint32_t wild = UINT32_MAX;

    fixture_recover(c);
    ptrdiff_t at = (ptrdiff_t)custody_index(c, fixture_take(c, "held"));
    fixture_patch(fixture_file, AT_SLOT + at * 384 + 76, &wild, sizeof wild);
    custody_close(&c);
    c = fixture_open(2);
    struct fixture_found f = fixture_recover(c);
    cr_assert_eq(f.count, 1);
    slot_retire(f.slot[0]);
    custody_release(c, f.slot[0]);
    fixture_text_is(fixture_take(c, "next"), "next");
    custody_close(&c);
}

Test(custody_recover, number_of_slots_that_is_too_small_leaves_no_message_out)
{
    struct custody *c = fixture_open(4);
    uint32_t few = 1;

    fixture_recover(c);
    for (int i = 0; i < 4; i++)
        fixture_take(c, "held");
    custody_close(&c);
    fixture_patch(fixture_file, AT_SLOTS, &few, sizeof few);
    c = fixture_open(1);
    cr_assert_eq(fixture_recover(c).count, 4);
    custody_close(&c);
}

Test(custody_recover, damaged_slot_does_not_stop_a_rebuild)
{
    struct custody *c;
    const char *copy;
    uint32_t unset = SLOT_UNSET;
    size_t stride = (SLOT_HEADER + FIXTURE_ROOM + 63) / 64 * 64;
    struct fixture_found f;

    four_held();
    damage_last(twin, 4);
    fixture_patch(twin, (off_t)(AT_SLOT + stride * 3 + 8), &unset, 4);
    c = fixture_open_at(twin, 1 << 20, 4);
    f = fixture_recover(c);
    cr_assert_eq(f.count, 3);
    for (unsigned i = 0; i < 3; i++)
        fixture_text_is(f.slot[i], "good");
    cr_assert_eq(custody_damaged(c, &copy), 1);
    custody_close(&c);
}

/* ---- other geometry ---- */

Test(custody_recover, larger_bodies_keep_what_is_held)
{
    struct custody *c = fixture_open(4);
    struct fixture_found f;
    struct slot *slot;
    uint64_t nonce = custody_nonce(c);

    fixture_recover(c);
    slot = fixture_take(c, "held");
    slot_run(fixture_take(c, "running"), 9);
    slot = custody_acquire(c);
    slot_arm(slot, custody_fill(c), custody_seq_next(c));
    slot->priority = 1;
    memcpy(slot->body, "cut off", 7);
    fixture_copy(fixture_file, twin);
    custody_close(&c);

    c = fixture_open_at(twin, 8192, 2);
    cr_assert_eq(custody_body_bytes(c), 8192);
    cr_assert_eq(custody_slots(c), 4, "no room for what is held");
    cr_assert_eq(custody_nonce(c), nonce,
                 "with another nonce nobody finds its handlers");
    f = fixture_recover(c);
    cr_assert_eq(f.count, 3);
    fixture_text_is(f.slot[0], "held");
    fixture_text_is(f.slot[1], "running");
    cr_assert_eq(slot_word(f.slot[1]).state, SLOT_RUNNING);
    cr_assert_eq(f.slot[1]->started_ns, 9);
    fixture_text_is(f.slot[2], "cut off");
    cr_assert_eq(slot_word(f.slot[2]).flags, SLOT_LENGTH_INFERRED);
    slot_retire(f.slot[0]);
    slot_arm(f.slot[0], custody_fill(c), 99);
    cr_assert_arr_eq(f.slot[0]->body, custody_fill(c)->bytes, SLOT_FILL);
    custody_close(&c);
    cr_assert_eq(fixture_names("twin"), 1);
}

Test(custody_recover, smaller_bodies_wait_until_nothing_is_held)
{
    struct custody *c = fixture_open_at(fixture_file, 1024, 4);
    struct fixture_found f;

    fixture_recover(c);
    fixture_take(c, "held");
    custody_close(&c);
    c = fixture_open_at(fixture_file, 128, 4);
    cr_assert_eq(custody_body_bytes(c), 1024);
    f = fixture_recover(c);
    fixture_text_is(f.slot[0], "held");
    slot_retire(f.slot[0]);
    custody_release(c, f.slot[0]);
    custody_close(&c);
    c = fixture_open_at(fixture_file, 128, 4);
    cr_assert_eq(custody_body_bytes(c), 128);
    custody_close(&c);
}

Test(custody_recover, rebuilding_a_torn_file_leaves_it_torn)
{
    struct custody *c;

    four_held();
    boot_id_edit(twin);
    c = fixture_open_at(twin, 4096, 4);
    cr_assert(custody_torn(c));
    cr_assert_eq(fixture_recover(c).count, 4);
    custody_close(&c);
}

/* ---- a kill at each system call ---- */

static unsigned least_slots; /* that a copy must have */
static unsigned messages;    /* that a copy must hold */

/* Check that the next worker finds all messages in the file as it is now. */
static void open_look(void *arg)
{
    struct custody *c;
    struct fixture_found f;

    (void)arg;
    if (access(fixture_file, F_OK) < 0) {
        cr_assert_eq(messages, 0);
        return;
    }
    c = after_kill();
    cr_assert_not(custody_torn(c));
    cr_assert_geq(custody_slots(c), least_slots);
    f = fixture_recover(c);
    cr_assert_eq(f.count, messages);
    for (unsigned i = 0; i < f.count; i++) {
        char text[32];

        snprintf(text, sizeof text, "message %u", i);
        fixture_text_is(f.slot[i], text);
    }
    custody_close(&c);
}

/* Make a file with messages in it, as a kill would leave it. */
static void numbered(unsigned slots)
{
    struct custody *c = fixture_open(slots);

    fixture_recover(c);
    for (messages = 0; messages < 3; messages++) {
        char text[32];

        snprintf(text, sizeof text, "message %u", messages);
        fixture_take(c, text);
    }
    fixture_copy(fixture_file, twin);
    custody_close(&c);
    fixture_copy(twin, fixture_file);
    least_slots = slots;
}

static void open_act(void *arg)
{
    const size_t *room = arg;
    struct custody_spec spec = fixture_spec(4);
    struct custody *c;

    spec.body_bytes = *room;
    if (custody_open(&c, fixture_file, &spec, NULL) < 0)
        _exit(1);
}

Test(custody_recover, new_file_appears_whole_or_not_at_all)
{
    size_t room = FIXTURE_ROOM;

    least_slots = 4;
    cr_assert_gt(step_calls(open_act, open_look, &room), 20);
    open_look(NULL);
}

Test(custody_recover, kill_anywhere_in_a_rebuild_keeps_all_messages)
{
    size_t room = 4096, size;

    numbered(4);
    cr_assert_gt(step_calls(open_act, open_look, &room), 20);
    open_look(NULL);
    free(fixture_bytes(fixture_file, &size));
    cr_assert_gt(size, 4 * room, "the file was not rebuilt");
}

static void claim_look(void *arg)
{
    (void)arg;
    fixture_copy(fixture_file, twin);
    open_look(NULL);
}

/* Stores are no system calls, so step through instructions, from the last
 * system call before the first store. */
Test(custody_recover, kill_while_a_file_of_the_last_boot_is_claimed_is_no_tear)
{
    size_t room = FIXTURE_ROOM;
    char before[PATH_MAX];
    struct custody *c;
    unsigned stops;
    void *head;
    int fd;

    numbered(4);
    c = fixture_open(4);
    fixture_recover(c);
    custody_close(&c); /* closed in good order; then the machine boots */
    boot_id_edit(fixture_file);
    fd = open(fixture_file, O_RDONLY);
    head = mmap(NULL, AT_SLOT, PROT_READ, MAP_SHARED, fd, 0);
    cr_assert(head != MAP_FAILED);
    snprintf(before, sizeof before, "%s.before", fixture_file);
    fixture_copy(fixture_file, before);
    stops = step_calls_before(open_act, &room, head, AT_SLOT);
    fixture_copy(before, fixture_file);
    cr_assert_gt(
        step_through_after(stops, open_act, claim_look, &room, head, AT_SLOT),
        1);
    munmap(head, AT_SLOT);
    close(fd);
    open_look(NULL);
}

static void use_act(void *arg)
{
    struct custody_spec spec = fixture_spec(4);
    struct custody *c;

    (void)arg;
    if (custody_open(&c, fixture_file, &spec, NULL) < 0 ||
        custody_recover(c, NULL) < 0 || custody_grow(c, 30, NULL) < 0)
        _exit(1);
    custody_close(&c);
}

Test(custody_recover, kill_anywhere_from_open_to_close_keeps_all_messages)
{
    uint32_t slots;

    numbered(4);
    cr_assert_gt(step_calls(use_act, open_look, NULL), 20);
    open_look(NULL);
    fixture_peek(fixture_file, AT_SLOTS, &slots, 4);
    cr_assert_eq(slots, 30);
}
