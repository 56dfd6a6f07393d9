/* What operators see of messages that wait in the spool (--spool) */
#include <signal.h>
#include <unistd.h>

#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(mqctl_spool, .init = harness_init, .fini = harness_fini,
          .timeout = 120);

#define SPOOLED 20

/* spool_fill - a worker whose only handler has "first" until there is a file
 * "open"; behind it are SPOOLED rows, of priorities 0 and 1 in turn */
static struct harness_process *spool_fill(const char *q)
{
    struct harness_process *w =
        ctl_worker(q, "--spool", "-c", "1", "--", "sh", "-c",
                   "read x; : >runs; while [ ! -e open ]; do sleep 0.01; done; "
                   "echo $x >>out");
    char text[32];

    harness_send_text(q, "first\n");
    harness_until(harness_exists("runs"), SOON_MS);
    for (int i = 0; i < SPOOLED; i++) {
        sprintf(text, "number %d\n", i);
        harness_send(q, text, strlen(text), (unsigned)i % 2);
    }
    harness_until(ctl_number(q, "spooled") == SPOOLED, SOON_MS);
    return w;
}

/* run_all - until the handlers have had that many messages */
static void run_all(struct harness_process *w, size_t n)
{
    harness_write("open", "", 0);
    harness_until_lines("out", n, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* metric - of that queue; -1: it is not there */
static long metric(const char *q, const char *name)
{
    char want[300];
    const char *at;

    snprintf(want, sizeof want, "\n%s{queue=\"%s\"} ", name, q);
    at = strstr(ctl_out("metrics", NULL), want);
    return at ? atol(at + strlen(want)) : -1;
}

/* title_has - whether ps(1) shows that */
static bool title_has(struct harness_process *w, const char *text)
{
    char title[512] = "";
    FILE *f;
    size_t n;

    snprintf(title, sizeof title, "/proc/%d/cmdline", (int)harness_pid(w));
    f = fopen(title, "r");
    cr_assert_not_null(f);
    n = fread(title, 1, sizeof title - 1, f);
    fclose(f);
    title[n] = '\0';
    return strstr(title, text) != NULL;
}

Test(mqctl_spool, all_that_count_what_waits_count_it)
{
    const char *q = harness_queue(10, 64), *out;
    struct harness_process *w = spool_fill(q);

    cr_assert_eq(ctl_number(q, "waiting"), 0);
    cr_assert_eq(ctl_number(q, "depth"), 0);
    cr_assert_eq(ctl_number(q, "held"), 0);
    cr_assert_eq(metric(q, "mqworker_spooled"), SPOOLED);
    out = ctl_out("status", q);
    cr_assert_not_null(strstr(out, "20 came faster than they run"), "%s", out);
    out = ctl_out("status", NULL);
    cr_assert_not_null(strstr(out, " 20 "), "WAITING has them: %s", out);
    out = ctl_out("top", "-n", "1", q);
    cr_assert_not_null(strstr(out, " 20 "), "so has WAIT: %s", out);
    harness_until(title_has(w, "[1 of 1 busy, 20 waiting, 0 dead]"), SOON_MS);
    run_all(w, SPOOLED + 1);
    cr_assert_eq(metric(q, "mqworker_spooled"), 0);
}

Test(mqctl_spool, a_worker_that_is_gone_does_not_hide_it)
{
    const char *q = harness_queue(10, 64);
    struct harness_process *w = spool_fill(q);
    struct harness_result r;
    json_t *o;

    harness_kill(w);
    r = ctl("status", "--json", q);
    o = ctl_json(r.out);
    cr_assert_eq(json_integer_value(json_object_get(o, "spooled")), SPOOLED);
    cr_assert_eq(json_integer_value(json_object_get(o, "custody")), 1);
    json_decref(o);
    r = ctl("status", q);
    cr_assert_not_null(strstr(r.out, "they run when a worker is started"), "%s",
                       r.out);
    cr_assert_eq(metric(q, "mqworker_spooled"), SPOOLED);
}
