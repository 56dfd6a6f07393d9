/* test_dead_limit.c - mqworker: --keep-dead and --max-dead remove the oldest
 * dead letters only */
#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(dead_limit, .init = harness_init, .fini = harness_fini);

#define dlq(verb, ...)                                               \
    harness_run("mqdlq", (verb), "--state-dir", harness_state_dir(), \
                __VA_ARGS__)

/* Let `n` more messages die, so that `dead` have died in all. */
static void die(const char *q, int n, long dead)
{
    for (int i = 0; i < n; i++)
        harness_send_text(q, "x");
    harness_until(ctl_number(q, "died") == dead, SOON_MS);
}

/* Return true if the letter exists. */
static bool letter(const char *q, const char *number)
{
    return dlq("show", q, number).status == 0;
}

Test(dead_limit, max_dead_keeps_the_newest)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "-c", "1", "--max-attempts", "1",
                                           "--max-dead", "3", "--", "false");
    const char *line;

    die(q, 5, 5);
    harness_until(ctl_number(q, "dead") == 3, SOON_MS);
    harness_until(ctl_number(q, "removed") == 2, SOON_MS);
    cr_assert(!letter(q, "1") && !letter(q, "2") && letter(q, "3"));
    line = harness_wait_log(w, "event=letters_removed", SOON_MS);
    cr_assert_not_null(strstr(line, " too_old=0 first=1 last="), "%s", line);
    cr_assert_not_null(strstr(ctl_out("status", q), "2 dead letters, by"));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(dead_limit, is_off_until_it_is_set_and_live_then)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--max-attempts", "1", "--", "false");

    die(q, 4, 4);
    cr_assert_eq(ctl_number(q, "dead"), 4);
    ctl_out("set", q, "max-dead=1");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    cr_assert(letter(q, "4"));
    ctl_out("set", q, "max-dead=0");
    ctl_out("set", q, "keep-dead=1ms");
    harness_until(ctl_number(q, "dead") == 0, SOON_MS);
    harness_until(ctl_number(q, "removed") == 4, SOON_MS);
    cr_assert_not_null(
        strstr(harness_wait_log(w, " first=4 ", SOON_MS), " too_old=1 "));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* No message follows: the worker looks again by itself at the right time. */
Test(dead_limit, keep_dead_removes_each_when_its_time_is_over)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--max-attempts", "1", "--keep-dead", "300ms",
                   "--", "false");

    die(q, 2, 2);
    harness_until(ctl_number(q, "dead") == 0, SOON_MS);
    harness_until(ctl_number(q, "removed") == 2, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(dead_limit, what_died_before_the_start_counts_too)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--max-attempts", "1", "--", "false");

    die(q, 3, 3);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    w = ctl_worker(q, "--max-dead", "1", "--", "true");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    cr_assert(letter(q, "3"));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(dead_limit, a_letter_on_its_way_again_is_none)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--max-attempts", "1", "--", "false");

    die(q, 3, 3);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(dlq("replay", q, "1").status, 0);
    w = ctl_worker(q, "--max-dead", "1", "--max-attempts", "1", "--", "sh",
                   "-c", "while [ ! -e go ]; do sleep 0.05; done; exit 1");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    cr_assert(letter(q, "1") && !letter(q, "2") && letter(q, "3"));
    harness_write("go", "", 0);
    harness_until(!letter(q, "3"), SOON_MS);
    cr_assert(letter(q, "1"), "the one that died last is gone");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(dead_limit, a_group_that_its_letter_held_goes_on)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(
        q, "-c", "1", "--max-attempts", "1", "--on-group-dead", "hold", "--",
        "sh", "-c", "read how; echo $how >>runs; $how");

    harness_send_text(q, "MQW/1\ngroup: g\n\nfalse\n");
    harness_until(ctl_number(q, "groups_held") == 1, SOON_MS);
    harness_send_text(q, "MQW/1\ngroup: g\n\ntrue\n");
    harness_until(ctl_number(q, "parked") == 1 || ctl_number(q, "held") == 1,
                  SOON_MS);
    cr_assert_eq(harness_lines("runs"), 1);
    ctl_out("set", q, "keep-dead=1ms");
    harness_until_lines("runs", 2, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}
