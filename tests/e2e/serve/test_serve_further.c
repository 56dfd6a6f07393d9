/* test_serve_further.c - mqctl serve: filters that match old letters, and
 * unused queues */
#include <mqueue.h>
#include <sched.h>
#include <sys/mount.h>

#include "tests/e2e/serve/serve_fixture.h"
#include "tests/harness/preload.h"

TestSuite(serve_further, .init = preload_init, .fini = harness_fini);

enum { STEP = 2000, MANY = 2 * STEP + 100 };
static const char newest[] = "9000000000000000000.1";

/* Start a server whose clock leaps: no answer has time for a second step. */
static struct web hurried(void)
{
    char preload[PRELOAD_TEXT];

    return web_ready(harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("mqctl", "serve", "--state-dir",
                             harness_state_dir(), "--listen", "127.0.0.1:0"),
        .env = HARNESS_LIST(preload_text(preload, "clock_shift"),
                            "CLOCK_LEAP=60")}));
}

/* Ask from the newest letter back until an answer has a letter or nothing is
 * older. Return the number of answers; *found: letters in the last. An empty
 * answer says how far it looked, unless it is the last. */
static unsigned answers_until(const struct web *w, const char *q,
                              const char *filter, size_t *found)
{
    char next[64] = "";
    unsigned n = 0;
    json_t *o;

    snprintf(next, sizeof next, "%s", newest);
    for (*found = 0; *next && *found == 0; n++) {
        cr_assert_leq(n, MANY / STEP, "no end");
        o = ctl_json(web_get(w, "/api/v1/queues/%s/letters?%s&after=%s", q + 1,
                             filter, next));
        *found = json_array_size(json_object_get(o, "letters"));
        cr_assert_eq(json_integer_value(json_object_get(o, "dead")), MANY + 1);
        json_t *on = json_object_get(o, "next");
        cr_assert(*found ||
                  json_is_string(on) ==
                      json_is_string(json_object_get(o, "looked_to")));
        snprintf(next, sizeof next, "%s",
                 json_is_string(on) ? json_string_value(on) : "");
        json_decref(o);
    }
    return n;
}

/* "exit 9" matches one letter, which is older than thousands of others. */
Test(serve_further, an_old_letter_is_found_in_one_answer_or_from_link_to_link)
{
    struct harness_process *worker;
    const char *q = dead_letters(1, &worker);
    struct web w = web_start(NULL), slow = hurried();
    size_t found;

    letters_many(q, MANY);
    (void)answers_until(&w, q, "error=exit+9", &found);
    cr_assert_eq(found, 1);
    cr_assert_eq(answers_until(&slow, q, "error=exit+9", &found), 3);
    cr_assert_eq(found, 1);
    (void)answers_until(&w, q, "match=none", &found);
    cr_assert_eq(found, 0);
    cr_assert_eq(answers_until(&slow, q, "match=none", &found), 3);
    cr_assert_eq(found, 0);
    web_stop(&w);
    web_stop(&slow);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* Without a filter, or with times only, the first answer has letters. */
Test(serve_further, what_every_letter_matches_costs_no_search)
{
    struct harness_process *worker;
    const char *q = dead_letters(1, &worker);
    struct web slow = hurried();
    size_t found;

    letters_many(q, MANY);
    cr_assert_eq(answers_until(&slow, q, "limit=5", &found), 1);
    cr_assert_eq(found, 5);
    cr_assert_eq(answers_until(&slow, q, "until=2001-01-01", &found), 1);
    cr_assert_eq(found, 100);
    web_stop(&slow);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

/* Start a server whose clock is 11 minutes ahead. */
static struct web later(void)
{
    char preload[PRELOAD_TEXT], file[4096];

    harness_write("clock", "660", 3);
    snprintf(file, sizeof file, "CLOCK_SHIFT=%s", harness_path("clock"));
    return web_ready(harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("mqctl", "serve", "--state-dir",
                             harness_state_dir(), "--listen", "127.0.0.1:0"),
        .env = HARNESS_LIST(preload_text(preload, "clock_shift"), file)}));
}

/* Return the one finding about queues that no process has open, which the
 * caller frees; NULL: there is none. */
static json_t *orphans(const struct web *w)
{
    json_t *o = ctl_json(web_get(w, "/api/v1/findings")), *one, *found = NULL;
    size_t i;

    json_array_foreach(json_object_get(o, "findings"), i, one)
    {
        if (strcmp(json_string_value(json_object_get(one, "check")),
                   "orphans") != 0)
            continue;
        cr_assert_null(found, "two findings: %s",
                       web_get(w, "/api/v1/findings"));
        found = json_incref(one);
    }
    json_decref(o);
    return found;
}

/* Enter namespaces whose queues are in /dev/mqueue. */
static void own_queues(void)
{
    if (geteuid() != 0 || unshare(CLONE_NEWIPC | CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        cr_skip_test("no permission for a name space");
    (void)mount("none", "/dev/mqueue", "mqueue", 0, NULL);
}

/* The fix saves a beginner's messages before it speaks of deleting them. The id
 * of the finding stays the same when the numbers in it change. */
Test(serve_further, a_queue_that_nothing_has_open_is_one_finding_that_saves_it)
{
    struct mq_attr attr = {.mq_maxmsg = 3, .mq_msgsize = 16};
    struct web w, young;
    const char *text;
    json_t *id, *one;
    mqd_t q;

    own_queues();
    q = mq_open("/own", O_CREAT | O_RDWR, 0600, &attr);
    cr_assert_geq(q, 0);
    cr_assert_eq(mq_send(q, "x", 1, 0), 0);
    mq_close(q);
    young = web_start(NULL);
    cr_assert_null(orphans(&young));
    web_stop(&young);
    w = later();
    one = orphans(&w);
    cr_assert_not_null(one, "%s", web_get(&w, "/api/v1/findings"));
    cr_assert_str_eq(json_string_value(json_object_get(one, "fix")),
                     "mqworker /own -- COMMAND, or, to delete its 1 message: "
                     "mqctl remove --force /own");
    id = json_incref(json_object_get(one, "id"));
    json_decref(one);
    q = mq_open("/own", O_WRONLY);
    cr_assert_eq(mq_send(q, "x", 1, 0), 0);
    mq_close(q);
    harness_write("clock", "720000", 6);
    one = orphans(&w);
    cr_assert_not_null(one, "%s", web_get(&w, "/api/v1/findings"));
    text = json_string_value(json_object_get(one, "text"));
    cr_assert_not_null(strstr(text, "2 messages"), "%s", text);
    cr_assert(json_equal(id, json_object_get(one, "id")), "%s and %s",
              json_string_value(id),
              json_string_value(json_object_get(one, "id")));
    json_decref(id);
    json_decref(one);
    web_stop(&w);
    mq_unlink("/own");
}

/* A server may create queues, but may remove none. */
Test(serve_further, no_look_leaves_a_queue_behind)
{
    static const char *const errors[] = {
        "EMFILE",       "ENFILE", "EINVAL", "ENOSPC",    "EMSGSIZE", "EACCES",
        "EPERM",        "ENOSYS", "ENOENT", "EEXIST",    "enomem",   "EAGAIN",
        "ENAMETOOLONG", "EINTR",  "EBADF",  "ETIMEDOUT", "EBUSY"};
    struct harness_process *worker;
    struct web w;
    struct harness_result r;
    const char *q;
    char path[128];

    own_queues();
    q = dead_letters(1, &worker);
    w = web_start(NULL);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct web_answer *a;

        snprintf(path, sizeof path, "/api/v1/explain?id=%s", errors[i]);
        a = web_ask(&w, "GET", path, "", "");
        cr_expect(a->status == 400 && strstr(a->text, "run mqctl explain "),
                  "%s: %s", path, a->text);
    }
    cr_assert(strstr(web_get(&w, "/api/v1/doctor"), "by these sums"));
    (void)web_get(&w, "/api/v1/doctor?queue=%s", q + 1);
    (void)web_get(&w, "/api/v1/findings");
    r = ctl("queues", "--json");
    cr_assert(strstr(r.out, q) && !strstr(r.out, "/mqworker-probe-"), "%s",
              r.out);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}
