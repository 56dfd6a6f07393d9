/* queues.c - queues, messages, findings and orders as JSON (see ask.h) */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/broker/broker_operand.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/state/statedir.h"
#include "scripts/mqctl/look/snapshot.h"
#include "scripts/mqctl/queue_list.h"
#include "scripts/mqctl/serve/ask/ask.h"
#include "scripts/mqctl/serve/ask/history.h"

/* ---- what a verb prints ---- */

/* Add the objects of a file, one a line, to a list. Returns false if memory ran
 * out before the end of the file. */
static bool objects_read(int fd, json_t *list)
{
    FILE *in = fdopen(fd, "r");
    char *line = NULL;
    size_t room = 0;
    bool whole;

    if (!in) {
        close(fd);
        return false;
    }
    rewind(in);
    while (getline(&line, &room, in) > 0)
        (void)json_array_append_new(list, json_loads(line, 0, NULL));
    whole = feof(in);
    free(line);
    fclose(in);
    return whole;
}

/* Add the objects that a verb prints to a list. Returns its exit status. */
static int verb_run(int (*verb)(const struct options *),
                    const struct options *o, json_t *list)
{
    int out = dup(STDOUT_FILENO);
    int fd = memfd_create("mqctl-verb", MFD_CLOEXEC);
    int status;

    fflush(stdout);
    if (out < 0 || fd < 0 || dup2(fd, STDOUT_FILENO) < 0)
        return complain(EX_OSERR, "cannot keep what %s prints: %s",
                        mqctl_table.verbs[o->line.verb].name,
                        errno_text(errno));
    status = verb(o);
    fflush(stdout);
    (void)dup2(out, STDOUT_FILENO);
    close(out);
    return objects_read(fd, list) ? status : complain_memory();
}

const char *ask_state_dir(const struct serve_ask *a, const char *queue)
{
    return snapshot_dir(a->o->state_dirs.at, a->o->state_dirs.count, queue);
}

/* ---- queues ---- */

/* Describe a queue as mqctl status --json does, with the reason why nothing is
 * taken and with recent rates. */
static json_t *queue_describe(const struct snapshot *v)
{
    json_t *o = snapshot_json(v);
    const char *why = snapshot_why(v);

    json_object_set_new(o, "why", why ? json_string(why) : json_null());
    json_object_set_new(o, "recent", history_recent(v->queue));
    return o;
}

/* Read the files of the workers. A worker that was asked might not answer for
 * seconds. */
json_t *ask_queues(const struct serve_ask *a, struct problem *p)
{
    json_t *list = json_array(), *troubles = json_array();
    struct queue_list n = {0};
    struct snapshot v;

    for (size_t i = 0; i < a->o->state_dirs.count; i++) {
        n.folder_trouble[0] = '\0';
        if (queue_list_of_all_workers(&n, a->o->state_dirs.at[i]) == 0 &&
            n.folder_trouble[0])
            json_array_append_new(troubles, json_string(n.folder_trouble));
    }
    for (size_t i = 0; i < n.count; i++)
        if (snapshot_open(&v, ask_state_dir(a, n.at[i]), n.at[i], false, p) ==
            0) {
            json_array_append_new(list, queue_describe(&v));
            snapshot_close(&v);
        }
    queue_list_free(&n);
    return json_pack("{s:o, s:o, s:b}", "queues", list, "troubles", troubles,
                     "write", a->o->allow_write);
}

/* Open the snapshot of the queue of the path. With `ask_worker`, ask its
 * worker. Returns false and a problem if the queue is unknown. */
static bool queue_look(const struct serve_ask *a, bool ask_worker,
                       struct snapshot *v, struct problem *p)
{
    if (snapshot_open(v, ask_state_dir(a, a->path.queue), a->path.queue,
                      ask_worker, p) < 0)
        return false;
    if (v->has_folder || v->has_queue)
        return true;
    queue_absent(v->dir.root, v->queue, p);
    snapshot_close(v);
    return false;
}

json_t *ask_queue(const struct serve_ask *a, struct problem *p)
{
    struct snapshot v;
    json_t *o;

    if (!queue_look(a, true, &v, p))
        return NULL;
    o = queue_describe(&v);
    json_object_set_new(o, "write", json_boolean(a->o->allow_write));
    snapshot_close(&v);
    return o;
}

bool queue_is_known(const struct serve_ask *a, struct problem *p)
{
    struct snapshot v;

    if (!queue_look(a, false, &v, p))
        return false;
    snapshot_close(&v);
    return true;
}

/* ---- what verbs of mqctl print ---- */

/* Add doctor's findings with that state directory, for one queue or (NULL) for
 * all. */
static void doctor_add(json_t *findings, const char *dir, const char *queue)
{
    char *operands[] = {(char *)queue};
    struct options o = {.json = true,
                        .look_only = true,
                        .state_dir = dir,
                        .line = {.verb = VERB_DOCTOR,
                                 .operands = operands,
                                 .operand_count = queue != NULL}};

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
    for (size_t i = 0; !queue && i < a->o->state_dirs.count; i++)
        doctor_add(all, a->o->state_dirs.at[i], NULL);
    return json_pack("{s:o}", "findings", all);
}

/* Look for a message in all queues of a directory. */
static void directory_explain(const struct serve_ask *a, const char *dir,
                              json_t *found)
{
    struct queue_list n = {0};

    if (queue_list_of_workers(&n, dir) < 0)
        return;
    for (size_t i = 0; i < n.count; i++) {
        char *operands[] = {n.at[i], (char *)a->query[QUERY_ID]};
        struct options o = {.json = true,
                            .state_dir = dir,
                            .line = {.verb = VERB_EXPLAIN,
                                     .operands = operands,
                                     .operand_count = 2}};

        if (!a->query[QUERY_QUEUE] ||
            strcmp(a->query[QUERY_QUEUE], n.at[i]) == 0)
            (void)verb_run(explain_run, &o, found);
    }
    queue_list_free(&n);
}

json_t *ask_explain(const struct serve_ask *a, struct problem *p)
{
    static const char blanks[] = " \t\r\n"; /* which a paste may contain */
    const char *queue = a->query[QUERY_QUEUE], *text = a->query[QUERY_ID];
    struct serve_ask trimmed = *a;
    char id[128];
    json_t *all = json_array(), *found = json_array(), *one;
    size_t i, n;

    if (queue && *queue && !named_queue(a, &trimmed, p))
        return NULL;
    trimmed.query[QUERY_QUEUE] = queue && *queue ? trimmed.path.queue : NULL;
    n = text ? strlcpy(id, text + strspn(text, blanks), sizeof id) : 0;
    n = n < sizeof id ? n : sizeof id - 1;
    while (n > 0 && strchr(blanks, id[n - 1]))
        n--;
    id[n] = '\0';
    trimmed.query[QUERY_ID] = id;
    for (i = 0; *id && i < a->o->state_dirs.count; i++)
        directory_explain(&trimmed, a->o->state_dirs.at[i], all);
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

/* ---- messages and groups ---- */

#define PAGE_MOST 100

int ask_kept_here(const char *queue, struct problem *p)
{
    return broker_operand_is(queue)
               ? problem_set(p, EX_USAGE, EINVAL,
                             "what waits and what is dead of %s is on its "
                             "broker; mqdlq list %s shows its dead letters",
                             queue, SHELL_QUEUE(queue))
               : 0;
}

/* Remove the object beyond a page, if there is one. Returns the cursor of the
 * next page, or null. */
static json_t *page_cut(json_t *list)
{
    if (json_array_size(list) <= PAGE_MOST)
        return json_null();
    json_array_remove(list, PAGE_MOST);
    return json_incref(
        json_object_get(json_array_get(list, PAGE_MOST - 1), "cursor"));
}

/* Return a page of what a verb lists, from the cursor of the query on. NULL:
 * the verb has printed the reason. */
static json_t *page_list(const struct serve_ask *a, size_t verb,
                         int (*run)(const struct options *), struct problem *p)
{
    char *operands[] = {(char *)a->path.queue};
    const char *after = a->query[QUERY_AFTER];
    struct options o = {
        .json = true,
        .limit = PAGE_MOST + 1,
        .filter.states = WAITING_ALL,
        .groups = (1u << GROUP_IS_COUNT) - 1,
        .after = after && *after ? after : NULL,
        .line = {.verb = verb, .operands = operands, .operand_count = 1}};
    json_t *list;

    if (ask_kept_here(a->path.queue, p) < 0)
        return NULL;
    o.state_dir = ask_state_dir(a, a->path.queue);
    list = json_array();
    p->status = verb_run(run, &o, list);
    p->text[0] = '\0';
    if (!p->status)
        return list;
    json_decref(list);
    return NULL;
}

json_t *ask_messages(const struct serve_ask *a, struct problem *p)
{
    json_t *list = page_list(a, VERB_LIST, list_run, p), *one, *next;
    size_t i;

    if (!list)
        return NULL;
    json_array_foreach(list, i, one)
    {
        if (a->o->no_bodies)
            json_object_del(one, "body");
    }
    next = page_cut(list);
    return json_pack("{s:o, s:o, s:o, s:b}", "queue",
                     json_printable(a->path.queue), "messages", list, "next",
                     next, "bodies", !a->o->no_bodies);
}

json_t *ask_groups(const struct serve_ask *a, struct problem *p)
{
    json_t *list = page_list(a, VERB_GROUPS, groups_run, p), *next;

    if (!list)
        return NULL;
    if (json_array_size(list) == 0 && !queue_is_known(a, p)) {
        json_decref(list);
        return NULL;
    }
    next = page_cut(list);
    return json_pack("{s:o, s:o, s:o}", "queue", json_printable(a->path.queue),
                     "groups", list, "next", next);
}

/* ---- orders ---- */

#define WORDS_MAX 32
#define WORD_SIZE 256

/* Print one member of a body as a word of mqctl's command line: NAME=VALUE for
 * a setting, only the duration for a pause. */
static int word_write(bool setting, const char *name, const json_t *value,
                      char word[WORD_SIZE], struct problem *p)
{
    char number[JSON_TEXT];
    const char *text = json_as_text(value, number);
    uint64_t now = clock_wall_ns(), end;
    int size;

    if (!setting && strcmp(name, "until") == 0) {
        if (time_parse(text, now, &end) < 0 || end <= now)
            return problem_set(p, EX_USAGE, EINVAL,
                               "until: \"%.64s\" is not a time in the future; "
                               "give one like 2026-12-24T18:00+01:00",
                               text);
        end = (end - now + NS_PER_MS - 1) / NS_PER_MS * NS_PER_MS;
        duration_print(end, word);
        return 0;
    }
    size = snprintf(word, WORD_SIZE, "%s%s%s", setting ? name : "",
                    setting ? "=" : "", text);
    return size < WORD_SIZE && !strpbrk(word, " \t\r\n")
               ? 0
               : problem_set(
                     p, EX_USAGE, EINVAL,
                     "%.64s: the value is too long or has a space in it", name);
}

/* Print the words after the queue on mqctl's command line. Returns the number
 * of words, or -EINVAL. */
static int steer_words(const struct serve_ask *a,
                       char words[WORDS_MAX][WORD_SIZE], struct problem *p)
{
    bool set = a->path.route->what == SERVE_SETTINGS;
    json_t *body = ask_body_read(a, p), *value;
    const char *name;
    int n = body ? 0 : -EINVAL;

    json_object_foreach(body, name, value)
    {
        if (n == (set ? WORDS_MAX : 1))
            n = problem_set(p, EX_USAGE, EINVAL,
                            set ? "more than %d settings"
                                : "for and until exclude each other",
                            WORDS_MAX);
        else if (word_write(set, name, value, words[n], p) < 0)
            n = -EINVAL;
        else
            n++;
        if (n < 0)
            break;
    }
    json_decref(body);
    return n;
}

/* Run a verb of mqctl for the queue of the path. Returns the object that it
 * printed; NULL: it has printed the reason. With `named`, a status is no
 * failure if the numbers in the object cover that many messages. */
static json_t *order_run(const struct serve_ask *a,
                         int (*verb)(const struct options *), struct options *o,
                         size_t named, struct problem *p)
{
    /* What became of a message: gone and in flight are answers. */
    static const char *const parts[] = {"done", "already", "gone", "in_flight",
                                        "spooled"};
    json_t *list = json_array(), *answer;
    json_int_t sum = 0;

    o->state_dir = ask_state_dir(a, a->path.queue);
    p->status = verb_run(verb, o, list);
    p->text[0] = '\0';
    answer = json_incref(json_array_get(list, 0));
    json_decref(list);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        sum += json_integer_value(json_object_get(answer, parts[i]));
    if (!p->status || (named && sum == (json_int_t)named))
        return answer;
    json_decref(answer);
    return NULL;
}

/* Return true if the word of a route is one of three; else fill a problem. */
static bool word_check(const char *word, const char *const words[3],
                       struct problem *p)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    problem_fill(p, EX_NOINPUT, "%s, %s and %s are there", words[0], words[1],
                 words[2]);
    return false;
}

json_t *ask_steer(const struct serve_ask *a, struct problem *p)
{
    static const char *const orders[3] = {"pause", "resume", "drain"};
    static char words[WORDS_MAX][WORD_SIZE];
    char *operands[WORDS_MAX + 1] = {(char *)a->path.queue};
    struct options o = {.json = true, .line.operands = operands};
    bool set = a->path.route->what == SERVE_SETTINGS;
    int n;

    if (!set && !word_check(a->path.word, orders, p))
        return NULL;
    n = steer_words(a, words, p);
    if (n < 0)
        return NULL;
    o.line.verb = set ? VERB_SET : subcommand_find(&mqctl_table, a->path.word);
    if (set && n == 0) {
        problem_fill(p, EX_USAGE, "nothing to set; give {\"NAME\": \"VALUE\"}");
        return NULL;
    }
    for (int i = 0; set && i < n; i++)
        operands[i + 1] = words[i];
    o.line.operand_count = set ? n + 1 : 1;
    o.pause_for = !set && n > 0 ? words[0] : NULL;
    return order_run(a, steer_run, &o, 0, p);
}

/* ---- messages that wait ---- */

#define IDS_MAX 500

json_t *ask_steer_messages(const struct serve_ask *a, struct problem *p)
{
    json_t *body = ask_body_read(a, p), *ids = json_object_get(body, "ids"),
           *one;
    char *operands[IDS_MAX + 1] = {(char *)a->path.queue};
    struct options o = {.json = true, .line.operands = operands};
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
                     "no message chosen; give {\"ids\": [\"ID\", ...]}, %d at "
                     "most",
                     IDS_MAX);
        return NULL;
    }
    o.line.operand_count++;
    o.line.verb =
        a->path.route->what == SERVE_CANCEL ? VERB_CANCEL : VERB_RUN_NOW;
    return order_run(a, steer_messages_run, &o, n, p);
}

/* ---- one group ---- */

json_t *ask_steer_group(const struct serve_ask *a, struct problem *p)
{
    static const char *const orders[3] = {"close", "open", "release"};
    json_t *body = ask_body_read(a, p);
    const char *key = json_string_value(json_object_get(body, "group"));
    char *operands[] = {(char *)a->path.queue, (char *)key,
                        (char *)a->path.word};
    struct options o = {
        .json = true, .line.operands = operands, .line.operand_count = 3};

    if (!word_check(a->path.word, orders, p) || !body ||
        ask_kept_here(a->path.queue, p) < 0)
        return NULL;
    if (!key) {
        problem_fill(p, EX_USAGE, "no group named; give {\"group\": \"KEY\"}");
        return NULL;
    }
    o.line.verb = VERB_GROUP;
    return order_run(a, group_run, &o, 0, p);
}
