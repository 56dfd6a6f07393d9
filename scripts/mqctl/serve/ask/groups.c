/* groups.c - dead letters by their error, as JSON (see
 * ask.h) */
#include <errno.h>

#include "common/base/basics.h"
#include "common/text/json_line.h"
#include "scripts/mqctl/serve/ask/letters.h"
#include "scripts/mqctl/serve/ask/window.h"

#define GROUPS_SHOWN 200 /* error texts */

struct tallies {
    json_t *list;
    const char *queue;
    uint64_t total; /* letters, also of texts that the list has no room for */
};

/* tally_add - visit; the list of a queue with a thousand texts is cut */
static int tally_add(const struct letter_tally *t, void *arg)
{
    struct tallies *all = arg;

    all->total += t->count;
    if (json_array_size(all->list) < GROUPS_SHOWN)
        json_array_append_new(
            all->list,
            json_pack("{s:o, s:o, s:o, s:I, s:o}", "queue",
                      json_printable(all->queue), "error",
                      ask_text(t->value, t->size, true), "error_line",
                      ask_error_line(t->value, t->text), "count",
                      (json_int_t)t->count, "newest", json_time(t->newest_ns)));
    return 0;
}

/* queue_tally - the groups of one queue, of its newest `most` letters, added to
 * a list; 0: of the letters that ask_letters looks at. *since: json, how far
 * that reached */
static int queue_tally(const struct serve_ask *a, uint64_t most,
                       struct tallies *t, json_t **since, struct problem *p)
{
    struct letter_filter f;
    struct store *s;
    int err = ask_filter(a, &f, p), narrowed = NO;

    if (err < 0 || ask_store(a, t->queue, &s, p) < 0)
        return -EINVAL;
    f.limit = 0;
    if (s)
        err = narrowed =
            most ? letters_narrow(s, &f, most) : window_find(s, &f);
    if (s && err >= 0)
        err = letters_summary(s, LETTER_BY_ERROR, &f, tally_add, t);
    store_close(&s);
    if (err < 0)
        (void)ask_failed(p, err);
    else
        *since = ask_since(narrowed, &f);
    return err;
}

json_t *ask_by_error(const struct serve_ask *a, struct problem *p)
{
    struct tallies t = {.list = json_array(), .queue = a->path.queue};
    json_t *since;

    if (queue_tally(a, 0, &t, &since, p) < 0) {
        json_decref(t.list);
        return NULL;
    }
    return json_pack("{s:o, s:o, s:I, s:o}", "queue", json_printable(t.queue),
                     "groups", t.list, "total", (json_int_t)t.total, "since",
                     since);
}

/* dead_of - the letters of a queue, by its line of a list */
static json_int_t dead_of(const json_t *one)
{
    return json_integer_value(json_object_get(one, "dead"));
}

/* ask_all_dead - the queues share what one answer may look at */
json_t *ask_all_dead(const struct serve_ask *a, struct problem *p)
{
    struct letter_filter unused;
    json_t *queues, *list, *troubles, *cut, *one, *since;
    size_t i, with = 0;

    if (ask_filter(a, &unused, p) < 0)
        return NULL;
    queues = ask_queues(a, p);
    list = json_array();
    troubles = json_incref(json_object_get(queues, "troubles"));
    cut = json_array();
    json_array_foreach(json_object_get(queues, "queues"), i, one)
    {
        with += dead_of(one) > 0;
    }
    json_array_foreach(json_object_get(queues, "queues"), i, one)
    {
        struct tallies t = {
            .list = list,
            .queue = json_string_value(json_object_get(one, "queue"))};

        if (dead_of(one) <= 0)
            continue;
        if (queue_tally(a, LOOKED_AT / with, &t, &since, p) < 0) {
            json_array_append_new(troubles, json_string(p->text));
            continue;
        }
        if (!json_is_null(since))
            json_array_append_new(cut, json_pack("{s:o, s:I, s:I}", "queue",
                                                 json_printable(t.queue),
                                                 "total", (json_int_t)t.total,
                                                 "dead", dead_of(one)));
        json_decref(since);
    }
    json_decref(queues);
    return json_pack("{s:o, s:o, s:o}", "groups", list, "cut", cut, "troubles",
                     troubles);
}
