/* test_mqctl_steer_messages.c - mqctl run-now, cancel: with and without a
 * worker, and beside its kills */
#include <sys/syscall.h>

#include "tests/e2e/tools/mqctl_fixture.h"
#include "tests/harness/disk.h"

TestSuite(mqctl_steer_messages, .init = harness_init, .fini = harness_fini);

static const char *send_one(const char *q, const char *flag, const char *value,
                            const char *body)
{
    static char ids[16][32];
    static unsigned next;
    char *id = ids[next++ % 16];

    snprintf(
        id, sizeof ids[0], "%.26s",
        ctl_good(harness_run("mqsend", "--print-id", flag, value, q, body)));
    return id;
}

/* Count the messages in a state. */
static int listed(const char *q, const char *state)
{
    const char *text = ctl_out("list", "--json", "--state", state, q);
    int n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Return whether explain places a message there. */
static bool where_is(const char *q, const char *id, const char *place)
{
    struct harness_result r = ctl("explain", "--json", q, id);
    json_t *o = ctl_json(r.out);
    bool is =
        strcmp(json_string_value(json_object_get(o, "where")), place) == 0;

    json_decref(o);
    return is;
}

/* A handler that notes each body, and fails for "fail". */
#define NOTE "read b; echo \"$b\" >>ran; [ \"$b\" != fail ]"

static size_t notes(const char *word)
{
    return harness_exists("ran") ? harness_lines_with("ran", word) : 0;
}

Test(mqctl_steer_messages, run_now_beside_a_worker)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--backoff", "1h", "--", "sh", "-c", NOTE);
    const char *later = send_one(q, "--delay", "1h", "later\n");
    const char *fails = send_one(q, "--priority", "0", "fail\n");

    harness_until(listed(q, "retry") == 1 && listed(q, "delayed") == 1,
                  SOON_MS);
    cr_assert_not_null(strstr(ctl_out("run-now", q, later), "1 of 1 message"));
    harness_until(where_is(q, later, "done"), SOON_MS);
    cr_assert_eq(ctl("run-now", "--state", "retry", q).status, 0);
    harness_until(notes("fail") == 2, SOON_MS);
    harness_until(listed(q, "retry") == 1, SOON_MS);
    cr_assert_eq(ctl("run-now", q, later).status, 66, "it ran again");
    cr_assert(where_is(q, fails, "waiting"));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_steer_messages, cancel_beside_a_worker_ends_as_discarded)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--backoff", "1h", "--", "sh", "-c", NOTE);
    const char *later = send_one(q, "--delay", "1h", "later\n");
    const char *fails = send_one(q, "--priority", "0", "fail\n");

    harness_until(listed(q, "retry") == 1 && listed(q, "delayed") == 1,
                  SOON_MS);
    cr_assert_eq(ctl("cancel", q, later, fails).status, 0);
    cr_assert_eq(listed(q, "retry,delayed"), 0, "still listed");
    harness_until(ctl_number(q, "discarded") == 2, SOON_MS);
    harness_wait_log(w, "error=cancelled", SOON_MS);
    cr_assert(where_is(q, later, "discarded"));
    cr_assert_eq(notes("later"), 0);
    cr_assert_eq(notes("fail"), 1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_steer_messages, a_group_goes_on_without_its_cancelled_head)
{
    const char *q = harness_queue(4, 256);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--backoff", "1h", "--lookahead", "2", "--",
                   "sh", "-c", NOTE);
    const char *head = send_one(q, "--group", "g", "fail\n"), *parked;

    harness_until(listed(q, "retry") == 1, SOON_MS);
    send_one(q, "--group", "g", "second\n");
    send_one(q, "--group", "g", "third\n");
    parked = send_one(q, "--group", "g", "fourth\n");
    send_one(q, "--group", "g", "fifth\n");
    harness_until(listed(q, "parked") == 4 && ctl_number(q, "parked") >= 3,
                  SOON_MS);
    for (;;) { /* "third" may be in a slot, where it cannot be cancelled */
        struct harness_result r = ctl("cancel", "--match", "third", q);

        cr_assert_eq(r.status, 0, "%s", r.err);
        if (!strstr(r.err, "in flight"))
            break;
    }
    cr_assert_eq(ctl("cancel", "--limit", "1", "--match", "second", q).status,
                 0);
    cr_assert_eq(ctl("cancel", q, head).status, 0);
    harness_until(notes("fifth") == 1, SOON_MS);
    cr_assert(where_is(q, parked, "done"));
    cr_assert_eq(notes("third"), 0);
    cr_assert_eq(notes("fail"), 1, "its head ran again");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_steer_messages, what_runs_is_left_alone)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--", "sh", "-c",
                   "echo x >>started; while [ ! -e open ]; do sleep 0.02; "
                   "done");
    const char *id = ctl_send(q, "x");
    struct harness_result r;

    harness_until_lines("started", 1, SOON_MS);
    r = ctl("cancel", q, id);
    cr_assert_eq(r.status, 75, "%d: %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, "in flight"), "%s", r.err);
    r = ctl("cancel", "--all", "--json", q);
    cr_assert_eq(r.status, 0);
    cr_assert_not_null(strstr(r.out, "\"done\":0"), "%s", r.out);
    harness_write("open", "", 0);
    harness_until(where_is(q, id, "done"), SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_steer_messages, without_a_worker_and_after_a_kill)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--backoff", "1h", "--", "sh", "-c", NOTE);
    const char *gone = send_one(q, "--delay", "1h", "gone\n");
    const char *soon = send_one(q, "--delay", "1h", "soon\n");

    harness_until(listed(q, "delayed") == 2, SOON_MS);
    harness_kill(w);
    cr_assert_eq(ctl("cancel", q, gone).status, 0);
    cr_assert_eq(ctl("cancel", q, gone).status, 0, "a repeat is no error");
    cr_assert_eq(ctl("run-now", q, soon).status, 0);
    cr_assert_eq(listed(q, "ready"), 1);
    cr_assert_eq(listed(q, "delayed"), 0);
    w = ctl_worker(q, "-c", "1", "--", "sh", "-c", NOTE);
    harness_until(where_is(q, soon, "done") && where_is(q, gone, "discarded"),
                  SOON_MS);
    cr_assert_eq(notes("gone"), 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Return how many messages wait, as status says without a worker. */
static long waits(const char *q)
{
    json_t *o = ctl_json(ctl("status", "--json", q).out);
    long n = (long)json_integer_value(json_object_get(o, "waiting"));

    json_decref(o);
    return n;
}

Test(mqctl_steer_messages, what_was_cancelled_does_not_wait_for_a_worker)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "sh", "-c", NOTE);
    const char *one = send_one(q, "--delay", "1h", "one\n");
    struct harness_result r;

    send_one(q, "--delay", "1h", "two\n");
    harness_until(listed(q, "delayed") == 2, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(ctl("cancel", q, one).status, 0);
    cr_assert_eq(waits(q), 1);
    r = ctl("doctor", q);
    cr_assert(strstr(r.out, "messages are waiting: 0 in the queue"), "%s",
              r.out);
    cr_assert_eq(ctl("cancel", "--all", q).status, 0);
    cr_assert_eq(waits(q), 0);
    r = ctl("doctor", q);
    cr_assert(
        strstr(r.out, "no worker is running, and no messages are waiting"),
        "%s", r.out);
    w = ctl_worker(q, "--", "sh", "-c", NOTE);
    harness_until(where_is(q, one, "discarded"), SOON_MS);
    harness_until(ctl_number(q, "discarded") == 2, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_steer_messages, what_a_killed_worker_had_is_left_alone)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--", "sh", "-c",
                   "echo x >>started; while [ ! -e open ]; do sleep 0.02; "
                   "done");
    const char *id = ctl_send(q, "x");

    harness_until_lines("started", 1, SOON_MS);
    harness_kill(w);
    cr_assert_eq(ctl("cancel", q, id).status, 75, "it may have run");
    harness_write("open", "", 0);
    w = ctl_worker(q, "--", "true");
    harness_until(where_is(q, id, "done"), SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* A cancelled message does not run, whenever the worker is killed. */
Test(mqctl_steer_messages, kills_between_an_order_and_its_end)
{
    const char *q = harness_queue(4, 256);
    struct harness_process *w =
        ctl_worker(q, "-c", "2", "--backoff", "1h", "--", "sh", "-c", NOTE);
    struct harness_result r;

    for (int round = 0; round < 12; round++) {
        char body[32], rest[32];

        snprintf(body, sizeof body, "no%d.\n", round);
        snprintf(rest, sizeof rest, "yes%d.\n", round);
        send_one(q, "--delay", "1h", body);
        send_one(q, "--delay", "1h", rest);
        harness_until(listed(q, "delayed") == 2, SOON_MS);
        snprintf(body, sizeof body, "no%d.", round);
        snprintf(rest, sizeof rest, "yes%d.", round);
        r = ctl("cancel", "--match", body, q);
        cr_assert_eq(r.status, 0, "%s", r.err);
        r = ctl("run-now", "--match", rest, q);
        cr_assert_eq(r.status, 0, "%s", r.err);
        harness_kill(w);
        w = ctl_worker(q, "-c", "2", "--backoff", "1h", "--", "sh", "-c", NOTE);
        harness_until(notes(rest) >= 1 && listed(q, "delayed,ready") == 0,
                      SOON_MS);
        cr_assert_eq(notes(body), 0, "%s ran", body);
    }
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Return a copy of a file, which the caller frees. */
static char *file_copy(const char *path, size_t *size)
{
    const char *text = harness_read(path, size);
    char *copy = malloc(*size);

    cr_assert(copy && *size > 0);
    return memcpy(copy, text, *size);
}

/* Return whether it waits for a lock of the store: it sleeps for nothing else
 */
static bool naps(const struct harness_process *p)
{
    const char *call = harness_read(
        harness_path("/proc/%ld/syscall", (long)harness_pid(p)), NULL);

    return atol(call) == SYS_clock_nanosleep;
}

/* cancel checks inside its transaction what a killed worker has in hand. Here a
 * worker seems to begin the message and die while mqctl waits for the store. */
Test(mqctl_steer_messages, what_was_begun_before_the_commit_is_left_alone)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--", "sh", "-c", "echo >>began; sleep 100");
    const char *id = send_one(q, "--delay", "1h", "later\n");
    const char *path = harness_custody(q);
    size_t idle_size, begun_size;
    char *idle, *begun;

    harness_until(listed(q, "delayed") == 1, SOON_MS);
    idle = file_copy(path, &idle_size);
    ctl_out("run-now", q, id);
    harness_until(harness_exists("began"), SOON_MS);
    harness_kill(w);
    begun = file_copy(path, &begun_size);
    harness_write(path, idle, idle_size);

    struct sqlite3 *lock = disk_lock(q);
    struct harness_process *c = harness_program(
        "mqctl", "cancel", "--state-dir", harness_state_dir(), q, id);
    harness_until(naps(c), SOON_MS);
    harness_write(path, begun, begun_size);
    disk_unlock(lock);
    cr_assert_eq(harness_wait(c, SOON_MS), 75, "%s", harness_stderr(c, NULL));
    cr_assert_not_null(strstr(harness_stderr(c, NULL), "in flight"));

    w = ctl_worker(q, "--", "sh", "-c", NOTE);
    harness_until(notes("later") == 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    free(idle);
    free(begun);
}

Test(mqctl_steer_messages, more_than_one_batch_by_a_filter)
{
    const char *q = harness_queue(4, 256);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--", "sh", "-c", NOTE);
    struct harness_result r;

    for (int i = 0; i < 70; i++)
        cr_assert_eq(harness_run("mqsend", "--delay", "1h", q, "many").status,
                     0);
    harness_until(listed(q, "delayed") == 70, SOON_MS);
    r = ctl("cancel", "--json", "--state", "delayed", q);
    cr_assert_not_null(strstr(r.out, "\"done\":70"), "%s", r.out);
    harness_until(ctl_number(q, "discarded") == 70, SOON_MS);
    cr_assert_eq(ctl_number(q, "waiting"), 0);
    cr_assert_eq(notes("many"), 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_steer_messages, what_is_wrong_is_told)
{
    const char *q = harness_queue(0, 0);

    cr_assert_eq(ctl("cancel", q).status, 64);
    cr_assert_eq(ctl("cancel", "--all", q, "7").status, 64);
    cr_assert_eq(harness_stop(ctl_worker(q, "--", "true"), SOON_MS), 0);
    cr_assert_eq(ctl("cancel", q, "seven").status, 64);
    for (int i = 0; i < 4; i++) {
        const char *verb = i % 2 ? "cancel" : "run-now";
        struct harness_result r =
            i < 2 ? ctl(verb, q, "7") : ctl(verb, "-n", q, "7");

        cr_assert_eq(r.status, 66);
        cr_assert_str_eq(r.err,
                         "mqctl: 7: no such waiting or running message\n");
        cr_assert_not_null(strstr(r.out, ": 0 of 1 message "), "%s", r.out);
    }
}

Test(mqctl_steer_messages, a_dead_letter_is_left_to_mqdlq)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--max-attempts", "1", "--", "false");
    char text[600];

    harness_send_text(q, "x");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    for (int i = 0; i < 3; i++) {
        struct harness_result r = i == 0   ? ctl("cancel", q, "1")
                                  : i == 1 ? ctl("cancel", "-n", q, "1")
                                           : ctl("run-now", q, "1");

        cr_assert_eq(r.status, 66, "%d: %s", r.status, r.err);
        snprintf(text, sizeof text,
                 "mqctl: 1: a dead letter; use mqdlq %s --state-dir %s %s 1\n",
                 i < 2 ? "discard" : "replay", harness_state_dir(), q);
        cr_assert_str_eq(r.err, text);
        if (i == 1)
            cr_assert_eq(harness_stop(w, SOON_MS), 0);
    }
}
