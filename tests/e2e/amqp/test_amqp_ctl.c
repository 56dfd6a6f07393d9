/* test_amqp_ctl.c - mqctl on the worker of a queue on a broker */
#define AMQP_BROKER 1
#define AMQP_SHARED
#include "tests/e2e/amqp/amqp_fixture.h"

TestSuite(amqp_ctl, .init = amqp_init, .fini = amqp_fini);

#define ID "01JD3Z6Q9V0X8N5T2K7B4M1C3F"
#define OP amqp_operand(amqp_queue, 1)
#define CTL(verb, ...) \
    harness_run("mqctl", verb, "--state-dir", harness_state_dir(), __VA_ARGS__)

Test(amqp_ctl, its_worker_is_seen_and_steered_by_the_operand)
{
    struct harness_process *w = amqp_worker("--", harness_handler("record"));
    struct harness_result r = CTL("status", OP, "--json");
    char up[100];

    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "\"engine\":\"amqp\""), "%s", r.out);
    cr_assert_eq(CTL("pause", OP).status, 0);
    amqp_send("x");
    cr_assert_not_null(strstr(CTL("status", OP).out, "paused"));
    cr_assert_eq(CTL("set", OP, "max-concurrency=3").status, 0);
    cr_assert_eq(harness_lines("runs"), 0);
    cr_assert_eq(CTL("resume", OP).status, 0);
    harness_until_lines("runs", 1, 20000);
    r = CTL("status", "--json");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, amqp_queue), "it is found: %s", r.out);
    cr_assert_null(strstr(r.out, "\"/amqp\""), "%s", r.out);
    r = harness_run("mqctl", "metrics", "--state-dir", harness_state_dir());
    cr_assert_eq(r.status, 0, "%s", r.err);
    snprintf(up, sizeof up, "/%s\",engine=\"amqp\"} 1\n", amqp_queue);
    cr_assert_not_null(strstr(strstr(r.out, "\nmqworker_up{"), up), "%s",
                       r.out);
    r = CTL("top", "--rounds", "1", OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(CTL("stop", "--wait", OP).status, 0);
    cr_assert_eq(harness_wait(w, 20000), 0);
    r = CTL("status", OP);
    cr_assert_eq(r.status, 69, "%s", r.err);
}

Test(amqp_ctl, what_cannot_be_is_refused_in_words)
{
    static const char *const all[][3] = {{"list", "mqdlq list"},
                                         {"create", "mqsend --create"},
                                         {"remove", "delete_queue"},
                                         {"groups", "doctor --partitions N"},
                                         {"explain", "mqdlq show", ID},
                                         {"cancel", "mqdlq discard", ID},
                                         {"run-now", "its time has come", ID}};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const char *id = all[i][2];
        struct harness_result r = harness_run("mqctl", all[i][0], OP, id);

        cr_assert_eq(r.status, 64, "%s: %s", all[i][0], r.err);
        cr_assert_not_null(strstr(r.err, "cannot be used with amqp://"), "%s",
                           r.err);
        cr_assert_not_null(strstr(r.err, all[i][1]), "%s", r.err);
    }
    cr_assert_eq(CTL("group", OP, "key", "close").status, 64);
}

Test(amqp_ctl, a_setting_that_means_nothing_on_a_broker_is_refused)
{
    static const char *const all[] = {"max-waiting=1", "max-parked=1",
                                      "spool=5",       "keep-dead=1h",
                                      "max-dead=5",    "group-quantum=5"};
    struct harness_process *w = amqp_worker("--", "true");

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct harness_result r = CTL("set", OP, all[i]);

        cr_assert_eq(r.status, 64, "%s: %d: %s", all[i], r.status, r.err);
        cr_assert_not_null(strstr(r.err, " cannot be used with amqp://"), "%s",
                           r.err);
        cr_assert_null(strstr(r.err, ": --"), "it is no flag here: %s", r.err);
    }
    cr_assert_eq(CTL("set", OP, "timeout=5s").status, 0);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

/* A host with a typing error would be in each list for ever. */
Test(amqp_ctl, what_was_kept_of_a_queue_is_forgotten)
{
    struct harness_process *w = amqp_worker("--", "true");

    cr_assert_eq(CTL("forget", OP).status, 69, "a worker runs");
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_not_null(strstr(CTL("status", "--json").out, amqp_queue));
    cr_assert_eq(CTL("forget", OP).status, 0);
    cr_assert_null(strstr(CTL("status", "--json").out, amqp_queue));
    cr_assert_eq(CTL("forget", OP).status, 66);
}
