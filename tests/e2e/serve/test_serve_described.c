/* mqctl serve: what it answers is what docs/openapi.yaml says */
#include "tests/e2e/serve/serve_fixture.h"

TestSuite(serve_described, .init = harness_init, .fini = harness_fini,
          .timeout = 120);

/* description - the file, read once */
static const char *description(void)
{
    static char text[64 << 10];
    FILE *in = fopen("docs/openapi.yaml", "re");
    size_t n;

    cr_assert_not_null(in);
    n = fread(text, 1, sizeof text - 1, in);
    cr_assert(n > 0 && n < sizeof text - 1);
    text[n] = '\0';
    fclose(in);
    return text;
}

/* answer_name - of the components, what a GET of that path answers with */
static void answer_name(const char *text, const char *path, char name[64])
{
    static const char ref[] = "\"200\": {$ref: \"#/components/responses/";
    char start[128];
    const char *at;

    snprintf(start, sizeof start, "\n  %s:\n    get:\n", path);
    at = strstr(text, start);
    cr_assert_not_null(at, "no %s", path);
    at = strstr(at, ref);
    cr_assert_not_null(at);
    cr_assert_eq(sscanf(at + strlen(ref), "%63[a-z]", name), 1);
}

/* required - the members that an answer of that name must have, one after the
 * other; how many it has all of */
static unsigned required(const char *text, const char *name, const json_t *o)
{
    char start[128], member[64];
    const char *at, *end;
    unsigned n = 0;

    snprintf(start, sizeof start, "\n    %s: {description", name);
    at = strstr(text, start);
    cr_assert_not_null(at, "no %s", name);
    end = strchr(at + 1, '\n');
    at = strstr(at, "required: [");
    if (!at || at > end)
        return 0;
    at += strlen("required: [");
    for (; sscanf(at, "%63[a-z0-9_]", member) == 1; n++) {
        cr_assert_not_null(json_object_get(o, member), "%s has no %s", name,
                           member);
        at += strlen(member);
        at += strspn(at, ", ");
    }
    return n;
}

/* Each GET of the API but the body of a letter and the stream of events, which
 * are no JSON. {q} is the queue, {row} a letter of it. */
Test(serve_described, each_answer_has_what_is_described)
{
    static const char *const paths[] = {
        "/api/v1/queues",
        "/api/v1/queues/{q}",
        "/api/v1/queues/{q}/history",
        "/api/v1/queues/{q}/messages",
        "/api/v1/queues/{q}/groups",
        "/api/v1/queues/{q}/letters",
        "/api/v1/queues/{q}/letters/by-error",
        "/api/v1/queues/{q}/letters/{row}",
        "/api/v1/letters",
        "/api/v1/doctor",
        "/api/v1/jobs",
    };
    struct harness_process *worker;
    const char *q = dead_letters(1, &worker), *text = description();
    struct web w = web_start(NULL);
    unsigned members = 0;

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char path[256] = "", name[64];

        for (const char *at = paths[i]; *at; at++) {
            size_t n = strlen(path);

            if (*at != '{')
                snprintf(path + n, sizeof path - n, "%c", *at);
            else
                snprintf(path + n, sizeof path - n, "%s",
                         at[1] == 'q' ? q + 1 : "1");
            if (*at == '{')
                at = strchr(at, '}');
        }
        json_t *o = ctl_json(web_get(&w, "%s", path));
        answer_name(text, paths[i], name);
        members += required(text, name, o);
        json_decref(o);
    }
    cr_assert_geq(members, 35);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* An error is a problem, whoever asks for what. */
Test(serve_described, each_refusal_is_a_problem)
{
    static const struct {
        const char *method, *path, *more;
        int status;
    } wrong[] = {
        {"GET", "/api/v1/none", "", 404},
        {"GET", "/api/v1/queues/none", "", 404},
        {"GET", "/api/v1/queues/none/letters/1", "", 404},
        {"GET", "/api/v1/jobs/7", "", 404},
        {"GET", "/api/v1/queues/none/history?step=1y", "", 400},
        {"DELETE", "/api/v1/queues", WEB_WRITE, 405},
        {"POST", "/api/v1/queues/none/pause", "", 403},
        {"POST", "/api/v1/queues/none/pause", "X-MQ-Request: 1\r\n", 415},
        {"POST", "/api/v1/queues/none/pause", WEB_WRITE, 503},
        {"POST", "/api/v1/queues/none/sleep", WEB_WRITE, 404},
    };
    struct web w = web_start("--allow-write");
    const char *text = description();

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
    cr_assert(strstr(text, "required: [type, title, status, detail]"));
    web_stop(&w);
}
