/* test_spool.c - mqworker: messages wait on disk instead of in the queue
 * (--spool) */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/harness/harness.h"
#include "tests/harness/letters.h"
#include "tests/harness/plugins/inversions.h"

TestSuite(spool, .init = harness_init, .fini = harness_fini);

/* A handler that notes the body and waits for the file "open". */
static const char *gated(void)
{
    return harness_script("gated", "read x; : >runs; [ $x != again ] || [ "
                                   "$MQW_ATTEMPT -gt 1 ] || exit 1\n"
                                   "[ $x != dead ] || exit 65\n"
                                   "while [ ! -e open ]; do sleep 0.01; done\n"
                                   "echo \"$x $MQW_REDELIVERED\" >>out\n");
}

static void open_gate(void)
{
    harness_write("open", "", 0);
}

static int64_t spooled(const char *queue)
{
    return harness_sql(queue, "SELECT count(*) FROM spool");
}

static void send_number(const char *queue, int n, unsigned priority)
{
    char text[32];

    sprintf(text, "%d", n);
    harness_send(queue, text, strlen(text), priority);
}

/* Give the only handler a message, so that later messages have to wait. */
static void first_runs(const char *queue)
{
    harness_send_text(queue, "first");
    harness_until(harness_exists("runs"), 20000);
}

/* Copy line `n` (from 0) of `out` to `text`; return its length, or 0. */
static char line_at(size_t n, char text[64])
{
    const char *at = harness_read("out", NULL);

    for (; n > 0 && at; n--) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    return (char)(at ? snprintf(text, 64, "%.*s", (int)strcspn(at, "\n"), at)
                     : 0);
}

Test(spool, a_sender_does_not_wait_for_handlers_and_the_order_is_the_queues)
{
    const char *q = harness_queue(10, 64);
    struct harness_process *w =
        harness_worker(q, "--spool", "-c", "1", "--", gated());
    char text[64];

    first_runs(q);
    for (int i = 0; i < 100; i++)
        send_number(q, i, (unsigned)(i % 4));
    harness_until(harness_queue_length(q) == 0, 10000);
    cr_assert(harness_lines("out") == 0, "one has run at a closed gate");
    open_gate();
    harness_until_lines("out", 101, 30000);
    line_at(0, text);
    cr_assert(strncmp(text, "first", 5) == 0, "%s", text);
    for (int i = 0; i < 100; i++) {
        int n = -1, want = 4 * (i % 25) + 3 - i / 25;

        line_at((size_t)i + 1, text);
        cr_assert(sscanf(text, "%d", &n) == 1 && n == want, "%d: %s", i, text);
    }
    cr_assert(harness_stop(w, 10000) == 0);
    cr_assert(spooled(q) == 0);
}

/* Check how many messages in the queue and in the spool the line of this event,
 * the first or the last one, has at its end. */
static void left_logged(struct harness_process *w, const char *event,
                        long in_queue, int64_t in_spool)
{
    const char *line = harness_wait_log(w, event, 10000);
    const char *end = strstr(line, " in_queue=");
    char want[64];

    snprintf(want, sizeof want, " in_queue=%ld spooled=%lld", in_queue,
             (long long)in_spool);
    cr_assert(end && strcmp(end, want) == 0, "not \"%s\": %s", want, line);
}

Test(spool, a_stop_empties_the_queue_and_the_next_worker_runs_it_all)
{
    const char *q = harness_queue(10, 64);
    int64_t left;
    struct harness_process *w =
        harness_worker(q, "--spool", "-c", "1", "--", gated());

    first_runs(q);
    for (int i = 0; i < 50; i++)
        send_number(q, i, 0);
    harness_signal(w, SIGTERM);
    open_gate();
    cr_assert(harness_wait(w, 30000) == 0);
    cr_assert(harness_queue_length(q) == 0);
    cr_assert(harness_lines("out") + (size_t)spooled(q) == 51);
    cr_assert(harness_sql(q, "SELECT boot IS NULL FROM spool_state") == 1);
    left_logged(w, "event=stopped", 0, spooled(q));
    left = spooled(q);
    /* A worker without --spool runs them as well. */
    w = harness_worker(q, "-c", "1", "--", gated());
    left_logged(w, "event=started", 0, left);
    harness_until_lines("out", 51, 30000);
    cr_assert(harness_lines_with("out", " 1") == 0, "one was a repeat");
    cr_assert(harness_stop(w, 10000) == 0);
    cr_assert(spooled(q) == 0);
}

Test(spool, a_kill_loses_nothing_and_repeats_say_so)
{
    const char *q = harness_queue(10, 64);
    struct harness_process *w = NULL;
    int sent = 0;

    open_gate();
    for (int round = 0; round < 12; round++) {
        size_t ran = harness_lines("out");

        w = harness_worker(q, "--spool", "--max-crashes", "100", "-c", "2",
                           "--", gated());
        for (int i = 0; i < 60; i++)
            send_number(q, sent++, (unsigned)(i % 3));
        harness_until_lines("out", ran + 1, 20000);
        harness_kill(w);
    }
    w = harness_worker(q, "--max-crashes", "100", "-c", "2", "--", gated());
    harness_until(spooled(q) == 0 && harness_queue_length(q) == 0, 60000);
    cr_assert(harness_stop(w, 10000) == 0);
    for (int i = 0; i < sent; i++) {
        const char *all = harness_read("out", NULL), *at = all;
        size_t plain = 0, again = 0;
        char line[32], other[32];

        sprintf(line, "\n%d 0\n", i);
        sprintf(other, "\n%d 1\n", i);
        for (at = all; (at = strstr(at, line)); at++)
            plain++;
        for (at = all; (at = strstr(at, other)); at++)
            again++;
        if (strncmp(all, line + 1, strlen(line) - 1) == 0)
            plain++;
        cr_assert(plain + again > 0, "%d is lost", i);
        cr_assert(plain <= 1, "%d ran %zu times unmarked", i, plain);
    }
}

Test(spool, one_that_fails_waits_and_dies_as_without_a_spool)
{
    const char *q = harness_queue(10, 64);
    struct harness_process *w =
        harness_worker(q, "--spool", "--spool-sync", "always", "--backoff",
                       "10ms", "-c", "1", "--", gated());

    open_gate();
    harness_send_text(q, "dead");
    harness_send_text(q, "again");
    harness_send_text(q, "good");
    harness_until_lines("out", 2, 20000);
    cr_assert(harness_stop(w, 10000) == 0);
    cr_assert(spooled(q) == 0);
    cr_assert(harness_sql(q, "SELECT count(*) FROM messages") == 1);
    cr_assert(harness_sql(q, "SELECT count(*) FROM messages WHERE state = 3") ==
              1);
}

/* Return the rows of the spool while the only message runs. */
static int64_t rows_of_one(const char *sync)
{
    const char *q = harness_queue(10, 64);
    struct harness_process *w =
        harness_worker(q, "--spool", "--spool-sync", sync, "-c", "1", "--",
                       harness_script("note", "touch runs; while [ ! -e "
                                              "open ]; do sleep 0.01; "
                                              "done\n"));
    int64_t rows;

    harness_wait_log(w, "event=started", 10000);
    harness_send_text(q, "one");
    harness_until(harness_exists("runs"), 10000);
    rows = spooled(q);
    open_gate();
    cr_assert(harness_stop(w, 10000) == 0);
    cr_assert(spooled(q) == 0);
    unlink(harness_path("open"));
    unlink(harness_path("runs"));
    return rows;
}

/* A handler may start a millisecond late, and then the message waits and has a
 * row: under the thread sanitizer in all but one of about thirty tries. */
Test(spool, always_writes_one_before_it_runs_and_waiting_only_those_that_wait)
{
    int late = 0;

    cr_assert(rows_of_one("always") == 1);
    while (rows_of_one("waiting") != 0)
        cr_assert_lt(++late, 600, "each had a row");
}

Test(spool, a_full_spool_holds_senders_back_and_says_so_once)
{
    const char *q = harness_queue(10, 64);
    struct harness_process *w =
        harness_worker(q, "--spool=20", "-c", "1", "--", gated());
    int sent = 0;

    first_runs(q);
    for (int i = 0; i < 30; i++, sent++)
        send_number(q, i, 0);
    harness_wait_log(w, "event=spool_full", 10000);
    harness_until(harness_queue_length(q) == 10, 10000);
    cr_assert(!harness_try_send(q, "no", 2, 0));
    cr_assert(harness_run("mqctl", "set", "--state-dir", harness_state_dir(), q,
                          "spool=1000")
                  .status == 0);
    harness_until(harness_queue_length(q) == 0, 10000);
    open_gate();
    harness_until_lines("out", 31, 30000);
    cr_assert(harness_stop(w, 10000) == 0);
    cr_assert(harness_log_count(w, "event=spool_full") == 1);
    cr_assert(harness_log_count(w, "event=spool_room") == 1);
}

Test(spool, a_stop_names_what_a_full_spool_leaves_in_the_queue)
{
    const char *q = harness_queue(10, 64);
    struct harness_process *w =
        harness_worker(q, "--spool=20", "-c", "1", "--", gated());

    first_runs(q);
    for (int i = 0; i < 30; i++)
        send_number(q, i, 0);
    harness_wait_log(w, "event=spool_full", 10000);
    harness_until(harness_queue_length(q) == 10, 10000);
    harness_signal(w, SIGTERM);
    harness_wait_log(w, "event=stopping", 10000);
    open_gate();
    cr_assert(harness_wait(w, 30000) == 0);
    cr_assert(spooled(q) == 20);
    cr_assert(harness_queue_length(q) == 10);
    cr_assert(harness_log_count(w, "event=spool_left") == 1);
    cr_assert(harness_log_count(w, "left=10 error=\"the spool is full\"") == 1);
    /* Do what the log recommends: a larger --spool. */
    w = harness_worker(q, "--spool=100", "-c", "1", "--", gated());
    harness_until_lines("out", 31, 30000);
    cr_assert(harness_stop(w, 10000) == 0);
    cr_assert(harness_log_count(w, "event=spool_left") == 0);
}

/* A stop moves the rest of the queue to the spool as a running worker does. */
Test(spool, a_stop_that_empties_the_queue_has_a_delayed_one_wait_for_its_time)
{
    const char *q = harness_queue(10, 256);
    struct harness_process *w =
        harness_worker(q, "--spool", "-c", "1", "--", gated());

    first_runs(q);
    harness_signal(w, SIGTERM);
    harness_wait_log(w, "event=stopping", 10000);
    cr_assert(harness_run("mqsend", "--delay", "1h", q, "late").status == 0);
    send_number(q, 1, 0);
    open_gate();
    cr_assert(harness_wait(w, 30000) == 0);
    cr_assert(harness_queue_length(q) == 0);
    cr_assert(spooled(q) == 1);
    cr_assert(harness_sql(q, "SELECT count(*) FROM messages WHERE state = 1") ==
              1);
    w = harness_worker(q, "--spool", "-c", "1", "--", gated());
    harness_until_lines("out", 2, 30000);
    cr_assert(harness_sql(q, "SELECT count(*) FROM messages WHERE state = 1") ==
              1);
    cr_assert(harness_stop(w, 10000) == 0);
    cr_assert(harness_lines("out") == 2);
}

Test(spool, it_is_turned_on_while_a_worker_runs)
{
    const char *q = harness_queue(10, 64);
    struct harness_process *w = harness_worker(q, "-c", "1", "--", gated());

    first_runs(q);
    for (int i = 0; i < 10; i++)
        send_number(q, i, 0);
    cr_assert(!harness_try_send(q, "no", 2, 0));
    cr_assert(harness_run("mqctl", "set", "--state-dir", harness_state_dir(), q,
                          "spool=1000")
                  .status == 0);
    harness_until(harness_queue_length(q) == 0, 10000);
    for (int i = 10; i < 100; i++)
        send_number(q, i, 0);
    open_gate();
    harness_until_lines("out", 101, 30000);
    cr_assert(harness_stop(w, 10000) == 0);
}

Test(spool, what_is_larger_than_the_queue_takes_now_is_a_letter)
{
    const struct mq_attr small = {.mq_maxmsg = 10, .mq_msgsize = 64};
    const char *q = harness_queue(4, 4096);
    struct harness_process *w =
        harness_worker(q, "--spool", "-c", "1", "--", gated());
    char large[3000];
    mqd_t mq;

    memset(large, 'x', sizeof large);
    first_runs(q);
    for (int i = 0; i < 5; i++)
        harness_send(q, large, sizeof large, 0);
    send_number(q, 7, 0);
    harness_signal(w, SIGTERM);
    harness_wait_log(w, "event=stopping", 10000);
    open_gate();
    cr_assert(harness_wait(w, 30000) == 0);
    cr_assert(spooled(q) == 6);
    mq_unlink(q);
    mq = mq_open(q, O_RDWR | O_CREAT, 0600, &small);
    cr_assert(mq != (mqd_t)-1);
    mq_close(mq);
    w = harness_worker(q, "-c", "4", "--", gated());
    harness_until_lines("out", 2, 30000);
    cr_assert(harness_sql(q, "SELECT count(*) FROM messages WHERE state = 3") ==
              5);
    cr_assert(harness_sql(q, "SELECT min(length(data)) FROM messages") ==
              sizeof large);
    cr_assert(harness_stop(w, 10000) == 0);
    cr_assert(spooled(q) == 0);
}

/* Messages behind the rows fill the few slots of a worker without --spool. It
 * must go on with the slots that each batch frees. */
Test(spool, turned_off_it_goes_on_when_what_comes_has_all_slots)
{
    const char *q = harness_queue(10, 64);
    struct harness_process *w =
        harness_worker(q, "--spool", "-c", "1", "--", gated());

    first_runs(q);
    for (int i = 0; i < 60; i++)
        send_number(q, i, 1);
    harness_signal(w, SIGTERM);
    harness_wait_log(w, "event=stopping", 10000);
    open_gate();
    cr_assert(harness_wait(w, 30000) == 0);
    w = harness_worker(q, "-c", "1", "--lookahead", "1", "--batch-time-limit",
                       "1ms", "--", gated());
    for (int i = 60; i < 120; i++)
        send_number(q, i, 0);
    harness_until_lines("out", 121, 60000);
    cr_assert(harness_stop(w, 10000) == 0);
    cr_assert(spooled(q) == 0);
}

Test(spool, turned_off_it_leaves_nothing_that_waits_for_the_disk)
{
    const char *q = harness_queue(10, 64);
    struct harness_process *w = harness_worker(
        q, "--spool", "--spool-sync", "always", "-c", "2", "--",
        harness_script("dies", "read x; echo $x >>out; [ $x != free ] || exit 0"
                               "\nwhile [ ! -e $x ]; do sleep 0.01; done\n"
                               "exit 65\n"));

    harness_send_text(q, "a");
    harness_send_text(q, "b");
    harness_until_lines("out", 2, 20000);
    harness_send_text(q, "c");
    harness_until(spooled(q) == 3, 10000);
    cr_assert(harness_run("mqctl", "set", "--state-dir", harness_state_dir(), q,
                          "spool=0")
                  .status == 0);
    harness_send_text(q, "free");
    harness_write("a", "", 0); /* its letter makes room for c */
    harness_until_lines("out", 3, 20000);
    harness_write("b", "", 0);
    harness_until(harness_lines_with("out", "free") == 1, 20000);
    harness_write("c", "", 0);
    cr_assert(harness_stop(w, 10000) == 0);
    cr_assert(spooled(q) == 0);
}

Test(spool, it_goes_on_with_a_queue_that_was_made_again)
{
    const struct mq_attr attr = {.mq_maxmsg = 10, .mq_msgsize = 64};
    const char *q = harness_queue(10, 64);
    struct harness_process *w =
        harness_worker(q, "--spool", "-c", "1", "--", gated());
    mqd_t mq;

    harness_wait_log(w, "event=started", 10000);
    mq_unlink(q);
    mq = mq_open(q, O_RDWR | O_CREAT, 0600, &attr);
    cr_assert(mq != (mqd_t)-1);
    mq_close(mq);
    harness_wait_log(w, "event=queue_opened_again", 10000);
    first_runs(q);
    for (int i = 0; i < 50; i++)
        send_number(q, i, 0);
    harness_until(harness_queue_length(q) == 0, 10000);
    open_gate();
    harness_until_lines("out", 51, 30000);
    cr_assert(harness_stop(w, 10000) == 0);
}

Test(spool, a_letter_that_is_sent_again_leaves_nothing_in_it)
{
    const char *q = harness_queue(10, 1024);
    struct harness_process *w = harness_worker(
        q, "--spool", "--spool-sync", "always", "-c", "1", "--",
        harness_script("dies", "[ -e open ] || exit 65\ntouch ran\n"));

    harness_send_text(q, "one");
    harness_wait_letters(q, 1, 20000); /* the log line comes before the
                                        * letter */
    open_gate();
    cr_assert(harness_run("mqdlq", "replay", "--state-dir", harness_state_dir(),
                          "--all", q)
                  .status == 0);
    harness_until(harness_exists("ran"), 20000);
    cr_assert(harness_stop(w, 10000) == 0);
    cr_assert(harness_sql(q, "SELECT count(*) FROM messages") == 0);
    cr_assert(spooled(q) == 0);
}

/* Create the file `inversions` and map it, to share it with the plugin. */
static struct inversions *shared(void)
{
    static const struct inversions none;
    struct inversions *in;
    int fd;

    harness_write("inversions", &none, sizeof none);
    fd = open(harness_path("inversions"), O_RDWR | O_CLOEXEC);
    in = mmap(NULL, sizeof *in, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    cr_assert(in != MAP_FAILED);
    return in;
}

static void send_random(const char *queue, struct inversions *in, int n)
{
    unsigned seed = (unsigned)harness_now_ms();
    mqd_t mq = mq_open(queue, O_WRONLY);

    printf("seed %u\n", seed);
    cr_assert(mq != (mqd_t)-1);
    for (int i = 0; i < n; i++) {
        unsigned p = (unsigned)rand_r(&seed) % INVERSIONS_PRIORITIES;
        char body[32];
        int size = sprintf(body, "%u.%lu", p, atomic_load(&in->sent[p]) + 1);

        cr_assert(mq_send(mq, body, (size_t)size, p) == 0);
        atomic_fetch_add(&in->sent[p], 1);
    }
    mq_close(mq);
}

static uint64_t came(const struct inversions *in)
{
    uint64_t n = 0;

    for (int i = 0; i < INVERSIONS_PRIORITIES; i++)
        n += atomic_load(&in->came[i]);
    return n;
}

Test(spool, none_of_100000_comes_before_one_of_a_higher_priority)
{
    const char *q = harness_queue(10, 64);
    struct inversions *in = shared();
    struct harness_process *w = harness_worker(
        q, "--spool", "-c", "1", "--plugin", harness_plugin("inversions"));

    harness_wait_log(w, "event=started", 10000);
    send_random(q, in, 50000); /* some run at once */
    cr_assert(
        harness_run("mqctl", "pause", "--state-dir", harness_state_dir(), q)
            .status == 0);
    send_random(q, in, 30000); /* all wait */
    cr_assert(
        harness_run("mqctl", "resume", "--state-dir", harness_state_dir(), q)
            .status == 0);
    send_random(q, in, 20000); /* both */
    harness_until(came(in) == 100000, 120000);
    cr_assert(harness_stop(w, 20000) == 0);
    cr_assert(atomic_load(&in->inverted) == 0);
    cr_assert(atomic_load(&in->out_of_line) == 0);
    cr_assert(spooled(q) == 0);
}
