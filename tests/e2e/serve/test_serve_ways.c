/* test_serve_ways.c - mqctl serve is reached by TLS, by a socket that is handed
 * over, and by a proxy */
#include "tests/e2e/serve/serve_fixture.h"

TestSuite(serve_ways, .init = harness_init, .fini = harness_fini);

/* Wait for the server's line with its address; return its output. */
static const char *ready(struct harness_process *p)
{
    harness_until(strchr(harness_stdout(p, NULL), '\n') || !harness_running(p),
                  SOON_MS);
    cr_assert(harness_running(p), "%s", harness_stderr(p, NULL));
    return harness_stdout(p, NULL);
}

/* Make a certificate for localhost. Skips the test without openssl. */
static void certificate_make(void)
{
    struct harness_result r;

    if (!harness_has("openssl"))
        cr_skip_test("no openssl here");
    r = harness_run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-keyout", "key.pem", "-out",
                    "cert.pem");
    cr_assert_eq(r.status, 0, "%s", r.err);
}

Test(serve_ways, with_a_certificate_it_speaks_tls_and_its_cookie_is_secure)
{
    struct harness_process *p;
    char token[65], command[1024];
    struct harness_result r;
    unsigned port;

    certificate_make();
    p = harness_program("mqctl", "serve", "--state-dir", harness_state_dir(),
                        "--listen", "0.0.0.0:0", "--tls-cert", "cert.pem",
                        "--tls-key", "key.pem");
    cr_assert_eq(
        sscanf(ready(p), "https://0.0.0.0:%u/#t=%64[0-9a-f]", &port, token), 2,
        "%s", harness_stdout(p, NULL));
    /* With -quiet, the end of stdin does not end openssl; the server closes the
     * connection. The name is not looked up: /etc/hosts may lack it. */
    snprintf(command, sizeof command,
             "printf 'POST /api/v1/session HTTP/1.1\\r\\n"
             "Host: localhost:%u\\r\\nConnection: close\\r\\n"
             "Content-Type: application/json\\r\\nX-MQ-Request: 1\\r\\n"
             "Content-Length: 76\\r\\n\\r\\n{\"token\":\"%s\"}' | "
             "openssl s_client -quiet -verify_return_error -CAfile cert.pem "
             "-verify_hostname localhost -connect 127.0.0.1:%u 2>/dev/null",
             port, token, port);
    r = harness_run("sh", "-c", command);
    cr_assert(strstr(r.out, "HTTP/1.1 204") && strstr(r.out, "__Host-mqctl-") &&
                  strstr(r.out, "; Secure"),
              "%s", r.out);
    cr_assert_eq(harness_stop(p, SOON_MS), 0);
}

Test(serve_ways, a_socket_that_is_handed_over_is_served)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t size = sizeof a;
    struct harness_process *p;
    char command[8192];
    struct web w;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    cr_assert_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    cr_assert_eq(listen(fd, 16), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&a, &size), 0);
    /* As with systemd, the server itself gets the socket, as descriptor 3. */
    snprintf(command, sizeof command,
             "exec 3<&%d; LISTEN_PID=$$ LISTEN_FDS=1 exec %s serve "
             "--state-dir %s",
             fd, harness_bin("mqctl"), harness_state_dir());
    p = harness_program("sh", "-c", command);
    w = (struct web){.p = p, .port = ntohs(a.sin_port)};
    cr_assert(strstr(ready(p), "http://127.0.0.1:"), "%s",
              harness_stdout(p, NULL));
    close(fd);
    cr_assert(strstr(web_get(&w, "/healthz"), "ok"));
    web_stop(&w);
}

Test(serve_ways, behind_a_proxy_the_user_goes_to_the_log)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *worker = ctl_worker(q, "--", "true");
    struct web w = web_start("--allow-write", "--behind-proxy");
    struct web plain = web_start("--allow-write");
    char path[256];

    snprintf(path, sizeof path, "/api/v1/queues/%s/pause", q + 1);
    cr_assert_eq(
        web_ask(&w, "POST", path, WEB_WRITE "X-Forwarded-User: ada\r\n", "{}")
            ->status,
        200);
    cr_assert_eq(web_ask(&plain, "POST", path,
                         WEB_WRITE "X-Forwarded-User: eve\r\n", "{}")
                     ->status,
                 200);
    harness_wait_log(w.p, "user=ada", SOON_MS);
    cr_assert(!strstr(harness_stderr(plain.p, NULL), "user=eve"),
              "the log names a user without --behind-proxy");
    web_stop(&plain);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve_ways, behind_a_proxy_the_cookie_is_secure)
{
    struct web w = web_start("--behind-proxy", "--allow-host", "q.example.org");
    struct web_answer *r;
    char text[512];

    snprintf(text, sizeof text,
             "POST /api/v1/session HTTP/1.1\r\nHost: q.example.org\r\n"
             "Connection: close\r\nContent-Length: 76\r\n\r\n"
             "{\"token\":\"%s\"}",
             w.token);
    r = web_send(&w, text);
    cr_assert(r->status == 204 && strstr(r->text, "__Host-mqctl=") &&
                  strstr(r->text, "; Secure"),
              "%s", r->text);
    web_stop(&w);
}
