/* test_amqp_serve.c - mqctl serve beside the worker of a queue on a broker */
#define AMQP_BROKER 1
#include <ctype.h>

#include "tests/e2e/amqp/amqp_fixture.h"
#include "tests/e2e/serve/serve_fixture.h"

TestSuite(amqp_serve, .init = amqp_init, .fini = amqp_fini);

/* encoded - percent-encoded, once */
static void encoded(char *out, const char *text)
{
    for (; *text; text++)
        out += sprintf(out,
                       isalnum((unsigned char)*text) || strchr("-._~", *text)
                           ? "%c"
                           : "%%%02X",
                       (unsigned char)*text);
}

/* in_path - the queue, as a segment of a path */
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

/* asked - an order for the queue; its status */
static int asked(const struct web *w, const char *order, const char *body)
{
    char path[1000];

    snprintf(path, sizeof path, "/api/v1/queues/%s/%s", in_path(), order);
    return web_ask(w, "POST", path, WEB_WRITE, body)->status;
}

Test(amqp_serve, the_same_pages_show_and_steer_it)
{
    struct harness_process *worker =
        amqp_worker("--", harness_handler("record"));
    const char *q = harness_queue(0, 0);
    struct harness_process *other = ctl_worker(q, "--", "true");
    struct web w = web_start("--allow-write");
    char link[1000];
    const char *page;

    amqp_send("x");
    harness_until_lines("runs", 1, 20000);
    snprintf(link, sizeof link, "<a href=\"/q/%s\">amqp://", in_path());
    page = web_get(&w, "/");
    cr_assert(strstr(page, link), "%s", page);
    cr_assert(strstr(page, q), "and the other one: %s", page);
    cr_assert(strstr(web_get(&w, "/api/v1/queues"), "\"engine\":\"amqp\""));
    page = web_get(&w, "/q/%s", in_path());
    cr_assert(strstr(page, "running"), "%s", page);
    cr_assert(strstr(page, "mqctl status amqp://"), "%s", page);
    cr_assert_eq(asked(&w, "pause", "{\"for\": \"10m\"}"), 200);
    page = web_get(&w, "/q/%s", in_path());
    cr_assert(strstr(page, "paused"), "%s", page);
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

    snprintf(path, sizeof path, "/q/%s/dead", q);
    cr_assert(strstr(web_ask(&w, "GET", path, "", "")->text,
                     "is on its broker; mqdlq list amqp://"));
    snprintf(path, sizeof path, "/api/v1/queues/%s/messages", q);
    cr_assert(strstr(web_ask(&w, "GET", path, "", "")->text,
                     "is on its broker; mqdlq list amqp://"));
    cr_assert_eq(asked(&w, "letters/replay", "{\"rows\": [\"1\"]}"), 400);
    cr_assert_eq(asked(&w, "letters/discard", "{\"rows\": [\"1\"]}"), 400);
    cr_assert_eq(asked(&w, "messages/cancel", "{\"ids\": [\"1\"]}"), 400);
    cr_assert_eq(asked(&w, "messages/run-now", "{\"ids\": [\"1\"]}"), 400);
    (void)web_get(&w, "/dead");
    (void)web_get(&w, "/find?id=1");
    cr_assert_eq(web_ask(&w, "GET", "/q/amqp%253A%252F%252F", "", "")->status,
                 404);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}
