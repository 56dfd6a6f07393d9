/* test_recover_policy.c - what becomes of the messages of a worker that died,
 * and of one that stops, over a source in memory */
#include "tests/fixtures/flow_fixture.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sysexits.h>

#include "common/base/process_stat.h"
#include "worker/flow/recovery.h"

enum { MAX_CRASHES = 2 };

static struct problem problem;

static void setup(void)
{
    flow_settings();
    set.max_crashes = MAX_CRASHES;
    flow_open();
    flow.started = false;
}

TestSuite(recover_policy, .init = setup, .fini = flow_close);
TestSuite(keep, .init = setup, .fini = flow_close);

static void next_runs(const struct fake_message *x)
{
    cr_assert_eq(ready_take(&flow.ready, 0), &x->m, "%s is not next", x->text);
}

static void dead(const struct fake_message *x)
{
    cr_assert_eq(x->at, FAKE_DEAD, "%s", x->text);
    cr_assert_eq(x->last.reason, REASON_CRASHED);
}

static bool suspect(const struct fake_message *x)
{
    return crashes_is_suspect(&flow, &x->m);
}

/* ---- a worker that died ---- */

Test(recover_policy, no_handler_lives_when_its_message_is_lent_again)
{
    struct fake_message *x = fake_leave("one", true);
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setpgid(0, 0);
        for (;;)
            pause();
    }
    cr_assert(setpgid(pid, pid) == 0 || errno == EACCES);
    x->run = (struct source_run){
        .mark = 1, .start = process_start_time(pid), .group = pid};
    cr_assert_eq(recovery_run(&flow, &problem), 0, "%s", problem.text);
    cr_assert_eq(waitpid(pid, &status, WNOHANG), pid);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    next_runs(x);
}

Test(recover_policy, what_runs_again_is_in_the_order_of_the_source)
{
    const struct fake_message *a = fake_leave("a", true),
                              *b = fake_leave("b", false),
                              *c = fake_leave("c", true);

    cr_assert_eq(recovery_run(&flow, &problem), 0);
    next_runs(a);
    next_runs(b);
    next_runs(c);
    cr_assert(ready_empty(&flow.ready));
    cr_assert_eq(flow_numbers().crashes, 2);
}

Test(recover_policy, the_crash_that_is_one_too_many_buries_it)
{
    struct fake_message *a = fake_leave("a", true), *b = fake_leave("b", false);

    a->m.crashes = MAX_CRASHES - 1;
    cr_assert_eq(recovery_run(&flow, &problem), 0);
    dead(a);
    next_runs(b);
    cr_assert_eq(flow_numbers().dead, 1);
}

Test(recover_policy, also_one_that_waited_and_its_letter_has_its_group)
{
    struct fake_message *a = fake_group(fake_leave("a", true), "k");

    a->m.crashes = MAX_CRASHES - 1;
    a->waits = true;
    cr_assert_eq(recovery_run(&flow, &problem), 0);
    dead(a);
    cr_assert_str_eq(a->group, "k");
}

Test(recover_policy, what_waited_waits_again_with_its_crash)
{
    struct fake_message *a = fake_leave("a", true);

    a->waits = true;
    cr_assert_eq(recovery_run(&flow, &problem), 0);
    cr_assert_eq(a->at, FAKE_WAITS);
    cr_assert_eq(a->m.crashes, 1);
    cr_assert_eq(a->m.failures, 0);
    cr_assert(ready_empty(&flow.ready));
    cr_assert_eq(flow_numbers().crashes, 1);
}

Test(recover_policy, what_ran_together_runs_alone_and_none_is_dead)
{
    struct fake_message *a = fake_leave("a", true), *b = fake_leave("b", true),
                        *c = fake_leave("c", false);

    a->m.crashes = MAX_CRASHES;
    b->waits = true;
    cr_assert_eq(recovery_run(&flow, &problem), 0);
    cr_assert_eq(a->at, FAKE_IS_LENT);
    cr_assert(suspect(a) && suspect(b));
    cr_assert_not(suspect(c));
}

/* The worker may have been killed for another reason and must not get slow. */
Test(recover_policy, what_has_crashes_to_spare_runs_beside_others)
{
    struct fake_message *a, *b;

    set.max_crashes = MAX_CRASHES + 1;
    a = fake_leave("a", true);
    b = fake_leave("b", true);
    cr_assert_eq(recovery_run(&flow, &problem), 0);
    cr_assert_eq(a->m.crashes, 1);
    cr_assert(!suspect(a) && !suspect(b));
}

Test(recover_policy, what_ran_alone_is_to_blame)
{
    struct fake_message *a = fake_leave("a", true), *b = fake_leave("b", false);

    a->m.crashes = MAX_CRASHES - 1;
    b->m.crashes = MAX_CRASHES;
    cr_assert_eq(recovery_run(&flow, &problem), 0);
    dead(a);
    next_runs(b);
    cr_assert(suspect(b), "it has crashed before, but is no suspect");
}

Test(recover_policy, a_letter_that_cannot_be_written_is_written_later)
{
    struct fake_message *a = fake_leave("a", true);

    a->m.crashes = MAX_CRASHES - 1;
    fake.refusals = 1;
    fake.refused = -ENOSPC;
    cr_assert_eq(recovery_run(&flow, &problem), 0);
    cr_assert_eq(a->at, FAKE_IS_LENT);
    cr_assert_eq(unsettled_count(&flow.unsettled), 1);
    flow_pass(2 * NS_PER_S);
    dead(a);
}

Test(recover_policy, messages_of_a_group_go_behind_what_it_has_in_the_source)
{
    struct fake_message *first = fake_group(fake_add("1", FAKE_PARKED), "k");
    const struct fake_message *second = fake_leave("k:2", true);
    struct delivery d;

    cr_assert_eq(recovery_run(&flow, &problem), 0);
    cr_assert(ready_empty(&flow.ready));
    cr_assert_eq(dispatch_take(&flow, 0, &d), 0);
    cr_assert_eq(d.message, &first->m);
    dispatch_settled(&flow, d.lease, GROUP_GOES_ON, 0, false);
    cr_assert_eq(dispatch_take(&flow, 0, &d), 0);
    cr_assert_eq(d.message, &second->m);
    dispatch_settled(&flow, d.lease, GROUP_GOES_ON, 0, false);
}

#define LETTER "MQW/1\nid: 01JD3Z6Q9V0X8N5T2K7B4M1C3F\nletter: 7\n\nbody"

Test(recover_policy, a_second_copy_of_a_letter_comes_to_nothing)
{
    const struct fake_message *runs = fake_leave(LETTER, false);
    struct fake_message *dies = fake_leave(LETTER, true);

    dies->m.crashes = MAX_CRASHES - 1;
    fake.link = LINK_REPEAT;
    cr_assert_eq(recovery_run(&flow, &problem), 0);
    cr_assert_eq(runs->at, FAKE_GONE);
    cr_assert_eq(dies->at, FAKE_GONE, "there is a second letter");
    cr_assert(ready_empty(&flow.ready));
    cr_assert_eq(flow_numbers().dead, 0);
    cr_assert_eq(flow_numbers().discarded, 2);
}

Test(recover_policy, where_it_is_not_known_what_is_a_letter_nothing_starts)
{
    const struct fake_message *x = fake_leave(LETTER, false);

    fake.link = -EIO;
    cr_assert_lt(recovery_run(&flow, &problem), 0);
    cr_assert_eq(problem.status, EX_CANTCREAT);
    cr_assert_not_null(strstr(problem.text, "nothing was lost"));
    cr_assert_eq(x->at, FAKE_IS_LENT);
}

/* ---- the machine went down ---- */

static struct fake_message *torn(const char *text, bool waits)
{
    struct fake_message *x = fake_leave(text, false);

    x->torn = true;
    x->waits = waits;
    return x;
}

Test(recover_policy, of_what_may_be_damaged_nothing_runs)
{
    const struct fake_message *a = torn("a", false), *b = torn("b", true);

    cr_assert_eq(recovery_run(&flow, &problem), 0);
    dead(a);
    cr_assert_not_null(strstr(a->error, "damaged"));
    cr_assert_eq(b->at, FAKE_WAITS,
                 "its bytes are in the source, so it can wait there");
    cr_assert(ready_empty(&flow.ready));
}

Test(recover_policy, what_may_be_damaged_must_be_written_before_all_else)
{
    torn("a", false);
    fake.refusals = 1;
    fake.refused = -ENOSPC;
    cr_assert_lt(recovery_run(&flow, &problem), 0);
    cr_assert_not_null(strstr(problem.text, "free some space"));
}

/* ---- without room ---- */

Test(recover_policy, a_worker_that_had_all_of_its_room_gets_more)
{
    fake.allowed = 2;
    fake_leave("a", true);
    fake_leave("b", true);
    cr_assert_eq(recovery_run(&flow, &problem), 0);
    cr_assert_eq(fake.allowed, 2 + set.concurrency);
}

Test(recover_policy, without_more_it_goes_on_by_what_is_on_the_ready_list)
{
    fake.allowed = 1;
    fake.resize_fails = ENOSPC;
    fake_leave("a", true);
    cr_assert_eq(recovery_run(&flow, &problem), 0);
}

Test(recover_policy, and_is_refused_where_nothing_would_ever_run)
{
    fake_group(fake_add("0", FAKE_WAITS), "k")->m.failures = 1;
    set.lookahead = 64;
    fake.allowed = 0;
    fake.resize_fails = ENOSPC;
    cr_assert_lt(recovery_run(&flow, &problem), 0);
    cr_assert_str_eq(problem.text, "no room for 2");
}

/* ---- a worker that stops ---- */

static struct fake_message *lent(const char *text)
{
    struct fake_message *x = fake_give(text);
    struct message *m;

    cr_assert_eq(fake.source.ops->take(&fake.source, 0, clock_wall_ns(), &m),
                 0);
    cr_assert_eq(m, &x->m);
    return x;
}

Test(keep, it_is_due_at_once_and_no_attempt_is_counted)
{
    struct fake_message *x = lent("a");

    x->m.ops->run(&x->m, 1);
    keep_all(&flow, false);
    cr_assert_eq(x->at, FAKE_WAITS);
    cr_assert_leq(x->due_ns, clock_boot_ns());
    cr_assert_eq(x->m.failures, 0);
    cr_assert(x->m.flags & MESSAGE_REDELIVERED);
}

Test(keep, one_of_a_group_keeps_its_place_in_line)
{
    const struct fake_message *x = lent("k:a");

    keep_all(&flow, false);
    cr_assert_eq(x->at, FAKE_PARKED);
    cr_assert_str_eq(x->group, "k");
}

Test(keep, one_that_is_delayed_waits_for_its_time)
{
    uint64_t when = clock_wall_ns() + NS_PER_S;
    const struct fake_message *x;
    char text[128];

    snprintf(text, sizeof text,
             "MQW/1\ngroup: k\nnot-before: %" PRIu64 "\n\nbody", when);
    x = lent(text);
    keep_all(&flow, false);
    cr_assert_eq(x->at, FAKE_WAITS);
    cr_assert_eq(x->due_ns, clock_boot_ns() + NS_PER_S);
}

Test(keep, a_letter_that_was_sent_again_is_before_what_its_group_has)
{
    const struct fake_message *x =
        lent("MQW/1\nid: 01JD3Z6Q9V0X8N5T2K7B4M1C3F\nletter: 7\n"
             "group: k\n\nbody");

    fake.link = LINK_LETTER;
    keep_all(&flow, false);
    cr_assert_eq(x->at, FAKE_WAITS);
    cr_assert_leq(x->due_ns, clock_boot_ns());
}

Test(keep, a_second_copy_of_it_is_not_kept)
{
    const struct fake_message *x = lent(LETTER);

    fake.link = LINK_REPEAT;
    keep_all(&flow, false);
    cr_assert_eq(x->at, FAKE_GONE);
}

Test(keep, all_or_nothing)
{
    const struct fake_message *a = lent("a"), *b = lent(LETTER);

    fake.link = -EIO;
    keep_all(&flow, false);
    cr_assert_eq(a->at, FAKE_IS_LENT);
    cr_assert_eq(b->at, FAKE_IS_LENT);
}
