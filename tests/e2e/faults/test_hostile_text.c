/* test_hostile_text.c - mqworker, mqctl, mqdlq: control bytes in messages
 *
 * Bytes of messages, headers and handlers never control a terminal and never
 * break a line of JSON.
 */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <jansson.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(hostile_text, .init = harness_init, .fini = harness_fini);

/* Sequences that clear the screen, set the title and ring; backspace, carriage
 * return, a line that looks like one of the log; C1 controls in UTF-8; a
 * character that reverses the line; bytes that are not UTF-8; NUL; DEL. */
static const char bytes[] =
    "\033[2J\033]0;owned\007\b\r\ntime=2000-01-01T00:00:00.000Z level=info "
    "event=stopped msg=\"x\" \\ \302\233\302\205\342\200\256\342\200\250"
    "\342\200\216\330\234\363\240\201\201"
    "\377\376\300\200\355\240\200 \0 \177 end";
#define BYTES (sizeof bytes - 1)

/* Headers with such bytes, which the worker must reject, and a body. */
static const char *const headers[] = {
    "MQW/1\n\033[2J: x\n\n",           "MQW/1\ngroup: \033[2J\n\n",
    "MQW/1\nx-a: \302\233\n\n",        "MQW/1\nx-a: \342\200\256\n\n",
    "MQW/1\nid: \377\376\007\n\n",     "MQW/1\nsize: \r\n\n",
    "MQW/1\nx-a: b\177\n\n",           "MQW/1\n\n=\033]0;x\007\n",
    "MQW/1\ngroup: a\342\200\216\n\n",
};
#define HEADERS (sizeof headers / sizeof headers[0])

/* Check that the text has only lines of printable UTF-8; return their
 * number. */
static size_t text_safe(const char *what, const char *text, size_t size)
{
    size_t lines = 0;
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        lines += c == '\n';
        cr_assert(c == '\n' || (c >= ' ' && c != 0x7f), "%s: byte %02x: %s",
                  what, c, text);
    }
    json_t *utf8 = json_stringn(text, size);
    cr_assert_not_null(utf8, "%s: no UTF-8", what);
    json_decref(utf8);
    cr_assert(!strstr(text, "\302\233") && !strstr(text, "\302\205") &&
                  !strstr(text, "\342\200\256") &&
                  !strstr(text, "\342\200\250") &&
                  !strstr(text, "\342\200\216") && !strstr(text, "\330\234") &&
                  !strstr(text, "\363\240\201\201"),
              "%s: %s", what, text);
    return lines;
}

/* Check that each line is a JSON object. */
static void json_safe(const char *what, const char *text, size_t size)
{
    text_safe(what, text, size);
    for (const char *end; (end = strchr(text, '\n')); text = end + 1) {
        json_error_t error;
        json_t *object = json_loadb(text, (size_t)(end - text),
                                    JSON_REJECT_DUPLICATES, &error);
        cr_assert(json_is_object(object), "%s: %s: %.*s", what, error.text,
                  (int)(end - text), text);
        json_decref(object);
    }
    cr_assert_eq(*text, '\0', "%s ends within a line: %s", what, text);
}

/* Send hostile bodies and headers; return the queue. */
static const char *all_sent(void)
{
    const char *q = harness_queue(0, 0);
    harness_send(q, bytes, BYTES, 0);
    for (size_t i = 0; i < HEADERS; i++)
        harness_send_text(q, headers[i]);
    return q;
}

/* Run a worker whose handler prints its input and rejects the message. */
static struct harness_result worker_run(const char *q, const char *format)
{
    return harness_run("mqworker", "--state-dir", harness_state_dir(), "-v",
                       "--log-format", format, "--group-separator", ";",
                       "--exit-when-idle", q, "--", "sh", "-c",
                       "cat >&2; exit 65");
}

Test(hostile_text, the_log_has_one_safe_line_for_each_event)
{
    const char *q = all_sent();
    struct harness_result r = worker_run(q, "text");
    cr_assert_eq(r.status, 0, "%s", r.err);
    size_t lines = text_safe("log", r.err, r.err_size), stamped = 0;
    for (const char *at = r.err; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        stamped += strncmp(at, "time=20", 7) == 0 &&
                   strncmp(at, "time=2000-", 10) != 0;
    }
    cr_assert_eq(stamped, lines, "%s", r.err);
    size_t letters;
    harness_letters(q, &letters);
    cr_assert_eq(letters, 1 + HEADERS);
}

Test(hostile_text, the_log_as_json_is_json)
{
    const char *q = all_sent();
    struct harness_result r = worker_run(q, "json");
    cr_assert_eq(r.status, 0, "%s", r.err);
    json_safe("log", r.err, r.err_size);
    cr_assert(strstr(r.err, "handler_stderr"), "%s", r.err);
}

Test(hostile_text, mqdlq_as_json_is_json_and_gives_the_bytes_back)
{
    const char *q = all_sent();
    cr_assert_eq(worker_run(q, "text").status, 0);
    static const char *const verbs[][3] = {{"list", "--json", NULL},
                                           {"export", NULL, NULL},
                                           {"list", "--by=error", "--json"}};
    for (size_t i = 0; i < 3; i++) {
        const char *a = verbs[i][1] ? verbs[i][1] : "--limit=99";
        const char *b = verbs[i][2] ? verbs[i][2] : "--limit=99";
        struct harness_result r = harness_run(
            "mqdlq", verbs[i][0], a, b, "--state-dir", harness_state_dir(), q);
        cr_assert_eq(r.status, 0, "%s", r.err);
        cr_assert_gt(r.out_size, 0);
        json_t *lines;
        for (const char *at = r.out, *end; (end = strchr(at, '\n'));
             at = end + 1) {
            lines = json_loadb(at, (size_t)(end - at), JSON_ALLOW_NUL, NULL);
            cr_assert(json_is_object(lines), "%s", at);
            json_decref(lines);
        }
    }
    struct harness_result r = harness_run(
        "mqdlq", "show", "--body", "--state-dir", harness_state_dir(), q, "1");
    cr_assert_eq(r.out_size, BYTES);
    cr_assert_arr_eq(r.out, bytes, BYTES);
}

/* Count the lines of `text` that are about this queue; each line must be an
 * object. */
static size_t queue_shown(const char *text, const char *name)
{
    size_t n = 0;
    for (const char *end; (end = strchr(text, '\n')); text = end + 1) {
        json_t *o = json_loadb(text, (size_t)(end - text), 0, NULL);
        const char *is = json_string_value(json_object_get(o, "queue"));
        cr_assert(json_is_object(o), "%s", text);
        n += is && strcmp(is, name) == 0;
        json_decref(o);
    }
    return n;
}

Test(hostile_text, a_queue_whose_name_is_no_utf8_has_one_in_json)
{
    static const struct {
        const char *tool, *verb, *flag, *row;
        bool all; /* prints all queues */
    } asked[] = {
        {"mqdlq", "list", "--count", NULL, false},
        {"mqctl", "status", "--json", NULL, true},
        {"mqctl", "queues", "--json", NULL, true},
        {"mqctl", "metrics", "--json", NULL, true},
        {"mqctl", "top", "--rounds=1", NULL, true},
        {"mqctl", "list", "--json", NULL, false},
        {"mqctl", "explain", "--json", "1", false},
        {"mqctl", "doctor", "--json", NULL, false},
        {"mqctl", "run-now", "--json", "1", false},
        {"mqctl", "remove", "--force", NULL, false},
        {"mqctl", "forget", "--force", NULL, false},
    };
    const char *name = harness_queue_name();
    char q[128], shown[128];
    snprintf(q, sizeof q, "%s\377", name);
    snprintf(shown, sizeof shown, "%s\\xff", name);
    struct harness_result r =
        harness_run("mqsend", "--create", "--delay", "1h", q, "late");
    cr_assert_eq(r.status, 0, "%s", r.err);
    r = harness_run("mqworker", "--state-dir", harness_state_dir(),
                    "--exit-when-idle", q, "--", "false");
    cr_assert_eq(r.status, 0, "%s", r.err);
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        const char *first = asked[i].all ? "--json" : q;
        r = harness_run(asked[i].tool, asked[i].verb, "--state-dir",
                        harness_state_dir(), "--json", asked[i].flag, first,
                        asked[i].row);
        cr_expect(queue_shown(r.out, shown) > 0, "%s: %s%s", asked[i].verb,
                  r.out, r.err);
    }
}

/* Return what a program prints on a terminal. */
static const char *on_terminal(const char *command, size_t *size)
{
    static char text[65536];
    struct winsize window = {.ws_row = 50, .ws_col = 200};
    int master;
    *size = 0;
    pid_t pid = forkpty(&master, NULL, NULL, &window);
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    ssize_t n;
    while ((n = read(master, text + *size, sizeof text - 1 - *size)) > 0)
        *size += (size_t)n;
    text[*size] = '\0';
    close(master);
    return text;
}

/* Call text_safe for the output on a terminal, without our own colours and
 * without what the terminal adds. */
static void terminal_safe(const char *command)
{
    size_t size, kept = 0;
    const char *raw = on_terminal(command, &size);
    char *text = malloc(size + 1);
    cr_assert_not_null(text);
    for (size_t i = 0; i < size; i++) {
        size_t sgr = 0; /* length of ESC [ digits m */
        if (raw[i] == '\033' && raw[i + 1] == '[')
            sgr = 2 + strspn(raw + i + 2, "0123456789;");
        if (sgr && raw[i + sgr] == 'm')
            i += sgr;
        else if (raw[i] != '\r' || raw[i + 1] != '\n')
            text[kept++] = raw[i];
    }
    text[kept] = '\0';
    cr_assert_gt(kept, 0, "%s", command);
    text_safe(command, text, kept);
    free(text);
}

Test(hostile_text, nothing_of_it_reaches_a_terminal)
{
    const char *q = all_sent();
    cr_assert_eq(worker_run(q, "text").status, 0);
    static const char *const verbs[][2] = {
        {"list", ""},   {"list --json", ""},   {"list --by error", ""},
        {"export", ""}, {"show", "1 2 3 4 5"}, {"show --json", "1 2 3"},
    };
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
        terminal_safe(harness_path("%s %s --state-dir %s %s %s 2>&1",
                                   harness_bin("mqdlq"), verbs[i][0],
                                   harness_state_dir(), q, verbs[i][1]));
}
