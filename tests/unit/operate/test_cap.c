/* test_cap.c - the cap is raised while slots are added beside the loop */
#include "tests/fixtures/cap_fixture.h"

#include <errno.h>
#include <poll.h>

enum { CAP = 2, MORE = 20, MOST = 40, WAIT_MS = 60000 };

static unsigned over;

static void on_over(void *arg)
{
    cr_assert_eq(arg, &cap);
    over++;
}

static void setup(void)
{
    mq_files("/tmp/mqw-cap-XXXXXX");
    cap_open(CAP, MOST, 256, on_over);
}

TestSuite(cap, .init = setup, .fini = mq_parts_close);

/* Run timers, as the loop would, until the job has added the slots. */
static void job_over(void)
{
    struct pollfd fd = {.fd = timers_fd(flow.timers), .events = POLLIN};
    unsigned was = over;

    while (over == was) {
        cr_assert_eq(poll(&fd, 1, WAIT_MS), 1);
        timers_run(flow.timers);
    }
}

static unsigned cap_now(void)
{
    return atomic_load(&flow.gate.cap);
}

Test(cap, it_is_lowered_at_once)
{
    cr_assert_eq(cap_set(&cap, 1, NULL), 0);
    cr_assert_eq(cap_now(), 1);
    cr_assert_eq(set.concurrency, 1);
    cr_assert_eq(cap_set(&cap, CAP, NULL), 0, "the slots are gone");
    cr_assert_eq(cap_now(), CAP);
}

static unsigned told; /* the cap at the last call; 0: none */

static void on_tuned(struct source *s)
{
    cr_assert_eq(s, flow.source);
    told = (unsigned)set.concurrency;
}

/* Otherwise a broker's source fetches as before until something else wakes it,
 * up to 15 s. */
Test(cap, the_source_hears_of_each_change_once_it_is_made)
{
    static struct source_ops with;

    with = *flow.source->ops;
    with.tuned = on_tuned;
    flow.source->ops = &with;
    cr_assert_eq(cap_set(&cap, 1, NULL), 0);
    cr_assert_eq(told, 1);
    cr_assert_eq(cap_set(&cap, MORE, NULL), -EINPROGRESS);
    while (cap_now() != MORE)
        job_over();
    cr_assert_eq(told, MORE);
}

Test(cap, slots_are_added_by_a_job_and_the_cap_follows)
{
    cr_assert_eq(cap_set(&cap, MORE, NULL), -EINPROGRESS);
    cr_assert_eq(cap_now(), CAP);
    job_over();
    cr_assert_eq(cap_now(), MORE);
    cr_assert_geq(custody_slots(mq.custody), slots_for(&set, MORE));
    cr_assert(!atomic_load(&flow.growing));
}

Test(cap, the_last_order_counts)
{
    cr_assert_eq(cap_set(&cap, MORE, NULL), -EINPROGRESS);
    cr_assert_eq(cap_set(&cap, MORE + 1, NULL), -EINPROGRESS);
    while (cap_now() != MORE + 1)
        job_over();
    cr_assert_eq(cap_set(&cap, MORE, NULL), 0);
    cr_assert_eq(cap_now(), MORE);
}

Test(cap, one_more_is_one_more_than_what_is_on_its_way)
{
    cap_change(&cap, +1);
    cap_change(&cap, +1);
    while (cap_now() != CAP + 2)
        job_over();
}

Test(cap, who_waits_asks_again_and_hears_that_there_is_no_room)
{
    struct problem p = {0};

    cr_assert_eq(cap_ready(&cap, MOST + 1, &p), -EINPROGRESS);
    job_over();
    cr_assert_eq(cap_ready(&cap, MOST + 1, &p), -ENOSPC);
    cr_assert_not_null(strstr(p.text, "slots"), "%s", p.text);
    cr_assert_eq(cap_now(), CAP);
    cr_assert_eq(cap_ready(&cap, MOST, &p), -EINPROGRESS, "fewer slots do");
    job_over();
    cr_assert_eq(cap_ready(&cap, MOST, &p), 0);
    cr_assert_eq(cap_now(), CAP, "the cap has changed, but nobody set it");
}
