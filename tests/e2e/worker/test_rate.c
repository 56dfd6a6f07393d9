/* test_rate.c - mqworker: --rate with the real worker; retries count as well */
#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(rate, .init = harness_init, .fini = harness_fini);

#define NOTE "read b; echo \"$b\" >>ran; [ \"$b\" != fail ]"

static size_t ran(void)
{
    return harness_exists("ran") ? harness_lines_with("ran", "") : 0;
}

static void send_some(const char *q, int n, const char *body)
{
    for (int i = 0; i < n; i++)
        cr_assert_eq(harness_run("mqsend", "--wait=20s", q, body).status, 0);
}

Test(rate, the_burst_then_nothing_until_it_is_raised)
{
    const char *q = harness_queue(8, 256);
    struct harness_process *w =
        ctl_worker(q, "-c", "4", "--rate", "1/h,3", "--", "sh", "-c", NOTE);
    struct harness_result r;

    send_some(q, 5, "x\n");
    harness_until(ran() == 3, SOON_MS);
    harness_wait_log(w, "event=rate_reached", SOON_MS);
    harness_until(ctl_is(q, "state", "at its --rate"), SOON_MS);
    r = ctl("status", q);
    cr_assert_not_null(strstr(r.out, "--rate is reached; mqctl set"), "%s",
                       r.out);
    cr_assert_not_null(strstr(r.out, "1/h,3"), "%s", r.out);
    cr_assert_eq(ran(), 3);
    r = ctl("doctor", q);
    cr_assert_not_null(strstr(r.out, "--rate 1/h,3 is reached"), "%s", r.out);
    cr_assert_not_null(strstr(r.out, "rate=off"), "%s", r.out);
    cr_assert_null(strstr(r.out, "check its log"), "%s", r.out);
    cr_assert_eq(ctl("set", q, "rate=fast").status, 64);
    r = ctl("set", q, "rate=off");
    cr_assert_not_null(strstr(r.out, "rate 1/h,3 -> off"), "%s", r.out);
    harness_until(ran() == 5, SOON_MS);
    cr_assert_eq(harness_log_count(w, "event=rate_reached"), 1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* The doctor must advise rate=off: more handlers would not make room. */
Test(rate, a_queue_that_is_full_because_of_it_has_a_hint)
{
    const char *q = harness_queue(8, 256);
    struct harness_process *w =
        ctl_worker(q, "--rate", "1/h,1", "--", "sh", "-c", NOTE);
    char want[600];

    send_some(q, 1, "x\n");
    harness_until(ran() == 1, SOON_MS);
    /* mqworker may hold a message for each thread that waits for the rate. */
    for (int sent = 0; harness_queue_length(q) < 8; sent++) {
        cr_assert_lt(sent, 2 * 8, "the rate holds nothing back");
        send_some(q, 1, "x\n");
    }
    harness_until(ctl_is(q, "state", "at its --rate"), SOON_MS);
    snprintf(want, sizeof want,
             "full (8 of 8 messages), and senders are waiting\n      -> "
             "mqctl set --state-dir %s %s rate=off\n",
             harness_state_dir(), q);
    struct harness_result r = ctl("doctor", q);
    cr_assert_not_null(strstr(r.out, want), "%s", r.out);
    cr_assert_eq(ctl("set", q, "rate=off").status, 0);
    harness_until(harness_queue_length(q) == 0, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(rate, retries_count)
{
    const char *q = harness_queue(8, 256);
    struct harness_process *w =
        ctl_worker(q, "-c", "2", "--rate", "1/h,4", "--backoff", "1ms",
                   "--max-attempts", "100", "--", "sh", "-c", NOTE);

    send_some(q, 1, "fail\n");
    harness_until(ctl_is(q, "state", "at its --rate"), SOON_MS);
    harness_until(ran() == 4, SOON_MS); /* the last handler may have just
                                         * started */
    cr_assert_eq(ctl_number(q, "deliveries"), 4);
    cr_assert_eq(harness_stop(w, SOON_MS), 0, "a stop waits for the rate");
}

/* With a burst of 1, the rate holds back every message while threads come and
 * go. A message that stays held would never run. */
Test(rate, every_hold_is_lifted)
{
    const char *q = harness_queue(8, 256);
    struct harness_process *w =
        ctl_worker(q, "-c", "4", "--rate", "300/s,1", "--", "sh", "-c", NOTE);

    for (int i = 0; i < 250; i++)
        harness_send_text(q, "x");
    harness_until(ctl_number(q, "done") + ctl_number(q, "waiting") == 250,
                  SOON_MS);
    cr_assert_eq(ran(), 250);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(rate, long_lived_handlers_and_live)
{
    const char *q = harness_queue(8, 256);
    struct harness_process *w = ctl_worker(
        q, "-c", "1", "--stream", "--window", "4", "--", "sh", "-c",
        "while read w id n rest; do [ \"$w\" = MSG ] || continue; head -c "
        "\"$n\" >>ran; echo \"OK $id\"; done");

    send_some(q, 1, "warm\n");
    harness_until(ctl_number(q, "done") == 1, SOON_MS);
    cr_assert_eq(ctl("set", q, "rate=2/h,2").status, 0);
    send_some(q, 5, "x\n");
    harness_until(ctl_is(q, "state", "at its --rate"), SOON_MS);
    harness_until(ctl_number(q, "done") == 3, SOON_MS);
    cr_assert_eq(ctl_number(q, "deliveries"), 3);
    cr_assert_eq(ctl("set", q, "rate=1000/s").status, 0);
    harness_until(ctl_number(q, "done") == 6, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}
