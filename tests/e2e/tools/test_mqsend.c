/* test_mqsend.c - mqsend: its contract, with real queues */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <mqueue.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

TestSuite(mqsend, .init = harness_init, .fini = harness_fini);

#define ID   "01JD3Z6Q9V0X8N5T2K7B4M1C3F"
#define ROOM 256

/* A received message, with header and body separated. */
struct message {
    char text[ROOM + 1]; /* NUL-terminated */
    size_t size;
    const char *body;
    size_t body_size;
    unsigned priority;
};

/* Receive the next message, which must exist. */
static struct message *take(const char *queue)
{
    static struct message m;
    ssize_t n = harness_receive(queue, m.text, ROOM, &m.priority);
    cr_assert_geq(n, 0, "the queue is empty");
    m.size = (size_t)n;
    m.text[m.size] = '\0';
    m.body = m.text;
    if (strncmp(m.text, "MQW/1\n", 6) == 0)
        m.body = strstr(m.text, "\n\n") + 2;
    m.body_size = m.size - (size_t)(m.body - m.text);
    return &m;
}

/* Return the value of a header line, in its own buffer; NULL if it is
 * missing. */
static const char *value(const struct message *m, const char *name)
{
    static char out[ROOM];
    char want[64];
    snprintf(want, sizeof want, "\n%s: ", name);
    const char *at = strstr(m->text, want);
    if (!at || at >= m->body)
        return NULL;
    at += strlen(want);
    snprintf(out, sizeof out, "%.*s", (int)strcspn(at, "\n"), at);
    return out;
}

/* Return the number in a header line. */
static uint64_t number(const struct message *m, const char *name)
{
    const char *text = value(m, name);
    cr_assert_not_null(text, "no line %s", name);
    return strtoull(text, NULL, 10);
}

/* Run mqsend with these bytes on stdin. */
#define with_input(data, bytes, ...)                                        \
    harness_run_spec(                                                       \
        &(struct harness_spec){.argv = HARNESS_LIST("mqsend", __VA_ARGS__), \
                               .input = (data),                             \
                               .input_size = (bytes)})

static uint64_t wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

Test(mqsend, a_body_argument_is_sent_behind_a_header_with_id_sent_and_size)
{
    const char *q = harness_queue(0, 0);
    uint64_t before = wall_ns();
    struct harness_result r = harness_run("mqsend", q, "hello world!");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_str_eq(r.out, "");
    struct message *m = take(q);
    cr_assert_str_eq(m->body, "hello world!");
    cr_assert_eq(number(m, "size"), 12);
    cr_assert(number(m, "sent") >= before && number(m, "sent") <= wall_ns());
    cr_assert_eq(strlen(value(m, "id")), 26);
    cr_assert_eq(m->priority, 0);
    cr_assert_null(value(m, "group"));
    cr_assert_null(value(m, "not-before"));
    cr_assert_null(value(m, "expires"));
}

Test(mqsend, all_header_flags_arrive)
{
    const char *q = harness_queue(0, 0);
    struct harness_result r =
        harness_run("mqsend", "-p", "7", "--group", "account 7", "--id", ID,
                    "--delay", "2s", "--ttl", "1m", "--timeout", "1500us",
                    "--header", "x-trace=a=b", "--header", "x-b=c", q, "body");
    cr_assert_eq(r.status, 0, "%s", r.err);
    struct message *m = take(q);
    uint64_t sent = number(m, "sent");
    cr_assert_str_eq(value(m, "id"), ID);
    cr_assert_str_eq(value(m, "group"), "account 7");
    cr_assert_eq(number(m, "not-before"), sent + 2000000000u);
    cr_assert_eq(number(m, "expires"), sent + UINT64_C(60000000000));
    cr_assert_eq(number(m, "timeout"), 2, "not rounded up to ms");
    cr_assert_str_eq(value(m, "x-trace"), "a=b");
    cr_assert_str_eq(value(m, "x-b"), "c");
    cr_assert_eq(m->priority, 7);
    cr_assert_str_eq(m->body, "body");
}

/* Run mqsend --at with the clock of Berlin, without its time zone file. */
static struct harness_result sent_at(const char *q, const char *time)
{
    return harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST("mqsend", "--at", time, q, "x"),
        .env = HARNESS_LIST("TZ=CET-1CEST,M3.5.0,M10.5.0/3")});
}

Test(mqsend, at_is_a_local_time_or_one_with_a_zone)
{
    const char *q = harness_queue(0, 0);
    struct harness_result r = sent_at(q, "2099-07-01T14:30");

    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strncmp(r.err, "mqsend: --at: that is ", 22) == 0, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "unless its --max-delay (400d"), "%s",
                       r.err);
    cr_assert_eq(number(take(q), "not-before"), UINT64_C(4086592200000000000));
    cr_assert_eq(sent_at(q, "2099-07-01T14:30:00Z").status, 0);
    cr_assert_eq(number(take(q), "not-before"), UINT64_C(4086599400000000000));
    cr_assert_eq(sent_at(q, "tomorrow 08:00").status, 0);
    struct message *m = take(q);
    uint64_t ahead = number(m, "not-before") - number(m, "sent");
    cr_assert_leq(ahead, UINT64_C(33) * 3600 * 1000000000, "%ju",
                  (uintmax_t)ahead);
    cr_assert_eq(number(m, "not-before") % UINT64_C(3600000000000), 0);
}

Test(mqsend, at_says_what_becomes_of_a_time_that_the_clock_does_not_have)
{
    const char *q = harness_queue(0, 0);
    struct harness_result r = sent_at(q, "2027-03-28 02:30");

    cr_assert_str_eq(r.err,
                     "mqsend: --at: the clock skips \"2027-03-28 02:30\" that "
                     "day: it runs at 2027-03-28 03:30:00 +0200\n");
    cr_assert_eq(number(take(q), "not-before"), UINT64_C(1806197400000000000));
    r = sent_at(q, "2027-10-31 02:30");
    cr_assert_str_eq(r.err,
                     "mqsend: --at: the clock shows \"2027-10-31 02:30\" "
                     "twice that day: it runs at 2027-10-31 02:30:00 "
                     "+0200\n");
    r = sent_at(q, "2001-01-01");
    cr_assert_eq(r.status, 0);
    cr_assert_str_eq(r.err, "mqsend: --at: \"2001-01-01\" is past (2001-01-01 "
                            "00:00:00 +0100): it may run immediately\n");
    r = harness_run("mqsend", "-q", "--at", "2001-01-01", q, "x");
    cr_assert_str_eq(r.err, "");
}

Test(mqsend, a_delay_that_no_worker_takes_by_default_is_told)
{
    const char *q = harness_queue(0, 0);
    struct harness_result r = harness_run("mqsend", "--delay", "401d", q, "x");

    cr_assert_eq(r.status, 0);
    cr_assert_str_eq(r.err,
                     "mqsend: --delay: that is 401d ahead; the worker makes a "
                     "dead letter of it, unless its --max-delay (400d by "
                     "default) allows that\n");
    r = harness_run("mqsend", "-q", "--delay", "401d", q, "x");
    cr_assert_str_eq(r.err, "");
    r = harness_run("mqsend", "--delay", "400d", q, "x");
    cr_assert_str_eq(r.err, "");
}

Test(mqsend, stdin_is_sent_whole_and_byte_for_byte)
{
    const char *q = harness_queue(0, 0);
    static const char data[] = "a\0b\nc\xff\n";
    cr_assert_eq(with_input(data, 7, q).status, 0);
    struct message *m = take(q);
    cr_assert_eq(m->body_size, 7);
    cr_assert_arr_eq(m->body, data, 7);
    cr_assert_eq(with_input("", 0, q).status, 0);
    cr_assert_eq(take(q)->body_size, 0, "not an empty message");
}

Test(mqsend, raw_sends_the_bytes_alone)
{
    const char *q = harness_queue(0, 0);
    cr_assert_eq(harness_run("mqsend", "--raw", q, "hello").status, 0);
    cr_assert_eq(harness_run("mqsend", "--raw", q, "").status, 0);
    struct message *m = take(q);
    cr_assert_eq(m->size, 5);
    cr_assert_str_eq(m->text, "hello");
    cr_assert_eq(take(q)->size, 0);
}

Test(mqsend, raw_refuses_each_flag_that_needs_a_header)
{
    static const char *const flags[] = {
        "--group=g",    ("--id=" ID),     "--delay=1s", "--delay=0", "--ttl=1s",
        "--timeout=1s", "--header=x-a=b", "--print-id", "--at=23:00"};
    const char *q = harness_queue(0, 0);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        struct harness_result r =
            harness_run("mqsend", "--raw", flags[i], q, "x");
        cr_assert_eq(r.status, 64, "%s", flags[i]);
        cr_assert(strstr(r.err, "--raw"), "%s", r.err);
    }
    cr_assert_eq(harness_queue_length(q), 0);
}

Test(mqsend, lines_are_messages_empty_and_unended_ones_too)
{
    const char *q = harness_queue(0, 0);
    struct harness_result r =
        with_input("one\n\nthree", 10, "--lines", "--print-id", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    char ids[3][27];
    static const char *const bodies[] = {"one", "", "three"};
    for (int i = 0; i < 3; i++) {
        struct message *m = take(q);
        cr_assert_str_eq(m->body, bodies[i]);
        snprintf(ids[i], sizeof ids[i], "%s", value(m, "id"));
    }
    char want[100];
    snprintf(want, sizeof want, "%s\n%s\n%s\n", ids[0], ids[1], ids[2]);
    cr_assert_str_eq(r.out, want, "not one id a line");
    cr_assert(strcmp(ids[0], ids[1]) < 0 && strcmp(ids[1], ids[2]) < 0);
    cr_assert_eq(with_input("", 0, "--lines", q).status, 0);
    cr_assert_eq(harness_queue_length(q), 0, "a message without a line");
}

Test(mqsend, json_is_an_object_for_each_message)
{
    const char *q = harness_queue(0, 0);
    struct harness_result r = with_input("one\ntwo", 7, "--lines", "--json", q);
    char want[512] = "";

    cr_assert_eq(r.status, 0, "%s", r.err);
    for (int i = 0; i < 2; i++) {
        size_t used = strlen(want);

        snprintf(want + used, sizeof want - used,
                 "{\"id\":\"%s\",\"queue\":\"%s\"}\n", value(take(q), "id"), q);
    }
    cr_assert_str_eq(r.out, want);
    r = harness_run("mqsend", "-j", "--raw", q, "body");
    snprintf(want, sizeof want, "{\"id\":null,\"queue\":\"%s\"}\n", q);
    cr_assert_str_eq(r.out, want, "an id without a header");
    cr_assert_str_eq(take(q)->text, "body");
}

Test(mqsend, null_ended_records_may_hold_newlines)
{
    const char *q = harness_queue(0, 0);
    cr_assert_eq(with_input("a\nb\0\0c", 6, "--null", "--raw", q).status, 0);
    cr_assert_str_eq(take(q)->text, "a\nb");
    cr_assert_str_eq(take(q)->text, "");
    cr_assert_str_eq(take(q)->text, "c");
    cr_assert_eq(harness_queue_length(q), 0);
}

/* Receive `count` messages; return the sum of their sizes. */
static size_t drain(const char *q, long count)
{
    char buf[ROOM];
    size_t bytes = 0;
    uint64_t deadline = harness_deadline(20000);
    while (count > 0) {
        ssize_t n = harness_receive(q, buf, sizeof buf, NULL);
        if (n < 0) {
            harness_nap(deadline, "a message");
            continue;
        }
        bytes += (size_t)n;
        count--;
    }
    return bytes;
}

Test(mqsend, lines_longer_than_the_read_buffer_and_many_of_them_stream)
{
    const char *q = harness_queue(0, 0);
    size_t want = 0, size = 0;
    char *input = malloc(3000 * 200);
    for (int i = 0; i < 3000; i++) { /* 300 KB: records cross the end of each
                                      * chunk */
        size_t n = (size_t)(i * 7 % 199);
        memset(input + size, 'a' + i % 26, n);
        input[size + n] = '\n';
        size += n + 1;
        want += n;
    }
    harness_write("lines", input, size);
    free(input);
    struct harness_process *p = harness_program(
        "mqsend", "--raw", "--lines", "--file", harness_path("lines"), q);
    cr_assert_eq(drain(q, 3000), want);
    cr_assert_eq(harness_wait(p, 10000), 0);
}

Test(mqsend, a_file_is_one_message_or_lines)
{
    const char *q = harness_queue(0, 0);
    harness_write("f", "a\nb\n", 4);
    const char *f = harness_path("f");
    cr_assert_eq(harness_run("mqsend", "--raw", "--file", f, q).status, 0);
    cr_assert_str_eq(take(q)->text, "a\nb\n");
    cr_assert_eq(
        harness_run("mqsend", "--raw", "--lines", "--file", f, q).status, 0);
    cr_assert_str_eq(take(q)->text, "a");
    cr_assert_str_eq(take(q)->text, "b");
    struct harness_result r =
        harness_run("mqsend", "--file", harness_path("none"), q);
    cr_assert_eq(r.status, 66);
    cr_assert(strstr(r.err, "none"));
}

Test(mqsend, a_body_with_dashes_comes_after_the_double_dash)
{
    const char *q = harness_queue(0, 0);
    cr_assert_eq(harness_run("mqsend", "--raw", q, "--", "--file").status, 0);
    cr_assert_str_eq(take(q)->text, "--file");
    cr_assert_eq(harness_run("mqsend", "--raw", "--", q, "--file").status, 0);
    cr_assert_str_eq(take(q)->text, "--file");
    cr_assert_eq(harness_run("mqsend", q, "--", "two", "more").status, 64);
    struct harness_result r = harness_run("mqsend", q, "-dash");
    cr_assert_eq(r.status, 64);
    cr_assert(strstr(r.err, "before a body that starts with a dash, put --"),
              "%s", r.err);
}

Test(mqsend, repeat_sends_each_message_with_an_id_of_its_own)
{
    const char *q = harness_queue(0, 0);
    char first[27];
    cr_assert_eq(with_input("a\nb", 3, "--lines", "--repeat", "2", q).status,
                 0);
    struct message *m = take(q);
    snprintf(first, sizeof first, "%s", value(m, "id"));
    cr_assert_str_eq(m->body, "a");
    m = take(q);
    cr_assert_str_eq(m->body, "a");
    cr_assert_str_neq(value(m, "id"), first);
    cr_assert_str_eq(take(q)->body, "b");
    cr_assert_str_eq(take(q)->body, "b");
}

Test(mqsend, rate_paces_the_messages)
{
    const char *q = harness_queue(0, 0);
    uint64_t start = harness_now_ms();
    struct harness_result r =
        harness_run("mqsend", "--rate", "50/s", "--repeat", "10", q, "x");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_geq(harness_now_ms() - start, 180);
    cr_assert_eq(harness_queue_length(q), 10);
}

Test(mqsend, a_queue_that_stays_full_is_75_and_tells_sent_and_left)
{
    const char *q = harness_queue(3, 0);
    struct harness_result r =
        harness_run("mqsend", "--repeat", "5", "--no-wait", q, "x");
    cr_assert_eq(r.status, 75);
    cr_assert(strstr(r.err, "3 sent, 2 left"), "%s", r.err);
    r = harness_run("mqsend", "--wait", "50ms", q, "x");
    cr_assert_eq(r.status, 75);
    cr_assert(strstr(r.err, "0 sent, 1 left; mqctl doctor /"), "%s", r.err);
    take(q);
    r = with_input("a\nb\nc\n", 6, "--lines", "--no-wait", q);
    cr_assert_eq(r.status, 75);
    cr_assert(strstr(r.err, "1 sent, stopped at record 2"), "%s", r.err);
}

Test(mqsend, ids_that_cannot_be_written_are_told)
{
    const char *q = harness_queue(1, 0);
    const char *line = "exec \"$0\" --print-id --no-wait --repeat \"$1\" "
                       "\"$2\" x >/dev/full";
    struct harness_result r =
        harness_run("sh", "-c", line, harness_bin("mqsend"), "2", q);
    cr_assert_eq(r.status, 75, "%d: %s", r.status, r.err);
    cr_assert(strstr(r.err, "cannot write the output: No space left"), "%s",
              r.err);
    cr_assert(strstr(r.err, "1 sent, 1 left"), "%s", r.err);
    take(q);
    r = harness_run("sh", "-c", line, harness_bin("mqsend"), "1", q);
    cr_assert_eq(r.status, 74, "%d: %s", r.status, r.err);
    cr_assert(strstr(r.err, "cannot write the output: No space left"), "%s",
              r.err);
}

Test(mqsend, a_full_queue_is_waited_for_as_long_as_it_takes)
{
    const char *q = harness_queue(1, 0);
    harness_send_text(q, "first");
    struct harness_process *p = harness_program("mqsend", "--raw", q, "second");
    cr_assert(harness_running(p));
    cr_assert_str_eq(take(q)->text, "first");
    cr_assert_eq(harness_wait(p, 10000), 0);
    cr_assert_str_eq(take(q)->text, "second");
}

Test(mqsend, a_signal_during_a_bulk_send_tells_how_far_it_got)
{
    const char *q = harness_queue(4, 0);
    struct harness_process *p =
        harness_program("mqsend", "--repeat", "100", q, "x");
    harness_until(harness_queue_length(q) == 4, 10000);
    harness_signal(p, SIGINT);
    cr_assert_eq(harness_wait(p, 10000), -SIGINT);
    cr_assert(strstr(harness_stderr(p, NULL), "interrupted: 4 sent, 96 left"),
              "%s", harness_stderr(p, NULL));
}

Test(mqsend, a_body_too_large_is_65_with_both_numbers_and_nothing_sent)
{
    const char *q = harness_queue(0, 256);
    char body[300];
    memset(body, 'x', sizeof body);
    struct harness_result r = with_input(body, 300, q);
    cr_assert_eq(r.status, 65);
    cr_assert(strstr(r.err, "300") && strstr(r.err, "256"), "%s", r.err);
    r = with_input(body, 250, q);
    cr_assert_eq(r.status, 65, "the header was not counted");
    cr_assert(strstr(r.err, "250") && strstr(r.err, "--raw"), "%s", r.err);
    cr_assert_eq(harness_queue_length(q), 0);
    cr_assert_eq(with_input(body, 256, "--raw", q).status, 0);
    r = with_input(body, 257, "--raw", q);
    cr_assert_eq(r.status, 65);
    cr_assert(strstr(r.err, "257") && strstr(r.err, "256"), "%s", r.err);
    cr_assert_eq(harness_queue_length(q), 1);
}

Test(mqsend, the_largest_body_that_fits_behind_its_header_is_sent)
{
    const char *q = harness_queue(0, 256);
    char body[256];
    memset(body, 'x', sizeof body);
    size_t size = 256;
    while (size > 0 && with_input(body, size, q).status == 65)
        size -= 1;
    struct message *m = take(q);
    cr_assert_eq(m->size, 256, "%zu of 256 used", m->size);
    cr_assert_eq(m->body_size, size);
}

Test(mqsend, a_line_too_large_stops_after_those_before_it)
{
    const char *q = harness_queue(0, 256);
    char input[400];
    memset(input, 'x', sizeof input);
    memcpy(input, "a\nb\n", 4);
    memcpy(input + 390, "\nc\n", 3);
    struct harness_result r = with_input(input, 393, "--lines", q);
    cr_assert_eq(r.status, 65);
    cr_assert(strstr(r.err, "386") && strstr(r.err, "2 sent") &&
                  strstr(r.err, "record 3"),
              "%s", r.err);
    cr_assert_eq(harness_queue_length(q), 2);
}

Test(mqsend, no_such_queue_is_66_and_create_makes_it)
{
    const char *q = harness_queue_name();
    struct harness_result r = harness_run("mqsend", q, "x");
    cr_assert_eq(r.status, 66);
    cr_assert(strstr(r.err, q), "%s", r.err);
    cr_assert_eq(harness_queue_length(q), -1);
    r = harness_run("mqsend", "--create", "--queue-depth", "3",
                    "--message-size", "200", q, "x");
    cr_assert_eq(r.status, 0, "%s", r.err);
    r = harness_run("mqsend", "--raw", "--no-wait", "--repeat", "9", q, "x");
    cr_assert(strstr(r.err, "2 sent, 7 left"), "depth 3: %s", r.err);
    r = harness_run("mqsend", "--create", "--queue-depth", "5", "--no-wait", q,
                    "x");
    cr_assert(strstr(r.err, "3") && strstr(r.err, "5") &&
                  strstr(r.err, "warning"),
              "a depth that differs: %s", r.err);
}

Test(mqsend, a_name_without_slash_is_the_same_queue)
{
    const char *q = harness_queue(0, 0);
    cr_assert_eq(harness_run("mqsend", q + 1, "x").status, 0);
    cr_assert_eq(harness_queue_length(q), 1);
}

Test(mqsend, what_makes_no_sense_is_64)
{
    const char *q = harness_queue(0, 0);
#define REFUSED(...)                                                  \
    cr_assert_eq(harness_run("mqsend", __VA_ARGS__).status, 64, "%s", \
                 #__VA_ARGS__)
    cr_assert_eq(harness_run("mqsend").status, 64);
    REFUSED(q, "a", "b");
    REFUSED(q, "--lines", "--null");
    REFUSED(q, "x", "--wait", "1s", "--no-wait");
    REFUSED(q, "x", "--id", "short");
    REFUSED(q, "x", "--id", ID, "--repeat", "2");
    REFUSED(q, "--id", ID, "--lines");
    REFUSED(q, "x", "--queue-depth", "3");
    cr_assert_not_null(strstr(
        harness_run("mqsend", q, "x", "--delay", "2s", "--ttl", "1s").err,
        "--delay 2s is not before the end of --ttl 1s"));
    REFUSED(q, "x", "--delay", "2s", "--at", "23:00");
    REFUSED(q, "x", "--at", "@4000000000", "--ttl", "1h");
    REFUSED(q, "x", "--at", "noon");
    REFUSED(q, "x", "--ttl", "0");
    REFUSED(q, "x", "-p", "32768");
    REFUSED(q, "x", "-p", "-1");
    REFUSED(q, "x", "--repeat", "0");
    REFUSED(q, "x", "--rate", "0");
    REFUSED(q, "x", "--rate", "5/m");
    REFUSED(q, "x", "--header", "trace=1");
    REFUSED(q, "x", "--header", "x-a");
    REFUSED(q, "x", "--header", "x-a=1", "--header", "x-a=2");
    REFUSED(q, "x", "--header", "x-a=\033");
    REFUSED(q, "x", "--group", "\n");
    REFUSED(q, "x", "--file", "f");
    REFUSED("/a/b", "x");
    REFUSED("/", "x");
    cr_assert_eq(harness_queue_length(q), 0);
    cr_assert_eq(harness_run("mqsend", q, "x", "-p", "32767").status, 0);
}

Test(mqsend, a_wrong_queue_is_refused_with_what_was_meant)
{
    char *q = strdup(harness_queue(0, 0)), typo[300], hint[320];
    snprintf(typo, sizeof typo, "%s-", q);
    snprintf(hint, sizeof hint, "did you mean %s?", q);
    struct harness_result r = harness_run("mqsend", typo, "x");
    cr_assert_eq(r.status, 66);
    snprintf(typo, sizeof typo, "/dev/mqueue%s", q);
    if (harness_exists(typo)) /* mqsend can compare names only there */
        cr_assert(strstr(r.err, hint), "%s", r.err);
    r = harness_run("mqsend", "hello", q);
    cr_assert_eq(r.status, 66);
    cr_assert(strstr(r.err, "it comes first: mqsend QUEUE BODY"), "%s", r.err);
    r = harness_run("mqsend", "help");
    cr_assert_eq(r.status, 66);
    cr_assert(strstr(r.err, "for help: mqsend --help"), "%s", r.err);
    free(q);
}

Test(mqsend, an_error_never_brings_control_bytes_to_the_terminal)
{
    struct harness_result r = harness_run("mqsend", "\033[31mq\n", "x");
    cr_assert_neq(r.status, 0);
    cr_assert_null(strchr(r.err, '\033'));
    cr_assert_eq(strchr(r.err, '\n') + 1, r.err + r.err_size, "not one line");
}

Test(mqsend, a_queue_removed_meanwhile_is_not_taken_for_sent)
{
    const char *q = harness_queue(2, 0);
    struct harness_process *p =
        harness_program("mqsend", "--repeat", "3", q, "x");
    harness_until(harness_queue_length(q) == 2, 10000);
    mqd_t held = mq_open(q, O_RDONLY | O_CLOEXEC);
    harness_signal(p, SIGSTOP); /* mqsend must not see it full and without its
                              * name */
    mq_unlink(q);
    char buf[ROOM];
    cr_assert_gt(mq_receive(held, buf, sizeof buf, NULL), 0);
    harness_signal(p, SIGCONT);
    for (int i = 0; i < 2; i++)
        cr_assert_gt(mq_receive(held, buf, sizeof buf, NULL), 0);
    mq_close(held);
    cr_assert_eq(harness_wait(p, 10000), 66);
    cr_assert(strstr(harness_stderr(p, NULL), "removed"));
}

Test(mqsend, a_full_queue_that_is_removed_ends_the_wait)
{
    const char *q = harness_queue(1, 0);
    struct harness_process *p =
        harness_program("mqsend", "--repeat", "3", q, "x");
    harness_until(harness_queue_length(q) == 1, 10000);
    mq_unlink(q);
    mqd_t fresh = mq_open(q, O_CREAT | O_RDONLY | O_CLOEXEC, 0600,
                          &(struct mq_attr){.mq_maxmsg = 4, .mq_msgsize = 256});
    cr_assert_eq(harness_wait(p, 10000), 66);
    cr_assert(strstr(harness_stderr(p, NULL), "1 sent, 2 left"), "%s",
              harness_stderr(p, NULL));
    mq_close(fresh);
}

/* Run mqsend as a background job of a new terminal; return what it prints
 * there. */
static const char *in_the_background(const char *q)
{
    static char text[8192];
    const char *bin = harness_bin("mqsend");
    struct winsize size = {.ws_row = 24, .ws_col = 100};
    int master, status;
    size_t at = 0;
    ssize_t n;
    pid_t pid = forkpty(&master, NULL, NULL, &size);
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        pid_t job = fork();
        if (job == 0) {
            setpgid(0, 0);
            execl(bin, "mqsend", "--repeat", "10", "--rate", "20", q, "x",
                  NULL);
            _exit(99);
        }
        waitpid(job, &status, 0);
        _exit(WEXITSTATUS(status));
    }
    while (at < sizeof text - 1 &&
           (n = read(master, text + at, sizeof text - 1 - at)) > 0)
        at += (size_t)n;
    text[at] = '\0';
    waitpid(pid, &status, 0);
    cr_assert_eq(status, 0);
    close(master);
    return text;
}

Test(mqsend, a_background_job_draws_no_bar_over_the_prompt)
{
    const char *q = harness_queue(0, 0);
    cr_assert_str_eq(in_the_background(q), "");
    cr_assert_eq(harness_queue_length(q), 10);
}

Test(mqsend, a_bulk_send_on_a_terminal_shows_a_bar_and_cleans_up)
{
    const char *q = harness_queue(0, 0);
    const char *bin = harness_bin("mqsend");
    int master;
    struct winsize size = {.ws_row = 24, .ws_col = 100};
    pid_t pid = forkpty(&master, NULL, NULL, &size);
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        execl(bin, "mqsend", "--repeat", "10", "--rate", "20", q, "x", NULL);
        _exit(99);
    }
    char text[8192];
    size_t at = 0;
    ssize_t n;
    while (at < sizeof text - 1 &&
           (n = read(master, text + at, sizeof text - 1 - at)) > 0)
        at += (size_t)n;
    text[at] = '\0';
    int status;
    waitpid(pid, &status, 0);
    cr_assert_eq(status, 0);
    cr_assert(strstr(text, "sending ["), "%s", text);
    cr_assert(strstr(text, "/10"), "%s", text);
    cr_assert_str_eq(text + at - 4, "\r\033[K");
    close(master);
}

Test(mqsend, time_in_a_zone_that_is_unknown_is_told_to_be_utc)
{
    const char *q = harness_queue(0, 0);
    struct harness_result r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST("mqsend", "--at", "tomorrow 10:00", q, "x"),
        .env = HARNESS_LIST("TZ=Europe/Nowhere")});

    cr_assert_eq(r.status, 0, "%s", r.err);
    const char *told = strstr(r.err, "TZ=Europe/Nowhere: times are");
    cr_assert(told, "%s", r.err);
    cr_assert_null(strstr(told + 1, "TZ="), "%s", r.err);
}
