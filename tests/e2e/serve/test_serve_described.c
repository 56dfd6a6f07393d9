/* mqctl serve: what it answers is what docs/openapi.yaml says */
#include "tests/e2e/serve/serve_fixture.h"

TestSuite(serve_described, .init = harness_init, .fini = harness_fini);

/* Run tests/web/openapi.py on the description; `answers`: a file with answers,
 * or NULL. Without a module that it needs, skip. */
static void check(const char *answers)
{
    char script[4096], description[4096];
    struct harness_result r;

    cr_assert_not_null(realpath("tests/web/openapi.py", script));
    cr_assert_not_null(realpath("docs/openapi.yaml", description));
    r = harness_run("env", "PYTHONDONTWRITEBYTECODE=1", "python3", script,
                    description, answers);
    if (r.status == 77 || r.status == 127)
        cr_skip_test("%s", r.status == 77 ? r.out : "no python3 here");
    cr_assert_eq(r.status, 0, "%s", r.err);
}

Test(serve_described, the_description_is_valid_openapi)
{
    check(NULL);
}

struct exchange {
    const char *method, *path; /* {q}: the queue, {id}: a message that waits */
    const char *body;          /* "": a request without one */
    int status;
};

/* Do one exchange and append its answer to `out`; return the body. */
static const char *exchange_do(const struct web *w, const struct exchange *x,
                               const char *q, const char *id, FILE *out)
{
    struct web_answer *r;
    char path[256] = "", type[64] = "", *json;
    char body[256] = "";
    const char *head;
    json_t *o;

    for (const char *at = x->path; *at; at++) {
        const char *name = strncmp(at, "{q}", 3) == 0    ? q + 1
                           : strncmp(at, "{id}", 4) == 0 ? id
                                                         : NULL;

        snprintf(path + strlen(path), sizeof path - strlen(path), "%.*s",
                 name ? 255 : 1, name ? name : at);
        at += name ? strcspn(at, "}") : 0;
    }
    snprintf(body, sizeof body, x->body, id);
    r = web_ask(w, x->method, path, WEB_WRITE, body);
    cr_assert_eq(r->status, x->status, "%s %s: %s", x->method, path, r->text);
    head = strstr(r->text, "Content-Type: ");
    if (head)
        (void)sscanf(head, "Content-Type: %63[a-z/+-]", type);
    o = json_pack("{s:s, s:s, s:i, s:s, s:s}", "method", x->method, "path",
                  path, "status", r->status, "type", type, "body", r->body);
    json = json_dumps(o, JSON_COMPACT);
    fprintf(out, "%s\n", json);
    free(json);
    json_decref(o);
    return r->body;
}

/* Call each operation of the API except the stream of events. The handler makes
 * "bad" a dead letter, which holds its group, and fails for all else. */
Test(serve_described, each_answer_is_as_described)
{
    static const struct exchange looks[] = {
        {"GET", "/api/v1/queues", "", 200},
        {"GET", "/api/v1/queues/{q}", "", 200},
        {"GET", "/api/v1/about", "", 200},
        {"GET", "/api/v1/overview", "", 200},
        {"GET", "/api/v1/findings", "", 200},
        {"GET", "/api/v1/findings?queue={q}", "", 200},
        {"GET", "/api/v1/queues/{q}/history", "", 200},
        {"GET", "/api/v1/queues/{q}/history?range=1h", "", 200},
        {"GET", "/api/v1/queues/{q}/history?range=24h", "", 200},
        {"GET", "/api/v1/queues/{q}/settings", "", 200},
        {"GET", "/api/v1/sparks", "", 200},
        {"GET", "/api/v1/queues/{q}/messages", "", 200},
        {"GET", "/api/v1/queues/{q}/groups", "", 200},
        {"GET", "/api/v1/queues/{q}/letters", "", 200},
        {"GET", "/api/v1/letters/groups", "", 200},
        {"GET", "/api/v1/letters/groups?queue={q}", "", 200},
        {"GET", "/api/v1/queues/{q}/letters/1", "", 200},
        {"GET", "/api/v1/queues/{q}/letters/1/body", "", 200},
        {"GET", "/api/v1/explain?id=1", "", 200},
        {"GET", "/api/v1/doctor", "", 200},
        {"GET", "/api/v1/doctor?queue=%2F{q}", "", 200},
        {"GET", "/api/v1/queues/none", "", 404},
        {"GET", "/api/v1/queues/{q}/letters?limit=0", "", 400},
        {"GET", "/api/v1/jobs", "", 200},
    };
    static const struct exchange changes[] = {
        {"GET", "/api/v1/queues/{q}/messages/{id}", "", 200},
        {"POST", "/api/v1/queues/{q}/messages/run-now", "{\"ids\":[\"%s\"]}",
         200},
        {"POST", "/api/v1/queues/{q}/messages/cancel", "{\"ids\":[\"%s\"]}",
         200},
        {"POST", "/api/v1/queues/{q}/groups/release", "{\"group\":\"g\"}", 200},
        {"PATCH", "/api/v1/queues/{q}/settings", "{\"timeout\":\"30s\"}", 200},
        {"PATCH", "/api/v1/queues/{q}/settings", "{\"timeout\":\"soon\"}", 400},
        {"POST", "/api/v1/queues/{q}/pause", "{\"for\":\"1h\"}", 200},
        {"GET", "/api/v1/queues/{q}", "", 200},
        {"GET", "/api/v1/queues/{q}/settings", "", 200},
        {"GET", "/api/v1/queues/{q}/history", "", 200},
        {"POST", "/api/v1/queues/{q}/resume", "{}", 200},
    };
    static const struct exchange jobs[] = {
        {"POST", "/api/v1/queues/{q}/letters/1/edit", "{\"body\":\"bad too\"}",
         200},
        {"POST", "/api/v1/queues/{q}/letters/discard", "{\"rows\":[\"1\"]}",
         202},
        {"POST", "/api/v1/queues/{q}/letters/replay", "{\"rows\":[\"2\"]}",
         202},
        {"GET", "/api/v1/jobs/2", "", 200},
        {"GET", "/api/v1/jobs/2/outcome", "", 200},
        {"DELETE", "/api/v1/jobs/2", "", 200},
        {"GET", "/api/v1/jobs", "", 200},
    };
    const char *q = harness_queue(0, 0);
    struct harness_process *worker = ctl_worker(
        q, "--backoff", "1h", "--on-group-dead", "hold", "--", "sh", "-c",
        "read x; [ \"$x\" = bad ] || exit 1; echo no account >&2; exit 65");
    struct web w = web_start("--allow-write");
    char token[96], id[32] = "";
    json_t *o;
    FILE *out = fopen(harness_path("answers"), "we");

    cr_assert_not_null(out);
    harness_send_text(q, "bad\n");
    cr_assert_eq(harness_run("mqsend", "--group", "g", q, "bad\n").status, 0);
    harness_send_text(q, "wait\n");
    harness_until(ctl_number(q, "dead") == 2 && ctl_number(q, "waiting") == 1,
                  SOON_MS);
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        o = json_loads(exchange_do(&w, &looks[i], q, "", out), 0, NULL);
        const char *found = json_string_value(json_object_get(
            json_array_get(json_object_get(o, "messages"), 0), "id"));

        if (found)
            snprintf(id, sizeof id, "%s", found);
        json_decref(o);
    }
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        (void)exchange_do(&w, &changes[i], q, id, out);
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        (void)exchange_do(&w, &jobs[i], q, id, out);
    snprintf(token, sizeof token, "{\"token\":\"%s\"}", w.token);
    (void)exchange_do(&w,
                      &(struct exchange){"POST", "/api/v1/session", token, 204},
                      q, id, out);
    (void)exchange_do(&w,
                      &(struct exchange){"DELETE", "/api/v1/session", "", 204},
                      q, id, out);
    (void)exchange_do(
        &w, &(struct exchange){"POST", "/api/v1/queues/{q}/drain", "{}", 200},
        q, id, out);
    cr_assert_eq(harness_wait(worker, SOON_MS), 0);
    cr_assert_eq(fclose(out), 0);
    web_stop(&w);
    check(harness_path("answers"));
}

/* Each error is a problem document of RFC 9457, no matter what was asked. */
Test(serve_described, each_refusal_is_a_problem)
{
    static const struct {
        const char *method, *path, *more;
        int status;
    } wrong[] = {
        {"GET", "/api/v1/none", "", 404},
        {"GET", "/api/v1/queues/none", "", 404},
        {"GET", "/api/v1/queues/none/letters/1", "", 404},
        {"GET", "/api/v1/queues/none/history", "", 404},
        {"GET", "/api/v1/doctor?queue=/none", "", 404},
        {"GET", "/api/v1/explain?id=1&queue=none", "", 404},
        {"GET", "/api/v1/jobs/7", "", 404},
        {"GET", "/api/v1/queues/none/history?step=1y", "", 400},
        {"GET", "/api/v1/queues/none/settings", "", 404},
        {"GET", "/api/v1/queues/none/messages/1", "", 404},
        {"GET", "/api/v1/findings?queue=/none", "", 404},
        {"GET", "/api/v1/letters/groups?queue=/none", "", 404},
        {"DELETE", "/api/v1/queues", WEB_WRITE, 405},
        {"POST", "/api/v1/queues/none/pause", "", 403},
        {"POST", "/api/v1/queues/none/pause", "X-MQ-Request: 1\r\n", 415},
        {"POST", "/api/v1/queues/none/pause", WEB_WRITE, 404},
        {"POST", "/api/v1/queues/none/sleep", WEB_WRITE, 404},
    };
    struct web w = web_start("--allow-write");

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct web_answer *r =
            web_ask(&w, wrong[i].method, wrong[i].path, wrong[i].more, "{}");

        cr_expect_eq(r->status, wrong[i].status, "%s %s: %s", wrong[i].method,
                     wrong[i].path, r->text);
        cr_expect(strstr(r->text, "Content-Type: application/problem+json\r\n"),
                  "%s", r->text);
        json_t *o = ctl_json(r->body);
        cr_expect_eq(json_integer_value(json_object_get(o, "status")),
                     r->status);
        for (const char *const *m =
                 (const char *const[]){"type", "title", "status", "detail",
                                       NULL};
             *m; m++)
            cr_expect_not_null(json_object_get(o, *m), "no %s", *m);
        json_decref(o);
    }
    web_stop(&w);
}
