/* test_groups.c - what ordered groups promise
 *
 * Also every call in every state. test_groups_park.c has the moves to the
 * store, test_groups_model.c random turns, stress_groups.c threads.
 */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

/* <grp.h>, which libc.h includes, has another struct group. */
#define group libc_group
#include "common/base/libc.h"
#undef group
#include "tests/unit/groups/groups_fixture.h"

TestSuite(groups, .init = setup, .fini = teardown);

/* ---- order inside a group ---- */

Test(groups, first_in_first_out_inside_one_priority)
{
    for (unsigned i = 1; i <= 1000; i++)
        put("a", i, 3);
    for (unsigned i = 1; i <= 1000; i++)
        cr_assert_eq(deliver(), i);
    cr_assert_eq(groups_count(groups), 0);
}

Test(groups, higher_priority_first)
{
    put("a", 1, 0);
    put("a", 2, 5);
    put("a", 3, 0);
    put("a", 4, 9);
    put("a", 5, 5);
    put("a", 6, 32767);
    DELIVERS(6, 4, 2, 5, 1, 3);
}

Test(groups, what_comes_late_takes_the_place_of_its_sequence)
{
    put("a", 5, 1);
    put("a", 3, 1);
    put("a", 9, 0);
    put("a", 4, 1);
    put("a", 8, 0);
    put("a", 7, 0);
    put("a", 6, 1);
    DELIVERS(3, 4, 5, 6, 7, 8, 9);
}

Test(groups, a_high_one_never_interrupts_what_runs)
{
    struct group *a;

    put("a", 1, 0);
    a = lease("a");
    cr_assert_eq(take(a), 1);
    put("a", 2, 9);
    lease(NULL);
    groups_release(groups, a);
    DELIVERS(2);
}

Test(groups, a_normal_one_gets_at_least_each_eighth_turn)
{
    unsigned since = 0, normal = 0, next = 1, i;

    for (unsigned n = 0; n < 20; n++)
        put("a", next++, 0);
    for (unsigned n = 0; n < 160; n++) {
        put("a", next++, 9); /* always one that is higher */
        i = deliver();
        since = priority[i] ? since + 1 : 0;
        cr_assert_leq(since, GROUP_HIGH_ROW);
        normal += !priority[i];
        cr_assert(priority[i] || i == normal, "%u is the wrong normal one", i);
    }
    cr_assert_eq(normal, 20);
}

Test(groups, the_turn_of_the_lowest_is_not_used_up_by_what_goes_first)
{
    unsigned i;

    for (i = 1; i <= 12; i++)
        put("a", i, 9);
    put("a", 100, 0);
    for (i = 1; i <= GROUP_HIGH_ROW; i++)
        cr_assert_eq(deliver(), i);
    put("a", 101, GROUP_FRONT);
    priority[101] = 9;
    DELIVERS(101, 100, 8, 9, 10, 11, 12);
}

Test(groups, the_lowest_turn_passes_when_only_high_ones_wait)
{
    for (unsigned i = 1; i <= 20; i++)
        put("a", i, 9);
    for (unsigned i = 1; i <= 20; i++)
        cr_assert_eq(deliver(), i);
}

Test(groups, what_must_go_first_goes_before_every_priority)
{
    put("a", 1, 32767);
    put("a", 2, GROUP_FRONT);
    put("a", 3, GROUP_FRONT);
    DELIVERS(2, 3, 1);
}

/* ---- one delivery of a group at a time, groups beside each other ---- */

Test(groups, a_leased_group_is_not_leased_again)
{
    struct group *a, *b;

    put("a", 1, 0);
    put("a", 2, 0);
    put("b", 3, 0);
    a = lease("a");
    b = lease("b");
    lease(NULL);
    cr_assert_eq(take(a), 1);
    cr_assert_eq(take(b), 3);
    put("a", 4, 0);
    put("b", 5, 0);
    lease(NULL);
    groups_release(groups, b);
    b = lease("b");
    cr_assert_eq(take(b), 5);
    lease(NULL);
    groups_release(groups, b);
    groups_release(groups, a);
    DELIVERS(2, 4);
}

Test(groups, a_lease_ends_and_the_group_goes_on_in_its_quantum)
{
    struct group *at;

    put("a", 1, 0);
    put("b", 2, 0);
    put("a", 3, 0);
    at = lease("a");
    cr_assert_eq(take(at), 1);
    at = settle_next(at); /* in its quantum */
    cr_assert_eq(take(at), 3);
    at = settle_next(at);
    cr_assert_eq(take(at), 2);
    cr_assert_null(settle_next(at));
    cr_assert_eq(groups_count(groups), 0);
}

static int pass(const char *key, struct group **lease)
{
    return groups_pass(groups, key, strlen(key), 0, lease);
}

Test(groups, what_has_nothing_before_it_passes_and_nothing_else_does)
{
    struct group *a, *b, *none;

    cr_assert_eq(pass("a", &a), 0);
    cr_assert_eq(pass("a", &none), -EAGAIN, "a passed, but it runs");
    cr_assert_eq(pass("b", &b), 0, "b may not run beside a");
    put("a", 1, 0);
    groups_release(groups, b);
    groups_release(groups, a);
    sound();
    cr_assert_eq(pass("a", &none), -EAGAIN, "a passed, but one waits in it");
    cr_assert_eq(pass("b", &none), -EAGAIN,
                 "b passed, but another has its turn");
    cr_assert_null(none);
    a = lease("a");
    groups_take(groups, a, groups_peek(groups, a), 0);
    groups_block(groups, a, 17);
    cr_assert_eq(pass("a", &none), -EAGAIN, "a passed, but its head waits");
    cr_assert_eq(pass("b", &b), 0, "b waits for a group that is blocked");
    groups_release(groups, b);
    a = groups_resume(groups, "a", 1, 17, NULL);
    groups_release(groups, a);
    cr_assert_eq(groups_count(groups), 0, "a group is left");
    cr_assert_eq(groups_pass(groups, (char[GROUP_KEY_MAX + 1]){"long"},
                             GROUP_KEY_MAX + 1, 0, &none),
                 -ENAMETOOLONG);
}

Test(groups, what_was_peeked_and_not_taken_stays)
{
    struct group *a;

    put("a", 1, 0);
    put("a", 2, 0);
    a = lease("a");
    cr_assert_eq(groups_peek(groups, a), &item[1]);
    cr_assert_eq(groups_peek(groups, a), &item[1]);
    groups_release(groups, a);
    cr_assert_eq(groups_waiting(groups), 2);
    a = lease("a");
    groups_hold(groups, a);
    cr_assert_eq(groups_parkable(groups), 2);
    groups_unhold(groups, "a", 1);
    a = lease("a");
    groups_block(groups, a, 7);
    cr_assert_eq(groups_parkable(groups), 2);
    a = groups_resume(groups, "a", 1, 7, NULL);
    groups_hold(groups, a);
    cr_assert_eq(groups_parkable(groups), 2);
    groups_unhold(groups, "a", 1);
    DELIVERS(1, 2);
}

Test(groups, what_was_not_delivered_is_first_in_line_and_its_group_too)
{
    struct group *a;

    put("a", 1, 0);
    put("a", 2, 9);
    put("b", 3, 0);
    a = lease("a");
    cr_assert_eq(take(a), 2);
    put("a", 4, 32767);
    groups_return(groups, a, &item[2]);
    cr_assert_eq(groups_waiting(groups), 4);
    DELIVERS(2, 4, 1, 3);
}

/* Two groups, one with a backlog: the other waits at most quantum x threads. */
static void check_quantum(unsigned threads)
{
    struct group *at[16];
    unsigned waited = 0, i = 0;

    for (unsigned n = 1; n <= 10000; n++)
        put("backlog", n, 0);
    for (unsigned n = 0; n < 7; n++)
        deliver();
    put("other", 10001, 0);
    for (unsigned t = 0; t < threads; t++)
        at[t] = NULL;
    for (unsigned t = 0; i != 10001; t = (t + 1) % threads) {
        at[t] = at[t] ? settle_next(at[t]) : groups_lease(groups);
        i = at[t] ? take(at[t]) : 0;
        waited += i && i != 10001;
    }
    cr_assert_leq(waited, QUANTUM * threads, "waited %u", waited);
    for (unsigned t = 0; t < threads; t++)
        if (at[t])
            groups_release(groups, at[t]);
    while (deliver())
        continue;
}

Test(groups, a_backlog_keeps_others_waiting_no_longer_than_the_quantum)
{
    check_quantum(1);
    check_quantum(2);
    check_quantum(8);
}

Test(groups, ready_groups_take_turns_of_one_quantum_each)
{
    static const char *const keys[] = {"a", "b", "c"};
    struct group *at = NULL;

    for (unsigned i = 1; i <= 300; i++)
        put(keys[(i - 1) / 100], i, 0);
    for (unsigned turn = 0; turn < 30; turn++)
        for (unsigned n = 0; n < QUANTUM; n++) {
            at = at ? settle_next(at) : groups_lease(groups);
            cr_assert_eq((take(at) - 1) / 100, turn % 3);
        }
    cr_assert_null(settle_next(at));
}

Test(groups, a_lone_group_is_drained_without_a_break)
{
    struct group *a;

    for (unsigned i = 1; i <= 100; i++)
        put("a", i, 0);
    a = lease("a");
    for (unsigned i = 1; i <= 100; i++) {
        cr_assert_eq(take(a), i);
        a = settle_next(a);
        cr_assert_eq(a == NULL, i == 100);
    }
}

Test(groups, a_resumed_group_does_not_bring_a_quantum_along)
{
    struct group *a;

    put("a", 1, 0);
    a = lease("a");
    take(a);
    groups_block(groups, a, 7);
    put("a", 2, 0);
    put("b", 3, 0);
    a = groups_resume(groups, "a", 1, 7, NULL);
    groups_release(groups, a);
    DELIVERS(3, 2);
}

/* ---- a head that waits ---- */

Test(groups, a_blocked_head_holds_up_its_group_and_no_other)
{
    struct group *a;

    put("a", 1, 0);
    a = lease("a");
    take(a);
    groups_block(groups, a, 41);
    put("a", 2, 9); /* never overtakes a blocked head */
    put("a", 3, 0);
    put("b", 4, 0);
    cr_assert_eq(groups_parkable(groups), 2);
    DELIVERS(4);
    cr_assert_null(groups_resume(groups, "a", 1, 42, NULL));
    cr_assert_null(groups_resume(groups, "x", 1, 41, NULL));
    a = groups_resume(groups, "a", 1, 41, NULL);
    cr_assert_not_null(a);
    cr_assert_null(groups_resume(groups, "a", 1, 41, NULL));
    lease(NULL);
    cr_assert_eq(groups_parkable(groups), 0);
    groups_block(groups, a, 41); /* it failed again */
    lease(NULL);
    a = groups_resume(groups, "a", 1, 41, NULL);
    groups_release(groups, a);
    DELIVERS(2, 3);
}

Test(groups, a_blocked_group_with_nothing_behind_it_stays)
{
    struct group *a;

    put("a", 1, 0);
    a = lease("a");
    take(a);
    groups_block(groups, a, 5);
    cr_assert_eq(groups_count(groups), 1);
    a = groups_resume(groups, "a", 1, 5, NULL);
    groups_release(groups, a);
    cr_assert_eq(groups_count(groups), 0);
}

Test(groups, a_resumed_head_that_was_not_delivered_is_first)
{
    struct group *a;

    put("a", 1, 0);
    put("a", 2, 0);
    a = lease("a");
    take(a);
    groups_block(groups, a, 5);
    a = groups_resume(groups, "a", 1, 5, NULL);
    groups_return(groups, a, &item[1]);
    sound();
    cr_assert_null(groups_resume(groups, "a", 1, 5, NULL));
    DELIVERS(1, 2);
}

/* ---- a head that died ---- */

Test(groups, a_held_group_waits_until_it_is_released)
{
    struct group *a;

    put("a", 1, 0);
    a = lease("a");
    take(a);
    groups_hold(groups, a);
    put("a", 2, 9);
    cr_assert_eq(groups_held(groups), 1);
    lease(NULL);
    groups_unhold(groups, "x", 1);
    lease(NULL);
    groups_unhold(groups, "a", 1);
    cr_assert_eq(groups_held(groups), 0);
    DELIVERS(2);
    cr_assert_eq(groups_count(groups), 0);
}

Test(groups, a_held_group_runs_what_was_sent_again)
{
    struct group *a;

    put("a", 1, 0);
    put("a", 2, 0);
    a = lease("a");
    take(a);
    groups_hold(groups, a);
    put("a", 3, GROUP_FRONT);
    cr_assert_eq(groups_held(groups), 0);
    a = lease("a");
    cr_assert_eq(take(a), 3);
    groups_hold(groups, a); /* it died again */
    lease(NULL);
    put("a", 4, GROUP_FRONT);
    DELIVERS(4, 2);
}

Test(groups, what_was_sent_again_before_the_hold_runs_too)
{
    struct group *a;

    put("a", 1, 0);
    put("a", 2, 0);
    a = lease("a");
    take(a);
    put("a", 3, GROUP_FRONT);
    groups_hold(groups, a);
    a = lease("a");
    cr_assert_eq(take(a), 3);
    groups_hold(groups, a);
    lease(NULL);
    groups_unhold(groups, "a", 1);
    DELIVERS(2);
}

/* Return the keys of held groups, like "ab", in the order of their names. */
static const char *held(void)
{
    static char text[8];
    size_t count;
    struct group_key *keys = groups_held_keys(groups, &count);

    memset(text, 0, sizeof text);
    for (size_t i = 0; i < count; i++) {
        cr_assert_eq(keys[i].size, 1);
        text[keys[i].at[0] - 'a'] = keys[i].at[0];
    }
    cr_assert_eq(keys == NULL, count == 0);
    free(keys);
    return text;
}

Test(groups, the_keys_of_held_groups_can_be_had)
{
    struct group *at;

    cr_assert_str_eq(held(), "");
    for (unsigned i = 1; i <= 4; i++)
        put((char[]){(char)('a' + i - 1), 0}, i, 0);
    at = lease("a");
    groups_hold(groups, at);
    at = lease("b");
    groups_hold(groups, at);
    at = lease("c");
    groups_block(groups, at, 1);
    cr_assert_str_eq(held(), "ab");
    groups_unhold(groups, "b", 1);
    cr_assert_str_eq(held(), "a");
}

Test(groups, keys_of_many_held_groups_take_little_memory)
{
    enum { HELD = 10000 };
    struct group_key *keys;
    char key[32];
    size_t count;

    for (int i = 0; i < HELD; i++) {
        snprintf(key, sizeof key, "customer-%06d", i);
        cr_assert_eq(groups_restore(groups, key, strlen(key), 0, 0, true), 0);
    }
    keys = groups_held_keys(groups, &count);
    cr_assert_eq(count, HELD);
    cr_assert_not_null(keys);
    cr_assert_leq(malloc_usable_size(keys), 40 * HELD);
    for (size_t i = 0; i < count; i++)
        groups_unhold(groups, keys[i].at, keys[i].size);
    free(keys);
    cr_assert_eq(groups_held(groups), 0);
}

/* ---- at start ---- */

Test(groups, what_the_store_knows_is_restored)
{
    struct group *at;

    cr_assert_eq(groups_restore(groups, "none", 4, 0, 0, false), 0);
    cr_assert_eq(groups_count(groups), 0);
    cr_assert_eq(groups_restore(groups, "p", 1, 2, 0, false), 0);
    cr_assert_eq(groups_restore(groups, "b", 1, 3, 77, true), 0);
    cr_assert_eq(groups_restore(groups, "h", 1, 4, 0, true), 0);
    cr_assert_eq(groups_restore(groups, "h", 1, 1, 0, true), -EEXIST);
    sound();
    cr_assert_eq(groups_parked(groups), 9);
    cr_assert_eq(groups_held(groups), 1);
    at = lease("p");
    cr_assert_eq(groups_parked_of(at), 2);
    cr_assert_null(groups_peek(groups, at));
    groups_take(groups, at, NULL, 0);
    groups_release(groups, at);
    at = lease("p");
    groups_unpark(groups, at); /* an operator took the other one away */
    groups_release(groups, at);
    cr_assert_eq(groups_parked(groups), 7);
    lease(NULL);
    at = groups_resume(groups, "b", 1, 77, NULL);
    cr_assert_eq(groups_parked_of(at), 3);
    groups_unpark(groups, at);
    groups_release(groups, at);
    groups_unhold(groups, "h", 1);
    at = lease("h");
    groups_unpark(groups, at);
    groups_release(groups, at);
    cr_assert_eq(groups_count(groups), 0);
}

/* ---- looking ---- */

struct seen {
    unsigned n, most, order[8];
};

static bool see(const struct group_item *at, void *arg)
{
    struct seen *seen = arg;

    seen->order[seen->n++] = (unsigned)(at - item);
    return seen->n < seen->most;
}

Test(groups, what_waits_is_listed_in_the_order_of_delivery)
{
    struct seen all = {.most = 8}, two = {.most = 2};
    static const unsigned order[] = {4, 2, 1, 3};

    put("a", 1, 1);
    put("a", 2, 7);
    put("a", 3, 0);
    put("a", 4, GROUP_FRONT);
    put("b", 5, 0);
    cr_assert_eq(groups_list(groups, "x", 1, see, &all), -ENOENT);
    cr_assert_eq(groups_list(groups, "a", 1, see, &all), 0);
    cr_assert_eq(all.n, 4);
    cr_assert_arr_eq(all.order, order, sizeof order);
    cr_assert_eq(groups_list(groups, "a", 1, see, &two), 0);
    cr_assert_eq(two.n, 2);
}

Test(groups, one_is_known_as_long_as_anything_of_it_is_here)
{
    struct group *a;

    cr_assert_not(groups_known(groups, "a", 1));
    put("a", 1, 0);
    cr_assert(groups_known(groups, "a", 1));
    a = lease("a");
    cr_assert_eq(take(a), 1);
    cr_assert(groups_known(groups, "a", 1), "unknown while it is leased");
    groups_block(groups, a, 9);
    cr_assert(groups_known(groups, "a", 1), "unknown while its head waits");
    a = groups_resume(groups, "a", 1, 9, NULL);
    cr_assert(groups_release(groups, a));
    cr_assert_not(groups_known(groups, "a", 1));
}

/* ---- keys ---- */

Test(groups, keys_are_told_apart_by_every_byte_and_their_size)
{
    char keys[6][GROUP_KEY_MAX + 1];
    static const size_t sizes[] = {1, 2, 3, GROUP_KEY_MAX, GROUP_KEY_MAX, 0};

    memset(keys, 0, sizeof keys); /* NUL bytes are bytes */
    keys[4][GROUP_KEY_MAX - 1] = 1;
    for (unsigned i = 0; i < 6; i++) {
        item[i + 1].seq = i + 1;
        cr_assert_eq(groups_add(groups, keys[i], sizes[i], &item[i + 1]), 0);
        cr_assert_eq(groups_count(groups), i + 1);
    }
    cr_assert_eq(groups_add(groups, keys[0], GROUP_KEY_MAX + 1, &item[7]),
                 -ENAMETOOLONG);
    cr_assert_eq(
        groups_restore(groups, keys[0], GROUP_KEY_MAX + 1, 1, 0, false),
        -ENAMETOOLONG);
    cr_assert_eq(groups_park_one(groups, keys[0], GROUP_KEY_MAX + 1, &item[7]),
                 -ENAMETOOLONG);
    DELIVERS(1, 2, 3, 4, 5, 6);
}

/* ---- memory ---- */

/* Deliver a million messages, each of a group of its own; at_once at a time. */
static void waves(unsigned at_once)
{
    static struct group_item many[100000];
    uint64_t seq = 0;

    while (seq < 1000000) {
        for (unsigned i = 0; i < at_once; i++) {
            uint64_t key = ++seq;

            many[i] = (struct group_item){.seq = seq};
            cr_assert_eq(groups_add(groups, (char *)&key, sizeof key, &many[i]),
                         0);
        }
        cr_assert_eq(groups_count(groups), at_once);
        for (struct group *at = groups_lease(groups); at;) {
            groups_take(groups, at, groups_peek(groups, at), 0);
            at = settle_next(at);
        }
        cr_assert_eq(groups_count(groups), 0);
        cr_assert_eq(groups_waiting(groups), 0);
    }
}

Test(groups, a_million_groups_of_one_message_leave_nothing_behind)
{
    size_t before = (size_t)mallinfo2().uordblks, after;

    waves(1);
    waves(100000);
    after = (size_t)mallinfo2().uordblks;
    cr_assert_leq(after, before + 200000, "%zu bytes more", after - before);
}

/* ---- every call in every state ---- */

enum { NONE, QUEUED, RUNNING, BLOCKED, HELD, PARKING, STATES };

static struct group *running;
static struct group_item *away;

/* Bring group "a" to a state, with message 2 waiting behind message 1. */
static void bring(unsigned state)
{
    running = NULL;
    if (state == NONE)
        return;
    put("a", 1, 0);
    if (state != QUEUED) {
        running = lease("a");
        cr_assert_eq(take(running), 1);
    }
    put("a", 2, 0);
    if (state == BLOCKED || state == PARKING)
        groups_block(groups, running, 9);
    if (state == HELD)
        groups_hold(groups, running);
    if (state == PARKING) {
        cr_assert_eq(groups_park_begin(groups, &away, 1), 1);
        running = groups_resume(groups, "a", 1, 9, NULL);
        groups_release(groups, running);
    }
    sound();
}

/* End whatever was done, so that nothing of the group is left. */
static void leave(unsigned state)
{
    struct group *at = groups_resume(groups, "a", 1, 9, NULL);

    if (at)
        groups_release(groups, at);
    if (state == PARKING)
        groups_park_end(groups, &away, 1, false);
    if (state == RUNNING)
        groups_release(groups, running);
    while (!groups_unhold(groups, "a", 1))
        ; /* it was to be looked at again */
    while (deliver())
        sound();
    cr_assert_eq(groups_count(groups), 0);
}

/* Counts that are seen after a call. */
struct snapshot {
    size_t ready, parkable, held;
};

static void expect_view(const char *call, unsigned state, struct snapshot is)
{
    sound();
    cr_assert(groups_ready(groups) == is.ready &&
                  groups_parkable(groups) == is.parkable &&
                  groups_held(groups) == is.held,
              "%s in state %u: ready %zu parkable %zu held %zu", call, state,
              groups_ready(groups), groups_parkable(groups),
              groups_held(groups));
}

/* In each state: bring the group there, call, compare, end. */
static void each_state(const char *name, void (*call)(unsigned state),
                       const struct snapshot views[STATES])
{
    for (unsigned state = 0; state < STATES; state++) {
        bring(state);
        call(state);
        expect_view(name, state, views[state]);
        leave(state);
    }
}

static void call_add(unsigned state)
{
    (void)state;
    put("a", 3, 9);
}

static void call_add_front(unsigned state)
{
    (void)state;
    put("a", 3, GROUP_FRONT);
}

static void call_unhold(unsigned state)
{
    (void)state;
    cr_assert(groups_unhold(groups, "a", 1));
}

static void call_lease(unsigned state)
{
    struct group *at = groups_lease(groups);

    cr_assert_eq(at != NULL, state == QUEUED);
    if (at)
        groups_release(groups, at);
}

static void call_resume(unsigned state)
{
    struct group *at = groups_resume(groups, "a", 1, 9, NULL);

    cr_assert_eq(at != NULL, state == BLOCKED);
    if (at)
        groups_block(groups, at, 9);
}

static void call_park(unsigned state)
{
    struct group_item *items[4];
    size_t n = groups_park_begin(groups, items, 4);

    cr_assert_eq(n, state == BLOCKED || state == HELD ? 1 : 0);
    groups_park_end(groups, items, n, false);
}

static void call_park_one(unsigned state)
{
    struct group_item *one = &item[3];

    item[3].seq = 3;
    item[3].priority = 0;
    cr_assert_eq(groups_park_one(groups, "a", 1, one), 0);
    sound();
    if (state == NONE)
        lease(NULL); /* nothing of it is there yet */
    groups_park_end(groups, &one, 1, false);
}

static void call_park_undo(unsigned state)
{
    item[3].seq = 3;
    item[3].priority = 0;
    cr_assert_eq(groups_park_one(groups, "a", 1, &item[3]), 0);
    sound();
    groups_park_undo(groups, &item[3]);
    cr_assert_eq(groups_count(groups), state == NONE ? 0 : 1);
}

static void call_hold_late(unsigned state)
{
    int held = groups_hold_late(groups, "a", 1);

    cr_assert_eq(held, state == NONE || state == QUEUED || state == PARKING);
    cr_assert_eq(groups_hold_late(groups, "a", 1), 0);
    if (state == RUNNING)
        cr_assert_not(groups_release(groups, running),
                      "it is not to be looked at again");
}

/* The store was asked and had no letter, and then one came. */
Test(groups, one_that_died_while_its_group_was_let_go_keeps_it_held)
{
    struct group *a;

    put("a", 1, 0);
    put("a", 2, 0);
    a = lease("a");
    take(a);
    groups_hold(groups, a);
    cr_assert_eq(groups_hold_late(groups, "a", 1), 0);
    cr_assert_not(groups_unhold(groups, "a", 1),
                  "it is not to be looked at again");
    sound();
    lease(NULL);
    cr_assert(groups_unhold(groups, "a", 1),
              "held, but the store was asked again");
    DELIVERS(2);
}

static void call_known(unsigned state)
{
    cr_assert_eq(groups_known(groups, "a", 1), state != NONE);
}

static void call_leased(unsigned state)
{
    bool leased;

    cr_assert_null(groups_resume(groups, "a", 1, -1, &leased));
    cr_assert_eq(leased, state == RUNNING);
    cr_assert_null(groups_resume(groups, "b", 1, -1, &leased));
    cr_assert_not(leased);
}

static void call_restore(unsigned state)
{
    cr_assert_eq(groups_restore(groups, "a", 1, 1, 9, false),
                 state == NONE ? 0 : -EEXIST);
    if (state == NONE) {
        running = groups_resume(groups, "a", 1, 9, NULL);
        groups_unpark(groups, running);
        groups_block(groups, running, 9);
    }
}

static void call_list(unsigned state)
{
    struct seen seen = {.most = 8};

    cr_assert_eq(groups_list(groups, "a", 1, see, &seen),
                 state == NONE ? -ENOENT : 0);
    cr_assert_eq(seen.n, state == NONE || state == PARKING ? 0
                         : state == QUEUED                 ? 2
                                                           : 1);
}

Test(groups, every_call_does_what_it_should_in_every_state)
{
    static const struct snapshot same[STATES] = {
        [QUEUED] = {.ready = 1},
        [BLOCKED] = {.parkable = 1},
        [HELD] = {.parkable = 1, .held = 1},
    };
    static const struct snapshot added[STATES] = {
        [NONE] = {.ready = 1},
        [QUEUED] = {.ready = 1},
        [BLOCKED] = {.parkable = 2},
        [HELD] = {.parkable = 2, .held = 1},
    };
    static const struct snapshot front[STATES] = {
        [NONE] = {.ready = 1},
        [QUEUED] = {.ready = 1},
        [BLOCKED] = {.parkable = 2},
        [HELD] = {.ready = 1},
    };
    static const struct snapshot unheld[STATES] = {
        [QUEUED] = {.ready = 1},
        [BLOCKED] = {.parkable = 1},
        [HELD] = {.ready = 1},
    };
    static const struct snapshot late[STATES] = {
        [NONE] = {.held = 1},        [QUEUED] = {.parkable = 2, .held = 1},
        [BLOCKED] = {.parkable = 1}, [HELD] = {.parkable = 1, .held = 1},
        [PARKING] = {.held = 1},
    };

    each_state("add", call_add, added);
    each_state("add, front", call_add_front, front);
    each_state("lease", call_lease, same);
    each_state("resume", call_resume, same);
    each_state("unhold", call_unhold, unheld);
    each_state("known", call_known, same);
    each_state("park", call_park, same);
    each_state("park one", call_park_one, added);
    each_state("park undo", call_park_undo, same);
    each_state("hold late", call_hold_late, late);
    each_state("leased", call_leased, same);
    each_state("restore", call_restore, same);
    each_state("list", call_list, same);
}
