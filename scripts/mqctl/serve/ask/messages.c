/* messages.c - unfinished messages and ordered groups as JSON (see ask.h) */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/broker/broker_operand.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "scripts/mqctl/look/messages.h"
#include "scripts/mqctl/serve/ask/ask.h"

#define PAGE_MOST 100
#define PREVIEW   80          /* characters of a body in a list */
#define BODY_READ (64u << 10) /* bytes of a body that is shown alone */
#define IDS_MAX   500

int ask_kept_here(const char *queue, struct problem *p)
{
    return broker_operand_is(queue)
               ? problem_set(p, EX_USAGE, EINVAL,
                             "waiting messages and dead letters of %s are on "
                             "its broker; mqdlq list %s shows the letters",
                             queue, SHELL_QUEUE(queue))
               : 0;
}

/* Return a page of what a verb lists, from the cursor of the query on, and the
 * cursor of the next page (null: this is the last one). NULL: a problem, or the
 * verb has printed the reason. */
static json_t *page_list(const struct serve_ask *a, size_t verb,
                         int (*run)(const struct options *), json_t **next,
                         struct problem *p)
{
    char *operands[] = {(char *)a->path.queue};
    const char *after = a->query[QUERY_AFTER];
    struct options o = {
        .json = true,
        .limit = PAGE_MOST + 1, /* one more, to see whether a page follows */
        .filter.states = WAITING_ALL,
        .groups = (1u << GROUP_IS_COUNT) - 1,
        .after = after && *after ? after : NULL,
        .line = {.verb = verb, .operands = operands, .operand_count = 1}};
    json_t *list;

    if (ask_kept_here(a->path.queue, p) < 0)
        return NULL;
    /* The states of the query are read as --state of the verb. */
    for (size_t i = 0; a->query[QUERY_STATE] && i < mqctl_table.flag_count;
         i++) {
        const struct option_row *flag = &mqctl_table.flags[i];

        if (strcmp(flag->name, "state") == 0 && flag->verbs & 1u << verb &&
            option_read(flag, a->query[QUERY_STATE], &o, p) < 0)
            return NULL;
    }
    o.state_dir = ask_state_dir(a, a->path.queue);
    list = json_array();
    p->status = ask_verb(run, &o, list);
    p->text[0] = '\0';
    if (p->status) {
        json_decref(list);
        return NULL;
    }
    *next = json_null();
    if (json_array_size(list) > PAGE_MOST) {
        json_array_remove(list, PAGE_MOST);
        *next = json_incref(
            json_object_get(json_array_get(list, PAGE_MOST - 1), "cursor"));
    }
    return list;
}

/* ---- messages ---- */

/* Set the name that run-now and cancel take. A message in the spool has neither
 * an id nor a row; its name is its cursor, which has its key in the spool. */
static void name_set(json_t *m)
{
    const char *cursor = json_string_value(json_object_get(m, "cursor"));
    json_t *id = json_object_get(m, "id"), *row = json_object_get(m, "row");

    json_object_set_new(
        m, "name",
        json_is_string(id)                            ? json_incref(id)
        : cursor && strncmp(cursor, "spool-", 6) == 0 ? json_string(cursor)
        : json_is_integer(row)
            ? json_sprintf("%" JSON_INTEGER_FORMAT, json_integer_value(row))
            : json_null());
}

/* Remove the members with the body, which mqctl list --json prints. */
static void body_remove(json_t *m)
{
    json_object_del(m, "body");
    json_object_del(m, "body_base64");
    json_object_del(m, "body_cut");
}

json_t *ask_messages(const struct serve_ask *a, struct problem *p)
{
    json_t *next, *one, *list = page_list(a, VERB_LIST, list_run, &next, p);
    size_t i;

    if (!list)
        return NULL;
    json_array_foreach(list, i, one)
    {
        json_t *body = json_object_get(one, "body");
        const char *coded =
            json_string_value(json_object_get(one, "body_base64"));
        const char *bytes = json_string_value(body);
        size_t size = json_string_length(body), characters = 0;
        char *decoded = NULL;

        name_set(one);
        /* Replace the body, which may be base64, by its first characters. Each
         * is counted at its first byte of UTF-8. */
        if (coded)
            bytes = decoded = base64_decode(coded, strlen(coded), &size);
        for (size_t at = 0; bytes && at < size; at++) {
            characters += ((unsigned char)bytes[at] & 0xc0) != 0x80;
            if (characters > PREVIEW)
                size = at;
        }
        if (!a->o->no_bodies)
            json_object_set_new(one, "preview", ask_text(bytes, size, true));
        free(decoded);
        body_remove(one);
    }
    return json_pack("{s:o, s:o, s:o, s:b}", "queue",
                     json_printable(a->path.queue), "messages", list, "next",
                     next, "bodies", !a->o->no_bodies);
}

/* A search for one message by its name. */
struct wanted {
    const struct serve_ask *ask;
    struct messages m;
    json_t *found;
};

/* Visit: describe the message if it is the wanted one. */
static int message_whole(const struct message_seen *seen, void *arg)
{
    struct wanted *w = arg;
    json_t *o = message_json(w->m.queue, seen);
    struct store_row row = {0};
    char *data = NULL;
    struct ask_bytes bytes = {seen->header, seen->body, seen->header_size,
                              seen->body_size, seen->size};
    const char *name;
    int err = 0;

    name_set(o);
    name = json_string_value(json_object_get(o, "name"));
    if (!name || strcmp(w->ask->path.word, name) != 0) {
        json_decref(o);
        return 0;
    }
    /* The header of a row is read here, because a list does not need it. */
    if (!bytes.header && seen->row)
        err = store_get(w->m.store, seen->row, &row, NULL, 0, NULL);
    if (!bytes.header && seen->row && !err && (data = malloc(row.size + 1))) {
        err = store_get(w->m.store, seen->row, &row, data, row.size, NULL);
        bytes.header = data;
        bytes.header_size = row.header_size;
    }
    body_remove(o);
    if (!err)
        err = ask_whole(w->ask, o, w->m.store, seen->row, &bytes);
    free(data);
    w->found = o;
    return err ? err : VISIT_ENOUGH;
}

json_t *ask_message(const struct serve_ask *a, struct problem *p)
{
    char *operands[] = {(char *)a->path.queue};
    struct options o = {
        .state_dir = ask_state_dir(a, a->path.queue),
        .filter = {.states = WAITING_ALL, .body_most = BODY_READ},
        .line = {.verb = VERB_LIST, .operands = operands, .operand_count = 1}};
    struct wanted w = {.ask = a};
    int err;

    if (ask_kept_here(a->path.queue, p) < 0)
        return NULL;
    p->status = messages_open(&w.m, &o);
    if (p->status)
        return NULL;
    err = messages_each(&w.m, "", message_whole, &w);
    messages_close(&w.m);
    if (err == VISIT_ENOUGH)
        return w.found;
    if (err < 0)
        problem_fill(p, EX_IOERR, "cannot read the messages: %s; try again",
                     errno_text(-err));
    else
        problem_fill(p, EX_NOINPUT,
                     "%s has no running or waiting message %s; mqctl explain "
                     "%s shows what happened to it",
                     a->path.queue, a->path.word, a->path.word);
    return NULL;
}

json_t *ask_steer_messages(const struct serve_ask *a, struct problem *p)
{
    json_t *body = ask_body_read(a, p), *ids = json_object_get(body, "ids"),
           *one;
    char *operands[IDS_MAX + 1] = {(char *)a->path.queue};
    struct options o = {.json = true,
                        .running =
                            json_is_true(json_object_get(body, "running")),
                        .line.operands = operands};
    size_t n = json_array_size(ids), i;

    if (!body || ask_kept_here(a->path.queue, p) < 0)
        return NULL;
    json_array_foreach(ids, i, one)
    {
        if (n <= IDS_MAX)
            operands[++o.line.operand_count] = (char *)json_string_value(one);
    }
    if (n == 0 || n != (size_t)o.line.operand_count) {
        problem_fill(p, EX_USAGE,
                     "ids has no message, or too many; give {\"ids\": [\"ID\", "
                     "...]} with at most %d",
                     IDS_MAX);
        return NULL;
    }
    o.line.operand_count++;
    o.line.verb =
        a->path.route->what == SERVE_CANCEL ? VERB_CANCEL : VERB_RUN_NOW;
    return ask_order(a, steer_messages_run, &o, n, p);
}

/* ---- groups ---- */

json_t *ask_groups(const struct serve_ask *a, struct problem *p)
{
    json_t *next, *list = page_list(a, VERB_GROUPS, groups_run, &next, p);

    if (!list)
        return NULL;
    if (json_array_size(list) == 0 && !queue_is_known(a, p)) {
        json_decref(list);
        return NULL;
    }
    return json_pack("{s:o, s:o, s:o}", "queue", json_printable(a->path.queue),
                     "groups", list, "next", next);
}

json_t *ask_steer_group(const struct serve_ask *a, struct problem *p)
{
    static const char *const orders[3] = {"close", "open", "release"};
    json_t *body = ask_body_read(a, p);
    const char *key = json_string_value(json_object_get(body, "group"));
    char *operands[] = {(char *)a->path.queue, (char *)key,
                        (char *)a->path.word};
    struct options o = {
        .json = true, .line.operands = operands, .line.operand_count = 3};

    if (!ask_word_check(a->path.word, orders, p) || !body ||
        ask_kept_here(a->path.queue, p) < 0)
        return NULL;
    if (!key) {
        problem_fill(p, EX_USAGE, "no group named; give {\"group\": \"KEY\"}");
        return NULL;
    }
    o.line.verb = VERB_GROUP;
    return ask_order(a, group_run, &o, 0, p);
}
