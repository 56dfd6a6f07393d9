/* test_verdict.c - exit codes, signals and time limits */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>

#include "common/base/clock.h"
#include "worker/config/settings.h"
#include "worker/rules/verdict.h"

static struct settings set;
static struct outcome out;

static void setup(void)
{
    settings_init(&set);
}

TestSuite(verdict, .init = setup);

/* Return the verdict on an exit code. */
static enum mqw_verdict of(int code, bool stopped)
{
    siginfo_t info = {.si_code = CLD_EXITED};

    info.si_status = code;
    out = (struct outcome){0};
    verdict_exit(&out, set.on_exit, &info, stopped);
    return out.verdict;
}

Test(verdict, exit_codes_as_the_page_says)
{
    cr_assert_eq(of(0, false), MQW_DONE);
    cr_assert_str_empty(out.error);
    cr_assert_eq(of(65, false), MQW_DEAD);
    cr_assert_eq(of(1, false), MQW_RETRY);
    cr_assert_str_eq(out.error, "exit 1");
    cr_assert_eq(out.kind, OUTCOME_VERDICT);
    of(126, false);
    cr_assert_eq(out.kind, OUTCOME_NOT_STARTED);
    of(127, false);
    cr_assert_eq(out.kind, OUTCOME_NOT_STARTED);
}

Test(verdict, the_map_goes_before_everything)
{
    set.on_exit[0] = MQW_RETRY;
    set.on_exit[65] = MQW_DONE;
    set.on_exit[127] = MQW_DISCARD;
    cr_assert_eq(of(0, false), MQW_RETRY);
    cr_assert_str_eq(out.error, "exit 0");
    cr_assert_eq(of(65, false), MQW_DONE);
    cr_assert_eq(of(127, false), MQW_DISCARD);
    cr_assert_eq(out.kind, OUTCOME_VERDICT);
}

Test(verdict, a_signal_is_a_failure)
{
    siginfo_t info = {.si_code = CLD_KILLED};

    info.si_status = SIGSEGV;
    verdict_exit(&out, set.on_exit, &info, false);
    cr_assert_eq(out.verdict, MQW_RETRY);
    cr_assert_str_eq(out.error, "signal 11");
}

Test(verdict, what_the_worker_ended_is_no_failure_but_what_ended_well_counts)
{
    of(1, true);
    cr_assert_eq(out.kind, OUTCOME_STOPPED);
    of(127, true);
    cr_assert_eq(out.kind, OUTCOME_STOPPED);
    cr_assert_eq(of(0, true), MQW_DONE);
    cr_assert_eq(out.kind, OUTCOME_VERDICT);
    cr_assert_eq(of(65, true), MQW_DEAD);
    cr_assert_eq(out.kind, OUTCOME_VERDICT);
}

Test(verdict, a_timeout_is_a_failure_that_names_the_limit)
{
    verdict_timeout(&out, 5 * NS_PER_S);
    cr_assert_eq(out.kind, OUTCOME_VERDICT);
    cr_assert_eq(out.verdict, MQW_RETRY);
    cr_assert_str_eq(out.error, "timeout 5s");
    verdict_timeout(&out, 90 * NS_PER_S);
    cr_assert_str_eq(out.error, "timeout 1m30s");
}

Test(verdict, codes_of_shells_say_that_there_is_no_command)
{
    out = (struct outcome){0};
    cr_assert_not(verdict_no_command(&out, 1));
    cr_assert_not(verdict_no_command(&out, 128));
    cr_assert(verdict_no_command(&out, 127));
    cr_assert_eq(out.kind, OUTCOME_NOT_STARTED);
    cr_assert_str_eq(out.error, "exit 127: the command was not found");
    cr_assert(verdict_no_command(&out, 126));
    cr_assert_str_eq(out.error, "exit 126: the command is not executable");
}

Test(verdict, an_end_that_cannot_be_told_is_named_and_no_signal)
{
    const siginfo_t info = {.si_errno = ECHILD};

    verdict_exit(&out, set.on_exit, &info, false);
    cr_assert_eq(out.kind, OUTCOME_VERDICT);
    cr_assert_eq(out.verdict, MQW_RETRY);
    cr_assert_str_eq(out.error, "exit unknown: waitid: No child processes");
}

Test(verdict, each_has_its_names_and_is_found_by_them)
{
    for (int i = 0; i < VERDICT_COUNT; i++) {
        cr_assert(verdict_rules[i].word && verdict_rules[i].event);
        cr_assert_eq(verdict_named(verdict_rules[i].name), i);
    }
    cr_assert_eq(verdict_named("OK"), -1);
}

Test(verdict, a_failure_that_is_a_letter_has_a_reason)
{
    for (int i = 0; i < VERDICT_COUNT; i++) {
        const struct verdict_rule *rule = &verdict_rules[i];
        bool fails = rule->kind >= SETTLE_RETRY;

        cr_assert_eq(rule->reason != REASON_NONE, fails);
        cr_assert_eq(rule->end == COUNTERS_NO_END, rule->kind == SETTLE_RETRY);
    }
}
