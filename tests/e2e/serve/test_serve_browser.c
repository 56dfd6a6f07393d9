/* test_serve_browser.c - mqctl serve in a browser: tests/web/browser.py has
 * the steps */
#include "tests/e2e/serve/serve_fixture.h"

TestSuite(serve_browser, .init = harness_init, .fini = harness_fini,
          .timeout = 900);

static const char hostile[] =
    "{\"x\":\"<script>alert(1)</script>\",\"y\":\"'><img src=x "
    "onerror=alert(1)>\"}\xe2\x80\xae\xff\xfe\x01 --> </pre></main>";

/* Run a script of tests/web; skip the test without a program that it needs. */
#define browse(name, ...)                                              \
    browsed(harness_run("env", "PYTHONDONTWRITEBYTECODE=1", "python3", \
                        script(name), __VA_ARGS__))

static const char *script(const char *name)
{
    static char path[4096];
    char file[64];

    snprintf(file, sizeof file, "tests/web/%s", name);
    cr_assert_not_null(realpath(file, path));
    return path;
}

static void browsed(struct harness_result r)
{
    if (r.status == 77 || r.status == 127)
        cr_skip_test("%s", r.status == 77 ? r.out : "no python3 here");
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
}

Test(serve_browser, a_person_can_look_and_act_and_nobody_else)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *worker =
        ctl_worker(q, "--max-attempts", "1", "--", "sh", "-c",
                   "[ -e fixed ] || { cat >&2; exit 3; }");
    struct web w = web_start("--allow-write"), only = web_start(NULL);
    char url[64], other[64], dir[4096];

    harness_send(q, hostile, sizeof hostile - 1, 0);
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    snprintf(dir, sizeof dir, "%s", harness_bin("mqsend"));
    *strrchr(dir, '/') = '\0';
    snprintf(url, sizeof url, "http://localhost:%u", w.port);
    snprintf(other, sizeof other, "http://127.0.0.1:%u", only.port);
    browse("browser.py", url, other, w.token, q, dir, harness_state_dir());
    web_stop(&w);
    web_stop(&only);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve_browser, axe_finds_nothing_on_any_page)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *worker = ctl_worker(q, "--max-attempts", "1", "--",
                                                "sh", "-c", "cat >&2; exit 3");
    struct web w = web_start("--allow-write");
    char url[64];

    harness_send(q, hostile, sizeof hostile - 1, 0);
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    snprintf(url, sizeof url, "http://localhost:%u", w.port);
    browse("axe.py", url, w.token, q);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}
