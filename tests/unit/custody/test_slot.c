/* test_slot.c - a kill between any two instructions neither loses a message nor
 * changes what is known of it
 *
 * Each transition runs one instruction at a time. After each instruction that
 * changed the slot, recovery runs on a copy of what a kill would leave there.
 */
#include <criterion/criterion.h>
#include <bsd/stdlib.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/mq/queue.h"
#include "common/custody/slot.h"
#include "tests/fixtures/stepper.h"

#define ROOM     256
#define BYTES    (SLOT_HEADER + ROOM)
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static const unsigned char never[] = {0xC0, 0xC1, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9,
                                      0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF};

static struct slot *slot; /* shared with the child that is stepped */
static struct slot_fill fill;
static unsigned looked; /* looks that found the state under test */

/* Result that a look expects of recovery. */
static const void *want;
static size_t want_size;
static struct slot_word want_word;

static void setup(void)
{
    uint64_t seed = (uint64_t)arc4random() << 32 | arc4random();

    fprintf(stderr, "seed of the fill: %#llx\n", (unsigned long long)seed);
    slot_fill_init(&fill, seed);
    slot = stepper_shared(BYTES);
    slot_scrub(slot, &fill, ROOM);
    looked = 0;
}

TestSuite(slot, .init = setup);

/* Copy the slot as a kill at this moment would leave it. */
static struct slot *copy(void)
{
    static _Alignas(64) unsigned char image[BYTES];

    memcpy(image, slot, BYTES);
    return (struct slot *)(void *)image;
}

/* Recover a copy of the slot, as custody_recover does. */
static struct slot *recovered(void)
{
    struct slot *s = copy();
    const char *damage = slot_damage(s, ROOM);

    cr_assert_null(damage, "a kill left an impossible %s", damage);
    if (!slot_free(s))
        slot_resolve(s, &fill, ROOM);
    cr_assert_neq(slot_word(s).state, SLOT_RECEIVING);
    return s;
}

/* Do what the kernel does inside mq_receive. */
static void kernel_takes(const void *body, size_t size, uint32_t priority)
{
    slot->priority = priority;
    memcpy(slot->body, body, size);
}

/* Make the slot HELD, with this text. */
static void received(const char *text)
{
    slot_arm(slot, &fill, 7);
    kernel_takes(text, strlen(text), 3);
    slot_taken(slot, (uint32_t)strlen(text), 1000);
}

static void body_is_fill(const struct slot *s)
{
    cr_assert_arr_eq(s->body, fill.bytes, ROOM);
}

/* Check that a slot, HELD or RUNNING, has the whole message. */
static void message_is(const struct slot *s, const void *body, size_t size)
{
    cr_assert_eq(atomic_load(&s->length), size);
    cr_assert_arr_eq(s->body, body, size);
    cr_assert_eq(s->priority, 3);
    cr_assert_eq(s->seq, 7);
}

static void word_is(struct slot_word got, struct slot_word w)
{
    cr_assert_eq(got.state, w.state);
    cr_assert_eq(got.flags, w.flags);
    cr_assert_eq(got.crashes, w.crashes);
    cr_assert_eq(got.attempt, w.attempt);
}

/* ---- the fill ---- */

Test(slot, fill_never_occurs_in_utf8_and_is_no_constant)
{
    bool seen[256] = {false};
    struct slot_fill other;

    for (size_t i = 0; i < SLOT_FILL; i++) {
        cr_assert(memchr(never, fill.bytes[i], sizeof never));
        seen[fill.bytes[i]] = true;
    }
    for (size_t i = 0; i < sizeof never; i++)
        cr_assert(seen[never[i]], "%#x is never used", never[i]);
    slot_fill_init(&other, 0);
    for (size_t i = 0; i < SLOT_FILL; i++)
        cr_assert(memchr(never, other.bytes[i], sizeof never));
    cr_assert(memcmp(&other, &fill, sizeof fill) != 0);
}

Test(slot, same_seed_gives_the_same_fill)
{
    struct slot_fill a, b;

    slot_fill_init(&a, 42);
    slot_fill_init(&b, 42);
    cr_assert_arr_eq(a.bytes, b.bytes, SLOT_FILL);
}

/* ---- receiving ---- */

static void arm_act(void *arg)
{
    (void)arg;
    slot_arm(slot, &fill, 8);
}

static void arm_look(void *arg)
{
    struct slot_word w = slot_word(slot);

    (void)arg;
    cr_assert(w.state == SLOT_FREE || w.state == SLOT_RECEIVING);
    if (w.state == SLOT_RECEIVING) {
        looked++;
        body_is_fill(slot);
        cr_assert_eq(slot->priority, SLOT_UNSET);
        cr_assert_eq(atomic_load(&slot->length), SLOT_UNSET);
        cr_assert_eq(slot->row, 0);
        cr_assert_eq(atomic_load(&slot->handler_pgid), 0);
    }
    cr_assert_eq(slot_word(recovered()).state, SLOT_FREE);
}

Test(slot, arming_cut_off_anywhere_leaves_nothing)
{
    received("a message that was here before");
    slot->row = 12;
    slot_run(slot, 5);
    atomic_store(&slot->handler_pgid, 99);
    slot_retire(slot);
    cr_assert_gt(step_through(arm_act, arm_look, NULL, slot, BYTES), 5);
    cr_assert_gt(looked, 0);
}

/* Return the minor page faults of this thread so far. */
static long faults(void)
{
    struct rusage use;

    cr_assert_eq(getrusage(RUSAGE_THREAD, &use), 0);
    return use.ru_minflt;
}

/* Warm a body whose first `dirty` bytes are not fill: all its page faults must
 * come here, before the kernel's copy, and it must be fill afterwards. */
static void warmed(uint32_t dirty)
{
    size_t size = 5 * 4096, room = size - SLOT_HEADER - 100;
    int fd = memfd_create("slot", MFD_CLOEXEC);
    struct slot *s;
    long before;

    cr_assert_eq(ftruncate(fd, (off_t)size), 0);
    for (size_t at = SLOT_HEADER; at < size; at += SLOT_FILL) {
        size_t n = size - at < SLOT_FILL ? size - at : SLOT_FILL;

        cr_assert_eq(pwrite(fd, fill.bytes, n, (off_t)at), (ssize_t)n);
    }
    for (uint32_t i = 0; i < dirty; i++)
        cr_assert_eq(pwrite(fd, "x", 1, SLOT_HEADER + (off_t)i), 1);
    s = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert(s != MAP_FAILED);
    s->dirty = dirty;
    before = faults();
    slot_arm(s, &fill, 7);
    slot_warm(s, &fill, dirty, room);
    cr_assert_gt(faults(), before, "the pages were there already");
    before = faults();
    for (size_t i = 0; i < room; i += 64)
        s->body[i] = s->body[i] + 1;
    cr_assert_eq(faults(), before);
    for (size_t i = 0; i < room; i++)
        cr_assert_eq(s->body[i], (unsigned char)(fill.bytes[i % SLOT_FILL] +
                                                 (i % 64 == 0)));
    munmap(s, size);
    close(fd);
}

Test(slot, arming_and_warming_take_the_fault_of_each_page)
{
    warmed(0);
    warmed(1);
    warmed(4096 - SLOT_HEADER);
    warmed(6000);
    warmed(5 * 4096 - SLOT_HEADER - 100);
}

struct reception {
    struct queue *queue;
    const char *body;
    size_t size;
};

static void receive_act(void *arg)
{
    struct reception *r = arg;
    ssize_t n;

    slot_arm(slot, &fill, 7);
    slot_warm(slot, &fill, 0, ROOM);
    n = queue_receive(r->queue, slot->body, &slot->priority);
    if (n >= 0)
        slot_taken(slot, (uint32_t)n, 1000);
    else
        slot_disarm(slot);
}

/* Check that the message is either in the queue or in the slot. */
static void receive_look(void *arg)
{
    struct reception *r = arg;
    struct slot *s = recovered();
    bool held = slot_word(s).state == SLOT_HELD;

    cr_assert_eq(held, queue_length(r->queue) == 0);
    if (!held)
        return;
    looked++;
    message_is(s, r->body, r->size);
    cr_assert_eq((slot_word(s).flags & SLOT_LENGTH_INFERRED) != 0,
                 atomic_load(&slot->length) == SLOT_UNSET);
}

/* Receive one message through a real queue, with a kill at each instruction
 * from arming to HELD. */
static void receive_stepped(const char *body, size_t size)
{
    char name[64];
    struct queue_attr attr = {.depth = 2, .message_size = ROOM};
    struct reception r = {.body = body, .size = size};
    struct problem p = {0};

    snprintf(name, sizeof name, "/mqw-slot-%d", (int)getpid());
    cr_assert(queue_open(&r.queue, name,
                         QUEUE_RECEIVE | QUEUE_SEND | QUEUE_CREATE, &attr, NULL,
                         &p) == 0,
              "%s", p.text);
    queue_unlink(name);
    cr_assert_eq(queue_send(r.queue, body, size, 3), 0);
    step_through(receive_act, receive_look, &r, slot, BYTES);
    cr_assert_eq(slot_word(slot).state, SLOT_HELD);
    cr_assert_gt(looked, 2,
                 "no kill before, or none after, the length was written");
    queue_close(&r.queue);
}

Test(slot, kill_while_receiving_leaves_it_in_the_queue_or_in_the_slot)
{
    receive_stepped("hello world", 11);
}

Test(slot, kill_while_receiving_an_empty_message_keeps_it)
{
    receive_stepped("", 0);
}

Test(slot, kill_while_receiving_a_full_body_keeps_it)
{
    char body[ROOM];

    memset(body, 'x', sizeof body);
    receive_stepped(body, sizeof body);
}

Test(slot, kill_while_receiving_keeps_binary_data_behind_a_header_exact)
{
    char body[ROOM];
    int n = snprintf(body, sizeof body, "MQW/1\nsize: 40\n\n");

    /* Exactly what the fill would be there: only the header tells it apart. */
    memcpy(body + n, fill.bytes + n, 40);
    receive_stepped(body, (size_t)n + 40);
}

static void empty_look(void *arg)
{
    struct reception *r = arg;

    cr_assert_eq(slot_word(recovered()).state, SLOT_FREE);
    cr_assert_eq(queue_length(r->queue), 0);
    looked++;
}

Test(slot, kill_while_looking_at_an_empty_queue_invents_nothing)
{
    char name[64];
    struct queue_attr attr = {.depth = 2, .message_size = ROOM};
    struct reception r = {0};

    snprintf(name, sizeof name, "/mqw-slot-%d", (int)getpid());
    cr_assert_eq(queue_open(&r.queue, name, QUEUE_RECEIVE | QUEUE_CREATE, &attr,
                            NULL, NULL),
                 0);
    queue_unlink(name);
    step_through(receive_act, empty_look, &r, slot, BYTES);
    cr_assert_gt(looked, 2);
    cr_assert_eq(slot_word(slot).state, SLOT_FREE);
    queue_close(&r.queue);
}

/* Arming must turn all that a slot held before into fill. Otherwise the end of
 * an old message would pass for the end of the new one. */
Test(slot, body_is_all_fill_each_time_it_is_armed)
{
    unsigned seed = arc4random();
    char body[ROOM];

    fprintf(stderr, "seed: %u\n", seed);
    srandom(seed);
    memset(body, 'b', sizeof body);
    for (int i = 0; i < 20000; i++) {
        size_t n = (size_t)random() % (ROOM + 1);

        slot_arm(slot, &fill, 7);
        body_is_fill(slot);
        switch (random() % 4) {
        case 0:
            slot_disarm(slot);
            break;
        case 1: /* killed before the length */
            kernel_takes(body, n, 3);
            slot_resolve(slot, &fill, ROOM);
            slot_retire(slot);
            break;
        case 2: /* a row that was larger than the message before */
            slot_disarm(slot);
            memcpy(slot->body, body, n);
            slot_hold(slot,
                      &(struct slot_meta){.row = 1, .length = (uint32_t)n});
            slot_retire(slot);
            break;
        default:
            kernel_takes(body, n, 3);
            slot_taken(slot, (uint32_t)n, 1);
            slot_run(slot, 2);
            slot_retire(slot);
        }
    }
}

/* ---- length ---- */

/* Return the length that recovery finds for a message without a length. */
static size_t inferred(const void *body, size_t size)
{
    slot_arm(slot, &fill, 7);
    kernel_takes(body, size, 3);
    slot_resolve(slot, &fill, ROOM);
    word_is(slot_word(slot), (struct slot_word){.state = SLOT_HELD,
                                                .flags = SLOT_LENGTH_INFERRED});
    return atomic_load(&slot->length);
}

Test(slot, length_of_text_is_inferred_exactly)
{
    char body[ROOM];

    for (size_t n = 0; n <= ROOM; n++) {
        memset(body, '.', sizeof body);
        if (n > 3)
            memcpy(body + n - 2, "\xc3\xa9", 2); /* e with an accent */
        cr_assert_eq(inferred(body, n), n);
    }
    cr_assert_eq(inferred("\0\0\0", 3), 3, "zero bytes are taken for fill");
}

Test(slot, length_of_binary_data_loses_trailing_fill_at_most)
{
    unsigned seed = arc4random(), like_fill = 0;
    unsigned char body[ROOM];

    fprintf(stderr, "seed: %u\n", seed);
    srandom(seed);
    for (int i = 0; i < 2000; i++) {
        size_t n = 1 + (size_t)random() % ROOM, got;

        for (size_t k = 0; k < n; k++)
            body[k] = (unsigned char)random();
        body[n - 1] = 0xFF;
        got = inferred(body, n);
        cr_assert_leq(got, n);
        for (size_t k = got; k < n; k++)
            cr_assert_eq(body[k], fill.bytes[k],
                         "cut off a byte that is no fill");
        cr_assert_eq(got < n, fill.bytes[n - 1] == 0xFF);
    }
    /* 0xFF is lost at 1 place in 13; with a constant fill at all or at none. */
    for (size_t k = 0; k < ROOM; k++)
        like_fill += fill.bytes[k] == 0xFF;
    cr_assert(like_fill > 0 && like_fill < ROOM / 4, "%u of %d", like_fill,
              ROOM);
}

Test(slot, length_comes_from_the_header_where_it_has_one)
{
    char body[ROOM];
    int n = snprintf(body, sizeof body, "MQW/1\nsize: 8\n\n");

    memcpy(body + n, fill.bytes + n, 8);
    cr_assert_eq(inferred(body, (size_t)n + 8), (size_t)n + 8);
    n = snprintf(body, sizeof body, "MQW/1\nsize: 9999\n\nabc");
    cr_assert_eq(inferred(body, (size_t)n), (size_t)n,
                 "a size that cannot be is believed");
    n = snprintf(body, sizeof body, "MQW/1\nid: x\n\nabc");
    cr_assert_eq(inferred(body, (size_t)n), (size_t)n);
}

static void resolve_act(void *arg)
{
    (void)arg;
    slot_resolve(slot, &fill, ROOM);
}

static void resolve_look(void *arg)
{
    struct slot *s = recovered();

    (void)arg;
    looked++;
    message_is(s, want, want_size);
    word_is(slot_word(s), want_word);
}

Test(slot, recovery_killed_anywhere_is_done_again_with_the_same_result)
{
    slot_arm(slot, &fill, 7);
    kernel_takes("twice", 5, 3);
    want = "twice";
    want_size = 5;
    want_word =
        (struct slot_word){.state = SLOT_HELD, .flags = SLOT_LENGTH_INFERRED};
    step_through(resolve_act, resolve_look, NULL, slot, BYTES);
    cr_assert_gt(looked, 2);
    resolve_look(NULL);
}

Test(slot, recovery_takes_no_id_that_was_made_up_before_it)
{
    static const struct ulid none;

    slot_arm(slot, &fill, 7);
    kernel_takes("MQW/1\nid: x\n\nabc", 17, 3);
    memset(&slot->id, 0x5a, sizeof slot->id);
    slot_resolve(slot, &fill, ROOM);
    cr_assert_eq(memcmp(&slot->id, &none, sizeof none), 0);
}

Test(slot, length_that_was_written_is_not_inferred)
{
    slot_arm(slot, &fill, 7);
    kernel_takes("exact\xFF\xFF", 7, 3);
    atomic_store(&slot->length, 7);
    slot_resolve(slot, &fill, ROOM);
    word_is(slot_word(slot), (struct slot_word){.state = SLOT_HELD});
    message_is(slot, "exact\xFF\xFF", 7);
}

/* ---- running ---- */

/* Check that the message is whole, HELD or RUNNING. */
static void held_look(void *arg)
{
    const enum slot_state *allowed = arg;
    enum slot_state state = slot_word(slot).state;

    looked++;
    cr_assert(state == SLOT_HELD || state == *allowed);
    if (state != SLOT_FREE)
        message_is(recovered(), "hello", 5);
    if (state == SLOT_RUNNING) {
        cr_assert_eq(slot_word(slot).attempt, 3);
        cr_assert_eq(slot->started_ns, 55);
        cr_assert_eq(atomic_load(&slot->handler_pgid), 0,
                     "the group of the last delivery is still there");
    }
}

static void run_act(void *arg)
{
    (void)arg;
    slot_run(slot, 55);
}

Test(slot, running_is_written_whole_before_the_handler_can_start)
{
    enum slot_state after = SLOT_RUNNING;

    memcpy(slot->body, "hello", 5);
    slot_hold(slot, &(struct slot_meta){
                        .length = 5, .priority = 3, .failures = 2, .seq = 7});
    atomic_store(&slot->handler_pgid, 4711);
    step_through(run_act, held_look, &after, slot, BYTES);
    cr_assert_gt(looked, 1);
    word_is(slot_word(slot),
            (struct slot_word){.state = SLOT_RUNNING, .attempt = 3});
}

static void retire_act(void *arg)
{
    (void)arg;
    slot_retire(slot);
}

static void retire_look(void *arg)
{
    (void)arg;
    looked++;
    cr_assert_eq(slot_word(slot).state, SLOT_FREE);
}

Test(slot, retiring_is_one_store)
{
    received("hello");
    slot_run(slot, 5);
    cr_assert_eq(step_through(retire_act, retire_look, NULL, slot, BYTES), 1);
    cr_assert_eq(looked, 1);
}

static void mark_act(void *arg)
{
    (void)arg;
    slot_mark(slot, SLOT_REDELIVERED);
}

static void mark_look(void *arg)
{
    (void)arg;
    looked++;
    word_is(slot_word(slot),
            (struct slot_word){.state = SLOT_HELD, .flags = SLOT_REDELIVERED});
}

Test(slot, marking_what_is_held_is_one_store)
{
    received("hello");
    cr_assert_eq(step_through(mark_act, mark_look, NULL, slot, BYTES), 1);
    cr_assert_eq(looked, 1);
    message_is(slot, "hello", 5);
}

static void crashed_act(void *arg)
{
    (void)arg;
    slot_crashed(slot);
}

static void crashed_look(void *arg)
{
    (void)arg;
    looked++;
    word_is(slot_word(slot), (struct slot_word){.state = SLOT_HELD,
                                                .flags = SLOT_REDELIVERED,
                                                .crashes = 1,
                                                .attempt = 1});
}

Test(slot, crash_is_counted_marked_and_held_in_one_store)
{
    received("hello");
    slot_run(slot, 5);
    cr_assert_eq(step_through(crashed_act, crashed_look, NULL, slot, BYTES), 1);
    message_is(slot, "hello", 5);
}

Test(slot, crashes_stop_counting_instead_of_starting_anew)
{
    received("hello");
    for (unsigned i = 0; i < UINT16_MAX + 5; i++)
        slot_crashed(slot);
    cr_assert_eq(slot_word(slot).crashes, UINT16_MAX);
    cr_assert_eq(slot_word(slot).flags, SLOT_REDELIVERED);
}

Test(slot, stopping_marks_only_what_may_have_run)
{
    received("hello");
    slot_run(slot, 5);
    slot_unrun(slot, false);
    word_is(slot_word(slot),
            (struct slot_word){.state = SLOT_HELD, .attempt = 1});
    slot_run(slot, 6);
    slot_unrun(slot, true);
    cr_assert_eq(slot_word(slot).flags, SLOT_REDELIVERED);
    slot_run(slot, 7);
    cr_assert_eq(slot_word(slot).attempt, 1, "a stop counts as an attempt");
    cr_assert_eq(slot_word(slot).flags, SLOT_REDELIVERED, "the mark is lost");
}

/* ---- rows ---- */

static const struct slot_meta meta = {.row = 31,
                                      .length = 5,
                                      .priority = 3,
                                      .failures = 2,
                                      .crashes = 1,
                                      .flags = SLOT_REDELIVERED,
                                      .seq = 7,
                                      .received_ns = 77};

static void hold_act(void *arg)
{
    (void)arg;
    slot_hold(slot, &meta);
}

static void hold_look(void *arg)
{
    struct slot *s = recovered();

    (void)arg;
    if (slot_word(s).state == SLOT_FREE)
        return;
    looked++;
    message_is(s, "hello", 5);
    cr_assert_eq(s->row, 31);
    cr_assert_eq(s->failures, 2);
    cr_assert_eq(s->received_ns, 77);
    cr_assert_eq(atomic_load(&s->handler_pgid), 0);
    word_is(slot_word(s), (struct slot_word){.state = SLOT_HELD,
                                             .flags = SLOT_REDELIVERED,
                                             .crashes = 1});
}

Test(slot, stored_row_is_in_the_slot_whole_or_not_at_all)
{
    atomic_store(&slot->handler_pgid, 4711);
    memcpy(slot->body, "hello", 5);
    cr_assert_gt(step_through(hold_act, hold_look, NULL, slot, BYTES), 3);
    cr_assert_eq(looked, 1);
}

/* ---- damage ---- */

/* Change a sound slot; return what slot_damage says of it. */
static const char *damage_of(void (*change)(struct slot *s), bool running)
{
    struct slot *s;

    received("hello");
    if (running)
        slot_run(slot, 5);
    s = copy();
    cr_assert_null(slot_damage(s, ROOM));
    change(s);
    return slot_damage(s, ROOM);
}

static void bad_state(struct slot *s)
{
    atomic_store(&s->word, atomic_load(&s->word) | 0x40);
}
static void bad_flags(struct slot *s)
{
    atomic_store(&s->word, atomic_load(&s->word) ^ 0x3000);
}
static void bad_priority(struct slot *s)
{
    s->priority = 32768;
}
static void unset_priority(struct slot *s)
{
    s->priority = SLOT_UNSET;
}
static void bad_length(struct slot *s)
{
    atomic_store(&s->length, ROOM + 1);
}
static void unset_length(struct slot *s)
{
    atomic_store(&s->length, SLOT_UNSET);
}
static void bad_row(struct slot *s)
{
    s->row = -1;
}
static void no_seq(struct slot *s)
{
    s->seq = 0;
}
static void bad_seq(struct slot *s)
{
    s->seq = SLOT_SEQ_MAX;
}

static void other_seq(struct slot *s)
{
    s->seq ^= 2;
}
static void other_length(struct slot *s)
{
    atomic_store(&s->length, atomic_load(&s->length) ^ 1);
}

Test(slot, damage_names_the_field_that_cannot_be)
{
    static const struct {
        void (*change)(struct slot *s);
        const char *field;
    } rows[] = {
        {bad_state, "state"},       {bad_flags, "flags"},
        {bad_priority, "priority"}, {unset_priority, "priority"},
        {bad_length, "length"},     {unset_length, "length"},
        {bad_row, "row"},           {no_seq, "seq"},
        {bad_seq, "seq"},           {other_seq, "sum"},
        {other_length, "sum"},
    };

    for (size_t i = 0; i < COUNT(rows); i++)
        for (int running = 0; running < 2; running++) {
            const char *got = damage_of(rows[i].change, running);

            cr_assert(got && strcmp(got, rows[i].field) == 0,
                      "%s instead of %s", got ? got : "nothing", rows[i].field);
        }
}

/* The sum covers length, priority, sequence and failures. */
Test(slot, each_single_bit_that_the_sum_covers_is_noticed)
{
    for (int step = 0; step < 3; step++)
        for (unsigned bit = 8 * 8; bit < 84 * 8; bit++) {
            if (bit == 24 * 8)
                bit = 80 * 8; /* not times, row, id, handler */
            received("hello");
            if (step > 0)
                slot_run(slot, 5);
            if (step > 1)
                slot_crashed(slot);
            unsigned char *image = (unsigned char *)copy();
            image[bit / 8] ^= (unsigned char)(1u << bit % 8);
            cr_assert_not_null(slot_damage((struct slot *)(void *)image, ROOM),
                               "step %d, bit %u", step, bit);
            cr_assert_not(slot_free((struct slot *)(void *)image));
            slot_retire(slot);
        }
}

static void link_act(void *arg)
{
    (void)arg;
    slot_link(slot, 31);
}

static void link_look(void *arg)
{
    struct slot *s = recovered(); /* no damage, at each instruction */

    (void)arg;
    looked++;
    cr_assert(s->row == 0 || s->row == 31);
    message_is(s, "hello", 5);
}

Test(slot, row_is_linked_or_not)
{
    received("hello");
    cr_assert_gt(step_through(link_act, link_look, NULL, slot, BYTES), 1);
    cr_assert_geq(looked, 2);
    cr_assert_eq(slot->row, 31);
    slot->row = 0;
    cr_assert_not_null(slot_damage(slot, ROOM),
                       "the sum does not cover the row");
}

static void unlink_act(void *arg)
{
    (void)arg;
    slot_unlink(slot);
}

/* The row may be cleared only once the slot is marked as redelivered. */
static void unlink_look(void *arg)
{
    struct slot *s = recovered();

    (void)arg;
    looked++;
    cr_assert(s->row == 31 ||
              (s->row == 0 && slot_word(s).flags & SLOT_REDELIVERED));
    message_is(s, "hello", 5);
}

Test(slot, a_run_of_a_row_becomes_a_message_of_its_own)
{
    received("hello");
    slot_link(slot, 31);
    cr_assert_gt(step_through(unlink_act, unlink_look, NULL, slot, BYTES), 2);
    cr_assert_geq(looked, 3);
    cr_assert_eq(slot->row, 0);
    cr_assert_null(slot_damage(slot, ROOM));
}

Test(slot, a_row_that_is_not_in_the_sum_is_none)
{
    received("hello");
    for (unsigned bit = 0; bit < 63; bit++) {
        slot->row = INT64_C(1) << bit;
        cr_assert_null(slot_damage(slot, ROOM));
        slot_resolve(slot, &fill, ROOM);
        cr_assert_eq(slot->row, 0);
        message_is(slot, "hello", 5);
    }
    slot_link(slot, 31);
    slot_resolve(slot, &fill, ROOM);
    cr_assert_eq(slot->row, 31);
}

Test(slot, free_slot_is_never_damaged)
{
    memset(slot, 0xFF, SLOT_HEADER);
    slot_retire(slot);
    cr_assert_null(slot_damage(slot, ROOM));
    cr_assert(slot_free(slot));
}
