/* test_broker_operand.c - a queue on a broker, as it is named */
#include <criterion/criterion.h>
#include <string.h>
#include <sysexits.h>

#include "common/broker/broker_operand.h"

static struct broker_operand o;
static struct problem p;

static int parse(const char *text)
{
    p = (struct problem){0};
    return broker_operand_parse(&o, text, &p);
}

Test(broker_operand, is_known_by_its_scheme)
{
    cr_assert(broker_operand_is("amqp://h/v/q"));
    cr_assert(broker_operand_is("amqps://h/v/q"));
    cr_assert_not(broker_operand_is("/orders"));
    cr_assert_not(broker_operand_is("amqp"));
    cr_assert_not(broker_operand_is("amqp:/h/v/q"));
}

Test(broker_operand, reads_all_parts)
{
    cr_assert_eq(parse("amqp://me@mq1:1234,mq2,[::1]:99/%2F/orders"), 0, "%s",
                 p.text);
    cr_assert_not(o.tls);
    cr_assert_str_eq(o.user, "me");
    cr_assert_eq(o.host_count, 3);
    cr_assert_str_eq(o.hosts[0].name, "mq1");
    cr_assert_eq(o.hosts[0].port, 1234);
    cr_assert_str_eq(o.hosts[1].name, "mq2");
    cr_assert_eq(o.hosts[1].port, 5672);
    cr_assert_str_eq(o.hosts[2].name, "::1");
    cr_assert_eq(o.hosts[2].port, 99);
    cr_assert_str_eq(o.vhost, "/");
    cr_assert_str_eq(o.queue, "orders");
    cr_assert_str_eq(o.shown, "amqp://mq1:1234,mq2,[::1]:99/%2F/orders");
    cr_assert_str_eq(o.folder, "/amqp/%2F@mq1:1234/orders");
}

Test(broker_operand, fills_in_what_is_usual)
{
    cr_assert_eq(parse("amqps://mq1/shop/or%25ders"), 0, "%s", p.text);
    cr_assert(o.tls);
    cr_assert_str_eq(o.user, "guest");
    cr_assert_eq(o.hosts[0].port, 5671);
    cr_assert_str_eq(o.vhost, "shop");
    cr_assert_str_eq(o.queue, "or%ders");
    cr_assert_str_eq(o.folder, "/amqp/shop@mq1/or%25ders");
}

Test(broker_operand, a_password_is_refused_and_not_repeated)
{
    static const char *const with[] = {
        "amqp://me:secret@mq1/v/q", "amqp://me:sec@ret@mq1/v/q",
        "amqp://me:sec/ret@mq1/v/q", "amqp://:secret@mq1/v/q"};

    for (size_t i = 0; i < sizeof with / sizeof with[0]; i++) {
        cr_assert_eq(parse(with[i]), -EINVAL);
        cr_assert_eq(p.status, EX_USAGE);
        cr_assert_null(strstr(p.text, "ret"), "%s", p.text);
        cr_assert_null(strstr(p.text, "sec"), "%s", p.text);
        cr_assert_not_null(strstr(p.text, "password"));
    }
}

Test(broker_operand, a_password_has_three_other_places)
{
    cr_assert_eq(parse("amqp://me:x@mq1/v/q"), -EINVAL);
    cr_assert_not_null(strstr(p.text, "--password-file"));
    cr_assert_not_null(strstr(p.text, "amqp-password"));
    cr_assert_not_null(strstr(p.text, "AMQP_PASSWORD"));
}

Test(broker_operand, what_is_none_is_refused_in_words)
{
    static const struct {
        const char *text, *says;
    } all[] = {
        {"amqp://", "host \"\" is empty"},
        {"amqp://mq1", "virtual host \"\" is empty"},
        {"amqp://mq1/", "virtual host \"\" is empty"},
        {"amqp://mq1/v", "queue \"\" is empty"},
        {"amqp://mq1/v/", "queue \"\" is empty"},
        {"amqp://mq1//orders", "virtual host \"\" is empty"},
        {"amqp://mq1/v/a/b", "has a slash"},
        {"amqp://@mq1/v/q", "user \"\" is empty"},
        {"amqp://mq1,/v/q", "ends in a comma"},
        {"amqp://mq1,,mq2/v/q", "is not the name or address"},
        {"amqp://mq1:0/v/q", "is not a number from 1 to 65535"},
        {"amqp://mq1:65536/v/q", "is not a number from 1 to 65535"},
        {"amqp://mq1:1234567/v/q", "is not a number from 1 to 65535"},
        {"amqp://m q/v/q", "is not the name or address"},
        {"amqp://[::1]x/v/q", "has text after"},
        {"amqp://mq1/%2/q", "two hex digits"},
        {"amqp://mq1/%/q", "two hex digits"},
        {"amqp://mq1/v/%zz", "two hex digits"},
        {"amqp://mq1/v/%00", "control character"},
        {"amqp://mq1/v/%0A", "control character"},
        {"amqp://mq1/v/%ff", "printable UTF-8"},
        {"amqp://mq1/v/amq.gen", "begins with amq."},
        {"amqp://1,2,3,4,5,6,7,8,9/v/q", "more than 8"},
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        cr_assert_lt(parse(all[i].text), 0, "%s is taken", all[i].text);
        cr_assert_eq(p.status, EX_USAGE, "%s", p.text);
        cr_assert_not_null(strstr(p.text, all[i].says), "%s: %s", all[i].text,
                           p.text);
    }
}

Test(broker_operand, a_folder_is_one_name_a_part)
{
    cr_assert_eq(parse("amqp://mq1/..%2Fx/.hid%20den"), 0, "%s", p.text);
    cr_assert_str_eq(o.folder, "/amqp/%2E.%2Fx@mq1/%2Ehid%20den");
}

Test(broker_operand, names_have_room_for_ours_behind_them)
{
    char text[400] = "amqp://h/v/";
    size_t n = strlen(text);

    memset(text + n, 'q', BROKER_QUEUE - 1);
    cr_assert_eq(parse(text), 0, "%s", p.text);
    text[n + BROKER_QUEUE - 1] = 'q';
    cr_assert_lt(parse(text), 0);
    cr_assert_not_null(strstr(p.text, "too long"));
}

Test(broker_operand, a_folder_tells_its_operand_and_no_other_one)
{
    char text[QUEUE_NAME_MAX];

    cr_assert(broker_operand_of(text, "/amqp/%2F@mq1:1234/orders"));
    cr_assert_str_eq(text, "amqp://mq1:1234/%2F/orders");
    cr_assert_eq(broker_operand_parse(&o, text, &p), 0);
    cr_assert_str_eq(o.folder, "/amqp/%2F@mq1:1234/orders");
    cr_assert_not(broker_operand_of(text, "/orders"));
    cr_assert_not(broker_operand_of(text, "/amqp/nohost/orders"));
    cr_assert_not(broker_operand_of(text, "/amqp/v@h"));
}
