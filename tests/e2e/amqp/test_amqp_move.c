/* test_amqp_move.c - mqctl move: a POSIX queue to a broker, also under kills */
#define AMQP_BROKER 1
#include "tests/e2e/amqp/amqp_fixture.h"

TestSuite(amqp_move, .init = amqp_init, .fini = amqp_fini, .timeout = 180);

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

/* full - the broker refuses what comes, as it does a moment after the policy
 * is there; how many messages it has taken until then */
static long full(void)
{
    const struct timeval limit = {.tv_sec = 30};
    long taken = 0;
    amqp_frame_t f;

    policy("{\"max-length\":1,\"overflow\":\"reject-publish\"}");
    for (;; taken++) {
        amqp_send("pre");
        do {
            cr_assert_eq(
                rabbit.amqp_simple_wait_frame_noblock(amqp_client, &f, &limit),
                AMQP_STATUS_OK);
        } while (f.frame_type != AMQP_FRAME_METHOD);
        if (f.payload.method.id == AMQP_BASIC_NACK_METHOD)
            return taken;
        cr_assert_eq(f.payload.method.id, AMQP_BASIC_ACK_METHOD);
    }
}

/* consumed - by a worker of the broker, until so many lines are in "runs" */
static void consumed(size_t lines)
{
    struct harness_process *w =
        amqp_worker("-c", "4", "--", harness_handler("record"));

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
    char body[16];
    long taken;

    cr_assert_eq(MOVE(q, OP).status, 0);
    for (int i = 0; i < SENT; i++) {
        snprintf(body, sizeof body, "b%d.", i);
        harness_send_text(q, body);
    }
    taken = full();
    m = harness_program("mqctl", "move", "--state-dir", harness_state_dir(), q,
                        OP);
    harness_until(harness_queue_length(q) == 0, 30000);
    harness_kill(m);
    policy(NULL);
    r = MOVE(q, OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "10 in custody"), "%s", r.out);
    consumed((size_t)(SENT + taken));
    for (int i = 0; i < SENT; i++) {
        snprintf(body, sizeof body, " b%d.", i);
        cr_assert_geq(harness_lines_with("runs", body), 1, "%s", body);
    }
    r = MOVE("--json", q, OP);
    cr_assert_not_null(strstr(r.out, "\"moved\":0"), "%s", r.out);
}

Test(amqp_move, kills_at_any_moment_lose_nothing)
{
    enum { SENT = 120, KILLS = 6 };
    const char *q = harness_queue(10, 64);
    struct harness_process *sender, *m;
    char *lines = calloc(SENT, 8), body[16];
    long seen = 0;

    for (int i = 0; i < SENT; i++)
        snprintf(lines + strlen(lines), 8, "b%d.\n", i);
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
    consumed(SENT);
    for (int i = 0; i < SENT; i++) {
        snprintf(body, sizeof body, " b%d.", i);
        cr_assert_geq(harness_lines_with("runs", body), 1, "%s", body);
    }
}

Test(amqp_move, what_a_killed_one_left_a_worker_runs)
{
    enum { SENT = 10 };
    const char *q = harness_queue(SENT, 64);
    struct harness_process *m, *w;
    char body[16];

    cr_assert_eq(MOVE(q, OP).status, 0);
    for (int i = 0; i < SENT; i++) {
        snprintf(body, sizeof body, "b%d.", i);
        harness_send_text(q, body);
    }
    (void)full();
    m = harness_program("mqctl", "move", "--state-dir", harness_state_dir(), q,
                        OP);
    harness_until(harness_queue_length(q) == 0, 30000);
    cr_assert_eq(
        harness_run("mqctl", "move", "--state-dir", harness_state_dir(), q, OP)
            .status,
        69, "one at a time");
    harness_kill(m);
    w = harness_worker(q, "--", harness_handler("record"));
    harness_until_lines("runs", SENT, 30000);
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

Test(amqp_move, what_came_before_a_group_goes_there_once)
{
    const char *q = harness_queue(10, 256);
    struct harness_process *m;
    long seen;

    cr_assert_eq(MOVE(q, OP).status, 0);
    harness_send_text(q, "goes");
    cr_assert_eq(harness_run("mqsend", "--group", "g", q, "stays").status, 0);
    (void)full();
    m = harness_program("mqctl", "move", "--state-dir", harness_state_dir(), q,
                        OP);
    harness_until(harness_queue_length(q) == 0, 30000);
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
