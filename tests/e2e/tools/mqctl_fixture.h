/* mqctl_fixture.h - run mqctl beside a worker
 *
 * WHAT   Runs mqctl on the test's state directory and parses its JSON.
 * WHO    Tests of tests/e2e that run mqctl.
 * OWNS   Nothing; see tests/harness/harness.h.
 * FAILS  By ending the test.
 */
#ifndef TESTS_MQCTL_FIXTURE_H
#define TESTS_MQCTL_FIXTURE_H

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/harness.h"

#define SOON_MS 20000

/* Run mqctl VERB --state-dir ... with more arguments. */
#define ctl(verb, ...)                                               \
    harness_run("mqctl", (verb), "--state-dir", harness_state_dir(), \
                __VA_ARGS__)
/* Run the same, which must succeed; return its stdout. */
#define ctl_out(verb, ...) ctl_good(ctl(verb, __VA_ARGS__))

static inline const char *ctl_good(struct harness_result r)
{
    cr_assert_eq(r.status, 0, "status %d: %s", r.status, r.err);
    return r.out;
}

/* Parse the first line of an output as an object; the test frees it. */
static inline json_t *ctl_json(const char *text)
{
    json_error_t error;
    json_t *o = json_loads(text, JSON_DISABLE_EOF_CHECK, &error);

    cr_assert(json_is_object(o), "no object: %s: %s", error.text, text);
    return o;
}

/* Return mqctl status --json QUEUE of a running worker. */
static inline json_t *ctl_status(const char *q)
{
    return ctl_json(ctl_out("status", "--json", q));
}

/* Return a number from the status. */
static inline long ctl_number(const char *q, const char *field)
{
    json_t *o = ctl_status(q), *value = json_object_get(o, field);
    long n;

    cr_assert(json_is_integer(value), "%s is no number", field);
    n = (long)json_integer_value(value);
    json_decref(o);
    return n;
}

/* Return true if a field of the status is that text. */
static inline bool ctl_is(const char *q, const char *field, const char *text)
{
    json_t *o = ctl_status(q);
    const char *value = json_string_value(json_object_get(o, field));
    bool is = value && strcmp(value, text) == 0;

    json_decref(o);
    return is;
}

/* Start mqworker and wait until it listens for mqctl. */
#define ctl_worker(q, ...) ctl_ready(harness_worker(q, __VA_ARGS__))

static inline struct harness_process *ctl_ready(struct harness_process *w)
{
    harness_wait_log(w, "event=started", SOON_MS);
    return w;
}

/* Send a message with an id; return the id. */
static inline const char *ctl_send(const char *q, const char *body)
{
    static char ids[8][32];
    static unsigned next;
    char *id = ids[next++ % 8];

    snprintf(id, sizeof ids[0], "%.26s",
             ctl_good(harness_run("mqsend", "--print-id", q, body)));
    return id;
}

#endif
