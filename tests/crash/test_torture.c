/* test_torture.c - the short form of the torture program (torture.c): kill at
 * random moments, with each kind of handler
 *
 * make torture is the long form. KILLS=n makes n instead of 30 random kills.
 */
#include "tests/crash/torture_test.h"

#define KILLS 30

TestSuite(torture, .init = harness_init, .fini = harness_fini, .timeout = 3600);

/* Kill at random moments, $KILLS times if that is set. */
static void kill_at_random(const char *kind)
{
    const char *kills = getenv("KILLS");
    char share[16];

    snprintf(share, sizeof share, "%u", sweep_share("kills", KILLS));
    torture_runs(HARNESS_LIST(harness_handler("../crash/torture"), "--handler",
                              kind, "--failures", "5", "--kills",
                              kills ? kills : share));
}

Test(torture, kills_at_random_lose_nothing_of_a_process_for_each_message)
{
    kill_at_random("exec");
}

Test(torture, kills_at_random_lose_nothing_of_long_lived_children)
{
    kill_at_random("stream");
}

Test(torture, kills_at_random_lose_nothing_of_a_plugin)
{
    kill_at_random("plugin");
}

Test(torture, what_is_cancelled_or_due_now_in_a_spool_ends_once_under_kills)
{
    static const char *const kinds[] = {"exec", "stream", "plugin"};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        torture_runs(HARNESS_LIST(harness_handler("../crash/torture"),
                                  "--handler", kinds[i], "--spool", "waiting",
                                  "--steer", "--failures", "5", "--kills",
                                  "10"));
}
