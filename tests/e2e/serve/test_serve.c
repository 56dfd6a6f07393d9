/* test_serve.c - mqctl serve: who may ask, what it answers, and what it
 * changes */
#include <inttypes.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "tests/e2e/serve/serve_fixture.h"

TestSuite(serve, .init = harness_init, .fini = harness_fini);

/* status_of - of a request as it is, with a %u for the port */
static int status_of(const struct web *w, const char *request)
{
    char text[1024];

    snprintf(text, sizeof text, request, w->port);
    return web_send(w, text)->status;
}

/* ---- who may ask ---- */

Test(serve, the_token_is_in_a_file_that_nobody_else_can_read)
{
    struct web w = web_start(NULL), again;
    struct stat st;
    char path[4096];

    snprintf(path, sizeof path, "%s/web.token", harness_state_dir());
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0600);
    web_stop(&w);
    again = web_start(NULL);
    cr_assert_str_eq(again.token, w.token, "a new start, a new token");
    web_stop(&again);
    cr_assert_eq(chmod(path, 0644), 0);
    cr_assert_eq(ctl("serve", NULL).status, 73);
}

Test(serve, another_name_is_refused_before_anything_else)
{
    static const char *const hosts[] = {
        "Host: evil.test:%u\r\n",
        "Host: evil.test\r\n",
        "Host: localhost:1\r\n",
        "Host: localhost:%u.evil.test\r\n",
        "Host: \r\n",
        "Host: 127.0.0.1:%u\r\nHost: evil.test\r\n",
    };
    struct web w = web_start("--allow-host", "queues.example.org");
    char text[1024];
    int status;

    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        snprintf(text, sizeof text,
                 "GET /healthz HTTP/1.1\r\n%sConnection: close\r\n\r\n",
                 hosts[i]);
        status = status_of(&w, text);
        cr_assert(status == 421 || status == 400, "%s: %d", hosts[i], status);
    }
    cr_assert_eq(status_of(&w, "GET /healthz HTTP/1.1\r\nHost: [::1]:%u\r\n"
                               "Connection: close\r\n\r\n"),
                 200);
    cr_assert_eq(status_of(&w, "GET /healthz HTTP/1.1\r\nHost: "
                               "Queues.example.org\r\nConnection: close\r\n"
                               "\r\n"),
                 200);
    web_stop(&w);
}

Test(serve, nothing_is_told_without_the_token)
{
    static const char *const paths[] = {
        "/",        "/dead",          "/q/x",
        "/metrics", "/api/v1/queues", "/api/v1/events",
        "/nothing", "/find?id=1",     "/api/v1/queues/x/letters/1/body",
    };
    struct web w = web_start(NULL), open;
    char text[256];

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        snprintf(text, sizeof text,
                 "GET %s HTTP/1.1\r\nHost: localhost:%%u\r\n"
                 "Connection: close\r\n\r\n",
                 paths[i]);
        cr_assert_eq(status_of(&w, text), 401, "%s", paths[i]);
    }
    web_stop(&w);
    open = web_start("--metrics-open");
    cr_assert_eq(status_of(&open, "GET /metrics HTTP/1.1\r\nHost: localhost:%u"
                                  "\r\nConnection: close\r\n\r\n"),
                 200);
    web_stop(&open);
}

/* What signing in gives a browser. */
struct session {
    char cookie[160]; /* NAME=VALUE */
    char key[65];
};

static struct session sign_in(const struct web *w)
{
    struct session s = {0};
    struct web asks = *w;
    char body[128], name[32];
    struct web_answer *r;
    const char *at;

    snprintf(body, sizeof body, "{\"token\":\"%s\"}", w->token);
    memset(asks.token, '0', 64);
    r = web_ask(&asks, "POST", "/api/v1/session", WEB_WRITE, body);
    cr_assert_eq(r->status, 204, "%s", r->text);
    cr_assert(strstr(r->text, "HttpOnly") && strstr(r->text, "SameSite=Lax"),
              "%s", r->text);
    snprintf(name, sizeof name, "mqctl-%u=", w->port);
    at = strstr(r->text, name);
    cr_assert_not_null(at, "%s", r->text);
    snprintf(s.cookie, sizeof s.cookie, "%.*s", (int)strcspn(at, ";"), at);
    at = strstr(r->text, "X-MQ-Key: ");
    cr_assert_not_null(at, "%s", r->text);
    snprintf(s.key, sizeof s.key, "%.64s", at + strlen("X-MQ-Key: "));
    return s;
}

/* Ask without the token; `more`: lines of the header. */
static int status_with(const struct web *w, const char *method,
                       const char *path, const char *more)
{
    char text[2048];

    snprintf(text, sizeof text,
             "%s %s HTTP/1.1\r\nHost: localhost:%u\r\nConnection: close\r\n"
             "%s\r\n",
             method, path, w->port, more);
    return web_send(w, text)->status;
}

Test(serve, a_cookie_stands_for_the_token_and_cannot_be_made)
{
    struct web w = web_start(NULL);
    struct session s = sign_in(&w);
    char more[256], *at;

    snprintf(more, sizeof more, "Cookie: %s\r\n", s.cookie);
    cr_assert_eq(status_with(&w, "GET", "/api/v1/queues", more), 200);
    at = strchr(more, '=') + 1;
    *at = *at == 'f' ? 'e' : 'f'; /* a later end, with the old sum */
    cr_assert_eq(status_with(&w, "GET", "/api/v1/queues", more), 401);
    cr_assert_eq(
        web_ask(&w, "POST", "/api/v1/session", WEB_WRITE, "{\"token\":\"no\"}")
            ->status,
        401);
    web_stop(&w);
}

/* A browser sends the cookie to servers of others, too: to every port of the
 * host. They must not be able to change anything with it. */
Test(serve, a_cookie_alone_changes_nothing)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *worker = ctl_worker(q, "--", "true");
    struct web w = web_start("--allow-write"), second = web_start(NULL);
    struct session s = sign_in(&w), other = sign_in(&second);
    char path[256], more[1024];

    snprintf(path, sizeof path, "/api/v1/queues/%s/pause", q + 1);
    snprintf(more, sizeof more, "Cookie: %s; %s\r\nX-MQ-Request: 1\r\n",
             other.cookie, s.cookie);
    cr_assert_eq(status_with(&w, "GET", "/api/v1/queues", more), 200,
                 "the cookie of another port replaced it");
    cr_assert_eq(status_with(&w, "POST", path, more), 403);
    snprintf(more, sizeof more,
             "Cookie: %s\r\nX-MQ-Request: 1\r\nX-MQ-Key: %064d\r\n", s.cookie,
             0);
    cr_assert_eq(status_with(&w, "POST", path, more), 403);
    cr_assert_null(strstr(web_get(&w, "/"), s.key), "a page tells the key");
    cr_assert(!ctl_is(q, "state", "paused"));
    snprintf(more, sizeof more,
             "Cookie: %s\r\nX-MQ-Request: 1\r\nX-MQ-Key: %s\r\n", s.cookie,
             s.key);
    cr_assert_eq(status_with(&w, "POST", path, more), 200);
    cr_assert(ctl_is(q, "state", "paused"));
    web_stop(&second);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve, after_signing_in_a_person_is_where_the_link_led)
{
    static const struct {
        const char *next, *where;
    } ways[] = {
        {"%2Fq%2Fmail%2Fdead%3Ferror%3Da%252Ab", "/q/mail/dead?error=a%2Ab"},
        {"%2F%2Fevil.test%2F", "/"},
        {"https%3A%2F%2Fevil.test%2F", "/"},
        {"%2F%5Cevil.test", "/"},
        {"%2Fx%0D%0ASet-Cookie%3A%20a%3Db", "/"},
        {"", "/"},
    };
    struct web w = web_start(NULL);
    char body[512], line[256];
    struct web_answer *r;

    r = web_send(&w, (snprintf(body, sizeof body,
                               "GET /q/mail/dead?error=a%%2Ab HTTP/1.1\r\nHost:"
                               " localhost:%u\r\nConnection: close\r\n\r\n",
                               w.port),
                      body));
    cr_assert_eq(r->status, 401);
    cr_assert(strstr(r->body, "value=\"/q/mail/dead?error=a%2Ab\""), "%s",
              r->text);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        snprintf(body, sizeof body, "token=%s&next=%s", w.token, ways[i].next);
        r = web_ask(&w, "POST", "/session",
                    "Content-Type: application/x-www-form-urlencoded\r\n",
                    body);
        snprintf(line, sizeof line, "Location: %s\r\n", ways[i].where);
        cr_expect(r->status == 303 && strstr(r->text, line), "%s: %s",
                  ways[i].next, r->text);
    }
    web_stop(&w);
}

Test(serve, a_network_is_not_listened_on_without_tls)
{
    struct harness_result r = ctl("serve", "--listen", "0.0.0.0:0");

    cr_assert_eq(r.status, 64, "%s", r.err);
    cr_assert(strstr(r.err, "--tls-cert"), "%s", r.err);
}

Test(serve, what_keeps_it_from_starting_is_said)
{
    struct web w = web_start(NULL);
    char listen[64], path[4096];
    struct harness_result r;

    snprintf(listen, sizeof listen, "127.0.0.1:%u", w.port);
    r = ctl("serve", "--listen", listen);
    cr_assert_eq(r.status, 75, "%s", r.err);
    cr_assert(strstr(r.err, "in use"), "%s", r.err);
    web_stop(&w);
    r = ctl("serve", "--tls-cert", "/none", "--tls-key", "/none");
    cr_assert_eq(r.status, 66, "%s", r.err);
    snprintf(path, sizeof path, "%s/web.token", harness_state_dir());
    harness_write(path, "short\n", 6);
    cr_assert_eq(chmod(path, 0600), 0);
    cr_assert_eq(ctl("serve", NULL).status, 73);
    cr_assert_eq(mkfifo(harness_path("fifo"), 0600), 0);
    r = ctl("serve", "--token-file", harness_path("fifo"));
    cr_assert(r.status == 73 && strstr(r.err, "not a regular file"), "%s",
              r.err);
}

/* A program is told in JSON and by headers, a person by a page. */
Test(serve, a_refusal_is_a_page_for_a_person_and_says_what_would_do)
{
    static const char browser[] = "Accept: text/html,*/*;q=0.8\r\n";
    static const struct {
        const char *method, *path, *accept;
        int status;
        const char *says;
    } ways[] = {
        {"GET", "/nothing", browser, 404, "text/html"},
        {"GET", "/nothing", "", 404, "problem+json"},
        {"GET", "/static/head.html", "", 404, "problem+json"},
        {"GET", "/api/v1/nothing", browser, 404, "problem+json"},
        {"POST", "/", browser, 405, "Allow: GET, HEAD\r\n"},
        {"GET", "/session", browser, 405, "text/html"},
        {"DELETE", "/api/v1/queues", "", 405, "Allow: GET, HEAD\r\n"},
        {"GET", "/api/v1/queues/x/settings", "", 405, "Allow: PATCH, POST\r\n"},
        {"POST", "/api/v1/jobs/1", "", 405, "Allow: GET, HEAD, DELETE\r\n"},
    };
    struct web w = web_start(NULL);
    char text[512];
    struct web_answer *r;

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        r = web_ask(&w, ways[i].method, ways[i].path, ways[i].accept, "");
        cr_expect(r->status == ways[i].status && strstr(r->text, ways[i].says),
                  "%s %s: %s", ways[i].method, ways[i].path, r->text);
    }
    for (size_t i = 0; i < 2; i++) {
        snprintf(text, sizeof text,
                 "GET /%s HTTP/1.1\r\nHost: localhost:%u\r\n%s"
                 "Connection: close\r\n\r\n",
                 i ? "api/v1/queues" : "nothing", w.port, browser);
        r = web_send(&w, text);
        cr_expect(r->status == 401 &&
                      strstr(r->text, "WWW-Authenticate: Bearer") &&
                      strstr(r->text, i ? "problem+json" : "id=\"login\""),
                  "%s", r->text);
    }
    web_stop(&w);
}

Test(serve, a_unix_socket_serves_too)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct harness_process *p;
    char text[256], listen[256];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(a.sun_path, sizeof a.sun_path, "%s", harness_path("web.sock"));
    snprintf(listen, sizeof listen, "unix:%s", a.sun_path);
    p = harness_program("mqctl", "serve", "--state-dir", harness_state_dir(),
                        "--listen", listen);
    harness_until(strchr(harness_stdout(p, NULL), '\n') || !harness_running(p),
                  SOON_MS);
    cr_assert_eq(connect(fd, (struct sockaddr *)&a, sizeof a), 0, "%s",
                 harness_stderr(p, NULL));
    snprintf(text, sizeof text,
             "GET /healthz HTTP/1.1\r\nHost: localhost:8480"
             "\r\nConnection: close\r\n\r\n");
    (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
    cr_assert_eq(web_read(fd, NULL)->status, 200);
    close(fd);
    cr_assert_eq(harness_stop(p, SOON_MS), 0);
}

/* ---- what it answers ---- */

Test(serve, a_queue_is_told_as_mqctl_status_tells_it)
{
    struct harness_process *worker;
    const char *q = dead_letters(2, &worker);
    struct web w = web_start(NULL);
    json_t *mine = ctl_json(web_get(&w, "/api/v1/queues/%s", q + 1)),
           *other = ctl_status(q), *value;
    const char *name;

    json_object_foreach(other, name, value)
    {
        cr_assert(json_equal(value, json_object_get(mine, name)), "%s", name);
    }
    json_decref(mine);
    json_decref(other);
    mine = ctl_json(web_get(&w, "/api/v1/queues"));
    value = json_object_get(mine, "queues");
    cr_assert_eq(json_array_size(value), 1);
    json_decref(mine);
    cr_assert_eq(web_ask(&w, "GET", "/api/v1/queues/none", "", "")->status,
                 404);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve, letters_come_page_by_page_and_by_error)
{
    struct harness_process *worker;
    const char *q = dead_letters(5, &worker);
    struct web w = web_start(NULL);
    char next[64] = "", last[32] = "";
    size_t seen = 0;
    json_t *o, *list, *one;

    do {
        o = ctl_json(web_get(&w, "/api/v1/queues/%s/letters?limit=2&after=%s",
                             q + 1, next));
        list = json_object_get(o, "letters");
        size_t i;
        json_array_foreach(list, i, one)
        {
            const char *row = json_string_value(json_object_get(one, "row"));

            cr_assert_str_neq(row, last, "a letter comes twice");
            snprintf(last, sizeof last, "%s", row);
            seen++;
        }
        one = json_object_get(o, "next");
        snprintf(next, sizeof next, "%s",
                 json_is_string(one) ? json_string_value(one) : "");
        json_decref(o);
    } while (*next);
    cr_assert_eq(seen, 5);
    o = ctl_json(web_get(&w, "/api/v1/queues/%s/letters/by-error", q + 1));
    list = json_object_get(o, "groups");
    cr_assert_eq(json_array_size(list), 1);
    cr_assert_eq(
        json_integer_value(json_object_get(json_array_get(list, 0), "count")),
        5);
    json_decref(o);
    cr_assert_eq(
        web_ask(&w, "GET", "/api/v1/queues/none/letters", "", "")->status, 404);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* Each page looks at 20,000, and says so. */
Test(serve, of_very_many_letters_a_page_looks_at_the_newest)
{
    struct harness_process *worker;
    const char *q = dead_letters(1, &worker), *since;
    struct web w = web_start("--allow-write");
    char body[256], path[256];
    json_t *o;

    snprintf(path, sizeof path, "/api/v1/queues/%s/letters/discard", q + 1);
    letters_many(q, 20100);
    o = ctl_json(web_get(&w, "/api/v1/queues/%s/letters/by-error", q + 1));
    cr_assert_eq(json_integer_value(json_object_get(o, "total")), 20000);
    since = json_string_value(json_object_get(o, "since"));
    cr_assert_not_null(since);
    cr_assert(strstr(web_get(&w, "/q/%s/dead", q + 1), since));
    /* The same set, when it is to be replayed: but for one it would be done. */
    snprintf(body, sizeof body,
             "{\"filter\":{\"since\":\"%s\"},\"up_to\":"
             "\"9000000000000000000.1\",\"expect_count\":19999}",
             since);
    struct web_answer *r = web_ask(&w, "POST", path, WEB_WRITE, body);
    cr_assert_eq(r->status, 409, "%s", r->text);
    cr_assert(strstr(r->body, "20000 letters match now"), "%s", r->body);
    json_decref(o);
    cr_assert(strstr(web_get(&w, "/dead"), "the newest 20000 of 20101"));
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve, a_hostile_letter_is_text_in_every_page)
{
    static const char hostile[] =
        "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
        "\xe2\x80\xae\xff\xfe\x01";
    const char *q = harness_queue(0, 0);
    struct harness_process *worker = ctl_worker(q, "--max-attempts", "1", "--",
                                                "sh", "-c", "cat >&2; exit 1");
    static const char *const pages[] = {"/", "/q/%s", "/q/%s/dead",
                                        "/q/%s/dead/1", "/dead"};
    struct web w;
    char path[256];

    harness_send(q, hostile, sizeof hostile, 0);
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    w = web_start(NULL);
    for (size_t i = 0; i < 5; i++) {
        snprintf(path, sizeof path, pages[i], q + 1);
        const char *text = web_get(&w, "%s", path);

        cr_assert(!strstr(text, "<script>alert") && !strstr(text, "<img"),
                  "%s: %s", path, text);
        cr_assert(!strstr(text, "\xe2\x80\xae") && !strstr(text, "\xff") &&
                      !strstr(text, "\x01"),
                  "%s", path);
    }
    snprintf(path, sizeof path, "/api/v1/queues/%s/letters/1/body", q + 1);
    struct web_answer *r = web_ask(&w, "GET", path, "", "");
    cr_assert_eq(memcmp(r->body, hostile, sizeof hostile), 0,
                 "the body as a file is the body");
    cr_assert(strstr(r->text, "attachment;") && strstr(r->text, "sandbox"),
              "%s", r->text);
    web_stop(&w);
    w = web_start("--no-bodies");
    cr_assert_eq(web_ask(&w, "GET", path, "", "")->status, 403);
    snprintf(path, sizeof path, "/api/v1/queues/%s/letters/1", q + 1);
    json_t *o = ctl_json(web_ask(&w, "GET", path, "", "")->body);
    cr_assert_null(json_object_get(o, "body"));
    json_decref(o);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve, a_stream_begins_with_all_and_tells_what_changes)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *worker = ctl_worker(q, "--", "true");
    struct web w = web_start(NULL);
    char text[512];
    int fd = web_connect(&w);

    snprintf(text, sizeof text,
             "GET /api/v1/events HTTP/1.1\r\nHost: localhost:%u\r\n"
             "Authorization: Bearer %s\r\n\r\n",
             w.port, w.token);
    (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
    cr_assert(strstr(web_read(fd, "\n\n")->text, "event: hello"));
    harness_send_text(q, "x");
    cr_assert(strstr(web_read(fd, "\"done\":1")->text, "event: queues"));
    web_stop(&w); /* a stream that is open keeps it from nothing */
    close(fd);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* A stream that is opened or closed brings no look ahead: numbers over some
 * milliseconds would be drawn as those of a second. */
Test(serve, no_rate_is_over_less_than_a_second)
{
    const char *q = harness_queue(0, 0), *text;
    struct harness_process *worker = ctl_worker(q, "--", "true");
    uint64_t began = harness_now_ms();
    struct web w = web_start(NULL);
    char request[512];
    int fd = web_connect(&w);

    snprintf(request, sizeof request,
             "GET /api/v1/events HTTP/1.1\r\nHost: localhost:%u\r\n"
             "Authorization: Bearer %s\r\n\r\n",
             w.port, w.token);
    (void)send(fd, request, strlen(request), MSG_NOSIGNAL);
    text = web_read(fd, "\"rate\":0")->text;
    cr_assert_geq(harness_now_ms() - began, 1000, "%s", text);
    cr_assert(strstr(text, "\"p50_ns\":null"), "no handler ended: %s", text);
    close(fd);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* Without its store a worker takes nothing: the page says so as badly as status
 * and top do. */
Test(serve, a_state_is_as_bad_in_the_page_as_in_the_tools)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *worker = ctl_worker(q, "--", "true");
    struct web w = web_start(NULL);
    char store[4096], away[4096];

    snprintf(store, sizeof store, "%s%s/store.db", harness_state_dir(), q);
    snprintf(away, sizeof away, "%s", harness_path("store.away"));
    /* The overview is made from the worker's files, which follow it. */
    harness_until(strstr(web_get(&w, "/"), "class=\"state fine\">running<"),
                  SOON_MS);
    cr_assert_eq(rename(store, away), 0);
    harness_until(ctl_is(q, "state", "store.db is gone"), SOON_MS);
    cr_assert(ctl_is(q, "severity", "bad"));
    harness_until(
        strstr(web_get(&w, "/"), "class=\"state bad\">store.db is gone<"),
        SOON_MS);
    cr_assert(strstr(web_get(&w, "/api/v1/queues"), "\"severity\":\"bad\""));
    cr_assert_eq(rename(away, store), 0);
    harness_until(ctl_is(q, "severity", "fine"), SOON_MS);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* A queue on which no worker has run is in no list, and no news. */
Test(serve, a_queue_without_a_worker_is_not_told_to_be_gone)
{
    const char *q = harness_queue(0, 0), *other = harness_queue(0, 0), *text;
    struct harness_process *worker = ctl_worker(q, "--", "true");
    struct web w = web_start(NULL);
    char request[512];
    int fd = web_connect(&w);

    snprintf(request, sizeof request,
             "GET /api/v1/events HTTP/1.1\r\nHost: localhost:%u\r\n"
             "Authorization: Bearer %s\r\n\r\n",
             w.port, w.token);
    (void)send(fd, request, strlen(request), MSG_NOSIGNAL);
    harness_send_text(q, "x");
    text = web_read(fd, "\"done\":1")->text;
    cr_assert(!strstr(text, "gone") && !strstr(text, other + 1), "%s", text);
    close(fd);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve, all_sparks_come_in_one_short_answer)
{
    const char *q = harness_queue(0, 0), *text;
    struct harness_process *worker = ctl_worker(q, "--", "true");
    struct web w = web_start(NULL);
    uint64_t end = harness_deadline(SOON_MS);
    json_t *o, *list;

    for (;;) {
        text = web_get(&w, "/api/v1/sparks");
        cr_assert_lt(strlen(text), 1024, "%s", text);
        o = ctl_json(text);
        list = json_object_get(o, "queues");
        if (json_array_size(list) == 1)
            break;
        json_decref(o);
        harness_nap(end, "the first look");
    }
    cr_assert_eq(
        json_array_size(json_object_get(json_array_get(list, 0), "done")), 60);
    json_decref(o);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve, a_message_is_found_by_an_id_with_blanks_around_it)
{
    struct harness_process *worker;
    const char *q = dead_letters(1, &worker), *id;
    struct web w = web_start(NULL);
    json_t *o = ctl_json(web_get(&w, "/api/v1/queues/%s/letters", q + 1));

    id = json_string_value(json_object_get(
        json_array_get(json_object_get(o, "letters"), 0), "message_id"));
    cr_assert(strstr(web_get(&w, "/api/v1/explain?id=%%20%s%%09%%0A", id),
                     "\"where\":\"dead\""));
    cr_assert(strstr(web_get(&w, "/find?id=+%s+", id), "The letter"));
    json_decref(o);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* ticks - of processor time that the server and its children have used */
static long ticks(const struct web *w)
{
    char script[256];

    snprintf(script, sizeof script,
             "for p in %d $(cat /proc/%d/task/%d/children); do"
             " cat /proc/$p/stat; done | awk '{ n += $14 + $15 }"
             " END { print n }'",
             (int)harness_pid(w->p), (int)harness_pid(w->p),
             (int)harness_pid(w->p));
    return strtol(harness_run("sh", "-c", script).out, NULL, 10);
}

Test(serve, while_nobody_listens_it_rests)
{
    struct web w = web_start(NULL);
    uint64_t began = harness_now_ms();
    long used = ticks(&w), passed;

    while (harness_now_ms() < began + 2000)
        (void)poll(NULL, 0, 100);
    used = (ticks(&w) - used) * 1000 / sysconf(_SC_CLK_TCK);
    passed = (long)(harness_now_ms() - began);
    cr_assert_lt(used, passed / 10, "%ld ms of %ld: it looks on and on", used,
                 passed);
    web_stop(&w);
}

Test(serve, a_worker_that_does_not_answer_holds_up_no_overview)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *worker = ctl_worker(q, "--", "true");
    struct web w = web_start(NULL);
    uint64_t took = UINT64_MAX;

    harness_signal(worker, SIGSTOP);
    for (int i = 0; i < 3 && took >= 2500; i++) { /* on a busy machine */
        uint64_t began = harness_now_ms();

        (void)web_get(&w, "/api/v1/queues");
        took = harness_now_ms() - began;
    }
    cr_assert_lt(took, 2500, "it waited for the worker");
    harness_signal(worker, SIGCONT);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve, metrics_are_of_every_state_directory)
{
    const char *q = harness_queue(0, 0), *other = harness_queue(0, 0), *text;
    struct harness_process *worker = ctl_worker(q, "--", "true"), *second;
    struct web w;
    char dir[4096], label[256];

    snprintf(dir, sizeof dir, "%s", harness_path("second"));
    cr_assert_eq(mkdir(dir, 0700), 0);
    second = ctl_ready(
        harness_program("mqworker", "--state-dir", dir, other, "--", "true"));
    w = web_start("--state-dir", dir);
    text = web_get(&w, "/metrics");
    snprintf(label, sizeof label, "{queue=\"%s\",engine=\"mq\"}", q);
    cr_assert(strstr(text, label), "%s", text);
    snprintf(label, sizeof label, "{queue=\"%s\",engine=\"mq\"}", other);
    cr_assert(strstr(text, label), "%s", text);
    web_stop(&w);
    cr_assert_eq(harness_stop(second, SOON_MS), 0);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}
