/* mqctl serve: ordered groups, on a page and in the API */
#include "tests/e2e/serve/serve_fixture.h"

TestSuite(serve_groups, .init = harness_init, .fini = harness_fini);

/* Send an order for a group; return the status of the answer. */
static int steered(const struct web *w, const char *q, const char *word,
                   const char *body)
{
    char path[256];

    snprintf(path, sizeof path, "/api/v1/queues/%s/groups/%s", q + 1, word);
    return web_ask(w, "POST", path, WEB_WRITE, body)->status;
}

/* Return whether a group is in that state. */
static bool group_is(const struct web *w, const char *q, const char *key,
                     const char *state, bool closing)
{
    json_t *o = ctl_json(web_get(w, "/api/v1/queues/%s/groups", q + 1)), *g;
    bool is = false;
    size_t i;

    json_array_foreach(json_object_get(o, "groups"), i, g)
    {
        const char *text = json_string_value(json_object_get(g, "state"));

        if (strcmp(json_string_value(json_object_get(g, "group")), key) == 0)
            is = strcmp(text, state) == 0 &&
                 json_is_true(json_object_get(g, "closing")) == closing;
    }
    json_decref(o);
    return is;
}

/* Start a worker whose group a<b> is held by letter 1 and whose group b waits
 * an hour for its next attempt; send one more message to each. */
static struct harness_process *mixed(const char *q)
{
    struct harness_process *w = ctl_worker(
        q, "--on-group-dead", "hold", "--backoff", "1h", "--", "sh", "-c",
        "read -r x; case $x in dead) exit 65;; no) exit 1;; "
        "esac; echo $x >>runs");

    harness_send_text(q, "MQW/1\ngroup: a<b>\n\ndead\n");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    harness_send_text(q, "MQW/1\ngroup: a<b>\n\nfirst\n");
    harness_send_text(q, "MQW/1\ngroup: b\n\nno\n");
    harness_until(ctl_number(q, "waiting") == 1, SOON_MS);
    harness_send_text(q, "MQW/1\ngroup: b\n\nsecond\n");
    return w;
}

Test(serve_groups, an_answer_says_what_holds_a_group)
{
    const char *q = harness_queue(0, 0), *text;
    struct harness_process *worker = mixed(q);
    struct web w = web_start(NULL);

    harness_until(group_is(&w, q, "a<b>", "held", false), SOON_MS);
    harness_until(group_is(&w, q, "b", "blocked", false), SOON_MS);
    text = web_get(&w, "/api/v1/queues/%s/groups?state=held", q + 1);
    cr_assert(strstr(text, "\"group\":\"a<b>\"") &&
                  strstr(text, "\"letter\":1,") && !strstr(text, "blocked"),
              "%s", text);
    text = web_get(&w, "/api/v1/queues/%s/groups?state=blocked,closing", q + 1);
    cr_assert(strstr(text, "\"group\":\"b\"") && !strstr(text, "a<b>"), "%s",
              text);
    harness_until(strstr(web_get(&w, "/api/v1/overview"), "\"blocked\":1,"),
                  2 * SOON_MS);
    cr_assert_eq(steered(&w, q, "release", "{\"group\":\"a<b>\"}"), 403);
    cr_assert_eq(
        web_ask(&w, "GET", "/api/v1/queues/none-such/groups", "", "")->status,
        404);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve_groups, one_is_released_closed_and_opened)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *worker = mixed(q);
    struct web w = web_start("--allow-write");

    harness_until(group_is(&w, q, "a<b>", "held", false), SOON_MS);
    cr_assert_eq(steered(&w, q, "release", "{\"group\":\"a<b>\"}"), 200);
    harness_until_lines("runs", 1, SOON_MS);
    cr_assert_eq(ctl_number(q, "dead"), 1, "release removed the letter");
    harness_until(group_is(&w, q, "b", "blocked", false), SOON_MS);
    cr_assert_eq(steered(&w, q, "close", "{\"group\":\"b\"}"), 200);
    cr_assert(group_is(&w, q, "b", "blocked", true));
    cr_assert_eq(steered(&w, q, "open", "{\"group\":\"b\"}"), 200);
    cr_assert(group_is(&w, q, "b", "blocked", false));
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve_groups, what_cannot_be_is_refused_with_the_tools_words)
{
    static const struct {
        const char *word, *body;
        int status;
    } wrong[] = {
        {"close", "{\"group\":\"none\"}", 404},
        {"release", "{\"group\":\"none\"}", 404},
        {"close", "{\"group\":\"\"}", 400},
        {"close", "{\"group\":7}", 400},
        {"close", "{}", 400},
        {"close", "[\"b\"]", 400},
        {"close", "nonsense", 400},
        {"remove", "{\"group\":\"b\"}", 404},
    };
    const char *q = harness_queue(0, 0);
    struct harness_process *worker = ctl_worker(q, "--", "true");
    struct web w = web_start("--allow-write");

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_assert_eq(steered(&w, q, wrong[i].word, wrong[i].body),
                     wrong[i].status, "%s %s", wrong[i].word, wrong[i].body);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve_groups, they_come_by_pages)
{
    enum { MANY = 105 };
    const char *q = harness_queue(0, 0);
    struct harness_process *worker =
        ctl_worker(q, "--backoff", "1h", "--", "false");
    struct web w = web_start(NULL);
    char text[64], next[1300] = "";
    size_t seen = 0, pages = 0;

    for (unsigned i = 0; i < MANY; i++) {
        snprintf(text, sizeof text, "MQW/1\ngroup: g%u\n\nx", i);
        harness_send_text(q, text);
    }
    harness_until(ctl_number(q, "waiting") == MANY, SOON_MS);
    do {
        json_t *o = ctl_json(
            web_get(&w, "/api/v1/queues/%s/groups?after=%s", q + 1, next));
        json_t *on = json_object_get(o, "next");

        seen += json_array_size(json_object_get(o, "groups"));
        pages++;
        snprintf(next, sizeof next, "%s",
                 json_is_string(on) ? json_string_value(on) : "");
        json_decref(o);
    } while (*next);
    cr_assert_eq(seen, MANY);
    cr_assert_eq(pages, 2);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}
