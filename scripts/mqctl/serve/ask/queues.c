/* queues.c - queues, settings, findings and orders as JSON (see ask.h) */
#include <ctype.h>
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
#include "scripts/mqctl/look/doctor.h"
#include "scripts/mqctl/look/snapshot.h"
#include "scripts/mqctl/queue_list.h"
#include "scripts/mqctl/serve/ask/ask.h"

/* ---- what a verb prints ---- */

int ask_verb(int (*verb)(const struct options *), const struct options *o,
             json_t *list)
{
    int out = dup(STDOUT_FILENO);
    int fd = memfd_create("mqctl-verb", MFD_CLOEXEC);
    char *line = NULL;
    size_t room = 0;
    FILE *in;
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
    in = fdopen(fd, "r");
    if (!in) {
        close(fd);
        return complain_memory();
    }
    rewind(in);
    while (getline(&line, &room, in) > 0) /* one object on each line */
        (void)json_array_append_new(list, json_loads(line, 0, NULL));
    if (!feof(in))
        status = complain_memory();
    free(line);
    fclose(in);
    return status;
}

const char *ask_state_dir(const struct serve_ask *a, const char *queue)
{
    return snapshot_dir(a->o->state_dirs.at, a->o->state_dirs.count, queue);
}

/* ---- queues ---- */

/* Describe a queue as mqctl status --json does, with the reason why nothing is
 * taken. */
static json_t *queue_describe(const struct snapshot *v)
{
    json_t *o = snapshot_json(v);
    const char *why = snapshot_why(v);

    json_object_set_new(o, "why", why ? json_string(why) : json_null());
    return o;
}

/* Describe all queues by the files of their workers. No worker is asked,
 * because it might not answer for seconds. */
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
    json_object_set(o, "ages", json_object_get(a->look, "ages"));
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

/* ---- settings ---- */

#define KEEP_ROOM 4096 /* flags that keep changed settings at a restart */

/* Fields of a line of mqworker --options-dump (common/cli/options.c). */
enum dumped {
    DUMPED_NAME = 2,
    DUMPED_VALUE = 6,
    DUMPED_HELP = 8,
    DUMPED_LIVE,
    DUMPED_PRESET,
    DUMPED_UNDER,
    DUMPED_COUNT
};

/* Return a text, or null for "". */
static json_t *text_or_null(const char *text)
{
    return *text ? json_string(text) : json_null();
}

json_t *ask_settings(const struct serve_ask *a, struct problem *p)
{
    const char *field[DUMPED_COUNT], *under = "Options", *name, *text;
    json_t *list = json_array(), *flags, *now, *changed, *preset, *started;
    char keep[KEEP_ROOM] = "", *dump, *rest, *line, number[JSON_TEXT];
    struct snapshot v;
    size_t i = 0;

    if (!queue_look(a, true, &v, p))
        return NULL;
    while (strcmp(serve_files[i].name, "settings.tsv") != 0)
        i++;
    dump = rest = strdup((const char *)serve_files[i].bytes);
    flags = json_object_get(json_object_get(v.live, "runs"), "flags");
    while ((line = strsep(&rest, "\n")) != NULL) {
        int n = 0;

        while (n < DUMPED_COUNT && (field[n] = strsep(&line, "\t")) != NULL)
            n++;
        if (n < DUMPED_COUNT || strcmp(field[0], "flag") != 0)
            continue;
        if (*field[DUMPED_UNDER])
            under = field[DUMPED_UNDER];
        name = field[DUMPED_NAME];
        preset = text_or_null(field[DUMPED_PRESET]);
        now = json_object_get(json_object_get(v.live, "settings"), name);
        changed =
            json_object_get(json_object_get(v.live, "settings_changed"), name);
        /* The worker reports all settings that can change while it runs. Of the
         * others it reports those on its command line. */
        if (!now && v.live)
            now = json_object_get(flags, name);
        if (!now && v.live)
            now = preset;
        started = json_object_get(changed, "started");
        text = changed ? json_as_text(now, number) : NULL;
        if (text) {
            size_t used = strlen(keep);

            snprintf(keep + used, sizeof keep - used, "%s--%s=%s",
                     used ? " " : "", name, text);
        }
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:o, s:s, s:b, s:O?, s:O?, s:O?, s:o}",
                      "name", name, "under", under, "value",
                      text_or_null(field[DUMPED_VALUE]), "help",
                      field[DUMPED_HELP], "live",
                      strcmp(field[DUMPED_LIVE], "live") == 0, "now", now,
                      "started", started ? started : now, "set_at",
                      json_object_get(changed, "set_at"), "default", preset));
    }
    free(dump);
    snapshot_close(&v);
    return json_pack("{s:o, s:b, s:o, s:o, s:b}", "queue",
                     json_printable(a->path.queue), "running",
                     v.worker == SNAPSHOT_RUNS, "settings", list, "keep",
                     text_or_null(keep), "write", a->o->allow_write);
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

    (void)ask_verb(doctor_run, &o, findings);
}

bool ask_named_queue(const struct serve_ask *a, struct serve_ask *out,
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

    if (queue && !ask_named_queue(a, &named, p)) {
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

/* Return an id that a finding keeps while it lasts: the check and its text
 * without numbers, their units ("2h") and the s of plurals. If the text begins
 * with a number, the id is only the check: all its texts count the same
 * thing. */
static json_t *finding_id(const char *check, const char *text)
{
    bool number = false;
    char plain[768];
    size_t n = 0;

    if (isdigit((unsigned char)*text))
        return json_string(check);
    for (; *text && n < sizeof plain - 1; text++) {
        unsigned char c = (unsigned char)*text, next = (unsigned char)text[1];

        number = isdigit(c) || (number && isalpha(c));
        if (!number && (c != 's' || isalpha(next)))
            plain[n++] = *text;
    }
    plain[n] = '\0';
    return json_sprintf("%s: %s", check, plain);
}

/* Set text and fix of a finding of several queues: "450 dead letters in 3
 * queues", or "3 queues: paused". */
static void finding_join(json_t *finding, json_t *queues)
{
    size_t i, count = json_array_size(queues);
    json_int_t sum = 0, most = -1;
    const char *text = "";
    const json_t *one;
    json_t *joined;

    json_array_foreach(queues, i, one)
    {
        json_int_t n = json_integer_value(json_object_get(one, "count"));

        if (n > most)
            text = json_string_value(json_object_get(one, "text"));
        most = n > most ? n : most;
        sum += n;
    }
    if (json_is_null(json_object_get(json_array_get(queues, 0), "queue")))
        joined = json_sprintf("%s, and %zu more like this", text, count - 1);
    else if (sum)
        joined = json_sprintf("%" JSON_INTEGER_FORMAT "%s in %zu queues", sum,
                              text + strcspn(text, " "), count);
    else
        joined = json_sprintf("%zu queues: %s", count, text);
    json_object_set_new(finding, "text", joined);
    json_object_set_new(finding, "fix", json_null());
}

/* Return true if finding `x` comes before `y`. The worse one comes first, then
 * findings of queues before those of the machine, then the one of more
 * queues. */
static bool finding_is_before(const json_t *x, const json_t *y)
{
    const json_t *level = json_object_get(x, "level"),
                 *these = json_object_get(x, "queues"),
                 *those = json_object_get(y, "queues");
    bool machine =
        json_is_null(json_object_get(json_array_get(these, 0), "queue"));

    if (!json_equal(level, json_object_get(y, "level")))
        return strcmp(json_string_value(level), "bad") == 0;
    if (machine !=
        json_is_null(json_object_get(json_array_get(those, 0), "queue")))
        return !machine;
    return json_array_size(these) > json_array_size(those);
}

json_t *ask_findings(const struct serve_ask *a, struct problem *p)
{
    json_t *all = ask_doctor(a, p), *alike = json_object(),
           *list = json_array(), *f, *same, *queues;
    const char *key;
    size_t i;

    if (!all)
        return NULL;
    /* Findings are alike if they differ only in the queue and in numbers. */
    json_array_foreach(json_object_get(all, "findings"), i, f)
    {
        const char *check = json_string_value(json_object_get(f, "check"));
        const char *level = json_string_value(json_object_get(f, "level"));
        const char *queue = json_string_value(json_object_get(f, "queue"));
        const char *text = json_string_value(json_object_get(f, "text"));
        json_t *id, *name;

        if (strcmp(level, "warn") != 0 && strcmp(level, "bad") != 0)
            continue;
        id = finding_id(check, text);
        name = json_sprintf("%s %d %s", level, queue != NULL,
                            json_string_value(id));
        same = json_object_get(alike, json_string_value(name));
        if (!same) {
            same = json_pack("{s:O, s:s, s:s, s:o, s:O, s:[]}", "id", id,
                             "check", check, "level", level, "text",
                             queue ? json_sprintf("%s: %s", queue, text)
                                   : json_string(text),
                             "fix", json_object_get(f, "fix"), "queues");
            json_object_set_new(alike, json_string_value(name), same);
        }
        json_decref(id);
        json_decref(name);
        json_array_append_new(
            json_object_get(same, "queues"),
            json_pack("{s:o, s:s?, s:o, s:s, s:O}", "id",
                      json_sprintf("%s:%s", queue ? queue : "", check), "queue",
                      queue, "count",
                      isdigit((unsigned char)*text)
                          ? json_integer(strtoll(text, NULL, 10))
                          : json_null(),
                      "text", text, "fix", json_object_get(f, "fix")));
    }
    json_decref(all);
    json_object_foreach(alike, key, same)
    {
        queues = json_object_get(same, "queues");
        if (json_array_size(queues) > 1)
            finding_join(same, queues);
        i = json_array_size(list);
        while (i > 0 && finding_is_before(same, json_array_get(list, i - 1)))
            i--;
        json_array_insert(list, i, same);
    }
    json_decref(alike);
    return json_pack("{s:o}", "findings", list);
}

json_t *ask_explain(const struct serve_ask *a, struct problem *p)
{
    static const char blanks[] = " \t\r\n"; /* around an id that was pasted */
    const char *queue = a->query[QUERY_QUEUE], *text = a->query[QUERY_ID];
    struct serve_ask named;
    char id[128] = "";
    json_t *all, *found, *one;
    struct queue_list list = {0};
    size_t i, n;

    if (queue && !ask_named_queue(a, &named, p))
        return NULL;
    text = text ? text + strspn(text, blanks) : "";
    snprintf(id, sizeof id, "%.*s", (int)strcspn(text, blanks), text);
    if (cause_find(id)) {
        problem_fill(p, EX_USAGE,
                     "%s is an error, and only messages are found here; run "
                     "mqctl explain %s",
                     id, id);
        return NULL;
    }
    all = json_array();
    found = json_array();
    for (i = 0; *id && i < a->o->state_dirs.count; i++) {
        const char *dir = a->o->state_dirs.at[i];

        if (queue_list_of_workers(&list, dir) < 0)
            continue;
        for (n = 0; n < list.count; n++) {
            char *operands[] = {list.at[n], id};
            struct options o = {.json = true,
                                .look_only = true,
                                .state_dir = dir,
                                .line = {.verb = VERB_EXPLAIN,
                                         .operands = operands,
                                         .operand_count = 2}};

            if (!queue || strcmp(named.path.queue, list.at[n]) == 0)
                (void)ask_verb(explain_run, &o, all);
        }
        queue_list_free(&list);
    }
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

/* ---- orders ---- */

#define WORDS_MAX 32
#define WORD_SIZE 256

/* Print the words after the queue on mqctl's command line: NAME=VALUE for each
 * setting, only the duration for a pause. Returns the number of words, or
 * -EINVAL. */
static int steer_words(const struct serve_ask *a,
                       char words[WORDS_MAX][WORD_SIZE], struct problem *p)
{
    bool set = a->path.route->what == SERVE_SET;
    json_t *body = ask_body_read(a, p), *value;
    uint64_t now = clock_wall_ns(), end;
    int n = body ? 0 : -EINVAL, size;
    const char *name, *text;
    char number[JSON_TEXT];

    json_object_foreach(body, name, value)
    {
        text = json_as_text(value, number);
        if (n == (set ? WORDS_MAX : 1)) {
            n = problem_set(p, EX_USAGE, EINVAL,
                            set ? "more than %d settings"
                                : "give for or until, not both",
                            WORDS_MAX);
            break;
        }
        if (!set && strcmp(name, "until") == 0) {
            if (time_parse(text, now, &end) < 0 || end <= now) {
                n = problem_set(p, EX_USAGE, EINVAL,
                                "until: \"%.64s\" is not a time in the future; "
                                "give one like 2026-12-24T18:00+01:00",
                                text);
                break;
            }
            end = (end - now + NS_PER_MS - 1) / NS_PER_MS * NS_PER_MS;
            duration_print(end, words[n++]);
            continue;
        }
        size = snprintf(words[n], WORD_SIZE, "%s%s%s", set ? name : "",
                        set ? "=" : "", text);
        if (size >= WORD_SIZE || strpbrk(words[n++], " \t\r\n")) {
            n = problem_set(p, EX_USAGE, EINVAL,
                            "%.64s: the value is too long or has a space in it",
                            name);
            break;
        }
    }
    json_decref(body);
    return n;
}

json_t *ask_order(const struct serve_ask *a,
                  int (*verb)(const struct options *), struct options *o,
                  size_t named, struct problem *p)
{
    /* Numbers of messages by what became of them. For a caller, "gone" and "in
     * flight" are answers and not failures. */
    static const char *const parts[] = {"done", "already", "gone", "in_flight",
                                        "spooled"};
    json_t *list = json_array(), *answer;
    json_int_t sum = 0;

    o->state_dir = ask_state_dir(a, a->path.queue);
    p->status = ask_verb(verb, o, list);
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

bool ask_word_check(const char *word, const char *const words[3],
                    struct problem *p)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    problem_fill(p, EX_NOINPUT,
                 "there is no action \"%.64s\"; give %s, %s or %s", word,
                 words[0], words[1], words[2]);
    return false;
}

json_t *ask_steer(const struct serve_ask *a, struct problem *p)
{
    static const char *const orders[3] = {"pause", "resume", "drain"};
    static char words[WORDS_MAX][WORD_SIZE];
    char *operands[WORDS_MAX + 1] = {(char *)a->path.queue};
    struct options o = {.json = true, .line.operands = operands};
    bool set = a->path.route->what == SERVE_SET;
    int n;

    if (!set && !ask_word_check(a->path.word, orders, p))
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
    return ask_order(a, steer_run, &o, 0, p);
}
