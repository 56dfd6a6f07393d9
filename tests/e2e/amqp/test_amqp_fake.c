/* test_amqp_fake.c - what real brokers do rarely, or only old ones, done by a
 * server of the test's own */
#include <errno.h>
#include <limits.h>

#include "common/amqp/publisher.h"
#include "common/base/clock.h"
#include "tests/e2e/amqp/amqp_fake.h"
#include "tests/harness/harness.h"

TestSuite(amqp_fake, .init = harness_init, .fini = harness_fini);

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

/* Run the worker on the fake until it is ready, and a sender with a delay. */
static const char *starts(const struct fake *f)
{
    struct harness_process *w = harness_worker(fake_operand(f), "--", "true");
    struct harness_result r;

    harness_wait_log(w, "event=started", 20000);
    r = harness_run("mqsend", "--delay", "4s", fake_operand(f), "x");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(harness_stop(w, 20000), 0);
    return harness_stderr(w, NULL);
}

Test(amqp_fake, queues_that_were_made_before_an_upgrade_to_4_are_taken)
{
    struct fake *f = fake_open(&(struct fake){
        .product = "RabbitMQ", .version = "4.0.5", .limited = true});

    cr_assert_not_null(strstr(starts(f), "event=delivery_limit"));
}

Test(amqp_fake, queues_that_another_node_made_with_4_are_taken_by_3)
{
    struct fake *f = fake_open(&(struct fake){
        .product = "RabbitMQ", .version = "3.13.7", .unlimited = true});

    cr_assert_null(strstr(starts(f), "event=delivery_limit"));
}

/* The fake sends no heartbeats, so nothing else shows that it has hung. */
Test(amqp_fake, a_host_that_has_hung_on_the_outbox_is_left_by_the_inbox)
{
    struct fake *f = fake_open(&(struct fake){.product = "RabbitMQ",
                                              .version = "3.10.8",
                                              .message = "x",
                                              .hangs = true});
    struct harness_process *w =
        harness_worker(fake_operand(f), "--backoff", "4s", "--", "false");

    harness_wait_log(w, "event=link_lost", 60000);
    harness_until(strstr(harness_stderr(w, NULL), "side=inbox host="), 60000);
    harness_kill(w);
}

/* Return true if the kernel is going to probe the worker's idle connections
 * within 10 s: /proc/net/tcp has the timers in hundredths of a second. */
static bool probed_soon(const struct fake *f)
{
    char command[256];

    snprintf(command, sizeof command,
             "awk '$3 ~ /:%04X$/ && $4 == \"01\" { n++; split($6, t, \":\");"
             " if (t[1] == \"02\" && t[2] <= \"000003E8\") k++ }"
             " END { exit !(n >= 2 && n == k) }' /proc/net/tcp",
             f->port);
    return harness_run("sh", "-c", command).status == 0;
}

Test(amqp_fake, a_host_that_is_cut_off_is_noticed_by_the_kernel)
{
    struct fake *f = server("RabbitMQ", "3.10.8");
    struct harness_process *w = harness_worker(fake_operand(f), "--", "true");

    harness_wait_log(w, "event=started", 20000);
    harness_until(probed_soon(f), 20000);
    cr_assert_eq(harness_stop(w, 20000), 0);
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
    cr_assert_not_null(strstr(r.err, "; run the command again"), "%s", r.err);
    cr_assert_eq(f->published, 0);
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

Test(amqp_fake, a_message_that_fits_into_no_frame_holds_up_no_other)
{
    struct fake *f = fake_open(&(struct fake){
        .product = "RabbitMQ", .version = "3.13.7", .frame_max = 4096});
    static char text[4096];
    amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_HEADERS_FLAG,
        .headers = {1, &(amqp_table_entry_t){
                           .key = {3, (char[]){"x-a"}},
                           .value = {.kind = AMQP_FIELD_KIND_UTF8,
                                     .value.bytes = {sizeof text, text}}}}};
    struct broker_operand operand;
    struct publisher_setup setup = {
        .link = {.operand = &operand, .password = "guest", .name = "test"},
        .topology.operand = &operand,
        .wait_ns = 10 * NS_PER_S,
        .stop = never};
    amqp_field_value_t *value = &properties.headers.entries[0].value;
    struct publisher *b = NULL;
    struct problem p = {0};

    cr_assert_eq(broker_operand_parse(&operand, fake_operand(f), &p), 0);
    cr_assert_eq(publisher_open(&b, &setup, &p), 0, "%s", p.text);
    cr_assert_eq(publisher_put(b, "q", &properties, "b", 1, &p), -EMSGSIZE);
    cr_assert_not_null(strstr(p.text, "4096 bytes"), "%s", p.text);
    value->value.bytes.len = 100;
    cr_assert_eq(publisher_put(b, "q", &properties, "b", 1, &p), 0, "%s",
                 p.text);
    cr_assert_eq(publisher_flush(b, &p), 0, "%s", p.text);
    cr_assert_eq(publisher_confirmed(b), 1);
    publisher_close(&b);
}

Test(amqp_fake, an_unusable_destination_is_logged_before_the_first_message)
{
    struct harness_process *w = harness_worker(
        harness_queue(4, 128), "--forward", "amqp://guest@127.0.0.1:1/%2F/q");

    harness_wait_log(w, "event=started", 20000);
    cr_assert_not_null(
        strstr(harness_stderr(w, NULL), "event=destination_unusable"));
    cr_assert_eq(harness_stop(w, 20000), 0);
}

Test(amqp_fake, a_destination_that_does_not_answer_hardly_delays_the_start)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint64_t began = clock_mono_ns();
    struct harness_process *w;
    char to[64];

    cr_assert_eq(bind(silent, (struct sockaddr *)&at, size), 0);
    cr_assert_eq(listen(silent, 8), 0); /* the kernel answers; no accept */
    cr_assert_eq(getsockname(silent, (struct sockaddr *)&at, &size), 0);
    snprintf(to, sizeof to, "amqp://guest@127.0.0.1:%u/%%2F/q",
             (unsigned)ntohs(at.sin_port));
    w = harness_worker(harness_queue(4, 128), "--forward", to);
    harness_wait_log(w, "event=started", 20000);
    cr_assert_lt(clock_mono_ns() - began, 12 * NS_PER_S);
    cr_assert_not_null(
        strstr(harness_stderr(w, NULL), "event=destination_unusable"));
    cr_assert_eq(harness_stop(w, 20000), 0);
    close(silent);
}

Test(amqp_fake, errors_of_a_move_begin_with_the_name_of_mqctl)
{
    struct harness_result r =
        harness_run("mqctl", "move", "--state-dir", harness_state_dir(),
                    harness_queue(4, 128), "amqp://guest@127.0.0.1:1/%2F/q");

    cr_assert_eq(r.status, 69, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "mqctl: cannot connect to"), "%s", r.err);
    cr_assert_null(strstr(r.err, "mqsend"), "%s", r.err);
}

Test(amqp_fake, a_forwarding_worker_that_starts_again_has_its_password)
{
    const char *from = harness_queue(4, 128);
    const char *store =
        harness_path("%s%s/store.db", harness_state_dir(), from);
    struct harness_process *w;

    setenv("AMQP_PASSWORD", "secret", 1);
    w = harness_worker(from, "--forward", "amqp://u@127.0.0.1:1/%2F/q");
    harness_wait_log(w, "event=started", 20000);
    cr_assert_eq(unlink(store), 0, "%s", store);
    harness_wait_log(w, "event=stopped", 20000);
    cr_assert_eq(harness_stop(w, 20000), 0, "%s", harness_stderr(w, NULL));
}

Test(amqp_fake, without_its_library_no_program_begins)
{
    const char *const programs[][8] = {
        {"mqsend", "amqp://u@127.0.0.1:1/%2F/q", "x"},
        {"mqworker", "--state-dir", harness_state_dir(), "--exit-when-idle",
         "--forward", "amqp://u@127.0.0.1:1/%2F/q", harness_queue(4, 128)}};
    char path[PATH_MAX];

    snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s", harness_dir());
    harness_write("librabbitmq.so.4", "", 0);
    setenv("AMQP_PASSWORD", "secret", 1);
    for (size_t i = 0; i < 2; i++) {
        struct harness_result r = harness_run_spec(&(struct harness_spec){
            .argv = programs[i], .env = HARNESS_LIST(path)});

        cr_assert_eq(r.status, 78, "%s: %d: %s", programs[i][0], r.status,
                     r.err);
        cr_assert_not_null(strstr(r.err, "a broker needs librabbitmq: "), "%s",
                           r.err);
    }
}
