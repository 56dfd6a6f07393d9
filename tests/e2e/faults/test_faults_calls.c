/* test_faults_calls.c - mqworker: each system call fails once
 *
 * Each call that the worker needs fails at its first use, then at its second,
 * and so on. Nothing is lost, and the failure is reported.
 */
#include "tests/e2e/faults/faults_fixture.h"
#include "tests/harness/letters.h"

#include <unistd.h>

TestSuite(faults_calls, .init = faults_init, .fini = harness_fini);

/* A fault that is tried at position 1, 2, ... up to `most`, as far as the call
 * is reached. */
struct row {
    const char *call; /* CALL[@TEXT] for faults.c */
    int err;
    unsigned most, count; /* count 0: all from the position on */
    bool fresh;           /* each try has a new state directory */
    int status;           /* of the worker; 0: it goes on */
    const char *says;     /* expected in the one line of a worker that stops,
                           * else in the log; NULL: no report is needed */
};

/* State for all positions of a row. */
struct run {
    const struct row *row;
    const char *queue;
    bool stream; /* the handler is a child of --stream */
    unsigned position;
    size_t letters; /* expected in this state directory */
};

/* Send one message of each kind, with the position in the body. */
static void messages_send(const struct run *r)
{
    static const char *const kinds[] = {"ok", "dead", "retry"};
    for (size_t i = 0; i < 3; i++) {
        char body[32];
        snprintf(body, sizeof body, "%s-%u.", kinds[i], r->position);
        harness_send_text(r->queue, body);
    }
}

static const char *handler_of(const struct run *r)
{
    return harness_path("%s", r->stream ? "stream" : "handler");
}

static struct harness_process *worker_start(const struct run *r,
                                            const char *fault)
{
    const char *const argv[] = {"mqworker",
                                "--state-dir",
                                harness_state_dir(),
                                "-c",
                                "2",
                                "--backoff",
                                "1ms",
                                "--jitter",
                                "50",
                                "--breaker-pause",
                                "10ms",
                                "--exit-when-idle=10ms",
                                r->queue,
                                r->stream ? "--stream" : "--verbose",
                                "--",
                                handler_of(r),
                                NULL};
    return fault_start(fault, "tally", argv);
}

/* Run a worker with the fault. Return false if the call was not reached. */
static bool fault_run(const struct run *r)
{
    const struct row *row = r->row;
    char fault[96];
    uint64_t seen, failed;
    snprintf(fault, sizeof fault, "%s:%u:%d:%u", row->call, r->position,
             row->err, row->count);
    struct harness_process *w = worker_start(r, fault);
    int status = harness_wait(w, 30000);
    fault_tally("tally", &seen, &failed);
    if (failed == 0)
        return false;
    cr_assert_eq(status, row->status, "%s: status %d: %s", fault, status,
                 harness_stderr(w, NULL));
    if (status)
        cr_assert(fault_said(w, "mqworker", row->says), "%s: %s", fault,
                  harness_stderr(w, NULL));
    else if (row->says)
        cr_assert_gt(harness_log_count(w, row->says), 0, "%s: %s", fault,
                     harness_stderr(w, NULL));
    return true;
}

/* Check that a worker without faults finishes everything, and that each message
 * ran to its end once. */
static void audit(struct run *r)
{
    static const char *const kinds[] = {"ok", "retry"};
    struct harness_process *w =
        harness_worker(r->queue, r->stream ? "--stream" : "--verbose",
                       "--backoff", "1ms", "--", handler_of(r));
    harness_wait_log(w, "event=started", 10000);
    r->letters++;
    harness_wait_letters(r->queue, r->letters, 10000);
    for (size_t i = 0; i < 2; i++) {
        const char *body = harness_path("%s-%u.", kinds[i], r->position);
        body = strrchr(body, '/') + 1;
        harness_until(harness_lines_with("done", body) > 0, 10000);
        cr_assert_eq(harness_lines_with("done", body), 1, "%s ran twice", body);
    }
    cr_assert_eq(harness_stop(w, 10000), 0, "%s", harness_stderr(w, NULL));
    cr_assert_eq(harness_queue_length(r->queue), 0);
    cr_assert_eq(harness_log_count(w, "event=custody_damaged"), 0);
}

/* Move the state away, so that the next worker makes a new one. */
static void state_away(struct run *r)
{
    const char *flight = harness_runtime_folder(r->queue);
    cr_assert_eq(rename(harness_state_dir(),
                        harness_path("state.%s.%u", r->queue + 1, r->position)),
                 0);
    cr_assert_eq(rename(flight, harness_path("%s.%u", flight, r->position)), 0);
    r->letters = 0;
}

/* Return true if the first such call only tests whether it is allowed
 * (worker/process/process.h); a missing descriptor does not matter there. */
static bool is_asked(const char *call)
{
    return strcmp(call, "memfd_create") == 0 || strcmp(call, "pidfd_open") == 0;
}

/* Try all positions of a row. */
static void row_run(const struct row *row, bool stream)
{
    struct run r = {.row = row, .queue = harness_queue(0, 0), .stream = stream};
    unsigned first = 1 + is_asked(row->call);
    for (r.position = first; r.position <= row->most; r.position++) {
        messages_send(&r);
        bool reached = fault_run(&r);
        audit(&r);
        cr_assert(reached || r.position > first, "%s is never called",
                  row->call);
        if (row->fresh)
            state_away(&r);
        if (!reached)
            break;
    }
    if (!row->fresh)
        state_away(&r);
    cr_assert_eq(unlink(harness_path("done")), 0);
}

#define rows_run(rows, stream)                                     \
    do {                                                           \
        for (size_t i = 0; i < sizeof(rows) / sizeof *(rows); i++) \
            row_run(&(rows)[i], (stream));                         \
    } while (0)

Test(faults_calls, a_file_that_cannot_be_made_or_opened_stops_the_start_with_73)
{
    static const struct row rows[] = {
        {"mkdir", EACCES, 3, 0, true, 73, "Permission denied"},
        {"mkdir", ENOSPC, 3, 1, true, 73, "No space left on device"},
        {"open@worker.pid", EMFILE, 1, 1, true, 71, "ulimit -n"},
        {"open@custody.new", EMFILE, 1, 1, true, 71, "ulimit -n"},
        {"open@custody", EIO, 1, 0, false, 73, "Input/output error"},
        {"open@store.db", EIO, 1, 0, false, 73, "store.db"},
        {"lstat", EACCES, 1, 1, true, 73, "Permission denied"},
        {"stat@store.db", EIO, 1, 1, true, 73, "Input/output error"},
        {"fstat@custody", EIO, 1, 1, true, 73, "Input/output error"},
        {"mkostemp", ENOSPC, 1, 1, true, 73, "No space left"},
    };
    rows_run(rows, false);
}

Test(faults_calls, a_full_or_broken_disk_stops_the_start_with_73)
{
    static const struct row rows[] = {
        {"pwrite@worker.pid", ENOSPC, 1, 1, true, 73, "No space left"},
        {"pwrite@store.db", ENOSPC, 4, 0, true, 73, "No space left"},
        {"pwrite@store.db", EIO, 4, 0, true, 73, "Input/output error"},
        {"fallocate@custody.new", ENOSPC, 1, 1, true, 73, "No space left"},
        {"fallocate@custody.new", EIO, 1, 1, true, 73, "Input/output error"},
        {"pwrite@custody.new", ENOSPC, 3, 1, true, 73, "No space left"},
        {"pwrite@custody.new", EIO, 3, 1, true, 73, "Input/output error"},
        {"fsync@custody.new", EIO, 2, 1, true, 73, "Input/output error"},
        {"fsync@store.db", EIO, 1, 1, true, 73, "Input/output error"},
        {"pwrite@runtime.new", ENOSPC, 1, 1, true, 73, "No space left"},
        {"fsync@runtime.new", EIO, 1, 1, true, 73, "Input/output error"},
        {"flock@mqwt", ENOLCK, 1, 1, false, 73, "No locks available"},
        {"rename", EIO, 1, 1, true, 73, "Input/output error"},
        {"mmap@custody", ENOMEM, 2, 1, true, 71, "Cannot allocate memory"},
        {"msync", EIO, 1, 1, true, 73, "Input/output error"},
        {"pread@custody", EIO, 1, 1, false, 73, "Input/output error"},
        {"pread@store.db", EIO, 3, 0, false, 73, "Input/output error"},
        {"fsync@state", EIO, 3, 1, true, 73, "Input/output error"},
        {"ftruncate@worker.pid", EIO, 1, 1, true, 73, "Input/output error"},
        {"link", EIO, 1, 1, true, 73, "Input/output error"},
    };
    rows_run(rows, false);
}

/* Kill a worker after the last of `all` letters was written, which is then in
 * the -wal only. */
static void wal_left(const char *q, size_t all)
{
    harness_send_text(q, "dead-1");
    struct harness_process *w =
        harness_worker(q, "--", harness_path("handler"));
    harness_wait_letters(q, all, 10000); /* the log line comes before the
                                          * letter */
    harness_kill(w);
}

/* A file that cannot be read must not be treated as missing. If opening fails,
 * SQLite tries again read-only. */
Test(faults_calls, a_wal_that_cannot_be_read_stops_the_start)
{
    static const struct row rows[] = {
        {"open@store.db-wal", EMFILE, 0, 2, false, 71, "Too many open files"},
        {"open@store.db-wal", EIO, 0, 2, false, 73, "store.db"},
        {"pread@store.db-wal", EIO, 0, 1, false, 73, "Input/output error"},
        {"mmap@store.db-shm", ENOMEM, 0, 1, false, 73, "store.db"},
    };
    const char *q = harness_queue(0, 0);
    struct run r = {.queue = q, .position = 1};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wal_left(q, i + 1);
        r.row = &rows[i];
        cr_assert(fault_run(&r), "%s is never called", rows[i].call);
        struct harness_process *w = harness_worker(q, "--", "true");
        harness_wait_log(w, "event=started", 10000);
        harness_wait_letters(q, i + 1, 10000);
        cr_assert_eq(harness_stop(w, 10000), 0);
    }
}

Test(faults_calls, no_descriptors_stop_the_start_with_71)
{
    static const struct row rows[] = {
        {"eventfd", EMFILE, 4, 1, false, 71, "ulimit -n"},
        {"timerfd_create", EMFILE, 1, 1, false, 71, "ulimit -n"},
        {"timerfd_settime", ENOSYS, 1, 0, false, 71, "not implemented"},
        {"epoll_create1", EMFILE, 2, 1, false, 71, "ulimit -n"},
        {"epoll_ctl", ENOMEM, 3, 1, false, 71, "Cannot allocate memory"},
        {"mq_getattr", EBADF, 1, 1, false, 71, "Bad file descriptor"},
        {"signalfd", EMFILE, 2, 1, false, 71, "ulimit -n"},
    };
    rows_run(rows, false);
}

/* The first socket is the control socket, the second the service manager's. */
Test(faults_calls, no_socket_to_the_service_manager_is_told_and_stops_nothing)
{
    const char *q = harness_queue(0, 0);

    setenv("NOTIFY_SOCKET", "@mqworker-test-nobody", 1);
    struct harness_process *w =
        fault_start("socket:2:24", "tally",
                    HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(),
                                 "--max-deliveries", "1", q, "--",
                                 harness_path("handler")));
    harness_wait_log(w, "event=manager_not_told error=\"Too many open files\"",
                     10000);
    harness_send_text(q, "ok");
    cr_assert_eq(harness_wait(w, 10000), 0, "%s", harness_stderr(w, NULL));
    cr_assert_eq(harness_lines("done"), 1);
}

Test(faults_calls, receiving_that_fails_is_told_and_tried_again)
{
    static const struct row rows[] = {
        {"mq_receive", EINTR, 6, 1, false, 0, NULL},
        {"mq_receive", EBADF, 2, 1, false, 0, "event=trouble"},
        {"mq_receive", ENOMEM, 2, 1, false, 0, "event=trouble"},
        {"epoll_wait", EINTR, 5, 1, false, 0, NULL},
        {"pthread_create", EAGAIN, 1, 3, false, 0, "event=trouble"},
        {"read", EINTR, 8, 1, false, 0, NULL},
        {"write", EAGAIN, 4, 1, false, 0, NULL},
        {"timerfd_settime", ENOMEM, 3, 1, false, 0, NULL},
    };
    rows_run(rows, false);
}

/* The message has left the queue and has a number. The next message must get
 * another number; otherwise its row could be taken for the verdict on the
 * first. */
Test(faults_calls, a_message_that_was_half_received_runs_at_the_next_start)
{
    const char *q = harness_queue(10, 256);
    harness_send_text(q, "first");
    harness_send_text(q, "retry");
    struct harness_process *w = fault_start(
        "mq_received:1:14", "tally", /* EFAULT */
        HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(), "-v",
                     "--backoff", "1h", q, "--", harness_path("handler")));
    harness_wait_log(w, "event=half_received", 10000);
    harness_wait_log(w, "event=retry", 10000);
    harness_kill(w);
    w = harness_worker(q, "--exit-when-idle=10ms", "--",
                       harness_path("handler"));
    cr_assert_eq(harness_wait(w, 10000), 0);
    cr_assert_eq(harness_lines_with("done", "first"), 1, "%s",
                 harness_stderr(w, NULL));
}

/* Let mq_receive fail after it has taken the first message, and stop the worker
 * cleanly: the stop must report the message and keep it. */
static void half_received_stop(const char *q)
{
    struct harness_process *w = fault_start(
        "mq_received:1:14", "tally",
        HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(), "-c", "1",
                     "--lookahead", "3", q, "--", harness_path("handler")));

    harness_wait_log(w, "event=half_received", 10000);
    cr_assert_eq(harness_stop(w, 10000), 0, "%s", harness_stderr(w, NULL));
    cr_assert_eq(harness_log_count(w, "event=unfinished"), 1);
    cr_assert(strstr(harness_wait_log(w, "event=unfinished", 0),
                     "was half received"));
    cr_assert_eq(harness_log_count(w, "event=kept"), 1);
}

Test(faults_calls, one_that_was_half_received_has_its_own_id_after_a_stop)
{
#define ITS_ID "01JD3Z6Q9V0X8N5T2K7B4M1C3F"
    const char *q = harness_queue(10, 256);
    cr_assert_eq(harness_run("mqsend", "--id", ITS_ID, q, "first").status, 0);
    half_received_stop(q);
    struct harness_process *w =
        harness_worker(q, "--exit-when-idle=10ms", "--", "sh", "-c",
                       "echo $MQW_ID $MQW_LENGTH_INFERRED $(cat) >>done");
    cr_assert_eq(harness_wait(w, 10000), 0);
    cr_assert_str_eq(harness_read("done", NULL), ITS_ID " 1 first\n");
}

/* The first message is in the last slot, and the body leaves part of the last
 * page free: a search for the end of the header line must not run past the
 * file. */
Test(faults_calls, one_that_was_half_received_in_a_line_is_left_by_a_stop)
{
    const char *q = harness_queue(10, 64);
    harness_send_text(q, "MQW/1\nx: y");
    half_received_stop(q);
    struct harness_process *w = harness_worker(q, "--exit-when-idle=10ms", "--",
                                               harness_path("handler"));
    cr_assert_eq(harness_wait(w, 10000), 0);
    cr_assert_eq(harness_log_count(w, "reason=bad-header"), 1, "%s",
                 harness_stderr(w, NULL));
}

Test(faults_calls, a_handler_that_cannot_be_started_opens_the_breaker)
{
    static const struct row rows[] = {
        {"clone", EAGAIN, 4, 1, false, 0, "event=breaker_open"},
        {"clone", ENOMEM, 4, 3, false, 0, "event=breaker_open"},
        {"clone", EMFILE, 4, 1, false, 0, "event=breaker_open"},
        {"pipe2", EMFILE, 4, 1, false, 0, "event=breaker_open"},
        {"memfd_create", EMFILE, 5, 1, false, 0, "event=breaker_open"},
        {"pwrite@mqworker-body", ENOSPC, 2, 1, false, 0, "event=breaker_open"},
        {"poll", EINTR, 4, 1, false, 0, NULL},
        {"poll", ENOMEM, 4, 1, false, 0, NULL},
        {"waitid", EINTR, 4, 1, false, 0, NULL},
    };
    rows_run(rows, false);
}

Test(faults_calls, a_child_of_stream_that_cannot_be_started_opens_it_too)
{
    static const struct row rows[] = {
        {"clone", EAGAIN, 2, 1, false, 0, "breaker_open"},
        {"pipe2", EMFILE, 6, 1, false, 0, "breaker_open"},
        {"clone", EMFILE, 2, 1, false, 0, "breaker_open"},
    };
    rows_run(rows, true);
}

/* Return the line of a worker with --on-group-dead=hold that did not start. */
static const char *refused(const struct harness_process *w)
{
    const char *line = strstr(harness_stderr(w, NULL), "mqworker: ");
    cr_assert(line && strstr(line, "store.db-wal"), "%s",
              harness_stderr(w, NULL));
    return line;
}

Test(faults_calls, a_watch_that_cannot_be_had_names_the_limit_it_was)
{
    static const char *const faults[][2] = {
        {"inotify_init1:2:24", "`sysctl fs.inotify.max_user_instances="},
        {"inotify_add_watch@store.db-wal:1:28",
         "`sysctl fs.inotify.max_user_watches="}};
    const char *q = harness_queue(0, 0);
    const char *const argv[] = {"mqworker",
                                "--state-dir",
                                harness_state_dir(),
                                "--on-group-dead",
                                "hold",
                                q,
                                "--",
                                "true",
                                NULL};
    for (size_t i = 0; i < 2; i++) {
        struct harness_process *w = fault_start(faults[i][0], "tally", argv);
        cr_assert_eq(harness_wait(w, 10000), 71);
        cr_assert(strstr(refused(w), faults[i][1]), "%s", refused(w));
        cr_assert_null(strstr(refused(w), "ulimit"), "%s", refused(w));
    }
}

/* inotify_init1 fails alike if the process has no descriptor left. */
Test(faults_calls, a_watch_that_finds_no_descriptor_is_a_matter_of_ulimit)
{
    const char *q = harness_queue(0, 0);
    bool seen = false;
    for (unsigned n = 8; n < 40 && !seen; n++) {
        char limit[32];
        snprintf(limit, sizeof limit, "--nofile=%u", n);
        struct harness_result r =
            harness_run("prlimit", limit, harness_bin("mqworker"),
                        "--state-dir", harness_state_dir(), "--on-group-dead",
                        "hold", "--exit-when-idle=0s", q, "--", "true");
        seen = strstr(r.err, "cannot watch");
        cr_assert(!seen || strstr(r.err, "`ulimit -n "), "%s", r.err);
    }
    cr_assert(seen);
}

Test(faults_calls, a_verdict_that_cannot_be_written_waits)
{
    static const struct row rows[] = {
        {"pwrite@store.db-wal", ENOSPC, 3, 1, false, 0, NULL},
        {"pwrite@store.db-wal", ENOSPC, 1, 9, false, 0, "store_cannot_write"},
        {"pwrite@store.db-wal", EIO, 1, 9, false, 0, "store_cannot_write"},
        {"fsync@store.db-wal", EIO, 2, 1, false, 0, NULL},
        {"fsync@store.db-wal", EIO, 1, 4, false, 0, "store_cannot_write"},
    };
    rows_run(rows, false);
}

Test(faults_calls, what_only_makes_things_better_may_fail)
{
    static const struct row rows[] = {
        {"inotify_init1", EMFILE, 3, 1, false, 0, NULL},
        {"unlink", EIO, 4, 1, true, 0, NULL},
        {"inotify_add_watch", ENOSPC, 2, 1, false, 0, NULL},
        {"madvise", EINVAL, 4, 1, true, 0, NULL},
        {"mlock", ENOMEM, 2, 1, true, 0, NULL},
        {"fstatfs", ENOSYS, 1, 1, true, 0, NULL},
        {"getrandom", ENOSYS, 3, 0, true, 0, NULL},
        {"posix_fallocate", ENOSPC, 2, 1, true, 0, "counters_private"},
        {"posix_fallocate", ENOSPC, 5, 1, true, 0, NULL},
        {"mmap@counters", ENOMEM, 1, 1, true, 0, "counters_private"},
        {"socket", EMFILE, 1, 1, false, 0, "control_off"},
        {"bind", EACCES, 1, 1, false, 0, "control_off"},
        {"listen", EADDRINUSE, 1, 1, false, 0, "control_off"},
        {"open@mqueue", EMFILE, 3, 1, false, 0, NULL},
    };
    rows_run(rows, false);
}
