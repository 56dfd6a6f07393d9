/* test_rate.c - --rate, in virtual time */
#include "tests/fixtures/flow_fixture.h"

#include "worker/config/rate_text.h"

/* Begin a worker with this rate. */
static void begin(const char *text)
{
    struct problem p;
    uint64_t rate;

    flow_settings();
    cr_assert_eq(rate_parse(text, &rate, &p), 0, "%s", text);
    atomic_store(&set.rate, rate);
    flow_open();
}

TestSuite(rate, .fini = flow_close);

/* Take tokens until the gate is held; return how many there were. */
static unsigned given(void)
{
    unsigned n = 0;

    if (gate_held(&flow.gate, HOLD_RATE))
        return 0;
    while (rate_take(&flow.rate))
        cr_assert_lt(n++, 100000, "it never ends");
    cr_assert(gate_held(&flow.gate, HOLD_RATE));
    return n;
}

/* Change the rate as mqctl set does. */
static void change(const char *text)
{
    struct problem p;
    uint64_t rate;

    cr_assert_eq(rate_parse(text, &rate, &p), 0);
    rate_set(&flow.rate, rate);
}

Test(rate, one_after_the_other)
{
    unsigned n;

    begin("10/s,1");
    cr_assert(attention_look(&flow.gate.attention) & ATTEND_RATE);
    n = given();
    cr_assert_eq(n, 1);
    for (int ms = 0; ms < 10000; ms++) {
        virtual_pass(flow.timers, NS_PER_MS);
        n += given();
    }
    cr_assert(n >= 100 && n <= 101, "%u in 10 s", n);
}

/* In no second are there more than the rate and the burst. */
Test(rate, never_more_than_the_rate_and_the_burst)
{
    static const char *const rates[] = {"7/s,3", "1000/s", "90/m,5", "40/s,1"};

    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        unsigned per[4000] = {0}, sum = 0, most;
        uint64_t rate;

        begin(rates[i]);
        rate = atomic_load(&set.rate);
        most = (unsigned)(NS_PER_S / rate_interval_ns(rate) + rate_burst(rate) +
                          1);
        for (int ms = 0; ms < 4000; ms++) {
            /* In the first 600 ms of each 1700, nobody takes any. */
            per[ms] = ms % 1700 > 600 ? given() : 0;
            sum += per[ms];
            if (ms >= 1000)
                sum -= per[ms - 1000];
            cr_assert_leq(sum, most, "%s: %u in the second to %d ms", rates[i],
                          sum, ms);
            virtual_pass(flow.timers, NS_PER_MS);
        }
        cr_assert_gt(sum, 0);
        if (i + 1 < sizeof rates / sizeof *rates)
            flow_close();
    }
}

Test(rate, the_whole_of_it_is_used)
{
    unsigned n = 0;

    begin("1000/s");
    for (int ms = 0; ms < 20000; ms++) {
        n += given();
        virtual_pass(flow.timers, NS_PER_MS);
    }
    cr_assert(n > 19800 && n <= 20100, "%u in 20 s", n);
}

Test(rate, what_was_no_delivery_costs_nothing)
{
    begin("1/h,1");
    for (int i = 0; i < 1000; i++) { /* the queue is empty */
        cr_assert(rate_take(&flow.rate));
        rate_untake(&flow.rate);
    }
    rate_untake(&flow.rate); /* for one that needed no token */
    cr_assert(rate_take(&flow.rate));
    cr_assert(!rate_take(&flow.rate));
    cr_assert_eq(gate_why(&flow.gate), WHY_RATE);
    rate_untake(&flow.rate);
    virtual_pass(flow.timers, NS_PER_MS);
    cr_assert(!gate_held(&flow.gate, HOLD_RATE), "held for an hour");
    cr_assert(rate_take(&flow.rate));
}

Test(rate, a_change_counts_at_once)
{
    begin("off");
    cr_assert(!(attention_look(&flow.gate.attention) & ATTEND_RATE));
    for (int i = 0; i < 1000; i++)
        cr_assert(rate_take(&flow.rate));
    change("1/h,2");
    cr_assert(attention_look(&flow.gate.attention) & ATTEND_RATE);
    cr_assert_eq(given(), 2);
    virtual_pass(flow.timers, NS_PER_S);
    cr_assert_eq(given(), 0);
    change("10/s,1"); /* the hour is not waited for */
    virtual_pass(flow.timers, NS_PER_MS);
    cr_assert_eq(given(), 0, "a change gave a spent token back");
    virtual_pass(flow.timers, 100 * NS_PER_MS);
    cr_assert_eq(given(), 1);
    change("off");
    virtual_pass(flow.timers, NS_PER_MS);
    cr_assert(!gate_held(&flow.gate, HOLD_RATE));
    for (int i = 0; i < 1000; i++)
        cr_assert(rate_take(&flow.rate));
}

Test(rate, beside_a_bound_of_deliveries_no_token_is_lost)
{
    begin("1/h,4");
    flow.run_limits.max_deliveries = 2;
    cr_assert(run_limits_take(&flow));
    cr_assert(run_limits_take(&flow));
    cr_assert(!run_limits_take(&flow));
    cr_assert(gate_held(&flow.gate, HOLD_BOUND));
    run_limits_untake(&flow);
    cr_assert(run_limits_take(&flow));
    flow.run_limits.max_deliveries = UINT64_MAX;
    cr_assert_eq(given(), 2);
}

Test(rate_text, comes_back)
{
    static const struct {
        const char *text, *same;
    } all[] = {
        {"off", "off"},
        {"5", "5/s,1"},
        {"100/s", "100/s,10"},
        {"100/s,7", "100/s,7"},
        {"90/m", "90/m,1"},
        {"1/h,1", "1/h,1"},
        {"11,1000000", "11/s,1000000"},
        {"1000000/h,3", "1000000/h,3"},
    };
    char text[RATE_TEXT];
    struct problem p;
    uint64_t rate;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cr_assert_eq(rate_parse(all[i].text, &rate, &p), 0);
        cr_assert_str_eq(rate_print(rate, text), all[i].same);
    }
    cr_assert_eq(rate_parse("3/s,2", &rate, &p), 0);
    cr_assert_eq(rate_interval_ns(rate), 333333334, "too many messages");
    cr_assert_eq(rate_burst(rate), 2);
}

Test(rate_text, others_are_none)
{
    static const char *const wrong[] = {
        "",       "0",    "0/s",     "-1",        "5/d",
        "5/",     "5/s,", "5/s,0",   "/s",        "x",
        "5/s,1x", "5 /s", "1000001", "5,1000001", "5/s/s",
        "Off",    "5,,1", "1.5/s",   "+5",        "99999999999999999999999",
    };
    struct problem p;
    uint64_t rate;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_assert_lt(rate_parse(wrong[i], &rate, &p), 0, "%s", wrong[i]);
        cr_assert_eq(p.status, 64);
    }
}
