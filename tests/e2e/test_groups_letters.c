/* mqworker: --on-group-dead hold, and letters that a group must wait for in ways
 * that are easy to forget */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"
#include "tests/harness/turns.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(groups_letters, .init = harness_init, .fini = harness_fini,
          .timeout = 90);

#define HOLD "--on-group-dead", "hold", "--backoff", "20ms", "--jitter", "0"

/* mqdlq VERB with the test's state directory; must succeed */
#define mqdlq(verb, ...)                                                     \
    do {                                                                     \
        struct harness_result r_ = harness_run(                              \
            "mqdlq", verb, "--state-dir", harness_state_dir(), __VA_ARGS__); \
        cr_assert_eq(r_.status, 0, "mqdlq %s: %s", verb, r_.err);            \
    } while (0)

/* passed - whether all that is in the queue now was taken: something behind it
 * ran */
static void passed(const char *q)
{
    static unsigned number;
    char body[32];

    snprintf(body, sizeof body, "9.%u", number++);
    turns_send(q, NULL, 0, body);
    harness_until(strstr(turns_order("-"), body), 10000);
}

/* two_letters - "0.0" and "0.1" of group a, made without `hold`; newest first */
static const struct harness_letter *two_letters(const char *q)
{
    struct harness_process *w = harness_worker(q, "-c", "1", "--", TURN);
    const struct harness_letter *l;

    turns_tell("dead", "0.0");
    turns_tell("dead", "0.1");
    turns_send(q, "a", 0, "0.0");
    turns_send(q, "a", 0, "0.1");
    l = harness_wait_letters(q, 2, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    turns_untell("dead", "0.0");
    turns_untell("dead", "0.1");
    return l;
}

/* ends - the group ran in this order, and nothing is left */
static void ends(struct harness_process *w, const char *q, const char *order)
{
    harness_until(strlen(turns_order("a")) >= strlen(order), 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(turns_order("a"), order);
    cr_assert_eq(turns_rows(q, TURNS_ANY), 0);
}

/* It comes back to its group as what its row says, which is not a replay. */
Test(groups_letters, one_that_could_not_be_started_leaves_the_other_to_wait_for)
{
    const char *q = harness_queue(0, 0);
    const struct harness_letter *l = two_letters(q);
    struct harness_process *w;

    harness_script("run", "exec \"$1\"\n");
    w = harness_worker(q, "-c", "2", HOLD, "--breaker-pause", "50ms", "--",
                       harness_path("run"), TURN);
    turns_send(q, "a", 0, "0.2");
    turns_tell("fail", "0.0");
    turns_tell("gate", "0.0");
    mqdlq("replay", q, l[1].id);
    harness_until(harness_lines_with("turns", "0.0") == 3, 10000);
    cr_assert_eq(rename(harness_path("run"), harness_path("away")), 0);
    turns_untell("gate", "0.0");
    harness_wait_log(w, "event=retry ", 10000);
    harness_wait_log(w, "event=breaker_open", 10000);
    turns_untell("fail", "0.0");
    cr_assert_eq(rename(harness_path("away"), harness_path("run")), 0);
    harness_until(strstr(turns_order("a"), "0.0 "), 10000);
    passed(q);
    cr_assert_str_eq(turns_order("a"), "0.0 ", "there is another letter");
    mqdlq("replay", q, l[0].id);
    ends(w, q, "0.0 0.1 0.2 ");
}
