/* test_mqctl_top.c - mqctl top: on terminals, and where there is none */
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(mqctl_top, .init = harness_init, .fini = harness_fini);

Test(mqctl_top, top_prints_lines_where_there_is_no_terminal)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "-c", "2", "--", "true");
    const char *out = ctl_out("top", "--rounds", "2", "--interval", "100ms");
    const char *first = strstr(out, q);

    cr_assert_not_null(first, "%s", out);
    cr_assert_not_null(strstr(first + 1, q), "two looks: %s", out);
    cr_assert_not_null(strstr(out, "0/2"), "%s", out);
    cr_assert_null(strchr(out, '\033'));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Return the column where a word of a line begins. */
static int column(const char *line, const char *word)
{
    const char *at = strstr(line, word), *end = strchr(line, '\n');

    cr_assert(at && end && at < end, "no %s: %s", word, line);
    return (int)(at - line);
}

Test(mqctl_top, lines_have_room_for_the_longest_name_and_say_what_a_queue_holds)
{
    const char *q = harness_queue(3, 64), *out, *line;
    struct harness_process *w = ctl_worker(q, "--", "true");
    char other[128];

    snprintf(other, sizeof other, "%s-whose-name-is-longer-than-its-column", q);
    ctl_good(harness_run("mqctl", "create", "--queue-depth", "1",
                         "--message-size", "64", other));
    out = ctl_out("top", "--rounds", "1", q, other);
    line = strstr(out, q);
    cr_assert_not_null(line, "%s", out);
    while (line > out && line[-1] != '\n')
        line--;
    cr_assert_eq(column(out, "STATE"), column(line, "running"), "%s", out);
    line = strstr(out, other);
    cr_assert_not_null(line, "%s", out);
    while (line > out && line[-1] != '\n')
        line--;
    cr_assert_eq(column(out, "STATE"), column(line, "not running"), "%s", out);
    cr_assert_not_null(strstr(out, " 0/3 "), "%s", out);
    ctl_out("remove", other);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_top, a_mistyped_queue_is_refused)
{
    const char *q = harness_queue(3, 64);
    struct harness_process *w = ctl_worker(q, "--", "true");
    struct harness_result r;
    char typo[128];

    snprintf(typo, sizeof typo, "%sx", q);
    r = ctl("top", "--rounds", "1", q, typo);
    cr_assert_eq(r.status, 66, "%d: %s%s", r.status, r.out, r.err);
    cr_assert(strstr(r.err, "did you mean") && strstr(r.err, q), "%s", r.err);
    cr_assert_str_eq(r.out, "");
    r = ctl("top", "--rounds", "1", "/a/b");
    cr_assert_eq(r.status, 64, "%d: %s%s", r.status, r.out, r.err);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* The first look must not show totals of hours as if they were a rate. */
Test(mqctl_top, the_first_look_has_no_rate_and_no_times)
{
    const char *q = harness_queue(3, 64), *out;
    struct harness_process *w = ctl_worker(q, "--", "true");
    json_t *o;

    harness_send_text(q, "x");
    harness_until(ctl_number(q, "done") == 1, SOON_MS);
    out = ctl_out("top", "--json", "--rounds", "1", q);
    o = ctl_json(out);
    cr_assert_gt(json_integer_value(json_object_get(o, "handler_p50_ns")), 0);
    cr_assert_eq(
        json_integer_value(json_object_get(o, "interval_handler_p50_ns")), 0);
    cr_assert_eq(
        json_integer_value(json_object_get(o, "interval_latency_p99_ns")), 0);
    json_decref(o);
    out = ctl_out("top", "--rounds", "1", q);
    cr_assert_not_null(strstr(out, " 0/3         - "), "%s", out);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_top, top_as_json_has_the_last_interval_too)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "-c", "2", "--", "true");
    const char *out = ctl_out("top", "--json", "--rounds", "1");
    json_t *o = ctl_json(out);

    cr_assert_str_eq(json_string_value(json_object_get(o, "queue")), q);
    cr_assert_eq(json_integer_value(json_object_get(o, "max_concurrency")), 2);
    cr_assert(json_is_real(json_object_get(o, "rate")), "%s", out);
    json_decref(o);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_top, top_shows_what_is_not_known_as_a_dash)
{
    const char *out = ctl_out("top", "--rounds", "1", harness_queue(0, 0));

    cr_assert_not_null(strstr(out, "not running"), "%s", out);
    cr_assert_null(strstr(out, " -1"), "%s", out);
}

struct terminal {
    pid_t pid;
    int fd;
    char seen[256 << 10];
    size_t used;
};

static const char *interval = "100ms"; /* from one look to the next */

/* Start top on a terminal of that size. */
static void terminal_open(struct terminal *t, unsigned short rows,
                          unsigned short columns)
{
    struct winsize size = {.ws_row = rows, .ws_col = columns};

    memset(t, 0, sizeof *t);
    t->pid = forkpty(&t->fd, NULL, NULL, &size);
    cr_assert_geq(t->pid, 0);
    if (t->pid == 0) {
        setenv("TERM", "xterm", 1);
        setenv("TZ", "CET-1", 1);
        execl(harness_bin("mqctl"), "mqctl", "top", "--state-dir",
              harness_state_dir(), "-i", interval, (char *)NULL);
        _exit(127);
    }
}

/* Return whether top has drawn a text since the last terminal_key. */
static bool shows(struct terminal *t, const char *text)
{
    struct pollfd p = {.fd = t->fd, .events = POLLIN};
    ssize_t n;

    while (poll(&p, 1, 0) > 0) {
        if (t->used > sizeof t->seen / 2) {
            memmove(t->seen, t->seen + t->used / 2, t->used - t->used / 2);
            t->used -= t->used / 2;
        }
        n = read(t->fd, t->seen + t->used, sizeof t->seen - t->used - 1);
        if (n <= 0)
            break;
        t->used += (size_t)n;
        t->seen[t->used] = '\0';
    }
    return strstr(t->seen, text) != NULL;
}

static void terminal_key(struct terminal *t, const char *key)
{
    t->used = 0;
    t->seen[0] = '\0';
    cr_assert_eq(write(t->fd, key, strlen(key)), (ssize_t)strlen(key));
}

/* Press q; top must exit with 0. */
static void terminal_quit(struct terminal *t)
{
    int status;

    terminal_key(t, "q");
    harness_until((shows(t, ""), waitpid(t->pid, &status, WNOHANG)), SOON_MS);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(t->fd);
}

/* Press every key on a terminal of that size. */
static void drive(unsigned short rows, unsigned short columns)
{
    static struct terminal t;
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "2", "--max-attempts", "1", "--", "false");
    int status;

    harness_send_text(q, "x");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    terminal_open(&t, rows, columns);
    harness_until(shows(&t, q), SOON_MS);
    harness_until(shows(&t, "q quit"), SOON_MS);
    cr_assert_eq(shows(&t, "exhausted"), rows == 50,
                 "a list too many or too few");
    terminal_key(&t, "p");
    harness_until(shows(&t, "pause /"), SOON_MS);
    terminal_key(&t, "n");
    harness_until(shows(&t, "nothing was changed"), SOON_MS);
    cr_assert(ctl_is(q, "state", "running"));
    terminal_key(&t, "pyDy"); /* D is typed before the change is seen */
    harness_until(ctl_is(q, "state", "paused"), SOON_MS);
    harness_until(shows(&t, ": paused"), SOON_MS); /* so p means resume */
    terminal_key(&t, "py");
    harness_until(shows(&t, ": resumed"), SOON_MS);
    harness_until(ctl_is(q, "state", "running"), SOON_MS);
    terminal_key(&t, "+++-y");
    harness_until(shows(&t, "-concurrency 2 -> 4"), SOON_MS);
    cr_assert_eq(ctl_number(q, "max_concurrency"), 4);
    terminal_key(&t, "?");
    harness_until(shows(&t, "asks first"), SOON_MS);
    terminal_key(&t, " >");
    harness_until(shows(&t, "by STATE"), SOON_MS);
    terminal_key(&t, "d");
    harness_until(shows(&t, "exhausted"), SOON_MS);
    terminal_key(&t, "Dy");
    cr_assert_eq(harness_wait(w, SOON_MS), 0);
    harness_until(shows(&t, ": draining"), SOON_MS);
    terminal_key(&t, "q");
    harness_until((shows(&t, "\033[?1049l"), waitpid(t.pid, &status, WNOHANG)),
                  SOON_MS);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%#x",
              (unsigned)status);
    cr_assert(shows(&t, "\033[?1049l"), "top did not restore the screen");
    close(t.fd);
}

Test(mqctl_top, top_on_a_terminal_of_80_by_24_obeys_its_keys)
{
    drive(24, 80);
}

/* Without a run there is no duration, and no rate must be in its place. */
Test(mqctl_top, top_labels_the_latency_of_an_idle_queue_as_a_duration)
{
    static struct terminal t;
    const char *q = harness_queue(0, 0), *latency, *most;
    struct harness_process *w = ctl_worker(q, "--", "true");
    int status;

    terminal_open(&t, 24, 100);
    harness_until(shows(&t, "IN FLIGHT"), SOON_MS);
    latency = strstr(t.seen, "latency");
    cr_assert_not_null(latency, "%s", t.seen);
    most = strstr(latency, "most ");
    cr_assert_not_null(most, "%s", t.seen);
    cr_assert_eq(strncmp(most, "most -", 6), 0, "%.12s", most);
    terminal_key(&t, "q");
    harness_until((shows(&t, ""), waitpid(t.pid, &status, WNOHANG)), SOON_MS);
    close(t.fd);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* At 80 columns, top may cut the error and the name, but no number. */
Test(mqctl_top, top_at_80_columns_shows_all_numbers_and_the_last_error)
{
    static struct terminal t;
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--max-attempts", "1", "--", "/bin/sh", "-c",
                   "echo the bank does not answer today >&2; exit 1");
    int status;

    harness_send_text(q, "x");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    terminal_open(&t, 24, 80);
    harness_until(shows(&t, "q quit"), SOON_MS);
    cr_assert_not_null(
        strstr(t.seen, "0 done, 0 retried, 1 dead; oldest in custody -"), "%s",
        t.seen);
    cr_assert_not_null(
        strstr(t.seen, "last error exit 1: the bank does not answer today"),
        "%s", t.seen);
    terminal_key(&t, "q");
    harness_until((shows(&t, ""), waitpid(t.pid, &status, WNOHANG)), SOON_MS);
    close(t.fd);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_top, top_on_a_terminal_of_200_by_50_obeys_its_keys)
{
    drive(50, 200);
}

/* A key makes top look again right away. That look must be no point of a curve,
 * because a few messages in an instant would look like a peak. */
Test(mqctl_top, a_key_adds_no_point_to_the_curves)
{
    static struct terminal t;
    const char *q = harness_queue(8, 256);
    struct harness_process *w = ctl_worker(q, "-c", "1", "--", "true");

    interval = "1h";
    terminal_open(&t, 24, 80);
    harness_until(shows(&t, "q quit"), SOON_MS);
    terminal_key(&t, "py");
    harness_until(shows(&t, "paused"), SOON_MS);
    for (int i = 0; i < 3; i++)
        harness_send_text(q, "x");
    terminal_key(&t, "+y");
    harness_until(shows(&t, "-concurrency 1 -> 2"), SOON_MS);
    terminal_key(&t, "?"); /* makes top draw the whole screen */
    harness_until(shows(&t, "asks first"), SOON_MS);
    terminal_key(&t, " ");
    harness_until(shows(&t, "3/8"), SOON_MS);
    harness_until(shows(&t, "q quit"), SOON_MS);
    cr_assert_null(strstr(t.seen, "ost 3"), "depth, most 3: %s", t.seen);
    terminal_quit(&t);
    cr_assert_eq(ctl("resume", q).status, 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* At 200x50: both lists, with bodies and reasons, without a key. */
Test(mqctl_top, top_on_a_wide_terminal_shows_letters_with_reason_and_body)
{
    static struct terminal t;
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--max-attempts", "1", "--", "/bin/sh", "-c",
                   "read x; case $x in stay*) exec sleep 60;; esac; "
                   "echo the bank does not answer >&2; exit 1");
    int status;

    harness_send_text(q, "the order of ada");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    harness_send_text(q, "stay here");
    harness_until(ctl_number(q, "in_flight") == 1, SOON_MS);
    terminal_open(&t, 50, 200);
    harness_until(shows(&t, "q quit"), SOON_MS);
    for (size_t i = 0; i < 5; i++) {
        static const char *const all[] = {
            "LAST DEPTHS", "stay here", "the order of ada",
            "exit 1: the bank does not answer", "exhausted"};

        cr_assert_not_null(strstr(t.seen, all[i]), "%s: %s", all[i], t.seen);
    }
    cr_assert_not_null(strstr(t.seen, harness_state_dir()), "%s", t.seen);
    terminal_key(&t, "q");
    harness_until((shows(&t, ""), waitpid(t.pid, &status, WNOHANG)), SOON_MS);
    close(t.fd);
    harness_signal(w, SIGQUIT); /* ends its handlers, too */
    harness_wait(w, SOON_MS);
}

/* Replay and discard a letter by a key and a y; other keys leave it alone. */
static void letters_drive(unsigned short rows, unsigned short columns)
{
    static struct terminal t;
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--max-attempts", "1", "--", "/bin/sh", "-c",
                   "echo no such order >&2; exit 1");

    harness_send_text(q, "the order of ada");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    terminal_open(&t, rows, columns);
    harness_until(shows(&t, "q quit"), SOON_MS);
    terminal_key(&t, "x");
    harness_until(shows(&t, "press d first, to choose a dead letter"), SOON_MS);
    terminal_key(&t, "d");
    harness_until(shows(&t, "x discard"), SOON_MS);
    terminal_key(&t, "\r");
    harness_until(shows(&t, "message id") && shows(&t, "the order of ada"),
                  SOON_MS);
    cr_assert(shows(&t, "+01:00, "), "no local time of death");
    terminal_key(&t, " x");
    harness_until(shows(&t, "remove letter 1 of "), SOON_MS);
    terminal_key(&t, "n");
    harness_until(shows(&t, "nothing was changed"), SOON_MS);
    cr_assert_eq(ctl_number(q, "dead"), 1);
    terminal_key(&t, "r");
    harness_until(shows(&t, "replay letter 1 of "), SOON_MS);
    terminal_key(&t, "y");
    harness_until(shows(&t, "1 of 1 letter sent"), SOON_MS);
    harness_until(harness_log_count(w, "event=dead") >= 2, SOON_MS);
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    terminal_quit(&t);
    terminal_open(&t, rows, columns); /* its first look sees the letter */
    harness_until(shows(&t, "q quit"), SOON_MS);
    terminal_key(&t, "dxy");
    harness_until(shows(&t, "1 of 1 letter removed"), SOON_MS);
    cr_assert_eq(ctl_number(q, "dead"), 0);
    terminal_quit(&t);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_top, letters_are_shown_replayed_and_discarded_at_80_by_24)
{
    letters_drive(24, 80);
}

Test(mqctl_top, letters_are_shown_replayed_and_discarded_at_200_by_50)
{
    letters_drive(50, 200);
}

Test(mqctl_top, top_on_a_terminal_that_is_too_small_does_no_harm)
{
    static struct terminal t;
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    int status;

    terminal_open(&t, 5, 20);
    harness_until(shows(&t, "mqctl top"), SOON_MS);
    terminal_key(&t, "q");
    harness_until((shows(&t, ""), waitpid(t.pid, &status, WNOHANG)), SOON_MS);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(t.fd);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}
