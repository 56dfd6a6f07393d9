/* test_faults_look.c - mqctl: each call fails once
 *
 * Each call of mqctl fails at its first use, then at its second, and so on.
 * mqctl exits with a documented status and prints why, and the worker goes on.
 */
#include "tests/e2e/faults/faults_fixture.h"

#include <ctype.h>

TestSuite(faults_look, .init = faults_init, .fini = harness_fini,
          .timeout = 300);

/* The first FIRST calls of malloc are tried, some of them for talking to a
 * worker. Of every call, POSITIONS are tried, spread over the run. */
#define FIRST     80
#define POSITIONS 24

struct look {
    const char *const *argv;
    const char *fault; /* CALL[@TEXT]:N:ERRNO */
};

static const char *page_statuses(void)
{
    return " 0 1 66 69 71 73 75 77 78 ";
}

/* Check that the status is documented, and that a failure has one line without
 * control bytes. */
static void look_check(const struct look *l, const struct harness_process *p,
                       int status)
{
    char word[16];
    size_t size;
    const char *err = harness_stderr(p, &size);
    snprintf(word, sizeof word, " %d ", status);
    cr_assert_not_null(strstr(page_statuses(), word), "mqctl %s: %s: %d: %s",
                       l->argv[1], l->fault, status, err);
    /* doctor prints its findings on stdout. */
    if (status > 1)
        cr_assert(fault_said(p, "mqctl", ""), "mqctl %s: %s: %d: %s",
                  l->argv[1], l->fault, status, err);
    for (size_t i = 0; i < size; i++)
        cr_assert(err[i] == '\n' || !iscntrl((unsigned char)err[i]));
}

/* Run mqctl with the fault; return how many such calls it made. */
static uint64_t look_run(const struct look *l)
{
    uint64_t seen, failed;
    struct harness_process *p = fault_start(l->fault, "tally", l->argv);
    look_check(l, p, harness_wait(p, 30000));
    fault_tally("tally", &seen, &failed);
    return seen;
}

/* Make the call fail everywhere, then at positions from the first to the
 * last. */
static void call_run(const char *const *argv, const char *call, int err)
{
    char fault[96];
    struct look l = {argv, fault};
    snprintf(fault, sizeof fault, "%s:1:%d:0", call, err);
    if (sweep_takes())
        look_run(&l); /* all calls fail */
    snprintf(fault, sizeof fault, "%s:%u:%d", call, 1u << 30, err);
    uint64_t last = look_run(&l);
    uint64_t step = last / POSITIONS + 1;
    uint64_t first = strcmp(call, "malloc") == 0 ? FIRST : 0;
    for (uint64_t n = 1; n <= last; n += n < first ? 1 : step) {
        snprintf(fault, sizeof fault, "%s:%u:%d", call, (unsigned)n, err);
        if (sweep_takes())
            look_run(&l);
    }
}

/* Return the arguments of mqctl for a verb, with the test's state directory. */
static const char *const *argv_of(const char *verb, const char *queue)
{
    static const char *argv[8];
    size_t n = 0;
    argv[n++] = "mqctl";
    argv[n++] = verb;
    argv[n++] = "--state-dir";
    argv[n++] = harness_state_dir();
    if (strcmp(verb, "metrics") == 0) {
        argv[n++] = "--textfile";
        argv[n++] = harness_path("metrics.prom");
    } else if (strcmp(verb, "queues") != 0) {
        argv[n++] = queue;
    }
    argv[n] = NULL;
    return argv;
}

/* Try each call of a verb while a worker is running. */
static void calls_run(const char *verb)
{
    static const struct {
        const char *call;
        int err;
    } calls[] = {
        {"malloc", ENOMEM},   {"open", EMFILE},     {"read", EIO},
        {"mmap", ENOMEM},     {"fstat", EIO},       {"stat", EACCES},
        {"lstat", EACCES},    {"socket", EMFILE},   {"connect", EACCES},
        {"poll", EINTR},      {"rename", EACCES},   {"fsync", EIO},
        {"send", EPIPE},      {"recv", ECONNRESET}, {"opendir", EMFILE},
        {"readlink", EACCES}, {"pread", EIO},       {"mq_getattr", EIO},
        {"write", ENOSPC},
    };
    const char *queue = harness_queue(10, 256);
    struct harness_process *w =
        harness_worker(queue, "--", harness_path("handler"));
    harness_wait_log(w, "event=started", 10000);
    harness_send_text(queue, "dead");
    harness_wait_log(w, "event=dead", 10000);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        call_run(argv_of(verb, queue), calls[i].call, calls[i].err);
    sweep_end(verb);
    harness_send_text(queue, "after");
    harness_until(harness_lines_with("done", "after") == 1, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0, "%s", harness_stderr(w, NULL));
}

Test(faults_look, a_list_of_queues_ends_with_a_status_of_its_page)
{
    calls_run("queues");
}

Test(faults_look, a_status_is_told_or_it_is_said_why_not)
{
    calls_run("status");
}

Test(faults_look, a_doctor_without_means_names_them)
{
    calls_run("doctor");
}

Test(faults_look, metrics_are_whole_or_not_written)
{
    calls_run("metrics");
}

Test(faults_look, an_order_is_taken_or_refused_and_the_worker_goes_on)
{
    calls_run("resume");
}

/* ---- what could not be read ---- */

static size_t lines_of(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Check that mqctl prints everything, with lines that begin with the titles, or
 * why it cannot. It must never print that a message does not exist. */
static void told(const char *const *argv, const char *fault, size_t lines,
                 const char *const *titles)
{
    char line[32];
    struct harness_process *p = fault_start(fault, "tally", argv);
    int status = harness_wait(p, 30000);
    const char *out = harness_stdout(p, NULL);
    const char *err = harness_stderr(p, NULL);
    snprintf(line, sizeof line, " %d ", status);
    cr_assert(status == 0 || (strstr(" 69 71 73 74 75 77 78 ", line) &&
                              fault_said(p, "mqctl", "")),
              "mqctl %s: %s: %d %s", argv[1], fault, status, err);
    if (status == 0 && !titles)
        cr_assert_eq(lines_of(out), lines, "mqctl %s: %s: %s", argv[1], fault,
                     out);
    for (; status == 0 && titles && *titles; titles++) {
        snprintf(line, sizeof line, "\n%s ", *titles);
        /* A line about counters replaces "ended" if they are missing. */
        bool ends = strcmp(*titles, "ended") == 0;
        cr_assert(strstr(out, line) || (ends && strstr(out, "\ncounters ")),
                  "mqctl %s: %s: no line \"%s\": %s", argv[1], fault, *titles,
                  out);
    }
}

/* Call told with each call failing at its first and some later positions. */
static void told_run(const char *const *argv, const char *const *titles)
{
    static const struct {
        const char *call;
        int err;
        bool made; /* made by each verb */
    } calls[] = {{"malloc", ENOMEM, true},
                 {"open@custody", EIO, true},
                 {"open@counters", EIO, false},
                 {"read@runtime", EIO, true},
                 {"pread@store.db", EIO, true}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char fault[96];
        uint64_t last, failed;
        snprintf(fault, sizeof fault, "%s:%u:%d", calls[i].call, 1u << 30,
                 calls[i].err);
        struct harness_process *p = fault_start(fault, "tally", argv);
        cr_assert_eq(harness_wait(p, 30000), 0, "%s", harness_stderr(p, NULL));
        size_t lines = lines_of(harness_stdout(p, NULL));
        fault_tally("tally", &last, &failed);
        cr_assert(last > 0 || !calls[i].made, "mqctl %s: no %s", argv[1],
                  calls[i].call);
        uint64_t step = last / POSITIONS + 1;
        for (uint64_t n = 1; n <= last; n += n < POSITIONS ? 1 : step) {
            snprintf(fault, sizeof fault, "%s:%u:%d", calls[i].call,
                     (unsigned)n, calls[i].err);
            if (sweep_takes())
                told(argv, fault, lines, titles);
        }
    }
    sweep_end(argv[1]);
}

Test(faults_look, what_could_not_be_looked_at_is_not_said_to_be_absent)
{
    static const char *const titles[] = {"in the queue", "in custody",
                                         "in the store", "ended", NULL};
    const char *dir = harness_state_dir(), *q = harness_queue(10, 256);
    struct harness_process *w = harness_worker(
        q, "-c", "2", "--", "sh", "-c",
        "read b; [ $b != dead ] || exit 65; echo runs >>done; sleep 600");
    harness_send_text(q, "dead\n");
    harness_wait_log(w, "event=dead", 10000);
    struct harness_result r = harness_run("mqsend", "--print-id", q, "stays");
    char id[27] = "";
    cr_assert_eq(sscanf(r.out, "%26s", id), 1, "%s", r.err);
    harness_until_lines("done", 1, 10000);
    told_run(HARNESS_LIST("mqctl", "list", "--state-dir", dir, q), NULL);
    told_run(HARNESS_LIST("mqctl", "explain", "--state-dir", dir, q, "1"),
             NULL);
    told_run(HARNESS_LIST("mqctl", "explain", "--state-dir", dir, q, id), NULL);
    told_run(HARNESS_LIST("mqctl", "queues", "--state-dir", dir),
             HARNESS_LIST(q));
    told_run(HARNESS_LIST("mqctl", "status", "--state-dir", dir, q), titles);
    harness_kill(w);
}
