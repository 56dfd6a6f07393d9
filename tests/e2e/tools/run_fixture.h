/* run_fixture.h - the summary of a worker's run, and when handlers ran
 *
 * WHAT   Parses the last log line of a run, and the lines of the span handler.
 * WHO    Tests of bounded runs and of time.
 * OWNS   Nothing; strings live until harness_fini.
 * FAILS  By ending the test.
 */
#ifndef TESTS_RUN_FIXTURE_H
#define TESTS_RUN_FIXTURE_H

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/harness.h"

#define SPAN   harness_handler("span")
#define RECORD harness_handler("record")

struct run_summary {
    uint64_t ran_us, mean_us, longest_us;
    long deliveries, done, retried, dead, discarded, in_queue;
    char why[64];
};

/* Return the text behind " name=" in a log line. */
static inline const char *run_field(const char *line, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, " %s=", name);
    const char *at = strstr(line, key);
    cr_assert_not_null(at, "no %s in: %s", name, line);
    return at + strlen(key);
}

/* Return the time of a log line, in ms of its day. */
static inline long run_line_ms(const char *line)
{
    int h, m, s, ms;
    const char *at = strchr(line, 'T');
    cr_assert_not_null(at, "%s", line);
    cr_assert_eq(sscanf(at, "T%d:%d:%d.%dZ", &h, &m, &s, &ms), 4, "%s", line);
    return ((h * 60L + m) * 60 + s) * 1000 + ms;
}

/* Convert a duration such as "1m2.5s" to microseconds. This does not use the
 * worker's code, so that its printing is checked as well. */
static inline uint64_t run_us(const char *text)
{
    static const struct {
        const char *name;
        double us;
    } units[] = {{"ms", 1e3}, {"us", 1}, {"ns", 1e-3}, {"s", 1e6}, {"m", 6e7}};
    double sum = 0;
    while (*text && *text != ' ') {
        char *end;
        double value = strtod(text, &end);
        size_t i = 0;
        while (i < 5 && strncmp(end, units[i].name, strlen(units[i].name)) != 0)
            i++;
        cr_assert(end > text && i < 5, "not a duration: %s", text);
        sum += value * units[i].us;
        text = end + strlen(units[i].name);
    }
    return (uint64_t)sum;
}

/* Wait until the run has ended with status 0, and parse its last line. */
static inline struct run_summary run_end(struct harness_process *w,
                                         unsigned limit_ms)
{
    struct run_summary s;
    cr_assert_eq(harness_wait(w, limit_ms), 0, "%s", harness_stderr(w, NULL));
    const char *line = harness_wait_log(w, "event=stopped", 0);
    s.ran_us = run_us(run_field(line, "ran"));
    s.mean_us = run_us(run_field(line, "mean"));
    s.longest_us = run_us(run_field(line, "longest"));
    s.deliveries = atol(run_field(line, "deliveries"));
    s.done = atol(run_field(line, "done"));
    s.retried = atol(run_field(line, "retried"));
    s.dead = atol(run_field(line, "dead"));
    s.discarded = atol(run_field(line, "discarded"));
    s.in_queue = atol(run_field(line, "in_queue"));
    snprintf(s.why, sizeof s.why, "%s", run_field(line, "why"));
    s.why[strcspn(s.why, " ")] = '\0';
    return s;
}

/* One line of the span handler. */
struct run_span {
    uint64_t start_ns, end_ns; /* monotonic */
    int attempt;
    char body[64];
};

/* Return all spans so far in the order of their ends; valid until the next
 * call. */
static inline struct run_span *run_spans(size_t *count)
{
    size_t n = harness_lines("spans");
    static struct run_span *spans;
    free(spans);
    spans = calloc(n + 1, sizeof *spans);
    const char *at = harness_read("spans", NULL);
    cr_assert_not_null(spans);
    for (size_t i = 0; i < n; i++, at = strchr(at, '\n') + 1) {
        struct run_span *s = &spans[i];
        cr_assert_geq(sscanf(at, "%" SCNu64 " %" SCNu64 " %d %63[^\n]",
                             &s->start_ns, &s->end_ns, &s->attempt, s->body),
                      3, "%s", at);
    }
    *count = n;
    return spans;
}

/* Scale ms to the speed of this machine. */
static inline uint64_t run_slow(unsigned ms)
{
    return harness_deadline(ms) - harness_now_ms();
}

/* Let some time pass, for something that must not happen meanwhile. */
static inline void run_nap(unsigned ms)
{
    uint64_t end = harness_now_ms() + ms;
    harness_until(harness_now_ms() >= end, 10000 + ms);
}

#endif
