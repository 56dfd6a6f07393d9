/* test_broker_access.c - flags that open a queue on a broker: for which queue,
 * and which of them together */
#include <criterion/criterion.h>
#include <stddef.h>
#include <string.h>
#include <sysexits.h>

#include "common/broker/broker_operand.h"
#include "common/cli/options.h"

/* Options of a program that can open a queue on a broker. */
struct options {
    bool other;
    struct broker_access access;
};

#define AT(member) .offset = offsetof(struct options, member)

static const struct option_row rows[] = {
    BROKER_PASSWORD_FILE(AT(access.password_file)),
    BROKER_TLS_CA(AT(access.tls.ca)),
    BROKER_TLS_CERT(AT(access.tls.cert)),
    BROKER_TLS_KEY(AT(access.tls.key)),
    BROKER_PARTITIONS_ROW(AT(access.partitions)),
};
static const struct option_table table = {
    .program = "test",
    .usage = "",
    .about = "",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

/* Check one or two flags (NULL: none); return the problem's text, or "". */
static const char *check(char *one, char *two, const char *operand)
{
    static struct problem p;
    char name[] = "test", *argv[] = {name, one, two};
    struct options o = {0};
    int operands, rest;

    p = (struct problem){0};
    cr_assert_eq(options_parse(&table, 1 + (one != NULL) + (two != NULL), argv,
                               &o, &operands, &rest, &p),
                 0, "%s", p.text);
    if (broker_access_check(&o.access, operand, &p) == 0)
        return "";
    cr_assert_eq(p.status, EX_USAGE);
    return p.text;
}

static char password[] = "--password-file=x", ca[] = "--tls-ca=x",
            cert[] = "--tls-cert=x", key[] = "--tls-key=x",
            partitions[] = "--partitions=8";

Test(broker_access, without_a_broker_each_of_them_is_named)
{
    char *const flags[] = {password, ca, cert, key, partitions};

    cr_assert_str_empty(check(NULL, NULL, "/q"));
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        cr_assert_eq(strncmp(check(flags[i], NULL, "/q"), flags[i],
                             strcspn(flags[i], "=")),
                     0, "%s", flags[i]);
}

Test(broker_access, flags_for_tls_need_an_operand_that_has_it)
{
    const struct broker_access none = {0},
                               given[] = {{.tls.ca = "f"},
                                          {.tls.cert = "f", .tls.key = "f"}};
    struct problem p;

    cr_assert_eq(broker_access_check(&none, "amqp://h/%2F/q", &p), 0);
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        cr_assert_eq(broker_access_check(&given[i], "amqps://h/%2F/q", &p), 0);
        cr_assert_neq(broker_access_check(&given[i], "amqp://h/%2F/q", &p), 0);
        cr_assert_eq(p.status, EX_USAGE);
        cr_assert_not_null(strstr(p.text, "amqps://"), "%s", p.text);
    }
}

Test(broker_access, a_certificate_goes_with_its_key)
{
    cr_assert_str_empty(check(NULL, NULL, "amqps://h/v/q"));
    cr_assert_str_empty(check(password, ca, "amqps://h/v/q"));
    cr_assert_str_empty(check(cert, key, "amqps://h/v/q"));
    cr_assert_not_null(strstr(check(cert, ca, "amqps://h/v/q"), "go together"));
    cr_assert_not_null(
        strstr(check(password, key, "amqps://h/v/q"), "go together"));
}
