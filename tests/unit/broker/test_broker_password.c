/* test_broker_password.c - where the password of a broker comes from */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/broker/broker_operand.h"

static char folder[] = "/tmp/mqw-password-XXXXXX";
static char out[BROKER_PASSWORD];
static struct broker_operand o;
static struct problem p;

static void begin(void)
{
    cr_assert_not_null(mkdtemp(folder));
    unsetenv("AMQP_PASSWORD");
    unsetenv("CREDENTIALS_DIRECTORY");
    cr_assert_eq(broker_operand_parse(&o, "amqp://me@mq1/v/q", &p), 0);
}

static void end(void)
{
    char command[100];

    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

/* Make a file with this text and mode; return its path. */
static const char *put(const char *name, const char *text, mode_t mode)
{
    static char path[200];
    int fd;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
    cr_assert_geq(fd, 0);
    cr_assert_eq(fchmod(fd, mode), 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return path;
}

TestSuite(broker_password, .init = begin, .fini = end);

Test(broker_password, of_a_file_is_its_line)
{
    const char *path = put("p", "se cret\n", 0600);

    cr_assert_eq(broker_password_find(out, &o, path, &p), 0, "%s", p.text);
    cr_assert_str_eq(out, "se cret");
}

Test(broker_password, the_file_goes_first_then_the_credential)
{
    char path[200];

    setenv("AMQP_PASSWORD", "variable", 1);
    setenv("CREDENTIALS_DIRECTORY", folder, 1);
    put("amqp-password", "credential", 0400);
    cr_assert_eq(broker_password_find(out, &o, NULL, &p), 0, "%s", p.text);
    cr_assert_str_eq(out, "credential");
    strcpy(path, put("p", "file", 0600));
    cr_assert_eq(broker_password_find(out, &o, path, &p), 0, "%s", p.text);
    cr_assert_str_eq(out, "file");
}

Test(broker_password, the_variable_is_gone_in_any_case)
{
    char path[200];

    setenv("AMQP_PASSWORD", "variable", 1);
    cr_assert_eq(broker_password_find(out, &o, NULL, &p), 0, "%s", p.text);
    cr_assert_str_eq(out, "variable");
    cr_assert_null(getenv("AMQP_PASSWORD"));
    setenv("AMQP_PASSWORD", "variable", 1);
    strcpy(path, put("p", "file", 0600));
    cr_assert_eq(broker_password_find(out, &o, path, &p), 0, "%s", p.text);
    cr_assert_null(getenv("AMQP_PASSWORD"));
}

Test(broker_password, a_file_that_others_read_is_refused)
{
    const char *path = put("p", "secret", 0644);

    cr_assert_lt(broker_password_find(out, &o, path, &p), 0);
    cr_assert_eq(p.status, EX_CONFIG);
    cr_assert_not_null(strstr(p.text, "chmod 0600"));
    cr_assert_null(strstr(p.text, "secret"));
}

Test(broker_password, no_file_and_an_empty_one_are_refused)
{
    cr_assert_lt(broker_password_find(out, &o, "/no/such", &p), 0);
    cr_assert_eq(p.status, EX_NOINPUT);
    cr_assert_lt(broker_password_find(out, &o, put("e", "\n", 0600), &p), 0);
    cr_assert_eq(p.status, EX_CONFIG);
}

Test(broker_password, guest_on_loopback_needs_none)
{
    cr_assert_lt(broker_password_find(out, &o, NULL, &p), 0);
    cr_assert_eq(p.status, EX_USAGE);
    cr_assert_not_null(strstr(p.text, "AMQP_PASSWORD"));
    cr_assert_eq(broker_operand_parse(&o, "amqp://[::1],127.0.0.1/v/q", &p), 0);
    cr_assert_eq(broker_password_find(out, &o, NULL, &p), 0);
    cr_assert_str_eq(out, "guest");
    cr_assert_eq(broker_operand_parse(&o, "amqp://127.0.0.1,mq1/v/q", &p), 0);
    cr_assert_lt(broker_password_find(out, &o, NULL, &p), 0);
}
