/* test_amqp_fake.c - what a real broker does too rarely, or only where it is
 * old: by a server of our own */
#include "tests/e2e/amqp/amqp_fake.h"
#include "tests/harness/harness.h"

TestSuite(amqp_fake, .init = harness_init, .fini = harness_fini,
          .timeout = 120);

static struct fake *server(const char *product, const char *version)
{
    return fake_open(&(struct fake){.product = product, .version = version});
}

static void refused(const struct fake *f, const char *words)
{
    struct harness_result r =
        harness_run("mqworker", "--state-dir", harness_state_dir(),
                    fake_operand(f), "--", "true");

    cr_assert_eq(r.status, 69, "%d: %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, words), "%s", r.err);
}

Test(amqp_fake, a_server_before_3_10_is_refused)
{
    refused(server("RabbitMQ", "3.9.29"),
            "has RabbitMQ 3.9.29: its dead lettering may lose messages");
}

Test(amqp_fake, a_server_that_is_no_rabbitmq_is_refused)
{
    refused(server("LavinMQ", "1.2.3"), "is LavinMQ 1.2.3");
}

Test(amqp_fake, a_server_that_has_priorities_is_given_them)
{
    struct fake *f = server("RabbitMQ", "4.1.0");
    struct harness_result r =
        harness_run("mqsend", "--priority", "5", fake_operand(f), "x");

    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(f->published, 1);
    f = server("RabbitMQ", "3.13.7");
    r = harness_run("mqsend", "--priority", "5", fake_operand(f), "x");
    cr_assert_eq(r.status, 64, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "RabbitMQ 3.13.7"), "%s", r.err);
    cr_assert_eq(f->published, 0);
}

/* Up to 3.12.4 all that comes on a channel is refused if its first message came
 * between the death of a leader and the election of the next. */
Test(amqp_fake, mqsend_takes_a_nack_for_the_end_of_a_connection_only)
{
    struct fake *f = fake_open(&(struct fake){
        .product = "RabbitMQ", .version = "3.10.8", .nacked = 3});
    struct harness_result r = harness_run("mqsend", fake_operand(f), "x");

    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(f->nacks, 3);
    cr_assert_eq(f->acks, 1);
}

Test(amqp_fake, a_worker_takes_a_nack_for_the_end_of_a_connection_only)
{
    struct fake *f = fake_open(&(struct fake){.product = "RabbitMQ",
                                              .version = "3.10.8",
                                              .nacked = 3,
                                              .message = "x"});
    struct harness_process *w =
        harness_worker(fake_operand(f), "--", "sh", "-c", "exit 65");

    harness_until(f->acked == 1, 30000);
    cr_assert_eq(harness_stop(w, 20000), 0);
    cr_assert_eq(f->nacks, 3);
    cr_assert_eq(f->acks, 1);
    cr_assert_eq(f->acked_early, 0, "the letter is confirmed first");
}

Test(amqp_fake, mqsend_says_what_to_do_where_a_broker_dies_as_it_begins)
{
    struct fake *f = fake_open(&(struct fake){
        .product = "RabbitMQ", .version = "3.10.8", .leaves = true});
    struct harness_result r = harness_run("mqsend", fake_operand(f), "x");

    cr_assert_eq(r.status, 69, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "lost the connection to 127.0.0.1"), "%s",
                       r.err);
    cr_assert_not_null(strstr(r.err, "; run it again"), "%s", r.err);
    cr_assert_eq(f->published, 0);
}
