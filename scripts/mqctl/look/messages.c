/* messages.c - unfinished messages, and mqctl list (see messages.h)
 *
 * Custody is read before the store, because an unfinished message is in the
 * store before it leaves custody. A row of the store is skipped if a slot with
 * the same receive sequence was read: both are the same message, which is
 * running from its row or was written to the store after custody was read.
 */
#include "scripts/mqctl/look/messages.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/string.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term_table.h"
#include "common/custody/ends.h"
#include "common/message/error_text.h"
#include "common/state/counters.h"
#include "common/state/runtimedir.h"
#include "common/state/worker_lock.h"
#include "common/store/spool.h"
#include "scripts/mqctl/ask.h"
#include "scripts/mqctl/look/snapshot.h"

/* ---- cursors ---- */

/* A place in the list, right behind a message. Its text is slot-STATE-SEQ,
 * due-DUE-ROW, spool-KEY, time-DUE-ROW or park-PRIORITY-SEQ-GROUP. */
struct cursor {
    bool slots, due, spool;     /* parts of the list that may have more */
    int64_t spooled;            /* key of the last row of the spool */
    enum waiting_state state;   /* of the last slot */
    uint64_t seq;               /* of the last slot */
    struct waiting_place place; /* of the last row of the store */
};

const char *messages_cursor(const struct message_seen *seen,
                            char text[CURSOR_TEXT])
{
    int n;

    if (seen->in_slot) {
        snprintf(text, CURSOR_TEXT, "slot-%d-%" PRIu64, (int)seen->state,
                 seen->seq);
    } else if (seen->state == WAITING_SPOOLED) {
        snprintf(text, CURSOR_TEXT, "spool-%" PRId64,
                 messages_spooled_key(seen));
    } else if (seen->state == WAITING_PARKED || seen->state == WAITING_HELD) {
        n = snprintf(text, CURSOR_TEXT, "park-%" PRIu32 "-%" PRIu64 "-",
                     seen->priority, seen->seq);
        hex_print(seen->group, seen->group_size, text + n);
    } else {
        snprintf(text, CURSOR_TEXT, "%s-%" PRIu64 "-%" PRId64,
                 seen->state == WAITING_READY ? "due" : "time", seen->due_ns,
                 seen->row);
    }
    return text;
}

/* Read the one or two numbers after a prefix, with dashes between and behind
 * them. Returns the rest; NULL if the text has another form. */
static const char *cursor_numbers(const char *text, const char *prefix,
                                  uint64_t *first, uint64_t *second)
{
    uint64_t *const numbers[] = {first, second};
    size_t size = strlen(prefix);
    char *end;

    if (strncmp(text, prefix, size) != 0)
        return NULL;
    text += size;
    for (size_t i = 0; i < 2 && numbers[i]; i++) {
        if (*text < '0' || *text > '9')
            return NULL;
        *numbers[i] = strtoull(text, &end, 10);
        text = *end == '-' ? end + 1 : end;
    }
    return text;
}

/* Read a cursor; "" is the place before all messages. */
static int cursor_parse(struct cursor *c, const char *text)
{
    struct waiting_place *at = &c->place;
    const char *rest;
    uint64_t number;
    int size;

    *c = (struct cursor){.slots = true, .due = true, .spool = true};
    if (!*text)
        return 0;
    rest = cursor_numbers(text, "slot-", &number, &c->seq);
    if (rest && !*rest && number < WAITING_STATES) {
        c->state = (enum waiting_state)number;
        return 0;
    }
    c->slots = false;
    rest = cursor_numbers(text, "spool-", &number, NULL);
    if (rest && !*rest && number <= INT64_MAX) {
        c->due = false;
        c->spooled = (int64_t)number;
        return 0;
    }
    rest = cursor_numbers(text, "due-", &at->at, &number);
    if (!rest) {
        c->due = c->spool = false;
        rest = cursor_numbers(text, "time-", &at->at, &number);
    }
    if (rest && !*rest) {
        at->row = (int64_t)number;
        return 0;
    }
    rest = cursor_numbers(text, "park-", &number, &at->at);
    if (!rest || (size = hex_parse(rest, at->group, sizeof at->group)) < 0)
        return -EINVAL;
    at->group_size = (size_t)size;
    at->priority = (uint32_t)number;
    at->parked = true;
    return 0;
}

/* ---- the spool ---- */

/* Return true if a filter chooses a message, regardless of its error. This is
 * not left to SQL, because rows of the spool have no columns for the values of
 * their headers, which keeps commits of many messages short. */
static bool message_wanted(const struct waiting_filter *f, const char *group,
                           size_t group_size, uint64_t received_ns,
                           const char *body, size_t size)
{
    return (!f->group || (group && strlen(f->group) == group_size &&
                          memcmp(f->group, group, group_size) == 0)) &&
           received_ns >= f->since_ns &&
           (!f->until_ns || received_ns < f->until_ns) &&
           (!f->match || memmem(body, size, f->match, strlen(f->match)));
}

/* Return the size of the group's key in front of a body; 0: it has none. */
static size_t group_prefix(const char *body, size_t size, char separator)
{
    size_t most =
        size <= HEADER_VALUE_MAX ? size : (size_t)HEADER_VALUE_MAX + 1;
    const char *end = separator ? memchr(body, separator, most) : NULL;

    return end ? (size_t)(end - body) : 0;
}

static int seq_order(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Return true if the message was in a slot when custody was read. */
static bool slot_has(const struct messages *m, uint64_t seq)
{
    return m->seqs &&
           bsearch(&seq, m->seqs, m->count, sizeof *m->seqs, seq_order);
}

/* The visitor of messages_each, for visits to rows of the spool and store. */
struct passing {
    struct messages *m;
    bool all; /* also rows of the spool that are in a slot */
    message_visit *visit;
    void *arg;
};

/* Pass a row of the spool to the visitor if the filter chooses it. A broken
 * header is part of the body, as it is in a slot. */
static int spooled_visit(const struct store_spooled *row, void *arg)
{
    const struct passing *p = arg;
    size_t most = p->m->filter.body_most;
    struct message_seen seen;
    char why[HEADER_WHY];
    struct header h;

    if (row->flags & STORE_CANCELLED ||
        (!p->all && slot_has(p->m, store_spool_seq(row->key))))
        return 0;
    if (header_parse(row->data, row->size, &h, why) < 0)
        h = (struct header){.bytes = 0};
    seen = (struct message_seen){
        .state = WAITING_SPOOLED,
        .id = row->id,
        .seq = store_spool_seq(row->key),
        .received_ns = row->received_ns,
        .priority = store_spool_priority(row->key),
        .crashes = row->crashes,
        .header = (const char *)row->data,
        .header_size = h.bytes,
        .body = (const char *)row->data + h.bytes,
        .size = row->size - h.bytes,
    };
    if (h.fields & HEADER_ID && ulid_is_none(&row->id))
        seen.id = h.id;
    if (h.fields & HEADER_GROUP) {
        seen.group = h.group.at;
        seen.group_size = h.group.size;
    } else if (!h.bytes) {
        seen.group_size = group_prefix(seen.body, seen.size, p->m->separator);
        seen.group = seen.group_size ? seen.body : NULL;
    }
    if (!message_wanted(&p->m->filter, seen.group, seen.group_size,
                        seen.received_ns, seen.body, seen.size))
        return 0;
    seen.body_size = seen.size < most ? seen.size : most;
    return p->visit(&seen, p->arg);
}

int messages_spooled_each(struct messages *m, int64_t after, bool all,
                          message_visit *visit, void *arg)
{
    struct passing p = {m, all, visit, arg};

    if (!m->store || m->filter.error_like ||
        !(m->filter.states & WAITING_BIT(WAITING_SPOOLED)))
        return 0;
    return store_spool_each(m->store, after, spooled_visit, &p);
}

int64_t messages_spooled_key(const struct message_seen *seen)
{
    return store_spool_key(seen->priority, seen->seq);
}

/* ---- what a killed worker had in slots, or had finished ---- */

/* Rows to look for, and for each whether it was found. */
struct rows {
    const int64_t *at;
    size_t count;
    bool *had;
};

/* Mark a row as found if it is one of `r`. */
static void row_mark(const struct rows *r, int64_t row)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->at[i] == row)
            r->had[i] = true;
}

/* Mark the row of a slot, and the key that its message has in the spool. */
static int seen_mark(const struct custody_seen *c, void *arg)
{
    if (c->row > 0)
        row_mark(arg, c->row);
    if (c->seq < STORE_SPOOL_SEQ_MAX)
        row_mark(arg, -store_spool_key(c->priority, c->seq));
    return 0;
}

int messages_in_slots(struct messages *m, const int64_t *rows, size_t count,
                      bool *in_slot)
{
    struct rows r = {rows, count, in_slot};
    char path[PATH_MAX];
    struct problem p;
    int err = runtimedir_file(&m->dir, RUNTIMEDIR_CUSTODY, path, &p);

    return err ? err : custody_look(path, seen_mark, &r, &p);
}

/* Read the file of ends (custody/ends.h), as the next worker will. If the
 * machine went down, or the file is gone, every message may have run. */
bool messages_spooled_ran(struct messages *m, const int64_t *rows, size_t count,
                          bool *ran)
{
    struct rows r = {rows, count, ran};
    struct store_spool_left left;
    int64_t ended[ENDS_MOST];
    char path[PATH_MAX];
    struct problem p;
    int n;

    if (store_spool_left(m->store, &left) < 0 || left.cut)
        return false;
    if (left.run == 0)
        return true; /* the last worker stopped in an orderly way */
    if (runtimedir_file(&m->dir, RUNTIMEDIR_ENDS, path, &p) < 0)
        return false;
    n = ends_look(path, left.run, ended);
    for (int i = 0; i < n; i++)
        row_mark(&r, -ended[i]);
    return n >= 0;
}

/* ---- the slots ---- */

/* Visit a slot: copy it as running or ready. slot_state_find later finds out
 * whether a ready one has to wait for its group. */
static int slot_add(const struct custody_seen *c, void *arg)
{
    struct messages *m = arg;
    size_t size = c->data_size - c->header.bytes;
    const char *body = (const char *)c->data + c->header.bytes;
    struct slot_seen *s,
        *slots = array_grow(m->slots, m->count, &m->room, sizeof *slots);

    if (!slots)
        return -ENOMEM;
    m->slots = slots;
    s = &slots[m->count];
    *s = (struct slot_seen){.c = *c, .size = c->size - c->header.bytes};
    s->state =
        m->runs && c->w.state == SLOT_RUNNING ? WAITING_RUNNING : WAITING_READY;
    s->body_size = size < m->filter.body_most ? size : m->filter.body_most;
    s->data = malloc(c->header.bytes + s->body_size + 1);
    if (!s->data)
        return -ENOMEM;
    memcpy(s->data, c->data, c->header.bytes + s->body_size);
    if (!c->group[0] && !c->header.bytes)
        memcpy(s->c.group, body, group_prefix(body, size, m->separator));
    if (!message_wanted(&m->filter, s->c.group, strlen(s->c.group),
                        c->received_ns, body, size))
        s->state = WAITING_STATES; /* not listed, but still in its group */
    m->count++;
    return 0;
}

/* Find what a message of a group, which is in a slot and not running, is
 * waiting for. */
static int slot_state_find(struct messages *m, struct slot_seen *s)
{
    size_t size = strlen(s->c.group);
    int64_t letter;
    int err = 0;

    if (m->store && m->filter.holds) {
        err = store_group_letter(m->store, s->c.group, size, &letter);
        if (!err)
            s->state = WAITING_HELD;
        if (err != -ENOENT)
            return err;
    }
    err = m->store ? waiting_group_blocked(m->store, s->c.group, size) : 0;
    /* It waits for a running message of its group, and for earlier messages. */
    for (size_t i = 0; err == 0 && i < m->count; i++) {
        const struct slot_seen *o = &m->slots[i];

        if (o != s && strcmp(o->c.group, s->c.group) == 0)
            err = o->c.w.state == SLOT_RUNNING || slot_is_before(o, s);
    }
    if (err == YES)
        s->state = WAITING_PARKED;
    return err < 0 ? err : 0;
}

/* Compare for qsort: by state, then in the order of receipt. */
static int slot_order(const void *a, const void *b)
{
    const struct slot_seen *x = a, *y = b;

    if (x->state != y->state)
        return x->state < y->state ? -1 : 1;
    return (x->c.seq > y->c.seq) - (x->c.seq < y->c.seq);
}

/* Copy all of custody. A missing file is no problem. */
static int slots_read(struct messages *m, struct problem *p)
{
    char path[PATH_MAX];
    int err = runtimedir_file(&m->dir, RUNTIMEDIR_CUSTODY, path, p);

    if (!err)
        err = custody_look(path, slot_add, m, p);
    if (err)
        return err == -ENOENT ? 0 : err;
    m->seqs = calloc(m->count + 1, sizeof *m->seqs);
    err = m->seqs ? 0 : -ENOMEM;
    for (size_t i = 0; !err && i < m->count; i++)
        m->seqs[i] = m->slots[i].c.seq;
    for (size_t i = 0; !err && i < m->count; i++)
        if (m->slots[i].state == WAITING_READY && m->slots[i].c.group[0])
            err = slot_state_find(m, &m->slots[i]);
    if (m->seqs && m->count) {
        qsort(m->slots, m->count, sizeof *m->slots, slot_order);
        qsort(m->seqs, m->count, sizeof *m->seqs, seq_order);
    }
    if (err)
        problem_fill(p, EX_IOERR, "cannot read what is in flight: %s",
                     errno_text(-err));
    return err;
}

#define ASK_MOST 64 /* ids in one request, as the worker takes them */

/* Ask the worker for the last line of stderr of each running message. Running
 * messages come first. */
static void last_stderr_ask(struct messages *m)
{
    size_t at = 0;

    while (at < m->count && m->slots[at].state == WAITING_RUNNING) {
        char line[STATEDIR_REQUEST] = "stderr", id[ULID_TEXT];
        struct slot_seen *asked[ASK_MOST];
        json_t *answer, *one;
        struct problem p;
        size_t n = 0, i;

        for (; n < ASK_MOST && at < m->count &&
               m->slots[at].state == WAITING_RUNNING;
             at++) {
            if (ulid_is_none(&m->slots[at].c.id))
                continue; /* its handler has not begun */
            strlcat(line, " ", sizeof line);
            strlcat(line, ulid_print(m->slots[at].c.id, id), sizeof line);
            asked[n++] = &m->slots[at];
        }
        if (n == 0 || ask(&m->dir, m->queue, line, &answer, &p) != 0)
            return;
        json_array_foreach(json_object_get(answer, "lines"), i, one)
        {
            if (i < n && json_is_string(one))
                strlcpy(asked[i]->last_stderr, json_string_value(one),
                        ERROR_TEXT);
        }
        json_decref(answer);
    }
}

/* ---- open and close ---- */

int messages_open(struct messages *m, const struct options *o)
{
    struct counters_header head = {.pid = 0};
    struct counters *c = NULL;
    const char *separator;
    char path[PATH_MAX];
    struct problem p = {0};
    json_t *live, *runs;
    bool answers = false; /* the worker has answered */
    int err;

    *m = (struct messages){.filter = o->filter};
    m->filter.now_ns = clock_wall_ns();
    if (queue_name(o->line.operands[0], m->queue, &p) < 0)
        return complain_of(&p);
    err = snapshot_named_folder(&m->dir, o->state_dir, m->queue, &p);
    if (err == -ENOENT)
        return p.status == EX_NOINPUT ? complain_of(&p) : 0;
    if (!err)
        err = statedir_path(&m->dir, STATEDIR_PIDFILE, path, &p);
    m->runs = !err && worker_lock_look(path, NULL) == WORKER_RUNS;
    /* Ask the worker whether dead letters hold groups, and for its
     * --group-separator. Without a worker, the counters that the last one left
     * show whether letters hold groups; a reboot deletes them. */
    if (m->runs && ask(&m->dir, m->queue, "status", &live, &p) == 0) {
        m->filter.holds =
            json_integer_value(json_object_get(live, "groups_held")) > 0;
        runs = json_object_get(live, "runs");
        separator =
            json_text_of(json_object_get(runs, "flags"), "group-separator");
        m->separator = separator ? separator[0] : '\0';
        answers = true;
        json_decref(live);
    } else if (!err && !m->runs) {
        if (runtimedir_file(&m->dir, RUNTIMEDIR_COUNTERS, path, &p) == 0 &&
            counters_attach(&c, path, &p) == 0)
            counters_header(c, &head);
        counters_close(&c);
        m->filter.holds = head.gauges[COUNTERS_GROUPS_HELD] > 0;
    }
    if (!err)
        err = statedir_path(&m->dir, STATEDIR_STORE, path, &p);
    if (!err)
        err = store_open(&m->store, path, false, &p);
    if (!err || err == -ENOENT)
        err = slots_read(m, &p);
    if (!err && answers && o->line.verb == VERB_LIST)
        last_stderr_ask(m);
    if (!err)
        return 0;
    messages_close(m);
    return complain_of(&p);
}

void messages_close(struct messages *m)
{
    for (size_t i = 0; i < m->count; i++)
        free(m->slots[i].data);
    free(m->slots);
    free(m->seqs);
    store_close(&m->store);
    m->slots = NULL;
    m->seqs = NULL;
    m->count = 0;
}

/* ---- each ---- */

/* Pass a row of the store to the visitor, unless a slot has its message. */
static int row_pass(const struct waiting_row *w, void *arg)
{
    const struct passing *p = arg;
    const struct store_row *r = &w->m;

    if (slot_has(p->m, r->receive_seq))
        return 0;
    return p->visit(&(struct message_seen){.state = w->state,
                                           .id = r->id,
                                           .row = r->row,
                                           .seq = r->receive_seq,
                                           .received_ns = r->first_received_ns,
                                           .due_ns = r->state == STORE_WAITING
                                                         ? r->due_ns
                                                         : 0,
                                           .priority = r->priority,
                                           .failures = r->attempts,
                                           .crashes = r->crashes,
                                           .group = r->group,
                                           .group_size = r->group_size,
                                           .error = r->error,
                                           .error_text = w->error_text,
                                           .body = w->body,
                                           .body_size = w->body_size,
                                           .size = r->size - r->header_size},
                    p->arg);
}

/* Visit the rows behind a place that the filter chooses and that are in one of
 * these states. */
static int rows_pass(struct passing *p, const struct waiting_place *place,
                     unsigned states)
{
    struct waiting_filter f = p->m->filter;

    f.states &= states;
    return p->m->store ? waiting_each(p->m->store, &f, place, row_pass, p) : 0;
}

/* The last failure of a message in a slot that also has a row. */
struct failure {
    bool seen;
    char error[ERROR_JOINED], text[ERROR_TEXT];
};

/* Visit a row: keep its last failure. */
static int failure_keep(const struct waiting_row *w, void *arg)
{
    struct failure *f = arg;

    f->seen = w->m.error != NULL;
    strlcpy(f->error, w->m.error ? w->m.error : "", sizeof f->error);
    strlcpy(f->text, w->error_text ? w->error_text : "", sizeof f->text);
    return 0;
}

/* Visit slots, due rows, the spool, then other rows: the order in which they
 * run. A list that continues in the spool does not visit due rows again, so a
 * row that has become due since the last page is missed. */
int messages_each(struct messages *m, const char *cursor, message_visit *visit,
                  void *arg)
{
    struct passing p = {.m = m, .visit = visit, .arg = arg};
    const struct waiting_filter *f = &m->filter;
    struct cursor c;
    int err = cursor_parse(&c, cursor);

    for (size_t i = 0; !err && c.slots && i < m->count; i++) {
        const struct slot_seen *s = &m->slots[i];
        const struct custody_seen *in = &s->c;
        struct failure fail = {.seen = false};
        bool running = s->state == WAITING_RUNNING;

        if (s->state == WAITING_STATES ||
            !(f->states & WAITING_BIT(s->state)) || s->state < c.state ||
            (s->state == c.state && in->seq <= c.seq))
            continue;
        if (in->row && m->store)
            err = waiting_get(m->store, in->row, f, failure_keep, &fail);
        if (err && err != -ENOENT)
            return err;
        err = 0;
        if (f->error_like &&
            !(fail.seen &&
              error_text_like(f->error_like, fail.error, fail.text)))
            continue;
        err = visit(
            &(struct message_seen){
                .state = s->state,
                .in_slot = true,
                .slot = s,
                .id = in->id,
                .row = in->row,
                .seq = in->seq,
                .received_ns = in->received_ns,
                .started_ns = running ? in->started_ns : 0,
                .priority = in->priority,
                .failures = in->failures,
                .crashes = in->w.crashes,
                .attempt = running ? in->w.attempt : 0,
                .pid = running ? in->pgid : 0,
                .group = in->group[0] ? in->group : NULL,
                .group_size = strlen(in->group),
                .error = fail.seen ? fail.error : NULL,
                .error_text = fail.text[0] ? fail.text : NULL,
                .last_stderr = s->last_stderr[0] ? s->last_stderr : NULL,
                .header = s->data,
                .header_size = in->header.bytes,
                .body = s->data + in->header.bytes,
                .body_size = s->body_size,
                .size = s->size},
            arg);
    }
    if (!err && c.due)
        err = rows_pass(&p, &c.place, WAITING_BIT(WAITING_READY));
    if (!err && c.spool)
        err = messages_spooled_each(m, c.spooled, false, visit, arg);
    if (err || !c.spool)
        return err ? err : rows_pass(&p, &c.place, WAITING_ALL);
    return rows_pass(&p, &(struct waiting_place){0},
                     WAITING_ALL & ~WAITING_BIT(WAITING_READY));
}

/* ---- mqctl list ---- */

bool filter_given(const struct options *o)
{
    const struct waiting_filter *f = &o->filter;

    return f->states != WAITING_ALL || f->error_like || f->group || f->match ||
           f->since_ns || f->until_ns || o->limit;
}

#define BODY_BYTES 4096 /* of a body in JSON */

struct listing {
    const struct options *o;
    struct messages m;
    struct term_table *table; /* NULL: JSON */
    uint64_t rows;
    char last[CURSOR_TEXT];
};

json_t *message_json(const char *queue, const struct message_seen *seen)
{
    char id[ULID_TEXT], cursor[CURSOR_TEXT];
    bool named = !ulid_is_none(&seen->id);
    json_t *o = json_pack(
        "{s:o, s:s?, s:o, s:s, s:I, s:o, s:o, s:I, s:I, s:I, s:b, s:s, s:s?}",
        "queue", json_printable(queue), "id",
        named ? ulid_print(seen->id, id) : NULL, "row",
        seen->row ? json_integer(seen->row) : json_null(), "state",
        waiting_state_text(seen->state), "failures", (json_int_t)seen->failures,
        "attempt", seen->attempt ? json_integer(seen->attempt) : json_null(),
        "pid", seen->pid ? json_integer(seen->pid) : json_null(), "crashes",
        (json_int_t)seen->crashes, "priority", (json_int_t)seen->priority,
        "size", (json_int_t)seen->size, "body_cut",
        seen->body_size < seen->size, "cursor", messages_cursor(seen, cursor),
        "last_stderr", seen->last_stderr);
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
    char id[ULID_TEXT] = "-", wait[DURATION_TEXT], error[ERROR_JOINED];
    const char *fault = seen->error, *text = seen->error_text;
    uint64_t wall = clock_wall_ns();
    struct listing *l = arg;
    struct term_table *t = l->table;
    int err = 0;

    if (l->o->limit && l->rows == l->o->limit)
        return VISIT_ENOUGH;
    messages_cursor(seen, l->last);
    if (t) {
        if (!ulid_is_none(&seen->id))
            ulid_print(seen->id, id);
        term_cellf(t, "%s", id);
        term_cellf(t, "%s", waiting_state_text(seen->state));
        if (seen->due_ns > wall)
            term_cellf(t, "in %s", duration_rough(seen->due_ns - wall, wait));
        else
            term_cellf(t, "%s", seen->state == WAITING_READY ? "now" : "-");
        term_cellf(t, "%" PRIu32, seen->failures);
        term_cellf(t, "%" PRIu32, seen->priority);
        term_cell(t, seen->group ? seen->group : "", seen->group_size);
        term_cell_age(t, seen->received_ns);
        error_text_join(error, sizeof error, fault, text);
        term_cell(t, error, strlen(error));
        term_cellf(t, "%s", seen->last_stderr ? seen->last_stderr : "");
        term_cellf(t, "%zu", seen->size);
        term_cell(t, seen->body, seen->body_size);
    } else {
        err = json_print_line(message_json(l->m.queue, seen), stdout);
    }
    if (++l->rows % TERM_TABLE_PART == 0 && l->table)
        term_table_print(l->table, stdout);
    return err;
}

int list_run(const struct options *o)
{
    static const struct term_column columns[] = {
        {"ID", TERM_LEFT, TERM_WHOLE},     {"STATE", TERM_LEFT, TERM_WHOLE},
        {"DUE", TERM_LEFT, TERM_WHOLE},    {"TRIES", TERM_RIGHT, TERM_WHOLE},
        {"PRIO", TERM_RIGHT, TERM_EXTRA},  {"GROUP", TERM_LEFT, TERM_SPARE},
        {"AGE", TERM_RIGHT, TERM_EXTRA},   {"ERROR", TERM_LEFT, TERM_SPARE},
        {"STDERR", TERM_LEFT, TERM_SPARE}, {"SIZE", TERM_RIGHT, TERM_EXTRA},
        {"BODY", TERM_LEFT, TERM_END},
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
    if (err == -EINVAL && l.rows == 0 && o->after)
        status = complain(EX_USAGE,
                          "--after: \"%.80s\" is not a cursor; give one from "
                          "mqctl list",
                          o->after);
    else if (err < 0)
        status = complain(err == -ENOMEM ? EX_OSERR : EX_IOERR,
                          "cannot read the messages: %s", errno_text(-err));
    else if (err == VISIT_ENOUGH && l.table)
        complain(0, "there are more: --after %s", l.last);
    else if (!err && l.rows == 0 && l.table)
        complain(0,
                 filter_given(o)
                     ? "%s has no matching message"
                     : "%s has no running or waiting message; messages still "
                       "in the queue are not listed",
                 l.m.queue);
    term_table_close(&l.table);
    messages_close(&l.m);
    return status;
}
