/* messages.c - what runs and waits, and its groups, as JSON (see
 * ask.h) */
#include <errno.h>
#include <sysexits.h>

#include "common/base/safe_text.h"
#include "common/broker/broker_operand.h"
#include "common/text/json_line.h"
#include "scripts/mqctl/serve/ask/ask.h"
#include "scripts/mqctl/serve/ask/verb.h"

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

/* page_cut - the line beyond the page tells that there is a next one, and is
 * taken off; the cursor of the last that stays, or null */
static json_t *page_cut(json_t *list)
{
    if (json_array_size(list) <= PAGE_MOST)
        return json_null();
    json_array_remove(list, PAGE_MOST);
    return json_incref(
        json_object_get(json_array_get(list, PAGE_MOST - 1), "cursor"));
}

/* page_of - a page of what a verb lists, from the cursor of the query on; the
 * verb has said why there is none (NULL) */
static json_t *page_of(const struct serve_ask *a, size_t verb,
                       int (*run)(const struct options *), struct problem *p)
{
    char *operands[] = {(char *)a->path.queue};
    const char *after = a->query[QUERY_AFTER];
    struct options o = {.json = true,
                        .limit = PAGE_MOST + 1,
                        .filter.states = WAITING_ALL,
                        .groups = (1u << GROUP_IS_COUNT) - 1,
                        .after = after && *after ? after : NULL};
    json_t *list;

    if (ask_kept_here(a->path.queue, p) < 0)
        return NULL;
    o.state_dir = ask_state_dir(a, a->path.queue);
    o.line.verb = verb;
    o.line.operands = operands;
    o.line.operand_count = 1;
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
    json_t *list = page_of(a, VERB_LIST, list_run, p), *one, *next;
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
    json_t *list = page_of(a, VERB_GROUPS, groups_run, p), *next;

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
