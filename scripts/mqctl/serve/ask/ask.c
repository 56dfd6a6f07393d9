/* ask.c - the body of a request, and its answer (see ask.h) */
#include "scripts/mqctl/serve/ask/ask.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/cli/complain.h"
#include "scripts/mqctl/serve/ask/history.h"

/* ---- the body, checked by one table ---- */

#define RATE_MOST 1000000

/* Type of a member's value. */
enum kind { ANY_TEXT, TEXT, TEXTS, COUNT, RATE, FLAG, FILTER, SETTING };
static const char *const kinds[] = {
    [ANY_TEXT] = "a text",
    [TEXT] = "a non-empty text",
    [TEXTS] = "a list of non-empty texts",
    [COUNT] = "a whole number from 0 up",
    [RATE] = "a whole number from 1 to 1000000",
    [FLAG] = "true or false",
    [FILTER] = "an object",
    [SETTING] = "a text or a whole number",
};

/* Members of a body, by route and, if a route has several orders, by order. A
 * route without a row takes only an empty object. */
static const struct member {
    enum serve_what what;
    const char *word; /* NULL: any order */
    const char *name; /* NULL: any name, checked by the worker */
    enum kind kind;
} members[] = {
    {SERVE_STEER, "pause", "for", TEXT},
    {SERVE_STEER, "pause", "until", TEXT},
    {SERVE_SET, NULL, NULL, SETTING},
    {SERVE_RUN_NOW, NULL, "ids", TEXTS},
    {SERVE_CANCEL, NULL, "ids", TEXTS},
    {SERVE_CANCEL, NULL, "running", FLAG},
    {SERVE_STEER_GROUP, NULL, "group", TEXT},
    {SERVE_REPLAY, NULL, "rows", TEXTS},
    {SERVE_REPLAY, NULL, "message_id", TEXT},
    {SERVE_REPLAY, NULL, "again", FLAG},
    {SERVE_REPLAY, NULL, "filter", FILTER},
    {SERVE_REPLAY, NULL, "up_to", TEXT},
    {SERVE_REPLAY, NULL, "expect_count", COUNT},
    {SERVE_REPLAY, NULL, "rate", RATE},
    {SERVE_REPLAY, NULL, "canary", FLAG},
    {SERVE_REPLAY, NULL, "reset_expiry", FLAG},
    {SERVE_EDIT, NULL, "body", ANY_TEXT},
    {SERVE_EDIT, NULL, "reset_expiry", FLAG},
    {SERVE_EDIT, NULL, "message_id", TEXT},
    {SERVE_DISCARD, NULL, "rows", TEXTS},
    {SERVE_DISCARD, NULL, "message_id", TEXT},
    {SERVE_DISCARD, NULL, "filter", FILTER},
    {SERVE_DISCARD, NULL, "up_to", TEXT},
    {SERVE_DISCARD, NULL, "expect_count", COUNT},
};
#define MEMBERS (sizeof members / sizeof *members)

static bool has_kind(const json_t *value, enum kind kind)
{
    const json_t *one;
    size_t i;

    switch (kind) {
    case ANY_TEXT:
        return json_is_string(value);
    case TEXT:
        return json_string_length(value) > 0;
    case TEXTS:
        json_array_foreach(value, i, one)
        {
            if (!has_kind(one, TEXT))
                return false;
        }
        return json_is_array(value);
    case COUNT:
        return json_is_integer(value) && json_integer_value(value) >= 0;
    case RATE:
        return json_is_integer(value) && json_integer_value(value) > 0 &&
               json_integer_value(value) <= RATE_MOST;
    case FLAG:
        return json_is_boolean(value);
    case FILTER:
        return json_is_object(value);
    case SETTING:
        return json_is_string(value) || json_is_integer(value);
    }
    return false;
}

static int member_check(const struct serve_ask *a, const char *name,
                        json_t *value, struct problem *p)
{
    char known[256] = "";
    const char *inner;
    json_t *text;
    size_t n = 0;

    for (size_t i = 0; i < MEMBERS; i++) {
        const struct member *m = &members[i];

        if (m->what != a->path.route->what ||
            (m->word && strcmp(m->word, a->path.word) != 0))
            continue; /* a member of another route or order */
        if (m->name && strcmp(m->name, name) != 0) {
            if (n < sizeof known)
                n += (size_t)snprintf(known + n, sizeof known - n, "%s%s",
                                      n ? ", " : "", m->name);
            continue;
        }
        if (!has_kind(value, m->kind))
            return problem_set(p, EX_USAGE, EINVAL, "%.64s must be %s", name,
                               kinds[m->kind]);
        if (m->kind != FILTER)
            return 0;
        json_object_foreach(value, inner, text)
        {
            if (serve_query_find(inner, QUERY_FILTER) == QUERY_COUNT)
                return problem_set(
                    p, EX_USAGE, EINVAL,
                    "filter: \"%.64s\" is not known; it can have %s", inner,
                    serve_query_list(QUERY_FILTER, known, sizeof known));
            if (!has_kind(text, TEXT))
                return problem_set(p, EX_USAGE, EINVAL, "filter: %s must be %s",
                                   inner, kinds[TEXT]);
        }
        return 0;
    }
    return problem_set(p, EX_USAGE, EINVAL,
                       "\"%.64s\" is not known here; the body can have %s",
                       name, n ? known : "no members");
}

json_t *ask_body_read(const struct serve_ask *a, struct problem *p)
{
    json_error_t where = {0};
    json_t *body = a->body_size ? json_loadb(a->body, a->body_size,
                                             JSON_REJECT_DUPLICATES, &where)
                                : json_object(),
           *value;
    const char *name;
    int err = 0;

    if (!json_is_object(body))
        err = problem_set(p, EX_USAGE, EINVAL,
                          body ? "the body is not a JSON object"
                               : "the body is not JSON, or has a name twice: "
                                 "line %d, column %d",
                          where.line, where.column);
    json_object_foreach(body, name, value)
    {
        if (!err)
            err = member_check(a, name, value, p);
    }
    if (!err)
        return body;
    json_decref(body);
    return NULL;
}

/* ---- the answer ---- */

/* Answer with the history. This process is a child of the server, and has a
 * copy of the server's history since the fork. */
static json_t *ask_history(const struct serve_ask *a, struct problem *p)
{
    const char *range = a->query[QUERY_RANGE] ? a->query[QUERY_RANGE] : "10m";
    json_t *o =
        queue_is_known(a, p) ? history_json(a->path.queue, range) : NULL;

    if (!o && !p->text[0])
        problem_fill(p, EX_USAGE, "range: \"%.32s\" is not 10m, 1h or 24h",
                     range);
    return o;
}

static json_t *(*const asks[])(const struct serve_ask *, struct problem *) = {
    [SERVE_FINDINGS] = ask_findings,
    [SERVE_DOCTOR] = ask_doctor,
    [SERVE_EXPLAIN] = ask_explain,
    [SERVE_BY_ERROR] = ask_by_error,
    [SERVE_QUEUES] = ask_queues,
    [SERVE_QUEUE] = ask_queue,
    [SERVE_HISTORY] = ask_history,
    [SERVE_SETTINGS] = ask_settings,
    [SERVE_MESSAGES] = ask_messages,
    [SERVE_MESSAGE] = ask_message,
    [SERVE_GROUPS] = ask_groups,
    [SERVE_LETTERS] = ask_letters,
    [SERVE_LETTER] = ask_letter,
    [SERVE_JOB_OUTCOME] = ask_outcome,
    [SERVE_RUN_NOW] = ask_steer_messages,
    [SERVE_CANCEL] = ask_steer_messages,
    [SERVE_STEER_GROUP] = ask_steer_group,
    [SERVE_SET] = ask_steer,
    [SERVE_STEER] = ask_steer,
};

int answer_print(void *ask)
{
    const struct serve_ask *a = ask;
    enum serve_what what = a->path.route->what;
    struct options all = {.serve.state_dirs = a->o->state_dirs};
    struct problem p = {0};
    json_t *data;
    char *text;

    if (what == SERVE_METRICS)
        return metrics_run(&all);
    if (what == SERVE_BODY)
        return ask_body(a);
    if (what == SERVE_REPLAY || what == SERVE_DISCARD)
        return ask_rows(a);
    if (what == SERVE_EDIT)
        return ask_edit(a);
    data = asks[what](a, &p);
    if (!data && p.text[0])
        return complain_of(&p);
    if (!data)
        return p.status ? p.status : complain_memory();
    text = json_dumps(data, SERVE_JSON);
    return text && puts(text) >= 0 ? 0 : complain_memory();
}
