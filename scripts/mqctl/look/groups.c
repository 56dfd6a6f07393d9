/* groups.c - mqctl groups: list the groups of a queue, sorted by key
 *
 * main and the children of mqctl serve call groups_run on their only thread. A
 * group may have messages in three places: slots, which messages_open has read;
 * the spool, whose messages are counted by group before the list begins; and
 * the store, which is asked about one group at a time. A message that moves
 * between these places during the list may count twice or not at all.
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

/* Messages of one group in the spool. The spool is sorted by turn, but the list
 * of groups by key. So the whole spool is read to count the groups with the
 * next GROUPS_MOST keys, and read again for the keys after them. Messages in
 * slots are not counted here. */
struct group_spooled {
    RB_ENTRY(group_spooled) node;
    uint64_t count;
    struct ulid head;     /* id of the first message; all 0: none yet */
    uint64_t received_ns; /* of the first message */
    size_t size;
    char key[];
};

RB_HEAD(spooled_tree, group_spooled);

#define GROUPS_MOST 20000 /* groups of the spool in memory at a time */
#define KEY_MAX     HEADER_VALUE_MAX
#define HEX_ROOM    (2 * KEY_MAX + 1)

const char *group_where_text(enum group_where where)
{
    static const char *const texts[GROUP_IS_COUNT] = {
        "running", "ready", "blocked", "held", "closing"};

    return texts[where];
}

/* A walk through all groups that have a message, in the order of their keys:
 * how far it has come in custody, the store and the spool. */
struct walk {
    struct messages *m;
    json_t *closing; /* the worker's closing groups: {"KEY IN HEX": true} */
    struct slot_seen **slots; /* slots with a group, sorted by group */
    size_t slot_count, slot;  /* number of slots; index of the next one */
    struct spooled_tree spooled;
    size_t spooled_count;
    bool spooled_more;         /* the spool has more keys than `spooled` */
    struct store_group stored; /* the next group of the store, if `has` */
    char key[KEY_MAX];         /* of `stored` */
    size_t size;
    bool has;         /* `stored` was read and not visited yet */
    bool stored_more; /* the store may have groups after `stored` */
};

/* What the store, the spool and the slots have of one group. */
struct parts {
    struct store_group stored;
    const struct group_spooled *spooled; /* NULL: nothing */
    struct slot_seen **slots;
    size_t count;
};

/* A group; valid during the visit. */
struct group_seen {
    const char *key;
    size_t size;
    enum group_where where;
    bool closing;         /* it refuses new messages */
    uint64_t waiting;     /* messages that are not running, with its head */
    uint64_t due_ns;      /* blocked: until then */
    int64_t letter;       /* held: the letter that holds it; else 0 */
    struct ulid head;     /* all 0: it has no id yet */
    uint64_t received_ns; /* of its head */
};

typedef int group_visit(const struct group_seen *seen, void *arg);

/* ---- messages of groups in the spool ---- */

/* Compare two keys by their bytes, in the order that SQLite uses. */
static int group_keys_order(const char *a, size_t a_size, const char *b,
                            size_t b_size)
{
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);

    return order ? order : (a_size > b_size) - (a_size < b_size);
}

static int spooled_order(const struct group_spooled *a,
                         const struct group_spooled *b)
{
    return group_keys_order(a->key, a->size, b->key, b->size);
}

/* RB_GENERATE_STATIC needs a macro that glibc does not have. */
RB_GENERATE_INTERNAL(spooled_tree, group_spooled, node, spooled_order,
                     static __attribute__((unused)))

static void spooled_drop(struct walk *w, struct group_spooled *one)
{
    RB_REMOVE(spooled_tree, &w->spooled, one);
    w->spooled_count--;
    free(one);
}

static void spooled_free(struct walk *w)
{
    while (w->spooled_count)
        spooled_drop(w, RB_MIN(spooled_tree, &w->spooled));
}

/* A search of the spool for groups whose keys come after this one. */
struct reading {
    struct walk *w;
    const char *after;
    size_t size;
};

/* Visit a message of the spool, in the order of their turns: count it for its
 * group. If there are too many groups, drop the one with the last key. */
static int spooled_count(const struct message_seen *seen, void *arg)
{
    const struct reading *r = arg;
    struct walk *w = r->w;
    struct group_spooled *last =
        w->spooled_more ? RB_MAX(spooled_tree, &w->spooled) : NULL;
    struct group_spooled *one = RB_ROOT(&w->spooled);
    int order = 0;

    /* Skip groups after the last one in memory: some of their messages were
     * not counted, so the next read has to count them. */
    if (!seen->group ||
        (last && group_keys_order(seen->group, seen->group_size, last->key,
                                  last->size) > 0) ||
        group_keys_order(seen->group, seen->group_size, r->after, r->size) <= 0)
        return 0;
    while (one && (order = group_keys_order(seen->group, seen->group_size,
                                            one->key, one->size)) != 0)
        one = order < 0 ? RB_LEFT(one, node) : RB_RIGHT(one, node);
    if (one) {
        one->count++;
        return 0;
    }
    one = malloc(sizeof *one + seen->group_size);
    if (!one)
        return -ENOMEM;
    *one = (struct group_spooled){.count = 1,
                                  .head = seen->id,
                                  .received_ns = seen->received_ns,
                                  .size = seen->group_size};
    memcpy(one->key, seen->group, seen->group_size);
    RB_INSERT(spooled_tree, &w->spooled, one);
    /* NOLINTBEGIN(clang-analyzer-unix.Malloc): the tree has it */
    w->spooled_more |= ++w->spooled_count > GROUPS_MOST;
    if (w->spooled_count > GROUPS_MOST)
        spooled_drop(w, RB_MAX(spooled_tree, &w->spooled));
    return 0;
    /* NOLINTEND(clang-analyzer-unix.Malloc) */
}

/* Read the groups of the spool that come after a key, or from the first on if
 * `size` is 0. With `only`, read that group alone. */
static int spooled_read(struct walk *w, const char *after, size_t size,
                        const char *only)
{
    const struct waiting_filter filter = w->m->filter;
    struct reading r = {w, after, size};
    int err;

    w->spooled_more = false;
    w->m->filter.states = WAITING_BIT(WAITING_SPOOLED);
    w->m->filter.group = only;
    err = messages_each(w->m, "spool-0", spooled_count, &r);
    w->m->filter = filter;
    if (err)
        spooled_free(w);
    return err;
}

/* ---- opening a walk ---- */

/* Compare for qsort: by group, then in order of arrival. */
static int slot_group_order(const void *a, const void *b)
{
    const struct slot_seen *const *x = a, *const *y = b;

    int order = strcmp((*x)->c.group, (*y)->c.group);

    return order ? order
                 : ((*x)->c.seq > (*y)->c.seq) - ((*x)->c.seq < (*y)->c.seq);
}

/* Open a walk through the groups of `m`, which is open without a filter, and
 * ask its worker page by page which groups are closing. 0 or -ENOMEM. */
static int walk_open(struct walk *w, struct messages *m)
{
    char line[HEX_ROOM + 16], last[HEX_ROOM] = "";
    bool more = m->runs;
    struct problem p;
    json_t *answer, *key;
    size_t i;

    *w = (struct walk){.m = m, .closing = json_object()};
    w->slots = calloc(m->count + 1, sizeof(struct slot_seen *));
    if (!w->closing || !w->slots)
        return -ENOMEM;
    for (i = 0; i < m->count; i++)
        if (m->slots[i].c.group[0])
            w->slots[w->slot_count++] = &m->slots[i];
    qsort(w->slots, w->slot_count, sizeof(struct slot_seen *),
          slot_group_order);
    while (more) {
        snprintf(line, sizeof line, "closing %s", last);
        if (ask(&m->dir, m->queue, line, &answer, &p) < 0)
            return 0; /* a worker that does not answer closes none */
        json_array_foreach(json_object_get(answer, "groups"), i, key)
        {
            snprintf(last, HEX_ROOM, "%s", json_string_value(key));
            (void)json_object_set_new(w->closing, last, json_true());
        }
        more = i > 0 && json_is_true(json_object_get(answer, "more"));
        json_decref(answer);
    }
    return 0;
}

/* ---- one group ---- */

/* Set a row of the store as the head of the group. */
static int head_row(const struct walk *w, int64_t row, struct group_seen *out)
{
    struct store_row r = {0};
    int err = store_get(w->m->store, row, &r, NULL, 0, NULL);

    if (err)
        return err == -ENOENT ? 0 : err; /* the row is gone */
    out->head = r.id;
    out->received_ns = r.first_received_ns;
    out->due_ns = r.state == STORE_WAITING ? r.due_ns : 0;
    return 0;
}

/* Find the state of a group and its first message. Returns -ENOENT if the group
 * has no message. */
static int group_look(const struct walk *w, const struct parts *p,
                      struct group_seen *out)
{
    const struct slot_seen *first = NULL;
    struct store *store = w->m->store;
    struct store_parked next;
    struct store_row r;
    bool head = false; /* the row stored.head is in a slot */
    int err = 0;

    out->where = GROUP_IS_READY;
    out->waiting = p->stored.parked + (p->stored.head != 0) +
                   (p->spooled ? p->spooled->count : 0);
    if (p->spooled) { /* slots and rows below come before the spool */
        out->head = p->spooled->head;
        out->received_ns = p->spooled->received_ns;
    }
    /* Add the slots. The first is the running one, or else the first in order.
     * A slot with a row that was counted above does not count again. */
    for (size_t i = 0; i < p->count; i++) {
        const struct slot_seen *s = p->slots[i];
        bool runs = s->state == WAITING_RUNNING;
        bool counted = p->stored.head && s->c.row == p->stored.head;

        head |= counted;
        if (s->c.row && store && !counted) {
            err = store_get(store, s->c.row, &r, NULL, 0, NULL);
            if (err && err != -ENOENT)
                return err;
            counted = !err && r.state == STORE_PARKED;
        }
        out->waiting += !runs;
        out->waiting -= counted && out->waiting > 0;
        if (runs)
            out->where = GROUP_IS_RUNNING;
        if (!first || runs ||
            (first->state != WAITING_RUNNING && slot_is_before(s, first)))
            first = s;
    }
    if (first) {
        out->head = first->c.id;
        out->received_ns = first->c.received_ns;
    }
    if (out->where == GROUP_IS_RUNNING)
        return 0;
    if (p->stored.head && !head) {
        err = head_row(w, p->stored.head, out);
        if (out->due_ns > w->m->filter.now_ns)
            out->where = GROUP_IS_BLOCKED;
        return err;
    }
    if (p->stored.letters && w->m->filter.holds && !head) {
        err = store_group_letter(store, out->key, out->size, &out->letter);
        if (!err)
            out->where = GROUP_IS_HELD;
        return err ? err : head_row(w, out->letter, out);
    }
    if (!out->waiting)
        return -ENOENT;
    if (!p->stored.parked)
        return 0;
    /* The first parked row is the head, unless the slot comes before it. */
    err = store_next_parked(store, out->key, out->size, false, &next);
    if (err)
        return err == -ENOENT ? 0 : err;
    if (first && (first->c.priority > next.priority ||
                  (first->c.priority == next.priority &&
                   first->c.seq < next.receive_seq)))
        return 0;
    return head_row(w, next.row, out);
}

/* Visit a group that has a message or is closing. */
static int parts_visit(const struct walk *w, const struct parts *p,
                       const char *key, size_t size, group_visit *visit,
                       void *arg)
{
    struct group_seen seen = {.key = key, .size = size};
    char hex[HEX_ROOM];
    int err = group_look(w, p, &seen);

    seen.closing =
        json_object_get(w->closing, hex_print(key, size, hex)) != NULL;
    /* A closing group has messages; all of them may be moving between the
     * three places. */
    if (err == -ENOENT)
        return seen.closing ? visit(&seen, arg) : 0;
    return err ? err : visit(&seen, arg);
}

/* ---- all groups ---- */

/* Compare the group of the next slot with a key, as strcmp does; 1 if there is
 * no next slot. */
static int next_slot_order(const struct walk *w, const char *key, size_t size)
{
    const char *group =
        w->slot < w->slot_count ? w->slots[w->slot]->c.group : NULL;

    return group ? group_keys_order(group, strlen(group), key, size) : 1;
}

/* Take the slots of one group, which are next. */
static void slots_take(struct walk *w, const char *key, size_t size,
                       struct parts *p)
{
    p->slots = &w->slots[w->slot];
    for (p->count = 0; next_slot_order(w, key, size) == 0; p->count++)
        w->slot++;
}

/* Visit the groups that come after a key, or from the first on if `size` is 0:
 * each time the one whose key is first in the store, the spool and the slots.
 * With `only`, visit that group alone. */
static int groups_each(struct walk *w, const char *after, size_t size,
                       const char *only, group_visit *visit, void *arg)
{
    struct store *store = w->m->store;
    struct group_spooled *spooled;
    struct parts p = {.count = 0};
    char key[KEY_MAX];
    int err;

    if (only) {
        size = strlen(only);
        err = spooled_read(w, "", 0, only);
        p.spooled = RB_MIN(spooled_tree, &w->spooled);
        if (!err && store) {
            err = store_get_group(store, only, size, &p.stored);
            err = err == -ENOENT ? 0 : err;
        }
        if (err)
            return err;
        while (next_slot_order(w, only, size) < 0)
            w->slot++;
        slots_take(w, only, size, &p);
        return parts_visit(w, &p, only, size, visit, arg);
    }
    memcpy(w->key, after, size);
    memcpy(key, after, size);
    w->size = size;
    w->stored_more = store != NULL;
    while (w->slot < w->slot_count && next_slot_order(w, after, size) <= 0)
        w->slot++;
    err = spooled_read(w, after, size, NULL);
    while (!err) {
        const char *slot =
            w->slot < w->slot_count ? w->slots[w->slot]->c.group : NULL;
        const char *first;

        p = (struct parts){.count = 0};
        if (w->stored_more && !w->has) {
            err = store_next_group(store, w->key, &w->size, &w->stored);
            w->stored_more = w->has = !err;
            if (err && err != -ENOENT)
                return err;
        }
        if (w->spooled_count == 0 && w->spooled_more) {
            err = spooled_read(w, key, size, NULL);
            if (err)
                return err;
        }
        spooled = RB_MIN(spooled_tree, &w->spooled);
        first = w->has ? w->key : NULL;
        size = w->has ? w->size : 0;
        if (slot &&
            (!first || group_keys_order(slot, strlen(slot), first, size) < 0))
            size = strlen(first = slot);
        if (spooled && (!first || group_keys_order(spooled->key, spooled->size,
                                                   first, size) < 0)) {
            first = spooled->key;
            size = spooled->size;
        }
        if (!first || size == 0)
            return 0;
        memcpy(key, first, size);
        if (w->has && group_keys_order(w->key, w->size, key, size) == 0) {
            p.stored = w->stored;
            w->has = false;
        }
        if (spooled &&
            group_keys_order(spooled->key, spooled->size, key, size) == 0)
            p.spooled = spooled;
        slots_take(w, key, size, &p);
        err = parts_visit(w, &p, key, size, visit, arg);
        if (p.spooled)
            spooled_drop(w, spooled);
    }
    return err;
}

/* ---- the list ---- */

#define CURSOR     "group-"
#define CURSOR_HEX (2 * HEADER_VALUE_MAX + 1)

struct groups_list {
    const struct options *o;
    struct messages m;
    struct walk walk;
    struct term_table *table; /* NULL: JSON */
    uint64_t rows;
    char last[CURSOR_HEX]; /* the key of the last group, in hexadecimal */
};

/* Visit a group: print a line, unless the limit is reached. In the table its
 * state reads "blocked, retry in 3s", or "held by letter 7, closing". */
static int group_print(const struct group_seen *s, void *arg)
{
    struct groups_list *l = arg;
    unsigned is = 1u << s->where | (unsigned)s->closing << GROUP_IS_CLOSING;
    const bool named = !ulid_is_none(&s->head);
    char id[ULID_TEXT] = "-", time[DURATION_TEXT], more[64] = "";
    char cursor[sizeof CURSOR + CURSOR_HEX];
    uint64_t wall = clock_wall_ns();
    struct term_table *t = l->table;
    json_t *o;
    int err = 0;

    if (!(l->o->groups & is))
        return 0;
    if (l->o->limit && l->rows == l->o->limit)
        return VISIT_ENOUGH;
    hex_print(s->key, s->size, l->last);
    if (named)
        ulid_print(s->head, id);
    if (t) {
        if (s->where == GROUP_IS_BLOCKED && s->due_ns > wall)
            snprintf(more, sizeof more, ", retry in %s",
                     duration_rough(s->due_ns - wall, time));
        else if (s->where == GROUP_IS_HELD)
            snprintf(more, sizeof more, " by letter %" PRId64, s->letter);
        term_cell(t, s->key, s->size);
        term_cellf(t, "%s%s%s", group_where_text(s->where), more,
                   s->closing ? ", closing" : "");
        term_cellf(t, "%" PRIu64, s->waiting);
        term_cellf(t, "%s", id);
        term_cell_age(t, s->received_ns);
    } else {
        snprintf(cursor, sizeof cursor, CURSOR "%s", l->last);
        o = json_pack("{s:o, s:s, s:b, s:I, s:o, s:s?, s:s}", "queue",
                      json_printable(l->m.queue), "state",
                      group_where_text(s->where), "closing", s->closing,
                      "waiting", (json_int_t)s->waiting, "letter",
                      s->letter ? json_integer(s->letter) : json_null(), "head",
                      named ? id : NULL, "cursor", cursor);
        if (!o || json_put_bytes(o, "group", s->key, s->size) < 0 ||
            json_put_time(o, "due_at",
                          s->where == GROUP_IS_BLOCKED ? s->due_ns : 0) < 0 ||
            json_put_time(o, "received_at", s->received_ns) < 0) {
            json_decref(o);
            return -ENOMEM;
        }
        err = json_print_line(o, stdout);
    }
    if (++l->rows % TERM_TABLE_PART == 0 && l->table)
        term_table_print(l->table, stdout);
    return err;
}

/* ---- the verb ---- */

int groups_run(const struct options *o)
{
    static const struct term_column columns[] = {
        {"KEY", TERM_LEFT, TERM_END},        {"STATE", TERM_LEFT, TERM_WHOLE},
        {"WAITING", TERM_RIGHT, TERM_WHOLE}, {"HEAD", TERM_LEFT, TERM_WHOLE},
        {"AGE", TERM_RIGHT, TERM_WHOLE},
    };
    struct groups_list l = {.o = o};
    struct options all = *o;
    char after[HEADER_VALUE_MAX];
    int size = 0, status, err;

    if (o->after)
        size = strncmp(o->after, CURSOR, strlen(CURSOR)) == 0
                   ? hex_parse(o->after + strlen(CURSOR), after, sizeof after)
                   : -EINVAL;
    if (size < 0)
        return complain(EX_USAGE,
                        "--after: \"%.80s\" is not a cursor; give one from "
                        "mqctl groups",
                        o->after);
    all.filter = (struct waiting_filter){.states = WAITING_ALL};
    status = messages_open(&l.m, &all);
    if (status)
        return status;
    err = walk_open(&l.walk, &l.m);
    if (!err && !o->json) {
        l.table = term_table_open(columns, sizeof columns / sizeof *columns);
        err = l.table ? 0 : -ENOMEM;
    }
    if (!err)
        err = groups_each(&l.walk, after, (size_t)size, o->filter.group,
                          group_print, &l);
    if (l.table && l.rows && term_table_print(l.table, stdout) < 0 && err >= 0)
        err = -ENOMEM;
    if (err < 0)
        status = complain(err == -ENOMEM ? EX_OSERR : EX_IOERR,
                          "cannot read the groups: %s", errno_text(-err));
    else if (err == VISIT_ENOUGH && l.table)
        complain(0, "there are more: --after " CURSOR "%s", l.last);
    else if (l.rows == 0 && l.table)
        complain(0,
                 o->groups == (1u << GROUP_IS_COUNT) - 1 && !o->filter.group &&
                         !o->after
                     ? "%s has no group with a due message"
                     : "%s has no matching group",
                 l.m.queue);
    if (err >= 0 && l.table && l.rows && !l.m.runs)
        complain(
            0,
            "no worker is running on %s: these groups are from its last "
            "worker; with --on-group-dead hold, the next one holds each group "
            "that has a dead letter",
            l.m.queue);
    term_table_close(&l.table);
    json_decref(l.walk.closing);
    free(l.walk.slots);
    spooled_free(&l.walk);
    messages_close(&l.m);
    return status;
}
