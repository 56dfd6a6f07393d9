/* test_ack_window.c - one acknowledgement covers many messages, but no open
 * one; the broker of the test is as strict as RabbitMQ */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker/source/amqp/inbox.h"

TestSuite(ack_window);

enum { MOST = 200000 };

/* State of a channel, as a broker keeps it. */
static struct {
    bool open[MOST + 1];
    uint64_t delivered;
    size_t frames;
    char given[MOST + 1]; /* tags that the test has closed */
} broker;

static struct ack_window w;

static void begin(void)
{
    memset(&broker, 0, sizeof broker);
    w = (struct ack_window)ACK_WINDOW_NEW;
}

static void deliver(unsigned n)
{
    while (n-- > 0) {
        broker.open[++broker.delivered] = true;
        ack_window_delivered(&w, broker.delivered);
    }
}

/* Acknowledge a tag, which must be open: RabbitMQ closes the channel if it is
 * not. `all`: also each tag before it. */
static void acknowledge(uint64_t tag, bool all)
{
    broker.frames++;
    cr_assert(tag <= broker.delivered && broker.open[tag], "tag %lu",
              (unsigned long)tag);
    for (uint64_t t = all ? 1 : tag; t <= tag; t++) {
        cr_assert(!broker.open[t] || broker.given[t],
                  "%lu is lost by an acknowledgement of %lu", (unsigned long)t,
                  (unsigned long)tag);
        broker.open[t] = false;
    }
}

static void give(const uint64_t *tags, size_t n)
{
    size_t covered;

    for (size_t i = 0; i < n; i++)
        broker.given[tags[i]] = 1;
    covered = ack_window_close(&w, tags, n);
    if (covered > 0)
        acknowledge(tags[covered - 1], covered > 1);
    for (size_t i = covered; i < n; i++)
        acknowledge(tags[i], false);
    for (size_t i = 0; i < n; i++)
        cr_assert_not(broker.open[tags[i]], "%lu is not acknowledged",
                      (unsigned long)tags[i]);
}

/* Close each tag from a to b. */
static void give_range(uint64_t a, uint64_t b)
{
    static uint64_t tags[MOST];
    size_t n = 0;

    while (a <= b)
        tags[n++] = a++;
    give(tags, n);
}

Test(ack_window, those_in_order_are_one_frame)
{
    begin();
    deliver(100);
    give_range(1, 60);
    cr_assert_eq(broker.frames, 1);
    give_range(61, 100);
    cr_assert_eq(broker.frames, 2);
}

Test(ack_window, what_is_open_is_never_spoken_for)
{
    begin();
    deliver(10);
    give_range(2, 5); /* 1 is open */
    cr_assert_eq(broker.frames, 4);
    cr_assert(broker.open[1]);
    give_range(1, 1);
    give_range(7, 10);
    cr_assert(broker.open[6]);
    give_range(6, 6);
    deliver(10);
    broker.frames = 0;
    give_range(11, 20);
    cr_assert_eq(broker.frames, 1, "the gap still splits the frames");
}

Test(ack_window, a_tag_that_the_broker_has_heard_of_speaks_for_none)
{
    begin();
    deliver(4);
    give_range(3, 4);
    give_range(1, 2); /* up to 2: 4 is acknowledged already */
    cr_assert_eq(broker.frames, 3);
}

Test(ack_window, one_that_is_far_behind_makes_each_stand_for_itself)
{
    begin();
    deliver(ACK_WINDOW + 100);
    give_range(2, ACK_WINDOW + 100);
    cr_assert(broker.open[1]);
    deliver(100);
    give_range(ACK_WINDOW + 101, ACK_WINDOW + 150);
    cr_assert(broker.open[1]);
    give_range(1, 1);
    broker.frames = 0;
    give_range(ACK_WINDOW + 151, ACK_WINDOW + 200);
    cr_assert_eq(broker.frames, 1, "tag 1 still splits the frames");
}

Test(ack_window, any_order_acknowledges_each_and_no_other)
{
    uint64_t open[600], tags[600];
    unsigned seed = (unsigned)time(NULL);
    size_t n = 0;

    fprintf(stderr, "seed %u\n", seed);
    srand(seed);
    begin();
    while (broker.delivered < MOST - 1000) {
        size_t more = (size_t)(rand() % 100), k = 0, left = 0;

        for (size_t i = 0; i < more && n < 600; i++) {
            deliver(1);
            open[n++] = broker.delivered;
        }
        for (size_t i = 0; i < n; i++) /* the first one is slow */
            if (rand() % (i == 0 ? 400 : 3) == 0)
                tags[k++] = open[i];
            else
                open[left++] = open[i];
        n = left;
        if (k > 0)
            give(tags, k);
    }
    for (uint64_t t = 1; t <= broker.delivered; t++)
        cr_assert_eq(broker.open[t], !broker.given[t]);
}
