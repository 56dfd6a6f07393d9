/* test_amqp_serve.c - mqctl serve beside the worker of a queue on a broker */
#define AMQP_BROKER 1
#define AMQP_SHARED
#include <ctype.h>

#include "tests/e2e/amqp/amqp_fixture.h"
#include "tests/e2e/serve/serve_fixture.h"

TestSuite(amqp_serve, .init = amqp_init, .fini = amqp_fini);

/* Percent-encode a text once. */
static void encoded(char *out, const char *text)
{
    for (; *text; text++)
        out += sprintf(out,
                       isalnum((unsigned char)*text) || strchr("-._~", *text)
                           ? "%c"
                           : "%%%02X",
                       (unsigned char)*text);
}

/* Return the queue as a segment of a path. */
static const char *in_path(void)
{
    static char once[1000], twice[3000];
    char shown[200];

    snprintf(shown, sizeof shown, "amqp://127.0.0.1:%u/%%2F/%s", amqp_port(1),
             amqp_queue);
    encoded(once, shown);
    encoded(twice, once);
    return twice;
}

/* Send an order for the queue. Returns the status of the answer. */
static int asked(const struct web *w, const char *order, const char *body)
{
    char path[1000];

    snprintf(path, sizeof path, "/api/v1/queues/%s/%s", in_path(), order);
    return web_ask(w, "POST", path, WEB_WRITE, body)->status;
}

Test(amqp_serve, the_same_answers_show_and_steer_it)
{
    struct harness_process *worker =
        amqp_worker("--", harness_handler("record"));
    const char *q = harness_queue(0, 0);
    struct harness_process *other = ctl_worker(q, "--", "true");
    struct web w = web_start("--allow-write");
    const char *text;

    amqp_send("x");
    harness_until_lines("runs", 1, 20000);
    harness_until(strstr(web_get(&w, "/api/v1/overview"), "\"looked\":true"),
                  20000);
    text = web_get(&w, "/api/v1/overview");
    cr_assert(strstr(text, "\"queue\":\"amqp://"), "%s", text);
    cr_assert(strstr(text, q), "and the other one: %s", text);
    cr_assert(strstr(web_get(&w, "/api/v1/queues"), "\"engine\":\"amqp\""));
    text = web_get(&w, "/api/v1/queues/%s", in_path());
    cr_assert(strstr(text, "\"state\":\"running\""), "%s", text);
    cr_assert_eq(asked(&w, "pause", "{\"for\": \"10m\"}"), 200);
    text = web_get(&w, "/api/v1/queues/%s", in_path());
    cr_assert(strstr(text, "\"state\":\"paused\""), "%s", text);
    amqp_send("y");
    cr_assert_eq(asked(&w, "resume", "{}"), 200);
    harness_until_lines("runs", 2, 20000);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
    cr_assert_eq(harness_stop(other, SOON_MS), 0);
}

Test(amqp_serve, what_is_on_the_broker_is_said_to_be_there)
{
    struct harness_process *worker =
        amqp_worker("--", harness_handler("record"));
    struct web w = web_start("--allow-write");
    char path[1000];
    const char *q = in_path();

    snprintf(path, sizeof path, "/api/v1/queues/%s/letters", q);
    cr_assert(strstr(web_ask(&w, "GET", path, "", "")->text,
                     "are on its broker; mqdlq list amqp://"));
    snprintf(path, sizeof path, "/api/v1/queues/%s/messages", q);
    cr_assert(strstr(web_ask(&w, "GET", path, "", "")->text,
                     "are on its broker; mqdlq list amqp://"));
    cr_assert_eq(asked(&w, "letters/replay", "{\"rows\": [\"1\"]}"), 400);
    cr_assert_eq(asked(&w, "letters/discard", "{\"rows\": [\"1\"]}"), 400);
    cr_assert_eq(asked(&w, "messages/cancel", "{\"ids\": [\"1\"]}"), 400);
    cr_assert_eq(asked(&w, "messages/run-now", "{\"ids\": [\"1\"]}"), 400);
    (void)web_get(&w, "/api/v1/letters/groups");
    (void)web_get(&w, "/api/v1/explain?id=1");
    (void)web_get(&w, "/queues/%s/dead", q);
    cr_assert_eq(
        web_ask(&w, "GET", "/api/v1/queues/amqp%253A%252F%252F", "", "")
            ->status,
        404);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}
