/* groups.c - the list of groups (see mqctl.h, groups.h) */
#include "scripts/mqctl/look/groups.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/text/complain.h"
#include "common/text/json_line.h"
#include "common/text/term_table.h"

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

/* cursor_read - bytes of the key that a cursor stands for; -EINVAL */
static int cursor_read(const char *cursor, char key[HEADER_VALUE_MAX])
{
    const size_t word = strlen(CURSOR);

    if (!cursor)
        return 0;
    return strncmp(cursor, CURSOR, word) == 0
               ? hex_parse(cursor + word, key, HEADER_VALUE_MAX)
               : -EINVAL;
}

/* all_wanted - whether no flag left out a group */
static bool all_wanted(const struct options *o)
{
    return o->groups == (1u << GROUP_IS_COUNT) - 1 && !o->filter.group &&
           !o->after;
}

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
                 all_wanted(l->o)
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
    int size = cursor_read(o->after, after), status, err;

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
