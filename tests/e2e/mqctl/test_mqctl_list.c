/* test_mqctl_list.c - mqctl list: messages that run and wait, with and
 * without a worker */
#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(mqctl_list, .init = harness_init, .fini = harness_fini);

#define GATE "echo x >>started; while [ ! -e open ]; do sleep 0.02; done"

/* Each line of mqctl list --json, as an object; the test's to free. */
struct lines {
    json_t *at[64];
    size_t n;
};

static struct lines lines_of(const char *text)
{
    struct lines l = {.n = 0};

    for (; *text; text += strcspn(text, "\n") + 1) {
        cr_assert(l.n < 64);
        l.at[l.n++] = ctl_json(text);
    }
    return l;
}

static void lines_free(struct lines *l)
{
    for (size_t i = 0; i < l->n; i++)
        json_decref(l->at[i]);
}

static const char *text_at(const struct lines *l, size_t i, const char *field)
{
    return json_string_value(json_object_get(l->at[i], field));
}

/* Count the messages of a state; `flag` is one more option. */
static size_t count(const char *q, const char *flag, const char *value)
{
    struct lines l =
        lines_of(ctl_out("list", "--json", "--state", value, flag, q));
    size_t n = l.n;

    lines_free(&l);
    return n;
}
#define of_state(q, state) count(q, "-j", state)

static const char *send_group(const char *q, const char *group,
                              const char *body)
{
    static char ids[8][32];
    static unsigned next;
    char *id = ids[next++ % 8];

    snprintf(id, sizeof ids[0], "%.26s",
             ctl_good(harness_run("mqsend", "--print-id", "--group", group, q,
                                  body)));
    return id;
}

Test(mqctl_list, each_state_beside_a_worker_and_after_it)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--backoff", "1h", "--", "sh", "-c",
                   "read b; [ \"$b\" = fail ] && exit 3; " GATE);
    const char *failed = ctl_send(q, "fail\n"), *runs;
    struct lines l;

    harness_until(of_state(q, "retry") == 1, SOON_MS);
    ctl_good(harness_run("mqsend", "--delay", "1h", q, "later"));
    harness_until(of_state(q, "delayed") == 1, SOON_MS);
    runs = send_group(q, "g", "run\n");
    harness_until_lines("started", 1, SOON_MS);
    l = lines_of(ctl_out("list", "--json", q));
    cr_assert_eq(l.n, 3);
    cr_assert_str_eq(text_at(&l, 0, "state"), "running");
    cr_assert_str_eq(text_at(&l, 0, "id"), runs);
    cr_assert_str_eq(text_at(&l, 0, "group"), "g");
    cr_assert_str_eq(text_at(&l, 0, "body"), "run\n");
    cr_assert(json_integer_value(json_object_get(l.at[0], "pid")) > 0);
    cr_assert_eq(json_integer_value(json_object_get(l.at[0], "attempt")), 1);
    lines_free(&l);
    l = lines_of(ctl_out("list", "--json", "--error", "exit", q));
    cr_assert_eq(l.n, 1);
    cr_assert_str_eq(text_at(&l, 0, "id"), failed);
    cr_assert_str_eq(text_at(&l, 0, "error"), "exit 3");
    cr_assert(json_integer_value(json_object_get(l.at[0], "due_at_ns")) > 0);
    lines_free(&l);
    cr_assert_not_null(strstr(ctl_out("list", q), "retry"), "not in the table");

    harness_write("open", "", 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    l = lines_of(ctl_out("list", "--json", q));
    cr_assert_eq(l.n, 2, "without a worker");
    lines_free(&l);
}

Test(mqctl_list, what_is_behind_its_group_is_parked_wherever_it_lies)
{
    const char *q = harness_queue(4, 256);
    struct harness_process *w =
        ctl_worker(q, "-c", "2", "--lookahead", "4", "--backoff", "1h", "--",
                   "sh", "-c", "read b; exit 3");
    struct lines l;

    for (int i = 0; i < 8; i++)
        send_group(q, "g", "x\n");
    harness_until(of_state(q, "parked") == 7, SOON_MS);
    /* Some are in the store. The others may be in slots, or on their way
     * there. */
    harness_until(ctl_number(q, "parked") > 0, SOON_MS);
    cr_assert_eq(of_state(q, "parked"), 7);
    l = lines_of(ctl_out("list", "--json", q));
    cr_assert_eq(l.n, 8, "not each message once");
    lines_free(&l);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_list, a_held_group_says_so)
{
    const char *q = harness_queue(4, 256);
    struct harness_process *w =
        ctl_worker(q, "--on-group-dead", "hold", "--", "sh", "-c", "exit 65");

    send_group(q, "g", "a");
    send_group(q, "g", "b");
    harness_until(of_state(q, "held") == 1, SOON_MS);
    cr_assert_eq(of_state(q, "parked,ready,running"), 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_list, what_ran_when_the_worker_was_killed_is_ready)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--", "sh", "-c", GATE);

    ctl_send(q, "x");
    harness_until_lines("started", 1, SOON_MS);
    cr_assert_eq(of_state(q, "running"), 1);
    harness_kill(w);
    cr_assert_eq(of_state(q, "running"), 0);
    cr_assert_eq(of_state(q, "ready"), 1);
    harness_write("open", "", 0);
}

Test(mqctl_list, pages_by_cursor_have_each_message_once)
{
    const char *q = harness_queue(4, 256);
    struct harness_process *w = ctl_worker(q, "-c", "1", "--backoff", "1h",
                                           "--lookahead", "2", "--", "false");
    char seen[40][32], cursor[700] = "slot-0-0"; /* before all */
    size_t n = 0;
    struct lines l;

    for (int i = 0; i < 10; i++)
        ctl_send(q, "single");
    harness_until(of_state(q, "retry") == 10, SOON_MS);
    for (int i = 0; i < 8; i++)
        send_group(q, i % 2 ? "odd" : "even", "member");
    harness_until(of_state(q, "retry") == 12 && of_state(q, "parked") == 6,
                  SOON_MS);
    /* A live worker moves parked messages from slots to the store, behind pages
     * that were read already. */
    harness_kill(w);
    for (;;) {
        l = lines_of(
            ctl_out("list", "--json", "--limit", "3", "--after", cursor, q));
        if (l.n == 0)
            break;
        cr_assert(l.n <= 3);
        for (size_t i = 0; i < l.n; i++) {
            for (size_t k = 0; k < n; k++)
                cr_assert_str_neq(seen[k], text_at(&l, i, "id"));
            snprintf(seen[n++], 32, "%s", text_at(&l, i, "id"));
        }
        snprintf(cursor, sizeof cursor, "%s", text_at(&l, l.n - 1, "cursor"));
        lines_free(&l);
    }
    cr_assert_eq(n, 18);
    cr_assert_not_null(strstr(ctl("list", "--limit", "3", q).err, "--after "));
}

Test(mqctl_list, a_body_that_is_no_text_and_one_that_is_long)
{
    const char *q = harness_queue(2, 8192);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--backoff", "1h", "--", "false");
    static char body[6000];
    struct lines l;

    memset(body, 'y', sizeof body);
    harness_write("long", body, sizeof body);
    harness_write("bytes", "\0\xff", 2);
    cr_assert_eq(harness_run("mqsend", "--file", "bytes", q).status, 0);
    harness_until(of_state(q, "retry") == 1, SOON_MS);
    cr_assert_eq(harness_run("mqsend", "--file", "long", q).status, 0);
    harness_until(of_state(q, "retry") == 2, SOON_MS);
    l = lines_of(ctl_out("list", "--json", q));
    for (size_t i = 0; i < 2; i++) {
        bool cut = json_is_true(json_object_get(l.at[i], "body_cut"));
        json_int_t size = json_integer_value(json_object_get(l.at[i], "size"));

        cr_assert_eq(size, cut ? 6000 : 2);
        if (cut)
            cr_assert_eq(strlen(text_at(&l, i, "body")), 4096);
        else
            cr_assert_str_eq(text_at(&l, i, "body_base64"), "AP8=");
    }
    lines_free(&l);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_list, what_is_wrong_is_told)
{
    const char *q = harness_queue(0, 0);
    struct harness_result r = ctl("list", "--state", "asleep", q);

    cr_assert_eq(r.status, 64);
    cr_assert_not_null(strstr(r.err, "running, ready"), "%s", r.err);
    r = ctl("list", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(
        strstr(r.err, "no running or waiting message; messages "), "%s", r.err);
    r = ctl("list", "--match", "x", q);
    cr_assert_not_null(strstr(r.err, "no matching message"), "%s", r.err);
    r = ctl("list", "--since", "whenever", q);
    cr_assert_eq(r.status, 64);
    cr_assert_eq(harness_stop(ctl_worker(q, "--", "true"), SOON_MS), 0);
    r = ctl("list", "--after", "here", q);
    cr_assert_eq(r.status, 64);
    cr_assert_not_null(strstr(r.err, "is not a cursor"), "%s", r.err);
}

Test(mqctl_list, a_name_that_is_no_queue_is_told)
{
    static const char *const verbs[] = {"list", "groups"};
    static const char *const forms[] = {"--limit=5", "--json"};
    struct harness_result r;

    for (int i = 0; i < 4; i++) {
        r = ctl(verbs[i % 2], forms[i / 2], "/mqwt-no-such-queue");
        cr_assert_eq(r.status, 66, "%s: %s", verbs[i % 2], r.err);
        cr_assert_not_null(strstr(r.err, "no queue /mqwt-no-such-queue"));
        cr_assert_str_empty(r.out);
    }
}
