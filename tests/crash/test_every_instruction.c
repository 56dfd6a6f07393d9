/* test_every_instruction.c - the short form of --every-instruction,
 * --every-change and --every-call of the torture program (torture_steps.c)
 *
 * A prime stride hits each round of a loop at another place. A stride of 1
 * kills at each change, so those tests are complete. System calls are changes
 * as well, so --every-call is only for programs, and for a path that has too
 * many changes.
 */
#include "tests/crash/torture_test.h"

TestSuite(every_instruction, .init = harness_init, .fini = harness_fini,
          .timeout = 3600);

/* Kill at one position in `stride`, or in seven times that where sweeps take a
 * part (tests/harness/sweep.h). */
static void kill_each(const char *how, const char *handler, const char *path,
                      unsigned stride)
{
    struct torture_part part = torture_part(stride);

    torture_traces(HARNESS_LIST(harness_handler("../crash/torture"),
                                "--handler", handler, how, "--path", path,
                                part.stride, part.from, part.ends));
}

#define instructions(...) kill_each("--every-instruction", __VA_ARGS__)
#define changes(...)      kill_each("--every-change", __VA_ARGS__)
#define calls(...)        kill_each("--every-call", "plugin", __VA_ARGS__)

Test(every_instruction, kill_loses_nothing_of_a_plugins_thread)
{
    instructions("plugin", "done", 97);
    changes("plugin", "done", 1);
}

Test(every_instruction, kill_loses_nothing_of_a_streams_thread)
{
    instructions("stream", "done", 151);
    changes("stream", "done", 1);
}

Test(every_instruction, kill_loses_nothing_of_a_group)
{
    instructions("plugin", "group", 151);
    changes("plugin", "group", 1);
}

Test(every_instruction, kill_loses_nothing_that_is_retried)
{
    changes("plugin", "retry", 29);
}

Test(every_instruction, kill_loses_nothing_that_dies)
{
    instructions("plugin", "dead", 1511);
    changes("plugin", "dead", 2);
}

Test(every_instruction, kill_loses_nothing_that_is_delayed)
{
    changes("plugin", "later", 1);
}

Test(every_instruction, kill_loses_nothing_that_was_sent_again)
{
    changes("plugin", "replayed", 3);
}

/* A killed worker had two messages in flight; the next one is killed on its way
 * to the second. */
Test(every_instruction, kill_loses_nothing_that_was_in_flight_before)
{
    changes("plugin", "resumed", 5);
}

Test(every_instruction, kill_at_a_system_call_loses_nothing_that_is_retried)
{
    calls("retry", 5);
}

/* The whole life of a program; most of the stops are in its start. */
Test(every_instruction, kill_at_a_system_call_of_a_start_loses_nothing)
{
    calls("recovered", 401);
}

Test(every_instruction, kill_at_a_system_call_of_a_replay_loses_nothing)
{
    calls("replay", 41);
}

Test(every_instruction, kill_at_a_system_call_of_a_raw_replay_loses_nothing)
{
    calls("raw", 41);
}

Test(every_instruction, kill_at_a_system_call_of_a_discard_loses_nothing)
{
    calls("remove", 41);
}

Test(every_instruction, kill_at_a_system_call_of_an_import_loses_nothing)
{
    calls("import", 41);
}

Test(every_instruction, kill_at_a_system_call_of_mqsend_sends_all_or_nothing)
{
    calls("send", 7);
}

Test(every_instruction, mqsend_that_is_killed_and_sends_again_has_one_run)
{
    calls("unique", 7);
}

Test(every_instruction, kill_at_a_system_call_of_mqsend_at_sends_all_or_nothing)
{
    calls("at", 41);
}
