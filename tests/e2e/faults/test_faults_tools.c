/* test_faults_tools.c - mqsend, mqdlq: each call fails once
 *
 * Each call of these tools fails at its first use, then at its second, and so
 * on. They do all their work or report what failed, and no letter is lost.
 */
#include "tests/e2e/faults/faults_fixture.h"

TestSuite(faults_tools, .init = faults_init, .fini = harness_fini,
          .timeout = 300);

/* Number of positions of a call to try, spread over the run. */
#define POSITIONS 12
#define LETTERS   3

struct tool {
    const char *const *argv;
    const char *queue;
    void (*before)(const struct tool *t);
    void (*after)(const struct tool *t, int status, const char *what);
};

struct call {
    const char *name; /* CALL[@TEXT] for faults.c */
    int err;
};

/* Run the tool with the fault; return how many such calls it made. */
static uint64_t tool_run(const struct tool *t, const char *fault)
{
    static const char statuses[] = " 0 66 71 73 74 75 77 78 ";
    char word[16], what[256];
    uint64_t seen, failed;
    t->before(t);
    struct harness_process *p = fault_start(fault, "tally", t->argv);
    int status = harness_wait(p, 30000);
    fault_tally("tally", &seen, &failed);
    snprintf(what, sizeof what, "%s %s, %s: %d: %.100s", t->argv[0], t->argv[1],
             fault, status, harness_stderr(p, NULL));
    snprintf(word, sizeof word, " %d ", status);
    cr_assert_not_null(strstr(statuses, word), "%s", what);
    cr_assert(status == 0 || fault_said(p, t->argv[0], ""), "%s", what);
    cr_assert(status == 0 || failed > 0, "%s", what);
    t->after(t, status, what);
    return seen;
}

/* Make all calls fail, then one at a time, for each of the calls. */
static void tool_try(const struct tool *t, const struct call *calls, size_t n)
{
    char fault[96];
    for (size_t i = 0; i < n; i++) {
        const char *name = calls[i].name;
        int err = calls[i].err;
        snprintf(fault, sizeof fault, "%s:%u:%d", name, 1u << 30, err);
        uint64_t last = tool_run(t, fault);
        cr_assert_gt(last, 0, "%s %s never calls %s", t->argv[0], t->argv[1],
                     name);
        snprintf(fault, sizeof fault, "%s:1:%d:0", name, err);
        tool_run(t, fault);
        uint64_t step = last / POSITIONS + 1;
        for (uint64_t at = 1; at <= last; at += step) {
            snprintf(fault, sizeof fault, "%s:%u:%d", name, (unsigned)at, err);
            tool_run(t, fault);
        }
    }
}

#define TOOL_TRY(t, calls) tool_try(t, calls, sizeof(calls) / sizeof *(calls))

/* Empty the queue and return how many messages were in it. */
static long queue_empty(const char *queue)
{
    char body[256];
    long count = 0;
    while (harness_receive(queue, body, sizeof body, NULL) >= 0)
        count++;
    return count;
}

/* ---- mqsend ---- */

static void nothing(const struct tool *t)
{
    (void)t;
}

static void sent_or_said(const struct tool *t, int status, const char *what)
{
    long sent = queue_empty(t->queue);
    cr_assert(status == 0 ? sent == 3 : sent <= 3, "%ld sent: %s", sent, what);
}

Test(faults_tools, mqsend_sends_all_or_says_so)
{
    static const struct call calls[] = {
        {"open@lines", EMFILE}, {"read@lines", EIO},   {"mq_getattr", EBADF},
        {"mq_send", EBADF},     {"mq_send", EMSGSIZE},
    };
    const char *q = harness_queue(10, 256);
    harness_write("lines", "a\nb\nc\n", 6);
    struct tool t = {
        HARNESS_LIST("mqsend", "--lines", "--file", harness_path("lines"), q),
        q, nothing, sent_or_said};
    TOOL_TRY(&t, calls);
}

/* ---- mqdlq ---- */

/* Empty the queue and remove the state directory with all letters. */
static void state_away(const struct tool *t)
{
    queue_empty(t->queue);
    struct harness_result r = harness_run("rm", "-rf", harness_state_dir());
    cr_assert_eq(r.status, 0, "%s", r.err);
}

static void letters_make(const struct tool *t)
{
    state_away(t);
    struct harness_result r =
        harness_run("mqdlq", "import", "--state-dir", harness_state_dir(),
                    t->queue, harness_path("three"));
    cr_assert_eq(r.status, 0, "%s", r.err);
}

/* Count the letters in the store; `marked`: those marked as sent. */
static long letters(const struct tool *t, bool marked)
{
    struct harness_result r = harness_run(
        "mqdlq", "list", "--count", "--state-dir", harness_state_dir(),
        t->queue, marked ? "--replayed" : NULL);
    cr_assert_eq(r.status, 0, "%s", r.err);
    return atol(r.out);
}

static void imported_or_said(const struct tool *t, int status, const char *what)
{
    long count = letters(t, false);
    cr_assert(status == 0 ? count == LETTERS : count <= LETTERS, "%ld: %s",
              count, what);
}

static void replayed_or_said(const struct tool *t, int status, const char *what)
{
    long dead = letters(t, false), away = letters(t, true),
         sent = queue_empty(t->queue);
    cr_assert_eq(dead + away, LETTERS, "%ld and %ld: %s", dead, away, what);
    cr_assert_leq(sent, away, "%ld sent, %ld marked: %s", sent, away, what);
    cr_assert(status != 0 || sent == LETTERS, "%ld sent: %s", sent, what);
}

static void discarded_or_said(const struct tool *t, int status,
                              const char *what)
{
    long count = letters(t, false);
    cr_assert(count == 0 || (status != 0 && count == LETTERS), "%ld: %s", count,
              what);
}

/* Try a verb of mqdlq with this argument. */
static void dlq_try(const char *verb, const char *more,
                    void (*before)(const struct tool *t),
                    void (*after)(const struct tool *t, int status,
                                  const char *what))
{
    static const struct call calls[] = {
        {"open@store.db", EMFILE}, {"pread@store.db", EIO},
        {"pwrite@store.db", EIO},  {"pwrite@store.db", ENOSPC},
        {"fsync@store.db", EIO},   {"lstat", EACCES},
        {"mmap@store.db", ENOMEM},
    };
    static const char three[] = "{\"reason\":\"rejected\",\"body\":\"a\"}\n"
                                "{\"reason\":\"rejected\",\"body\":\"b\"}\n"
                                "{\"reason\":\"rejected\",\"body\":\"c\"}\n";
    const char *q = harness_queue(10, 256);
    harness_write("three", three, sizeof three - 1);
    struct tool t = {HARNESS_LIST("mqdlq", verb, "--state-dir",
                                  harness_state_dir(), q, more),
                     q, before, after};
    TOOL_TRY(&t, calls);
}

Test(faults_tools, an_import_is_whole_or_it_is_said_where_it_stopped)
{
    dlq_try("import", harness_path("three"), state_away, imported_or_said);
}

Test(faults_tools, a_replay_that_fails_loses_no_letter)
{
    static const struct call calls[] = {
        {"mq_send", EBADF}, {"mq_getattr", EBADF}, {"getrandom", ENOSYS}};
    dlq_try("replay", "--all", letters_make, replayed_or_said);
    const char *q = harness_queue(10, 256);
    struct tool t = {HARNESS_LIST("mqdlq", "replay", "--state-dir",
                                  harness_state_dir(), q, "--all"),
                     q, letters_make, replayed_or_said};
    TOOL_TRY(&t, calls);
}

Test(faults_tools, a_discard_is_whole_or_nothing)
{
    dlq_try("discard", "--all", letters_make, discarded_or_said);
}
