/* queues.c - queues, messages and findings as JSON (see
 * ask.h) */
#include <bsd/string.h>
#include <errno.h>
#include <string.h>
#include <sysexits.h>

#include "common/broker/broker_operand.h"
#include "common/state/statedir.h"
#include "common/text/json_line.h"
#include "scripts/mqctl/look/snapshot.h"
#include "scripts/mqctl/queue_list.h"
#include "scripts/mqctl/serve/ask/ask.h"
#include "scripts/mqctl/serve/ask/history.h"
#include "scripts/mqctl/serve/ask/verb.h"

/* dir_at - the n-th state directory; none given: the usual one */
static const char *dir_at(const struct serve_ask *a, size_t n)
{
    return a->o->state_dirs.count ? a->o->state_dirs.at[n] : NULL;
}

static size_t dir_count(const struct serve_ask *a)
{
    return a->o->state_dirs.count ? a->o->state_dirs.count : 1;
}

const char *ask_state_dir(const struct serve_ask *a, const char *queue)
{
    static struct statedir dir;
    struct problem p;

    for (size_t i = 0; i < dir_count(a); i++)
        if (snapshot_folder(&dir, dir_at(a, i), queue, &p) == 0)
            return dir_at(a, i);
    return dir_at(a, 0);
}

/* ---- queues ---- */

/* snapshot_tell - as mqctl status --json, with why nothing is taken and with
 * what the last minutes were like */
static json_t *snapshot_tell(const struct snapshot *v)
{
    json_t *o = snapshot_json(v);
    const char *why = snapshot_why(v);

    json_object_set_new(o, "why", why ? json_string(why) : json_null());
    json_object_set_new(o, "recent", history_recent(v->queue));
    return o;
}

/* seen - whether the list has that queue already, of another directory */
static bool seen(const json_t *list, const char *queue)
{
    const json_t *one;
    size_t i;

    json_array_foreach(list, i, one)
    {
        if (strcmp(json_string_value(json_object_get(one, "queue")), queue) ==
            0)
            return true;
    }
    return false;
}

/* dir_queues - those of one state directory; its worker is not asked, which may
 * not answer for seconds, but its files */
static void dir_queues(json_t *list, json_t *troubles, const char *dir)
{
    struct queue_list n = {0};
    struct snapshot v;
    struct problem p;

    if (queue_list_of_all_workers(&n, dir) < 0)
        return;
    if (n.folder_trouble[0])
        json_array_append_new(troubles, json_string(n.folder_trouble));
    for (size_t i = 0; i < n.count; i++) {
        if (seen(list, n.at[i]) ||
            snapshot_open(&v, dir, n.at[i], false, &p) < 0)
            continue;
        json_array_append_new(list, snapshot_tell(&v));
        snapshot_close(&v);
    }
    queue_list_free(&n);
}

json_t *ask_queues(const struct serve_ask *a, struct problem *p)
{
    json_t *list = json_array(), *troubles = json_array();

    (void)p;
    for (size_t i = 0; i < dir_count(a); i++)
        dir_queues(list, troubles, dir_at(a, i));
    return json_pack("{s:o, s:o, s:b}", "queues", list, "troubles", troubles,
                     "write", a->o->allow_write);
}

json_t *ask_queue(const struct serve_ask *a, struct problem *p)
{
    const char *dir = ask_state_dir(a, a->path.queue);
    struct snapshot v;
    json_t *o = NULL;

    if (snapshot_open(&v, dir, a->path.queue, true, p) < 0)
        return NULL;
    if (!v.has_folder && !v.has_queue)
        queue_absent(v.dir.root, v.queue, p);
    else
        o = snapshot_tell(&v);
    if (o)
        json_object_set_new(o, "write", json_boolean(a->o->allow_write));
    snapshot_close(&v);
    return o;
}

bool queue_is_known(const struct serve_ask *a, struct problem *p)
{
    struct snapshot v;
    bool known;

    if (snapshot_open(&v, ask_state_dir(a, a->path.queue), a->path.queue, false,
                      p) < 0)
        return false;
    known = v.has_folder || v.has_queue;
    if (!known)
        queue_absent(v.dir.root, v.queue, p);
    snapshot_close(&v);
    return known;
}

/* ---- what verbs of mqctl print ---- */

/* Add doctor's findings with that state directory, for one queue or (NULL) for
 * all. */
static void doctor_add(json_t *findings, const char *dir, const char *queue)
{
    char *operands[] = {(char *)queue};
    struct options o = {.json = true, .look_only = true, .state_dir = dir};

    o.line.verb = VERB_DOCTOR;
    o.line.operands = operands;
    o.line.operand_count = queue != NULL;
    (void)verb_run(doctor_run, &o, findings);
}

/* Parse the queue named in a query, with or without its slash, into `out` as
 * the queue of a separate request. Returns false and a problem if there is no
 * such queue. */
static bool named_queue(const struct serve_ask *a, struct serve_ask *out,
                        struct problem *p)
{
    *out = *a;
    return snapshot_name(a->query[QUERY_QUEUE], out->path.queue, p) == 0 &&
           queue_is_known(out, p);
}

json_t *ask_doctor(const struct serve_ask *a, struct problem *p)
{
    const char *queue = a->query[QUERY_QUEUE];
    json_t *all = json_array();
    struct serve_ask named;

    if (queue && !named_queue(a, &named, p)) {
        json_decref(all);
        return NULL;
    }
    /* A queue on a broker is not checked, because that takes a request to the
     * broker. */
    if (queue && !broker_operand_is(queue))
        doctor_add(all, ask_state_dir(a, named.path.queue), named.path.queue);
    for (size_t i = 0; !queue && i < dir_count(a); i++)
        doctor_add(all, dir_at(a, i), NULL);
    return json_pack("{s:o}", "findings", all);
}

/* Copy a text without surrounding blanks, which a paste may contain. */
static void text_trim(const char *text, char *out, size_t room)
{
    size_t n;

    text += strspn(text, " \t\r\n");
    n = strlcpy(out, text, room);
    n = n < room ? n : room - 1;
    while (n > 0 && strchr(" \t\r\n", out[n - 1]))
        out[--n] = '\0';
}

/* dir_explain - look for a message in all queues of a directory */
static void dir_explain(const struct serve_ask *a, const char *dir,
                        json_t *found)
{
    struct queue_list n = {0};

    if (queue_list_of_workers(&n, dir) < 0)
        return;
    for (size_t i = 0; i < n.count; i++) {
        char *operands[] = {n.at[i], (char *)a->query[QUERY_ID]};
        struct options o = {.json = true, .state_dir = dir};

        if (a->query[QUERY_QUEUE] &&
            strcmp(a->query[QUERY_QUEUE], n.at[i]) != 0)
            continue;
        o.line.verb = VERB_EXPLAIN;
        o.line.operands = operands;
        o.line.operand_count = 2;
        (void)verb_run(explain_run, &o, found);
    }
    queue_list_free(&n);
}

json_t *ask_explain(const struct serve_ask *a, struct problem *p)
{
    struct serve_ask trimmed = *a;
    char id[128];
    json_t *all = json_array(), *found = json_array(), *one;
    size_t i;

    if (a->query[QUERY_QUEUE] && *a->query[QUERY_QUEUE]) {
        if (!named_queue(a, &trimmed, p))
            return NULL;
        trimmed.query[QUERY_QUEUE] = trimmed.path.queue;
    }
    text_trim(a->query[QUERY_ID] ? a->query[QUERY_ID] : "", id, sizeof id);
    trimmed.query[QUERY_ID] = id;
    for (i = 0; *id && i < dir_count(a); i++)
        dir_explain(&trimmed, dir_at(a, i), all);
    json_array_foreach(all, i, one)
    {
        const char *where = json_string_value(json_object_get(one, "where"));

        if (where && strcmp(where, "unknown") != 0 &&
            strcmp(where, "unseen") != 0)
            json_array_append(found, one);
    }
    return json_pack("{s:o, s:i, s:o, s:o}", "id", json_printable(id), "queues",
                     (int)json_array_size(all), "found", found, "all", all);
}
