/* test_amqp_share.c - how much a worker of a broker takes in hand and leaves to
 * others */
#define AMQP_BROKER 1
#define AMQP_SHARED
#include "tests/e2e/amqp/amqp_fixture.h"
#include "tests/e2e/amqp/amqp_relay.h"

TestSuite(amqp_share, .init = amqp_init, .fini = amqp_fini);

#define OP amqp_operand(amqp_queue, 1)
#define CTL(verb, ...) \
    harness_run("mqctl", verb, "--state-dir", harness_state_dir(), __VA_ARGS__)

/* "slow" waits for a file. */
#define BY_BODY                                                          \
    "b=$(cat); echo \"one $MQW_REDELIVERED $b\" >>runs\n"                \
    "case $b in slow*) while [ ! -e go ]; do sleep 0.05; done ;; esac\n" \
    "case $b in *dead*) exit 65 ;; esac\n"

static void send_some(const char *prefix, unsigned count)
{
    char text[40];

    for (unsigned i = 0; i < count; i++) {
        snprintf(text, sizeof text, "%s%u", prefix, i);
        amqp_send(text);
    }
    amqp_confirmed();
}

/* Start a worker with a state directory of its own, as on another machine. */
static struct harness_process *other(void)
{
    return amqp_worker("--state-dir", harness_path("other"), "--",
                       harness_script("o", "echo two $MQW_REDELIVERED >>runs"));
}

static unsigned consumers(void)
{
    const amqp_queue_declare_ok_t *ok =
        amqp_queue_declare(amqp_client, 1, amqp_word(amqp_queue), 1, 1, 0, 0,
                           (amqp_table_t){0, NULL});

    cr_assert_not_null(ok);
    return ok->consumer_count;
}

/* Fails where a consumer begins again under the name of one that was cancelled
 * and has messages: 3.10.8 closes the connection. */
Test(amqp_share, max_concurrency_is_changed_beside_messages_that_run)
{
    struct harness_process *w =
        amqp_worker("-c", "2", "--", harness_script("h", BY_BODY));

    send_some("slow", 2);
    harness_until_lines("runs", 2, 20000);
    cr_assert_eq(CTL("set", OP, "max-concurrency=5").status, 0);
    send_some("good", 3);
    harness_until_lines("runs", 5, 20000);
    cr_assert_eq(CTL("set", OP, "max-concurrency=3").status, 0);
    send_some("more", 3);
    harness_until_lines("runs", 8, 20000);
    harness_write("go", "", 0);
    harness_until(amqp_ready(amqp_queue) == 0, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines("runs"), 8, "not each once");
    cr_assert_eq(harness_log_count(w, "event=link_lost"), 0);
}

/* Fails where a worker that is paused keeps what it has. */
Test(amqp_share, a_worker_that_is_paused_leaves_all_to_others)
{
    enum { MANY = 20 };
    struct harness_process *w =
        amqp_worker("-c", "1", "--", harness_script("h", BY_BODY));
    struct harness_process *o;

    cr_assert_eq(CTL("pause", OP).status, 0);
    send_some("good", MANY);
    harness_wait_log(w, "event=given_back", 20000);
    harness_until(consumers() == 0, 10000);
    o = other();
    harness_until_lines("runs", MANY, 20000);
    cr_assert_eq(harness_lines_with("runs", "two"), MANY);
    cr_assert_eq(harness_stop(o, 10000), 0);
    cr_assert_eq(CTL("resume", OP).status, 0);
    send_some("again", MANY);
    /* What is on its way to a consumer that ends is marked, too. */
    harness_until(harness_lines_with("runs", " again") == MANY, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_log_count(w, "event=link_lost"), 0);
}

/* Fails where the breaker's probe finds nothing to take. */
Test(amqp_share, a_worker_whose_breaker_is_open_gives_back_and_probes)
{
    struct harness_process *w = amqp_worker(
        "-c", "1", "--breaker-failures", "1", "--breaker-pause", "8s",
        "--backoff", "1s", "--jitter", "0", "--",
        harness_script("h", "[ -e go ] || exit 1; echo done >>runs\n"));

    send_some("x", 5);
    harness_wait_log(w, "event=breaker_open", 20000);
    harness_wait_log(w, "event=given_back", 20000);
    harness_write("go", "", 0);
    harness_until_lines("runs", 5, 60000);
    harness_wait_log(w, "event=breaker_closed", 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines("runs"), 5);
}

/* Fails where a worker fetches much before it has shown that it is fast. */
Test(amqp_share, a_worker_that_is_slow_leaves_the_rest_to_others)
{
    enum { MANY = 20 };
    struct harness_process *w =
        amqp_worker("-c", "1", "--", harness_script("h", BY_BODY));
    struct harness_process *o;

    send_some("slow", 2);
    harness_until_lines("runs", 1, 20000);
    o = other();
    send_some("good", MANY);
    harness_until(harness_lines_with("runs", "two") == MANY, 20000);
    harness_write("go", "", 0);
    harness_until_lines("runs", MANY + 2, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_stop(o, 10000), 0);
    cr_assert_eq(harness_lines_with("runs", "one 0 slow"), 2);
    cr_assert_eq(harness_lines("runs"), MANY + 2);
}

/* Limit the queue of letters so that it takes no more, or lift the limit. */
static void full(bool is)
{
    char pattern[120];
    struct harness_result r;

    snprintf(pattern, sizeof pattern, "^%s$", amqp_of("dead"));
    r = is ? amqp_ctl("set_policy", amqp_queue, pattern, "{\"max-length\":1}")
           : amqp_ctl("clear_policy", amqp_queue);
    cr_assert_eq(r.status, 0, "%s", r.err);
}

/* Return true if the queue has an active consumer. A cancelled one that still
 * has messages counts as a consumer elsewhere, but not here. */
static bool consumes(void)
{
    struct harness_result r = amqp_ctl("list_consumers", "queue_name");

    cr_assert_eq(r.status, 0, "%s", r.err);
    return strstr(r.out, amqp_queue) != NULL;
}

/* Fails where a slow worker, which consumes nothing while one message waits in
 * hand, takes a letter without its confirm for a message that will run. */
Test(amqp_share, a_letter_that_is_not_confirmed_holds_up_no_slow_worker)
{
    enum { MANY = 5 };
    struct harness_process *w =
        amqp_worker("-c", "1", "--", harness_script("h", BY_BODY));
    long before;

    full(true);
    before = amqp_fill(amqp_of("dead"));
    send_some("slow-dead", 1);
    send_some("good", 1);
    harness_until_lines("runs", 1, 20000);
    harness_until(!consumes(), 40000);
    harness_write("go", "", 0);
    harness_until_lines("runs", 2, 20000);
    send_some("more", MANY);
    harness_until_lines("runs", 2 + MANY, 20000);
    full(false);
    harness_until(amqp_ready(amqp_of("dead")) == before + 1, 60000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines("runs"), 2 + MANY, "none ran twice");
}

/* ---- how fast the broker is, and how fast handlers are ---- */

/* Return the prefetch of the worker as the broker knows it; 0: the worker is
 * consuming nothing. */
static unsigned in_hand(void)
{
    struct harness_result r =
        amqp_ctl("-q", "list_consumers", "queue_name", "prefetch_count");
    const char *line = strstr(r.out, amqp_queue);
    unsigned n = 0;

    cr_assert_eq(r.status, 0, "%s", r.err);
    if (line)
        cr_assert_eq(sscanf(line, "%*s %u", &n), 1, "%s", line);
    return n;
}

/* With two in hand, each two messages need a round trip. Fails where a worker
 * takes more only after 164 in 5 s, which it never reaches with two. */
Test(amqp_share, a_broker_that_is_far_away_slows_no_quick_handler_down)
{
    enum { MANY = 1000, WAY_MS = 60, TWO_MS = MANY / 2 * 2 * WAY_MS };
    unsigned port = relay_open(amqp_port(1), WAY_MS);
    struct harness_process *w;
    uint64_t since;
    char op[100];

    snprintf(op, sizeof op, "amqp://guest@127.0.0.1:%u/%%2F/%s", port,
             amqp_queue);
    w = amqp_started(
        harness_worker(op, "-c", "1", "--plugin", harness_plugin("done")));
    harness_until(in_hand() == 2, 20000);
    since = harness_now_ms();
    send_some("x", MANY);
    harness_until_lines("done", MANY, TWO_MS);
    cr_assert_lt(harness_now_ms() - since, TWO_MS * 2 / 3, "%" PRIu64 " ms",
                 harness_now_ms() - since);
    harness_until(in_hand() > 2, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines("done"), MANY);
}

/* Fails where a worker takes more in hand only because of its rate. */
Test(amqp_share, handlers_that_have_always_one_to_run_keep_to_two)
{
    enum { MANY = 130 }; /* more than two periods of 5 s */
    struct harness_process *w = amqp_worker(
        "-c", "1", "--", harness_script("h", "sleep 0.1; echo >>n"));

    send_some("x", MANY);
    harness_until_lines("n", MANY - 5, 60000);
    cr_assert_eq(in_hand(), 2);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

/* Fails where handlers that have nothing to run are taken for a broker that is
 * far away. */
Test(amqp_share, a_queue_that_is_nearly_empty_keeps_to_two)
{
    enum { MANY = 65 }; /* for more than a period of 5 s */
    struct harness_process *w =
        amqp_worker("-c", "1", "--plugin", harness_plugin("done"));

    for (int i = 1; i <= MANY; i++) {
        send_some("x", 1);
        harness_until_lines("done", i, 10000);
        harness_run("sleep", "0.1");
    }
    harness_until(in_hand() > 0, 10000);
    cr_assert_eq(in_hand(), 2);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

/* Fails where the first message after an idle time ends a period that the time
 * is part of, so that the worker was slow in it. */
Test(amqp_share, a_worker_that_was_quick_is_so_after_an_idle_time)
{
    /* Quick after 164; the few behind them are all of the next period. */
    enum { MANY = 190 };
    struct harness_process *w =
        amqp_worker("-c", "1", "--plugin", harness_plugin("done"));

    send_some("x", MANY);
    harness_until_lines("done", MANY, 20000);
    harness_until(in_hand() == 82, 10000);
    harness_run("sleep", "6"); /* a period, and more */
    send_some("y", 1);
    harness_until_lines("done", MANY + 1, 10000);
    cr_assert_eq(in_hand(), 82);
    cr_assert_eq(harness_stop(w, 10000), 0);
}
