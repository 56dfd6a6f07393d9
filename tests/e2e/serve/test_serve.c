/* test_serve.c - mqctl serve: who may ask, what it answers, and what it
 * changes */
#include <inttypes.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "tests/e2e/serve/serve_fixture.h"

TestSuite(serve, .init = harness_init, .fini = harness_fini);

/* Send a request as it is, with the port for its %u; return the status. */
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
    cr_assert_str_eq(again.token, w.token, "a second start made another token");
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
    cr_assert_not_null(strstr(web_send(&w, "GET /healthz HTTP/1.1\r\nHost: "
                                           "evil.test\r\nConnection: close\r\n"
                                           "\r\n")
                                  ->text,
                              "Host header \\\"evil.test\\\" does not name"));
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
        "/",
        "/dead",
        "/queues/x",
        "/metrics",
        "/api/v1/queues",
        "/api/v1/events",
        "/nothing",
        "/find?id=1",
        "/api/v1/queues/x/letters/1/body",
        "/groups",
        "/api/v1/overview",
        "/api/v1/about",
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
    *at = *at == 'f' ? 'e' : 'f'; /* a later expiry, with the old checksum */
    cr_assert_eq(status_with(&w, "GET", "/api/v1/queues", more), 401);
    cr_assert_eq(
        web_ask(&w, "POST", "/api/v1/session", WEB_WRITE, "{\"token\":\"no\"}")
            ->status,
        401);
    web_stop(&w);
}

/* A browser sends the cookie to every port of the host, so also to servers of
 * other people. With it alone they must not be able to change anything. */
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
    cr_assert_null(strstr(web_get(&w, "/"), s.key), "the key is in the page");
    cr_assert_null(strstr(web_get(&w, "/api/v1/overview"), s.key));
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

/* The page itself signs people in. Since each address has the same page, a
 * person then sees what the link was for. */
Test(serve, every_address_of_a_person_answers_with_the_page)
{
    static const char *const paths[] = {
        "/",
        "/dead?error=a%2Ab",
        "/groups",
        "/find?id=1",
        "/queues/mail",
        "/queues/mail/dead?pattern=x&any=thing",
        "/queues/mail/messages",
        "/queues/mail/groups",
        "/queues/mail/settings",
        "/queues/mail/dead/7",
        "/queues/mail/messages/01M82WH2675BH7W7CEF6000000",
    };
    struct web w = web_start(NULL), without = w;
    char page[8 << 10], head[8 << 10];
    struct web_answer *r;

    memset(without.token, '0', 64);
    snprintf(page, sizeof page, "%s", web_get(&w, "/"));
    cr_assert(strstr(page, "<noscript>") && strstr(page, "mqctl"), "%s", page);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        cr_expect_str_eq(web_get(&w, "%s", paths[i]), page, "%s", paths[i]);
        snprintf(head, sizeof head,
                 "GET %s HTTP/1.1\r\nHost: localhost:%u\r\nConnection: close"
                 "\r\nAccept: text/html\r\n\r\n",
                 paths[i], w.port);
        r = web_send(&w, head);
        cr_expect(r->status == 401 && strcmp(r->body, page) == 0, "%s: %s",
                  paths[i], r->text);
    }
    cr_expect_eq(web_ask(&w, "GET", "/queues/mail/no-such-tab", "", "")->status,
                 404);
    web_stop(&w);
}

Test(serve, signing_out_takes_the_cookie_away)
{
    struct web w = web_start(NULL);
    struct web_answer *r =
        web_ask(&w, "DELETE", "/api/v1/session", WEB_WRITE, "");

    cr_assert(r->status == 204 && strstr(r->text, "=; Path=/; Max-Age=0;"),
              "%s", r->text);
    r = web_ask(&w, "DELETE", "/api/v1/session",
                "Sec-Fetch-Site: cross-site\r\n", "");
    cr_assert_eq(r->status, 403, "another site signs people out: %s", r->text);
    web_stop(&w);
}

/* A client that has a file or an answer already gets 304; files are
 * compressed. */
Test(serve, what_is_there_already_is_not_sent_again)
{
    static const char *const paths[] = {"/", "/static/app.js", "/api/v1/queues",
                                        "/api/v1/about"};
    struct web w = web_start(NULL);
    char tag[128], line[256];
    struct web_answer *r;
    const char *at;

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        r = web_ask(&w, "GET", paths[i], "Accept-Encoding: gzip\r\n", "");
        at = strstr(r->text, "ETag: ");
        cr_assert(r->status == 200 && at, "%s: %s", paths[i], r->text);
        cr_assert_eq(i < 2, strstr(r->text, "Content-Encoding: gzip") != NULL,
                     "%s: %s", paths[i], r->text);
        snprintf(tag, sizeof tag, "%.*s", (int)strcspn(at + 6, "\r"), at + 6);
        snprintf(line, sizeof line,
                 "Accept-Encoding: gzip\r\nIf-None-Match: %s\r\n", tag);
        r = web_ask(&w, "GET", paths[i], line, "");
        cr_expect(r->status == 304 && !*r->body, "%s: %s", paths[i], r->text);
        r = web_ask(&w, "GET", paths[i], "If-None-Match: \"other\"\r\n", "");
        cr_expect(r->status == 200 && *r->body, "%s: %s", paths[i], r->text);
    }
    web_stop(&w);
}

/* With files below 30,000 bytes, a page of fifty queues needs 60,000 in all.
 * Comments in the files are not sent. */
Test(serve, the_files_of_the_first_page_are_small)
{
    struct web w = web_start(NULL);
    char *page = strdup(web_get(&w, "/")), path[128];
    const char *length;
    struct web_answer *r;
    long sum = 0;

    for (char *at = page; (at = strstr(at, "\"/static/")) != NULL; at++) {
        snprintf(path, sizeof path, "%.*s", (int)strcspn(at + 1, "\""), at + 1);
        cr_expect_null(strstr(web_get(&w, "%s", path), "\n//"), "%s", path);
        r = web_ask(&w, "GET", path, "Accept-Encoding: gzip\r\n", "");
        length = strstr(r->text, "Content-Length: ");
        cr_assert(r->status == 200 && length, "%s: %s", path, r->text);
        sum += strtol(length + strlen("Content-Length: "), NULL, 10);
    }
    cr_assert(sum > 10000 && sum < 30000, "%ld", sum);
    free(page);
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
    cr_assert_null(strstr(r.err, "web_history"), "%s", r.err);
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

/* Programs get an error as JSON, with headers; people get a page or a line. */
Test(serve, a_refusal_is_for_who_asked_and_says_what_would_do)
{
    static const char browser[] = "Accept: text/html,*/*;q=0.8\r\n";
    static const struct {
        const char *method, *path, *accept;
        int status;
        const char *says;
    } ways[] = {
        {"GET", "/nothing", browser, 404, "text/html"},
        {"GET", "/nothing", "", 404, "problem+json"},
        {"GET", "/static/index.html", "", 404, "problem+json"},
        {"GET", "/static/settings.tsv", "", 404, "problem+json"},
        {"GET", "/api/v1/nothing", browser, 404, "problem+json"},
        {"POST", "/", browser, 405, "Allow: GET, HEAD\r\n"},
        {"POST", "/dead", browser, 405, "Method Not Allowed: "},
        {"POST", "/dead", "", 405, "does not allow POST; give GET, HEAD"},
        {"GET", "/q/x", browser, 404, "text/html"},
        {"DELETE", "/api/v1/queues", "", 405, "Allow: GET, HEAD\r\n"},
        {"PUT", "/api/v1/queues/x/settings", "", 501, "problem+json"},
        {"DELETE", "/api/v1/queues/x/settings", "", 405,
         "Allow: GET, HEAD, PATCH\r\n"},
        {"GET", "/api/v1/queues/x/dead", "", 404,
         "nothing at that path; below a queue there are history, settings, "
         "messages, groups, letters"},
        {"GET", "/api/v1/queues/x/ause", "", 404, "nothing at that path"},
        {"GET", "/api/v1/queues/x/drain", "", 405, "give POST"},
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
                      strstr(r->text, i ? "problem+json" : "text/html"),
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

            cr_assert_str_neq(row, last, "one letter came twice");
            snprintf(last, sizeof last, "%s", row);
            seen++;
        }
        one = json_object_get(o, "next");
        snprintf(next, sizeof next, "%s",
                 json_is_string(one) ? json_string_value(one) : "");
        json_decref(o);
    } while (*next);
    cr_assert_eq(seen, 5);
    o = ctl_json(web_get(&w, "/api/v1/letters/groups?queue=%s", q + 1));
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

/* A page counts the newest 20,000 letters, and says since when they died. */
Test(serve, of_very_many_letters_a_page_looks_at_the_newest)
{
    struct harness_process *worker;
    const char *q = dead_letters(1, &worker), *since;
    struct web w = web_start("--allow-write");
    char body[256], path[256];
    json_t *o, *one, *list;

    snprintf(path, sizeof path, "/api/v1/queues/%s/letters/discard", q + 1);
    letters_many(q, 20100);
    o = ctl_json(web_get(&w, "/api/v1/letters/groups?queue=%s", q + 1));
    cr_assert_eq(json_integer_value(json_object_get(o, "total")), 20000);
    one = json_array_get(json_object_get(o, "cut"), 0);
    cr_assert_eq(json_integer_value(json_object_get(one, "looked_at")), 20000);
    since = json_string_value(json_object_get(one, "since"));
    cr_assert_not_null(since);
    list = ctl_json(web_get(&w, "/api/v1/queues/%s/letters", q + 1));
    cr_assert_str_eq(json_string_value(json_object_get(list, "since")), since);
    json_decref(list);
    /* A change looks at the same 20,000: 409, because 19,999 are expected. */
    snprintf(body, sizeof body,
             "{\"filter\":{\"since\":\"%s\"},\"up_to\":"
             "\"9000000000000000000.1\",\"expect_count\":19999}",
             since);
    struct web_answer *r = web_ask(&w, "POST", path, WEB_WRITE, body);
    cr_assert_eq(r->status, 409, "%s", r->text);
    cr_assert(strstr(r->body, "20000 letters match now"), "%s", r->body);
    json_decref(o);
    o = ctl_json(web_get(&w, "/api/v1/letters/groups"));
    cr_assert_eq(json_array_size(json_object_get(o, "cut")), 1);
    json_decref(o);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* Return true if no text in a JSON value has a character that hides others. */
static bool is_shown(const json_t *v)
{
    const char *text = json_string_value(v), *name;
    json_t *one;
    size_t i;
    bool ok = !text || (!strstr(text, "\xe2\x80\xae") && !strchr(text, '\x01'));

    json_array_foreach(v, i, one)
    {
        ok &= is_shown(one);
    }
    json_object_foreach((json_t *)v, name, one)
    {
        ok &= is_shown(one);
    }
    return ok;
}

Test(serve, a_hostile_letter_is_text_in_every_answer)
{
    static const char hostile[] =
        "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
        "\xe2\x80\xae\xff\xfe\x01";
    const char *q = harness_queue(0, 0);
    struct harness_process *worker = ctl_worker(q, "--max-attempts", "1", "--",
                                                "sh", "-c", "cat >&2; exit 1");
    static const char *const answers[] = {
        "/api/v1/overview", "/api/v1/queues/%s", "/api/v1/queues/%s/letters",
        "/api/v1/queues/%s/letters/1", "/api/v1/letters/groups"};
    struct web_answer *r;
    struct web w;
    char path[256];

    harness_send(q, hostile, sizeof hostile, 0);
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    w = web_start(NULL);
    for (size_t i = 0; i < 5; i++) {
        snprintf(path, sizeof path, answers[i], q + 1);
        r = web_ask(&w, "GET", path, "Accept: text/html\r\n", "");
        cr_assert(r->status == 200 &&
                      strstr(r->text, "Content-Type: application/json\r\n") &&
                      strstr(r->text, "nosniff") && !strstr(r->body, "\xff"),
                  "%s: %s", path, r->text);
        json_t *o = ctl_json(r->body);
        cr_assert(is_shown(o), "%s: %s", path, r->body);
        json_decref(o);
    }
    snprintf(path, sizeof path, "/api/v1/queues/%s/letters/1/body", q + 1);
    r = web_ask(&w, "GET", path, "", "");
    cr_assert_eq(memcmp(r->body, hostile, sizeof hostile), 0,
                 "the file is not the body");
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
             "GET /api/v1/events?queue=%s HTTP/1.1\r\nHost: localhost:%u\r\n"
             "Authorization: Bearer %s\r\n\r\n",
             q + 1, w.port, w.token);
    (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
    cr_assert(strstr(web_read(fd, "\n\n")->text, "event: hello"));
    harness_send_text(q, "x");
    cr_assert(strstr(web_read(fd, "\"done\":1")->text, "event: queue\n"));
    harness_send_text(q, "y");
    cr_assert(strstr(web_read(fd, "event: rows\n")->text, "event: "));
    web_stop(&w); /* it stops although a stream is open */
    close(fd);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* Opening or closing a stream does not make the next look come early: a rate
 * over some milliseconds would be drawn as that of a second. */
Test(serve, no_rate_is_over_less_than_a_second)
{
    const char *q = harness_queue(0, 0), *text;
    struct harness_process *worker = ctl_worker(q, "--", "true");
    uint64_t began = harness_now_ms();
    struct web w = web_start(NULL);
    char request[512];
    int fd = web_connect(&w);

    snprintf(request, sizeof request,
             "GET /api/v1/events?queue=%s HTTP/1.1\r\nHost: localhost:%u\r\n"
             "Authorization: Bearer %s\r\n\r\n",
             q + 1, w.port, w.token);
    (void)send(fd, request, strlen(request), MSG_NOSIGNAL);
    text = web_read(fd, "{\"done_s\":0")->text; /* of the row */
    cr_assert_geq(harness_now_ms() - began, 1000, "%s", text);
    cr_assert(strstr(text, "\"p50_ns\":null"), "no handler ended: %s", text);
    cr_assert_null(strstr(text, "\"p50_ms\":0"), "%s", text);
    close(fd);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* A worker without its store takes no message. The page calls that as bad as
 * status and top do. */
Test(serve, a_state_is_as_bad_in_the_page_as_in_the_tools)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *worker = ctl_worker(q, "--", "true");
    struct web w = web_start(NULL);
    char store[4096], away[4096];

    snprintf(store, sizeof store, "%s%s/store.db", harness_state_dir(), q);
    snprintf(away, sizeof away, "%s", harness_path("store.away"));
    /* The overview reads the worker's files, which change a little later. */
    harness_until(strstr(web_get(&w, "/api/v1/queues"),
                         "\"state\":\"running\",\"severity\":\"fine\""),
                  SOON_MS);
    cr_assert_eq(rename(store, away), 0);
    harness_until(ctl_is(q, "state", "store.db is gone"), SOON_MS);
    cr_assert(ctl_is(q, "severity", "bad"));
    harness_until(strstr(web_get(&w, "/api/v1/queues"),
                         "\"state\":\"store.db is gone\",\"severity\":\"bad\""),
                  SOON_MS);
    harness_until(strstr(web_get(&w, "/api/v1/overview"),
                         "\"state\":\"store.db is gone\",\"severity\":\"bad\""),
                  2 * SOON_MS); /* the overview looks every ten seconds */
    cr_assert_eq(rename(away, store), 0);
    harness_until(ctl_is(q, "severity", "fine"), SOON_MS);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* A queue on which no worker has run is in no list, so no event reports it
 * gone. */
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
    text = web_read(fd, "event: rows\n")->text;
    cr_assert(strstr(text, "event: rows\n"), "%s", text);
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
        json_string_length(json_object_get(json_array_get(list, 0), "done")),
        60);
    json_decref(o);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* Count the values of the last hour's chart `curve` that equal `number`. */
static size_t values_of(const struct web *w, const char *q, const char *curve,
                        double number)
{
    json_t *o =
        ctl_json(web_get(w, "/api/v1/queues/%s/history?range=1h", q + 1));
    json_t *one;
    size_t i, n = 0;

    json_array_foreach(json_object_get(o, curve), i, one)
    {
        n += json_is_number(one) && json_number_value(one) == number;
    }
    json_decref(o);
    return n;
}

static uint64_t ten_seconds(void)
{
    return clock_wall_ns() / NS_PER_S / 10;
}

/* The next server shows in its charts what one measured before, even if that
 * was killed. A file that is no history is replaced. */
Test(serve, charts_of_a_day_outlive_the_server, .timeout = 120)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *worker =
        ctl_worker(q, "--backoff", "1h", "--", "false");
    struct web w;
    char path[4096];
    uint64_t then;

    for (int i = 0; i < 3; i++)
        harness_send_text(q, "x");
    harness_until(ctl_number(q, "waiting") == 3, SOON_MS);
    w = web_start(NULL);
    harness_until(values_of(&w, q, "waiting", 3) > 0, SOON_MS);
    then = ten_seconds();
    harness_signal(w.p, SIGKILL);
    (void)harness_wait(w.p, SOON_MS);
    cr_assert_eq(ctl("cancel", q, "--all").status, 0);
    harness_until(ctl_number(q, "waiting") == 0 && ten_seconds() > then + 1,
                  60000);
    w = web_start(NULL);
    harness_until(values_of(&w, q, "waiting", 0) > 0, SOON_MS);
    cr_assert_gt(values_of(&w, q, "waiting", 3), 0);
    web_stop(&w);
    snprintf(path, sizeof path, "%s/web.history", harness_state_dir());
    harness_write(path, "no history of ours", 18);
    w = web_start(NULL);
    harness_until(values_of(&w, q, "waiting", 0) > 0, SOON_MS);
    cr_assert_eq(values_of(&w, q, "waiting", 3), 0);
    cr_assert_null(strstr(harness_stderr(w.p, NULL), "web_history"));
    /* A second server of the same directory keeps its history in memory. */
    struct web second = web_start(NULL);
    cr_assert(strstr(harness_stderr(second.p, NULL),
                     "another mqctl serve is using it"));
    harness_until(values_of(&second, q, "waiting", 0) > 0, SOON_MS);
    web_stop(&second);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* One line stands for all queues. Its id names the check and stays the same
 * while the numbers change. */
Test(serve, what_several_queues_have_is_one_finding)
{
    struct harness_process *first, *second, *third;
    const char *q = dead_letters(2, &first), *other = dead_letters(1, &second);
    const char *paused = harness_queue(0, 0);
    struct web w = web_start(NULL);
    json_t *o, *one;
    size_t i, seen = 0;

    third = ctl_worker(paused, "--", "true");
    cr_assert_eq(ctl("pause", paused).status, 0);
    o = ctl_json(web_get(&w, "/api/v1/findings"));
    json_array_foreach(json_object_get(o, "findings"), i, one)
    {
        const char *text = json_string_value(json_object_get(one, "text"));
        const char *id = json_string_value(json_object_get(one, "id"));
        json_t *queues = json_object_get(one, "queues");

        if (strcmp(id, "dead letters") == 0) {
            cr_assert_str_eq(text, "3 dead letters in 2 queues");
            cr_assert_eq(json_array_size(queues), 2);
            cr_assert(json_is_null(json_object_get(one, "fix")));
            cr_assert(strstr(json_string_value(json_object_get(
                                 json_array_get(queues, 0), "fix")),
                             "mqdlq list --by error --state-dir /"));
            seen++;
        } else if (strcmp(id, "worker: paused") == 0) {
            cr_assert(strstr(text, paused), "%s", text);
            cr_assert(strstr(json_string_value(json_object_get(one, "fix")),
                             "mqctl resume --state-dir /"));
            seen++;
        }
    }
    cr_assert_eq(seen, 2, "%s", web_get(&w, "/api/v1/findings"));
    json_decref(o);
    o = ctl_json(web_get(&w, "/api/v1/findings?queue=%s", other + 1));
    cr_assert(
        strstr(json_string_value(json_object_get(
                   json_array_get(json_object_get(o, "findings"), 0), "text")),
               ": 1 dead letter"));
    json_decref(o);
    cr_assert(strstr(web_get(&w, "/api/v1/findings?queue=%s", q + 1),
                     "\"count\":2,\"text\":\"2 dead letters\""));
    web_stop(&w);
    cr_assert_eq(harness_stop(first, SOON_MS), 0);
    cr_assert_eq(harness_stop(second, SOON_MS), 0);
    cr_assert_eq(harness_stop(third, SOON_MS), 0);
}

/* Only a queue's own streams get everything about it. All streams get its row,
 * and in that only the values that changed. */
Test(serve, a_stream_of_a_queue_gets_it_whole_and_others_its_changes)
{
    const char *q = harness_queue(0, 0), *text, *rows;
    struct harness_process *worker = ctl_worker(q, "--", "true");
    struct web w = web_start(NULL);
    char request[512];
    int fd;

    harness_until(strstr(web_get(&w, "/api/v1/overview"), q), SOON_MS);
    fd = web_connect(&w);
    snprintf(request, sizeof request,
             "GET /api/v1/events HTTP/1.1\r\nHost: localhost:%u\r\n"
             "Authorization: Bearer %s\r\n\r\n",
             w.port, w.token);
    (void)send(fd, request, strlen(request), MSG_NOSIGNAL);
    (void)web_read(fd, "\n\n");
    cr_assert_eq(ctl("pause", q).status, 0);
    text = web_read(fd, "\"state\":\"paused\"")->text;
    rows = strstr(text, "event: rows\n");
    cr_assert(rows && strstr(rows, q), "%s", text);
    cr_assert_null(strstr(rows, "capacity"), "an unchanged value: %s", rows);
    cr_assert_null(strstr(text, "event: queue\n"), "%s", text);
    close(fd);
    harness_until(strstr(web_get(&w, "/api/v1/queues/%s/history", q + 1),
                         "\"what\":\"paused\""),
                  SOON_MS);
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
    cr_assert(strstr(web_get(&w, "/api/v1/explain?id=+%s+", id),
                     "\"where\":\"dead\""));
    json_decref(o);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* Return the processor time of the server and its children, in ticks. */
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
    cr_assert_lt(used, passed / 10, "%ld ms of %ld, though no page is open",
                 used, passed);
    web_stop(&w);
}

Test(serve, a_worker_that_does_not_answer_holds_up_no_overview)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *worker = ctl_worker(q, "--", "true");
    struct web w = web_start(NULL);
    uint64_t took = UINT64_MAX;

    harness_signal(worker, SIGSTOP);
    for (int i = 0; i < 3 && took >= 2500; i++) { /* again on a busy machine */
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
