/* test_mqctl_groups.c - mqctl groups, group: with and without a worker, and
 * beside its kills */
#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(mqctl_groups, .init = harness_init, .fini = harness_fini);

/* A handler that notes each body. "fail" fails, "wait" waits for the file
 * "open", "stay" for the file "leave". */
#define NOTE                                                                  \
    "read b; echo \"$b\" >>ran; case $b in fail) exit 1 ;; wait) while [ ! "  \
    "-e open ]; do sleep 0.02; done ;; stay) while [ ! -e leave ]; do sleep " \
    "0.02; done ;; esac"
#define WORKER(q, ...) \
    ctl_worker(q, "-c", "2", __VA_ARGS__, "--", "sh", "-c", NOTE)

static void send_to(const char *q, const char *key, const char *body)
{
    cr_assert_eq(harness_run("mqsend", "--group", key, q, body).status, 0);
}

static size_t notes(const char *word)
{
    return harness_exists("ran") ? harness_lines_with("ran", word) : 0;
}

/* Return the object of a group, which the caller frees; NULL: not listed. */
static json_t *group_of(const char *q, const char *key)
{
    const char *text = ctl_out("groups", "--json", "--group", key, q);

    return *text ? ctl_json(text) : NULL;
}

/* Return whether a group is listed with that state, and so many waiting. */
static bool is(const char *q, const char *key, const char *state, long waiting)
{
    json_t *o = group_of(q, key);
    bool yes =
        o &&
        strcmp(json_string_value(json_object_get(o, "state")), state) == 0 &&
        json_integer_value(json_object_get(o, "waiting")) == waiting;

    json_decref(o);
    return yes;
}

/* Count the groups of a state. */
static int listed(const char *q, const char *state)
{
    const char *text = ctl_out("groups", "--json", "--state", state, q);
    int n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

Test(mqctl_groups, each_state_with_what_waits)
{
    const char *q = harness_queue(0, 0), *out;
    struct harness_process *w = WORKER(q, "--backoff", "1h", "--on-group-dead",
                                       "hold", "--max-attempts", "2");
    struct harness_result r = ctl("groups", q);
    json_t *o;

    cr_assert_eq(r.status, 0);
    cr_assert_not_null(strstr(r.err, "has no group"), "%s", r.err);
    send_to(q, "busy", "wait\n");
    send_to(q, "busy", "second\n");
    harness_until(is(q, "busy", "running", 1), SOON_MS);
    send_to(q, "late", "fail\n");
    send_to(q, "late", "third\n");
    harness_until(is(q, "late", "blocked", 2), SOON_MS);
    cr_assert_not_null(strstr(ctl_out("groups", q), "blocked, retry in "));
    cr_assert_eq(ctl("run-now", "--group", "late", q).status, 0);
    harness_until(is(q, "late", "held", 1), SOON_MS);

    o = group_of(q, "late");
    cr_assert_gt(json_integer_value(json_object_get(o, "letter")), 0);
    cr_assert(json_is_string(json_object_get(o, "head")));
    json_decref(o);
    out = ctl_out("groups", q);
    cr_assert_not_null(strstr(out, "held by letter "), "%s", out);
    cr_assert_not_null(strstr(out, "KEY"), "%s", out);
    cr_assert_eq(listed(q, "running"), 1);
    cr_assert_eq(listed(q, "blocked"), 0);
    cr_assert_eq(listed(q, "running,held"), 2);
    harness_write("open", "", 0);
    harness_until(notes("second") == 1 && listed(q, "running") == 0, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_groups, pages_follow_each_other)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = WORKER(q, "--backoff", "1h");
    char key[16], cursor[64] = "group-", first[80] = "";
    struct harness_result r;
    json_t *o;

    for (int i = 0; i < 5; i++) {
        snprintf(key, sizeof key, "k%d", 4 - i);
        send_to(q, key, "fail\n");
    }
    harness_until(listed(q, "blocked") == 5, SOON_MS);
    for (int i = 0; i < 5; i++) {
        snprintf(key, sizeof key, "k%d", i);
        o = ctl_json(
            ctl_out("groups", "--json", "--limit", "1", "--after", cursor, q));
        cr_assert_str_eq(json_string_value(json_object_get(o, "group")), key);
        snprintf(cursor, sizeof cursor, "%s",
                 json_string_value(json_object_get(o, "cursor")));
        if (i == 0)
            snprintf(first, sizeof first, "--after %s", cursor);
        json_decref(o);
    }
    cr_assert_str_empty(ctl_out("groups", "--json", "--after", cursor, q));
    r = ctl("groups", "--limit", "1", q);
    cr_assert_not_null(strstr(r.err, first), "%s: %s", first, r.err);
    cr_assert_eq(ctl("groups", "--after", "group-6", q).status, 64);
    cr_assert_eq(ctl("groups", "--after", "spool-1", q).status, 64);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(listed(q, "blocked"), 5, "without a worker, too");
}

Test(mqctl_groups, one_that_is_closed_refuses_until_it_is_empty)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = WORKER(q, "--backoff", "1h");
    struct harness_result r;

    cr_assert_eq(ctl("group", q, "g", "close").status, 66, "nothing of it");
    send_to(q, "g", "wait\n");
    send_to(q, "g", "mine\n");
    harness_until(is(q, "g", "running", 1), SOON_MS);
    cr_assert_eq(ctl("group", q, "g", "close").status, 0);
    cr_assert_eq(listed(q, "closing"), 1);
    send_to(q, "g", "refused\n");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    r = harness_run("mqdlq", "list", "--state-dir", harness_state_dir(),
                    "--reason", "group-closed", q);
    cr_assert_not_null(strstr(r.out, "its group was closed"), "%s", r.out);
    cr_assert_eq(harness_log_count(w, "event=dead"), 1);
    cr_assert_eq(harness_log_count(w, "reason=group-closed"), 1);

    cr_assert_eq(ctl("group", q, "g", "open").status, 0);
    cr_assert_eq(listed(q, "closing"), 0);
    send_to(q, "g", "taken\n");
    harness_until(is(q, "g", "running", 2), SOON_MS);
    cr_assert_eq(ctl("group", "--json", q, "g", "close").status, 0);
    harness_write("open", "", 0);
    harness_until(notes("taken") == 1 && listed(q, "closing") == 0, SOON_MS);
    send_to(q, "g", "anew\n");
    harness_until(notes("anew") == 1, SOON_MS);
    cr_assert_eq(notes("refused"), 0);
    cr_assert_eq(ctl("group", q, "g", "open").status, 0, "it is so");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(ctl("group", q, "g", "close").status, 69, "needs a worker");
}

/* A letter of a refused message does not hold the group, even for a worker that
 * starts with --on-group-dead hold. */
Test(mqctl_groups, what_a_closed_group_refused_does_not_hold_it)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        WORKER(q, "--on-group-dead", "hold", "--max-attempts", "1", "--spool");

    send_to(q, "g", "wait\n");
    harness_until(is(q, "g", "running", 0), SOON_MS);
    cr_assert_eq(ctl("group", q, "g", "close").status, 0);
    send_to(q, "g", "refused\n");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    send_to(q, "h", "fail\n");
    harness_until(listed(q, "held") == 1, SOON_MS);
    harness_write("open", "", 0);
    harness_until(listed(q, "closing") == 0, SOON_MS);
    send_to(q, "g", "second\n");
    harness_until(notes("second") == 1, SOON_MS);
    cr_assert_eq(listed(q, "held"), 1);
    cr_assert_eq(ctl("group", q, "g", "release").status, 66, "it is not held");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(listed(q, "held"), 1, "without a worker, too");

    w = WORKER(q, "--on-group-dead", "hold", "--max-attempts", "1");
    harness_until(is(q, "h", "held", 0), SOON_MS);
    send_to(q, "g", "third\n");
    harness_until(notes("third") == 1, SOON_MS);
    cr_assert_eq(listed(q, "held"), 1);
    cr_assert_eq(harness_run("mqdlq", "replay", "--state-dir",
                             harness_state_dir(), "--reason", "group-closed", q)
                     .status,
                 0);
    harness_until(notes("refused") == 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* The letter that holds the group belongs to it, so the closed group takes it
 * back when it is replayed, and runs it first. */
Test(mqctl_groups, a_held_one_that_is_closed_goes_on_by_its_letter)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(
        q, "-c", "2", "--on-group-dead", "hold", "--max-attempts", "1", "--",
        "sh", "-c", "read b; echo \"$b\" >>ran; test $b != first -o -e open");

    send_to(q, "g", "first\n");
    send_to(q, "g", "second\n");
    send_to(q, "g", "third\n");
    harness_until(is(q, "g", "held", 2), SOON_MS);
    cr_assert_eq(ctl("group", q, "g", "close").status, 0);
    send_to(q, "g", "refused\n");
    harness_until(ctl_number(q, "dead") == 2, SOON_MS);
    harness_write("open", "", 0);
    cr_assert_eq(harness_run("mqdlq", "replay", "--state-dir",
                             harness_state_dir(), "--reason", "exhausted", q)
                     .status,
                 0);
    harness_until(notes("third") == 1 && listed(q, "closing") == 0, SOON_MS);
    cr_assert_str_eq(harness_read("ran", NULL),
                     "first\nfirst\nsecond\nthird\n");
    cr_assert_eq(ctl_number(q, "dead"), 1, "what was refused");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Where it is imported, the letter of a refused message holds no group. */
Test(mqctl_groups, what_a_closed_group_refused_is_imported_as_that)
{
    const char *q = harness_queue(0, 0), *other = harness_queue(0, 0);
    const char *const import[] = {
        "mqdlq", "import", "--state-dir", harness_state_dir(), other, NULL};
    struct harness_spec spec = {.argv = import};
    struct harness_process *w = WORKER(q, "--max-attempts", "1");
    struct harness_result r;

    send_to(q, "g", "wait\n");
    harness_until(is(q, "g", "running", 0), SOON_MS);
    cr_assert_eq(ctl("group", q, "g", "close").status, 0);
    send_to(q, "g", "refused\n");
    send_to(q, "h", "fail\n");
    harness_until(ctl_number(q, "dead") == 2, SOON_MS);
    harness_write("open", "", 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    r = harness_run("mqdlq", "export", "--state-dir", harness_state_dir(), q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    spec.input = r.out;
    spec.input_size = r.out_size;
    r = harness_run_spec(&spec);
    cr_assert_eq(r.status, 0, "%s", r.err);

    w = WORKER(other, "--on-group-dead", "hold", "--max-attempts", "1");
    harness_until(is(other, "h", "held", 0), SOON_MS);
    cr_assert_eq(listed(other, "held"), 1);
    send_to(other, "g", "goes on\n");
    harness_until(notes("goes on") == 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Without --on-group-dead hold, a dead letter does not hold its group. */
Test(mqctl_groups, none_is_shown_as_held_that_was_not)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = WORKER(q, "--max-attempts", "1");
    struct harness_result r;

    send_to(q, "g", "fail\n");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    cr_assert_eq(listed(q, "held"), 0);
    send_to(q, "g", "stay\n");
    send_to(q, "g", "behind\n");
    harness_until(is(q, "g", "running", 1), SOON_MS);
    harness_kill(w);
    cr_assert_eq(listed(q, "held"), 0, "nor without a worker");
    cr_assert(is(q, "g", "ready", 2));
    r = ctl("groups", q);
    cr_assert_not_null(strstr(r.err, "these groups are from its last"), "%s",
                       r.err);
    cr_assert_str_empty(ctl_out("list", "--json", "--state", "held", q));
}

Test(mqctl_groups, a_release_beside_a_worker)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        WORKER(q, "--on-group-dead", "hold", "--max-attempts", "1");
    struct harness_result r;

    send_to(q, "g", "fail\n");
    send_to(q, "g", "second\n");
    harness_until(is(q, "g", "held", 1), SOON_MS);
    cr_assert_eq(ctl("group", q, "other", "release").status, 66);
    r = ctl("group", q, "g", "release");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "1 dead letter is kept"), "%s", r.out);
    harness_until(notes("second") == 1, SOON_MS);
    cr_assert_eq(ctl_number(q, "dead"), 1);
    cr_assert_eq(ctl("group", q, "g", "release").status, 66, "once");
    send_to(q, "g", "fail\n");
    harness_until(is(q, "g", "held", 0), SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* A group that was released goes on, whenever the worker is killed. */
Test(mqctl_groups, a_release_outlives_kills)
{
    const char *q = harness_queue(0, 0);
    char body[32];

    for (int round = 0; round < 6; round++) {
        struct harness_process *w =
            WORKER(q, "--on-group-dead", "hold", "--max-attempts", "1");

        snprintf(body, sizeof body, "next%d.\n", round);
        send_to(q, "g", "fail\n");
        send_to(q, "g", body);
        harness_until(is(q, "g", "held", 1), SOON_MS);
        if (round % 2) { /* without a worker */
            harness_kill(w);
            harness_until(is(q, "g", "held", 1), SOON_MS);
            cr_assert_eq(ctl("group", q, "g", "release").status, 0);
        } else {
            cr_assert_eq(ctl("group", q, "g", "release").status, 0);
            harness_kill(w);
        }
        w = WORKER(q, "--on-group-dead", "hold", "--max-attempts", "1");
        body[strlen(body) - 1] = '\0';
        harness_until(notes(body) >= 1 && listed(q, "held") == 0, SOON_MS);
        harness_kill(w);
    }
}

Test(mqctl_groups, a_key_in_front_of_the_body)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "2", "--group-separator", ":", "--", "sh", "-c",
                   "echo x >>began; while [ ! -e open ]; do sleep 0.02; done");

    harness_send_text(q, "a b:one");
    harness_send_text(q, "a b:two");
    harness_until(is(q, "a b", "running", 1), SOON_MS);
    cr_assert_eq(ctl("group", q, "a b", "close").status, 0);
    cr_assert_eq(listed(q, "closing"), 1);
    harness_write("open", "", 0);
    harness_until(listed(q, "running,ready,closing") == 0, SOON_MS);
    cr_assert_eq(harness_lines_with("began", "x"), 2);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_groups, what_is_wrong_is_told)
{
    const char *q = harness_queue(0, 0);
    struct harness_result r = ctl("group", q, "g", "relase");

    cr_assert_eq(r.status, 64);
    cr_assert_not_null(strstr(r.err, "did you mean release"), "%s", r.err);
    cr_assert_eq(ctl("group", q, "", "close").status, 64);
    cr_assert_eq(ctl("groups", "--state", "parked", q).status, 64);
    r = ctl("groups", q);
    cr_assert_eq(r.status, 0, "nothing of it yet");
    cr_assert_str_eq(r.out, "", "no titles without a line below them");
    cr_assert_not_null(strstr(r.err, "no group with a due message"), "%s",
                       r.err);
    r = ctl("groups", "--state", "held", q);
    cr_assert_not_null(strstr(r.err, "no matching group"), "%s", r.err);
}

/* Return whether queue, spool, slots and handlers are empty. They are asked in
 * the order in which a message passes them, so that none is missed. */
static bool gone(const char *q)
{
    return ctl_number(q, "depth") == 0 && ctl_number(q, "spooled") == 0 &&
           ctl_number(q, "held") == 0 && ctl_number(q, "in_flight") == 0;
}

/* Count the messages of a group in the spool. */
static size_t on_disk(const char *q, const char *key)
{
    const char *text =
        ctl_out("list", "--json", "--state", "spooled", "--group", key, q);
    size_t n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Start a worker with a spool. A message of group g keeps its only handler. */
static struct harness_process *busy_spool(const char *q)
{
    struct harness_process *w =
        ctl_worker(q, "--spool", "-c", "1", "--", "sh", "-c", NOTE);

    send_to(q, "g", "wait\n");
    harness_until(notes("wait") == 1, SOON_MS);
    return w;
}

/* Messages from before the close are in the spool, where the worker does not
 * know their groups. They must run. */
Test(mqctl_groups, one_that_is_closed_has_what_was_spooled_before)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = busy_spool(q);
    struct harness_result r;

    for (int i = 0; i < 3; i++) {
        send_to(q, "g", "mine\n");
        send_to(q, "h", "other\n");
    }
    harness_until(on_disk(q, "g") == 3 && on_disk(q, "h") == 3, SOON_MS);
    harness_until(is(q, "g", "running", 3), SOON_MS);
    cr_assert(is(q, "h", "ready", 3), "all of it is in the spool");
    cr_assert_eq(listed(q, "ready"), 1);
    cr_assert_eq(ctl("group", q, "i", "close").status, 66, "nothing of it");
    r = ctl("group", q, "h", "close");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(ctl("group", q, "g", "close").status, 0);
    cr_assert_eq(listed(q, "closing"), 2);
    send_to(q, "g", "refused\n");
    send_to(q, "h", "refused\n");
    harness_until(ctl_number(q, "spooled") == 8, SOON_MS);

    harness_write("open", "", 0);
    harness_until(gone(q) && ctl_number(q, "dead") == 2, SOON_MS);
    cr_assert_eq(notes("mine"), 3);
    cr_assert_eq(notes("other"), 3);
    cr_assert_eq(notes("refused"), 0);
    harness_until(listed(q, "closing") == 0, SOON_MS); /* the close is over */
    send_to(q, "g", "anew\n");
    send_to(q, "h", "anew\n");
    harness_until(notes("anew") == 2, SOON_MS);
    cr_assert_eq(ctl_number(q, "dead"), 2);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* A close refuses what is received after it, no matter when its turn comes. */
Test(mqctl_groups, one_that_is_opened_and_closed_again_refuses_what_came_then)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = busy_spool(q);

    send_to(q, "g", "mine\n");
    send_to(q, "x", "between\n");
    harness_until(ctl_number(q, "spooled") == 2, SOON_MS);
    cr_assert_eq(ctl("group", q, "g", "close").status, 0);
    send_to(q, "g", "refused\n");
    send_to(q, "y", "wait\n");
    send_to(q, "z", "wait\n");
    harness_until(ctl_number(q, "spooled") == 5, SOON_MS);
    cr_assert_eq(ctl("group", q, "g", "open").status, 0);
    cr_assert_eq(ctl("group", q, "g", "close").status, 0, "not closed again");
    send_to(q, "g", "refused\n");
    harness_until(ctl_number(q, "spooled") == 6, SOON_MS);
    harness_write("open", "", 0);
    harness_until(gone(q) && ctl_number(q, "dead") == 1, SOON_MS);
    cr_assert_eq(notes("mine"), 1);
    cr_assert_eq(notes("refused"), 1, "one more ran, or none");
    send_to(q, "g", "anew\n");
    harness_until(notes("anew") == 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* The group's last message has ended; messages from after the close are in the
 * spool, to be refused. An open takes them. */
Test(mqctl_groups, one_that_is_opened_takes_what_its_close_would_refuse)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = busy_spool(q);

    send_to(q, "y", "stay\n");
    harness_until(on_disk(q, "y") == 1, SOON_MS);
    cr_assert_eq(ctl("group", q, "g", "close").status, 0);
    send_to(q, "g", "late\n");
    send_to(q, "g", "late\n");
    harness_until(on_disk(q, "g") == 2, SOON_MS);
    harness_write("open", "", 0);
    harness_until(notes("stay") == 1 && listed(q, "closing") == 0, SOON_MS);
    cr_assert_eq(on_disk(q, "g"), 2);
    cr_assert_eq(ctl("group", q, "g", "open").status, 0);
    harness_write("leave", "", 0);
    harness_until(gone(q), SOON_MS);
    cr_assert_eq(notes("late"), 2);
    cr_assert_eq(ctl_number(q, "dead"), 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}
