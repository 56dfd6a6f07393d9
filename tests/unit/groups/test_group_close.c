/* test_group_close.c - closing groups, for a source that has a spool */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "worker/flow/flow.h"
#include "worker/flow/dispatch.h"

enum { MOST = 8 };

static uint64_t next;   /* sequence that comes next */
static bool spooled;    /* whether messages wait at the source */
static int64_t lent_to; /* these have numbers above this one */
static unsigned flags;  /* of the next message */

static int64_t next_seq(struct source *s, enum source_count what)
{
    (void)s;
    cr_assert_eq(what, COUNT_NEXT_SEQ);
    return (int64_t)next;
}

static bool is_queued(const struct source *s, int64_t number)
{
    (void)s;
    return spooled && (number == 0 || number > lent_to);
}

static const struct source_ops ops = {.count = next_seq};
static const struct source_local_ops local = {.queued = is_queued};
static struct source source = {.ops = &ops, .local = &local};
static struct settings set = {
    .queue = "/q", .group_quantum = 10, .spool = 1000};
static struct flow flow = {.set = &set, .source = &source};

static void setup(void)
{
    log_setup(LOG_ERROR + 1, LOG_TEXT);
    cr_assert_eq(dispatch_open(&flow, MOST), 0);
    next = 100;
    spooled = true;
    lent_to = 4;
    flags = 0;
}

static void teardown(void)
{
    dispatch_close(&flow);
}

TestSuite(group_close, .init = setup, .fini = teardown);

/* Enter a message; return its delivery, with a lease or a refusal. */
static struct delivery enter_group(const char *key, uint64_t seq)
{
    static struct message messages[MOST];
    static unsigned used;
    struct message *m = &messages[used % MOST];
    struct delivery d = {.message = m, .group = {key, strlen(key)}};

    *m = (struct message){.data = (const void *)"g",
                          .size = 1,
                          .seq = seq,
                          .flags = flags,
                          .index = used++ % MOST};
    if (dispatch_enter(&flow, &d) == HANDED_OVER)
        cr_assert_eq(dispatch_take(&flow, 0, &d), 0);
    cr_assert_eq(d.message->seq, seq);
    cr_assert_eq(d.unfit, d.lease ? REASON_NONE : REASON_GROUP_CLOSED);
    return d;
}

static struct delivery enter(uint64_t seq)
{
    return enter_group("g", seq);
}

static bool group_refused(const char *key, uint64_t seq)
{
    struct delivery d = enter_group(key, seq);

    if (d.lease)
        dispatch_done(&flow, d.lease);
    return d.unfit;
}

static bool refused(uint64_t seq)
{
    return group_refused("g", seq);
}

/* Return the keys of the groups that are still closing, joined. */
static const char *closing_keys(void)
{
    static char text[64];
    size_t count, n = 0;
    struct closing_key *keys = dispatch_closing(&flow, &count);

    for (size_t i = 0; i < count; i++) {
        memcpy(text + n, keys[i].at, keys[i].size);
        n += keys[i].size;
    }
    text[n] = '\0';
    free(keys);
    return text;
}

static bool closing(void)
{
    return closing_keys()[0] != '\0';
}

/* Close a group while one message runs, and let some come until its end. */
static void closed(void)
{
    struct delivery d = enter(99);

    cr_assert_eq(dispatch_shut(&flow, "g", 1, 0), 0);
    next = 110;
    cr_assert(closing());
    dispatch_done(&flow, d.lease);
    cr_assert_not(closing());
}

Test(group_close, what_came_until_the_last_one_ended_is_refused_in_its_turn)
{
    closed();
    cr_assert(refused(100));
    cr_assert_not(refused(110));
    cr_assert(refused(109));
    spooled = false;
    cr_assert(refused(105));
    cr_assert_not(dispatch_closes(&flow), "the close is not forgotten");
}

Test(group_close, without_a_spool_nothing_is_kept_of_one_that_is_over)
{
    spooled = false;
    atomic_store(&set.spool, 0);
    closed();
    cr_assert_not(dispatch_closes(&flow));
    cr_assert_not(refused(110));
}

Test(group_close, one_that_is_opened_takes_what_waits_to_be_refused)
{
    cr_assert_eq(dispatch_reopen(&flow, "g", 1), -ENOENT);
    closed();
    cr_assert_eq(dispatch_reopen(&flow, "g", 1), 0);
    cr_assert_not(refused(105));
    cr_assert_eq(dispatch_reopen(&flow, "g", 1), -ENOENT);
}

Test(group_close, closed_twice_it_waits_for_the_last_one_of_both)
{
    cr_assert_eq(dispatch_shut(&flow, "g", 1, 4), -ENOENT,
                 "closed for what was lent already");
    cr_assert_eq(dispatch_shut(&flow, "g", 1, 5), 0);
    cr_assert_eq(dispatch_shut(&flow, "g", 1, 7), 0);
    cr_assert_eq(dispatch_shut(&flow, "g", 1, 6), 0);
    next = 110;
    lent_to = 6;
    cr_assert_not(refused(50));
    cr_assert(refused(105));
    cr_assert(closing(), "over, but one of it is to come");
    lent_to = 7;
    cr_assert_not(refused(51));
    cr_assert_not(closing());
}

/* The group waits for its letter, whenever that is sent again. */
Test(group_close, a_letter_is_not_refused)
{
    struct delivery d = enter(99);

    cr_assert_eq(dispatch_shut(&flow, "g", 1, 5), 0);
    next = 110;
    dispatch_done(&flow, d.lease);
    flags = MESSAGE_FRONT;
    cr_assert_not(refused(105), "refused while the group closes");
    flags = 0;
    cr_assert(refused(106));
    lent_to = 5;
    cr_assert_not(refused(110));
    cr_assert_not(closing());
    cr_assert(refused(107));
    flags = MESSAGE_FRONT;
    cr_assert_not(refused(108), "refused by the time at which it came");
}

/* The last message was cancelled in the source: no lease has ended since. */
Test(group_close, one_whose_end_nobody_saw_is_closed_anew)
{
    cr_assert_eq(dispatch_shut(&flow, "g", 1, 5), 0);
    lent_to = 5;
    next = 120;
    cr_assert_eq(dispatch_shut(&flow, "g", 1, 5), -ENOENT);
    cr_assert_eq(dispatch_shut(&flow, "g", 1, 7), 0);
    cr_assert(refused(110));
    cr_assert(refused(125));
    cr_assert(closing());
}

Test(group_close, a_group_that_is_closed_again_refuses_in_both_times)
{
    struct delivery d;

    closed();
    next = 120;
    d = enter(115);
    cr_assert_eq(dispatch_shut(&flow, "g", 1, 0), 0);
    next = 130;
    cr_assert(closing());
    cr_assert(refused(105));
    cr_assert(refused(125));
    dispatch_done(&flow, d.lease);
    cr_assert_not(closing());
    cr_assert(refused(105));
    cr_assert_not(refused(115));
    cr_assert(refused(125));
    cr_assert_not(refused(130));
    cr_assert_eq(dispatch_reopen(&flow, "g", 1), 0);
    cr_assert_not(refused(105));
    cr_assert_not(refused(125));
    cr_assert_not(dispatch_closes(&flow));
}

Test(group_close, only_the_group_of_that_key_is_closed_or_opened)
{
    cr_assert_str_eq(closing_keys(), "");
    cr_assert_eq(dispatch_shut(&flow, "b", 1, 5), 0);
    cr_assert_eq(dispatch_shut(&flow, "a", 1, 5), 0);
    cr_assert_eq(dispatch_shut(&flow, "bb", 2, 5), 0);
    cr_assert_str_eq(closing_keys(), "bbab");
    cr_assert_not(group_refused("b", 99));
    cr_assert(group_refused("b", 100));
    cr_assert(group_refused("b", UINT64_MAX));
    cr_assert_not(group_refused("bbb", 100));
    cr_assert_eq(dispatch_reopen(&flow, "b", 1), 0);
    cr_assert_str_eq(closing_keys(), "bba");
    cr_assert_not(group_refused("b", 100));
    cr_assert(group_refused("a", 100));
    cr_assert(group_refused("bb", 100));
}

/* A list of many closes, of which half have ended, against a table. */
Test(group_close, many_are_told_apart)
{
    enum { MANY = 500 };
    char key[16];

    for (unsigned i = 0; i < MANY; i++) {
        size_t size = (size_t)sprintf(key, "k%u", i * 7919 % MANY);

        next = 100 + i;
        cr_assert_eq(dispatch_shut(&flow, key, size, i % 2 ? 5 : 7), 0);
    }
    lent_to = 5;
    for (unsigned i = 0; i < MANY; i++) {
        sprintf(key, "k%u", i * 7919 % MANY);
        next = 1000 + i;
        cr_assert_not(group_refused(key, 99 + i));
        cr_assert(group_refused(key, 100 + i),
                  "one from before the close is accepted");
    }
    for (unsigned i = 0; i < MANY; i++) {
        sprintf(key, "k%u", i * 7919 % MANY);
        cr_assert_not(group_refused(key, 99 + i));
        cr_assert(group_refused(key, 999 + i));
        cr_assert_eq(group_refused(key, 1000 + i), !(i % 2));
    }
    spooled = false;
    for (unsigned i = 0; i < MANY; i++) {
        sprintf(key, "k%u", i * 7919 % MANY);
        (void)group_refused(key, 1000 + i);
    }
    cr_assert_not(dispatch_closes(&flow));
}
