/* test_suspects.c - which suspect waits for its neighbours, and whether that
 * was said; time is the test's */
#include <criterion/criterion.h>
#include <string.h>

#include "common/base/log.h"
#include "tests/unit/flow/virtual_clock.h"
#include "worker/source/amqp/amqp_inner.h"

static struct settings set = {.plugin = "p"};
static struct broker_operand operand = {.shown = "amqp://h/v/q"};
static struct source_amqp q;
static struct amqp_message first, second, runs;

static void setup(void)
{
    log_setup(LOG_ERROR + 1, LOG_TEXT);
    set.max_crashes = 2;
    q = (struct source_amqp){.set = &set, .operand = &operand};
    pthread_mutex_init(&q.mtx, NULL);
    TAILQ_INIT(&q.arrived);
    TAILQ_INIT(&q.due);
    TAILQ_INIT(&q.held);
    TAILQ_INIT(&q.put_off);
    TAILQ_INIT(&q.lent);
    runs = (struct amqp_message){.at = AMQP_LENT};
    TAILQ_INSERT_TAIL(&q.lent, &runs, link);
    q.lent_count = 1;
}

TestSuite(suspects, .init = setup);

/* arrives - a message that a worker died of */
static void arrives(struct amqp_message *m, uint8_t number)
{
    *m = (struct amqp_message){.m.crashes = 1, .id.bytes = {number}};
    TAILQ_INSERT_TAIL(&q.arrived, m, link);
    amqp_suspect_count(&q, m, true);
}

static void leaves(struct amqp_message *m)
{
    TAILQ_REMOVE(&q.arrived, m, link);
    amqp_suspect_count(&q, m, false);
}

static void pass(uint64_t ns)
{
    virtual_ns += ns;
}

Test(suspects, one_that_waits_for_a_second_is_said_to_once)
{
    cr_assert_eq(amqp_suspect_look(&q), UINT64_MAX, "nothing is looked for");
    arrives(&first, 1);
    cr_assert_eq(amqp_suspect_look(&q), NS_PER_S);
    cr_assert_not(q.stuck_said);
    pass(NS_PER_S);
    (void)amqp_suspect_look(&q);
    cr_assert(q.stuck_said);
    leaves(&first);
    cr_assert_eq(amqp_suspect_look(&q), UINT64_MAX);
}

/* The first one runs, and the second is next, between two looks. Fails where
 * what was said of the one counts for the other. */
Test(suspects, the_next_one_that_waits_is_said_to_as_well)
{
    arrives(&first, 1);
    (void)amqp_suspect_look(&q);
    pass(NS_PER_S);
    (void)amqp_suspect_look(&q);
    cr_assert(q.stuck_said);
    arrives(&second, 2);
    leaves(&first);
    (void)amqp_suspect_look(&q);
    cr_assert_not(q.stuck_said, "it has waited for no time yet");
    pass(NS_PER_S);
    (void)amqp_suspect_look(&q);
    cr_assert(q.stuck_said);
}

/* ---- what is held until a time ---- */

static void held(struct amqp_message *m, uint64_t due_ns, uint32_t priority)
{
    *m = (struct amqp_message){.due_ns = due_ns, .m.priority = priority};
    amqp_hold_locked(&q, m);
}

Test(suspects, those_for_one_time_are_held_by_priority_then_as_they_came)
{
    struct amqp_message late, a, high, b, early;
    const struct amqp_message *const order[] = {&early, &high, &a, &b, &late};
    size_t n = 0;

    held(&late, 2, 9);
    held(&a, 1, 4);
    held(&high, 1, 5);
    held(&b, 1, 4);
    held(&early, 0, 0);
    for (const struct amqp_message *m = TAILQ_FIRST(&q.held); m;
         m = TAILQ_NEXT(m, link))
        cr_assert_eq(m, order[n++]);
    cr_assert_eq(n, 5);
}
