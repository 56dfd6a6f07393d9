/* test_amqp_forward.c - mqworker --forward: to a queue on a broker and from
 * one, also under kills */
#define AMQP_BROKER 1
#define AMQP_SHARED
#include <unistd.h>

#include "tests/e2e/amqp/amqp_fixture.h"
#include "tests/harness/letters.h"

TestSuite(amqp_forward, .init = amqp_init, .fini = amqp_fini);

#define OP      amqp_operand(amqp_queue, 1)
#define SOON_MS 60000

/* Create the queue by an mqsend that sends nothing. */
static void queue_create(void)
{
    struct harness_result r = harness_run("mqsend", "--create", "--lines", OP);

    cr_assert_eq(r.status, 0, "%s", r.err);
}

static void consume(size_t lines)
{
    struct harness_process *w =
        amqp_worker("-c", "1", "--", harness_handler("record"));

    harness_until_lines("runs", lines, SOON_MS);
    harness_until(amqp_ready(amqp_queue) == 0, SOON_MS);
    cr_assert_eq(harness_stop(w, 20000), 0);
}

static void forward_all(const char *from, const char *to)
{
    struct harness_process *w =
        harness_worker(from, "--forward", to, "--exit-when-idle");

    cr_assert_eq(harness_wait(w, SOON_MS), 0, "%s", harness_stderr(w, NULL));
}

Test(amqp_forward, what_a_message_says_goes_along)
{
    const char *q = harness_queue(10, 1024);
    struct harness_result r;

    queue_create();
    r = harness_run("mqsend", "--id", "01JD3Z6Q9V0X8N5T2K7B4M1C3F", "--header",
                    "x-who=me", "-p", "3", q, "first");
    cr_assert_eq(r.status, 0, "%s", r.err);
    harness_send_text(q, "second");
    r = harness_run("mqsend", "--group", "g", q, "third");
    cr_assert_eq(r.status, 0, "%s", r.err);
    forward_all(q, OP);
    cr_assert_eq(amqp_ready(amqp_queue), 2);
    {
        const struct harness_letter *l = harness_wait_letters(q, 1, SOON_MS);

        cr_assert_str_eq(l->reason, "rejected");
        cr_assert_not_null(strstr(l->error, "--partitions"), "%s", l->error);
    }
    consume(2);
    cr_assert_eq(
        harness_lines_with("runs", "01JD3Z6Q9V0X8N5T2K7B4M1C3F 1 0 3 - first"),
        1);
    cr_assert_eq(harness_lines_with("runs", " 1 0 0 - second"), 1);
}

Test(amqp_forward, a_retry_keeps_its_attempts_and_its_time)
{
    const char *q = harness_queue(10, 1024);
    struct harness_process *w =
        harness_worker(q, "--backoff", "1h", "--", "false");

    queue_create();
    harness_wait_log(w, "event=started", SOON_MS);
    harness_send_text(q, "retry");
    harness_wait_log(w, "event=retry", SOON_MS);
    cr_assert_eq(harness_stop(w, 20000), 0);
    cr_assert_eq(harness_run("mqsend", "--delay", "2s", q, "late").status, 0);
    forward_all(q, OP);
    w = amqp_worker("-c", "1", "--", harness_handler("record"));
    harness_until_lines("runs", 1, SOON_MS);
    harness_until(amqp_ready(amqp_of("wait.960000")) == 1 ||
                      amqp_ready(amqp_of("wait.3600000")) == 1,
                  SOON_MS);
    cr_assert_eq(harness_lines_with("runs", " 1 0 0 - late"), 1);
    cr_assert_eq(harness_lines("runs"), 1, "the other one waits for an hour");
    cr_assert_eq(harness_stop(w, 20000), 0);
}

Test(amqp_forward, a_queue_that_is_missing_is_waited_for)
{
    const char *q = harness_queue(10, 1024);
    struct harness_process *w = harness_worker(q, "--forward", OP);

    harness_wait_log(w, "event=started", SOON_MS);
    harness_send_text(q, "body");
    harness_wait_log(w, "event=breaker_open", SOON_MS);
    queue_create();
    harness_until(amqp_ready(amqp_queue) == 1, SOON_MS);
    cr_assert_eq(harness_stop(w, 20000), 0);
}

Test(amqp_forward, from_a_broker_to_a_posix_queue)
{
    const char *q = harness_queue(10, 1024);
    struct harness_process *w;
    char got[1024];
    ssize_t n;

    queue_create();
    amqp_send("body");
    amqp_confirmed();
    w = amqp_worker("--forward", q);
    harness_until(harness_queue_length(q) == 1, SOON_MS);
    cr_assert_eq(harness_stop(w, 20000), 0);
    cr_assert_eq(amqp_ready(amqp_queue), 0);
    n = harness_receive(q, got, sizeof got - 1, NULL);
    cr_assert_gt(n, 0);
    got[n] = '\0';
    cr_assert_not_null(strstr(got, "\nforwarded: 1\n"), "%s", got);
    cr_assert_not_null(strstr(got, "\n\nbody"), "%s", got);
}

/* Equal messages share an id that is derived from them. */
Test(amqp_forward, equal_messages_without_ids_are_not_marked)
{
    char to[400];
    struct harness_process *w;

    queue_create();
    snprintf(to, sizeof to, "%s", amqp_operand(amqp_of("to"), 1));
    cr_assert_eq(harness_run("mqsend", "--create", "--lines", to).status, 0);
    for (int i = 0; i < 3; i++)
        amqp_send("body");
    amqp_confirmed();
    w = amqp_worker("--forward", to);
    harness_until(amqp_ready(amqp_of("to")) == 3, SOON_MS);
    cr_assert_eq(harness_stop(w, 20000), 0);
    w = harness_worker(to, "-c", "1", "--", harness_handler("record"));
    harness_until_lines("runs", 3, SOON_MS);
    cr_assert_eq(harness_lines_with("runs", " 1 0 0 - body"), 3);
    cr_assert_eq(harness_stop(w, 20000), 0);
}

Test(amqp_forward, queues_of_two_kinds_that_are_a_circle_make_a_dead_letter)
{
    const char *q = harness_queue(10, 1024);
    struct harness_process *there, *back;
    const struct harness_letter *l;

    queue_create();
    there = harness_worker(q, "--forward", OP);
    back = amqp_worker("--forward", q);
    harness_send_text(q, "round");
    l = harness_wait_letters(q, 1, SOON_MS);
    cr_assert_not_null(strstr(l->error, "circle"), "%s", l->error);
    cr_assert_eq(harness_stop(there, 20000), 0);
    cr_assert_eq(harness_stop(back, 20000), 0);
}

static void killed_at(const char *q, const char *point)
{
    char at[64];
    struct harness_result r;

    snprintf(at, sizeof at, "MQW_KILL_AT=%s:1", point);
    r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST(harness_handler("../../points/bin/mqworker"),
                             "--state-dir", harness_state_dir(), "--forward",
                             OP, q),
        .env = HARNESS_LIST(at)});
    cr_assert_eq(r.status, -SIGKILL, "%s: %s", point, r.err);
}

/* The first copies are purged, so only the forwarder can mark the second
 * ones. */
Test(amqp_forward, a_second_copy_is_marked)
{
    static const char *const points[] = {"amqp_forward_sent",
                                         "amqp_forward_confirmed"};
    const char *q = harness_queue(10, 256);

    queue_create();
    for (size_t i = 0; i < 2; i++) {
        harness_send_text(q, "body");
        killed_at(q, points[i]);
        cr_assert_eq(amqp_ctl("purge_queue", amqp_queue).status, 0);
        forward_all(q, OP);
        consume(i + 1);
        cr_assert_eq(harness_lines_with("runs", " 1 1 0 - body"), i + 1);
    }
}

Test(amqp_forward, kills_at_any_moment_lose_nothing, .timeout = 600)
{
    enum { SENT = 200, KILLS = 25 };
    const char *q = harness_queue(10, 64);
    struct harness_process *w;
    char body[16], marked[32];
    int sent = 0;

    queue_create();
    for (unsigned i = 0, seed = 1; i < KILLS; i++) {
        uint64_t end;

        for (int k = 0; k < SENT / KILLS; k++, sent++) {
            snprintf(body, sizeof body, "b%d.", sent);
            harness_send_text(q, body);
        }
        w = harness_worker(q, "--forward", OP, "-q");
        seed = seed * 1103515245 + 12345;
        end = harness_now_ms() + 20 + (seed >> 16) % 100;
        while (harness_now_ms() < end)
            usleep(1000);
        harness_kill(w);
        if (harness_queue_length(q) > 2)
            forward_all(q, OP);
    }
    forward_all(q, OP);
    cr_assert_eq(harness_queue_length(q), 0);
    w = amqp_worker("-c", "4", "--", harness_handler("record"));
    for (int i = 0; i < SENT; i++) {
        snprintf(body, sizeof body, " b%d.", i);
        harness_until(harness_lines_with("runs", body) > 0, SOON_MS);
        /* A second one is acknowledged without a run where the worker knows
         * the first, else it runs with a mark. */
        snprintf(marked, sizeof marked, " 1 1 0 - b%d.", i);
        cr_assert_leq(harness_lines_with("runs", body),
                      1 + harness_lines_with("runs", marked), "%s", body);
    }
    cr_assert_eq(harness_stop(w, 20000), 0);
}
