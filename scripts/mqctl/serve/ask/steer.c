/* steer.c - what changes a worker or its messages (see
 * ask.h) */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/text/json_line.h"
#include "scripts/mqctl/serve/ask/ask.h"
#include "scripts/mqctl/serve/ask/verb.h"

#define WORDS_MAX 32
#define WORD_SIZE 256

/* Print the time from now until `until` as a duration for mqctl pause. */
static int until_word(const char *until, char word[WORD_SIZE],
                      struct problem *p)
{
    uint64_t now = clock_wall_ns(), end;

    if (time_parse(until, now, &end) < 0 || end <= now)
        return problem_set(p, EX_USAGE, EINVAL,
                           "until: \"%.64s\" is not a time in the future; give "
                           "one like 2026-12-24T18:00+01:00",
                           until);
    end = (end - now + NS_PER_MS - 1) / NS_PER_MS * NS_PER_MS;
    duration_print(end, word);
    return 0;
}

/* Print one member of a body as a word of mqctl's command line: NAME=VALUE for
 * a setting, only the time for a pause. */
static int word_write(bool setting, const char *name, const json_t *value,
                      char word[WORD_SIZE], struct problem *p)
{
    char number[JSON_TEXT];
    int size;

    if (!setting && strcmp(name, "until") == 0)
        return until_word(json_string_value(value), word, p);
    size = snprintf(word, WORD_SIZE, "%s%s%s", setting ? name : "",
                    setting ? "=" : "", json_as_text(value, number));
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

/* answer_of - the object that a verb printed; it has said why there is none */
static json_t *answer_of(json_t *list, int status, struct problem *p)
{
    json_t *answer = json_incref(json_array_get(list, 0));

    json_decref(list);
    if (!status)
        return answer;
    json_decref(answer);
    p->status = status;
    p->text[0] = '\0';
    return NULL;
}

/* is_one_of - the words of a route that has several, or a problem */
static bool is_one_of(const char *word, const char *const words[3],
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
    struct options o = {.json = true};
    bool set = a->path.route->what == SERVE_SETTINGS;
    json_t *list;
    int n, status;

    if (!set && !is_one_of(a->path.word, orders, p))
        return NULL;
    n = steer_words(a, words, p);
    o.state_dir = ask_state_dir(a, a->path.queue);
    o.line.verb = set ? VERB_SET : subcommand_find(&mqctl_table, a->path.word);
    o.line.operands = operands;
    if (n < 0)
        return NULL;
    if (set && n == 0) {
        problem_fill(p, EX_USAGE, "nothing to set; give {\"NAME\": \"VALUE\"}");
        return NULL;
    }
    for (int i = 0; set && i < n; i++)
        operands[i + 1] = words[i];
    o.line.operand_count = set ? n + 1 : 1;
    o.pause_for = !set && n > 0 ? words[0] : NULL;
    list = json_array();
    status = verb_run(steer_run, &o, list);
    return answer_of(list, status, p);
}

/* ---- messages that wait ---- */

#define IDS_MAX 500

/* accounted - whether the verb's numbers cover all that were named: then an id
 * that is gone, or in flight, is an answer and no failure */
static bool accounted(const json_t *answer, size_t named)
{
    static const char *const parts[] = {"done", "already", "gone", "in_flight",
                                        "spooled"};
    json_int_t sum = 0;

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        sum += json_integer_value(json_object_get(answer, parts[i]));
    return sum == (json_int_t)named;
}

json_t *ask_steer_messages(const struct serve_ask *a, struct problem *p)
{
    json_t *body = ask_body_read(a, p), *ids = json_object_get(body, "ids"),
           *list = json_array(), *one;
    char *operands[IDS_MAX + 1] = {(char *)a->path.queue};
    struct options o = {.json = true, .line.operands = operands};
    size_t n = json_array_size(ids), i;
    int status;

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
    o.state_dir = ask_state_dir(a, a->path.queue);
    status = verb_run(steer_messages_run, &o, list);
    if (accounted(json_array_get(list, 0), n))
        status = 0;
    return answer_of(list, status, p);
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
    json_t *list;
    int status;

    if (!is_one_of(a->path.word, orders, p) || !body ||
        ask_kept_here(a->path.queue, p) < 0)
        return NULL;
    if (!key) {
        problem_fill(p, EX_USAGE, "no group named; give {\"group\": \"KEY\"}");
        return NULL;
    }
    o.line.verb = VERB_GROUP;
    o.state_dir = ask_state_dir(a, a->path.queue);
    list = json_array();
    status = verb_run(group_run, &o, list);
    return answer_of(list, status, p);
}
