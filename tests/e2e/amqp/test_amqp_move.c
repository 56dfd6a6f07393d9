/* test_amqp_move.c - mqctl move: a POSIX queue to a broker, also under kills */
#define AMQP_BROKER 1
#include <unistd.h>

#include "common/base/clock.h"
#include "common/store/letters.h"
#include "common/state/statedir.h"
#include "common/state/worker_lock.h"
#include "common/store/spool.h"
#include "tests/e2e/amqp/amqp_fixture.h"

TestSuite(amqp_move, .init = amqp_init, .fini = amqp_fini);

#define OP amqp_operand(amqp_queue, 1)
#define MOVE(...)                                                    \
    harness_run("mqctl", "move", "--state-dir", harness_state_dir(), \
                __VA_ARGS__)

#define SORTS                               \
    "read b; echo said-$b >&2; case $b in " \
    "retry*) exit 1;; dead*) exit 100;; esac"

/* Put a policy on the broker's queue; NULL: remove it. */
static void policy(const char *definition)
{
    char pattern[100];
    struct harness_result r;

    snprintf(pattern, sizeof pattern, "^%s$", amqp_queue);
    r = definition ? amqp_ctl("set_policy", amqp_queue, pattern, definition)
                   : amqp_ctl("clear_policy", amqp_queue);
    cr_assert_eq(r.status, 0, "%s", r.err);
}

/* Fill the queue until the broker refuses messages. Returns how many it took.
 */
static long full(void)
{
    policy("{\"max-length\":1,\"overflow\":\"reject-publish\"}");
    return amqp_fill(amqp_queue);
}

/* Start a move that has taken all messages while the broker is full. *taken
 * (may be NULL): messages that the broker took before. */
static struct harness_process *moving(const char *q, long *taken)
{
    struct harness_process *m;
    long before = full();

    if (taken)
        *taken = before;
    m = harness_program("mqctl", "move", "--state-dir", harness_state_dir(), q,
                        OP);
    harness_until(harness_queue_length(q) == 0, 30000);
    return m;
}

/* Send "b0.", "b1.", ... */
static void numbered_send(const char *q, int count)
{
    char body[16];

    for (int i = 0; i < count; i++) {
        snprintf(body, sizeof body, "b%d.", i);
        harness_send_text(q, body);
    }
}

/* Check that each of the numbered messages ran once. */
static void numbered_ran(int count)
{
    char body[16];

    for (int i = 0; i < count; i++) {
        snprintf(body, sizeof body, " b%d.", i);
        cr_assert_eq(harness_lines_with("runs", body), 1, "%s", body);
    }
}

/* Start a worker of the broker that writes a line to "runs" for each message.
 * It may have messages in hand although the queue has none ready. */
static struct harness_process *consumer(void)
{
    return amqp_worker("-c", "4", "--", harness_handler("record"));
}

/* Run a consumer until there are that many lines. */
static void consumed(size_t lines)
{
    struct harness_process *w = consumer();

    harness_until_lines("runs", lines, 60000);
    harness_until(amqp_ready(amqp_queue) == 0, 20000);
    cr_assert_eq(harness_stop(w, 20000), 0);
}

Test(amqp_move, all_of_it_goes_there_with_what_it_says)
{
    const char *q = harness_queue(10, 1024);
    struct harness_process *w = harness_worker(
        q, "--backoff", "1h", "--on-exit", "100=dead", "--", "sh", "-c", SORTS);
    struct harness_result r;

    harness_wait_log(w, "event=started", 20000);
    harness_send_text(q, "retry-me\n");
    harness_send_text(q, "dead-one\n");
    harness_wait_log(w, "event=retry", 20000);
    harness_wait_log(w, "event=dead", 20000);
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 69, "%d %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, "mqctl drain --wait --state-dir /"), "%s",
                       r.err);
    cr_assert_eq(harness_stop(w, 20000), 0);
    r = harness_run("mqsend", "--header", "x-who=me", "--print-id", q, "first");
    cr_assert_eq(r.status, 0, "%s", r.err);
    harness_send_text(q, "plain");
    harness_send_text(q, "MQW/1\nid: broken\n\nx");
    r = MOVE("--letters", q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "moved 5 messages"), "%s", r.out);
    cr_assert_not_null(
        strstr(r.out, "2 in the queue, 1 waiting, 2 dead letters"), "%s",
        r.out);
    cr_assert_eq(harness_queue_length(q), 0);
    harness_until(amqp_ready(amqp_queue) == 3, 20000);
    cr_assert_eq(amqp_ready(amqp_of("dead")), 2);
    r = harness_run("mqdlq", "export", OP);
    cr_assert_not_null(strstr(r.out, "said-dead-one"), "%s %s", r.out, r.err);
    cr_assert_not_null(strstr(r.out, "bad-header"), "%s", r.out);
    consumed(2);
    cr_assert_eq(harness_lines_with("runs", "first"), 1);
    cr_assert(amqp_ready(amqp_of("wait.960000")) == 1 ||
                  amqp_ready(amqp_of("wait.3600000")) == 1,
              "the retry waits there");
    r = MOVE("--json", q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "\"moved\":0"), "%s", r.out);
}

/* Return true if a program is stopped or has ended. */
static bool halted(pid_t pid)
{
    const char *s =
        harness_read(harness_path("/proc/%d/status", (int)pid), NULL);

    return strstr(s, "State:\tT") || strstr(s, "State:\tZ");
}

/* Kill a move and the program that it has started. A worker that has just begun
 * does not have its lock yet, so ask the kernel which one it is. */
static void kill_all(struct harness_process *m, const char *q)
{
    pid_t pid = harness_pid(m), child;

    harness_signal(m, SIGSTOP); /* it starts no other program */
    harness_until(halted(pid), 30000);
    child = atoi(harness_read(
        harness_path("/proc/%d/task/%d/children", (int)pid, (int)pid), NULL));
    harness_kill(m);
    if (child)
        kill(child, SIGKILL);
    harness_until(!child || !harness_alive(child), 30000);
    /* Another thread of a dead worker may hold the lock a moment longer. */
    harness_until(worker_lock_find(harness_state_dir(), q, &pid, NULL) !=
                      WORKER_RUNS,
                  30000);
}

Test(amqp_move, a_kill_in_the_middle_loses_nothing_and_the_next_one_goes_on)
{
    enum { SENT = 10 };
    const char *q = harness_queue(SENT, 64);
    struct harness_process *m;
    struct harness_result r;
    long taken;

    cr_assert_eq(MOVE(q, OP).status, 0);
    numbered_send(q, SENT);
    m = moving(q, &taken);
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 69, "one at a time: %s", r.err);
    kill_all(m, q);
    policy(NULL);
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "10 in the queue"), "%s", r.out);
    consumed((size_t)(SENT + taken));
    numbered_ran(SENT);
    r = MOVE("--json", q, OP);
    cr_assert_not_null(strstr(r.out, "\"moved\":0"), "%s", r.out);
}

Test(amqp_move, kills_of_everything_lose_nothing_and_mark_repeats,
     .timeout = 600)
{
    enum { EACH = 4, KILLS = 25 };
    const char *q = harness_queue(10, 64);
    struct harness_process *m, *w;
    struct harness_result r;
    char body[16], marked[32];
    int sent = 0;

    cr_assert_eq(MOVE(q, OP).status, 0);
    for (unsigned i = 0, seed = 1; i < KILLS; i++) {
        uint64_t end;

        for (int k = 0; k < EACH; k++, sent++) {
            snprintf(body, sizeof body, "b%d.", sent);
            while (!harness_try_send(q, body, strlen(body), 0)) {
                r = MOVE(q, OP);
                cr_assert_eq(r.status, 0, "%d %s", r.status, r.err);
            }
        }
        m = harness_program("mqctl", "move", "--state-dir", harness_state_dir(),
                            q, OP);
        seed = seed * 1103515245 + 12345;
        end = harness_now_ms() + 100 + (seed >> 16) % 400;
        while (harness_now_ms() < end)
            usleep(1000);
        kill_all(m, q);
    }
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 0, "%d %s", r.status, r.err);
    cr_assert_eq(harness_queue_length(q), 0);
    w = consumer();
    for (int i = 0; i < sent; i++) {
        snprintf(body, sizeof body, " b%d.", i);
        harness_until(harness_lines_with("runs", body) > 0, 60000);
        /* A worker that knows the first copy acknowledges the second without a
         * run. */
        snprintf(marked, sizeof marked, " 1 1 0 - b%d.", i);
        cr_assert_leq(harness_lines_with("runs", body),
                      1 + harness_lines_with("runs", marked), "%s", body);
    }
    cr_assert_eq(harness_stop(w, 20000), 0);
}

Test(amqp_move, a_broker_that_takes_nothing_ends_it_and_all_stays,
     .timeout = 600)
{
    const char *q = harness_queue(10, 64);
    struct harness_process *m;

    cr_assert_eq(MOVE(q, OP).status, 0);
    numbered_send(q, 3);
    m = moving(q, NULL);
    cr_assert_eq(harness_wait(m, 240000), 75, "%s", harness_stderr(m, NULL));
    cr_assert_not_null(strstr(harness_stderr(m, NULL), "took no message"));
    policy(NULL);
    cr_assert_eq(MOVE(q, OP).status, 0);
}

Test(amqp_move, groups_need_partitions)
{
    const char *q = harness_queue(10, 256);
    struct harness_result r;

    harness_send_text(q, "goes");
    cr_assert_eq(harness_run("mqsend", "--group", "g", q, "stays").status, 0);
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 65, "%d %s", r.status, r.err);
    cr_assert_not_null(
        strstr(r.err, "mqdlq list --error 'not forwarded*' --state-dir /"),
        "%s", r.err);
    harness_until(amqp_ready(amqp_queue) == 1, 20000);
    cr_assert_eq(MOVE("/mqw-no-such-queue", OP).status, 66);
    cr_assert_eq(MOVE(q, "/other").status, 64);
    cr_assert_eq(MOVE(OP, q).status, 64);
    snprintf(amqp_queue, sizeof amqp_queue, "p%d", (int)getpid());
    cr_assert_eq(harness_run("mqsend", "--group", "g", q, "goes").status, 0);
    r = MOVE("--partitions", "2", q, OP);
    cr_assert_eq(r.status, 0, "%d %s", r.status, r.err);
    cr_assert_eq(amqp_ready(amqp_of("0")) + amqp_ready(amqp_of("1")), 1);
}

Test(amqp_move, a_separator_tells_groups_as_it_does_for_the_worker)
{
    const char *q = harness_queue(10, 256);
    struct harness_result r;

    harness_send_text(q, "goes");
    harness_send_text(q, ":says no group");
    harness_send_text(q, "g:stays");
    r = MOVE("--group-separator", ":", q, OP);
    cr_assert_eq(r.status, 65, "%d %s", r.status, r.err);
    cr_assert_not_null(
        strstr(r.err, "mqdlq list --error 'not forwarded*' --state-dir /"),
        "%s", r.err);
    harness_until(amqp_ready(amqp_queue) == 1, 20000);
    r = MOVE("--group-separator", "::", q, OP);
    cr_assert_eq(r.status, 64, "%d %s", r.status, r.err);
}

Test(amqp_move, a_letter_that_was_sent_again_ends_with_its_message)
{
    const char *q = harness_queue(10, 1024);
    struct harness_process *w =
        harness_worker(q, "--on-exit", "100=dead", "--", "sh", "-c", SORTS);
    struct harness_result r;

    harness_wait_log(w, "event=started", 20000);
    harness_send_text(q, "dead-one\n");
    harness_wait_log(w, "event=dead", 20000);
    cr_assert_eq(harness_stop(w, 20000), 0);
    r = harness_run("mqdlq", "replay", "--state-dir", harness_state_dir(),
                    "--all", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(harness_queue_length(q), 1);
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    harness_until(amqp_ready(amqp_queue) == 1, 20000);
    r = MOVE("--letters", "--json", q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "\"moved\":0"), "%s", r.out);
}

/* ---- what a store may hold ---- */

static struct store *store_of(const char *q)
{
    struct statedir dir;
    struct store *s;
    struct problem p;
    char path[PATH_MAX];

    cr_assert_eq(statedir_open(&dir, harness_state_dir(), q, true, &p), 0);
    cr_assert_eq(statedir_path(&dir, STATEDIR_STORE, path, &p), 0);
    cr_assert_eq(store_open(&s, path, true, &p), 0, "%s", p.text);
    return s;
}

static void spool_put(struct store *s, uint64_t seq, const char *text,
                      uint32_t flags)
{
    struct store_spooled row = {.key = store_spool_key(0, seq),
                                .received_ns = clock_wall_ns(),
                                .flags = flags,
                                .data = text,
                                .size = strlen(text)};

    cr_assert_eq(
        store_spool_change(
            s, &(struct store_spool_change){.in = &row, .in_count = 1}),
        0);
}

static void waiting_put(struct store *s, uint64_t seq, const char *text,
                        uint32_t flags, uint32_t attempts)
{
    struct store_row row = {.state = STORE_WAITING,
                            .receive_seq = seq,
                            .id = ulid_make(clock_wall_ns()),
                            .attempts = attempts,
                            .flags = flags,
                            .due_ns = 1,
                            .first_received_ns = clock_wall_ns(),
                            .data = text,
                            .size = strlen(text)};
    int64_t at;

    cr_assert_eq(store_put(s, &row, NULL, &at), 0);
}

Test(amqp_move, what_was_cancelled_is_not_sent)
{
    const char *q = harness_queue(10, 256);
    const struct store_row parked = {.state = STORE_PARKED,
                                     .receive_seq = 5,
                                     .flags = STORE_CANCELLED,
                                     .group = "g",
                                     .group_size = 1,
                                     .first_received_ns = 1,
                                     .data = "cancelled",
                                     .size = 9};
    struct store *s = store_of(q);
    struct harness_result r;
    int64_t at;

    spool_put(s, 1, "goes", 0);
    spool_put(s, 2, "cancelled", STORE_CANCELLED);
    waiting_put(s, 3, "cancelled, too", STORE_CANCELLED, 1);
    waiting_put(s, 4, "goes, too", 0, 1);
    cr_assert_eq(store_put(s, &parked, NULL, &at), 0);
    store_close(&s);
    r = MOVE("--json", q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "\"moved\":2"), "%s", r.out);
    cr_assert_not_null(strstr(r.out, "\"discarded\":3"), "%s", r.out);
    harness_until(amqp_ready(amqp_queue) == 2, 20000);
    s = store_of(q);
    cr_assert_eq(store_spool_count(s), 0);
    cr_assert_eq(store_count(s, STORE_WAITING), 0);
    cr_assert_eq(store_count(s, STORE_PARKED), 0);
    spool_put(s, 6, "cancelled", STORE_CANCELLED);
    store_close(&s);
    r = MOVE(q, OP);
    cr_assert_not_null(strstr(r.err, "1 not sent: cancelled"), "%s", r.err);
}

Test(amqp_move, what_is_in_doubt_is_marked)
{
    const char *q = harness_queue(10, 256);
    struct store *s = store_of(q);
    struct harness_result r;

    spool_put(s, 1, "old", 0);
    spool_put(s, 7, "marked", STORE_REDELIVERED);
    spool_put(s, 9, "new", 0);
    waiting_put(s, 10, "retry", STORE_REDELIVERED, 1);
    cr_assert_eq(store_spool_begin(s, 4711, 5), 0);
    cr_assert_eq(store_spool_end(s), 0);
    store_close(&s);
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    consumed(4);
    cr_assert_eq(harness_lines_with("runs", " 1 1 0 - old"), 1);
    cr_assert_eq(harness_lines_with("runs", " 1 1 0 - marked"), 1);
    cr_assert_eq(harness_lines_with("runs", " 1 0 0 - new"), 1);
    cr_assert_eq(harness_lines_with("runs", " 2 1 0 - retry"), 1);
}

static void letter_import(const char *q, const char *body)
{
    char line[200];
    struct harness_result r;

    snprintf(line, sizeof line,
             "{\"reason\":\"exhausted\",\"error\":\"exit 1\","
             "\"died_at\":\"2026-01-01T00:00:00Z\",\"body\":\"%s\"}\n",
             body);
    r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST("mqdlq", "import", "--state-dir",
                             harness_state_dir(), q),
        .input = line,
        .input_size = strlen(line)});
    cr_assert_eq(r.status, 0, "%s", r.err);
}

static void letters_replay(const char *q)
{
    struct harness_result r = harness_run("mqdlq", "replay", "--state-dir",
                                          harness_state_dir(), "--all", q);

    cr_assert_eq(r.status, 0, "%s", r.err);
}

Test(amqp_move, of_two_copies_of_a_letter_one_is_sent)
{
    const char *q = harness_queue(10, 1024);
    char copy[1024];
    struct harness_result r;
    struct store *s;
    ssize_t n;

    letter_import(q, "letter");
    letters_replay(q);
    n = harness_receive(q, copy, sizeof copy - 1, NULL);
    cr_assert_gt(n, 0);
    copy[n] = '\0';
    r = MOVE("--letters", q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    harness_until(amqp_ready(amqp_queue) == 0, 20000);
    s = store_of(q);
    spool_put(s, 1, copy, 0); /* of a worker's spool, and in the queue */
    store_close(&s);
    harness_send_text(q, copy);
    r = MOVE("--letters", q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "moved 1 message"), "%s", r.out);
    cr_assert_not_null(strstr(r.err, "1 not sent: cancelled, or copies"), "%s",
                       r.err);
    s = store_of(q);
    cr_assert_eq(store_count(s, STORE_REPLAYED), 0);
    cr_assert_eq(store_count(s, STORE_DEAD), 0);
    store_close(&s);
    harness_until(amqp_ready(amqp_queue) == 1, 20000);
    harness_send_text(q, copy);
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    harness_until(amqp_ready(amqp_queue) == 1, 20000);
}

Test(amqp_move, what_a_worker_was_killed_with_goes_with_a_mark)
{
    const char *q = harness_queue(10, 256);
    struct harness_process *w =
        harness_worker(q, "--", "sh", "-c", "echo >>began; exec sleep 1000");
    struct harness_result r;

    harness_send_text(q, "in hand");
    harness_until_lines("began", 1, 20000);
    harness_kill(w);
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 0, "%d %s", r.status, r.err);
    consumed(1);
    cr_assert_eq(harness_lines_with("runs", " 1 1 0 - in hand"), 1);
}

Test(amqp_move, a_connection_that_is_lost_costs_nothing)
{
    enum { SENT = 10 };
    const char *q = harness_queue(SENT, 64);
    struct harness_process *m;
    long taken;
    int status;

    cr_assert_eq(MOVE(q, OP).status, 0);
    numbered_send(q, SENT);
    m = moving(q, &taken);
    cr_assert_eq(amqp_ctl("close_all_connections", "test").status, 0);
    amqp_disconnect();
    amqp_connect();
    policy(NULL);
    status = harness_wait(m, 60000);
    /* Where rabbitmqctl is slow, the queue was full for more than 30 s. */
    if (status == 75)
        status = MOVE(q, OP).status;
    cr_assert_eq(status, 0, "%s", harness_stderr(m, NULL));
    consumed((size_t)(SENT + taken));
    numbered_ran(SENT);
}

Test(amqp_move, a_letter_that_somebody_is_to_be_told_of_is_for_a_worker)
{
    const char *q = harness_queue(10, 256);
    const struct store_row dead = {.state = STORE_DEAD,
                                   .id = ulid_make(clock_wall_ns()),
                                   .reason = REASON_EXHAUSTED,
                                   .attempts = 1,
                                   .first_received_ns = 1,
                                   .died_ns = 2,
                                   .error = "exit 1",
                                   .data = "letter",
                                   .size = 6,
                                   .hook = true};
    struct store *s = store_of(q);
    struct harness_result r;
    int64_t at;

    cr_assert_eq(store_put(s, &dead, NULL, &at), 0);
    store_close(&s);
    r = MOVE("--letters", q, OP);
    cr_assert_eq(r.status, 69, "%d %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, "--on-dead has not"), "%s", r.err);
    s = store_of(q);
    cr_assert_eq(letters_hooks_forget(s), 0);
    store_close(&s);
    r = MOVE("--letters", q, OP);
    cr_assert_not_null(strstr(r.out, "moved 1 message"), "%s", r.out);
    cr_assert_eq(amqp_ready(amqp_of("dead")), 1);
}

/* The state of a move that was killed after the import. */
Test(amqp_move, a_letter_that_was_imported_already_is_there_once)
{
    const char *q = harness_queue(10, 512);
    struct harness_result r;
    struct store *s;

    cr_assert_eq(MOVE(q, OP).status, 0);
    letter_import(q, "letter");
    r = harness_run("mqdlq", "export", "--state-dir", harness_state_dir(), q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    r = harness_run_spec(
        &(struct harness_spec){.argv = HARNESS_LIST("mqdlq", "import", OP),
                               .input = r.out,
                               .input_size = r.out_size});
    cr_assert_eq(r.status, 0, "%s", r.err);
    r = MOVE("--letters", q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(amqp_ready(amqp_of("dead")), 1);
    s = store_of(q);
    cr_assert_eq(store_count(s, STORE_DEAD), 0);
    store_close(&s);
}
