/* test_broker_refused.c - options that a queue on a broker cannot have */
#include <criterion/criterion.h>
#include <stddef.h>
#include <string.h>
#include <sysexits.h>

#include "common/broker/broker_engine.h"

#define OPERAND "amqp://h/v/q"

/* Some of mqsend's options. */
struct options {
    uint64_t priority, size;
    const char *group, *backoff;
    bool no_wait, has_group;
};

#define AT(member) .offset = offsetof(struct options, member)

static const struct option_row
    priority = {"priority", 'p', OPT_NUMBER, .preset = "0", AT(priority)},
    size = {"message-size", 0, OPT_SIZE, AT(size)},
    group = {"group", 0, OPT_CALL, AT(group),
             .seen = offsetof(struct options, has_group) + 1},
    backoff = {"backoff", 0, OPT_STRING, AT(backoff)},
    no_wait = {"no-wait", 0, OPT_FLAG, AT(no_wait)},
    rate = {"rate", 0, OPT_NUMBER, AT(priority)};

/* Return the problem's text; "" without one. */
static const char *check(const struct option_row *row, struct options o,
                         uint64_t partitions)
{
    static struct problem p;

    p = (struct problem){0};
    if (broker_option_check("mqsend", row, &o, OPERAND, partitions, &p) == 0)
        return "";
    cr_assert_eq(p.status, EX_USAGE);
    return p.text;
}

Test(broker_refused, an_option_that_was_not_given_is_not_refused)
{
    const struct option_row *const all[] = {&priority, &size, &group, &backoff,
                                            &no_wait};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cr_assert_str_empty(check(all[i], (struct options){0}, 0));
}

Test(broker_refused, each_kind_of_option_is_refused_with_its_reason)
{
    cr_assert_str_eq(check(&size, (struct options){.size = 1}, 0),
                     "--message-size cannot be used with " OPERAND
                     ": the broker has a limit of its own (max_message_size); "
                     "leave it out");
    cr_assert_not_null(
        strstr(check(&backoff, (struct options){.backoff = "exp:1s"}, 0),
               "up to the worker"));
    cr_assert_not_null(
        strstr(check(&no_wait, (struct options){.no_wait = true}, 0),
               "until it is confirmed"));
}

Test(broker_refused, some_values_can_be_used)
{
    cr_assert_str_empty(check(&priority, (struct options){.priority = 255}, 0));
    cr_assert_not_null(
        strstr(check(&priority, (struct options){.priority = 256}, 0),
               "--priority above 255 cannot be used with"));
}

Test(broker_refused, a_group_needs_partitions)
{
    const struct options o = {.has_group = true};

    cr_assert_not_null(strstr(check(&group, o, 0), "--partitions N"));
    cr_assert_str_empty(check(&group, o, 8));
}

Test(broker_refused, other_options_and_programs_have_no_reason)
{
    struct problem p;

    cr_assert_str_empty(check(&rate, (struct options){.priority = 1}, 0));
    cr_assert_eq(broker_verb_check("mqworker", "backoff", OPERAND, &p), 0);
    cr_assert_neq(broker_verb_check("mqsend", "backoff", OPERAND, &p), 0);
    cr_assert_eq(broker_verb_check("mqctl", "status", OPERAND, &p), 0);
    cr_assert_neq(broker_verb_check("mqctl", "list", OPERAND, &p), 0);
}
