/* test_groups_park.c - messages behind a blocked head move to the store
 *
 * Two batches on their way, a head that comes back, a new message and a
 * delivery in every order in which they can come.
 */
#include <errno.h>
#include <stdio.h>

#include "tests/unit/groups/groups_fixture.h"

TestSuite(groups_park, .init = setup, .fini = teardown);

#define HEAD  9 /* row of the head */
#define BATCH 2

struct batch {
    struct group_item *items[BATCH];
    size_t n;
    bool parked; /* whether it ends in the store */
};

/* Rows that the store would hold, and the last message that was delivered. */
static unsigned store[8], stored, done;
static struct batch batch[2];
static struct group *resumed;
static const char *trace;

static void batch_begin(struct batch *b)
{
    b->n = groups_park_begin(groups, b->items, BATCH);
}

static void batch_end(struct batch *b)
{
    for (size_t n = 0; n < b->n && b->parked; n++)
        store[stored++] = (unsigned)(b->items[n] - item);
    groups_park_end(groups, b->items, b->n, b->parked);
    b->n = 0;
}

/* Return the index of the lowest number in the store. */
static unsigned store_first(void)
{
    unsigned first = 0;

    for (unsigned n = 1; n < stored; n++)
        if (store[n] < store[first])
            first = n;
    return first;
}

/* Settle message `i`, which must be the one after the last. */
static void settle(unsigned i)
{
    cr_assert_eq(i, done + 1, "%s: %u after %u", trace, i, done);
    done = i;
}

/* Deliver one message, from the store or not; false: there is none. */
static bool serve(void)
{
    struct group *at = groups_lease(groups);
    struct group_item *first;
    unsigned row;

    if (!at)
        return false;
    first = groups_peek(groups, at);
    row = store_first();
    cr_assert_eq(groups_parked_of(at), stored, "%s", trace);
    if (stored && !(first && (first->priority == GROUP_FRONT ||
                              first->seq < store[row]))) {
        settle(store[row]);
        store[row] = store[--stored];
        groups_take(groups, at, NULL, 0);
    } else {
        cr_assert_not_null(first, "%s", trace);
        settle((unsigned)(first - item));
        groups_take(groups, at, first, 0);
    }
    groups_release(groups, at);
    return true;
}

/* End the head that came back, in one of four ways. */
static void finish(char how)
{
    if (!resumed)
        return;
    switch (how) {
    case 'd':
        settle(1);
        groups_release(groups, resumed);
        break;
    case 'h':
        settle(1); /* it is dead */
        groups_hold(groups, resumed);
        break;
    case 'b':
        groups_block(groups, resumed, HEAD);
        break;
    default:
        groups_return(groups, resumed, &item[1]);
        break;
    }
    resumed = NULL;
}

/* Do one event. B and E, C and F begin and end a batch. R brings the head back
 * (or releases the group), T ends it. A adds a message, S delivers one. */
static void step(char event, char how, bool held)
{
    switch (event) {
    case 'B':
        batch_begin(&batch[0]);
        break;
    case 'C':
        batch_begin(&batch[1]);
        break;
    case 'E':
        batch_end(&batch[0]);
        break;
    case 'F':
        batch_end(&batch[1]);
        break;
    case 'R':
        if (held)
            groups_unhold(groups, "a", 1);
        else
            resumed = groups_resume(groups, "a", 1, HEAD, NULL);
        break;
    case 'T':
        finish(how);
        break;
    case 'A':
        put("a", 5, 0);
        break;
    default:
        serve();
        break;
    }
    sound();
}

/* Begin: message 1 failed or died, 2 to 4 wait behind it. */
static void begin(bool held, bool first_parked, bool second_parked)
{
    struct group *a;

    stored = done = 0;
    resumed = NULL;
    batch[0] = (struct batch){.parked = first_parked};
    batch[1] = (struct batch){.parked = second_parked};
    for (unsigned i = 1; i <= 4; i++)
        put("a", i, 0);
    a = lease("a");
    cr_assert_eq(take(a), 1);
    if (held) {
        settle(1);
        groups_hold(groups, a);
    } else {
        groups_block(groups, a, HEAD);
    }
}

/* End all that is left: all messages must come, in order. */
static void end(void)
{
    batch_end(&batch[0]);
    batch_end(&batch[1]);
    resumed = groups_resume(groups, "a", 1, HEAD, NULL);
    finish('d');
    groups_unhold(groups, "a", 1);
    while (serve())
        sound();
    cr_assert_eq(done, 5, "%s: the last one was %u", trace, done);
    cr_assert_eq(groups_count(groups), 0);
    cr_assert_eq(groups_parked(groups), 0);
}

/* Play one order of events, with every outcome of each. */
static void play(const char *events, bool held)
{
    trace = events;
    for (unsigned parked = 0; parked < 4; parked++)
        for (const char *how = held ? "d" : "dhbr"; *how; how++) {
            begin(held, parked & 1, parked & 2);
            for (const char *at = events; *at; at++)
                step(*at, *how, held);
            end();
        }
}

/* Play all orders in which no end is before its beginning; count them. */
static unsigned permute(char *events, unsigned n, const char *left, bool held)
{
    unsigned played = 0;
    char rest[16];

    events[n] = 0;
    if (!*left) {
        play(events, held);
        return 1;
    }
    for (const char *at = left; *at; at++) {
        size_t before = (size_t)(at - left);

        if ((*at == 'E' && !strchr(events, 'B')) ||
            (*at == 'F' && !strchr(events, 'C')) ||
            (*at == 'C' && !strchr(events, 'B')) ||
            (*at == 'T' && !strchr(events, 'R')))
            continue;
        memcpy(rest, left, before);
        strcpy(rest + before, at + 1);
        events[n] = *at;
        played += permute(events, n + 1, rest, held);
        events[n] = 0;
    }
    return played;
}

Test(groups_park, no_order_of_events_lets_one_overtake_behind_a_blocked_head)
{
    char events[16];

    cr_assert_gt(permute(events, 0, "BECFRTAS", false), 2000);
}

Test(groups_park, no_order_of_events_lets_one_overtake_in_a_held_group)
{
    char events[16];

    cr_assert_gt(permute(events, 0, "BECFRAS", true), 500);
}

Test(groups_park, only_what_is_behind_a_blocked_head_is_taken)
{
    struct group_item *items[8];
    struct group *a;

    for (unsigned i = 1; i <= 3; i++) {
        put("a", i, 0);
        put("b", i + 10, 0);
    }
    a = lease("a");
    take(a);
    cr_assert_eq(groups_park_begin(groups, items, 8), 0);
    groups_block(groups, a, HEAD);
    cr_assert_eq(groups_park_begin(groups, items, 0), 0);
    cr_assert_eq(groups_park_begin(groups, items, 8), 2);
    cr_assert_eq(items[0], &item[2]);
    cr_assert_eq(items[1], &item[3]);
    cr_assert_eq(groups_parkable(groups), 0);
    groups_park_end(groups, items, 2, false);
    cr_assert_eq(groups_parkable(groups), 2);
    DELIVERS(11, 12, 13);
    a = groups_resume(groups, "a", 1, HEAD, NULL);
    groups_release(groups, a);
    DELIVERS(2, 3);
}

Test(groups_park, items_leave_in_the_order_of_their_delivery)
{
    static const unsigned order[] = {5, 3, 2, 4};
    struct group_item *items[8];
    struct group *a;

    put("a", 1, 0);
    a = lease("a");
    take(a);
    groups_block(groups, a, HEAD);
    put("a", 2, 1);
    put("a", 3, 7);
    put("a", 4, 0);
    put("a", 5, GROUP_FRONT);
    cr_assert_eq(groups_park_begin(groups, items, 8), 4);
    for (unsigned i = 0; i < 4; i++)
        cr_assert_eq(items[i], &item[order[i]]);
    groups_park_end(groups, items, 4, true);
    cr_assert_eq(groups_parked(groups), 4);
    a = groups_resume(groups, "a", 1, HEAD, NULL);
    groups_unpark(groups, a);
    groups_release(groups, a);
}

/* What an operator sent again is a letter as long as it is in a slot. */
Test(groups_park, what_goes_first_stays_where_it_is_if_told_so)
{
    struct group_item *items[8];
    struct group *a;

    groups->keep_front = true;
    put("a", 1, 0);
    a = lease("a");
    take(a);
    put("a", 2, GROUP_FRONT);
    groups_block(groups, a, HEAD);
    cr_assert_eq(groups_parkable(groups), 0);
    cr_assert_eq(groups_park_begin(groups, items, 8), 0);
    put("a", 3, 7);
    put("a", 4, GROUP_FRONT);
    put("a", 5, 0);
    cr_assert_eq(groups_parkable(groups), 2);
    cr_assert_eq(groups_park_begin(groups, items, 8), 2);
    cr_assert_eq(items[0], &item[3]);
    cr_assert_eq(items[1], &item[5]);
    cr_assert_eq(groups_parkable(groups), 0);
    groups_park_end(groups, items, 2, false);
    a = groups_resume(groups, "a", 1, HEAD, NULL);
    groups_release(groups, a);
    DELIVERS(2, 4, 3, 5);
}

/* An item that could not be stored, and waits elsewhere, leaves its group as it
 * was. */
Test(groups_park, one_that_is_not_parked_after_all_lets_its_group_go_on)
{
    cr_assert_eq(groups_park_one(groups, "a", 1, &item[1]), 0);
    cr_assert_eq(groups_count(groups), 1);
    groups_park_undo(groups, &item[1]);
    cr_assert_eq(groups_count(groups), 0);
    cr_assert_eq(groups_park_one(groups, "a", 1, &item[1]), 0);
    put("a", 2, 0);
    lease(NULL);
    groups_park_undo(groups, &item[1]);
    cr_assert_eq(groups_parked(groups), 0);
    DELIVERS(2);
}

static bool letters = true; /* whether all of GROUP_FRONT are letters */

/* Take an item out of its place; NULL: it has none. */
static struct group_item *pull(const char *key, uint64_t seq)
{
    for (size_t i = 0; i < sizeof item / sizeof *item; i++)
        item[i].letter = letters && item[i].priority == GROUP_FRONT;
    return groups_pull(groups, key, strlen(key), seq);
}

Test(groups_park, one_is_taken_out_of_any_place)
{
    put("a", 1, 0);
    put("a", 2, 0);
    put("a", 3, 0);
    put("a", 4, 7);
    for (unsigned i = 4; i > 0; i--) {
        struct group_item *is = &item[i];

        cr_assert_eq(pull("a", i), is);
        sound();
        cr_assert_null(pull("a", i), "it is still there");
        groups_park_end(groups, &is, 1, false);
        sound();
    }
    cr_assert_eq(pull("a", 2), &item[2]);
    groups_park_undo(groups, &item[2]);
    cr_assert_null(pull("b", 1));
    cr_assert_eq(groups_waiting(groups), 3);
    DELIVERS(4, 1, 3);
}

Test(groups_park, a_group_without_its_only_item_is_forgotten_when_it_is_gone)
{
    put("a", 1, 0);
    cr_assert_eq(pull("a", 1), &item[1]);
    lease(NULL);
    sound();
    put("a", 2, 0);
    lease(NULL); /* not before it is known what becomes of the first */
    groups_park_undo(groups, &item[1]);
    DELIVERS(2);
    cr_assert_eq(groups_count(groups), 0);
}

Test(groups_park, what_runs_or_is_parked_now_is_not_taken_out)
{
    struct group_item *first;
    struct group *a;

    put("a", 1, 0);
    put("a", 2, 0);
    put("a", 3, 0);
    a = lease("a");
    cr_assert_null(pull("a", 1), "taken out, but it is about to run");
    cr_assert_eq(pull("a", 3), &item[3], "not found behind one that runs");
    take(a);
    groups_block(groups, a, HEAD);
    cr_assert_eq(groups_parkable(groups), 1);
    cr_assert_eq(groups_park_begin(groups, &first, 1), 1);
    cr_assert_null(pull("a", 2), "taken out on its way to the store");
    groups_park_end(groups, &first, 1, false);
    cr_assert_eq(pull("a", 2), &item[2]);
    cr_assert_eq(groups_parkable(groups), 0);
    groups_park_undo(groups, &item[2]);
    groups_park_undo(groups, &item[3]);
    sound();
    groups_release(groups, groups_resume(groups, "a", 1, HEAD, NULL));
    cr_assert_eq(groups_count(groups), 0);
}

Test(groups_park, what_a_held_group_waits_for_is_not_taken_out)
{
    groups->keep_front = true;
    put("a", 1, GROUP_FRONT);
    put("a", 2, 0);
    cr_assert_null(pull("a", 1));
    cr_assert_eq(pull("a", 2), &item[2]);
    groups_park_undo(groups, &item[2]);
    DELIVERS(1);
}

/* The message was lent, and came back before a handler had it. */
Test(groups_park, what_was_given_back_is_taken_out_unless_a_letter_came)
{
    struct group *a;

    groups->keep_front = true;
    letters = false;
    put("a", 1, 0);
    put("a", 2, 0);
    a = lease("a");
    take(a);
    groups_return(groups, a, &item[1]);
    cr_assert_eq(pull("a", 1), &item[1]);
    groups_park_undo(groups, &item[1]);
    sound();
    a = lease("a");
    take(a);
    cr_assert_eq(groups_hold_late(groups, "a", 1), NO);
    groups_return(groups, a, &item[2]);
    cr_assert_null(pull("a", 2), "taken out, but the group may be held");
    sound();
    a = lease("a");
    take(a);
    cr_assert(!groups_release(groups, a), "the letter is not looked for");
    cr_assert(groups_release(groups, a));
    cr_assert_eq(groups_count(groups), 0);
}

/* The head is settled while items are on their way to the store. The others do
 * not count as parkable, so nobody parks what would go on at once. */
Test(groups_park, a_group_whose_head_is_settled_is_not_parked_further)
{
    struct group_item *first, *other;
    struct group *a;

    put("a", 1, 0);
    put("a", 2, 0);
    put("a", 3, 0);
    a = lease("a");
    take(a);
    groups_block(groups, a, HEAD);
    cr_assert_eq(groups_park_begin(groups, &first, 1), 1);
    a = groups_resume(groups, "a", 1, HEAD, NULL);
    groups_release(groups, a);
    cr_assert_eq(groups_parkable(groups), 0);
    cr_assert_eq(groups_park_begin(groups, &other, 1), 0);
    lease(NULL);
    groups_park_end(groups, &first, 1, true);
    a = lease("a");
    cr_assert_eq(groups_parked_of(a), 1);
    groups_take(groups, a, NULL, 0);
    groups_release(groups, a);
    DELIVERS(3);
}

Test(groups_park, what_is_sent_again_and_cannot_be_parked_runs_in_a_held_group)
{
    struct group_item *first;
    struct group *a;

    put("a", 1, 0);
    a = lease("a");
    take(a);
    groups_block(groups, a, HEAD);
    put("a", 2, GROUP_FRONT);
    cr_assert_eq(groups_park_begin(groups, &first, 1), 1);
    a = groups_resume(groups, "a", 1, HEAD, NULL);
    groups_hold(groups, a);
    cr_assert_eq(groups_held(groups), 1);
    groups_park_end(groups, &first, 1, false);
    cr_assert_eq(groups_held(groups), 0);
    DELIVERS(2);
}

Test(groups_park, one_that_goes_to_the_store_at_once_brings_its_group_along)
{
    struct group_item *one = &item[1];
    struct group *a;

    item[1].seq = 1;
    cr_assert_eq(groups_park_one(groups, "a", 1, one), 0);
    put("a", 2, 0);
    lease(NULL); /* it would overtake */
    groups_park_end(groups, &one, 1, true);
    a = lease("a");
    cr_assert_eq(groups_parked_of(a), 1);
    groups_take(groups, a, NULL, 0);
    groups_release(groups, a);
    DELIVERS(2);
}

/* The lease has an item at hand when the count of the parked ones changes. */
Test(groups_park, one_that_was_parked_under_a_lease_can_be_returned)
{
    struct group_item *one = &item[1];
    struct group *a;

    put("a", 2, 0);
    item[1].seq = 1;
    cr_assert_eq(groups_park_one(groups, "a", 1, one), 0);
    a = lease("a");
    cr_assert_eq(groups_peek(groups, a), &item[2]);
    groups_park_end(groups, &one, 1, true);
    cr_assert_eq(groups_parked_of(a), 1);
    groups_take(groups, a, NULL, 0);
    groups_return(groups, a, one);
    cr_assert_eq(groups_waiting(groups), 2);
    DELIVERS(1, 2);
}

/* The store is asked between the look at what is next and taking it: one that
 * was delayed is due then, and gets in line before it. */
Test(groups_park, one_that_gets_in_line_before_what_is_being_taken_costs_none)
{
    struct group_item *one = &item[9], *first;
    struct group *a;

    put("a", 5, 1);
    put("a", 6, 1);
    item[9].seq = 9;
    cr_assert_eq(groups_park_one(groups, "a", 1, one), 0);
    groups_park_end(groups, &one, 1, true);
    a = lease("a");
    first = groups_peek(groups, a);
    cr_assert_eq(first, &item[5]);
    put("a", 3, 1);
    groups_take(groups, a, first, 1);
    groups_unpark(groups, a);
    sound();
    groups_release(groups, a);
    DELIVERS(3, 6);
}

/* Of 10000 blocked groups one has an item behind its head. A search that passes
 * by all of them reaches the time limit of the test. */
Test(groups_park, finding_what_to_park_does_not_pass_by_every_blocked_group)
{
    struct group_item *first;
    char key[] = "k0000";
    struct group *at;

    for (unsigned i = 1; i <= 10000; i++) {
        snprintf(key, sizeof key, "k%04u", i % 10000);
        put(key, i, 0);
        at = lease(key);
        take(at);
        groups_block(groups, at, i);
    }
    put("k0001", 10001, 0);
    for (unsigned n = 0; n < 200000; n++) {
        cr_assert_eq(groups_park_begin(groups, &first, 1), 1);
        cr_assert_eq(first, &item[10001]);
        groups_park_end(groups, &first, 1, false);
    }
}
