/* test_mqctl_look.c - mqctl: explain, queues, create, remove, doctor */
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(mqctl_look, .init = harness_init, .fini = harness_fini);

#define GATE "echo x >>started; while [ ! -e open ]; do sleep 0.02; done"
/* Run a command in an IPC namespace of its own, away from the queues of other
 * users. /dev/mqueue is mounted again, because it lists the old namespace. */
#define OWN_QUEUES                                                  \
    "unshare", "-im", "sh", "-c",                                   \
        "[ ! -d /dev/mqueue ] || mount -t mqueue none /dev/mqueue;" \
        "exec \"$@\"",                                              \
        "sh"

/* ---- explain ---- */

/* Return the place of a message, as explain says it. */
static const char *where(const char *q, const char *id)
{
    static char text[64];
    struct harness_result r = ctl("explain", "--json", q, id);
    json_t *o;

    cr_assert(r.status == 0 || r.status == 66, "%d: %s", r.status, r.err);
    o = ctl_json(r.out);
    snprintf(text, sizeof text, "%s",
             json_string_value(json_object_get(o, "where")));
    json_decref(o);
    return text;
}

static bool is_at(const char *q, const char *id, const char *place)
{
    return strcmp(where(q, id), place) == 0;
}

/* Return whether the sentence of explain has a text. */
static bool says(const char *q, const char *id, const char *text)
{
    return strstr(ctl("explain", q, id).out, text) != NULL;
}

Test(mqctl_look, explain_follows_a_message_from_flight_to_its_end)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--", "sh", "-c", "echo $$ >pid; " GATE);
    const char *id = ctl_send(q, "x"), *next = ctl_send(q, "y");
    char pid[32];

    harness_until_lines("started", 1, SOON_MS);
    harness_until(is_at(q, id, "in_flight"), SOON_MS);
    snprintf(pid, sizeof pid, "under pid %d", atoi(harness_read("pid", NULL)));
    cr_assert(says(q, id, pid), "%s", ctl("explain", q, id).out);
    cr_assert(is_at(q, next, "unknown"));
    cr_assert_not_null(
        strstr(ctl("explain", q, next).err, "holds 1 message, which"));
    harness_write("open", "", 0);
    harness_until(is_at(q, id, "done"), SOON_MS);
    harness_until(is_at(q, next, "done"), SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert(is_at(q, id, "done"), "lost with the worker");
}

Test(mqctl_look, explain_finds_the_queue_of_an_id_by_itself)
{
    const char *q = harness_queue(0, 0), *other = harness_queue(0, 0), *id;
    struct harness_process *w = ctl_worker(q, "--", "sh", "-c", "exit 65");
    struct harness_result r;
    char text[128];

    cr_assert_eq(harness_run("mqworker", "--state-dir", harness_state_dir(),
                             "--exit-when-idle", other, "--", "true")
                     .status,
                 0);
    id = ctl_send(q, "x");
    harness_until(is_at(q, id, "dead"), SOON_MS);
    r = ctl("explain", id);
    snprintf(text, sizeof text, "%s of %s: died at ", id, q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(strncmp(r.out, text, strlen(text)), 0, "%s", r.out);
    r = ctl("explain", "01ARZ3NDEKTSV4RRFFQ69G5FAV");
    cr_assert_eq(r.status, 66);
    cr_assert_not_null(strstr(r.err, "not found in 2 queues"), "%s", r.err);
    cr_assert_eq(ctl("explain", "1").status, 64, "a number needs a queue");
    r = ctl("explain", q);
    cr_assert(r.status == 64 && strstr(r.err, "give an id"), "%s", r.err);
    r = ctl("explain", id, q);
    cr_assert_eq(r.status, 64);
    snprintf(text, sizeof text, "did you mean mqctl explain %s %s?", q, id);
    cr_assert_not_null(strstr(r.err, text), "%s", r.err);
    cr_assert_eq(ctl("cancel", "1", q).status, 64);
    cr_assert_eq(ctl("set", "rate=5/s", q).status, 64);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_look, explain_knows_what_waits_died_and_was_discarded)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--backoff", "1h", "--on-exit", "3=discard",
                   "--", "sh", "-c", "read b; exit $b");
    const char *waits = ctl_send(q, "1\n"), *dead = ctl_send(q, "65\n");
    const char *gone = ctl_send(q, "3\n");

    harness_until(is_at(q, gone, "discarded"), SOON_MS);
    cr_assert(is_at(q, waits, "waiting"), "%s", where(q, waits));
    cr_assert(says(q, waits, "failed 1 time (last error: exit 1"), "%s",
              ctl("explain", q, waits).out);
    cr_assert(is_at(q, dead, "dead"));
    cr_assert(says(q, dead, "rejected"));
    cr_assert(is_at(q, "2", "dead"), "not found by mqdlq's number");
    cr_assert_eq(harness_run("mqdlq", "discard", "--state-dir",
                             harness_state_dir(), q, "--all")
                     .status,
                 0);
    cr_assert(is_at(q, dead, "removed"));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_look, explain_follows_a_replayed_letter_by_its_number)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "-c", "1", "--", "sh", "-c",
                                           "[ -e again ] || exit 65; " GATE);
    const char *id = ctl_send(q, "x");

    harness_until(is_at(q, id, "dead"), SOON_MS);
    harness_write("again", "", 0);
    cr_assert_eq(harness_run("mqdlq", "replay", "--state-dir",
                             harness_state_dir(), q, "1")
                     .status,
                 0);
    harness_until_lines("started", 1, SOON_MS);
    cr_assert(is_at(q, "1", "in_flight"), "%s", ctl("explain", q, "1").out);
    harness_write("open", "", 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_look, explain_names_what_releases_a_held_group)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(
        q, "--on-group-dead", "hold", "--max-attempts", "1", "--", "false");
    char dead[32], behind[32], release[600];

    snprintf(
        dead, sizeof dead, "%.26s",
        ctl_good(harness_run("mqsend", "--print-id", "--group", "g", q, "a")));
    harness_until(is_at(q, dead, "dead"), SOON_MS);
    snprintf(
        behind, sizeof behind, "%.26s",
        ctl_good(harness_run("mqsend", "--print-id", "--group", "g", q, "b")));
    snprintf(release, sizeof release, "mqctl group --state-dir %s %s g release",
             harness_state_dir(), q);
    harness_until(says(q, behind, release), SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_look, explain_names_the_head_of_a_group)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "2", "--backoff", "1h", "--", "false");
    char head[32], behind[32];

    snprintf(
        head, sizeof head, "%.26s",
        ctl_good(harness_run("mqsend", "--print-id", "--group", "g", q, "a")));
    harness_until(is_at(q, head, "waiting"), SOON_MS);
    snprintf(
        behind, sizeof behind, "%.26s",
        ctl_good(harness_run("mqsend", "--print-id", "--group", "g", q, "b")));
    harness_until(is_at(q, behind, "held"), SOON_MS);
    cr_assert(says(q, behind, "group g"), "%s", ctl("explain", q, behind).out);
    cr_assert(says(q, behind, head), "%s", ctl("explain", q, behind).out);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_look, explain_of_a_message_whose_worker_was_killed)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--", "sh", "-c", GATE);
    const char *id = ctl_send(q, "x");

    harness_until_lines("started", 1, SOON_MS);
    harness_kill(w);
    cr_assert(is_at(q, id, "held"));
    cr_assert(says(q, id, "runs again"), "%s", ctl("explain", q, id).out);
    harness_write("open", "", 0);
    w = ctl_worker(q, "-c", "1", "--", "sh", "-c", GATE);
    harness_until(is_at(q, id, "done"), SOON_MS);
    cr_assert_eq(ctl_number(q, "crashes"), 1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_look, explain_refuses_what_is_no_id)
{
    const char *q = harness_queue(0, 0);

    cr_assert_eq(ctl("explain", q, "hello").status, 64);
    cr_assert_eq(ctl("explain", q, "01JD3Z6Q9V0X8N5T2K7B4M1C3F").status, 66);
}

/* ---- queues, create, remove ---- */

Test(mqctl_look, queues_lists_a_queue_with_its_worker)
{
    const char *q = harness_queue(5, 64);
    struct harness_process *w = ctl_worker(q, "--", "true");
    struct harness_result r = ctl("queues", "--json");
    const char *at;
    json_t *o;

    cr_assert_eq(r.status, 0, "%s", r.err);
    at = strstr(r.out, q);
    cr_assert_not_null(at, "%s", r.out);
    while (at > r.out && at[-1] != '\n')
        at--;
    o = ctl_json(at);
    cr_assert_eq(json_integer_value(json_object_get(o, "queue_depth")), 5);
    cr_assert_eq(json_integer_value(json_object_get(o, "message_size")), 64);
    cr_assert_eq(json_integer_value(json_object_get(o, "charged")),
                 5 * 64 + 96 * 5);
    cr_assert_eq(json_integer_value(json_object_get(o, "pid")), harness_pid(w));
    json_decref(o);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_look, queues_without_a_list_says_what_is_missing)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w;
    struct harness_result r;

    if (geteuid() != 0 ||
        harness_run("grep", "-q", " mqueue ", "/proc/self/mounts").status ==
            0 ||
        !harness_has("setpriv"))
        cr_skip_test("the kernel's list can be read here");
    w = ctl_worker(q, "--", "true");
    r = harness_run("setpriv", "--bounding-set=-sys_admin",
                    "--inh-caps=-sys_admin", harness_bin("mqctl"), "queues",
                    "--state-dir", harness_state_dir());
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, q), "its folder is there: %s", r.out);
    cr_assert_not_null(strstr(r.err, "mount -t mqueue"), "%s", r.err);
    r = harness_run("setpriv", "--bounding-set=-sys_admin",
                    "--inh-caps=-sys_admin", harness_bin("mqctl"), "doctor",
                    "--state-dir", harness_state_dir());
    cr_assert(strstr(r.out, "-> mkdir -p /dev/mqueue && mount -t mqueue"), "%s",
              r.out);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_look, create_makes_a_queue_once_and_remove_takes_care)
{
    const char *q = harness_queue_name();
    struct harness_result r = harness_run("mqctl", "create", "--queue-depth",
                                          "3", "--message-size", "32", q);

    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "3 messages of up to 32 bytes"), "%s",
                       r.out);
    r = harness_run("mqctl", "create", "--queue-depth", "4", q);
    cr_assert_eq(r.status, 73);
    cr_assert_not_null(strstr(r.err, "differs"), "%s", r.err);
    harness_send_text(q, "x");
    r = ctl("remove", q);
    cr_assert_eq(r.status, 69);
    cr_assert_not_null(
        strstr(r.err,
               "holds 1 message, which would be lost; let a worker take it,"),
        "%s", r.err);
    cr_assert_eq(harness_queue_length(q), 1);
    r = ctl("remove", "--force", q);
    cr_assert_eq(r.status, 0);
    cr_assert_not_null(strstr(r.out, "removed with 1 message in it"), "%s",
                       r.out);
    cr_assert_eq(harness_queue_length(q), -1);
    cr_assert_eq(ctl("remove", q).status, 66);
}

Test(mqctl_look, create_and_remove_answer_programs)
{
    const char *q = harness_queue_name();
    struct harness_result r =
        harness_run("mqctl", "create", "-j", "--queue-depth", "3",
                    "--message-size", "32", q);
    char want[256];

    snprintf(want, sizeof want,
             "{\"queue\":\"%s\",\"created\":true,\"queue_depth\":3,"
             "\"message_size\":32}\n",
             q);
    cr_assert_str_eq(r.out, want, "%s", r.err);
    cr_assert_eq(harness_run("mqctl", "create", "-j", q).status, 73);
    snprintf(
        want, sizeof want,
        "{\"queue\":\"%s\",\"removed\":true,\"lost\":0,\"kept_in\":null}\n", q);
    cr_assert_str_eq(ctl_out("remove", "-j", q), want);
    r = harness_run("mqctl", "create", "-q", "--queue-depth", "3",
                    "--message-size", "32", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_str_eq(r.out, "");
    cr_assert_eq(harness_run("mqctl", "create", "-q", q).status, 73);
    cr_assert_str_eq(ctl_out("remove", "-q", q), "");
    cr_assert_eq(harness_queue_length(q), -1);
}

Test(mqctl_look, remove_refuses_a_queue_that_a_worker_consumes)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    struct harness_result r = ctl("remove", q);

    cr_assert_eq(r.status, 69);
    cr_assert_not_null(strstr(r.err, "mqctl drain --wait --state-dir /"), "%s",
                       r.err);
    cr_assert_eq(harness_queue_length(q), 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* ---- doctor ---- */

/* Return whether doctor's JSON has a check with that level. */
static bool finding(const char *out, const char *check, const char *level)
{
    char want[128];

    snprintf(want, sizeof want, "\"check\":\"%s\",\"level\":\"%s\"", check,
             level);
    return strstr(out, want) != NULL;
}

Test(mqctl_look, doctor_is_content_with_a_worker_that_works)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    const char *out = ctl("doctor", "--json", q).out;

    cr_assert(finding(out, "worker", "ok"), "%s", out);
    cr_assert(finding(out, "other consumers", "ok"), "%s", out);
    cr_assert(finding(out, "dead letters", "ok"), "%s", out);
    cr_assert_not_null(strstr(out, "\"fix\":null"), "%s", out);
    cr_assert(finding(out, "namespace", "ok") ||
                  finding(out, "namespace", "note"),
              "%s", out);
    cr_assert_not_null(strstr(out, " = 82880 and fits: one was created"), "%s",
                       out);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_look, doctor_finds_a_pause_and_dead_letters_and_says_what_mends)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--max-attempts", "1", "--", "false");
    struct harness_result r;

    harness_send_text(q, "x");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    ctl_out("pause", q);
    r = ctl("doctor", q);
    cr_assert_eq(r.status, 1);
    cr_assert_not_null(strstr(r.out, "-> mqctl resume --state-dir /"), "%s",
                       r.out);
    cr_assert_not_null(strstr(r.out, "-> mqdlq list --by error --state-dir /"),
                       "%s", r.out);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Return the place of the first finding of a level; NULL: there is none. */
static const char *place(const char *out, const char *level)
{
    char line[16];

    snprintf(line, sizeof line, "\n%-4s  ", level);
    return strncmp(out, line + 1, strlen(line + 1)) == 0 ? out
                                                         : strstr(out, line);
}

Test(mqctl_look, doctor_has_the_worst_first_and_counts_at_the_end)
{
    const char *q = harness_queue(1, 16), *bad, *warn, *ok, *last;
    struct harness_process *w = ctl_worker(q, "--", "true");
    struct harness_result r;
    unsigned fine = 0, notes = 0, found, wrong, warned;

    harness_kill(w);
    harness_send_text(q, "x");
    r = ctl("doctor", q);
    bad = place(r.out, "bad");
    warn = place(r.out, "warn");
    ok = place(r.out, "ok");
    cr_assert(bad && warn && ok && bad < warn && warn < ok, "%s", r.out);
    last = strstr(ok, " finding");
    cr_assert_not_null(last, "%s", r.out);
    while (last > r.out && last[-1] != '\n')
        last--;
    if (sscanf(last, "%u ok, %u note%*[s,] %u finding%*[s] (%u bad, %u warn)",
               &fine, &notes, &found, &wrong, &warned) != 5)
        cr_assert_eq(sscanf(last, "%u ok, %u finding%*[s] (%u bad, %u warn)",
                            &fine, &found, &wrong, &warned),
                     4, "%s", last);
    cr_assert(fine > 0 && wrong > 0 && warned > 0 && found == wrong + warned,
              "%s", last);
    cr_assert_eq(strchr(last, '\n')[1], '\0', "it is the last line: %s", r.out);
}

/* Return what mqctl prints on a terminal of 80 columns. script(1) ends each
 * line with \r\n. */
static const char *on_terminal(const char *arguments)
{
    char line[12288];

    snprintf(
        line, sizeof line,
        "stty cols 80; NO_COLOR=1 exec '%s' %s --state-dir '%s' </dev/null",
        harness_bin("mqctl"), arguments, harness_state_dir());
    return harness_run("script", "-qec", line, "/dev/null").out;
}

/* The name of the queue and one more word do not fit into 80 columns. */
Test(mqctl_look, doctor_breaks_its_lines_also_behind_a_long_name)
{
    const char *q = harness_queue(3, 64), *out;
    char name[128], command[160];

    snprintf(name, sizeof name, "%s-%s", q,
             "named-so-that-it-takes-nearly-a-whole-line-of-a-screen");
    snprintf(command, sizeof command, "doctor %s", name);
    out = on_terminal(command);
    cr_assert_not_null(strstr(out, name), "%s", out);
    for (const char *at = out; *at; at += strspn(at, "\r\n")) {
        size_t size = strcspn(at, "\r\n");

        cr_assert(size <= 80 || *at == ' ', "%.*s", (int)size, at);
        at += size;
    }
}

Test(mqctl_look, doctor_says_that_a_killed_worker_had_nothing_in_flight)
{
    const char *q = harness_queue(3, 64);
    struct harness_process *w = ctl_worker(q, "--", "true");
    struct harness_result r;

    harness_kill(w);
    r = ctl("doctor", q);
    cr_assert_not_null(strstr(r.out, "was killed; it had no message in flight"),
                       "%s", r.out);
}

/* The settings must not scroll away what a person looks for. */
Test(mqctl_look, status_of_a_queue_has_its_settings_on_lines_of_the_terminal)
{
    const char *q = harness_queue(3, 64), *out, *from, *end;
    struct harness_process *w = ctl_worker(q, "--", "true");
    char command[160];
    int lines = 0;

    snprintf(command, sizeof command, "status %s", q);
    out = on_terminal(command);
    from = strstr(out, "settings ");
    cr_assert(from && strstr(from, " max-attempts=5"), "%s", out);
    for (; *from; from = end + strspn(end, "\r\n"), lines++) {
        end = from + strcspn(from, "\r\n");
        cr_assert_leq(end - from, 80, "%s", from);
    }
    cr_assert_lt(lines, 12, "%s", out);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* A narrow terminal must not cut the state of a queue. */
Test(mqctl_look, queues_at_80_columns_say_that_there_is_no_queue)
{
    const char *q = harness_queue(3, 64), *out, *end;
    struct harness_process *w = ctl_worker(q, "--", "true");

    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(ctl("remove", q).status, 0);
    out = strstr(on_terminal("queues"), q);
    cr_assert_not_null(out);
    end = strchr(out, '\r');
    cr_assert(end && end - out > 10 && strncmp(end - 10, "  no queue", 10) == 0,
              "%.80s", out);
}

Test(mqctl_look, doctor_finds_a_queue_that_is_not_as_the_flags_say)
{
    const char *q = harness_queue(5, 64);
    struct harness_process *w =
        ctl_worker(q, "--queue-depth", "7", "--", "true");
    const char *out = ctl("doctor", "--json", q).out;

    cr_assert(finding(out, "attributes", "warn"), "%s", out);
    cr_assert(strstr(out, "5") && strstr(out, "7"), "%s", out);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_look, doctor_finds_a_killed_worker_and_a_full_queue)
{
    const char *q = harness_queue(1, 16);
    struct harness_process *w = ctl_worker(q, "--", "true");
    const char *out;

    harness_kill(w);
    harness_send_text(q, "x");
    out = ctl("doctor", "--json", q).out;
    cr_assert(finding(out, "worker", "bad"), "%s", out);
    cr_assert(finding(out, "queue", "warn"), "%s", out);
}

/* A child between fork and exec still has all descriptors of the worker. The
 * plugin makes two children that stay in that state. */
Test(mqctl_look, doctor_takes_a_copy_of_the_worker_for_no_other_consumer)
{
    const char *q = harness_queue(0, 0), *out;
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--plugin", harness_plugin("copies"));

    harness_send_text(q, "x");
    harness_until_lines("copies", 2, SOON_MS);
    out = ctl("doctor", "--json", q).out;
    cr_assert(finding(out, "other consumers", "ok"), "%s", out);
    harness_write("open", "", 0);
    harness_until(ctl_number(q, "done") == 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_look, doctor_finds_a_handler_that_opened_the_queue_for_itself)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--", harness_handler("hold"));
    char text[32];

    harness_send_text(q, "x");
    harness_until_lines("holds", 1, SOON_MS);
    snprintf(text, sizeof text, "kill %d", atoi(harness_read("holds", NULL)));
    cr_assert_not_null(strstr(ctl("doctor", q).out, text), "%s",
                       ctl("doctor", q).out);
    harness_write("open", "", 0);
    harness_until(ctl_number(q, "done") == 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Block in mq_receive until killed. */
static void receive(const char *q)
{
    char buf[8192];
    mqd_t d = mq_open(q, O_RDONLY);

    (void)!mq_receive(d, buf, sizeof buf, NULL);
    _exit(0);
}

Test(mqctl_look, doctor_finds_who_blocks_in_mq_receive)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    pid_t pid = fork();
    char text[32];

    if (pid == 0)
        receive(q);
    snprintf(text, sizeof text, "kill %d", (int)pid);
    harness_until(strstr(ctl("doctor", q).out, text), SOON_MS);
    harness_until(strstr(ctl("doctor", q).out, "blocked in mq_receive"),
                  SOON_MS);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    cr_assert_null(strstr(ctl("doctor", q).out, text));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* systemd has the queue of mqworker@.socket open, and must not be killed. */
Test(mqctl_look, doctor_does_not_take_systemd_for_a_consumer)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    pid_t pid = fork();
    char text[32];

    if (pid == 0) {
        (void)prctl(PR_SET_NAME, "systemd");
        if (mq_open(q, O_RDONLY) >= 0)
            harness_write("is-open", "", 0);
        for (;;)
            pause();
    }
    snprintf(text, sizeof text, "kill %d", (int)pid);
    harness_until(harness_exists("is-open"), SOON_MS);
    const char *out = ctl("doctor", q).out;
    cr_assert_not_null(strstr(out, "hangs at a reboot"), "%s", out);
    cr_assert_null(strstr(out, text), "%s", out);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* The name of this queue has commands that a shell would run without quotes. */
Test(mqctl_look, printed_commands_can_be_copied_into_a_shell)
{
    const char *script;
    struct harness_result r;

    if (harness_run(OWN_QUEUES, "true").status != 0)
        cr_skip_test("no permission for a name space");
    script = harness_script(
        "copied",
        "set -e; s=\"--state-dir $1\"; cd ${0%/*}; PATH=${2%/*}:$PATH\n"
        "q=\"/it's \\$(touch ran); touch ran\"\n"
        "make() { mqctl create -q --queue-depth 1 --message-size $1 \"$q\"; }\n"
        "make 64\n"
        "make 65 2>&1 | sed 's/.*with //' >remove\n"
        ". ./remove | wc -l\n"
        "make 64; mqctl doctor $s | sed -n 's/ *-> \\(mqctl remove \\)/\\1/p' "
        ">orphan; . ./orphan | wc -l\n"
        "mqsend --no-wait \"$q\" x 2>&1 | sed 's/.*`\\(.*\\)`.*/\\1/' >create\n"
        ". ./create | sed 's/.*\\(created\\).*/\\1/'; mqctl remove -q \"$q\"\n"
        "[ ! -e ran ]; cat remove\n");
    r = harness_run(OWN_QUEUES, script, harness_state_dir(),
                    harness_bin("mqctl"));
    cr_assert_eq(r.status, 0, "%d: %s%s", r.status, r.out, r.err);
    cr_assert_str_eq(r.out,
                     "1\n1\ncreated\nmqctl remove '/it'\\''s $(touch ran); "
                     "touch ran'\n",
                     "%s%s", r.out, r.err);
}

Test(mqctl_look, doctor_advises_a_limit_above_what_queues_use)
{
    struct harness_result r;

    if (harness_run(OWN_QUEUES, "true").status != 0)
        cr_skip_test("no permission for a name space");
    if (harness_run("prlimit", "--msgqueue=unlimited", "true").status != 0)
        cr_skip_test("no permission to raise a limit");
    r = harness_run(
        OWN_QUEUES, "sh", "-c",
        "prlimit --msgqueue=unlimited \"$1\" create -q --queue-depth 10 "
        "--message-size 900000 /large && "
        "prlimit --msgqueue=9050000 \"$1\" doctor --state-dir \"$2\" /large",
        "sh", harness_bin("mqctl"), harness_state_dir());
    /* 10 x 900000 + 96 x 10 are in use; another queue of 10 x 8192 costs
     * 82880. */
    cr_assert_not_null(strstr(r.out, "ulimit -q 9083840 "), "%s%s", r.out,
                       r.err);
}

/* A mounted mqueue file system still lists the queues of the old namespace. */
Test(mqctl_look, queues_of_another_ipc_namespace_are_not_listed)
{
    const char *q = harness_queue(1, 64);
    struct harness_result r;

    if (harness_run(OWN_QUEUES, "true").status != 0)
        cr_skip_test("no permission for a name space");
    r = harness_run("unshare", "-m", "sh", "-c",
                    "mkdir m && mount -t mqueue none m && [ -e \"m$1\" ] &&"
                    "exec unshare -i \"$2\" queues --state-dir \"$3\"",
                    "sh", q, harness_bin("mqctl"), harness_state_dir());
    cr_assert_eq(r.status, 0, "%d: %s%s", r.status, r.out, r.err);
    cr_assert_null(strstr(r.out, q), "%s", r.out);
}

Test(mqctl_look, a_glob_removes_nothing_without_orphans)
{
    struct harness_result r =
        harness_run("mqctl", "remove", "--match", "/mqwt-none-*");

    cr_assert_eq(r.status, 64);
    cr_assert_str_eq(r.err, "mqctl: remove: --match needs --orphans; give "
                            "both, or name the queues\n");
}

Test(mqctl_look, queues_that_no_process_has_open_are_named_and_removed)
{
    const char *dir = harness_state_dir(), *script;
    struct harness_result r;

    if (harness_run(OWN_QUEUES, "true").status != 0)
        cr_skip_test("no permission for a name space");
    script = harness_script(
        "orphans",
        "set -e; s=\"--state-dir $1\"; cd ${0%/*}; PATH=${2%/*}:$PATH\n"
        "for q in /empty /full /held /kept /other; do\n"
        "mqctl create -q --queue-depth 2 --message-size 256 $q; done\n"
        "mqsend -q /full x; mqsend -q /kept x\n"
        "mqworker $s --max-attempts 1 --max-deliveries 1 /kept -- false "
        "2>kept.log\n"
        "mqworker $s /held -- true 2>held.log & w=$!\n"
        "until grep -q event=started held.log; do sleep 0.01; done\n"
        "mqctl doctor $s >doctor || true\n"
        "mkdir mq; mount -t mqueue none mq; touch -m -d '3 hours ago' mq/empty "
        "mq/full; umount mq\n"
        "mqctl remove $s --orphans --match '/[efhk]*' -n >dry 2>&1 || true\n"
        "mqctl remove $s --force -n /full >>dry\n"
        "mqctl remove $s --orphans --match '[efhk]*' >done 2>&1 || echo $?\n"
        "mqctl queues | sed 's/ .*//' | tr '\\n' ' '; echo\n"
        "mqctl remove $s --orphans --force >/dev/null\n"
        "mqctl queues | sed 's/ .*//' | tr '\\n' ' '; kill $w; wait $w\n"
        "mqctl remove $s -q /held; mqctl remove $s --orphans --match '/x*'\n"
        "mqctl remove $s --orphans\n");
    r = harness_run(OWN_QUEUES, script, dir, harness_bin("mqctl"));
    cr_assert_eq(r.status, 0, "%d: %s%s%s%s", r.status, r.out, r.err,
                 harness_read("kept.log", NULL),
                 harness_read("held.log", NULL));
    cr_assert_str_eq(r.out,
                     "69\nQUEUE /full /held /kept /other \n"
                     "QUEUE /held no orphan has a name that matches /x*\n"
                     "no orphans: each accessible queue is open in "
                     "some process, or has a worker\n");
    const char *text = harness_read("doctor", NULL);
    cr_assert_not_null(
        strstr(text, "note  orphans: no process has /full open: owner root, "
                     "704 bytes "
                     "charged, 1 message, unused for"),
        "%s", text);
    cr_assert_not_null(strstr(text, "-> mqworker /full -- COMMAND, or, to "
                                    "delete its 1 message: mqctl remove "
                                    "--force /full\n"),
                       "%s", text);
    cr_assert_not_null(strstr(text, "-> mqctl remove /empty\n"), "%s", text);
    cr_assert_null(strstr(text, "warn  orphans"), "%s", text);
    cr_assert_null(strstr(text, "has /held open"), "%s", text);
    text = harness_read("dry", NULL);
    cr_assert_not_null(strstr(text, "/empty: would be removed: owner root, "),
                       "%s", text);
    /* It has been looked at since, but not used. */
    cr_assert_not_null(strstr(text, "0 messages, unused for 3h\n"), "%s", text);
    cr_assert_not_null(
        strstr(text, "/full: would be removed with 1 message in it\n"), "%s",
        text);
    text = harness_read("done", NULL);
    cr_assert_not_null(strstr(text, "/empty: removed"), "%s", text);
    cr_assert_not_null(strstr(text, "/full holds 1 message,"), "%s", text);
    cr_assert_not_null(strstr(text, "/kept was not removed"), "%s", text);
    cr_assert_null(strstr(text, "/held"), "%s", text);
}

/* The kernel charges a user for queues of all IPC namespaces; doctor sees those
 * of one. */
Test(mqctl_look, doctor_tries_whether_another_queue_fits)
{
    const char *q = harness_queue(10, 8192);
    struct harness_process *w;
    struct harness_result r;
    char line[128];

    if (harness_run(OWN_QUEUES, "true").status != 0)
        cr_skip_test("no permission for a name space");
    r = harness_run(OWN_QUEUES, "prlimit", "--msgqueue=100000",
                    harness_bin("mqctl"), "doctor", "--state-dir",
                    harness_state_dir());
    cr_assert_eq(r.status, 1, "%s", r.out);
    cr_assert_not_null(strstr(r.out, " of 100000 bytes"), "%s", r.out);
    cr_assert_not_null(strstr(r.out, "fails with EMFILE"), "%s", r.out);
    w = ctl_ready(harness_program("prlimit", "--msgqueue=90000",
                                  harness_bin("mqworker"), "--state-dir",
                                  harness_state_dir(), q, "--", "true"));
    r = ctl("doctor", q);
    snprintf(line, sizeof line, "of 90000 bytes that worker %d of %s may have",
             (int)harness_pid(w), q);
    cr_assert_not_null(strstr(r.out, line), "%s", r.out);
    /* Other tests may try a queue at the same time. */
    harness_until(!strstr(ctl_out("queues", NULL), "/mqworker-probe-"),
                  SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* The script has its own /etc and /run, where systemd runs and the queue has a
 * unit. */
Test(mqctl_look, a_worker_that_is_gone_is_started_by_its_unit_if_there_is_one)
{
    static const char script[] =
        "mount --make-rprivate / && mount -t tmpfs none /etc && "
        "mount -t tmpfs none /run && mkdir -p /etc/mqworker && "
        "mkdir -p /run/systemd/system && : >/etc/mqworker$1.conf && "
        "for v in status explain doctor pause; do i=; [ $v != explain ] || "
        "i=1; \"$0\" $v --state-dir \"$2\" $1 $i; done 2>&1";
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--backoff", "1h", "--", "false");
    struct harness_result r;
    char unit[64];
    const char *at;

    if (harness_run("unshare", "-m", "true").status != 0)
        cr_skip_test("no permission for a name space");
    harness_send_text(q, "x");
    harness_until(ctl_number(q, "waiting") == 1, SOON_MS);
    harness_kill(w);
    r = ctl("status", q);
    snprintf(unit, sizeof unit, "start one with mqworker %s -- COMMAND", q);
    cr_assert_not_null(strstr(r.err, unit), "%s", r.err);
    r = harness_run("unshare", "-m", "sh", "-c", script, harness_bin("mqctl"),
                    q, harness_state_dir());
    snprintf(unit, sizeof unit, "systemctl start mqworker@%s", q + 1);
    at = r.out;
    for (int i = 0; i < 4; i++) { /* each verb names the unit */
        at = strstr(at, unit);
        cr_assert_not_null(at, "%d: %s", i, r.out);
        at++;
    }
    cr_assert_null(strstr(r.out, "-- COMMAND"), "%s", r.out);
}

Test(mqctl_look, one_is_not_plural)
{
    const char *q = harness_queue_name();
    struct harness_result r = harness_run("mqctl", "create", "--queue-depth",
                                          "1", "--message-size", "1", q);

    cr_assert_not_null(strstr(r.out, "(1 message of up to 1 byte)\n"), "%s",
                       r.out);
    r = ctl("status", q);
    cr_assert_not_null(
        strstr(r.out, "0 of 1 message, 0 bytes; at most 1 byte each"), "%s",
        r.out);
    r = ctl("doctor", q);
    cr_assert_not_null(strstr(r.out, "0 of 1 message, 0 bytes"), "%s", r.out);
}

Test(mqctl_look, doctor_prints_nothing_but_findings_if_it_is_told_so)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    struct harness_result r;

    r = ctl("doctor", "-q", q);
    cr_assert_null(strstr(r.out, "ok "), "%s", r.out);
    cr_assert_null(strstr(r.out, q), "%s", r.out);
    ctl_out("pause", q);
    r = ctl("doctor", "-q", q);
    cr_assert_eq(r.status, 1);
    cr_assert_not_null(strstr(r.out, "worker: paused"), "%s", r.out);
    r = ctl("doctor", "-q", "--json", q);
    cr_assert_null(strstr(r.out, "\"ok\""), "%s", r.out);
    cr_assert_not_null(strstr(r.out, "\"paused\""), "%s", r.out);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}
