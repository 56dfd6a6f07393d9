/* mqctl serve in a browser: tests/web/browser.py has the steps */
#include "tests/e2e/serve/serve_fixture.h"

TestSuite(serve_browser, .init = harness_init, .fini = harness_fini,
          .timeout = 300);

static const char hostile[] =
    "{\"x\":\"<script>alert(1)</script>\",\"y\":\"'><img src=x "
    "onerror=alert(1)>\"}\xe2\x80\xae\xff\xfe\x01 --> </pre></main>";

Test(serve_browser, a_person_can_look_and_act_and_nobody_else)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *worker =
        ctl_worker(q, "--max-attempts", "1", "--", "sh", "-c",
                   "[ -e fixed ] || { cat >&2; exit 3; }");
    struct web w = web_start("--allow-write"), only = web_start(NULL);
    char url[64], other[64], script[4096], dir[4096];
    struct harness_result r;

    cr_assert_not_null(realpath("tests/web/browser.py", script));
    harness_send(q, hostile, sizeof hostile - 1, 0);
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    snprintf(dir, sizeof dir, "%s", harness_bin("mqsend"));
    *strrchr(dir, '/') = '\0';
    snprintf(url, sizeof url, "http://localhost:%u", w.port);
    snprintf(other, sizeof other, "http://127.0.0.1:%u", only.port);
    r = harness_run("env", "PYTHONDONTWRITEBYTECODE=1", "python3", script, url,
                    other, w.token, q, dir, harness_state_dir());
    if (r.status == 77 || r.status == 127)
        cr_skip_test("%s", r.status == 77 ? r.out : "no python3 here");
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    web_stop(&w);
    web_stop(&only);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}
