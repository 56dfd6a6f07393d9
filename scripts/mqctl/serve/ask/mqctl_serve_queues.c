/* mqctl_serve_queues.c - queues, messages and findings as JSON (see
 * mqctl_serve_ask.h) */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/text/complain.h"
#include "common/text/json_line.h"
#include "scripts/mqctl/mqctl_queue_list.h"
#include "scripts/mqctl/mqctl_snapshot.h"
#include "scripts/mqctl/serve/ask/mqctl_serve_ask.h"
#include "scripts/mqctl/serve/ask/mqctl_serve_history.h"

const char *const serve_query_names[QUERY_COUNT] = {
    [QUERY_AFTER] = "after",   [QUERY_LIMIT] = "limit", [QUERY_ERROR] = "error",
    [QUERY_REASON] = "reason", [QUERY_GROUP] = "group", [QUERY_MATCH] = "match",
    [QUERY_SINCE] = "since",   [QUERY_UNTIL] = "until", [QUERY_ID] = "id",
    [QUERY_QUEUE] = "queue",   [QUERY_STEP] = "step",
};

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

    if (queue_list_of_workers(&n, dir) < 0)
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
        problem_fill(p, EX_NOINPUT,
                     "there is no queue %s, and no worker has run on it; mqctl "
                     "queues lists those that are",
                     v.queue);
    else
        o = snapshot_tell(&v);
    if (o)
        json_object_set_new(o, "write", json_boolean(a->o->allow_write));
    snapshot_close(&v);
    return o;
}

/* ---- what verbs of mqctl print ---- */

/* lines_read - the objects of a file, one a line, added to a list */
static void lines_read(int fd, json_t *list)
{
    FILE *in = fdopen(fd, "r");
    char *line = NULL;
    size_t room = 0;

    if (!in) {
        close(fd);
        return;
    }
    rewind(in);
    while (getline(&line, &room, in) > 0)
        (void)json_array_append_new(list, json_loads(line, 0, NULL));
    free(line);
    fclose(in);
}

/* verb_run - run a verb, and add to `list` what it prints; its exit status */
static int verb_run(int (*verb)(const struct options *),
                    const struct options *o, json_t *list)
{
    int out = dup(STDOUT_FILENO);
    int fd = memfd_create("mqctl-verb", MFD_CLOEXEC);
    int status;

    fflush(stdout);
    if (out < 0 || fd < 0 || dup2(fd, STDOUT_FILENO) < 0)
        return complain(EX_OSERR, "cannot keep what %s prints: %s",
                        mqctl_table.verbs[o->line.verb].name, strerror(errno));
    status = verb(o);
    fflush(stdout);
    (void)dup2(out, STDOUT_FILENO);
    close(out);
    lines_read(fd, list);
    return status;
}

json_t *ask_doctor(const struct serve_ask *a, struct problem *p)
{
    json_t *all = json_array();

    (void)p;
    for (size_t i = 0; i < dir_count(a); i++) {
        struct options o = {.json = true, .state_dir = dir_at(a, i)};

        o.line.verb = VERB_DOCTOR;
        (void)verb_run(doctor_run, &o, all);
    }
    return json_pack("{s:o}", "findings", all);
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
    const char *id = a->query[QUERY_ID] ? a->query[QUERY_ID] : "";
    json_t *all = json_array(), *found = json_array(), *one;
    size_t i;

    (void)p;
    for (i = 0; *id && i < dir_count(a); i++)
        dir_explain(a, dir_at(a, i), all);
    json_array_foreach(all, i, one)
    {
        const char *where = json_string_value(json_object_get(one, "where"));

        if (where && strcmp(where, "unknown") != 0)
            json_array_append(found, one);
    }
    return json_pack("{s:s, s:i, s:o, s:o}", "id", id, "queues",
                     (int)json_array_size(all), "found", found, "all", all);
}

#define MESSAGES_MOST 100

json_t *ask_messages(const struct serve_ask *a, struct problem *p)
{
    char *operands[] = {(char *)a->path.queue};
    struct options o = {.json = true,
                        .limit = MESSAGES_MOST,
                        .filter.states = WAITING_ALL,
                        .after = a->query[QUERY_AFTER]};
    json_t *list = json_array(), *one;
    int status;
    size_t i;

    o.state_dir = ask_state_dir(a, a->path.queue);
    o.line.verb = VERB_LIST;
    o.line.operands = operands;
    o.line.operand_count = 1;
    status = verb_run(list_run, &o, list);
    json_array_foreach(list, i, one)
    {
        if (a->o->no_bodies)
            json_object_del(one, "body");
    }
    if (!status)
        return json_pack("{s:s, s:o, s:b}", "queue", a->path.queue, "messages",
                         list, "bodies", !a->o->no_bodies);
    json_decref(list);
    p->status = status; /* list_run has said why */
    p->text[0] = '\0';
    return NULL;
}

/* ---- steering ---- */

#define WORDS_MAX 32
#define WORD_SIZE 256

/* setting_word - NAME=VALUE of a member of the body; false: it cannot be one */
static bool setting_word(const char *name, const json_t *value,
                         char word[WORD_SIZE])
{
    int n = json_is_string(value) ? snprintf(word, WORD_SIZE, "%s=%s", name,
                                             json_string_value(value))
            : json_is_integer(value)
                ? snprintf(word, WORD_SIZE, "%s=%" JSON_INTEGER_FORMAT, name,
                           json_integer_value(value))
                : -1;

    return n > 0 && n < WORD_SIZE && !strpbrk(word, " \t\r\n");
}

/* steer_words - what stands after the queue on mqctl's command line; how many,
 * or -EINVAL */
static int steer_words(const struct serve_ask *a,
                       char words[WORDS_MAX][WORD_SIZE], struct problem *p)
{
    json_t *body = a->body_size ? json_loadb(a->body, a->body_size, 0, NULL)
                                : json_object(),
           *value;
    const char *name;
    int n = 0;

    if (!json_is_object(body))
        n = problem_set(p, EX_USAGE, EINVAL,
                        "the body is no JSON object; give {\"NAME\": "
                        "\"VALUE\"}, or {\"for\": \"10m\"} to pause");
    json_object_foreach(body, name, value)
    {
        bool pause = strcmp(a->path.word, "pause") == 0;
        bool ok = n >= 0 && n < WORDS_MAX &&
                  (a->path.route->what == SERVE_SETTINGS
                       ? setting_word(name, value, words[n])
                       : pause && strcmp(name, "for") == 0 && n == 0 &&
                             setting_word(name, value, words[n]));

        if (ok && pause)
            memmove(words[n], words[n] + 4, strlen(words[n] + 4) + 1);
        n = ok ? n + 1
               : problem_set(p, EX_USAGE, EINVAL,
                             "\"%.64s\" is not understood here, or its value "
                             "is no word and no whole number",
                             name);
        if (n < 0)
            break;
    }
    json_decref(body);
    return n;
}

json_t *ask_steer(const struct serve_ask *a, struct problem *p)
{
    static char words[WORDS_MAX][WORD_SIZE];
    char *operands[WORDS_MAX + 1] = {(char *)a->path.queue};
    struct options o = {.json = true};
    json_t *list = json_array(), *answer;
    int n = steer_words(a, words, p), status;
    bool set = a->path.route->what == SERVE_SETTINGS;

    o.state_dir = ask_state_dir(a, a->path.queue);
    o.line.verb = set ? VERB_SET : subcommand_find(&mqctl_table, a->path.word);
    o.line.operands = operands;
    if (n < 0)
        return NULL;
    if (set && n == 0) {
        problem_fill(p, EX_USAGE, "nothing to set; give {\"NAME\": \"VALUE\"}");
        return NULL;
    }
    for (int i = 0; i < n; i++)
        operands[i + 1] = words[i];
    o.line.operand_count = n + 1;
    status = verb_run(steer_run, &o, list);
    answer = json_incref(json_array_get(list, 0));
    json_decref(list);
    if (!status)
        return answer;
    json_decref(answer);
    p->status = status; /* steer_run has said why */
    p->text[0] = '\0';
    return NULL;
}
