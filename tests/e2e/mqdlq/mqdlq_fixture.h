/* mqdlq_fixture.h - a queue with three letters, for tests of mqdlq
 *
 * WHAT   Makes the queue and its store, and has short forms of running mqdlq.
 * WHO    tests/e2e/mqdlq/test_mqdlq*.c
 * OWNS   Nothing; see tests/harness/harness.h.
 * FAILS  By ending the test.
 */
#ifndef TESTS_MQDLQ_FIXTURE_H
#define TESTS_MQDLQ_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "common/store/store.h"
#include "tests/harness/harness.h"

#define ROOM 256
#define ID_A "01JD3Z6Q9V0X8N5T2K7B4M1C3F"
#define ID_B "01JD3Z6Q9V0X8N5T2K7B4M1C3G"

/* Run mqdlq VERB --state-dir ... QUEUE with more arguments. */
#define dlq(verb, ...)                                               \
    harness_run("mqdlq", (verb), "--state-dir", harness_state_dir(), \
                __VA_ARGS__)
/* Run the same, which must succeed; return its stdout. */
#define dlq_out(verb, ...) good(dlq(verb, __VA_ARGS__))
#define dlq_input(text, verb, ...)                              \
    harness_run_spec(&(struct harness_spec){                    \
        .argv = HARNESS_LIST("mqdlq", (verb), "--state-dir",    \
                             harness_state_dir(), __VA_ARGS__), \
        .input = (text),                                        \
        .input_size = strlen(text)})

/* Return the stdout of a run that must have ended with 0. */
static inline const char *good(struct harness_result r)
{
    cr_assert_eq(r.status, 0, "status %d: %s", r.status, r.err);
    return r.out;
}

/* Three letters; row 1 is the oldest, row 3 the newest. */
static const char three[] =
    "{\"message_id\":\"" ID_A "\",\"reason\":\"exhausted\",\"attempts\":5,"
    "\"error\":\"exit 1\",\"group\":\"g1\",\"priority\":3,"
    "\"died_at\":\"2026-01-01T00:00:00Z\",\"body\":\"first\","
    "\"history\":[{\"started_at\":\"2026-01-01T00:00:00Z\","
    "\"duration_ns\":12000000,\"error\":\"exit 1\","
    "\"stderr\":\"no such\\naccount\\u001b[2J\"}]}\n"
    "{\"message_id\":\"" ID_B "\",\"reason\":\"rejected\","
    "\"error\":\"exit 65\",\"died_at\":\"2026-01-02T00:00:00Z\","
    "\"header\":\"MQW/1\\nid: " ID_B "\\nsent: 5\\nsize: 6\\ngroup: g2\\n"
    "not-before: 9\\ntimeout: 77\\nx-trace: abc\\n\\n\",\"group\":\"g2\","
    "\"body\":\"second\"}\n"
    "{\"reason\":\"exhausted\",\"error\":\"signal 11\",\"crashes\":1,"
    "\"died_at\":\"2026-01-03T00:00:00Z\",\"body_base64\":\"AAECG1t/Cg==\"}\n";

/* Return a queue with these letters. */
static inline const char *three_letters(void)
{
    const char *q = harness_queue(0, 0);
    const char *out = good(dlq_input(three, "import", q));
    cr_assert_str_eq(out, "3 letters imported\n");
    return q;
}

/* Count the letters that match a filter. */
#define count(...) atoi(dlq_out("list", "--count", __VA_ARGS__))

/* Receive the next message as text; it must exist. */
static inline const char *take(const char *q, unsigned *priority)
{
    static char text[ROOM + 1];
    ssize_t n = harness_receive(q, text, ROOM, priority);
    cr_assert_geq(n, 0, "the queue is empty");
    text[n] = '\0';
    return text;
}

/* Open the queue's store as the worker does. */
static inline struct store *store(const char *q)
{
    char path[4096];
    struct problem p;
    struct store *s;
    snprintf(path, sizeof path, "%s%s/store.db", harness_state_dir(), q);
    cr_assert_eq(store_open(&s, path, false, &p), 0, "%s", p.text);
    return s;
}

/* Return true if a process is in that system call. */
static inline bool is_in(pid_t pid, int call)
{
    char cmd[64];
    snprintf(cmd, sizeof cmd, "grep -qs '^%d ' /proc/%d/syscall", call,
             (int)pid);
    return harness_run("sh", "-c", cmd).status == 0;
}

/* Return true if mqdlq waits for room in a queue. */
#define waits_for_room(pid) is_in((pid), SYS_ppoll)

/* Do what the worker does when a replayed letter fails for good. */
static inline void die_again(struct store *s, int64_t row)
{
    struct store_row m;
    char group[256];
    cr_assert_eq(store_get(s, row, &m, NULL, 0, group), 0);
    cr_assert_eq(m.state, STORE_REPLAYED);
    m.state = STORE_DEAD;
    m.died_ns += 1;
    m.reason = REASON_REJECTED;
    m.error = "exit 65";
    struct store_attempt a = {.error = "exit 65", .stderr_tail = ""};
    cr_assert_eq(store_put(s, &m, &a, &row), 0);
}

#endif
