/* test_faults_groups.c - mqworker: the store fails while a group waits
 *
 * Messages of a group are parked behind a head that waits for its retry, or
 * the head dies. Nothing is lost and the order is kept.
 */
#include "tests/e2e/faults/faults_fixture.h"
#include "tests/harness/turns.h"

#include <fcntl.h>
#include <unistd.h>

TestSuite(faults_groups, .init = faults_init, .fini = harness_fini,
          .timeout = 300);

#define MEMBERS 8 /* messages behind the head; more than the lookahead */

/* Send a head that fails once, and messages behind it. */
static void group_send(const char *queue, unsigned round)
{
    char text[128];
    for (unsigned i = 0; i <= MEMBERS; i++) {
        snprintf(text, sizeof text, "MQW/1\ngroup: g%u\n\n%s-%u-%u.", round,
                 i ? "member" : "retry", round, i);
        harness_send_text(queue, text);
    }
}

/* Return true if all of the group is in `done`, each message once, in order. */
static bool ordered(unsigned round)
{
    char body[64];
    const char *at = harness_read("done", NULL);
    for (unsigned i = 0; at && i <= MEMBERS; i++) {
        snprintf(body, sizeof body, "%s-%u-%u.", i ? "member" : "retry", round,
                 i);
        at = strstr(at, body);
        if (!at || harness_lines_with("done", body) != 1)
            return false;
    }
    return at != NULL;
}

static struct harness_process *worker_start(const char *queue,
                                            const char *fault)
{
    const char *const argv[] = {"mqworker",
                                "--state-dir",
                                harness_state_dir(),
                                "-c",
                                "2",
                                "--lookahead",
                                "4",
                                "--backoff",
                                "100ms",
                                "--breaker-pause",
                                "10ms",
                                "--exit-when-idle=10ms",
                                queue,
                                "--",
                                harness_path("handler"),
                                NULL};
    return fault_start(fault, "tally", argv);
}

/* Make `count` calls fail from this position on. Return false if the call was
 * not reached. */
static bool fault_try(const char *queue, const char *call, unsigned position,
                      unsigned count, unsigned round)
{
    char fault[96];
    uint64_t seen, failed;
    snprintf(fault, sizeof fault, "%s:%u:%d:%u", call, position, EIO, count);
    group_send(queue, round);
    struct harness_process *w = worker_start(queue, fault);
    int status = harness_wait(w, 60000);
    fault_tally("tally", &seen, &failed);
    cr_assert(status == 0 || status == 73, "%s: %d: %s", fault, status,
              harness_stderr(w, NULL));
    w = harness_worker(queue, "--lookahead", "4", "--backoff", "1ms", "--",
                       harness_path("handler"));
    harness_wait_log(w, "event=started", 10000);
    char last[64];
    snprintf(last, sizeof last, "member-%u-%d.", round, MEMBERS);
    harness_until(harness_lines_with("done", last) > 0, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0, "%s", harness_stderr(w, NULL));
    cr_assert(ordered(round), "%s: %s", fault, harness_read("done", NULL));
    cr_assert_eq(harness_queue_length(queue), 0);
    return failed > 0;
}

/* Try every sixth position; each takes seconds, because the worker waits before
 * it writes again. */
static void faults_try(const char *call, unsigned count, unsigned most)
{
    static unsigned round;
    const char *queue = harness_queue(10, 256);
    unsigned position = 1;
    harness_write("done", "", 0);
    while (position < most && fault_try(queue, call, position, count, ++round))
        position += 6;
    cr_assert_gt(position, 1, "%s is never called", call);
}

Test(faults_groups, parking_that_cannot_be_written_keeps_the_order)
{
    faults_try("pwrite@store.db-wal", 4, 12);
    faults_try("fsync@store.db-wal", 1, 6);
}

Test(faults_groups, parked_messages_that_cannot_be_read_keep_the_order)
{
    faults_try("pread@store.db", 6, 12);
}

/* ---- hold ---- */

/* Wait until everything now in the queue was taken: until a later message has
 * run. */
static void passed(const char *queue, const char *body)
{
    turns_send(queue, NULL, 0, body);
    harness_until(strstr(turns_order("-"), body), 20000);
}

/* Replay or discard all letters. */
static void letters_all(const char *verb, const char *queue)
{
    struct harness_result r = harness_run("mqdlq", verb, "--state-dir",
                                          harness_state_dir(), "--all", queue);
    cr_assert_eq(r.status, 0, "%s", r.err);
}

/* The worker recovers the group before it can write the letter. */
Test(faults_groups, a_burial_that_cannot_be_written_at_once_holds_its_group)
{
    const char *queue = harness_queue(10, 256);
    struct harness_process *w = harness_worker(queue, "-c", "1", "--", TURN);
    turns_tell("gate", "0.0");
    turns_send(queue, "a", 0, "0.0");
    turns_send(queue, "a", 0, "0.1");
    harness_until(harness_lines_with("turns", "0.0") == 1, 10000);
    harness_kill(w);
    const char *const argv[] = {"mqworker",
                                "--state-dir",
                                harness_state_dir(),
                                "-c",
                                "1",
                                "--max-crashes",
                                "1",
                                "--on-group-dead",
                                "hold",
                                queue,
                                "--",
                                TURN,
                                NULL};
    w = fault_start("pwrite@store.db-wal:1:28:2", "tally", argv);
    harness_wait_log(w, "event=store_cannot_write", 10000);
    harness_wait_log(w, "event=store_writes_again", 20000);
    passed(queue, "9.0");
    cr_assert_str_eq(turns_order("a"), "", "it passed its letter");
    harness_wait_log(w, "event=group_held", 5000);
    letters_all("discard", queue);
    harness_until(strcmp(turns_order("a"), "0.1 ") == 0, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0, "%s", harness_stderr(w, NULL));
}

/* Make the next calls fail, with a fault that waits for call 1000000. */
static void fault_now(void)
{
    const uint64_t seen = 999999;
    int fd = open(harness_path("tally"), O_WRONLY | O_CLOEXEC);
    cr_assert_eq(pwrite(fd, &seen, sizeof seen, 0), (ssize_t)sizeof seen);
    close(fd);
}

/* Start a worker with the fault; group a is held, with "0.1" as its next
 * message. */
static struct harness_process *holding_start(const char *queue,
                                             const char *fault)
{
    const char *const argv[] = {"mqworker", "--state-dir", harness_state_dir(),
                                "-c",       "1",           "--on-group-dead",
                                "hold",     queue,         "--",
                                TURN,       NULL};
    struct harness_process *w = fault_start(fault, "tally", argv);
    turns_tell("dead", "0.0");
    turns_send(queue, "a", 0, "0.0");
    turns_send(queue, "a", 0, "0.1");
    harness_wait_log(w, "event=group_held", 10000);
    return w;
}

/* Discard the letter and check that the group goes on after `calls` failed
 * calls. */
static void let_go(struct harness_process *w, const char *queue, uint64_t calls)
{
    uint64_t seen, failed;
    letters_all("discard", queue);
    harness_wait_log(w, "event=group_released", 20000);
    fault_tally("tally", &seen, &failed);
    cr_assert_eq(failed, calls);
    harness_until(strcmp(turns_order("a"), "0.1 ") == 0, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0, "%s", harness_stderr(w, NULL));
}

/* No other program writes to the store, so the worker must look again by
 * itself. */
Test(faults_groups, a_store_that_cannot_be_read_holds_no_group_for_good)
{
    const char *queue = harness_queue(10, 256);
    struct harness_process *w =
        holding_start(queue, "pread@store.db:1000000:5:4");
    fault_now();
    let_go(w, queue, 4);
}

/* The first watch is that of the queue. */
Test(faults_groups, a_store_that_cannot_be_watched_holds_no_group_for_good)
{
    const char *queue = harness_queue(10, 256);
    let_go(holding_start(queue, "epoll_ctl@inotify:2:12:1"), queue, 1);
}

/* The worker can read what mqdlq writes only after its sync, which may take
 * long on a busy disk. */
Test(faults_groups, a_sync_that_takes_long_holds_no_group_for_good)
{
    const char *queue = harness_queue(10, 256);
    struct harness_process *w =
        holding_start(queue, "pread@store.db:1000000:5");
    const char *const argv[] = {
        "mqdlq", "discard", "-q", "--state-dir", harness_state_dir(),
        "--all", queue,     NULL};
    uint64_t seen, late;
    struct harness_process *p =
        fault_start("fsync@store.db-wal:1:0:0", "late", argv);
    cr_assert_eq(harness_wait(p, 20000), 0, "%s", harness_stderr(p, NULL));
    fault_tally("late", &seen, &late);
    cr_assert_gt(late, 0);
    harness_until(strcmp(turns_order("a"), "0.1 ") == 0, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0, "%s", harness_stderr(w, NULL));
}
