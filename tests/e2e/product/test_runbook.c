/* test_runbook.c - pages for operators: commands work, tables are complete */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(runbook, .init = harness_init, .fini = harness_fini);

/* Run a script in the top of the tree with our programs first in PATH and the
 * test's state directory; return its output. */
static struct harness_result sh(const char *script, const char *argument)
{
    static char path[8192], state[4200];
    char top[4096], *bin = strdup(harness_bin("mqworker"));

    cr_assert_not_null(realpath(".", top));
    cr_assert_eq(access("docs/runbook.md", R_OK), 0,
                 "run from the top of the tree");
    *strrchr(bin, '/') = '\0';
    snprintf(path, sizeof path, "PATH=%s:%s", bin, getenv("PATH"));
    free(bin);
    snprintf(state, sizeof state, "STATE_DIRECTORY=%s", harness_state_dir());
    return harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST("sh", "-uc", script, top, argument),
        .env = HARNESS_LIST(path, state)});
}

/* Blocks "sh check" have commands that only look, one a line. mqctl doctor may
 * find something (1). */
Test(runbook, commands_that_look_work_as_they_stand)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "1", "--", "false");

    harness_send_text(q, "it fails");
    harness_wait_letters(q, 1, 5000);
    struct harness_result r =
        sh("cd \"$0\"; n=0;"
           "for p in docs/runbook.md docs/tuning.md; do"
           "  sed -n '/^```sh check$/,/^```$/p' $p; done |"
           "grep -v '^```' | sed \"s,/orders,$1,\" >\"$STATE_DIRECTORY/typed\";"
           "while read -r line; do n=$((n + 1));"
           "  sh -c \"$line\" >\"$STATE_DIRECTORY/out\" 2>&1 </dev/null; s=$?;"
           "  case $s:$line in 0:* | 1:*doctor*) ;;"
           "  *) echo \"$line: $s\"; cat \"$STATE_DIRECTORY/out\"; esac;"
           "done <\"$STATE_DIRECTORY/typed\"; echo $n commands",
           q);
    cr_assert_str_eq(r.out, "11 commands\n", "%s%s", r.out, r.err);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(runbook, table_of_events_has_every_warning_and_error_and_no_other)
{
    struct harness_result r =
        sh("cd \"$0\"; find worker common -name \"*.c\" | xargs cat | tr '\\n' "
           "' ' >\"$1\"/all;"
           "sed -n '/^## Log events/,$p' docs/runbook.md |"
           "sed -n 's/^| \\(`[^|]*\\) | [a-z].*/\\1/p' |"
           "grep -o '`[a-z_]*`' | tr -d '`' | sort >\"$1\"/told;"
           "grep -oE 'log_(warn|error)\\( *\"[a-z_]+\"' \"$1\"/all |"
           "sed 's/.*\"\\(.*\\)\"/\\1/' | sort -u >\"$1\"/must;"
           "comm -13 \"$1\"/told \"$1\"/must; uniq -d \"$1\"/told;"
           "while read -r e; do grep -q \"\\\"$e\\\"\" \"$1\"/all ||"
           "  echo \"no $e\"; done <\"$1\"/told; wc -l <\"$1\"/must",
           harness_dir());
    cr_assert_geq(atoi(r.out), 30, "missing, twice or unknown: %s", r.out);
}

/* Log events named on a page must exist in the sources, and those that
 * operators see must be in the runbook. */
Test(runbook, events_that_any_page_names_are_logged)
{
    struct harness_result r =
        sh("cd \"$0\"; find worker common scripts -name \"*.c\" |"
           "xargs cat >\"$1\"/all; { grep -rohE 'event=[a-z_]+' docs README.md "
           "scripts |"
           "  cut -d= -f2;"
           "  sed -n '/^.Sh DIAGNOSTICS/,/^.Sh [A-CE-Z]/s/^.It Cm //p' "
           "docs/mqworker.8 | tr -d ' ' | tr , '\\n'; } |"
           "sort -u >\"$1\"/named;"
           "while read -r e; do grep -q \"\\\"$e\\\"\" \"$1\"/all ||"
           "  echo \"no $e\"; done <\"$1\"/named;"
           "for e in handler_stderr stream_child_started stream_child_grown; do"
           "  grep -q \"^| .*\\`$e\\`.* | info\" docs/runbook.md ||"
           "  echo \"no row of $e\"; done; wc -l <\"$1\"/named",
           harness_dir());
    cr_assert_null(strstr(r.out, "no "), "%s%s", r.out, r.err);
    cr_assert_geq(atoi(r.out), 25, "%s%s", r.out, r.err);
}

/* Compute the sums of the page by its own formula. */
Test(runbook, arithmetic_of_the_limit_adds_up)
{
    struct harness_result r =
        sh("cd \"$0\"; sed -n 's/^| \\([0-9]*\\) x \\([0-9]*\\)[^|]*| "
           "\\([0-9,]*\\) | \\([0-9]*\\) |$/\\1 \\2 \\3 \\4/p' docs/tuning.md |"
           "tr -d , | awk '{ c = $1 * $2 + 96 * $1;"
           "  if (c != $3 || int(819200 / c) != $4) print \"wrong:\", $0;"
           "  n++ } END { print n }'",
           "");
    cr_assert_str_eq(r.out, "6\n", "%s", r.out);
}

/* Compare with the numbers in mqworker(8). */
Test(runbook, exit_codes_are_those_of_the_man_page)
{
    struct harness_result r =
        sh("cd \"$0\"; sed -n '/^## The worker does not/,/^## The disk/"
           "s/^| \\([0-9]*\\) |.*/\\1/p' docs/runbook.md | sort >\"$1\"/told;"
           "sed -n '/^.Sh EXIT STATUS/,/^.Sh EX/s/^.It \\([0-9]*\\)$/\\1/p' "
           "docs/mqworker.8 | sort | diff \"$1\"/told - && wc -l <\"$1\"/told",
           harness_dir());
    cr_assert_geq(atoi(r.out), 8, "%s", r.out);
    cr_assert_eq(r.status, 0);
}

/* Metrics named by alerts must be printed after a message was received and
 * while one waits. The rules are those of the page. */
Test(runbook, alerts_name_metrics_that_there_are)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-v", "--", "true");
    struct harness_result r;

    harness_wait_log(w, "event=started", 5000);
    cr_assert_eq(harness_run("mqsend", q, "x").status, 0);
    harness_wait_log(w, "event=done", 5000);
    cr_assert_eq(harness_run("mqsend", "--delay", "1h", q, "y").status, 0);
    harness_wait_log(w, "event=delayed", 5000);
    r = sh(
        "cd \"$0\"; mqctl metrics >\"$1\"/metrics;"
        "sed -n '/^## Alerts/,/^## Log/p' docs/runbook.md >\"$1\"/page;"
        "sed -n 's/^ *expr: *//p' docs/examples/alerts.yml >\"$1\"/rules;"
        "grep '^| `' \"$1\"/page | cut -d '`' -f 2 |"
        "diff \"$1\"/rules - || echo 'no such rule';"
        "cat \"$1\"/rules \"$1\"/page | grep -o 'mqworker_[a-z_]*' | sort -u | "
        "while read -r m; do"
        "  grep -q \"^$m{\" \"$1\"/metrics && echo ok || echo \"no $m\"; done",
        harness_dir());
    cr_assert_not(strstr(r.out, "no "), "%s", r.out);
    cr_assert(strstr(r.out, "ok\nok\nok\nok\nok\n"), "%s", r.out);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* "expr": "..." of the dashboard; variables of Grafana have other names. */
Test(runbook, the_dashboard_names_metrics_that_there_are)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "--", "true");

    harness_wait_log(w, "event=started", 5000);
    struct harness_result r = sh(
        "cd \"$0\"; mqctl metrics >\"$1\"/metrics;"
        "grep '\"expr\"' docs/examples/grafana.json |"
        "grep -o 'mqworker_[a-z_]*' | sort -u | while read -r m; do"
        "  grep -q \"^$m{\" \"$1\"/metrics && echo ok || echo \"no $m\"; done",
        harness_dir());
    cr_assert_not(strstr(r.out, "no "), "%s", r.out);
    cr_assert(strstr(r.out, "ok\nok\nok\nok\nok\n"), "%s", r.out);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* Check metrics, alerts, the times of alerts and the dashboard by Prometheus'
 * own tool. */
Test(runbook, promtool_finds_nothing_wrong)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "--", "true");

    harness_wait_log(w, "event=started", 5000);
    struct harness_result r = sh(
        "cd \"$0\"; command -v promtool >\"$1\"/where || exit 77;"
        "mqctl metrics | promtool check metrics 2>&1 || exit 1;"
        "promtool check rules docs/examples/alerts.yml || exit 2;"
        "promtool test rules tests/e2e/product/alerts_test.yml || exit 3;"
        "{ echo 'groups: [{name: dashboard, rules: ['; "
        "  sed -n 's/^ *\"expr\": \"\\(.*\\)\",*$/\\1/p' "
        "    docs/examples/grafana.json |"
        "  sed 's/\\$__rate_interval/1m/g; s/\\\\\"/\"/g' |"
        "  awk '{ print \"{record: r\" NR \", expr: '\\''\" $0 \"'\\''},\" }';"
        "  echo ']}]'; } >\"$1\"/board.yml;"
        "promtool check rules \"$1\"/board.yml || exit 4",
        harness_dir());
    cr_assert_eq(harness_stop(w, 5000), 0);
    if (r.status == 77)
        cr_skip_test("no promtool here (Debian: prometheus)");
    cr_assert_eq(r.status, 0, "%d: %s%s", r.status, r.out, r.err);
    cr_assert(strstr(r.out, "15 rules found"), "%s", r.out);
    cr_assert(strstr(r.out, "18 rules found"), "%s", r.out);
}
