/* test_stream_line.c - the head of a message, the answer to it */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "worker/handlers/stream_line.h"
#include "worker/source/mq/lent.h"

#define ID "01JD3Z6Q9V0X8N5T2K7B4M1C3F"

static _Alignas(64) unsigned char memory[SLOT_HEADER + 8192];
static struct slot *slot = (struct slot *)(void *)memory;
static struct lent lent;
static struct delivery d;
static char head[STREAM_HEAD + 1];
static struct stream_answer a;

/* Make a slot that runs, with these bytes in it. */
static void message(const char *text, size_t size, unsigned flags)
{
    struct slot_meta meta = {.length = (uint32_t)size,
                             .priority = 7,
                             .failures = 2,
                             .flags = flags,
                             .seq = 1};

    cr_assert_eq(ulid_parse(ID, strlen(ID), &meta.id), 0);
    memcpy(slot->body, text, size);
    slot_hold(slot, &meta);
    lent_init(&lent, slot, false);
    lent_fill(&lent);
    delivery_read(&d, &lent.m, 0);
    slot_run(slot, 1);
}

/* Check the head that is written for the message, without its newline. */
static void head_is(const char *want)
{
    size_t n = stream_head(head, &d);

    cr_assert_lt(n, sizeof head);
    cr_assert_eq(head[n - 1], '\n');
    head[n - 1] = '\0';
    cr_assert_str_eq(head, want);
}

/* ---- heads ---- */

Test(stream_line, head_of_a_message_without_a_header)
{
    message("hello", 5, 0);
    head_is("MSG " ID " 5 attempt=3 priority=7");
}

Test(stream_line, head_says_what_is_rarely_true)
{
    message("", 0, SLOT_REDELIVERED);
    head_is("MSG " ID " 0 attempt=3 priority=7 redelivered=1");
    message("", 0, SLOT_REDELIVERED | SLOT_LENGTH_INFERRED);
    head_is("MSG " ID " 0 attempt=3 priority=7 redelivered=1 "
            "length-inferred=1");
}

#define SAID "MQW/1\ngroup: a b=c%d\nx-trace: 1 2\nx-name: \xc3\xa9~!\n\nbody"

Test(stream_line, what_would_end_a_word_is_quoted)
{
    message(SAID, strlen(SAID), 0);
    head_is("MSG " ID " 4 attempt=3 priority=7 group=a%20b%3Dc%25d "
            "x-trace=1%202 x-name=%C3%A9~!");
}

Test(stream_line, a_group_of_its_row_goes_into_the_head)
{
    message("x", 1, 0);
    delivery_regroup(&d, "account 7", 9);
    head_is("MSG " ID " 1 attempt=3 priority=7 group=account%207");
}

/* Write a header with as many bytes as possible that must be quoted. */
static size_t largest_header(char *out)
{
    size_t n = (size_t)sprintf(out, "MQW/1\n");

    while (n + 8 + 3 + 1 <= HEADER_MAX) {
        size_t room = HEADER_MAX - n - 7, value = room < 256 ? room : 256;

        n += (size_t)sprintf(out + n, "x-a: ");
        for (size_t i = 0; i + 2 <= value; i += 2)
            n += (size_t)sprintf(out + n, "\xc3\xa9");
        out[n++] = '\n';
    }
    out[n++] = '\n';
    return n;
}

Test(stream_line, the_longest_head_fits)
{
    char text[2 * HEADER_MAX], key[HEADER_VALUE_MAX];
    size_t n = largest_header(text);

    memset(key, 0xc3, sizeof key);
    message(text, n, SLOT_REDELIVERED | SLOT_LENGTH_INFERRED);
    cr_assert(!d.unfit && d.header.bytes > HEADER_MAX - 16, "%s", d.why);
    lent.m.priority = UINT32_MAX;
    lent.m.failures = UINT32_MAX - 1;
    delivery_regroup(&d, key, sizeof key);
    n = stream_head(head, &d);
    cr_assert_leq(n, STREAM_HEAD);
    cr_assert_gt(n, 3500);
}

/* ---- answers ---- */

static int parse(const char *line)
{
    /* Memory of its own, so that a sanitizer sees a byte too many. */
    char *copy = malloc(strlen(line) + 1);
    int err;

    cr_assert(copy);
    memcpy(copy, line, strlen(line));
    err = stream_answer_parse(copy, strlen(line), &a);
    if (!err) {
        a.id.at = line + (a.id.at - copy);
        if (a.reason.size)
            a.reason.at = line + (a.reason.at - copy);
    }
    free(copy);
    return err;
}

static void is(const char *line, enum mqw_verdict verdict, const char *reason)
{
    cr_assert_eq(parse(line), 0, "%s", line);
    cr_assert_eq(a.verdict, verdict, "%s", line);
    cr_assert_eq(a.id.size, strlen(ID), "%s", line);
    cr_assert_eq(memcmp(a.id.at, ID, a.id.size), 0);
    cr_assert_eq(a.reason.size, strlen(reason), "%s", line);
    cr_assert_eq(strncmp(a.reason.at ? a.reason.at : "", reason, a.reason.size),
                 0);
}

Test(stream_line, four_answers)
{
    is("OK " ID, MQW_DONE, "");
    is("DISCARD " ID, MQW_DISCARD, "");
    is("RETRY " ID, MQW_RETRY, "");
    cr_assert_not(a.delayed);
    is("DEAD " ID, MQW_DEAD, "");
    is("DEAD " ID " no such account", MQW_DEAD, "no such account");
    is("RETRY " ID " busy  now", MQW_RETRY, "busy  now");
}

Test(stream_line, a_retry_may_name_its_delay)
{
    is("RETRY " ID " delay=1m30s", MQW_RETRY, "");
    cr_assert(a.delayed);
    cr_assert_eq(a.delay_ns, 90 * NS_PER_S);
    is("RETRY " ID " delay=0 at once", MQW_RETRY, "at once");
    cr_assert(a.delayed);
    cr_assert_eq(a.delay_ns, 0);
    is("RETRY " ID " a delay=5s", MQW_RETRY, "a delay=5s");
    cr_assert_not(a.delayed);
    is("DEAD " ID " delay=5s", MQW_DEAD, "delay=5s");
    cr_assert_not(a.delayed);
}

Test(stream_line, space_at_the_end_and_a_carriage_return_do_no_harm)
{
    is("OK " ID " ", MQW_DONE, "");
    is("OK " ID "\r", MQW_DONE, "");
    is("RETRY " ID " \r", MQW_RETRY, "");
    is("DEAD  " ID "   why   ", MQW_DEAD, "why");
}

Test(stream_line, an_id_is_whatever_stands_there)
{
    cr_assert_eq(parse("OK 7"), 0);
    cr_assert_eq(a.id.size, 1);
}

Test(stream_line, anything_else_is_garbage)
{
    static const char *const lines[] = {
        "",
        " ",
        "\r",
        "OK",
        "OK ",
        "OK\t" ID,
        " OK " ID,
        "ok " ID,
        "OKAY " ID,
        "O " ID,
        "hello world",
        "OK " ID " fine",
        "DISCARD " ID " not wanted",
        "RETRY " ID " delay=",
        "RETRY " ID " delay=5",
        "RETRY " ID " delay=soon",
        "RETRY " ID " delay=1111111111111111111111111111111111111111s",
    };

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        cr_assert_eq(parse(lines[i]), -EBADMSG, "\"%s\"", lines[i]);
}

/* Return the error text of an outcome with this answer. */
static const char *error(const char *line)
{
    static char text[OUTCOME_ERROR];

    cr_assert_eq(parse(line), 0);
    stream_answer_error(&a, text);
    return text;
}

Test(stream_line, a_reason_is_one_line_of_printable_text)
{
    char line[1024] = "DEAD " ID " ";

    cr_assert_str_eq(error("DEAD " ID " no \xc3\xa9"), "no \xc3\xa9");
    cr_assert_str_eq(error("DEAD " ID " a\x1b[31m\xff"), "a\\x1b[31m\\xff");
    cr_assert_str_eq(error("DEAD " ID), "answered DEAD");
    cr_assert_str_eq(error("RETRY " ID " delay=1s"), "answered RETRY");
    cr_assert_str_eq(error("OK " ID), "");
    for (size_t n = strlen(line); n < 1000; n++)
        line[n] = 'x';
    cr_assert_eq(strlen(error(line)), OUTCOME_ERROR - 1);
}
