/* test_amqp_move.c - mqctl move: a POSIX queue to a broker, also under kills */
#define AMQP_BROKER 1
#include <unistd.h>

#include "common/base/clock.h"
#include "common/store/letters.h"
#include "common/state/statedir.h"
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

/* policy - of the queue there; NULL: none */
static void policy(const char *definition)
{
    char pattern[100];
    struct harness_result r;

    snprintf(pattern, sizeof pattern, "^%s$", amqp_queue);
    r = definition ? amqp_ctl("set_policy", amqp_queue, pattern, definition)
                   : amqp_ctl("clear_policy", amqp_queue);
    cr_assert_eq(r.status, 0, "%s", r.err);
}

/* full - the broker refuses what comes; how many messages it took before */
static long full(void)
{
    policy("{\"max-length\":1,\"overflow\":\"reject-publish\"}");
    return amqp_fill(amqp_queue);
}

/* moving - a move that has taken all there is, while the broker is full; what
 * that took before is *taken, if it is asked for */
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

/* numbered_send - "b0.", "b1.", ... */
static void numbered_send(const char *q, int count)
{
    char body[16];

    for (int i = 0; i < count; i++) {
        snprintf(body, sizeof body, "b%d.", i);
        harness_send_text(q, body);
    }
}

/* numbered_ran - each of those, once */
static void numbered_ran(int count)
{
    char body[16];

    for (int i = 0; i < count; i++) {
        snprintf(body, sizeof body, " b%d.", i);
        cr_assert_eq(harness_lines_with("runs", body), 1, "%s", body);
    }
}

/* consumer - a worker of the broker, which writes a line to "runs" for each; a
 * queue that is ready for nobody may have some in its hand yet */
static struct harness_process *consumer(void)
{
    return amqp_worker("-c", "4", "--", harness_handler("record"));
}

/* consumed - by one, until there are so many lines */
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
    cr_assert_not_null(strstr(r.err, "mqctl drain --wait"), "%s", r.err);
    cr_assert_eq(harness_stop(w, 20000), 0);
    r = harness_run("mqsend", "--header", "x-who=me", "--print-id", q, "first");
    cr_assert_eq(r.status, 0, "%s", r.err);
    harness_send_text(q, "plain");
    harness_send_text(q, "MQW/1\nid: broken\n\nx");
    r = MOVE("--letters", q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "moved 5 messages"), "%s", r.out);
    cr_assert_not_null(
        strstr(r.out, "3 in the queue, 1 waiting, 1 dead letters"), "%s",
        r.out);
    cr_assert_eq(harness_queue_length(q), 0);
    cr_assert_eq(amqp_ready(amqp_queue), 2);
    cr_assert_eq(amqp_ready(amqp_of("dead")), 2);
    cr_assert(amqp_ready(amqp_of("wait.960000")) == 1 ||
              amqp_ready(amqp_of("wait.3600000")) == 1);
    r = harness_run("mqdlq", "export", OP);
    cr_assert_not_null(strstr(r.out, "said-dead-one"), "%s %s", r.out, r.err);
    cr_assert_not_null(strstr(r.out, "bad-header"), "%s", r.out);
    consumed(2);
    cr_assert_eq(harness_lines_with("runs", "first"), 1);
    r = MOVE("--json", q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "\"moved\":0"), "%s", r.out);
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
    harness_kill(m);
    policy(NULL);
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "10 in the queue"), "%s", r.out);
    consumed((size_t)(SENT + taken));
    numbered_ran(SENT);
    r = MOVE("--json", q, OP);
    cr_assert_not_null(strstr(r.out, "\"moved\":0"), "%s", r.out);
}

Test(amqp_move, kills_at_any_moment_lose_nothing)
{
    enum { SENT = 120, KILLS = 6 };
    const char *q = harness_queue(10, 64);
    struct harness_process *sender, *m, *w;
    char *lines = calloc(SENT, 16), body[16];
    long seen = 0;

    for (int i = 0; i < SENT; i++)
        snprintf(lines + strlen(lines), 16, "b%d.\n", i);
    harness_write("lines", lines, strlen(lines));
    free(lines);
    cr_assert_eq(MOVE(q, OP).status, 0);
    sender = harness_program("mqsend", "--raw", "--lines", "--file",
                             harness_path("lines"), q);
    for (int i = 0; i < KILLS; i++) {
        m = harness_program("mqctl", "move", "--state-dir", harness_state_dir(),
                            q, OP);
        seen = amqp_ready(amqp_queue);
        harness_until(amqp_ready(amqp_queue) > seen + 5 * i ||
                          !harness_running(m),
                      60000);
        if (harness_running(m))
            harness_kill(m);
        else
            cr_assert_eq(harness_wait(m, 1000), 0, "%s",
                         harness_stderr(m, NULL));
    }
    while (harness_running(sender))
        cr_assert_eq(MOVE(q, OP).status, 0);
    cr_assert_eq(harness_wait(sender, 20000), 0);
    cr_assert_eq(MOVE(q, OP).status, 0);
    cr_assert_eq(harness_queue_length(q), 0);
    /* A second one is acknowledged without a run where its first is known. */
    w = consumer();
    for (int i = 0; i < SENT; i++) {
        snprintf(body, sizeof body, " b%d.", i);
        harness_until(harness_lines_with("runs", body) > 0, 60000);
    }
    cr_assert_eq(harness_stop(w, 20000), 0);
}

Test(amqp_move, what_a_killed_one_left_a_worker_runs)
{
    enum { SENT = 10 };
    const char *q = harness_queue(SENT, 64);
    struct harness_process *m, *w;
    struct harness_result r;

    cr_assert_eq(MOVE(q, OP).status, 0);
    numbered_send(q, SENT);
    m = moving(q, NULL);
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 69, "one at a time");
    cr_assert_not_null(strstr(r.err, "another mqctl move"), "%s", r.err);
    w = harness_worker(q, "--", harness_handler("record"));
    cr_assert_eq(harness_wait(w, 20000), 69, "%s", harness_stderr(w, NULL));
    cr_assert(harness_running(m));
    harness_kill(m);
    w = harness_worker(q, "--", harness_handler("record"));
    harness_until_lines("runs", SENT, 30000);
    cr_assert_eq(harness_lines_with("runs", " 1 1 0 - b"), SENT,
                 "they may have been sent: each is marked");
    cr_assert_eq(harness_stop(w, 20000), 0);
    policy(NULL);
}

Test(amqp_move, groups_stay)
{
    const char *q = harness_queue(10, 256);
    struct harness_result r;

    harness_send_text(q, "goes");
    cr_assert_eq(harness_run("mqsend", "--group", "g", q, "stays").status, 0);
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 65, "%d %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, "names a group"), "%s", r.err);
    cr_assert_eq(amqp_ready(amqp_queue), 1);
    cr_assert_eq(MOVE("/mqw-no-such-queue", OP).status, 66);
    cr_assert_eq(MOVE(q, "/other").status, 64);
    cr_assert_eq(MOVE(OP, q).status, 64);
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
    cr_assert_not_null(strstr(r.err, "names a group"), "%s", r.err);
    cr_assert_eq(amqp_ready(amqp_queue), 1);
    cr_assert_eq(amqp_ready(amqp_of("dead")), 1);
    r = MOVE("--group-separator", "::", q, OP);
    cr_assert_eq(r.status, 64, "%d %s", r.status, r.err);
    cr_assert_eq(MOVE(q, OP).status, 0);
    cr_assert_eq(amqp_ready(amqp_queue), 2);
}

Test(amqp_move, what_came_before_a_group_goes_there_once)
{
    const char *q = harness_queue(10, 256);
    struct harness_process *m;
    long seen;

    cr_assert_eq(MOVE(q, OP).status, 0);
    harness_send_text(q, "goes");
    cr_assert_eq(harness_run("mqsend", "--group", "g", q, "stays").status, 0);
    m = moving(q, NULL);
    harness_kill(m);
    policy(NULL);
    cr_assert_eq(MOVE(q, OP).status, 65);
    seen = amqp_ready(amqp_queue);
    cr_assert_eq(MOVE(q, OP).status, 65);
    cr_assert_eq(amqp_ready(amqp_queue), seen);
    consumed((size_t)seen);
    cr_assert_eq(harness_lines_with("runs", "goes"), 1);
    cr_assert_eq(harness_lines_with("runs", "stays"), 0);
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
    cr_assert_eq(amqp_ready(amqp_queue), 1);
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
    cr_assert_not_null(strstr(r.out, "\"cancelled\":3"), "%s", r.out);
    cr_assert_eq(amqp_ready(amqp_queue), 2);
    s = store_of(q);
    cr_assert_eq(store_spool_count(s), 0);
    cr_assert_eq(store_count(s, STORE_WAITING), 0);
    cr_assert_eq(store_count(s, STORE_PARKED), 0);
    spool_put(s, 6, "cancelled", STORE_CANCELLED);
    store_close(&s);
    r = MOVE(q, OP);
    cr_assert_not_null(strstr(r.err, "1 were cancelled"), "%s", r.err);
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
    store_close(&s);
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 69, "%d %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, "was cut off"), "%s", r.err);
    cr_assert_not_null(strstr(r.err, "start its worker once"), "%s", r.err);
    cr_assert_eq(amqp_ready(amqp_queue), 0);
    s = store_of(q);
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
    cr_assert_not_null(strstr(r.err, "1 dead letter was sent again"), "%s",
                       r.err);
    cr_assert_eq(amqp_ready(amqp_queue), 0);
    s = store_of(q);
    spool_put(s, 1, copy, 0); /* of a worker's spool, and in the queue */
    store_close(&s);
    harness_send_text(q, copy);
    r = MOVE("--letters", q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "moved 1 message"), "%s", r.out);
    cr_assert_not_null(strstr(r.err, "1 were copies"), "%s", r.err);
    s = store_of(q);
    cr_assert_eq(store_count(s, STORE_REPLAYED), 0);
    cr_assert_eq(store_count(s, STORE_DEAD), 0);
    store_close(&s);
    cr_assert_eq(amqp_ready(amqp_queue), 1);
    harness_send_text(q, copy);
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(amqp_ready(amqp_queue), 1, "the letter is settled");
}

Test(amqp_move, what_a_worker_was_killed_with_is_its_own)
{
    const char *q = harness_queue(10, 256);
    struct harness_process *w =
        harness_worker(q, "--", "sh", "-c", "echo >>began; exec sleep 1000");
    struct harness_result r;

    harness_send_text(q, "in hand");
    harness_until_lines("began", 1, 20000);
    harness_kill(w);
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 69, "%d %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, "start it once"), "%s", r.err);
    w = harness_worker(q, "--exit-when-idle", "--", harness_handler("record"));
    cr_assert_eq(harness_wait(w, 30000), 0, "%s", harness_stderr(w, NULL));
    cr_assert_eq(harness_lines_with("runs", "in hand"), 1);
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(amqp_ready(amqp_queue), 0);
}

Test(amqp_move, custody_is_where_the_last_worker_had_it)
{
    const char *q = harness_queue(10, 256);
    char dir[] = "/dev/shm/mqw-move-XXXXXX", command[64];
    struct harness_process *w;
    struct harness_result r;

    cr_assert_not_null(mkdtemp(dir));
    w = harness_worker(q, "--runtime-dir", dir, "--grace", "10ms", "--", "sh",
                       "-c", "echo >>began; exec sleep 1000");
    harness_send_text(q, "kept");
    harness_until_lines("began", 1, 20000);
    cr_assert_eq(harness_stop(w, 20000), 0);
    harness_send_text(q, "plain");
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    w = harness_worker(q, "--runtime-dir", dir, "--", "sleep", "1000");
    harness_wait_log(w, "event=started", 20000);
    harness_kill(w);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    cr_assert_eq(system(command), 0);
    cr_assert_eq(MOVE(q, OP).status, 69);
    consumed(2);
    cr_assert_eq(harness_lines_with("runs", " 1 1 0 - kept"), 1);
    cr_assert_eq(harness_lines_with("runs", " 1 0 0 - plain"), 1);
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

Test(amqp_move, a_queue_that_is_deleted_there_is_made_by_the_next)
{
    const char *q = harness_queue(10, 64);
    struct harness_process *m;

    cr_assert_eq(MOVE(q, OP).status, 0);
    harness_send_text(q, "plain");
    m = moving(q, NULL);
    cr_assert_eq(amqp_ctl("delete_queue", amqp_queue).status, 0);
    cr_assert_eq(harness_wait(m, 60000), 66, "%s", harness_stderr(m, NULL));
    cr_assert_not_null(strstr(harness_stderr(m, NULL), "made again"));
    policy(NULL);
    cr_assert_eq(MOVE(q, OP).status, 0);
    cr_assert_eq(amqp_ready(amqp_queue), 1);
}

Test(amqp_move, a_store_that_is_older_than_its_worker_is_for_a_worker)
{
    const char *q = harness_queue(10, 256);
    struct statedir dir;
    struct harness_process *w;
    struct harness_result r;
    struct problem p;
    char command[PATH_MAX + 16];

    harness_send_text(q, "dead-one\n");
    w = harness_worker(q, "--exit-when-idle", "--on-exit", "100=dead", "--",
                       "sh", "-c", SORTS);
    cr_assert_eq(harness_wait(w, 30000), 0, "%s", harness_stderr(w, NULL));
    cr_assert_eq(statedir_open(&dir, harness_state_dir(), q, false, &p), 0);
    snprintf(command, sizeof command, "rm %s/store.db*", dir.folder);
    cr_assert_eq(system(command), 0);
    harness_send_text(q, "plain");
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 69, "%d %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, "store lacks"), "%s", r.err);
    cr_assert_eq(harness_queue_length(q), 1);
    w = harness_worker(q, "--exit-when-idle", "--", harness_handler("record"));
    cr_assert_eq(harness_wait(w, 30000), 0, "%s", harness_stderr(w, NULL));
    cr_assert_eq(MOVE(q, OP).status, 0);
}

Test(amqp_move, a_letter_that_somebody_is_to_be_told_of_stays)
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
                                   .size = 6};
    struct store *s = store_of(q);
    struct harness_result r;
    int64_t at;

    store_hooks_note(s);
    cr_assert_eq(store_put(s, &dead, NULL, &at), 0);
    store_close(&s);
    r = MOVE("--letters", q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "moved 0 messages"), "%s", r.out);
    cr_assert_not_null(strstr(r.err, "--on-dead has not"), "%s", r.err);
    s = store_of(q);
    cr_assert_eq(letters_hooks_forget(s), 0);
    store_close(&s);
    r = MOVE("--letters", q, OP);
    cr_assert_not_null(strstr(r.out, "moved 1 message"), "%s", r.out);
    cr_assert_eq(amqp_ready(amqp_of("dead")), 1);
}

/* ---- a kill at each step ---- */

/* all_sorts - in the queue, waiting, a letter, and one that was sent again */
static void all_sorts(const char *q, int n)
{
    char body[32];
    struct store *s;

    snprintf(body, sizeof body, "again%d.", n);
    letter_import(q, body);
    letters_replay(q);
    snprintf(body, sizeof body, "letter%d.", n);
    letter_import(q, body);
    s = store_of(q);
    snprintf(body, sizeof body, "retry%d.", n);
    waiting_put(s, 0, body, 0, 1);
    store_close(&s);
    for (int i = 0; i < 2; i++) {
        snprintf(body, sizeof body, "plain%d-%d.", i, n);
        harness_send_text(q, body);
    }
}

/* killed - a move that was, at that pass of that point; or it came to its end
 * before it */
static bool killed(const char *q, const char *point, int pass)
{
    char at[80];
    struct harness_result r;

    snprintf(at, sizeof at, "MQW_KILL_AT=%s:%d", point, pass);
    r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST(harness_handler("../../points/bin/mqctl"), "move",
                             "--letters", "--state-dir", harness_state_dir(), q,
                             OP),
        .env = HARNESS_LIST(at)});
    cr_assert(r.status == 0 || r.status == -SIGKILL, "%s: %d %s", at, r.status,
              r.err);
    return r.status != 0;
}

/* Whoever takes the first copies tells nobody: what runs the second ones
 * cannot know. */
Test(amqp_move, second_copies_are_marked_but_for_what_has_expired)
{
#define EXPIRED "MQW/1\nexpires: 1000\n\nexpired"
    const char *q = harness_queue(10, 256);
    struct harness_process *w;
    struct store *s;

    for (int waits = 0; waits < 2; waits++) {
        s = store_of(q);
        if (waits) {
            waiting_put(s, 3, "waits", 0, 0);
            waiting_put(s, 4, EXPIRED, 0, 0);
        } else {
            spool_put(s, 1, "plain", 0);
            spool_put(s, 2, EXPIRED, 0);
        }
        store_close(&s);
        cr_assert(killed(q, "amqp_move_confirmed", 1));
        cr_assert_eq(amqp_ready(amqp_queue), 2);
        cr_assert_eq(amqp_ctl("purge_queue", amqp_queue).status, 0);
        cr_assert_eq(MOVE(q, OP).status, 0);
        cr_assert_eq(amqp_ready(amqp_queue), 2);
        w = consumer();
        harness_until_lines("runs", (size_t)waits + 1, 60000);
        harness_until(amqp_ready(amqp_of("dead")) == waits + 1, 60000);
        cr_assert_eq(harness_stop(w, 20000), 0);
    }
    cr_assert_eq(harness_lines_with("runs", " 1 1 0 - plain"), 1);
    cr_assert_eq(harness_lines_with("runs", " 1 1 0 - waits"), 1);
}

Test(amqp_move, a_kill_at_any_step_loses_nothing_and_marks_the_rest,
     .timeout = 600)
{
    static const char *const points[] = {
        "amqp_move_received",  "amqp_move_spooled",     "store_spool_before",
        "store_spool_after",   "amqp_move_marked",      "amqp_move_sent",
        "amqp_move_confirmed", "letters_discard_after", "amqp_move_settled",
        "amqp_move_removed"};
    static const char *const sorts[] = {"again%d.", "retry%d.", "plain0-%d.",
                                        "plain1-%d.", "letter%d."};
    const char *q = harness_queue(10, 512);
    struct harness_process *w;
    struct harness_result r;
    char body[32];
    int n = 0, kills = 0;

    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        int before = kills;
        bool again = true;

        for (int pass = 1; again; pass++) {
            all_sorts(q, n++);
            again = killed(q, points[i], pass);
            kills += again;
            if (again && pass % 2 && killed(q, "amqp_move_confirmed", 1))
                kills++;
            r = MOVE("--letters", q, OP);
            cr_assert_eq(r.status, 0, "%s:%d %s", points[i], pass, r.err);
        }
        cr_assert_gt(kills, before, "%s is never reached", points[i]);
    }
    r = MOVE("--letters", "--json", q, OP);
    cr_assert_not_null(strstr(r.out, "\"moved\":0"), "%s", r.out);
    cr_assert_eq(harness_queue_length(q), 0);
    r = harness_run("mqdlq", "replay", "--all", OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    w = amqp_worker("-c", "1", "--", harness_handler("record"));
    harness_until(amqp_ready(amqp_queue) == 0, 60000);
    harness_until_lines("runs", 5 * (size_t)n, 60000);
    cr_assert_eq(harness_stop(w, 20000), 0);
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof sorts / sizeof *sorts; k++) {
            snprintf(body, sizeof body, sorts[k], i);
            cr_assert_eq(harness_lines_with("runs", body), 1, "%s", body);
        }
    printf("move: %d messages, %d kills\n", 5 * n, kills);
}
