/* test_serve_confined.c - mqctl serve may make few system calls (see
 * confine.h) */
#include "tests/e2e/serve/serve_fixture.h"
#include "tests/harness/preload.h"

TestSuite(serve_confined, .init = harness_init, .fini = harness_fini);

/* Return the status file of a process, or of "self", in /proc. */
static const char *status_of(const char *pid)
{
    static char text[4096];
    char path[64];
    FILE *in;
    size_t n;

    snprintf(path, sizeof path, "/proc/%s/status", pid);
    in = fopen(path, "re");
    cr_assert_not_null(in);
    n = fread(text, 1, sizeof text - 1, in);
    text[n] = '\0';
    fclose(in);
    return text;
}

static bool filtered(pid_t pid)
{
    char text[16];
    const char *status;

    snprintf(text, sizeof text, "%d", (int)pid);
    status = status_of(text);
    return strstr(status, "\nNoNewPrivs:\t1\n") &&
           strstr(status, "\nSeccomp:\t2\n");
}

/* Skip the test if mqctl was built without libseccomp or the kernel has no
 * filters. A filter that the kernel refuses fails the test.
 */
static void skip_unless_confined(struct web *w)
{
    const char *err = harness_stderr(w->p, NULL);
    const char *event = strstr(err, "event=web_unconfined");

    if (!event)
        return;
    cr_assert(strstr(event, "built without libseccomp") ||
                  !strstr(status_of("self"), "\nSeccomp:"),
              "the filter is refused: %s", err);
    web_stop(w);
    cr_skip_test("no filter of system calls here");
}

/* Skip under a sanitizer: it makes calls of its own, so confine() does
 * nothing. */
static void skip_sanitized(void)
{
    if (getenv("MQW_SANITIZED"))
        cr_skip_test("no filter under a sanitizer");
}

/* Return the first child of the server's main thread; 0 if it has none. */
static pid_t child_of(pid_t pid)
{
    return atoi(harness_read(
        harness_path("/proc/%d/task/%d/children", (int)pid, (int)pid), NULL));
}

Test(serve_confined, server_and_its_children_have_the_filter)
{
    struct web w;
    pid_t child;

    skip_sanitized();
    w = web_start(NULL);
    skip_unless_confined(&w);
    cr_assert(filtered(harness_pid(w.p)));
    child = child_of(harness_pid(w.p));
    cr_assert_gt(child, 0, "the watching child is not there");
    cr_assert(filtered(child));
    web_stop(&w);
}

/* Return true if a process has a socket or a signalfd open. */
static bool holds_socket(pid_t pid)
{
    char script[128];

    snprintf(script, sizeof script,
             "ls -l /proc/%d/fd | grep -q 'socket:\\|signalfd'", (int)pid);
    return harness_run("sh", "-c", script).status == 0;
}

/* Linux before 5.9 has no close_range(2). */
Test(serve_confined, children_on_an_old_kernel_keep_no_socket_of_the_server)
{
    char rule[32];
    struct web w;
    pid_t child;

    snprintf(rule, sizeof rule, "LINUX_5_4=%d", ENOSYS);
    w.p = harness_program(harness_handler("denied"), rule, harness_bin("mqctl"),
                          "serve", "--state-dir", harness_state_dir(),
                          "--listen", "127.0.0.1:0");
    harness_until(strchr(harness_stdout(w.p, NULL), '\n') ||
                      !harness_running(w.p),
                  SOON_MS);
    if (strstr(harness_stderr(w.p, NULL), "denied: no filter"))
        cr_skip_test("no filter of system calls here");
    w = web_ready(w.p);
    child = child_of(harness_pid(w.p));
    cr_assert_gt(child, 0, "the watching child is not there");
    cr_assert(holds_socket(harness_pid(w.p)));
    harness_until(!holds_socket(child), SOON_MS);
    web_stop(&w);
}

/* ---- somebody has taken the server over ---- */

/* A call and its errno: before the filter, after it, and after it with
 * --allow-write. ANY: the errno depends on the machine. */
enum { ANY = -1 };
static const struct expected {
    const char *name;
    int before, shows, writes;
} all[] = {
    {"program_run", 0, EPERM, 0},
    {"trace", ANY, EPERM, EPERM},
    {"internet", 0, EPERM, EPERM},
    {"local_socket", 0, 0, 0},
    {"written_code", 0, EPERM, EPERM},
    {"code_made_of_data", 0, EPERM, EPERM},
    {"written_file", 0, 0, 0}, /* permitted, as docs/web.md says */
    {"other_memory", ANY, EPERM, EPERM},
    {"namespaces", ANY, EPERM, EPERM},
    {"keystrokes", ENOTTY, EPERM, EPERM},
    {"option", 0, EPERM, EPERM},
    {"queue_removed", ENOENT, EPERM, EPERM},
    {"message_sent", EBADF, EPERM, EBADF},
    {"newer_call", EINVAL, ENOSYS, ENOSYS},
};

/* Start a server with plugins/intruder.c, which tries all calls; return what
 * that wrote. `more`: one more variable for its environment, or NULL. */
static const char *intrude(const char *option, const char *more)
{
    char preload[PRELOAD_TEXT];
    struct web w;

    skip_sanitized();
    w = web_ready(harness_start(&(struct harness_spec){
        .argv =
            HARNESS_LIST("mqctl", "serve", "--state-dir", harness_state_dir(),
                         "--listen", "127.0.0.1:0", option),
        .env = HARNESS_LIST(preload_text(preload, "intruder"),
                            "MQW_INTRUDER=intruder", more)}));
    skip_unless_confined(&w);
    (void)web_get(&w, "/healthz");
    web_stop(&w);
    return harness_run("cat", "intruder").out;
}

/* Check that the intruder noted this errno for a call. */
static void expect(const char *text, const char *when, const char *name,
                   int err)
{
    char start[64];
    const char *line;

    snprintf(start, sizeof start, "%s %s ", when, name);
    line = strstr(text, start);
    cr_assert_not_null(line, "no \"%s\" in: %s", start, text);
    if (err != ANY)
        cr_expect_eq(atoi(line + strlen(start)), err, "%s%d, not %d", start,
                     atoi(line + strlen(start)), err);
}

Test(serve_confined, one_that_only_shows_runs_nothing_and_reaches_nobody)
{
    const char *text = intrude(NULL, NULL);

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        expect(text, "before", all[i].name, all[i].before);
        expect(text, "after", all[i].name, all[i].shows);
    }
}

Test(serve_confined, one_that_may_write_runs_mqdlq_and_has_no_other_right)
{
    const char *text = intrude("--allow-write", NULL);

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect(text, "after", all[i].name, all[i].writes);
}

/* Before Linux 4.14 a filter cannot have refused calls logged; it must refuse
 * the same calls. */
Test(serve_confined, an_old_kernel_refuses_the_same)
{
    const char *text = intrude(NULL, "MQW_INTRUDER_OLD=1");

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect(text, "after", all[i].name, all[i].shows);
}
