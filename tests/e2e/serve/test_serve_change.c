/* test_serve_change.c - mqctl serve: requests that change something, and
 * requests that are refused */
#include "tests/e2e/serve/serve_fixture.h"

TestSuite(serve_change, .init = harness_init, .fini = harness_fini);

Test(serve_change, without_allow_write_nothing_can_be_changed)
{
    struct harness_process *worker;
    const char *q = dead_letters(1, &worker);
    struct web w = web_start(NULL);
    char path[256];

    snprintf(path, sizeof path, "/api/v1/queues/%s/pause", q + 1);
    cr_assert_eq(web_ask(&w, "POST", path, WEB_WRITE, "{}")->status, 403);
    snprintf(path, sizeof path, "/api/v1/queues/%s/letters/discard", q + 1);
    cr_assert_eq(
        web_ask(&w, "POST", path, WEB_WRITE, "{\"rows\":[\"1\"]}")->status,
        403);
    cr_assert_eq(ctl_number(q, "dead"), 1);
    cr_assert(!ctl_is(q, "state", "paused"));
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve_change, another_site_can_change_nothing)
{
    static const char *const lines[] = {
        "Content-Type: application/json\r\n",
        WEB_WRITE "Sec-Fetch-Site: cross-site\r\n",
        WEB_WRITE "Sec-Fetch-Site: same-site\r\n",
        WEB_WRITE "Origin: http://evil.test\r\n",
        WEB_WRITE "Origin: null\r\n",
    };
    const char *q = harness_queue(0, 0);
    struct harness_process *worker = ctl_worker(q, "--", "true");
    struct web w = web_start("--allow-write");
    char path[256];

    snprintf(path, sizeof path, "/api/v1/queues/%s/pause", q + 1);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        cr_assert_eq(web_ask(&w, "POST", path, lines[i], "{}")->status, 403,
                     "%s", lines[i]);
    cr_assert(!ctl_is(q, "state", "paused"));
    cr_assert_eq(web_ask(&w, "GET", path, WEB_WRITE, "")->status, 405);
    cr_assert_not_null(strstr(
        web_ask(&w, "POST", "/api/v1/queues/x/set", WEB_WRITE, "{}")->text,
        "no action \\\"set\\\"; give pause, resume or drain"));
    cr_assert_eq(
        web_ask(&w, "POST", path, WEB_WRITE, "{\"for\":\"1h\"}")->status, 200);
    cr_assert(ctl_is(q, "state", "paused"));
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve_change, a_body_that_is_no_json_is_refused_as_such)
{
    static const char *const lines[] = {
        "",
        "Content-Type: text/plain\r\n",
        "Content-Type: application/jsonp\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
    };
    const char *q = harness_queue(0, 0);
    struct harness_process *worker = ctl_worker(q, "--", "true");
    struct web w = web_start("--allow-write"), only = web_start(NULL);
    char path[256], more[256], text[1024];

    snprintf(path, sizeof path, "/api/v1/queues/%s/pause", q + 1);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        snprintf(more, sizeof more, "X-MQ-Request: 1\r\n%s", lines[i]);
        cr_assert_eq(web_ask(&w, "POST", path, more, "{}")->status, 415, "%s",
                     lines[i]);
        cr_assert_eq(web_ask(&only, "POST", path, more, "{}")->status, 403);
        cr_assert_eq(web_ask(&w, "POST", path, lines[i], "{}")->status, 403);
    }
    snprintf(text, sizeof text,
             "POST %s HTTP/1.1\r\nHost: localhost:%u\r\nConnection: close\r\n"
             "Authorization: Bearer %s\r\nX-MQ-Request: 1\r\n"
             "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
             path, w.port, w.token);
    cr_assert_eq(web_send(&w, text)->status, 415, "in pieces");
    cr_assert(!ctl_is(q, "state", "paused"));
    snprintf(more, sizeof more, "%s",
             "X-MQ-Request: 1\r\n"
             "Content-Type: Application/JSON; charset=utf-8\r\n");
    cr_assert_eq(web_ask(&w, "POST", path, more, "{}")->status, 200);
    cr_assert(ctl_is(q, "state", "paused"));
    web_stop(&only);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve_change, a_server_that_changes_nothing_says_so)
{
    static const char *const paths[] = {"/api/v1/about", "/api/v1/overview",
                                        "/api/v1/queues", "/api/v1/queues/%s",
                                        "/api/v1/queues/%s/settings"};
    const char *q = harness_queue(0, 0);
    struct web w = web_start("--allow-write"), only = web_start(NULL);
    char path[256];

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        snprintf(path, sizeof path, paths[i], q + 1);
        cr_assert(strstr(web_get(&only, "%s", path), "\"write\":false"), "%s",
                  path);
        cr_assert(strstr(web_get(&w, "%s", path), "\"write\":true"), "%s",
                  path);
    }
    web_stop(&only);
    web_stop(&w);
}

Test(serve_change,
     settings_are_set_and_a_wrong_one_is_refused_with_the_tools_words)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *worker = ctl_worker(q, "-c", "1", "--", "true");
    struct web w = web_start("--allow-write");
    struct web_answer *r;
    char path[256];

    snprintf(path, sizeof path, "/api/v1/queues/%s/settings", q + 1);
    r = web_ask(&w, "PATCH", path, WEB_WRITE, "{\"max-concurrency\":3}");
    cr_assert_eq(r->status, 200, "%s", r->text);
    cr_assert_eq(ctl_number(q, "max_concurrency"), 3);
    r = web_ask(&w, "PATCH", path, WEB_WRITE, "{\"timeout\":\"soon\"}");
    cr_assert_eq(r->status, 400, "%s", r->text);
    cr_assert(strstr(r->body, "exit_status\":64") && strstr(r->body, "soon"),
              "%s", r->body);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* Wait for the end of the job that an answer names. Returns the job, which the
 * caller frees. */
static json_t *job_end(const struct web *w, const char *answer)
{
    uint64_t end = harness_deadline(SOON_MS);
    json_t *o = ctl_json(answer), *job;
    char id[32];

    snprintf(id, sizeof id, "%s", json_string_value(json_object_get(o, "job")));
    json_decref(o);
    for (;;) {
        job = ctl_json(web_get(w, "/api/v1/jobs/%s", id));
        if (strcmp(json_string_value(json_object_get(job, "state")),
                   "running") != 0)
            return job;
        json_decref(job);
        harness_nap(end, "the end of a job");
    }
}

Test(serve_change, a_fixed_set_of_letters_is_replayed_canary_first)
{
    struct harness_process *worker;
    const char *q = dead_letters(4, &worker);
    struct web w = web_start("--allow-write");
    json_t *o = ctl_json(web_get(&w, "/api/v1/queues/%s/letters", q + 1)), *job;
    char path[256], body[512];
    struct web_answer *r;

    snprintf(path, sizeof path, "/api/v1/queues/%s/letters/replay", q + 1);
    snprintf(body, sizeof body,
             "{\"filter\":{\"error\":\"exit 3*\"},\"up_to\":\"%s\","
             "\"expect_count\":%%d,\"canary\":true}",
             json_string_value(json_object_get(
                 json_array_get(json_object_get(o, "letters"), 1), "cursor")));
    json_decref(o);
    /* `up_to` leaves out the newest letter, as if it had died after the page
     * was drawn. */
    char text[600];
    snprintf(text, sizeof text, body, 4);
    r = web_ask(&w, "POST", path, WEB_WRITE, text);
    cr_assert_eq(r->status, 409, "%s", r->text);
    harness_write("fixed", "", 0);
    snprintf(text, sizeof text, body, 3);
    r = web_ask(&w, "POST", path, WEB_WRITE, text);
    cr_assert_eq(r->status, 202, "%s", r->text);
    job = job_end(&w, r->body);
    cr_assert_str_eq(json_string_value(json_object_get(job, "state")), "ended");
    cr_assert_eq(json_integer_value(json_object_get(job, "changed")), 3);
    json_decref(job);
    harness_until(ctl_number(q, "done") == 3, SOON_MS);
    cr_assert_eq(ctl_number(q, "dead"), 1);
    harness_wait_log(w.p, "event=web_job", SOON_MS); /* the log serves as an
                                                      * audit */
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve_change, a_canary_that_dies_ends_its_job)
{
    struct harness_process *worker;
    const char *q = dead_letters(3, &worker);
    struct web w = web_start("--allow-write");
    struct web_answer *r;
    char path[256];
    json_t *job;

    snprintf(path, sizeof path, "/api/v1/queues/%s/letters/replay", q + 1);
    r = web_ask(&w, "POST", path, WEB_WRITE,
                "{\"rows\":[\"1\",\"2\",\"3\"],\"canary\":true}");
    cr_assert_eq(r->status, 202, "%s", r->text);
    job = job_end(&w, r->body);
    cr_assert_str_eq(json_string_value(json_object_get(job, "state")),
                     "failed");
    cr_assert_eq(json_integer_value(json_object_get(job, "taken")), 1);
    json_decref(job);
    cr_assert_eq(ctl_number(q, "dead"), 3);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* The worker is paused, so four jobs wait for their canary until the server
 * stops. */
Test(serve_change, canaries_block_no_job_and_what_the_end_cuts_is_in_the_log)
{
    struct harness_process *worker;
    const char *q = dead_letters(6, &worker);
    struct web w = web_start("--allow-write");
    char replay[256], discard[256], body[64], wait[128];
    struct web_answer *r;
    json_t *o, *job;
    long long last;

    cr_assert_eq(ctl("pause", q).status, 0);
    snprintf(replay, sizeof replay, "/api/v1/queues/%s/letters/replay", q + 1);
    snprintf(discard, sizeof discard, "/api/v1/queues/%s/letters/discard",
             q + 1);
    for (int i = 1; i <= 4; i++) {
        snprintf(body, sizeof body, "{\"rows\":[\"%d\"],\"canary\":true}", i);
        r = web_ask(&w, "POST", replay, WEB_WRITE, body);
        cr_assert_eq(r->status, 202, "%s", r->text);
    }
    r = web_ask(&w, "POST", discard, WEB_WRITE, "{\"rows\":[\"5\"]}");
    cr_assert_eq(r->status, 202, "%s", r->text);
    o = ctl_json(r->body);
    last = strtoll(json_string_value(json_object_get(o, "job")), NULL, 10);
    json_decref(o);
    job = job_end(&w, r->body);
    cr_assert_str_eq(json_string_value(json_object_get(job, "state")), "ended");
    json_decref(job);
    web_stop(&w);
    for (int i = 1; i <= 4; i++) {
        snprintf(wait, sizeof wait,
                 "event=web_job job=%lld what=replay queue=%s state=stopped",
                 last - i, q);
        cr_expect(strstr(harness_stderr(w.p, NULL), wait), "%s: %s", wait,
                  harness_stderr(w.p, NULL));
    }
    w = web_start("--allow-write");
    r = web_ask(&w, "POST", discard, WEB_WRITE, "{\"rows\":[\"6\"]}");
    o = ctl_json(r->body);
    cr_assert_eq(
        strtoll(json_string_value(json_object_get(o, "job")), NULL, 10),
        last + 1, "%s", r->text);
    json_decref(o);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* Return how many letters of a job have this outcome, such as "done". */
static json_int_t outcome(const struct web *w, const json_t *job,
                          const char *name)
{
    json_t *o =
        ctl_json(web_get(w, "/api/v1/jobs/%s/outcome",
                         json_string_value(json_object_get(job, "id"))));
    json_int_t n = json_integer_value(json_object_get(o, name));

    json_decref(o);
    return n;
}

/* Start a replay or discard and wait for its end. Returns the job, which the
 * caller frees. */
static json_t *job_do(const struct web *w, const char *q, const char *what,
                      const char *body)
{
    char path[256];
    struct web_answer *r;

    snprintf(path, sizeof path, "/api/v1/queues/%s/letters/%s", q + 1, what);
    r = web_ask(w, "POST", path, WEB_WRITE, body);
    cr_assert_eq(r->status, 202, "%s", r->text);
    return job_end(w, r->body);
}

Test(serve_change, a_job_tells_the_last_that_was_said_and_what_the_canary_was)
{
    struct harness_process *worker;
    const char *q = dead_letters(3, &worker);
    struct web w = web_start("--allow-write");
    json_t *job = job_do(&w, q, "discard", "{\"rows\":[\"77\",\"78\"]}");
    const char *error = json_string_value(json_object_get(job, "error"));

    cr_assert(error && strstr(error, "no letter 78"), "%s", error);
    json_decref(job);
    /* There is no letter 77, so letter 1 becomes the canary, and dies. */
    job = job_do(&w, q, "replay",
                 "{\"rows\":[\"77\",\"1\",\"2\",\"3\"],\"canary\":true}");
    cr_assert_str_eq(json_string_value(json_object_get(job, "state")),
                     "failed");
    cr_assert_eq(json_integer_value(json_object_get(job, "taken")), 2);
    cr_assert_str_eq(json_string_value(json_object_get(job, "verdict")),
                     "failed");
    cr_assert_eq(outcome(&w, job, "died_again"), 1);
    cr_assert_eq(outcome(&w, job, "sent"), 1);
    json_decref(job);
    harness_write("fixed", "", 0);
    job = job_do(&w, q, "replay", "{\"rows\":[\"1\",\"2\"],\"canary\":true}");
    cr_assert_str_eq(json_string_value(json_object_get(job, "verdict")),
                     "done");
    harness_until(outcome(&w, job, "done") == 2, SOON_MS);
    cr_assert_eq(outcome(&w, job, "sent"), 2);
    cr_assert_eq(outcome(&w, job, "on_way"), 0);
    json_decref(job);
    job = job_do(&w, q, "discard", "{\"rows\":[\"3\",\"3\",\"3\"]}");
    cr_assert_eq(json_integer_value(json_object_get(job, "count")), 1);
    cr_assert(json_is_null(json_object_get(job, "error")));
    json_decref(job);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve_change, what_is_spooled_is_counted_and_cancelled)
{
    const char *q = harness_queue(0, 0), *name;
    struct harness_process *worker =
        ctl_worker(q, "--spool=100", "-c", "1", "--", "sleep", "1000");
    struct web w;
    char body[128], path[256];
    struct web_answer *r;
    json_t *o;

    for (int i = 0; i < 3; i++)
        harness_send_text(q, "x");
    harness_until(ctl_number(q, "spooled") == 2, SOON_MS);
    w = web_start("--allow-write");
    harness_until(strstr(web_get(&w, "/api/v1/overview"), "\"waiting\":2,"),
                  SOON_MS);
    o = ctl_json(
        web_get(&w, "/api/v1/queues/%s/messages?state=spooled", q + 1));
    cr_assert_eq(json_array_size(json_object_get(o, "messages")), 2);
    name = json_string_value(json_object_get(
        json_array_get(json_object_get(o, "messages"), 0), "name"));
    cr_assert(name && strncmp(name, "spool-", 6) == 0, "%s", name);
    cr_assert(strstr(web_get(&w, "/api/v1/queues/%s/messages/%s", q + 1, name),
                     "\"body\":\"x\""));
    snprintf(path, sizeof path, "/api/v1/queues/%s/messages/cancel", q + 1);
    snprintf(body, sizeof body, "{\"ids\":[\"%s\"]}", name);
    json_decref(o);
    r = web_ask(&w, "POST", path, WEB_WRITE, body);
    cr_assert(r->status == 200 && strstr(r->body, "\"done\":1"), "%s", r->text);
    web_stop(&w);
    cr_assert_eq(ctl("quit", q).status, 0);
    (void)harness_wait(worker, SOON_MS);
}

Test(serve_change, a_pause_has_an_end_that_is_said)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *worker = ctl_worker(q, "--", "true");
    struct web w = web_start("--allow-write");
    char path[256];
    json_t *o;

    snprintf(path, sizeof path, "/api/v1/queues/%s/pause", q + 1);
    cr_assert_eq(web_ask(&w, "POST", path, WEB_WRITE,
                         "{\"until\":\"2020-01-01T00:00Z\"}")
                     ->status,
                 400);
    cr_assert_eq(web_ask(&w, "POST", path, WEB_WRITE,
                         "{\"until\":\"2999-01-01T00:00Z\",\"for\":\"1h\"}")
                     ->status,
                 400);
    cr_assert(!ctl_is(q, "state", "paused"));
    cr_assert_eq(web_ask(&w, "POST", path, WEB_WRITE,
                         "{\"until\":\"2199-01-01T00:00:00Z\"}")
                     ->status,
                 200);
    o = ctl_json(web_get(&w, "/api/v1/queues/%s", q + 1));
    cr_assert_str_eq(json_string_value(json_object_get(o, "state")), "paused");
    const char *end = json_string_value(json_object_get(o, "paused_until"));
    cr_assert(end && (strncmp(end, "2199-01-01T00:00:0", 18) == 0 ||
                      strncmp(end, "2198-12-31T23:59:5", 18) == 0),
              "%s", end);
    harness_until(strstr(web_get(&w, "/api/v1/overview"), end), 2 * SOON_MS);
    json_decref(o);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve_change, letters_that_are_named_are_discarded)
{
    struct harness_process *worker;
    const char *q = dead_letters(3, &worker);
    struct web w = web_start("--allow-write");
    struct web_answer *r;
    char path[256];
    json_t *job;

    snprintf(path, sizeof path, "/api/v1/queues/%s/letters/discard", q + 1);
    r = web_ask(&w, "POST", path, WEB_WRITE, "{}");
    cr_assert_eq(r->status, 400, "%s", r->text);
    r = web_ask(&w, "POST", path, WEB_WRITE, "{\"rows\":[\"1\",\"3\"]}");
    cr_assert_eq(r->status, 202, "%s", r->text);
    job = job_end(&w, r->body);
    cr_assert_eq(json_integer_value(json_object_get(job, "changed")), 2);
    json_decref(job);
    cr_assert_eq(ctl_number(q, "dead"), 1);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* An edit by another operator makes the letter of an open page another
 * message, which the buttons of that page must not touch. */
Test(serve_change, an_open_letter_is_replayed_and_discarded_by_its_id)
{
    static const char *const verbs[] = {"replay", "discard"};
    static const struct {
        const char *body;
        int status;
        const char *says;
    } wrong[] = {
        {"{\"rows\":[\"1\"],\"message_id\":"
         "\"01M82WH2675BH7W7CEF6000001\"}",
         409, "letter 1 is another message now"},
        {"{\"rows\":[\"1\",\"2\"],\"message_id\":"
         "\"01M82WH2675BH7W7CEF6000001\"}",
         400, "of the only letter in rows"},
        {"{\"rows\":[\"1\"],\"message_id\":\"2\\n3\"}", 400, "26 characters"},
    };
    struct harness_process *worker;
    const char *q = dead_letters(3, &worker);
    struct web w = web_start("--allow-write");
    char path[256], body[256];
    struct web_answer *r;
    json_t *o, *job;

    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/api/v1/queues/%s/letters/%s", q + 1,
                 verbs[i]);
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            r = web_ask(&w, "POST", path, WEB_WRITE, wrong[k].body);
            cr_assert(r->status == wrong[k].status &&
                          strstr(r->body, wrong[k].says),
                      "%s: %s", wrong[k].body, r->text);
        }
        o = ctl_json(
            web_get(&w, "/api/v1/queues/%s/letters/%zu", q + 1, i + 1));
        snprintf(body, sizeof body,
                 "{\"rows\":[\"%zu\"],\"message_id\":\"%s\"}", i + 1,
                 json_string_value(json_object_get(o, "message_id")));
        json_decref(o);
        r = web_ask(&w, "POST", path, WEB_WRITE, body);
        cr_assert_eq(r->status, 202, "%s", r->text);
        job = job_end(&w, r->body);
        cr_assert_eq(json_integer_value(json_object_get(job, "changed")), 1);
        json_decref(job);
    }
    cr_assert(strstr(web_get(&w, "/api/v1/queues/%s", q + 1), "\"dead\":1,"));
    cr_assert_eq(harness_queue_length(q), 1);
    web_stop(&w);
}

/* ---- messages that wait ---- */

/* Make a queue with `n` messages that wait an hour for their next attempt. */
static const char *retrying(unsigned n, struct harness_process **worker)
{
    const char *q = harness_queue(0, 0);

    *worker = ctl_worker(q, "--backoff", "1h", "--", "false");
    for (unsigned i = 0; i < n; i++)
        harness_send_text(q, "<script>wait</script>\xe2\x80\xae");
    harness_until(ctl_number(q, "waiting") == n, SOON_MS);
    return q;
}

/* Append the ids of all waiting messages to `ids`. Returns how many pages the
 * server needed for them. */
static unsigned message_ids(const struct web *w, const char *q, json_t *ids)
{
    char after[256] = "";
    unsigned pages = 0;
    json_t *o, *one;
    size_t i;

    do {
        o = ctl_json(
            web_get(w, "/api/v1/queues/%s/messages?after=%s", q + 1, after));
        json_array_foreach(json_object_get(o, "messages"), i, one)
        {
            cr_assert_str_eq(json_string_value(json_object_get(one, "state")),
                             "retry");
            json_array_append(ids, json_object_get(one, "id"));
        }
        one = json_object_get(o, "next");
        snprintf(after, sizeof after, "%s",
                 json_is_string(one) ? json_string_value(one) : "");
        json_decref(o);
        pages++;
    } while (*after);
    return pages;
}

/* Order run-now or cancel. Returns the answer, which the caller frees. */
static json_t *order_to(const struct web *w, const char *q, const char *verb,
                        json_t *ids)
{
    char path[256], *body = json_dumps(json_pack("{s:O}", "ids", ids), 0);
    struct web_answer *r;

    snprintf(path, sizeof path, "/api/v1/queues/%s/messages/%s", q + 1, verb);
    r = web_ask(w, "POST", path, WEB_WRITE, body);
    cr_assert_eq(r->status, 200, "%s", r->text);
    free(body);
    return ctl_json(r->body);
}

Test(serve_change, what_waits_comes_by_pages_and_is_cancelled_by_its_id)
{
    enum { MANY = 105 };
    struct harness_process *worker;
    const char *q = retrying(MANY, &worker), *text, *name;
    struct web w = web_start("--allow-write");
    json_t *ids = json_array(), *two, *o;
    struct web_answer *r;
    char path[256];

    cr_assert_eq(message_ids(&w, q, ids), 2);
    cr_assert_eq(json_array_size(ids), MANY);
    name = json_string_value(json_array_get(ids, 0));
    text = web_get(&w, "/api/v1/queues/%s/messages/%s", q + 1, name);
    cr_assert(strstr(text, name) && strstr(text, "\"history\":[{"), "%s", text);
    cr_assert_null(strstr(text, "\xe2\x80\xae"));
    text = web_get(&w, "/api/v1/queues/%s/messages?state=retry", q + 1);
    cr_assert(strstr(text, "\"preview\":\"<script>wait") &&
              !strstr(text, "\xe2\x80\xae") && !strstr(text, "\"body\""));
    text = web_get(&w, "/api/v1/queues/%s/messages?state=parked,held", q + 1);
    cr_assert(strstr(text, "\"messages\":[]"), "%s", text);
    two = json_pack("[O, O, s]", json_array_get(ids, 0), json_array_get(ids, 1),
                    "01ARZ3NDEKTSV4RRFFQ69G5FAV");
    o = order_to(&w, q, "cancel", two);
    cr_assert_eq(json_integer_value(json_object_get(o, "done")), 2);
    cr_assert_eq(json_integer_value(json_object_get(o, "gone")), 1);
    json_decref(o);
    harness_until(ctl_number(q, "waiting") == MANY - 2, 5000);
    snprintf(path, sizeof path, "/api/v1/queues/%s/messages/cancel", q + 1);
    r = web_ask(&w, "POST", path, WEB_WRITE, "{\"ids\":[]}");
    cr_assert_eq(r->status, 400, "%s", r->text);
    r = web_ask(&w, "POST", path, WEB_WRITE, "{\"ids\":[\"x\"]}");
    cr_assert_eq(r->status, 400, "%s", r->text);
    json_decref(two);
    json_decref(ids);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve_change, a_letter_is_sent_with_another_body)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *worker =
        ctl_worker(q, "--max-attempts", "1", "--", "grep", "good");
    struct web w = web_start("--allow-write");
    char path[256], body[256];
    struct web_answer *r;
    json_t *o;

    harness_send_text(q, "bad");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    snprintf(path, sizeof path, "/api/v1/queues/%s/letters/1/edit", q + 1);
    r = web_ask(&w, "POST", path, WEB_WRITE, "{}");
    cr_assert(r->status == 400 && strstr(r->body, "body is missing"), "%s",
              r->text);
    r = web_ask(&w, "POST", path, WEB_WRITE, "{\"body\":\"bad\"}");
    cr_assert(r->status == 422 && strstr(r->body, "unchanged"), "%s", r->text);
    /* Another operator edited it after the page was drawn. */
    r = web_ask(&w, "POST", path, WEB_WRITE,
                "{\"body\":\"mine\",\"message_id\":"
                "\"01M82WH2675BH7W7CEF6000001\"}");
    cr_assert(r->status == 409 && strstr(r->body, "reload the page"), "%s",
              r->text);
    o = ctl_json(web_get(&w, "/api/v1/queues/%s/letters/1", q + 1));
    cr_assert_str_eq(json_string_value(json_object_get(o, "body")), "bad");
    snprintf(body, sizeof body,
             "{\"body\":\"good \\u00e9\",\"message_id\":\"%s\"}",
             json_string_value(json_object_get(o, "message_id")));
    json_decref(o);
    r = web_ask(&w, "POST", path, WEB_WRITE, body);
    cr_assert(r->status == 200 && strstr(r->body, "\"edited_from\""), "%s",
              r->text);
    harness_until(ctl_number(q, "dead") == 0 && ctl_number(q, "done") == 1,
                  SOON_MS);
    r = web_ask(&w, "POST", path, WEB_WRITE, "{\"body\":\"x\"}");
    cr_assert_eq(r->status, 404, "%s", r->text);
    /* The log says which letter, and not what is in it. */
    cr_assert(strstr(harness_stderr(w.p, NULL), "row=1") &&
                  !strstr(harness_stderr(w.p, NULL), "good"),
              "%s", harness_stderr(w.p, NULL));
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* The queue is full and has no worker. The letter stays dead, with its new
 * body. */
Test(serve_change, an_edit_into_a_full_queue_says_what_became_of_it)
{
    struct harness_process *worker;
    const char *q = dead_letters(1, &worker);
    struct web w = web_start("--allow-write");
    struct web_answer *r;
    char path[256];

    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
    for (int i = 0; i < 10; i++)
        harness_send_text(q, "");
    snprintf(path, sizeof path, "/api/v1/queues/%s/letters/1/edit", q + 1);
    r = web_ask(&w, "POST", path, WEB_WRITE, "{\"body\":\"new\"}");
    cr_assert(r->status == 503 &&
                  strstr(r->body, "letter 1 is dead, with the edited body"),
              "%s", r->text);
    web_stop(&w);
}

/* Without "running":true, cancel leaves a running message alone. */
Test(serve_change, a_running_message_is_cancelled_with_its_handler)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *worker =
        ctl_worker(q, "--", "sh", "-c", "echo busy >&2; exec sleep 600");
    struct web w = web_start("--allow-write");
    char path[256], body[256];
    struct web_answer *r;
    json_t *o;

    harness_send(q, "x", 1, 0);
    harness_until(ctl_number(q, "in_flight") == 1, SOON_MS);
    harness_until(
        strstr(web_get(&w, "/api/v1/queues/%s/messages?state=running", q + 1),
               "\"last_stderr\":\"busy\""),
        SOON_MS);
    o = ctl_json(
        web_get(&w, "/api/v1/queues/%s/messages?state=running", q + 1));
    snprintf(path, sizeof path, "/api/v1/queues/%s/messages/cancel", q + 1);
    snprintf(body, sizeof body, "{\"ids\":[\"%s\"]}",
             json_string_value(json_object_get(
                 json_array_get(json_object_get(o, "messages"), 0), "name")));
    json_decref(o);
    r = web_ask(&w, "POST", path, WEB_WRITE, body);
    cr_assert(r->status == 200 && strstr(r->body, "\"in_flight\":1"), "%s",
              r->text);
    cr_assert_eq(ctl_number(q, "in_flight"), 1);
    strcpy(strchr(body, '}'), ",\"running\":true}");
    r = web_ask(&w, "POST", path, WEB_WRITE, body);
    cr_assert(r->status == 200 && strstr(r->body, "\"done\":1"), "%s", r->text);
    harness_until(ctl_number(q, "in_flight") == 0, SOON_MS);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve_change, what_waits_runs_now_by_its_id)
{
    struct harness_process *worker;
    const char *q = retrying(1, &worker);
    struct web w = web_start("--allow-write"), only = web_start(NULL);
    json_t *ids = json_array(), *o;
    char path[256];

    (void)message_ids(&w, q, ids);
    snprintf(path, sizeof path, "/api/v1/queues/%s/messages/run-now", q + 1);
    cr_assert_eq(web_ask(&only, "POST", path, WEB_WRITE, "{}")->status, 403);
    o = order_to(&w, q, "run-now", ids);
    cr_assert_eq(json_integer_value(json_object_get(o, "done")), 1);
    harness_until(ctl_number(q, "retried") == 2, SOON_MS);
    json_decref(o);
    json_decref(ids);
    web_stop(&only);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* ---- what is not understood ---- */

/* Each of these requests is refused. If the server ignored the wrong condition
 * of a filter, the filter would match all letters. */
Test(serve_change, what_is_misspelt_or_of_another_type_changes_nothing)
{
#define ALL "\"up_to\":\"9000000000000000000.1\",\"expect_count\":1}"
    static const struct {
        const char *method, *path, *body, *says;
    } wrong[] = {
        {"POST", "letters/discard", "{\"filter\":{\"erorr\":\"x\"}," ALL,
         "erorr"},
        {"POST", "letters/discard", "{\"filter\":{\"error\":5}," ALL,
         "error must be a non-empty text"},
        {"POST", "letters/discard", "{\"filter\":{\"group\":\"\"}," ALL,
         "group must be"},
        {"POST", "letters/discard", "{\"filter\":{\"error\":null}," ALL,
         "error must be"},
        {"POST", "letters/discard", "{\"filter\":[\"error\"]," ALL,
         "filter must be an object"},
        {"POST", "letters/discard",
         "{\"filter\":{\"error\":\"a\"},\"filter\":{}," ALL, "twice"},
        {"POST", "letters/discard", "{\"filter\":{\"error\":\"\\u0000\"}," ALL,
         "JSON"},
        {"POST", "letters/discard", "{\"filter\":{},\"rows\":[\"1\"]," ALL,
         "not both"},
        {"POST", "letters/discard", "{\"filters\":{},\"rows\":[\"1\"]}",
         "filters"},
        {"POST", "letters/discard", "{\"rows\":[1]}", "rows must be"},
        {"POST", "letters/discard", "{\"rows\":\"1\"}", "rows must be"},
        {"POST", "letters/discard", "{\"rows\":[\"1\"],\"canary\":true}",
         "canary"},
        {"POST", "letters/discard", "[\"1\"]", "not a JSON object"},
        {"POST", "letters/discard", "rows", "not JSON"},
        {"POST", "letters/replay", "{\"rows\":[\"1\"],\"canary\":\"yes\"}",
         "canary must be true or false"},
        {"POST", "letters/replay", "{\"rows\":[\"1\"],\"rate\":\"5\"}",
         "rate must be"},
        {"POST", "letters/replay", "{\"rows\":[\"1\"],\"rate\":0}",
         "rate must be"},
        {"POST", "letters/replay", "{\"rows\":[\"1\"],\"expect_count\":\"1\"}",
         "expect_count must be"},
        {"POST", "pause", "{\"For\":\"1h\"}", "For"},
        {"POST", "pause", "{\"for\":\"\"}", "for must be"},
        {"POST", "pause", "{\"for\":60}", "for must be"},
        {"POST", "pause", "{\"for\":\"10\"}",
         "\\\"10\\\" is not a duration above 0"},
        {"POST", "resume", "{\"for\":\"1h\"}", "for"},
        {"POST", "messages/cancel", "{\"ids\":[\"\"]}", "ids must be"},
        {"POST", "messages/cancel", "{\"id\":[\"x\"]}", "id"},
        {"POST", "groups/close", "{\"group\":7}", "group must be"},
        {"PATCH", "settings", "{\"timeout\":true}", "timeout must be"},
        {"POST", "pause?for=1h", "{}", "for"},
        {"GET", "letters?erorr=x", "", "erorr"},
        {"GET", "letters?error=%00abc", "", "NUL"},
        {"GET", "letters%00/1", "", "NUL"},
        {"GET", "letters?error=", "", "empty"},
        {"GET", "letters?error", "", "no value"},
        {"GET", "letters?error=a&error=b", "", "twice"},
        {"GET", "letters?limit=0", "", "limit"},
        {"GET", "letters/1?match=x", "", "match"},
        {"GET", "messages?afer=x", "", "afer"},
        {"GET", "history?stop=1m", "", "stop"},
        {"GET", "history?range=1y", "", "1y"},
        {"GET", "messages?state=lost", "", "lost"},
        {"GET", "groups?state=retry", "", "retry"},
    };
#undef ALL
    struct harness_process *worker;
    const char *q = dead_letters(1, &worker);
    struct web w = web_start("--allow-write");
    struct web_answer *r;
    char path[256];

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(path, sizeof path, "/api/v1/queues/%s/%s", q + 1,
                 wrong[i].path);
        r = web_ask(&w, wrong[i].method, path, *wrong[i].body ? WEB_WRITE : "",
                    wrong[i].body);
        cr_expect(r->status == 400 && strstr(r->body, wrong[i].says),
                  "%s %s: %s", path, wrong[i].body, r->text);
    }
    cr_expect_eq(web_ask(&w, "GET", "/api/v1/queues?x=1", "", "")->status, 400);
    cr_expect_eq(
        web_ask(&w, "GET", "/api/v1/letters/groups?limit=5", "", "")->status,
        400);
    cr_expect_eq(ctl_number(q, "dead"), 1);
    cr_expect(ctl_is(q, "state", "running"));
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* A request for the letter names the waiting message: there is no letter 1
 * until that message dies again. */
Test(serve_change, a_replayed_letter_that_failed_says_that_it_waits)
{
    const char *q = harness_queue(0, 0), *text;
    struct harness_process *worker =
        ctl_worker(q, "--backoff", "1h", "--", "sh", "-c",
                   "[ -e fixed ] || exit 65; exit 9");
    struct web w = web_start(NULL);
    char path[256];

    harness_send_text(q, "again");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    harness_write("fixed", "", 0);
    cr_assert_eq(harness_run("mqdlq", "replay", "--state-dir",
                             harness_state_dir(), q, "1")
                     .status,
                 0);
    harness_until(ctl_number(q, "waiting") == 1, SOON_MS);
    snprintf(path, sizeof path, "/api/v1/queues/%s/letters/1", q + 1);
    cr_assert_eq(web_ask(&w, "GET", path, "", "")->status, 404);
    text = web_ask(&w, "GET", path, "", "")->body;
    cr_assert(strstr(text, "its message waits for its next attempt; see mqctl "
                           "explain /"),
              "%s", text);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* The scene kills mqdlq after it has marked the letter, before it can send
 * it. */
Test(serve_change, a_letter_that_may_not_be_sent_has_the_command_that_sends_it)
{
    struct harness_process *worker, *replay;
    const char *q = dead_letters(1, &worker);
    struct web w = web_start("--allow-write");
    struct web_answer *r;
    char path[256], fix[256];
    json_t *o, *job;

    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
    for (int i = 0; i < 10; i++)
        harness_send_text(q, "");
    replay = harness_program("mqdlq", "replay", "--state-dir",
                             harness_state_dir(), q, "1");
    harness_until(strstr(web_get(&w, "/api/v1/queues/%s/letters/1", q + 1),
                         "\"replayed\""),
                  SOON_MS);
    harness_kill(replay);
    o = ctl_json(web_get(&w, "/api/v1/queues/%s/letters/1", q + 1));
    snprintf(fix, sizeof fix, "mqdlq replay --again %s 1", q);
    cr_assert_str_eq(json_string_value(json_object_get(o, "state")),
                     "replayed");
    cr_assert_str_eq(json_string_value(json_object_get(o, "replay")), "unsure");
    cr_assert_str_eq(json_string_value(json_object_get(o, "fix")), fix);
    json_decref(o);
    while (harness_queue_length(q) > 0)
        harness_receive(q, path, sizeof path, NULL);
    snprintf(path, sizeof path, "/api/v1/queues/%s/letters/replay", q + 1);
    r = web_ask(&w, "POST", path, WEB_WRITE,
                "{\"filter\":{},\"up_to\":\"1.1\",\"expect_count\":1,"
                "\"again\":true}");
    cr_assert(r->status == 400 && strstr(r->body, "name them in rows"), "%s",
              r->text);
    r = web_ask(&w, "POST", path, WEB_WRITE, "{\"rows\":[\"1\"]}");
    job = job_end(&w, r->body);
    cr_assert_eq(json_integer_value(json_object_get(job, "changed")), 0);
    json_decref(job);
    r = web_ask(&w, "POST", path, WEB_WRITE,
                "{\"rows\":[\"1\"],\"again\":true}");
    job = job_end(&w, r->body);
    cr_assert_eq(json_integer_value(json_object_get(job, "changed")), 1);
    json_decref(job);
    cr_assert_eq(harness_queue_length(q), 1);
    o = ctl_json(web_get(&w, "/api/v1/queues/%s/letters/1", q + 1));
    cr_assert_str_eq(json_string_value(json_object_get(o, "replay")), "sent");
    cr_assert(json_is_null(json_object_get(o, "fix")));
    json_decref(o);
    web_stop(&w);
}

/* Letters whose errors differ only in numbers and ids are listed as one group,
 * and one request replays exactly these letters. */
Test(serve_change, letters_alike_are_one_group_that_is_replayed_as_one)
{
    static const char *const texts[] = {
        "account 4711 is closed", "account 12 is closed",
        "account 550e8400-e29b-41d4-a716-446655440000 is closed",
        "account of Ann is closed", "[7] is no account?"};
    static const char pattern[] = "exit 3: account * is closed";
    const char *q = harness_queue(0, 0), *up_to;
    struct harness_process *worker =
        ctl_worker(q, "--max-attempts", "1", "--", "sh", "-c",
                   "[ -e fixed ] && exit 0; cat >&2; exit 3");
    struct web w = web_start("--allow-write");
    char body[512], path[256];
    struct web_answer *r;
    json_t *o, *groups, *one, *job;
    size_t i, sum = 0;

    for (i = 0; i < sizeof texts / sizeof *texts; i++)
        harness_send_text(q, texts[i]);
    harness_until(ctl_number(q, "dead") == 5, SOON_MS);
    o = ctl_json(web_get(&w, "/api/v1/letters/groups"));
    groups = json_object_get(o, "groups");
    cr_assert_eq(json_array_size(groups), 3);
    one = json_array_get(groups, 0);
    cr_assert_str_eq(json_string_value(json_object_get(one, "pattern")),
                     pattern);
    cr_assert_eq(json_integer_value(json_object_get(one, "count")), 3);
    json_array_foreach(json_object_get(one, "histogram"), i, job)
    {
        sum += (size_t)json_integer_value(job);
    }
    cr_assert_eq(sum, 3);
    up_to = json_string_value(json_object_get(one, "up_to"));
    cr_assert_not_null(up_to);
    for (i = 0; i < 3; i++) {
        const char *each = json_string_value(
            json_object_get(json_array_get(groups, i), "pattern"));
        char coded[256] = "";

        for (const char *at = each; *at; at++)
            snprintf(coded + strlen(coded), sizeof coded - strlen(coded),
                     "%%%02X", (unsigned char)*at);
        job = ctl_json(
            web_get(&w, "/api/v1/queues/%s/letters?pattern=%s", q + 1, coded));
        cr_assert_eq(json_array_size(json_object_get(job, "letters")),
                     i == 0 ? 3 : 1, "%s", each);
        json_decref(job);
    }
    snprintf(path, sizeof path, "/api/v1/queues/%s/letters/replay", q + 1);
    snprintf(body, sizeof body,
             "{\"filter\":{\"pattern\":\"%s\"},\"up_to\":\"%s\","
             "\"expect_count\":4}",
             pattern, up_to);
    cr_assert_eq(web_ask(&w, "POST", path, WEB_WRITE, body)->status, 409);
    *strrchr(body, '4') = '3';
    harness_write("fixed", "", 0);
    r = web_ask(&w, "POST", path, WEB_WRITE, body);
    cr_assert_eq(r->status, 202, "%s", r->text);
    job = job_end(&w, r->body);
    harness_until(outcome(&w, job, "done") == 3, SOON_MS);
    cr_assert_eq(ctl_number(q, "dead"), 2);
    json_decref(job);
    json_decref(o);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* The numbers of exit codes and signals tell groups apart, in an error that the
 * handler gave ("said") as in one of the worker's. */
Test(serve_change, letters_with_other_exit_codes_are_other_groups)
{
    static const char letter[] =
        "{\"reason\":\"rejected\",\"error\":\"%s\",\"body\":\"x\","
        "\"history\":[{\"started_at_ns\":1,\"duration_ns\":1,"
        "\"error\":\"%s\",\"stderr\":\"\",\"said\":%s}]}\n";
    static const char *const errors[][2] = {
        {"exit 65", "true"},           {"exit 66", "true"},
        {"signal 9", "true"},          {"signal 11", "false"},
        {"exit 3: account 7", "true"}, {"exit 3: account 8", "false"}};
    static const char *const patterns[] = {"exit 65", "exit 66", "signal 9",
                                           "signal 11", "exit 3: account *"};
    const char *q = harness_queue(0, 0), *text;
    struct web w = web_start(NULL);
    char lines[2048] = "";
    json_t *o, *groups;

    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        snprintf(lines + strlen(lines), sizeof lines - strlen(lines), letter,
                 errors[i][0], errors[i][0], errors[i][1]);
    harness_write(harness_path("letters"), lines, strlen(lines));
    cr_assert_eq(harness_run("mqdlq", "import", "--quiet", "--state-dir",
                             harness_state_dir(), q, harness_path("letters"))
                     .status,
                 0);
    text = web_get(&w, "/api/v1/letters/groups");
    o = ctl_json(text);
    groups = json_object_get(o, "groups");
    cr_assert_eq(json_array_size(groups), 5, "%s", text);
    for (size_t i = 0; i < 5; i++) {
        bool seen = false;

        for (size_t k = 0; k < 5; k++)
            seen |= strcmp(patterns[i],
                           json_string_value(json_object_get(
                               json_array_get(groups, k), "pattern"))) == 0;
        cr_assert(seen, "%s: %s", patterns[i], text);
    }
    json_decref(o);
    web_stop(&w);
}

/* A letter has a time of death in the future if the clock was wrong then. */
Test(serve_change, letters_of_the_future_are_counted_like_others)
{
    static const char letter[] =
        "{\"message_id\":\"01M82WH2675BH7W7CEF6000000\",\"state\":\"dead\","
        "\"died_at_ns\":4000000000000000000,\"reason\":\"exhausted\","
        "\"error\":\"exit 3\",\"attempts\":1,\"crashes\":0,\"redelivered\":"
        "false,\"length_inferred\":false,\"priority\":0,\"group\":null,"
        "\"first_received_at_ns\":1,\"header\":\"\",\"body\":\"x\","
        "\"stderr\":\"no account\",\"history\":[]}\n";
    struct harness_process *worker;
    const char *q = dead_letters(2, &worker);
    struct web w = web_start(NULL);
    json_t *o, *one, *bar;
    json_int_t sum = 0, count = 0, last = 0;
    size_t i, n;

    harness_write(harness_path("future"), letter, sizeof letter - 1);
    cr_assert_eq(harness_run("mqdlq", "import", "--quiet", "--state-dir",
                             harness_state_dir(), q, harness_path("future"))
                     .status,
                 0);
    o = ctl_json(web_get(&w, "/api/v1/letters/groups"));
    cr_assert_eq(json_integer_value(json_object_get(o, "total")), 3);
    json_array_foreach(json_object_get(o, "groups"), i, one)
    {
        count += json_integer_value(json_object_get(one, "count"));
        json_array_foreach(json_object_get(one, "histogram"), n, bar)
        {
            sum += json_integer_value(bar);
            last += n == 19 ? json_integer_value(bar) : 0;
        }
    }
    cr_assert_eq(count, 3);
    cr_assert_eq(sum, 3);
    cr_assert_eq(last, 1);
    json_decref(o);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* `match` is refused as well: many requests with it could reveal a body. */
Test(serve_change, without_bodies_nothing_says_what_is_in_them)
{
    static const char *const paths[] = {
        "/api/v1/queues/%s/letters?match=order",
        "/api/v1/queues/%s/letters?match=none",
        "/api/v1/letters/groups?queue=%s&match=order",
        "/api/v1/letters/groups?match=order",
    };
    struct harness_process *worker;
    const char *q = dead_letters(1, &worker);
    struct web w = web_start("--allow-write", "--no-bodies");
    char path[256];

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        snprintf(path, sizeof path, paths[i], q + 1);
        cr_expect_eq(web_ask(&w, "GET", path, "", "")->status, 403, "%s", path);
    }
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/api/v1/queues/%s/letters/%s", q + 1,
                 i ? "replay" : "discard");
        cr_expect_eq(web_ask(&w, "POST", path, WEB_WRITE,
                             "{\"filter\":{\"match\":\"o\"},\"up_to\":"
                             "\"9000000000000000000.1\",\"expect_count\":1}")
                         ->status,
                     403);
    }
    cr_expect_null(strstr(web_get(&w, "/api/v1/letters/groups"), "order 0"));
    cr_expect_null(
        strstr(web_get(&w, "/api/v1/queues/%s/letters", q + 1), "order 0"));
    cr_expect_null(
        strstr(web_get(&w, "/api/v1/queues/%s/letters/1", q + 1), "order 0"));
    cr_expect_null(strstr(web_get(&w, "/api/v1/explain?id=1"), "order 0"));
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}
