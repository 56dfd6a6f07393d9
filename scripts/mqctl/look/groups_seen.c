/* groups_seen.c - see groups.h
 *
 * A group is read from the store with one query, from the slots that name it,
 * and from the spool, whose groups were counted before. Custody was read first
 * (messages.c): a message that moves meanwhile counts once more or once
 * less.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/safe_text.h"
#include "scripts/mqctl/ask.h"
#include "scripts/mqctl/look/groups.h"

#define KEY_MAX  HEADER_VALUE_MAX
#define HEX_ROOM (2 * KEY_MAX + 1)

/* ---- open and close ---- */

/* slot_order - compare for qsort: by group, then in order of arrival */
static int slot_order(const void *a, const void *b)
{
    const struct slot_seen *const *x = a, *const *y = b;

    int order = strcmp((*x)->c.group, (*y)->c.group);

    return order ? order
                 : ((*x)->c.seq > (*y)->c.seq) - ((*x)->c.seq < (*y)->c.seq);
}

/* slots_sort - those that name a group */
static int slots_sort(struct groups_seen *g)
{
    g->slots = calloc(g->m->count + 1, sizeof(struct slot_seen *));
    if (!g->slots)
        return -ENOMEM;
    for (size_t i = 0; i < g->m->count; i++)
        if (g->m->slots[i].c.group[0])
            g->slots[g->count++] = &g->m->slots[i];
    qsort(g->slots, g->count, sizeof(struct slot_seen *), slot_order);
    return 0;
}

/* page_keep - the keys of an answer; whether there are more, and the last */
static bool page_keep(struct groups_seen *g, const json_t *answer,
                      char last[HEX_ROOM])
{
    const json_t *keys = json_object_get(answer, "groups"), *key;
    size_t i;

    json_array_foreach(keys, i, key)
    {
        snprintf(last, HEX_ROOM, "%s", json_string_value(key));
        (void)json_object_set_new(g->closing, last, json_true());
    }
    return i > 0 && json_is_true(json_object_get(answer, "more"));
}

/* closing_ask - page by page; a worker that does not answer closes none */
static void closing_ask(struct groups_seen *g)
{
    char line[HEX_ROOM + 16], last[HEX_ROOM] = "";
    bool more = g->m->runs;
    struct problem p;
    json_t *answer;

    while (more) {
        snprintf(line, sizeof line, "closing %s", last);
        if (ask(&g->m->dir, g->m->queue, line, &answer, &p) < 0)
            return;
        more = page_keep(g, answer, last);
        json_decref(answer);
    }
}

int groups_seen_open(struct groups_seen *g, struct messages *m)
{
    int err;

    *g = (struct groups_seen){.m = m, .closing = json_object()};
    err = g->closing ? slots_sort(g) : -ENOMEM;
    if (!err)
        closing_ask(g);
    else
        groups_seen_close(g);
    return err;
}

void groups_seen_close(struct groups_seen *g)
{
    json_decref(g->closing);
    free(g->slots);
    groups_spooled_free(&g->spooled);
    *g = (struct groups_seen){0};
}

/* ---- one group ---- */

/* What the store, the spool and the slots have of it. */
struct parts {
    struct store_group stored;
    const struct group_spooled *spooled; /* NULL: nothing */
    struct slot_seen **slots;
    size_t count;
};

/* head_row - the head is a row of the store; out->due_ns as it has it */
static int head_row(const struct groups_seen *g, int64_t row,
                    struct group_seen *out)
{
    struct store_row r = {0};
    int err = store_get(g->m->store, row, &r, NULL, 0, NULL);

    if (err)
        return err == -ENOENT ? 0 : err; /* it has gone meanwhile */
    out->head = r.id;
    out->received_ns = r.first_received_ns;
    out->due_ns = r.state == STORE_WAITING ? r.due_ns : 0;
    return 0;
}

static void head_slot(const struct slot_seen *s, struct group_seen *out)
{
    out->head = s->c.id;
    out->received_ns = s->c.received_ns;
}

/* counted - whether a slot is a run of a row that was counted as waiting */
static int counted(const struct groups_seen *g, const struct parts *p,
                   int64_t row)
{
    struct store_row r;
    int err;

    if (!row || !g->m->store)
        return NO;
    if (row == p->stored.head)
        return YES;
    err = store_get(g->m->store, row, &r, NULL, 0, NULL);
    return !err ? r.state == STORE_PARKED : err == -ENOENT ? NO : err;
}

/* slots_count - adds to out->waiting; *first: the one that runs, or else is
 * first; *head: the row that waits has a slot */
static int slots_count(const struct groups_seen *g, const struct parts *p,
                       struct group_seen *out, const struct slot_seen **first,
                       bool *head)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct slot_seen *s = p->slots[i], *was = *first;
        bool runs = s->state == WAITING_RUNNING;
        int is = counted(g, p, s->c.row);

        if (is < 0)
            return is;
        out->waiting += !runs;
        out->waiting -= is == YES && out->waiting > 0;
        *head |= p->stored.head && s->c.row == p->stored.head;
        if (runs)
            out->where = GROUP_IS_RUNNING;
        if (!was || runs ||
            (was->state != WAITING_RUNNING &&
             (s->c.priority > was->c.priority ||
              (s->c.priority == was->c.priority && s->c.seq < was->c.seq))))
            *first = s;
    }
    return 0;
}

/* head_parked - the first parked row, if that comes before the slot */
static int head_parked(const struct groups_seen *g, const struct slot_seen *s,
                       struct group_seen *out)
{
    struct store_parked next;
    int err = store_next_parked(g->m->store, out->key, out->size, false, &next);

    if (err)
        return err == -ENOENT ? 0 : err;
    if (s && (s->c.priority > next.priority ||
              (s->c.priority == next.priority && s->c.seq < next.receive_seq)))
        return 0;
    return head_row(g, next.row, out);
}

/* group_look - what a group does, and what is first in it; -ENOENT: it has no
 * message in line */
static int group_look(const struct groups_seen *g, const struct parts *p,
                      struct group_seen *out)
{
    const struct slot_seen *first = NULL;
    bool head = false;
    int err;

    out->where = GROUP_IS_READY;
    out->waiting = p->stored.parked + (p->stored.head != 0) +
                   (p->spooled ? p->spooled->count : 0);
    err = slots_count(g, p, out, &first, &head);
    if (p->spooled) { /* unless something comes before that */
        out->head = p->spooled->head;
        out->received_ns = p->spooled->received_ns;
    }
    if (first)
        head_slot(first, out);
    if (err || out->where == GROUP_IS_RUNNING)
        return err;
    if (p->stored.head && !head) {
        err = head_row(g, p->stored.head, out);
        if (out->due_ns > g->m->filter.now_ns)
            out->where = GROUP_IS_BLOCKED;
        return err;
    }
    if (p->stored.letters && g->m->filter.holds && !head) {
        err =
            store_group_letter(g->m->store, out->key, out->size, &out->letter);
        if (!err)
            out->where = GROUP_IS_HELD;
        return err ? err : head_row(g, out->letter, out);
    }
    if (!out->waiting)
        return -ENOENT;
    return p->stored.parked ? head_parked(g, first, out) : 0;
}

/* group_visit - unless nothing of it is in line */
static int group_visit(const struct groups_seen *g, const struct parts *p,
                       const char *key, size_t size,
                       int (*visit)(const struct group_seen *seen, void *arg),
                       void *arg)
{
    struct group_seen seen = {.key = key, .size = size};
    char hex[HEX_ROOM];
    int err = group_look(g, p, &seen);

    seen.closing =
        json_object_get(g->closing, hex_print(key, size, hex)) != NULL;
    if (err == -ENOENT && seen.closing) /* all of it is on its way somewhere */
        err = 0;
    return err == -ENOENT ? 0 : err ? err : visit(&seen, arg);
}

/* ---- all ---- */

/* slots_of - those of one group, from *at on; *at is behind them then */
static void slots_of(const struct groups_seen *g, size_t *at, const char *key,
                     size_t size, struct parts *p)
{
    p->slots = &g->slots[*at];
    p->count = 0;
    while (*at < g->count) {
        const char *group = g->slots[*at]->c.group;

        /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): an array */
        if (group_key_order(group, strlen(group), key, size) != 0)
            break;
        p->count++;
        (*at)++;
    }
}

/* slots_skip - to the first slot of a group behind a key; `same`: or of it */
static void slots_skip(const struct groups_seen *g, size_t *at, const char *key,
                       size_t size, bool same)
{
    while (*at < g->count) {
        const char *group = g->slots[*at]->c.group;
        int way = group_key_order(group, strlen(group), key, size);

        if (way > 0 || (same && way == 0))
            break;
        (*at)++;
    }
}

static int one_visit(struct groups_seen *g, const char *key, size_t size,
                     int (*visit)(const struct group_seen *seen, void *arg),
                     void *arg)
{
    struct parts p = {.count = 0};
    size_t at = 0;
    int err = groups_spooled_read(&g->spooled, g->m, "", 0, key);

    if (err)
        return err;
    p.spooled = groups_spooled_first(&g->spooled);
    err = g->m->store ? store_get_group(g->m->store, key, size, &p.stored)
                      : -ENOENT;

    if (err && err != -ENOENT)
        return err;
    slots_skip(g, &at, key, size, true);
    slots_of(g, &at, key, size, &p);
    return group_visit(g, &p, key, size, visit, arg);
}

/* Where a walk through all groups is: what each of the three has next. */
struct walk {
    struct groups_seen *g;
    struct store_group stored;
    char key[KEY_MAX]; /* of it */
    size_t size;
    bool ask, has; /* the store may have more; `stored` is one */
    size_t at;     /* of the slots */
    struct group_spooled *spooled;
};

/* next_find - in the store, and in the spool; 0, or -errno */
static int next_find(struct walk *w, char last[KEY_MAX], size_t last_size)
{
    struct groups_spooled *spooled = &w->g->spooled;
    int err = 0;

    if (w->ask && !w->has) {
        err = store_next_group(w->g->m->store, w->key, &w->size, &w->stored);
        w->ask = w->has = !err;
        err = err == -ENOENT ? 0 : err;
    }
    w->spooled = groups_spooled_first(spooled);
    if (!err && !w->spooled && spooled->more) {
        err = groups_spooled_read(spooled, w->g->m, last, last_size, NULL);
        w->spooled = groups_spooled_first(spooled);
    }
    return err;
}

/* first_key - of the three; the bytes of it, or 0: there is none */
static size_t first_key(const struct walk *w, char key[KEY_MAX])
{
    const char *slot = w->at < w->g->count ? w->g->slots[w->at]->c.group : NULL;
    const char *first = w->has ? w->key : NULL;
    size_t size = w->has ? w->size : 0;

    if (slot &&
        (!first || group_key_order(slot, strlen(slot), first, size) < 0))
        size = strlen(first = slot);
    if (w->spooled &&
        (!first ||
         group_key_order(w->spooled->key, w->spooled->size, first, size) < 0)) {
        first = w->spooled->key;
        size = w->spooled->size;
    }
    if (first)
        memcpy(key, first, size);
    return first ? size : 0;
}

/* walk_visit - the group of that key, and on */
static int walk_visit(struct walk *w, const char *key, size_t size,
                      int (*visit)(const struct group_seen *seen, void *arg),
                      void *arg)
{
    struct group_spooled *one = w->spooled;
    struct parts p = {.count = 0};
    int err;

    if (w->has && group_key_order(w->key, w->size, key, size) == 0) {
        p.stored = w->stored;
        w->has = false;
    }
    if (one && group_key_order(one->key, one->size, key, size) == 0)
        p.spooled = one;
    slots_of(w->g, &w->at, key, size, &p);
    err = group_visit(w->g, &p, key, size, visit, arg);
    if (p.spooled)
        groups_spooled_drop(&w->g->spooled, one);
    return err;
}

int groups_seen_each(struct groups_seen *g, const char *after, size_t size,
                     const char *only,
                     int (*visit)(const struct group_seen *seen, void *arg),
                     void *arg)
{
    struct walk w = {.g = g, .size = size, .ask = g->m->store != NULL};
    char key[KEY_MAX];
    int err;

    if (only)
        return one_visit(g, only, strlen(only), visit, arg);
    memcpy(w.key, after, size);
    memcpy(key, after, size);
    slots_skip(g, &w.at, after, size, false);
    err = groups_spooled_read(&g->spooled, g->m, after, size, NULL);
    while (!err) {
        err = next_find(&w, key, size);
        if (!err)
            size = first_key(&w, key);
        if (err || size == 0)
            break;
        err = walk_visit(&w, key, size, visit, arg);
    }
    return err;
}
