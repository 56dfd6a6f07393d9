/* test_amqp_tls.c - which certificates of a broker are accepted */
#define AMQP_BROKER 1
#define AMQP_TLS
#include "tests/e2e/amqp/amqp_fixture.h"

TestSuite(amqp_tls, .init = amqp_init, .fini = amqp_fini);

/* Return the operand of the TLS port. The certificate is for localhost. */
static const char *operand(const char *scheme, const char *host)
{
    static char text[200];

    snprintf(text, sizeof text, "%s://guest@%s:%u/%%2F/%s", scheme, host,
             amqp_port(1) + 11, amqp_queue);
    return text;
}

static const char *authority(void)
{
    static char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/tls/ca.pem", getenv(AMQP_DIR));
    return path;
}

static void refused(const char *host, const char *ca, const char *words)
{
    struct harness_result r =
        harness_run("mqworker", "--state-dir", harness_state_dir(), "--tls-ca",
                    ca, operand("amqps", host), "--", "true");

    cr_assert_eq(r.status, 78, "%d: %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, words), "%s", r.err);
}

Test(amqp_tls, a_certificate_that_is_right_is_taken)
{
    struct harness_process *w =
        harness_worker(operand("amqps", "localhost"), "--tls-ca", authority(),
                       "--", harness_handler("record"));

    amqp_started(w);
    amqp_send("x");
    harness_until_lines("runs", 1, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(amqp_ready(amqp_queue), 0);
}

Test(amqp_tls, one_for_another_name_is_refused)
{
    refused("127.0.0.1", authority(), "is for another name");
}

Test(amqp_tls, one_that_somebody_else_signed_is_refused)
{
    const char *other = harness_path("other.pem");
    struct harness_result r =
        harness_run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes",
                    "-days", "2", "-subj", "/CN=other", "-keyout",
                    harness_path("other.key"), "-out", other);

    cr_assert_eq(r.status, 0, "%s", r.err);
    refused("localhost", other, "is not signed by one of");
}

Test(amqp_tls, an_authority_that_cannot_be_read_is_refused)
{
    refused("localhost", "/no/such/file", "has no certificates");
}

Test(amqp_tls, a_port_without_tls_is_refused)
{
    char text[200];
    struct harness_result r;

    snprintf(text, sizeof text, "amqps://guest@localhost:%u/%%2F/%s",
             amqp_port(1), amqp_queue);
    r = harness_run("mqworker", "--state-dir", harness_state_dir(), "--tls-ca",
                    authority(), text, "--", "true");
    cr_assert_eq(r.status, 69, "%d: %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, "TLS"), "%s", r.err);
}
