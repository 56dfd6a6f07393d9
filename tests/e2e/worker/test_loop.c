/* test_loop.c - mqworker: the thread of the event loop makes no call that
 * may wait for a disk */
#include "tests/e2e/faults/faults_fixture.h"
#include "tests/harness/letters.h"
#include "tests/harness/preload.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

TestSuite(loop, .init = faults_init, .fini = harness_fini);

static const char *ctl(const char *verb, const char *q, const char *what)
{
    struct harness_result r =
        harness_run("mqctl", verb, "--state-dir", harness_state_dir(), q, what);
    cr_assert_eq(r.status, 0, "mqctl %s: %s", verb, r.err);
    return r.out;
}

/* Start a worker whose calls that may wait for a disk are noted in `calls`. */
static struct harness_process *watched_worker(const char *q)
{
    harness_write("calls", "", 0);
    char preload[PRELOAD_TEXT];
    return harness_start(&(struct harness_spec){
        .argv =
            HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(), "-c",
                         "1", "--timeout", "100ms", q, "--", "sh", "-c",
                         "read b; case $b in bad) exit 65;; retry) exit 1;;"
                         " slow) sleep 9;; esac"),
        .env = HARNESS_LIST(preload_text(preload, "loop_calls"),
                            "MQW_LOOP_CALLS=calls")});
}

Test(loop, no_order_signal_or_file_that_is_gone_has_it_wait_for_a_disk)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = watched_worker(q);
    harness_wait_log(w, "event=started", 10000);
    ctl("set", q, "max-concurrency=64");
    /* These two have more time, so that their handlers exit by themselves. */
    harness_send_text(q, "MQW/1\ntimeout: 60000\n\nbad\n");
    harness_send_text(q, "MQW/1\ntimeout: 60000\n\nretry\n");
    harness_send_text(q, "slow\n");
    harness_wait_letters(q, 1, 10000);
    harness_wait_log(w, "event=handler_timeout", 10000);
    ctl("set", q, "max-concurrency=1");
    ctl("set", q, "max-concurrency=64");
    ctl("status", q, "--json");
    ctl("pause", q, "1ms");
    harness_signal(w, SIGTTIN);
    harness_signal(w, SIGTTOU);
    harness_signal(w, SIGUSR2);
    harness_signal(w, SIGCONT);
    ctl("set", q, "max-delay=1h");
    const char *store = harness_path("%s%s/store.db", harness_state_dir(), q);
    const char *away = harness_path("%s.away", store);
    cr_assert_eq(rename(store, away), 0);
    harness_wait_log(w, "event=file_gone", 10000);
    cr_assert_eq(rename(away, store), 0);
    harness_wait_log(w, "event=file_back queue=", 10000);
    ctl("status", q, "--json");
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines_with("calls", "loop"), 0, "%s",
                 harness_run("grep", "loop", "calls").out);
    cr_assert_gt(harness_lines_with("calls", "pool pwrite"), 0, "none noted");
    cr_assert_gt(harness_lines_with("calls", "pool fallocate"), 0);
}
