/* test_worker_flow.c - mqworker: from the queue to the handler's stdin, byte
 * for byte and in order */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

TestSuite(worker_flow, .init = harness_init, .fini = harness_fini);

#define RECORD harness_handler("record")
#define KEEP   harness_handler("keep")
#define SPAN   harness_handler("span")

struct bytes {
    const char *data;
    size_t size;
};

/* Check that body.N has exactly these bytes. */
static void kept_check(size_t number, struct bytes want)
{
    char name[32];
    size_t size;
    snprintf(name, sizeof name, "body.%zu", number);
    const char *got = harness_read(name, &size);
    cr_assert_eq(size, want.size, "body %zu: %zu bytes, not %zu", number, size,
                 want.size);
    cr_assert(size == 0 || memcmp(got, want.data, size) == 0,
              "body %zu has other bytes", number);
}

Test(worker_flow, every_body_arrives_byte_for_byte)
{
    char all[256], high[256], zero[256] = {0}, fill[200];
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (char)i;
    memset(high, 0xFF, sizeof high);
    for (size_t i = 0; i < sizeof fill; i++) /* bytes that are never in UTF-8 */
        fill[i] = (char)(0xF5 + i % 11);
    const struct bytes bodies[] = {
        {"", 0},
        {"\0", 1},
        {zero, sizeof zero},
        {high, sizeof high},
        {all, sizeof all},
        {fill, sizeof fill},
        {"MQW/1", 5}, /* no header: the line has no end */
        {"mqw/1\nid: x\n\n", 13},
        {"text\r\n\n", 7},
        {"\xFF", 1},
    };
    const char *q = harness_queue(0, 256);
    size_t n = sizeof bodies / sizeof *bodies;
    for (size_t i = 0; i < n; i++)
        harness_send(q, bodies[i].data, bodies[i].size, 0);
    struct harness_process *w = harness_worker(q, "-c", "1", "--", KEEP);
    harness_until_lines("kept", n, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    for (size_t i = 0; i < n; i++)
        kept_check(i, bodies[i]);
    cr_assert_eq(harness_lines("kept"), n);
}

Test(worker_flow, a_body_behind_a_header_comes_without_it)
{
    const char *q = harness_queue(0, 256);
    static const char message[] = "MQW/1\nsize: 5\nx-a: b\n\n\n\0\xFF\nz";
    harness_send(q, message, sizeof message - 1, 0);
    harness_send(q, "MQW/1\n\n", 7, 0); /* empty header, empty body */
    struct harness_process *w = harness_worker(q, "-c", "1", "--", KEEP);
    harness_until_lines("kept", 2, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    kept_check(0, (struct bytes){"\n\0\xFF\nz", 5});
    kept_check(1, (struct bytes){"", 0});
}

Test(worker_flow, the_largest_body_that_the_queue_takes_arrives)
{
    static char body[8192];
    const char *q = harness_queue(1, sizeof body);
    unsigned seed = (unsigned)time(NULL);
    fprintf(stderr, "seed %u\n", seed);
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (char)rand_r(&seed);
    harness_send(q, body, sizeof body, 0);
    struct harness_process *w = harness_worker(q, "--", KEEP);
    harness_until_lines("kept", 1, 10000);
    kept_check(0, (struct bytes){body, sizeof body});
    /* A shorter body after it must not have its bytes. */
    harness_send(q, "ab", 2, 0);
    harness_until_lines("kept", 2, 10000);
    kept_check(1, (struct bytes){"ab", 2});
    cr_assert_eq(harness_stop(w, 10000), 0);
}

Test(worker_flow, high_priority_first_and_first_in_first_out_inside_one)
{
    static const struct {
        const char *body;
        unsigned priority;
    } sent[] = {{"a0", 0},         {"b5", 5},         {"c32767", 32767},
                {"d5", 5},         {"e0", 0},         {"f1", 1},
                {"g32767", 32767}, {"h32766", 32766}, {"i5", 5}};
    static const char *const order[] = {
        "32767 - c32767\n", "32767 - g32767\n", "32766 - h32766\n",
        "5 - b5\n",         "5 - d5\n",         "5 - i5\n",
        "1 - f1\n",         "0 - a0\n",         "0 - e0\n"};
    const char *q = harness_queue(0, 0);
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++)
        harness_send(q, sent[i].body, strlen(sent[i].body), sent[i].priority);
    struct harness_process *w = harness_worker(q, "-c", "1", "--", RECORD);
    harness_until_lines("runs", 9, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    const char *at = harness_read("runs", NULL);
    for (size_t i = 0; i < 9; i++) {
        at = strstr(at, order[i]);
        cr_assert_not_null(at, "%s is not in its place:\n%s", order[i],
                           harness_read("runs", NULL));
    }
}

Test(worker_flow, every_priority_is_told_exactly)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "1", "--", RECORD);
    for (unsigned p = 0; p < 15; p++) {
        char body[32];
        unsigned priority = 1u << p;
        int size = snprintf(body, sizeof body, "is %u", priority);
        harness_send(q, body, (size_t)size, priority);
    }
    harness_until_lines("runs", 15, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    for (unsigned p = 0; p < 15; p++) {
        char want[64];
        snprintf(want, sizeof want, " %u - is %u", 1u << p, 1u << p);
        cr_assert_eq(harness_lines_with("runs", want), 1, "%s", want);
    }
}

Test(worker_flow, an_idle_worker_wakes_for_each_message)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "--", RECORD);
    for (int i = 1; i <= 20; i++) {
        harness_send_text(q, "x");
        harness_until_lines("runs", i, 5000);
    }
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines("runs"), 20, "one ran twice");
}

Test(worker_flow, many_messages_run_once_each)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "4", "--", RECORD);
    for (int i = 0; i < 200; i++) {
        char body[32];
        snprintf(body, sizeof body, "n%03d", i);
        harness_send_text(q, body);
    }
    harness_until_lines("runs", 200, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    for (int i = 0; i < 200; i++) {
        char want[32];
        snprintf(want, sizeof want, "1 0 0 - n%03d\n", i);
        const char *first = strstr(harness_read("runs", NULL), want);
        cr_assert_not_null(first, "n%03d did not run", i);
        cr_assert_null(strstr(first + 1, want), "n%03d ran twice", i);
    }
    cr_assert_eq(harness_lines("runs"), 200);
}

Test(worker_flow, two_failing_of_many_hold_up_no_other)
{
    const char *q = harness_queue(0, 0);
    const char *handler = harness_script(
        "h", "read b\n"
             "echo \"$b $MQW_ATTEMPT\" >>all\n"
             "case $b in bad*) echo \"no $b\" >&2; exit 3; esac");
    struct harness_process *w =
        harness_worker(q, "-c", "2", "--max-attempts", "2", "--backoff",
                       "100ms", "--jitter", "0", "--", handler);
    for (int i = 0; i < 20; i++) {
        char body[32];
        snprintf(body, sizeof body, "%s%d\n", i % 10 == 5 ? "bad" : "good", i);
        harness_send_text(q, body);
    }
    harness_until_lines("all", 22, 10000);
    harness_until(harness_log_count(w, "event=dead ") >= 2, 5000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    for (int i = 0; i < 20; i++) {
        char want[32];
        bool bad = i % 10 == 5;
        snprintf(want, sizeof want, "%s%d 1", bad ? "bad" : "good", i);
        cr_assert_eq(harness_lines_with("all", want), 1, "%s", want);
        want[strlen(want) - 1] = '2';
        cr_assert_eq(harness_lines_with("all", want), bad ? 1 : 0, "%s", want);
    }
}

Test(worker_flow, exactly_four_at_once_with_a_cap_of_four)
{
    enum { MESSAGES = 20 };
    struct {
        uint64_t start, end;
    } span[MESSAGES];
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "4", "--", SPAN, "200");
    for (int i = 0; i < MESSAGES; i++)
        harness_send_text(q, "x");
    harness_until_lines("spans", MESSAGES, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    const char *at = harness_read("spans", NULL);
    uint64_t first = UINT64_MAX, last = 0;
    for (int i = 0; i < MESSAGES; i++, at = strchr(at, '\n') + 1) {
        char *rest;
        span[i].start = strtoull(at, &rest, 10);
        span[i].end = strtoull(rest, NULL, 10);
        first = span[i].start < first ? span[i].start : first;
        last = span[i].end > last ? span[i].end : last;
    }
    int most = 0;
    for (int i = 0; i < MESSAGES; i++) { /* the maximum is reached when a
                                          * handler starts */
        int n = 0;
        for (int k = 0; k < MESSAGES; k++)
            n += span[k].start <= span[i].start && span[i].start < span[k].end;
        most = n > most ? n : most;
    }
    cr_assert_eq(most, 4, "%d at once", most);
    uint64_t took_ms = (last - first) / 1000000;
    cr_assert_geq(took_ms, 1000);
}

Test(worker_flow, a_missing_queue_is_created_as_asked_for)
{
    const char *q = harness_queue_name();
    struct harness_process *w =
        harness_worker(q + 1, "--queue-depth", "3", "--message-size", "100",
                       "--mode", "0640", "--", RECORD);
    harness_wait_log(w, "event=started", 5000);
    mqd_t mq = mq_open(q, O_RDONLY);
    struct mq_attr attr;
    struct stat st;
    cr_assert_neq(mq, (mqd_t)-1);
    cr_assert_eq(mq_getattr(mq, &attr), 0);
    cr_assert_eq(fstat((int)mq, &st), 0);
    mq_close(mq);
    cr_assert_eq(attr.mq_maxmsg, 3);
    cr_assert_eq(attr.mq_msgsize, 100);
    cr_assert_eq(st.st_mode & 0777, 0640);
    harness_send_text(q, "x");
    harness_until_lines("runs", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_queue_length(q), 0, "no queue, or not empty");
}

Test(worker_flow, a_queue_that_differs_is_a_warning_with_both_values)
{
    const char *q = harness_queue(4, 128);
    struct harness_process *w = harness_worker(
        q, "--queue-depth", "7", "--message-size", "200", "--", RECORD);
    const char *line = harness_wait_log(w, "event=queue_differs", 5000);
    cr_assert(strstr(line, "level=warn"), "%s", line);
    cr_assert(strstr(line, "4") && strstr(line, "7"), "%s", line);
    cr_assert(strstr(line, "128") && strstr(line, "200"), "%s", line);
    cr_assert(strstr(line, " next=") && strstr(line, "Moving a queue"), "%s",
              line);
    harness_send_text(q, "x");
    harness_until_lines("runs", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_flow, no_time_limit_and_a_limit_of_zero_take_all_messages)
{
    static const char *const limits[] = {"0", "none", "1ms"};
    for (size_t l = 0; l < 3; l++) {
        const char *q = harness_queue(0, 0);
        for (int i = 0; i < 10; i++)
            harness_send_text(q, "x");
        struct harness_process *w = harness_worker(
            q, "-c", "2", "--batch-time-limit", limits[l], "--", RECORD);
        harness_until_lines("runs", 10 * (l + 1), 10000);
        cr_assert_eq(harness_stop(w, 10000), 0);
    }
    cr_assert_eq(harness_lines("runs"), 30);
}

Test(worker_flow, json_logs_are_one_object_a_line)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "--log-format", "json", "--", "sh", "-c", "echo 'a \"b\"' >&2");
    harness_send_text(q, "x");
    const char *line = harness_wait_log(w, "handler_stderr", 5000);
    cr_assert_eq(line[0], '{', "%s", line);
    cr_assert(strstr(line, "\"line\":\"a \\\"b\\\"\""), "%s", line);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_log_count(w, ""), harness_log_count(w, "{\"time\":"));
}

Test(worker_flow, a_refused_start_says_why_in_a_plain_line)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--log-format", "json", "--", "cat");
    harness_wait_log(w, "\"started\"", 5000);
    struct harness_process *second =
        harness_worker(q, "--log-format", "json", "--", "cat");
    cr_assert_eq(harness_wait(second, 5000), 69);
    cr_assert_eq(harness_log_count(second, "mqworker: "), 1);
    cr_assert_eq(harness_log_count(second, ""), 1);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* The log event parked_full recommends a higher --max-parked. */
Test(worker_flow, a_higher_max_parked_lets_messages_in_at_once)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-c", "1", "--backoff", "1h", "--lookahead", "1", "--max-parked",
        "1", "--", "sh", "-c", "read b; echo $b >>runs; [ $b = other ]");
    for (int i = 0; i < 5; i++)
        cr_assert_eq(harness_run("mqsend", "--group", "g", q, "a").status, 0);
    harness_wait_log(w, "event=parked_full", 5000);
    harness_send_text(q, "other");
    cr_assert_eq(harness_run("mqctl", "set", "--state-dir", harness_state_dir(),
                             q, "max-parked=1000")
                     .status,
                 0);
    harness_until_lines("runs", 2, 5000);
    cr_assert_eq(harness_lines_with("runs", "other"), 1);
    cr_assert_eq(harness_stop(w, 5000), 0);
}
