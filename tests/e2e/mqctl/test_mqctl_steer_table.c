/* test_mqctl_steer_table.c - mqctl run-now and cancel for a message in each
 * state of list, beside a worker, after its stop and after its kill */
#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(mqctl_steer_table, .init = harness_init, .fini = harness_fini);

enum at { READY, SPOOLED, DELAYED, RETRY, PARKED, HELD, RUNNING, STATES };

static const char *const words[STATES] = {
    "ready", "spooled", "delayed", "retry", "parked", "held", "running"};

/* The handler does what the body says. */
#define HANDLER                                                       \
    "read b; echo \"$b\" >>ran\n"                                     \
    "case $b in fail*) exit 1;; dead) exit 65;; block) while [ ! -e " \
    "open ]; do sleep 0.02; done;; esac"

static char ids[STATES][32];

static const char *send_one(const char *q, const char *flag, const char *value,
                            const char *body)
{
    static char id[32];

    snprintf(
        id, sizeof id, "%.26s",
        ctl_good(harness_run("mqsend", "--print-id", flag, value, q, body)));
    return id;
}

static void send_as(enum at state, const char *q, const char *flag,
                    const char *value, const char *body)
{
    snprintf(ids[state], sizeof ids[state], "%s",
             send_one(q, flag, value, body));
}

/* Return whether list shows the message of that state, as this word. */
static bool state_is(const char *q, enum at state, const char *word)
{
    return strstr(ctl_out("list", "--json", "--state", word, q), ids[state]);
}

static bool where_is(const char *q, const char *id, const char *place)
{
    json_t *o = ctl_json(ctl("explain", "--json", q, id).out);
    bool is =
        strcmp(json_string_value(json_object_get(o, "where")), place) == 0;

    json_decref(o);
    return is;
}

/* Make one message in each state. The only handler is busy with RUNNING. */
static struct harness_process *scene(const char *q)
{
    struct harness_process *w = ctl_worker(
        q, "-c", "1", "--spool", "--on-group-dead", "hold", "--backoff", "1h",
        "--grace", "1ms", "--kill-after", "5s", "--", "sh", "-c", HANDLER);

    send_as(DELAYED, q, "--delay", "1h", "later\n");
    send_as(READY, q, "--delay", "1h", "soon\n");
    send_as(RETRY, q, "--priority", "0", "fail\n");
    send_one(q, "--group", "g", "fail head\n");
    send_as(PARKED, q, "--group", "g", "behind\n");
    send_one(q, "--group", "h", "dead\n");
    send_as(HELD, q, "--group", "h", "waits\n");
    for (enum at i = DELAYED; i <= HELD; i++)
        harness_until(state_is(q, i, words[i]), SOON_MS);
    send_as(RUNNING, q, "--priority", "0", "block\n");
    harness_until(state_is(q, RUNNING, "running"), SOON_MS);
    ctl_out("run-now", q, ids[READY]);
    send_as(SPOOLED, q, "--priority", "0", "next\n");
    harness_until(state_is(q, READY, "ready"), SOON_MS);
    harness_until(ctl_number(q, "spooled") == 1, SOON_MS);
    return w;
}

/* Check that a try ended with this status and text. */
static void tried(struct harness_result r, enum at state, const char *verb,
                  int status, const char *says)
{
    cr_assert_eq(r.status, status, "%s of what is %s: %d, not %d: %s%s", verb,
                 words[state], r.status, status, r.out, r.err);
    cr_assert(!says || strstr(r.err, says), "%s of what is %s: \"%s\", no %s",
              verb, words[state], r.err, says);
}

struct answer {
    int status;
    const char *says;
};

static void run_now_each(const char *q, const struct answer *now)
{
    for (enum at i = 0; i < STATES; i++)
        tried(ctl("run-now", q, ids[i]), i, "run-now", now[i].status,
              now[i].says);
}

/* Cancel the message of each state, with --running where cancel alone is
 * refused. RUNNING comes last, because its end lets another message run. */
static void cancel_each(const char *q, const struct answer *cancel)
{
    for (enum at i = 0; i < STATES; i++) {
        tried(ctl("cancel", q, ids[i]), i, "cancel", cancel[i].status,
              cancel[i].says);
        if (cancel[i].status)
            tried(ctl("cancel", "--running", q, ids[i]), i, "cancel --running",
                  0, NULL);
    }
}

/* Wait until all are discarded. Check that no message ran, except the two that
 * had run before they were cancelled. */
static void each_ended(const char *q, int count)
{
    static const char *const never[] = {"later", "soon", "behind", "waits",
                                        "next"};

    for (enum at i = 0; i < STATES; i++)
        harness_until(where_is(q, ids[i], "discarded"), SOON_MS);
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        cr_assert_eq(harness_lines_with("ran", never[i]), 0, "%s ran",
                     never[i]);
    cr_assert_eq(harness_lines_with("ran", "block"), 1);
    harness_until(ctl_number(q, "discarded") >= count, SOON_MS);
    cr_assert_eq(ctl_number(q, "discarded"), count);
    for (enum at i = 0; i < STATES; i++)
        harness_until(ctl("cancel", q, ids[i]).status == 66, SOON_MS);
}

/* Start a worker that takes what is left and holds no group. */
static struct harness_process *goes_on(const char *q)
{
    return ctl_worker(q, "-c", "1", "--spool", "--backoff", "1h", "--", "sh",
                      "-c", HANDLER);
}

Test(mqctl_steer_table, cancel_beside_a_worker)
{
    static const struct answer cancel[STATES] = {[RUNNING] = {75, "--running"}};
    const char *q = harness_queue(0, 0);
    struct harness_process *w = scene(q);

    cancel_each(q, cancel);
    each_ended(q, STATES);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_steer_table, cancel_after_a_stop)
{
    static const struct answer cancel[STATES] = {{0}};
    const char *q = harness_queue(0, 0);
    struct harness_process *w = scene(q);

    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cancel_each(q, cancel);
    ctl_out("cancel", "--match", "head", q); /* else it blocks the parked one */
    w = goes_on(q);
    each_ended(q, STATES + 1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* PARKED and HELD are in slots behind the heads of their groups, and RUNNING
 * was running. They can be cancelled only after the next worker has started. */
Test(mqctl_steer_table, cancel_after_a_kill)
{
    const struct answer slot = {75, "start the worker first: mqworker "};
    const struct answer cancel[STATES] = {
        [PARKED] = slot, [HELD] = slot, [RUNNING] = slot};
    const char *q = harness_queue(0, 0);
    struct harness_process *w = scene(q);

    harness_kill(w);
    for (enum at i = 0; i < STATES; i++)
        tried(ctl("cancel", q, ids[i]), i, "cancel", cancel[i].status,
              cancel[i].says);
    tried(ctl("cancel", "--running", q, ids[RUNNING]), RUNNING,
          "cancel --running", slot.status, slot.says);
    harness_write("open", "", 0);
    w = goes_on(q);
    harness_until(where_is(q, ids[RUNNING], "done"), SOON_MS);
    harness_until(where_is(q, ids[HELD], "done"), SOON_MS);
    cr_assert_eq(ctl("cancel", q, ids[PARKED]).status, 0);
    for (enum at i = 0; i <= PARKED; i++)
        harness_until(where_is(q, ids[i], "discarded"), SOON_MS);
    cr_assert_eq(harness_lines_with("ran", "block"), 2);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_steer_table, run_now_beside_a_worker)
{
    static const struct answer now[STATES] = {
        [RUNNING] = {75, "already"},
        [READY] = {0, "mqctl status"},
        [SPOOLED] = {0, "each runs in its turn"},
        [PARKED] = {75, "mqctl groups --state-dir /"},
        [HELD] = {75, " KEY release"}};
    const char *q = harness_queue(0, 0);
    struct harness_process *w = scene(q);

    run_now_each(q, now);
    cr_assert(state_is(q, DELAYED, "ready") && state_is(q, RETRY, "ready"));
    harness_write("open", "", 0);
    harness_until(where_is(q, ids[DELAYED], "done"), SOON_MS);
    ctl_out("group", q, "h", "release");
    harness_until(where_is(q, ids[HELD], "done"), SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Without a worker, what was running is due, and each held group stays held. */
static const struct answer alone[STATES] = {
    [READY] = {0, "start a worker"},
    [SPOOLED] = {0, "each runs in its turn"},
    [PARKED] = {75, "mqctl groups --state-dir /"},
    [HELD] = {75, " KEY release"},
    [RUNNING] = {0, "start a worker"}};

Test(mqctl_steer_table, run_now_after_a_stop)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = scene(q);

    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    run_now_each(q, alone);
    harness_write("open", "", 0);
    w = goes_on(q);
    harness_until(where_is(q, ids[DELAYED], "done"), SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_steer_table, run_now_after_a_kill)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = scene(q);

    harness_kill(w);
    run_now_each(q, alone);
    harness_write("open", "", 0);
    w = goes_on(q);
    harness_until(where_is(q, ids[DELAYED], "done"), SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}
