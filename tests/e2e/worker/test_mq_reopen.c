/* test_mq_reopen.c - mqworker: its queue is removed and created again */
#include "tests/e2e/tools/run_fixture.h"

#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(reopen, .init = harness_init, .fini = harness_fini);

#define SOON_MS 5000

/* Create a queue as an administrator would. Return false if it exists. */
static bool create(const char *q, long depth, long size)
{
    struct mq_attr attr = {.mq_maxmsg = depth, .mq_msgsize = size};
    mqd_t mq = mq_open(q, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600, &attr);
    if (mq != (mqd_t)-1)
        mq_close(mq);
    return mq != (mqd_t)-1;
}

static void removed(const char *q)
{
    cr_assert_eq(mq_unlink(q), 0);
}

/* Return the geometry and mode of the queue that has that name now. */
static struct mq_attr geometry(const char *q, mode_t *mode)
{
    struct mq_attr attr;
    struct stat st;
    mqd_t mq = mq_open(q, O_RDONLY | O_CLOEXEC);
    cr_assert_neq(mq, (mqd_t)-1);
    cr_assert_eq(mq_getattr(mq, &attr), 0);
    cr_assert_eq(fstat(mq, &st), 0);
    mq_close(mq);
    *mode = st.st_mode & 0777;
    return attr;
}

/* Start a worker whose handlers run until the file "go" exists. */
#define gated(q, ...)                                                \
    harness_worker(                                                  \
        q, "-c", "1", __VA_ARGS__, "--", "sh", "-c",                 \
        "read b; echo $b >>runs; while [ ! -e go ]; do sleep 0.01; " \
        "done")

/* Check that the tries to open the queue are at least 1 s, 2 s, 4 s and so on
 * apart. */
static void tries_check(const struct harness_process *w)
{
    long last = -1, day = 24 * 3600 * 1000L, wait = 1000;
    const char *text = harness_stderr(w, NULL), *end;
    for (; (end = strchr(text, '\n')); text = end + 1) {
        const char *at = strstr(text, "event=queue_not_opened");
        if (!at || at > end)
            continue;
        long now = run_line_ms(text);
        if (last >= 0) {
            cr_assert_geq((now - last + day) % day + 5, wait, "%s",
                          harness_stderr(w, NULL));
            wait *= 2;
        }
        last = now;
    }
    cr_assert_geq(last, 0);
}

/* Return true if log line `a` comes before log line `b`. */
static bool before(const struct harness_process *w, const char *a,
                   const char *b)
{
    const char *text = harness_stderr(w, NULL);
    const char *at = strstr(text, a), *bt = strstr(text, b);
    return at && bt && at < bt;
}

Test(reopen, an_idle_worker_notices_at_once_and_makes_it_again)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "--", RECORD);
    harness_wait_log(w, "event=started", SOON_MS);
    removed(q);
    harness_wait_log(w, "event=queue_deleted", SOON_MS);
    harness_wait_log(w, "event=queue_opened_again", SOON_MS);
    cr_assert(before(w, "event=queue_deleted", "event=queue_opened_again"));
    harness_send_text(q, "x");
    harness_until_lines("runs", 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(reopen, what_is_left_is_drained_first_and_in_order)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = gated(q, "-v");
    for (int i = 1; i <= 5; i++) {
        char body[16];
        snprintf(body, sizeof body, "old%d\n", i);
        harness_send_text(q, body);
    }
    harness_until_lines("runs", 1, SOON_MS);
    removed(q);
    cr_assert(create(q, 4, 128));
    harness_send_text(q, "new1\n");
    harness_send_text(q, "new2\n");
    harness_wait_log(w, "event=queue_deleted", SOON_MS);
    cr_assert_eq(harness_log_count(w, "event=queue_opened_again"), 0);
    harness_write("go", "", 0);
    harness_until_lines("runs", 7, SOON_MS);
    const char *line = harness_wait_log(w, "event=queue_opened_again", SOON_MS);
    cr_assert_eq(atol(run_field(line, "depth")), 4, "%s", line);
    cr_assert_eq(atol(run_field(line, "message_size")), 128, "%s", line);
    cr_assert_str_eq(harness_read("runs", NULL),
                     "old1\nold2\nold3\nold4\nold5\nnew1\nnew2\n");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(reopen, it_is_made_as_it_was)
{
    mode_t mode;
    const char *q = harness_queue_name();
    cr_assert(create(q, 7, 200));
    mqd_t mq = mq_open(q, O_RDONLY | O_CLOEXEC);
    cr_assert_eq(fchmod(mq, 0642), 0);
    mq_close(mq);
    struct harness_process *w = harness_worker(q, "--", RECORD);
    harness_wait_log(w, "event=started", SOON_MS);
    removed(q);
    harness_wait_log(w, "event=queue_opened_again", SOON_MS);
    struct mq_attr attr = geometry(q, &mode);
    cr_assert_eq(attr.mq_maxmsg, 7);
    cr_assert_eq(attr.mq_msgsize, 200);
    cr_assert_eq(mode, 0642, "%o", (unsigned)mode);
    harness_send_text(q, "x");
    harness_until_lines("runs", 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(reopen, it_is_made_as_the_flags_say)
{
    mode_t mode;
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--queue-depth", "5", "--message-size", "128",
                       "--mode", "0620", "--", RECORD);
    harness_wait_log(w, "event=started", SOON_MS);
    removed(q);
    harness_wait_log(w, "event=queue_opened_again", SOON_MS);
    struct mq_attr attr = geometry(q, &mode);
    cr_assert_eq(attr.mq_maxmsg, 5);
    cr_assert_eq(attr.mq_msgsize, 128);
    cr_assert_eq(mode, 0620, "%o", (unsigned)mode);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(reopen, a_sender_that_waits_for_room_in_the_old_one_is_served)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = gated(q, "-v");
    harness_send_text(q, "first\n");
    harness_until_lines("runs", 1, SOON_MS);
    struct harness_process *sender =
        harness_program("mqsend", "--repeat", "12", q, "x");
    harness_until(harness_queue_length(q) == 10, SOON_MS);
    cr_assert(harness_running(sender));
    removed(q);
    harness_wait_log(w, "event=queue_deleted", SOON_MS);
    harness_write("go", "", 0);
    harness_wait(sender, SOON_MS); /* 66: mqsend noticed the removal as well */
    harness_until_lines("runs", 13, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(reopen, again_and_again_with_messages_in_each_of_them)
{
    enum { TIMES = 20, EACH = 3 };
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "4", "--", RECORD);
    harness_wait_log(w, "event=started", SOON_MS);
    for (int i = 0; i < TIMES; i++) {
        for (int n = 0; n < EACH; n++)
            harness_send_text(q, "x");
        removed(q);
        create(q, 10, 256); /* unless the worker was faster */
        harness_until(harness_log_count(w, "event=queue_opened_again") ==
                          (size_t)i + 1,
                      SOON_MS);
    }
    harness_until_lines("runs", TIMES * EACH, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_lines("runs"), TIMES * EACH);
    cr_assert_eq(harness_log_count(w, "event=queue_deleted"), TIMES);
    cr_assert_eq(harness_log_count(w, "event=trouble"), 0);
}

Test(reopen, retries_wait_through_it)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--backoff", "400ms", "--jitter", "0", "--", "sh",
                       "-c", "echo $MQW_ATTEMPT >>runs; [ $MQW_ATTEMPT = 2 ]");
    harness_wait_log(w, "event=retry", SOON_MS);
    removed(q);
    harness_wait_log(w, "event=queue_opened_again", SOON_MS);
    harness_until_lines("runs", 2, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_str_eq(harness_read("runs", NULL), "1\n2\n");
}

Test(reopen, a_paused_worker_drains_it_when_it_goes_on)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "--", RECORD);
    harness_wait_log(w, "event=started", SOON_MS);
    harness_signal(w, SIGUSR2);
    harness_wait_log(w, "event=paused", SOON_MS);
    for (int i = 0; i < 3; i++)
        harness_send_text(q, "x");
    removed(q);
    harness_wait_log(w, "event=queue_deleted", SOON_MS);
    cr_assert(create(q, 10, 256));
    harness_send_text(q, "y");
    harness_signal(w, SIGCONT);
    harness_until_lines("runs", 4, SOON_MS);
    cr_assert_eq(harness_lines_with("runs", " y"), 1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* ---- --no-create ---- */

Test(reopen, with_no_create_it_waits_for_somebody_to_make_it)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = gated(q, "--no-create");
    harness_send_text(q, "a\n");
    harness_send_text(q, "b\n");
    harness_until_lines("runs", 1, SOON_MS);
    removed(q);
    harness_write("go", "", 0);
    harness_until_lines("runs", 2, SOON_MS);
    harness_wait_log(w, "event=queue_not_opened", SOON_MS);
    run_nap(1300); /* the second try comes after 1 s */
    tries_check(w);
    cr_assert_eq(harness_queue_length(q), -1, "a queue was made");
    cr_assert(harness_running(w));
    cr_assert(create(q, 10, 256));
    harness_send_text(q, "c\n");
    harness_until_lines("runs", 3, 2 * SOON_MS);
    harness_wait_log(w, "event=queue_opened_again", SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(reopen, with_no_create_a_worker_without_a_queue_can_be_stopped)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "--no-create", "--", RECORD);
    harness_wait_log(w, "event=started", SOON_MS);
    removed(q);
    harness_wait_log(w, "event=queue_not_opened", SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* ---- another message size ---- */

Test(reopen, one_with_smaller_messages_is_used)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "--", RECORD);
    harness_wait_log(w, "event=started", SOON_MS);
    harness_signal(w, SIGUSR2);
    harness_wait_log(w, "event=paused", SOON_MS);
    removed(q);
    cr_assert(create(q, 10, 64));
    harness_signal(w, SIGCONT);
    harness_wait_log(w, "event=queue_opened_again", SOON_MS);
    harness_send_text(q, "x");
    harness_until_lines("runs", 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(reopen, one_with_larger_messages_ends_it_and_is_left_alone)
{
    char large[300];
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "4", "--", RECORD);
    harness_wait_log(w, "event=started", SOON_MS);
    harness_signal(w, SIGUSR2);
    harness_wait_log(w, "event=paused", SOON_MS);
    for (int i = 0; i < 10; i++)
        harness_send_text(q, "old");
    removed(q);
    cr_assert(create(q, 8, 300));
    memset(large, 'L', sizeof large);
    for (int i = 0; i < 8; i++)
        harness_send(q, large, sizeof large, 0);
    harness_signal(w, SIGCONT);
    const char *line =
        harness_wait_log(w, "event=queue_messages_larger", SOON_MS);
    cr_assert_eq(atol(run_field(line, "message_size")), 300, "%s", line);
    cr_assert_eq(harness_wait(w, SOON_MS), 71, "the end looks normal");
    cr_assert_eq(harness_lines_with("runs", " old"), 10, "not drained before");
    cr_assert_eq(harness_queue_length(q), 8,
                 "a message was taken into too "
                 "small a slot");
    w = harness_worker(q, "--exit-when-idle", "--", RECORD);
    cr_assert_eq(run_end(w, SOON_MS).done, 8);
}

/* Start a worker for the same queue with another state directory. */
static struct harness_process *second_start(const char *q)
{
    return harness_program("mqworker", "--state-dir", harness_path("second"),
                           "--runtime-dir", harness_path("second-runtime"),
                           "--allow-disk-custody", q, "--", "true");
}

Test(reopen, a_second_worker_names_the_one_that_has_the_queue)
{
    const char *q = harness_queue(0, 0), *line;
    char want[512];
    struct harness_process *first = harness_worker(q, "--", "true"), *second;

    harness_wait_log(first, "event=started", SOON_MS);
    second = second_start(q);
    line = harness_wait_log(second, "event=queue_shared", SOON_MS);
    snprintf(want, sizeof want,
             " pid=%d state_dir=%s%s next=", (int)harness_pid(first),
             harness_state_dir(), q);
    cr_expect(strstr(line, want), "%s, not%s", line, want);
    cr_expect_eq(harness_log_count(first, "event=queue_shared"), 0);

    /* The new queue of that name is shared as well. */
    removed(q);
    harness_wait_log(first, "event=queue_opened_again", SOON_MS);
    harness_wait_log(second, "event=queue_opened_again", SOON_MS);
    cr_expect_geq(harness_log_count(first, "event=queue_shared") +
                      harness_log_count(second, "event=queue_shared"),
                  2);

    /* Killed workers leave nothing that looks like another worker. */
    harness_kill(first);
    harness_kill(second);
    second = second_start(q);
    harness_wait_log(second, "event=started", SOON_MS);
    cr_expect_eq(harness_stop(second, SOON_MS), 0);
    cr_expect_eq(harness_log_count(second, "event=queue_shared"), 0);
}
