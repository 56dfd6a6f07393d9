/* list.c - see messages.h */
#include "scripts/mqctl/look/messages.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term_table.h"
#include "common/message/error_text.h"

#define BODY_BYTES 4096 /* of a body in JSON */

struct listing {
    const struct options *o;
    struct messages m;
    struct term_table *table; /* NULL: JSON */
    uint64_t rows;
    char last[CURSOR_TEXT];
};

/* ---- a message ---- */

/* Add a line to the table. */
static void table_message(struct term_table *t, const struct message_seen *seen)
{
    static const struct ulid none;
    uint64_t wall = clock_wall_ns();
    char id[ULID_TEXT] = "-", text[DURATION_TEXT], error[ERROR_JOINED];

    if (memcmp(&seen->id, &none, sizeof none) != 0)
        ulid_print(seen->id, id);
    term_cellf(t, "%s", id);
    term_cellf(t, "%s", waiting_state_text(seen->state));
    if (seen->due_ns > wall)
        term_cellf(t, "in %s", duration_rough(seen->due_ns - wall, text));
    else
        term_cellf(t, "%s", seen->state == WAITING_READY ? "now" : "-");
    term_cellf(t, "%" PRIu32, seen->failures);
    term_cellf(t, "%" PRIu32, seen->priority);
    term_cell(t, seen->group ? seen->group : "", seen->group_size);
    term_cellf(t, "%s",
               seen->received_ns && seen->received_ns < wall
                   ? duration_rough(wall - seen->received_ns, text)
                   : "-");
    error_text_join(error, sizeof error, seen->error, seen->error_text);
    term_cell(t, error, strlen(error));
    term_cellf(t, "%zu", seen->size);
    term_cell(t, seen->body, seen->body_size);
}

/* Return the object of a message; NULL: no memory. */
static json_t *message_json(const struct listing *l,
                            const struct message_seen *seen)
{
    static const struct ulid none;
    char id[ULID_TEXT], cursor[CURSOR_TEXT];
    bool named = memcmp(&seen->id, &none, sizeof none) != 0;
    json_t *o = json_pack(
        "{s:o, s:s?, s:o, s:s, s:I, s:o, s:o, s:I, s:I, s:I, s:b, s:s}",
        "queue", json_printable(l->m.queue), "id",
        named ? ulid_print(seen->id, id) : NULL, "row",
        seen->row ? json_integer(seen->row) : json_null(), "state",
        waiting_state_text(seen->state), "failures", (json_int_t)seen->failures,
        "attempt", seen->attempt ? json_integer(seen->attempt) : json_null(),
        "pid", seen->pid ? json_integer(seen->pid) : json_null(), "crashes",
        (json_int_t)seen->crashes, "priority", (json_int_t)seen->priority,
        "size", (json_int_t)seen->size, "body_cut",
        seen->body_size < seen->size, "cursor", messages_cursor(seen, cursor));
    const char *error = seen->error, *text = seen->error_text;

    if (o &&
        json_put_bytes(o, "error", error, error ? strlen(error) : 0) == 0 &&
        json_put_bytes(o, "error_text", text, text ? strlen(text) : 0) == 0 &&
        json_put_bytes(o, "group", seen->group, seen->group_size) == 0 &&
        json_put_bytes(o, "body", seen->body, seen->body_size) == 0 &&
        json_put_time(o, "due_at", seen->due_ns) == 0 &&
        json_put_time(o, "received_at", seen->received_ns) == 0 &&
        json_put_time(o, "started_at", seen->started_ns) == 0)
        return o;
    json_decref(o);
    return NULL;
}

/* Visit a message: print a line, unless the limit is reached. */
static int message_print(const struct message_seen *seen, void *arg)
{
    struct listing *l = arg;
    int err = 0;

    if (l->o->limit && l->rows == l->o->limit)
        return VISIT_ENOUGH;
    if (l->table)
        table_message(l->table, seen);
    else
        err = json_print_line(message_json(l, seen), stdout);
    messages_cursor(seen, l->last);
    if (++l->rows % TERM_TABLE_PART == 0 && l->table)
        term_table_print(l->table, stdout);
    return err;
}

/* ---- the verb ---- */

/* Print hints after the list; returns an exit status. */
static int messages_end(const struct listing *l, int err)
{
    if (err == -EINVAL && l->rows == 0 && l->o->after)
        return complain(EX_USAGE,
                        "--after: \"%.80s\" is not a cursor; give one that "
                        "list printed",
                        l->o->after);
    if (err < 0)
        return complain(err == -ENOMEM ? EX_OSERR : EX_IOERR,
                        "cannot read the messages: %s", errno_text(-err));
    if (err == VISIT_ENOUGH && l->table)
        complain(0, "there are more: --after %s", l->last);
    else if (!err && l->rows == 0 && l->table)
        complain(0,
                 filter_given(l->o)
                     ? "%s has no matching message"
                     : "%s has no running or waiting message; messages still "
                       "in the queue are not listed",
                 l->m.queue);
    return 0;
}

int list_run(const struct options *o)
{
    static const struct term_column columns[] = {
        {"ID", TERM_LEFT, TERM_WHOLE},    {"STATE", TERM_LEFT, TERM_WHOLE},
        {"DUE", TERM_LEFT, TERM_WHOLE},   {"TRIES", TERM_RIGHT, TERM_WHOLE},
        {"PRIO", TERM_RIGHT, TERM_EXTRA}, {"GROUP", TERM_LEFT, TERM_SPARE},
        {"AGE", TERM_RIGHT, TERM_EXTRA},  {"ERROR", TERM_LEFT, TERM_SPARE},
        {"SIZE", TERM_RIGHT, TERM_EXTRA}, {"BODY", TERM_LEFT, TERM_END},
    };
    struct listing l = {.o = o};
    struct options all = *o;
    int status, err = 0;

    all.filter.body_most = o->json ? BODY_BYTES : TERM_TABLE_PREVIEW;
    status = messages_open(&l.m, &all);
    if (status)
        return status;
    if (!o->json) {
        l.table = term_table_open(columns, sizeof columns / sizeof *columns);
        err = l.table ? 0 : -ENOMEM;
    }
    if (!err)
        err = messages_each(&l.m, o->after ? o->after : "", message_print, &l);
    if (l.table && l.rows && term_table_print(l.table, stdout) < 0 && err >= 0)
        err = -ENOMEM;
    status = messages_end(&l, err);
    term_table_close(&l.table);
    messages_close(&l.m);
    return status;
}
