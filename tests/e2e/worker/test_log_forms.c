/* test_log_forms.c - mqworker: the form of the log on a terminal, in the
 * journal, in a pipe */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(log_forms, .init = harness_init, .fini = harness_fini);

#define WORKER                                                        \
    "mqworker=$1 queue=$2 state=$3; shift 3;"                         \
    "set -- \"$mqworker\" --state-dir \"$state\" --exit-when-idle=0s" \
    "  --max-attempts 1 \"$@\" \"$queue\" -- sh -c"                   \
    "  'echo bank does not answer >&2; exit 1';"

/* Run a worker whose one message dies. Return its stderr, or stdout if stderr
 * is empty, as under script(1). The script starts the worker as "$@". */
static const char *said(const char *script, const char *flag)
{
    const char *queue = harness_queue(10, 256);
    char whole[2048];

    harness_send_text(queue, "an order");
    snprintf(whole, sizeof whole, "%s%s", WORKER, script);
    struct harness_result r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST("sh", "-euc", whole, "sh", harness_bin("mqworker"),
                             queue, harness_state_dir(), flag)});
    cr_assert_eq(r.status, 0, "%d: %s%s", r.status, r.out, r.err);
    return *r.err ? r.err : r.out;
}

/* Run the worker on a terminal of script(1), which takes one command line:
 * quote each argument once more. */
#define ON_TERMINAL                                           \
    "command -v script >/dev/null || { echo none; exit 0; };" \
    "for w in \"$@\"; do line=\"${line-} '$(echo \"$w\" |"    \
    "  sed \"s/'/'\\\\\\\\''/g\")'\"; done;"                  \
    "unset STATE_DIRECTORY; export TERM=xterm; script -qec"   \
    "  \"stty cols 100; exec $line\" /dev/null </dev/null"

Test(log_forms, terminal_gets_short_lines_in_colour)
{
    const char *text = said("unset NO_COLOR;" ON_TERMINAL, "-q");

    if (strcmp(text, "none\n") == 0)
        cr_skip_test("no script(1) here");
    cr_assert(strstr(text, "\033[33mdead  \033[0m"), "%s", text);
    cr_assert(strstr(text, "exhausted: exit 1: bank does not answer"), "%s",
              text);
    cr_assert_null(strstr(text, "event="), "%s", text);
}

Test(log_forms, no_color_and_an_explicit_format_are_obeyed)
{
    const char *text = said("export NO_COLOR=1;" ON_TERMINAL, "-q");

    if (strcmp(text, "none\n") == 0)
        cr_skip_test("no script(1) here");
    cr_assert(strstr(text, " dead   "), "%s", text);
    cr_assert_null(strchr(text, '\033'), "%s", text);
    text = said(ON_TERMINAL, "--log-format=text");
    cr_assert(strstr(text, "level=warn event=dead msg="), "%s", text);
}

Test(log_forms, journal_gets_the_level_and_no_second_time)
{
    const char *text = said("JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2);"
                            "export JOURNAL_STREAM; exec \"$@\"",
                            "-v");

    cr_assert_eq(strncmp(text, "<6>level=info event=started", 27), 0, "%s",
                 text);
    cr_assert(strstr(text, "\n<4>level=warn event=dead msg="), "%s", text);
    cr_assert_null(strstr(text, "time="), "%s", text);
}

Test(log_forms, pipe_gets_key_and_value_also_where_another_one_is_the_journal)
{
    const char *text = said("JOURNAL_STREAM=1:2 exec \"$@\"", "-v");

    cr_assert_eq(strncmp(text, "time=", 5), 0, "%s", text);
}

Test(log_forms, quiet_keeps_what_the_dead_one_said)
{
    const char *text = said("exec \"$@\"", "-q");

    cr_assert(strstr(text, "error_text=\"bank does not answer\""), "%s", text);
    cr_assert_null(strstr(text, "level=info"), "%s", text);
}

Test(log_forms, time_zone_that_is_unknown_is_told_once)
{
    static const char *const known[] = {
        "", ":", "UTC", "Etc/UTC", "CET-1CEST,M3.5.0,M10.5.0/3", "<-03>3"};
    char script[128];

    const char *text = said("TZ=Europe/Nowhere exec \"$@\"", "-v");
    const char *at = strstr(text, "event=time_zone_unknown tz=Europe/Nowhere ");
    cr_assert(at, "%s", text);
    cr_assert_null(strstr(at + 1, "event=time_zone_unknown"), "%s", text);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        snprintf(script, sizeof script, "TZ='%s' exec \"$@\"", known[i]);
        text = said(script, "-v");
        cr_assert_null(strstr(text, "time_zone_unknown"), "%s", text);
    }
}
