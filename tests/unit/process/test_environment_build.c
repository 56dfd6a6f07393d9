/* test_environment_build.c - what a handler finds in its environment */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/process/environment.h"
#include "worker/source/mq/lent.h"

#define NONCE UINT64_C(0x00ab00cd00ef0012)
#define ROOM  8192

static _Alignas(64) unsigned char memory[SLOT_HEADER + ROOM];
static struct slot *slot = (struct slot *)(void *)memory;
static struct lent lent;
static struct environment_base base;
static struct environment env;
static struct delivery d;

static void setup(void)
{
    clearenv();
    setenv("PATH", "/bin:/usr/bin", 1);
    setenv("TERM", "dumb", 1);
    setenv("MQW_ID", "of an outer worker", 1);
    setenv("MQW_X_OLD", "of an outer worker", 1);
    setenv("MQWORKER", "mine", 1);
    cr_assert_eq(environment_base_open(&base, "/orders", 9, NONCE), 0);
}

static void teardown(void)
{
    environment_close(&env);
    environment_base_close(&base);
}

TestSuite(environment_build, .init = setup, .fini = teardown);

/* Build the environment of a message's delivery. */
static void build(const char *message, unsigned flags, uint32_t failures)
{
    memcpy(slot->body, message, strlen(message));
    slot_hold(slot, &(struct slot_meta){.length = (uint32_t)strlen(message),
                                        .priority = 31,
                                        .failures = failures,
                                        .flags = flags,
                                        .seq = 4711,
                                        .received_ns = 1732126091123456789});
    lent_init(&lent, slot, false);
    lent_fill(&lent);
    delivery_read(&d, &lent.m, 0);
    cr_assert_not(d.unfit, "%s", d.why);
    slot_run(slot, 1);
    cr_assert_eq(environment_build(&env, &base, &d, 5, 7), 0);
}

/* Return a variable's value; NULL: there is none. Two of them fail the test. */
static const char *value(const char *name)
{
    size_t size = strlen(name);
    const char *found = NULL;

    for (char **v = env.vars; *v; v++) {
        if (strncmp(*v, name, size) != 0 || (*v)[size] != '=')
            continue;
        cr_assert_null(found, "%s is there twice", name);
        found = *v + size + 1;
    }
    return found;
}

static void is(const char *name, const char *text)
{
    const char *got = value(name);

    cr_assert(got && strcmp(got, text) == 0, "%s is %s instead of %s", name,
              got ? got : "missing", text);
}

static void is_not(const char *name)
{
    cr_assert_null(value(name), "%s is %s", name, value(name));
}

Test(environment_build, plain_message_has_the_variables_of_the_contract)
{
    build("hello", 0, 0);
    is("MQW_QUEUE", "/orders");
    is("MQW_ID", delivery_id(&d));
    is("MQW_PRIORITY", "31");
    is("MQW_ATTEMPT", "1");
    is("MQW_MAX_ATTEMPTS", "5");
    is("MQW_REDELIVERED", "0");
    is("MQW_RECEIVED_AT", "1732126091123456789");
    is_not("MQW_SENT_AT");
    is_not("MQW_GROUP");
    is_not("MQW_LENGTH_INFERRED");
}

Test(environment_build, is_the_workers_own_without_an_outer_workers)
{
    build("hello", 0, 0);
    is("PATH", "/bin:/usr/bin");
    is("TERM", "dumb");
    is("MQWORKER", "mine");
    is_not("MQW_X_OLD");
    is("MQW_ID", delivery_id(&d));
}

Test(environment_build, header_becomes_variables)
{
    build("MQW/1\nid: 01JD3Z6Q9V0X8N5T2K7B4M1C3F\nsent: 1732126091000000001\n"
          "group: account-7\nx-trace: abc\nx-a-b: two words = 1\nother: no\n\n"
          "body",
          0, 0);
    is("MQW_ID", "01JD3Z6Q9V0X8N5T2K7B4M1C3F");
    is("MQW_SENT_AT", "1732126091000000001");
    is("MQW_GROUP", "account-7");
    is("MQW_X_TRACE", "abc");
    is("MQW_X_A_B", "two words = 1");
    is_not("MQW_OTHER");
}

Test(environment_build, repeat_and_retry_say_so)
{
    build("hello", SLOT_REDELIVERED | SLOT_LENGTH_INFERRED, 3);
    is("MQW_REDELIVERED", "1");
    is("MQW_LENGTH_INFERRED", "1");
    is("MQW_ATTEMPT", "4");
}

Test(environment_build, next_message_keeps_nothing_of_the_one_before)
{
    build("MQW/1\ngroup: g\nx-a: 1\n\nbody", SLOT_REDELIVERED, 2);
    build("hello", 0, 0);
    is_not("MQW_GROUP");
    is_not("MQW_X_A");
    is("MQW_REDELIVERED", "0");
    is("MQW_ATTEMPT", "1");
}

/* The header is full of the shortest x- lines. Each reaches the environment. */
Test(environment_build, as_many_variables_as_a_header_can_hold)
{
    char message[2048] = "MQW/1\n";
    size_t used = strlen(message);
    int n = 0, found = 0;

    for (; used < HEADER_MAX - 7; n++)
        used +=
            (size_t)snprintf(message + used, sizeof message - used, "x-a: b\n");
    snprintf(message + used, sizeof message - used, "\nbody");
    build(message, SLOT_LENGTH_INFERRED, 0);
    for (char **v = env.vars; *v; v++)
        found += strcmp(*v, "MQW_X_A=b") == 0;
    cr_expect_eq(found, n, "%d of %d lines", found, n);
    is("MQW_LENGTH_INFERRED", "1");
    is("MQW_LETTER", "7");
}

Test(environment_build, process_is_found_by_the_mark_it_is_given)
{
    char text[16384], mark[ENVIRONMENT_MARK];
    uint64_t seq = 0;
    size_t used = 0;

    build("MQW/1\nx-a: MQW_DELIVERY=00ab00cd00ef0012-1\n\nbody", 0, 0);
    environment_mark(NONCE, 4711, mark);
    is("MQW_DELIVERY", mark + strlen("MQW_DELIVERY="));
    for (char **v = env.vars; *v; v++) { /* as /proc/PID/environ shows it */
        strcpy(text + used, *v);
        used += strlen(*v) + 1;
    }
    cr_assert(environment_marked(text, used, NONCE, &seq));
    cr_assert_eq(seq, 4711, "a value of a header passes for a mark");
}

/* clearenv(3) leaves NULL, and so does setproctitle_init(3bsd). */
Test(environment_build, a_process_without_any_environment_has_ours_only)
{
    environment_base_close(&base);
    clearenv();
    cr_assert_null(environ);
    cr_assert_eq(environment_base_open(&base, "/orders", 9, NONCE), 0);
    cr_assert_eq(base.count, 2);
    build("x", 0, 0);
    cr_assert_str_eq(value("MQW_QUEUE"), "/orders");
    cr_assert_null(value("PATH"));
}
