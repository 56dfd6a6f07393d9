/* test_held.c - what is held until a time */
#include <criterion/criterion.h>

#include "common/base/log.h"
#include "tests/unit/flow/virtual_clock.h"
#include "worker/source/amqp/amqp_inner.h"

static struct settings set = {.plugin = "p"};
static struct broker_operand operand = {.shown = "amqp://h/v/q"};
static struct source_amqp q;

static void setup(void)
{
    log_setup(LOG_ERROR + 1, LOG_TEXT);
    q = (struct source_amqp){.set = &set, .operand = &operand};
    pthread_mutex_init(&q.mtx, NULL);
    TAILQ_INIT(&q.arrived);
    TAILQ_INIT(&q.due);
    TAILQ_INIT(&q.held);
    TAILQ_INIT(&q.put_off);
    TAILQ_INIT(&q.lent);
}

TestSuite(held_until, .init = setup);

static void held(struct amqp_message *m, uint64_t due_ns, uint32_t priority)
{
    *m = (struct amqp_message){.due_ns = due_ns, .m.priority = priority};
    amqp_hold_locked(&q, m);
}

Test(held_until, those_for_one_time_are_held_by_priority_then_as_they_came)
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
