/* test_delivery.c - what handlers see of a message, from a source in memory */
#include <criterion/criterion.h>
#include <string.h>

#include "worker/rules/delivery.h"

/* A source of one message. */
static struct delivery d;
static struct message m;
static struct ulid id;
static uint64_t mark, start;
static pid_t group;
static unsigned unruns;

static void on_handler(struct message *who, uint64_t its_mark,
                       uint64_t its_start, pid_t its_group)
{
    cr_assert_eq(who, &m);
    mark = its_mark;
    start = its_start;
    group = its_group;
}

static void on_unrun(struct message *who, bool may_have_run)
{
    cr_assert_eq(who, &m);
    cr_assert(may_have_run);
    unruns++;
}

static const struct message_ops ops = {.handler = on_handler,
                                       .unrun = on_unrun};

/* Lend a message as a source does. */
static void lend(const char *text, char separator)
{
    id = ulid_make(1);
    m = (struct message){
        .ops = &ops,
        .data = (const unsigned char *)text,
        .size = strlen(text),
        .id = &id,
        .seq = 7,
        .received_ns = 5,
        .priority = 3,
    };
    delivery_parse(&d, &m, separator);
}

Test(delivery, without_a_header_all_of_it_is_the_body)
{
    lend("plain", 0);
    cr_assert(!d.unfit);
    cr_assert_eq(d.body_size, strlen("plain"));
    cr_assert_eq((const void *)d.body, (const void *)m.data);
    cr_assert_null(d.group.at);
}

Test(delivery, what_stands_before_the_separator_is_the_group)
{
    lend("k1:body", ':');
    cr_assert_eq(d.group.size, 2);
    cr_assert_eq(memcmp(d.group.at, "k1", 2), 0);
    lend("body", ':');
    cr_assert_null(d.group.at, "a group, but there is no separator");
    lend(":body", ':');
    cr_assert_eq(d.unfit, REASON_BAD_HEADER, "an empty group is accepted");
    cr_assert_not_null(strstr(d.why, "group of 0 bytes"), "%s", d.why);
}

Test(delivery, its_id_as_text_is_made_once_for_each_message)
{
    char first[ULID_TEXT];

    lend("a", 0);
    strcpy(first, delivery_id(&d));
    cr_assert_str_eq(delivery_id(&d), first);
    lend("b", 0);
    cr_assert_str_neq(delivery_id(&d), first);
}

Test(delivery, a_group_that_it_was_stored_with_is_its_group)
{
    lend("k1:body", ':');
    delivery_regroup(&d, "other", 5);
    cr_assert_eq(d.group.size, 5);
    cr_assert_eq(memcmp(d.group.at, "other", 5), 0);
}

Test(delivery, who_lends_it_hears_who_has_it)
{
    lend("x", 0);
    m.ops->handler(&m, 11, 12, 13);
    cr_assert_eq(mark, 11);
    cr_assert_eq(start, 12);
    cr_assert_eq(group, 13);
    m.ops->unrun(&m, true);
    cr_assert_eq(unruns, 1);
}

Test(delivery, one_that_has_no_name_gets_one_once)
{
    struct ulid first;

    lend("x", 0);
    id = (struct ulid){{0}};
    delivery_read(&d, &m, 0);
    first = id;
    cr_assert_neq(memcmp(&first, &(struct ulid){{0}}, sizeof first), 0);
    delivery_read(&d, &m, 0);
    cr_assert_eq(memcmp(&first, &id, sizeof first), 0);
}

Test(delivery, a_stored_message_has_no_group_but_the_one_it_was_stored_with)
{
    lend("k1:body", ':');
    m.flags = MESSAGE_STORED;
    delivery_parse(&d, &m, ':');
    cr_assert_null(d.group.at);
    m.group = (struct header_text){.at = "other", .size = 5};
    delivery_parse(&d, &m, ':');
    cr_assert_eq(d.group.at, m.group.at);
}

/* Values left by the message before would decide what becomes of this one. */
Test(delivery, a_plain_one_has_nothing_from_the_one_before)
{
    lend("x", 0);
    d.unfit = REASON_BAD_HEADER;
    d.repeat = d.duplicate = true;
    d.lease = (struct group *)&mark;
    d.group.at = "old";
    d.header.fields = HEADER_UNIQUE;
    cr_assert(delivery_plain(&d, &m));
    cr_assert_not(d.unfit || d.repeat || d.duplicate || d.lease || d.group.at ||
                  d.header.fields);
}
