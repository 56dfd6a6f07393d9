/* serve_fixture.h - mqctl serve, and requests to it by a bare socket
 *
 * WHAT   Starts the server on a free port, sends bytes, reads the answer.
 * WHO    tests/e2e/serve/test_serve*.c
 * OWNS   Nothing; see tests/harness/harness.h.
 * FAILS  By ending the test.
 */
#ifndef TESTS_SERVE_FIXTURE_H
#define TESTS_SERVE_FIXTURE_H

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/e2e/tools/mqctl_fixture.h"

struct web {
    struct harness_process *p;
    unsigned port;
    char token[65];
};

struct web_answer {
    int status;
    char text[256 << 10]; /* head and body */
    const char *body;
};

/* Start the server; wait for the line with its address and token. */
#define web_start(...)                                                        \
    web_ready(harness_program("mqctl", "serve", "--state-dir",                \
                              harness_state_dir(), "--listen", "127.0.0.1:0", \
                              __VA_ARGS__))

static inline struct web web_ready(struct harness_process *p)
{
    struct web w = {.p = p};

    harness_until(strchr(harness_stdout(p, NULL), '\n') || !harness_running(p),
                  SOON_MS);
    cr_assert_eq(sscanf(harness_stdout(p, NULL),
                        "http://127.0.0.1:%u/#t=%64[0-9a-f]", &w.port, w.token),
                 2, "%s%s", harness_stdout(p, NULL), harness_stderr(p, NULL));
    return w;
}

static inline int web_connect(const struct web *w)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)w->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    cr_assert_eq(connect(fd, (struct sockaddr *)&a, sizeof a), 0, "%s",
                 strerror(errno));
    return fd;
}

/* Read until the other side closes, or until `stop` has come. */
static inline struct web_answer *web_read(int fd, const char *stop)
{
    static struct web_answer r;
    uint64_t end = harness_deadline(SOON_MS);
    size_t used = 0;

    memset(&r, 0, sizeof r);
    while (used < sizeof r.text - 1 && !(stop && strstr(r.text, stop))) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t n = 0;

        if (poll(&p, 1, 20) > 0) {
            n = recv(fd, r.text + used, sizeof r.text - 1 - used, 0);
            if (n <= 0)
                break;
        } else {
            harness_nap(end, "an answer");
        }
        used += (size_t)n;
    }
    (void)sscanf(r.text, "HTTP/1.1 %d", &r.status);
    r.body = strstr(r.text, "\r\n\r\n");
    r.body = r.body ? r.body + 4 : "";
    return &r;
}

/* Send these bytes over a new connection; return the answer. */
static inline struct web_answer *web_send(const struct web *w, const char *text)
{
    int fd = web_connect(w);
    struct web_answer *r;

    (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
    r = web_read(fd, NULL);
    close(fd);
    return r;
}

/* Send a request with the token and the header lines `more`; return its
 * answer. */
static inline struct web_answer *web_ask(const struct web *w,
                                         const char *method, const char *path,
                                         const char *more, const char *body)
{
    static char text[16 << 10];

    snprintf(text, sizeof text,
             "%s %s HTTP/1.1\r\nHost: localhost:%u\r\nConnection: close\r\n"
             "Authorization: Bearer %s\r\n%sContent-Length: %zu\r\n\r\n%s",
             method, path, w->port, w->token, more, strlen(body), body);
    return web_send(w, text);
}

#define WEB_WRITE "X-MQ-Request: 1\r\nContent-Type: application/json\r\n"

/* GET a path, which must have status 200; return the body. */
static inline const char *web_get(const struct web *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static inline const char *web_get(const struct web *w, const char *fmt, ...)
{
    struct web_answer *r;
    char path[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(path, sizeof path, fmt, args);
    va_end(args);
    r = web_ask(w, "GET", path, "", "");
    cr_assert_eq(r->status, 200, "%s: %s", path, r->text);
    return r->body;
}

/* Make a queue with a worker and `n` dead letters. */
static inline const char *dead_letters(unsigned n,
                                       struct harness_process **worker)
{
    const char *q = harness_queue(0, 0);
    char text[32];

    *worker = ctl_worker(q, "--max-attempts", "1", "--", "sh", "-c",
                         "[ -e fixed ] || { echo no account >&2; exit 3; }");
    for (unsigned i = 0; i < n; i++) {
        snprintf(text, sizeof text, "order %u", i);
        harness_send_text(q, text);
    }
    harness_until(ctl_number(q, "dead") == n, SOON_MS);
    return q;
}

/* Import `n` more dead letters, a millisecond apart. The first has the error
 * "exit 9", all others "exit 1". */
static inline void letters_many(const char *q, unsigned n)
{
    char path[4096];
    FILE *out;

    snprintf(path, sizeof path, "%s/many", harness_state_dir());
    out = fopen(path, "we");
    cr_assert_not_null(out);
    for (unsigned i = 0; i < n; i++)
        fprintf(out,
                "{\"message_id\":\"01M82WH2675BH7W7CEF6%06u\",\"state\":"
                "\"dead\",\"died_at_ns\":%" PRIu64 ",\"reason\":"
                "\"exhausted\",\"error\":\"exit %d\",\"attempts\":1,"
                "\"crashes\":0,\"redelivered\":false,\"length_inferred\":"
                "false,\"priority\":0,\"group\":null,"
                "\"first_received_at_ns\":1,\"header\":\"\",\"body\":"
                "\"x\",\"stderr\":\"\",\"history\":[]}\n",
                i, (uint64_t)NS_PER_S + i * NS_PER_MS, i ? 1 : 9);
    cr_assert_eq(fclose(out), 0);
    cr_assert_eq(harness_run("mqdlq", "import", "--quiet", "--state-dir",
                             harness_state_dir(), q, path)
                     .status,
                 0);
}

/* Send SIGTERM; the server must exit with 0. */
static inline void web_stop(struct web *w)
{
    cr_assert_eq(harness_stop(w->p, SOON_MS), 0, "%s",
                 harness_stderr(w->p, NULL));
}

#endif
