/* test_receive_window.c - many deliveries open in one work item: a coprocess of
 * the test, a source in memory */
#include "tests/fixtures/flow_fixture.h"

enum { WINDOW = 4 };

static struct work_item *item;
static struct child { /* as a long-lived handler: what it has, in order */
    struct delivery *open[WINDOW];
    unsigned count, most, sent, woken;
    int cannot; /* result of ready; 0: it starts */
    void (*on_next)(void);
    void (*on_look)(void); /* called at each wait for an answer */
} child;
static const enum mqw_verdict *answers; /* verdicts to give; NULL: all done */

static struct coprocess *on_get(struct handler *h)
{
    (void)h;
    return (struct coprocess *)(void *)&child;
}

static void on_put(struct handler *h, struct coprocess *c)
{
    (void)h;
    cr_assert_eq((void *)c, (void *)&child);
    cr_assert_eq(child.count, 0, "deliveries are open");
}

static int on_ready(struct coprocess *c, struct outcome *out)
{
    (void)c;
    cr_assert_eq(child.count, 0, "deliveries are open");
    snprintf(out->error, sizeof out->error, "cannot start");
    return child.cannot;
}

static unsigned on_room(const struct coprocess *c)
{
    (void)c;
    return WINDOW - child.count;
}

static void on_send(struct coprocess *c, struct delivery *d)
{
    (void)c;
    cr_assert_lt(child.count, WINDOW);
    child.open[child.count++] = d;
    child.sent++;
    if (child.most < child.count)
        child.most = child.count;
}

/* Take delivery i out of those that are open. */
static struct delivery *take_out(unsigned i)
{
    struct delivery *d = child.open[i];

    child.count--;
    memmove(&child.open[i], &child.open[i + 1],
            (child.count - i) * sizeof child.open[0]);
    return d;
}

/* Answer the newest delivery first, so that order is of no help. */
static struct delivery *on_next(struct coprocess *c, struct outcome *out)
{
    (void)c;
    cr_assert_gt(child.count, 0, "nothing is open");
    if (child.on_look)
        child.on_look();
    if (child.woken) {
        child.woken--;
        return NULL;
    }
    if (child.on_next) {
        void (*then)(void) = child.on_next;

        child.on_next = NULL;
        then();
        return NULL;
    }
    *out = (struct outcome){.kind = OUTCOME_VERDICT, .ran = true};
    if (answers)
        out->verdict = *answers++;
    return take_out(child.count - 1);
}

static void on_wake(struct coprocess *c)
{
    (void)c;
    child.woken++;
}

static const struct coprocess_ops coprocesses = {.get = on_get,
                                                 .put = on_put,
                                                 .ready = on_ready,
                                                 .room = on_room,
                                                 .send = on_send,
                                                 .next = on_next,
                                                 .wake = on_wake};

static void setup(void)
{
    flow_settings();
    set.window = WINDOW;
    set.breaker_failures = 100;
    set.lookahead = 100;
    flow_open();
    flow_handler.coprocesses = &coprocesses;
    item = flow_item();
}

static void teardown(void)
{
    flow_close();
}

TestSuite(receive_window, .init = setup, .fini = teardown);

static enum why batch(void)
{
    return receive_window_batch(item);
}

Test(receive_window, as_many_are_open_as_the_window_has_room_for)
{
    for (unsigned i = 0; i < 3 * WINDOW; i++)
        fake_give("a");
    cr_assert_eq(batch(), LEFT_EMPTY);
    cr_assert_eq(child.most, WINDOW);
    cr_assert_eq(child.sent, 3 * WINDOW);
    cr_assert_eq(fake_in(FAKE_GONE), 3 * WINDOW);
    cr_assert_eq(item->open, 0);
}

Test(receive_window, each_gets_its_own_verdict)
{
    static const enum mqw_verdict mixed[] = {MQW_DONE, MQW_DEAD, MQW_RETRY,
                                             MQW_DISCARD};
    struct fake_message *x[4];

    for (unsigned i = 0; i < 4; i++)
        x[i] = fake_give("a");
    answers = mixed;
    cr_assert_eq(batch(), LEFT_EMPTY);
    cr_assert_eq(x[3]->last.kind, SETTLE_DONE);
    cr_assert_eq(x[2]->at, FAKE_DEAD);
    cr_assert_eq(x[1]->at, FAKE_WAITS);
    cr_assert_eq(x[0]->last.kind, SETTLE_DISCARD);
}

static struct fake_message *late;

static void one_comes(void)
{
    cr_assert_eq(atomic_load(&flow.items.wants), 1, "no item wants more");
    late = fake_give("late");
}

Test(receive_window, one_that_comes_while_others_are_open_is_sent)
{
    fake_give("a");
    child.on_next = one_comes;
    cr_assert_eq(batch(), LEFT_EMPTY);
    cr_assert_eq(child.most, 2);
    cr_assert_eq(late->at, FAKE_GONE);
    cr_assert_eq(atomic_load(&flow.items.wants), 0);
}

static void hold(void)
{
    gate_hold(&flow.gate, HOLD_PAUSE);
    fake_give("not now");
}

Test(receive_window, what_is_open_at_a_pause_is_finished_and_no_more_is_taken)
{
    fake_give("a");
    fake_give("b");
    child.on_next = hold;
    cr_assert_eq(batch(), LEFT_OVER_CAP);
    cr_assert_eq(fake_in(FAKE_GONE), 2);
    cr_assert_eq(fake_in(FAKE_FRESH), 1);
    cr_assert_eq(gate_running(&flow.gate), 0,
                 "the item is still counted as running");
}

static void breaker_opens(void)
{
    gate_breaker(&flow.gate, BREAKER_NOT_STARTED, "no such command");
    fake_give("c");
}

Test(receive_window, a_breaker_that_opens_ends_the_filling)
{
    fake_give("a");
    fake_give("b");
    answers = (const enum mqw_verdict[]){MQW_RETRY, MQW_RETRY};
    child.on_next = breaker_opens;
    cr_assert_eq(batch(), LEFT_OVER_CAP);
    cr_assert_eq(fake_in(FAKE_FRESH), 1);
}

Test(receive_window, a_probe_is_one_message)
{
    for (unsigned i = 0; i < WINDOW; i++)
        fake_give("a");
    gate_leave(&flow.gate);
    for (unsigned i = 0; i < set.breaker_failures; i++)
        gate_breaker(&flow.gate, BREAKER_BAD, "exit 1");
    flow_pass(set.breaker_pause_ns + NS_PER_S);
    cr_assert(gate_enter(&flow.gate));
    answers = (const enum mqw_verdict[]){MQW_RETRY};
    cr_assert_eq(batch(), LEFT_OVER_CAP);
    cr_assert_eq(child.most, 1);
    cr_assert_eq(child.sent, 1);
    cr_assert_eq(gate_why(&flow.gate), WHY_BREAKER);
}

static void time_passes(void)
{
    atomic_fetch_add(&virtual_ns, set.batch_limit_ns);
    fake_give("late");
}

static const struct fake_message *suspect;

static void alone_if_open(void)
{
    for (unsigned i = 0; i < child.count; i++)
        if (child.open[i]->message == &suspect->m)
            cr_assert_eq(child.count, 1);
}

Test(receive_window, a_suspect_runs_alone_and_then_all_may)
{
    struct fake_message *x = fake_store("a", 0);

    suspect = x;
    x->m.crashes = (uint32_t)set.max_crashes;
    child.on_look = alone_if_open;
    for (unsigned i = 0; i < WINDOW; i++)
        fake_give("b");
    cr_assert_eq(batch(), LEFT_EMPTY);
    cr_assert_eq(child.sent, WINDOW + 1);
    cr_assert_eq(child.most, WINDOW);
}

Test(receive_window, a_batch_is_over_when_its_time_is)
{
    fake_give("a");
    child.on_next = time_passes;
    cr_assert_eq(batch(), LEFT_TIME);
    cr_assert_eq(fake_in(FAKE_GONE), 2,
                 "the one that came late was not taken, though one was open");
    fake_give("next");
    cr_assert_eq(batch(), LEFT_EMPTY);
}

Test(receive_window, what_needs_no_handler_keeps_no_answer_waiting)
{
    struct fake_message *x;

    fake_give("a");
    x = fake_give("MQW/1\nexpires: 1000000000000000000\n\nold");
    fake_give("b");
    cr_assert_eq(batch(), LEFT_EMPTY);
    cr_assert_eq(x->at, FAKE_DEAD);
    cr_assert_eq(child.sent, 2);
    cr_assert_eq(child.most, 2, "b was not sent while a was open");
    cr_assert_eq(child.woken, 0, "a wake was not heard");
}

static void child_ends(void)
{
    struct outcome *out = &item->out;

    while (child.count) {
        struct delivery *d = take_out(child.count - 1);
        struct fake_message *x = fake_of(d->message);

        *out = (struct outcome){.kind = OUTCOME_UNSENT};
        settle_outcome(&flow, d, out);
        cr_assert(!x->running);
    }
}

Test(receive_window, what_a_child_never_had_goes_to_the_next_in_order)
{
    struct fake_message *x[3];

    for (unsigned i = 0; i < 3; i++)
        x[i] = fake_give("a");
    for (unsigned i = 0; i < 3; i++) {
        static struct delivery d[3];

        item->d = &d[i];
        d[i].count = item->count;
        cr_assert_eq(take_next(item), TAKEN);
        item_delivery_begin(item, &d[i]);
        on_send(NULL, &d[i]);
    }
    child_ends();
    for (unsigned i = 0; i < 3; i++) {
        cr_assert_eq(take_next(item), TAKEN);
        cr_assert_eq(item->d->message, &x[i]->m, "%u", i);
    }
}

Test(receive_window, a_child_that_cannot_start_opens_the_breaker)
{
    fake_give("a");
    child.cannot = -ENOENT;
    cr_assert_eq(batch(), LEFT_OVER_CAP);
    cr_assert_eq(gate_why(&flow.gate), WHY_BREAKER);
    cr_assert_eq(fake_in(FAKE_FRESH), 1, "a message was taken for it");
}

Test(receive_window, a_source_that_settles_late_keeps_no_window_full)
{
    for (unsigned i = 0; i < 2 * WINDOW; i++)
        fake_give("a");
    late_source();
    fake.late = true;
    cr_assert_eq(batch(), LEFT_EMPTY);
    cr_assert_eq(fake_in(FAKE_LATE), 2 * WINDOW);
    cr_assert_eq(item->open, 0);
    for (unsigned i = 0; i < fake.count; i++)
        fake_answer(&fake.all[i], 0);
    cr_assert_eq(flow_numbers().done, 2 * WINDOW);
}

Test(receive_window, trouble_with_taking_is_told_and_the_open_ones_end)
{
    fake_give("a");
    fake.take_fails = -EIO;
    cr_assert_eq(batch(), LEFT_EMPTY);
    cr_assert_eq(gate_why(&flow.gate), WHY_QUEUE);
}
