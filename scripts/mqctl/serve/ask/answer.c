/* answer.c - see answer.h */
#include "scripts/mqctl/serve/ask/answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/text/complain.h"
#include "scripts/mqctl/serve/ask/ask.h"
#include "scripts/mqctl/serve/ask/history.h"

/* ask_history - from the copy of the server's rings that a child has */
static json_t *ask_history(const struct serve_ask *a, struct problem *p)
{
    const char *step = a->query[QUERY_STEP] ? a->query[QUERY_STEP] : "1s";

    if (strcmp(step, "1s") == 0 || strcmp(step, "1m") == 0)
        return queue_is_known(a, p)
                   ? history_json(a->path.queue, step[1] == 'm')
                   : NULL;
    problem_fill(p, EX_USAGE, "step: \"%.32s\" is not 1s or 1m", step);
    return NULL;
}

/* Answer with ten minutes of every queue, for the overview. */
static json_t *ask_sparks(const struct serve_ask *a, struct problem *p)
{
    (void)a, (void)p;
    return history_sparks();
}

static json_t *(*const asks[])(const struct serve_ask *, struct problem *) = {
    [SERVE_QUEUES] = ask_queues,          [SERVE_QUEUE] = ask_queue,
    [SERVE_HISTORY] = ask_history,        [SERVE_LETTERS] = ask_letters,
    [SERVE_BY_ERROR] = ask_by_error,      [SERVE_LETTER] = ask_letter,
    [SERVE_ALL_DEAD] = ask_all_dead,      [SERVE_EXPLAIN] = ask_explain,
    [SERVE_DOCTOR] = ask_doctor,          [SERVE_STEER] = ask_steer,
    [SERVE_SETTINGS] = ask_steer,         [SERVE_MESSAGES] = ask_messages,
    [SERVE_RUN_NOW] = ask_steer_messages, [SERVE_CANCEL] = ask_steer_messages,
    [SERVE_SPARKS] = ask_sparks,          [SERVE_JOB_OUTCOME] = ask_outcome,
    [SERVE_GROUPS] = ask_groups,          [SERVE_STEER_GROUP] = ask_steer_group,
};

/* json_print - a browser may take the text for HTML only if it is told so; `<`
 * is escaped all the same */
static int json_print(const json_t *data)
{
    char *text = json_dumps(data, JSON_COMPACT);

    if (!text)
        return complain_memory();
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "<\x7f");

        fwrite(at, 1, n, stdout);
        at += n;
        if (*at)
            printf("\\u%04x", (unsigned)*at++);
    }
    putchar('\n');
    free(text);
    return 0;
}

int answer_print(void *ask)
{
    const struct serve_ask *a = ask;
    enum serve_what what = a->path.route->what;
    struct options all = {.serve.state_dirs = a->o->state_dirs};
    struct problem p = {0};
    json_t *data;

    if (what == SERVE_METRICS)
        return metrics_run(&all);
    if (what == SERVE_BODY)
        return ask_body(a);
    if (what == SERVE_REPLAY || what == SERVE_DISCARD)
        return ask_rows(a);
    data = asks[what](a, &p);
    if (!data && p.text[0])
        return complain_of(&p);
    if (!data)
        return p.status ? p.status : complain_memory();
    if (a->path.route->page)
        page_print(stdout, a, data);
    return a->path.route->page ? 0 : json_print(data);
}
