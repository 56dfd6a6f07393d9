/* test_times.c - mqdlq, mqctl: times and lines for people on a terminal, and
 * for scripts */
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(times, .init = harness_init, .fini = harness_fini);

#define UTC   "T00:00:00.000Z"
#define STATE harness_state_dir()

/* Return what a program prints on a terminal of that width, with a time zone
 * one hour east. */
static const char *on_columns(unsigned short columns, const char *const *argv)
{
    static char text[16 << 10];
    struct winsize size = {.ws_row = 24, .ws_col = columns};
    struct pollfd p = {.events = POLLIN};
    size_t used = 0;
    ssize_t n = 1;
    int status;
    pid_t pid = forkpty(&p.fd, NULL, NULL, &size);

    cr_assert_geq(pid, 0);
    if (pid == 0) {
        setenv("TZ", "CET-1", 1);
        setenv("TERM", "dumb", 1);
        execv(harness_bin(argv[0]), (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    while (n > 0 && used < sizeof text - 1) {
        cr_assert_gt(poll(&p, 1, SOON_MS), 0, "%.*s", (int)used, text);
        n = read(p.fd, text + used, sizeof text - 1 - used);
        used += n > 0 ? (size_t)n : 0;
    }
    text[used] = '\0';
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    close(p.fd);
    return text;
}

#define on_terminal(argv) on_columns(120, argv)

/* Import a letter of 2001 with times in its header; return its queue. */
static const char *two_letters(void)
{
    static const char lines[] =
        "{\"message_id\":\"01JD3Z6Q9V0X8N5T2K7B4M1C3F\","
        "\"reason\":\"rejected\",\"died_at\":\"2001-01-01T00:00:00Z\","
        "\"header\":\"MQW/1\\nid: 01JD3Z6Q9V0X8N5T2K7B4M1C3F\\n"
        "sent: 978303600000000000\\nsize: 6\\nx-sent: 5\\n\\n\","
        "\"body\":\"second\","
        "\"history\":[{\"started_at\":\"2001-01-01T00:00:00Z\","
        "\"duration_ns\":12000000,\"error\":\"exit 1\",\"stderr\":\"\"}]}\n";
    const char *q = harness_queue(2, 256);
    struct harness_result r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST("mqdlq", "import", "--state-dir", STATE, q),
        .input = lines,
        .input_size = strlen(lines)});

    cr_assert_eq(r.status, 0, "%s", r.err);
    return q;
}

#define MQDLQ(verb, ...) \
    HARNESS_LIST("mqdlq", verb, "--state-dir", STATE, __VA_ARGS__)

Test(times, a_list_says_how_long_ago_and_with_utc_when)
{
    const char *q = two_letters(), *out = on_terminal(MQDLQ("list", q));

    cr_assert(strstr(out, " days ago") && !strstr(out, UTC), "%s", out);
    out = on_terminal(MQDLQ("list", "--by", "reason", q));
    cr_assert(strstr(out, " days ago") && !strstr(out, UTC), "%s", out);
    out = on_terminal(MQDLQ("list", "--utc", q));
    cr_assert(strstr(out, "2001-01-01" UTC) && !strstr(out, "ago"), "%s", out);
    out = on_terminal(MQDLQ("list", "--json", q));
    cr_assert(strstr(out, "2001-01-01" UTC) && !strstr(out, "ago"), "%s", out);
}

Test(times, scripts_read_utc)
{
    const char *q = two_letters();
    struct harness_result r =
        harness_run("mqdlq", "list", "--state-dir", STATE, q);

    cr_assert(strstr(r.out, "2001-01-01" UTC), "%s", r.out);
    r = harness_run("mqdlq", "show", "--state-dir", STATE, q, "1");
    cr_assert(strstr(r.out, "died            2001-01-01" UTC), "%s", r.out);
    cr_assert(strstr(r.out, "  sent: 2000-12-31T23:00:00.000Z\n"), "%s", r.out);
}

Test(times, a_letter_is_shown_in_local_time_with_the_moments_of_its_header)
{
    const char *q = two_letters(), *out = on_terminal(MQDLQ("show", q, "1"));

    cr_assert(strstr(out, "died            2001-01-01 01:00:00+01:00, "), "%s",
              out);
    cr_assert(strstr(out, "  sent: 2001-01-01 00:00:00+01:00, "), "%s", out);
    cr_assert(strstr(out, "  x-sent: 5\r\n"), "%s", out);
    cr_assert(strstr(out, "  1  2001-01-01 01:00:00+01:00  took"), "%s", out);
    out = on_terminal(MQDLQ("show", "--utc", q, "1"));
    cr_assert(strstr(out, "died            2001-01-01" UTC "\r\n"), "%s", out);
}

Test(times, status_is_in_local_time_and_with_utc_not)
{
    const char *q = harness_queue(0, 0), *out;
    struct harness_process *w = ctl_worker(q, "--", "true");

    out = on_terminal(HARNESS_LIST("mqctl", "status", "--state-dir", STATE, q));
    cr_assert(strstr(out, "+01:00, ") && strstr(out, " ago"), "%s", out);
    out = on_terminal(
        HARNESS_LIST("mqctl", "status", "--utc", "--state-dir", STATE, q));
    cr_assert(!strstr(out, "+01:00") && !strstr(out, " ago"), "%s", out);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Join lines that were wrapped. Advice is never wrapped, so that it can be
 * copied. */
static const char *lines_join(const char *text, unsigned columns)
{
    static char out[16 << 10];
    size_t used = 0;

    while (*text) {
        size_t n = strcspn(text, "\r");
        bool more = strncmp(text, "      ", 6) == 0, fix;

        fix = more && strncmp(text + 6, "-> ", 3) == 0;
        cr_assert(fix || n <= columns, "%zu columns: %.*s", n, (int)n, text);
        used += (size_t)snprintf(out + used, sizeof out - used, "%s%.*s",
                                 fix    ? "\n"
                                 : more ? " "
                                        : "\n",
                                 (int)(more && !fix ? n - 6 : n),
                                 more && !fix ? text + 6 : text);
        text += n + strspn(text + n, "\r\n");
    }
    return out;
}

Test(times, doctor_breaks_its_lines_between_words)
{
    static const unsigned short columns[] = {80, 60};
    const char *q = harness_queue(0, 0), *out;
    char want[512];

    cr_assert_eq(harness_stop(ctl_worker(q, "--", "true"), SOON_MS), 0);
    harness_send_text(q, "x");
    snprintf(want, sizeof want,
             "\nwarn  %s worker: no worker is running, and messages are "
             "waiting: 1 in "
             "the queue, 0 in custody, 0 in the store, 0 in the spool\n"
             "      -> mqworker %s -- COMMAND\n",
             q, q);
    for (size_t i = 0; i < 2; i++) {
        out = on_columns(columns[i], HARNESS_LIST("mqctl", "doctor",
                                                  "--state-dir", STATE, q));
        cr_assert(strstr(out, "\r\n      "), "no line was broken: %s", out);
        cr_assert(strstr(lines_join(out, columns[i]), want), "%s", out);
    }
}
