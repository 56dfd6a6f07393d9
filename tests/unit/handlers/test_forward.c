/* test_forward.c - the header of a message that is forwarded to another queue,
 * and what becomes of one that cannot be sent */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <mqueue.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "worker/handlers/forward.h"
#include "worker/handlers/handler.h"

#define ID "01JD3Z6Q9V0X8N5T2K7B4M1C3F"

static struct settings set;
static struct handler *handler;
static struct ulid id;
static struct message message;
static struct delivery d;
static struct outcome out;
static char head[HEADER_MAX + 1];

static void setup(void)
{
    struct problem p = {0};

    harness_init();
    settings_init(&set);
    cr_assert_eq(handler_forward.open(
                     &handler, &(struct handler_setup){.settings = &set}, &p),
                 0, "%s", p.text);
}

static void teardown(void)
{
    handler_forward.close(&handler);
    harness_fini();
}

TestSuite(forward, .init = setup, .fini = teardown);

static void lend(const char *data, unsigned flags)
{
    memset(&id, 0, sizeof id);
    message = (struct message){.data = (const unsigned char *)data,
                               .size = strlen(data),
                               .id = &id,
                               .seq = 7,
                               .priority = 3,
                               .flags = flags,
                               .received_ns = 1};
    delivery_read(&d, &message, ':');
    outcome_begin(&out);
}

static const char *written(void)
{
    int size = forward_header(head, &d, &out);

    cr_assert_gt(size, 0, "%s", out.error);
    head[size] = '\0';
    return head;
}

Test(forward, lines_that_nobody_knows_are_sent_and_those_of_a_letter_are_not)
{
    lend("MQW/1\nid: " ID "\nsize: 4\ngroup: a\nletter: 5\nletter-token: " ID
         "\nexpires: 9000000000000000000\nnew: one\nx-trace: abc\n\nbody",
         0);
    cr_assert_str_eq(written(),
                     "MQW/1\nid: " ID
                     "\nsize: 4\nexpires: 9000000000000000000\nnew: one\n"
                     "x-trace: abc\ngroup: a\nforwarded: 1\n\n");
}

Test(forward, a_body_without_a_header_gets_an_id_and_its_group)
{
    char expected[HEADER_MAX], text[ULID_TEXT];

    lend("account-7: pay 12", 0);
    snprintf(expected, sizeof expected,
             "MQW/1\nid: %s\ngroup: account-7\nforwarded: 1\n\n",
             ulid_print(id, text));
    cr_assert_str_eq(written(), expected);
}

Test(forward, a_repeat_is_marked_and_so_is_one_that_came_as_a_repeat)
{
    lend("MQW/1\nid: " ID "\n\nbody", MESSAGE_REDELIVERED);
    cr_assert_str_eq(written(),
                     "MQW/1\nid: " ID "\nresent: 1\nforwarded: 1\n\n");
    lend("MQW/1\nid: " ID "\nforwarded: 2\nresent: 1\n\nbody", 0);
    cr_assert(message.flags & MESSAGE_REDELIVERED);
    cr_assert_str_eq(written(),
                     "MQW/1\nid: " ID "\nresent: 1\nforwarded: 3\n\n");
}

Test(forward, a_retry_waits_there_until_its_time)
{
    char expected[64];

    lend("MQW/1\nid: " ID "\nnot-before: 5\ndelay: 7\n\nbody", 0);
    cr_assert_eq(forward_due(&d), 0);
    cr_assert_not_null(strstr(written(), "\nnot-before: 5\ndelay: 7\n"));
    message.due_ns = clock_wall_ns() + 3600 * NS_PER_S;
    cr_assert_eq(forward_due(&d), message.due_ns);
    snprintf(expected, sizeof expected, "\nnot-before: %llu\n",
             (unsigned long long)message.due_ns);
    cr_assert_not_null(strstr(written(), expected), "%s", head);
    cr_assert_null(strstr(head, "delay"), "%s", head);
    lend("MQW/1\nid: " ID "\nnot-before: 9000000000000000000\ndelay: 7\n\nbody",
         0);
    cr_assert_eq(forward_due(&d), 9000000000000000000U);
    cr_assert_not_null(strstr(written(), "\ndelay: 7\n"), "%s", head);
}

Test(forward, a_circle_ends_as_a_dead_letter)
{
    lend("MQW/1\nid: " ID "\nforwarded: 15\n\nbody", 0);
    cr_assert_not_null(strstr(written(), "forwarded: 16\n"));
    lend("MQW/1\nid: " ID "\nforwarded: 16\n\nbody", 0);
    cr_assert_eq(forward_header(head, &d, &out), -ELOOP);
    cr_assert_eq(out.verdict, MQW_DEAD);
    cr_assert_not_null(strstr(out.error, "circle"), "%s", out.error);
    cr_assert_not_null(strstr(out.error, "mqdlq replay"), "%s", out.error);
}

Test(forward, a_header_that_has_no_room_for_more_ends_as_a_dead_letter)
{
    char data[2048] = "MQW/1\n", line[300];

    for (int i = 0; i < 4; i++) {
        snprintf(line, sizeof line, "x-%d: %0*d\n", i, 240, 1);
        strcat(data, line);
    }
    strcat(data, "\nbody");
    lend(data, 0);
    cr_assert_eq(d.unfit, REASON_NONE, "%s", d.why);
    cr_assert_eq(forward_header(head, &d, &out), -EMSGSIZE);
    cr_assert_eq(out.verdict, MQW_DEAD);
    cr_assert_not_null(strstr(out.error, "1023 are allowed"), "%s", out.error);
}

/* ---- sending ---- */

static void run(const char *data)
{
    lend(data, 0);
    handler_forward.run(handler, &d, &out);
}

static void to(const char *queue)
{
    snprintf(set.forward_queue, sizeof set.forward_queue, "%s", queue);
}

Test(forward, the_kernel_has_it_with_its_priority)
{
    const char *q = harness_queue(4, 256);
    char got[256];
    unsigned priority;
    ssize_t n;

    to(q);
    run("MQW/1\nid: " ID "\n\nbody");
    cr_assert_eq(out.kind, OUTCOME_VERDICT);
    cr_assert_eq(out.verdict, MQW_DONE, "%s", out.error);
    n = harness_receive(q, got, sizeof got, &priority);
    cr_assert_eq(priority, 3);
    cr_assert_gt(n, 0);
    got[n] = '\0';
    cr_assert_str_eq(got, "MQW/1\nid: " ID "\nforwarded: 1\n\nbody");
}

Test(forward, a_destination_that_is_missing_or_full_is_no_failure)
{
    const char *q = harness_queue(1, 256);

    to("/mqw-test-nobody-has-this");
    run("body");
    cr_assert_eq(out.kind, OUTCOME_NOT_STARTED);
    cr_assert_not(out.ran);
    cr_assert_not_null(strstr(out.error, "does not exist"), "%s", out.error);
    cr_assert_not_null(strstr(out.error, "mqctl create"), "%s", out.error);
    to(q);
    run("one");
    cr_assert_eq(out.kind, OUTCOME_VERDICT, "%s", out.error);
    run("two");
    cr_assert_eq(out.kind, OUTCOME_NOT_STARTED);
    cr_assert_not(out.ran);
    cr_assert_not_null(strstr(out.error, "full (1 message)"), "%s", out.error);
    cr_assert_eq(harness_queue_length(q), 1);
}

Test(forward, one_that_is_too_large_says_how_large_the_queue_must_be)
{
    const char *q = harness_queue(1, 64);

    to(q);
    run("MQW/1\nid: " ID "\n\nthis body is much too large");
    cr_assert_eq(out.kind, OUTCOME_VERDICT);
    cr_assert_eq(out.verdict, MQW_DEAD);
    cr_assert_not_null(strstr(out.error, "the destination allows 64"), "%s",
                       out.error);
    cr_assert_not_null(strstr(out.error, "--message-size 78"), "%s", out.error);
    cr_assert_eq(harness_queue_length(q), 0);
}

Test(forward, a_queue_that_was_removed_is_opened_again_by_its_name)
{
    const char *q = harness_queue(4, 256);

    to(q);
    run("one");
    cr_assert_eq(out.verdict, MQW_DONE);
    cr_assert_eq(mq_unlink(q), 0);
    run("two");
    cr_assert_eq(out.kind, OUTCOME_NOT_STARTED,
                 "it was sent to a queue "
                 "that nobody can open");
    cr_assert_neq(mq_open(q, O_CREAT | O_RDWR, 0600,
                          &(struct mq_attr){.mq_maxmsg = 4, .mq_msgsize = 256}),
                  -1);
    run("two");
    cr_assert_eq(out.verdict, MQW_DONE, "%s", out.error);
    cr_assert_eq(harness_queue_length(q), 1);
}
