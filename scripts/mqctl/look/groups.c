/* groups.c - the list of groups (see mqctl.h)
 *
 * A group is read from the store with one query, from the slots that name it,
 * and from the spool, whose groups were counted before. Custody was read first
 * (messages.c): a message that moves meanwhile counts once more or once less.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/sys/tree.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term_table.h"
#include "scripts/mqctl/ask.h"
#include "scripts/mqctl/look/messages.h"

/* The spool is in the order of its turns, and a list of groups in that of their
 * keys. So all of the spool is read for the next keys, as many as fit in
 * memory, and again for the keys behind them. What is in a slot is not counted.
 */
struct group_spooled {
    RB_ENTRY(group_spooled) node;
    uint64_t count;
    struct ulid head; /* of the first one; all 0: it has no id yet */
    uint64_t received_ns;
    size_t size;
    char key[];
};

RB_HEAD(spooled_tree, group_spooled);

/* All 0: nothing was read. */
struct groups_spooled {
    struct spooled_tree all;
    size_t count;
    bool more; /* there are keys behind these */
};

/* The ordered groups of a queue that have a message: what custody, the store
 * and the spool have of each, by its key, so that a list can be taken up again
 * after any of them. Which groups are closing only a worker knows. */
struct groups_seen {
    struct messages *m;
    json_t *closing;          /* an object, by the key in hexadecimal */
    struct slot_seen **slots; /* those that name a group, by that */
    size_t count;
    struct groups_spooled spooled;
};

/* One of them; valid during the visit. */
struct group_seen {
    const char *key;
    size_t size;
    enum group_where where;
    bool closing;         /* it refuses what comes */
    uint64_t waiting;     /* messages that do not run, its head included */
    uint64_t due_ns;      /* blocked: until then */
    int64_t letter;       /* held: by that one; else 0 */
    struct ulid head;     /* all 0: it has no id yet */
    uint64_t received_ns; /* of its head */
};

/* ---- what the spool has of each group ---- */

#define GROUPS_MOST 20000 /* that are in memory at a time */

/* Compare two keys by their bytes, in the order that SQLite uses. */
static int group_key_order(const char *a, size_t a_size, const char *b,
                           size_t b_size)
{
    int way = memcmp(a, b, a_size < b_size ? a_size : b_size);

    return way ? way : (a_size > b_size) - (a_size < b_size);
}

static int order(const struct group_spooled *a, const struct group_spooled *b)
{
    return group_key_order(a->key, a->size, b->key, b->size);
}

/* RB_GENERATE_STATIC needs a macro that glibc does not have. */
RB_GENERATE_INTERNAL(spooled_tree, group_spooled, node, order,
                     static __attribute__((unused)))

/* The first of them; NULL: none is left. */
static struct group_spooled *
groups_spooled_first(const struct groups_spooled *g)
{
    return RB_MIN(spooled_tree, (struct spooled_tree *)&g->all);
}

static void groups_spooled_drop(struct groups_spooled *g,
                                struct group_spooled *one)
{
    RB_REMOVE(spooled_tree, &g->all, one);
    g->count--;
    free(one);
}

static void groups_spooled_free(struct groups_spooled *g)
{
    while (g->count)
        groups_spooled_drop(g, groups_spooled_first(g));
}

/* One look at the spool. */
struct reading {
    struct groups_spooled *g;
    const char *after; /* keys behind this one */
    size_t size;
};

static struct group_spooled *find(const struct groups_spooled *g,
                                  const char *key, size_t size)
{
    struct group_spooled *at = RB_ROOT(&g->all);
    int way;

    while (at && (way = group_key_order(key, size, at->key, at->size)) != 0)
        at = way < 0 ? RB_LEFT(at, node) : RB_RIGHT(at, node);
    return at;
}

/* add - the first message of a group; one with a later key makes room */
static int add(struct groups_spooled *g, const struct message_seen *seen)
{
    struct group_spooled *one = malloc(sizeof *one + seen->group_size);

    if (!one)
        return -ENOMEM;
    *one = (struct group_spooled){.count = 1,
                                  .head = seen->id,
                                  .received_ns = seen->received_ns,
                                  .size = seen->group_size};
    memcpy(one->key, seen->group, seen->group_size);
    RB_INSERT(spooled_tree, &g->all, one);
    /* NOLINTBEGIN(clang-analyzer-unix.Malloc): the tree has it */
    g->more |= ++g->count > GROUPS_MOST;
    if (g->count > GROUPS_MOST)
        groups_spooled_drop(g, RB_MAX(spooled_tree, &g->all));
    return 0;
    /* NOLINTEND(clang-analyzer-unix.Malloc) */
}

/* later - whether a key is behind those that are kept: some of its messages
 * were left out */
static bool later(const struct groups_spooled *g, const char *key, size_t size)
{
    const struct group_spooled *last =
        g->more ? RB_MAX(spooled_tree, (struct spooled_tree *)&g->all) : NULL;

    return last && group_key_order(key, size, last->key, last->size) > 0;
}

/* row_count - visit: rows come in the order of their turns */
static int row_count(const struct message_seen *seen, void *arg)
{
    const struct reading *r = arg;
    struct group_spooled *one;

    if (!seen->group || later(r->g, seen->group, seen->group_size) ||
        group_key_order(seen->group, seen->group_size, r->after, r->size) <= 0)
        return 0;
    one = find(r->g, seen->group, seen->group_size);
    if (!one)
        return add(r->g, seen);
    one->count++;
    return 0;
}

/* Read the groups of the spool that come after a key, or from the first on if
 * `size` is 0. With `only`, read that group alone. */
static int groups_spooled_read(struct groups_spooled *g, struct messages *m,
                               const char *after, size_t size, const char *only)
{
    const struct waiting_filter filter = m->filter;
    struct reading r = {g, after, size};
    int err;

    g->more = false;
    m->filter.states = WAITING_BIT(WAITING_SPOOLED);
    m->filter.group = only;
    err = messages_each(m, "spool-0", row_count, &r);
    m->filter = filter;
    if (err)
        groups_spooled_free(g);
    return err;
}

/* ---- groups ---- */

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

/* `m` is open, without a filter. -ENOMEM. */
static int groups_seen_open(struct groups_seen *g, struct messages *m)
{
    *g = (struct groups_seen){.m = m, .closing = json_object()};
    g->slots = calloc(m->count + 1, sizeof(struct slot_seen *));
    if (!g->closing || !g->slots)
        return -ENOMEM;
    for (size_t i = 0; i < m->count; i++)
        if (m->slots[i].c.group[0])
            g->slots[g->count++] = &m->slots[i];
    qsort(g->slots, g->count, sizeof(struct slot_seen *), slot_order);
    closing_ask(g);
    return 0;
}

static void groups_seen_close(struct groups_seen *g)
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
    if (first) {
        out->head = first->c.id;
        out->received_ns = first->c.received_ns;
    }
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

/* Visit the groups that come after a key, or from the first on if `size` is 0.
 * With `only`, visit that group alone. */
static int groups_seen_each(
    struct groups_seen *g, const char *after, size_t size, const char *only,
    int (*visit)(const struct group_seen *seen, void *arg), void *arg)
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

/* ---- the list ---- */

#define CURSOR     "group-"
#define CURSOR_HEX (2 * HEADER_VALUE_MAX + 1)

struct groups_list {
    const struct options *o;
    struct messages m;
    struct groups_seen g;
    struct term_table *table; /* NULL: JSON */
    uint64_t rows;
    char last[CURSOR_HEX]; /* the key of the last one */
};

/* ---- a group ---- */

/* state_text - "blocked, retry in 3s", "held by letter 7, closing" */
static void state_text(const struct group_seen *s, uint64_t now_ns, char *text,
                       size_t room)
{
    char time[DURATION_TEXT], more[64] = "";

    if (s->where == GROUP_IS_BLOCKED && s->due_ns > now_ns)
        snprintf(more, sizeof more, ", retry in %s",
                 duration_rough(s->due_ns - now_ns, time));
    else if (s->where == GROUP_IS_HELD)
        snprintf(more, sizeof more, " by letter %" PRId64, s->letter);
    snprintf(text, room, "%s%s%s", group_where_text(s->where), more,
             s->closing ? ", closing" : "");
}

/* row_put - a line of the table */
static void row_put(struct term_table *t, const struct group_seen *s)
{
    static const struct ulid none;
    uint64_t wall = clock_wall_ns();
    char id[ULID_TEXT] = "-", text[128], time[DURATION_TEXT];

    if (memcmp(&s->head, &none, sizeof none) != 0)
        ulid_print(s->head, id);
    term_cell(t, s->key, s->size);
    state_text(s, wall, text, sizeof text);
    term_cellf(t, "%s", text);
    term_cellf(t, "%" PRIu64, s->waiting);
    term_cellf(t, "%s", id);
    term_cellf(t, "%s",
               s->received_ns && s->received_ns < wall
                   ? duration_rough(wall - s->received_ns, time)
                   : "-");
}

/* group_json - the object of a group; NULL: no memory */
static json_t *group_json(const struct groups_list *l,
                          const struct group_seen *s)
{
    static const struct ulid none;
    char id[ULID_TEXT], cursor[sizeof CURSOR + CURSOR_HEX];
    bool named = memcmp(&s->head, &none, sizeof none) != 0;
    json_t *o;
    int err;

    snprintf(cursor, sizeof cursor, CURSOR "%s", l->last);
    o = json_pack("{s:o, s:s, s:b, s:I, s:o, s:s?, s:s}", "queue",
                  json_printable(l->m.queue), "state",
                  group_where_text(s->where), "closing", s->closing, "waiting",
                  (json_int_t)s->waiting, "letter",
                  s->letter ? json_integer(s->letter) : json_null(), "head",
                  named ? ulid_print(s->head, id) : NULL, "cursor", cursor);
    err = o ? json_put_bytes(o, "group", s->key, s->size) : -ENOMEM;
    if (!err)
        err = json_put_time(o, "due_at",
                            s->where == GROUP_IS_BLOCKED ? s->due_ns : 0);
    if (!err)
        err = json_put_time(o, "received_at", s->received_ns);
    if (!err)
        return o;
    json_decref(o);
    return NULL;
}

/* group_show - visit: one line, unless as many as were asked for are out */
static int group_show(const struct group_seen *s, void *arg)
{
    struct groups_list *l = arg;
    unsigned is = 1u << s->where | (unsigned)s->closing << GROUP_IS_CLOSING;
    int err = 0;

    if (!(l->o->groups & is))
        return 0;
    if (l->o->limit && l->rows == l->o->limit)
        return VISIT_ENOUGH;
    hex_print(s->key, s->size, l->last);
    if (l->table)
        row_put(l->table, s);
    else
        err = json_print_line(group_json(l, s), stdout);
    if (++l->rows % TERM_TABLE_PART == 0 && l->table)
        term_table_print(l->table, stdout);
    return err;
}

/* ---- the verb ---- */

/* list_end - what became of the visit; an exit status */
static int list_end(const struct groups_list *l, int err)
{
    if (err < 0)
        return complain(err == -ENOMEM ? EX_OSERR : EX_IOERR,
                        "cannot read the groups: %s", errno_text(-err));
    if (!l->table)
        return 0;
    if (err == VISIT_ENOUGH)
        complain(0, "there are more: --after " CURSOR "%s", l->last);
    else if (l->rows == 0)
        complain(0,
                 l->o->groups == (1u << GROUP_IS_COUNT) - 1 &&
                         !l->o->filter.group && !l->o->after
                     ? "%s has no group with a message whose time has come"
                     : "%s has no group that was asked for",
                 l->m.queue);
    if (l->rows && !l->m.runs)
        complain(
            0,
            "no worker is running on %s: this is what the last one left; with "
            "--on-group-dead hold the next one holds each group that has "
            "a dead letter",
            l->m.queue);
    return 0;
}

/* list_open - the messages, and a table if one is wanted; an exit status */
static int list_open(struct groups_list *l)
{
    static const struct term_column columns[] = {
        {"KEY", TERM_LEFT, TERM_END},        {"STATE", TERM_LEFT, TERM_WHOLE},
        {"WAITING", TERM_RIGHT, TERM_WHOLE}, {"HEAD", TERM_LEFT, TERM_WHOLE},
        {"AGE", TERM_RIGHT, TERM_WHOLE},
    };
    struct options all = *l->o;
    int status;

    all.filter = (struct waiting_filter){.states = WAITING_ALL};
    status = messages_open(&l->m, &all);
    if (status)
        return status;
    if (groups_seen_open(&l->g, &l->m) == 0 &&
        (l->o->json || (l->table = term_table_open(
                            columns, sizeof columns / sizeof *columns))))
        return 0;
    groups_seen_close(&l->g);
    messages_close(&l->m);
    return complain_memory();
}

int groups_run(const struct options *o)
{
    struct groups_list l = {.o = o};
    char after[HEADER_VALUE_MAX];
    int size = 0, status, err;

    if (o->after)
        size = strncmp(o->after, CURSOR, strlen(CURSOR)) == 0
                   ? hex_parse(o->after + strlen(CURSOR), after, sizeof after)
                   : -EINVAL;
    if (size < 0)
        return complain(EX_USAGE,
                        "--after: \"%.80s\" is not a cursor; give one that "
                        "groups printed",
                        o->after);
    status = list_open(&l);
    if (status)
        return status;
    err = groups_seen_each(&l.g, after, (size_t)size, o->filter.group,
                           group_show, &l);
    if (l.table && l.rows && term_table_print(l.table, stdout) < 0 && err >= 0)
        err = -ENOMEM;
    status = list_end(&l, err);
    term_table_close(&l.table);
    groups_seen_close(&l.g);
    messages_close(&l.m);
    return status;
}
