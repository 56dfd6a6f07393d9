/* letters.c - dead letters as an operator sees them (see letters.h)
 *
 * mqdlq and mqctl call these functions in their only thread. The worker calls
 * some of them on any thread, for --keep-dead, --max-dead and --on-dead.
 */
#include <bsd/sys/queue.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/basics.h"
#include "common/base/fault_point.h"
#include "common/cli/json_line.h"
#include "common/message/error_text.h"
#include "common/store/letters.h"
#include "common/store/sql.h"

/* The letters between two places in the order of death, without these two. */
struct range {
    struct store_cursor low, high;
};

/* Copy the letter that a statement stands on. `boot` is the current one. */
static int letter_make(sqlite3_stmt *st, const void *boot, void **out,
                       size_t *bytes)
{
    static const int columns[] = {COL_DATA, COL_GROUP, COL_ERROR, COL_STDERR,
                                  COL_ERROR_TEXT};
    const char *there = (const char *)sqlite3_column_text(st, COL_BOOT);
    const char *here = boot;
    const void *token = sqlite3_column_blob(st, COL_TOKEN);
    struct sql_bytes part[5];
    struct store_row m;
    struct letter *l;
    int err = sql_read_row(st, &m);

    if (err)
        return err;
    l = sql_copy(st, sizeof *l, columns, 5, part);
    if (!l)
        return -ENOMEM;
    m.data = part[0].at;
    m.group = part[1].at;
    m.error = part[2].at;
    *l = (struct letter){
        .m = m,
        /* If a boot is not known, the letter may have been sent in this boot.
         */
        .replay = {.here = there &&
                           (!*there || !*here || !sql_elsewhere(there, here)),
                   .sent = sqlite3_column_int(st, COL_SENT) != 0,
                   .marked_ns = sql_column_u64(st, COL_MARKED)},
        .body = part[0].at + m.header_size,
        .body_size = m.size - m.header_size,
        .stderr_tail = part[3].at,
        .stderr_size = part[3].size,
        .error_text = part[4].at,
    };
    l->replay.known =
        token && sqlite3_column_bytes(st, COL_TOKEN) == sizeof l->replay.token;
    if (l->replay.known)
        memcpy(&l->replay.token, token, sizeof l->replay.token);
    *bytes = sizeof *l + m.size + part[3].size;
    *out = l;
    return 0;
}

/* The values of a statement over the letters of a filter; `room` and `by` are
 * those numbered 10 and 11. */
#define LETTER_VALUES(f, range, room, by)                                 \
    SQL_VALUES(value_u64((range)->low.ns), value_int((range)->low.row),   \
               value_u64((range)->high.ns), value_int((range)->high.row), \
               value_int((f)->reason), value_string((f)->group),          \
               value_string((f)->error_like), value_string((f)->match),   \
               value_int((f)->replayed ? STORE_REPLAYED : STORE_DEAD),    \
               value_u64(room), by)

/* Find the place of the matching letter number `nth`, where 0 is the newest;
 * -ENOENT. */
static int edge_find(struct store *s, const struct letter_filter *f,
                     const struct range *range, uint64_t nth,
                     struct store_cursor *place)
{
    sqlite3_stmt *st;
    int found =
        store_ask(s, &st, SQL_EDGE, LETTER_VALUES(f, range, nth, VALUE_NONE));

    if (found > 0)
        *place = (struct store_cursor){sql_column_u64(st, 0),
                                       sqlite3_column_int64(st, 1)};
    return store_answered(s, st, found);
}

/* Return the range of a filter's since, until and before. Rows start at 1, so
 * the place {ns, 0} is before all letters that died at that time. */
static struct range range_of(const struct letter_filter *f)
{
    struct range range = {
        .low = {f->since_ns, 0},
        .high = {f->until_ns, 0},
    };

    if (f->until_ns == 0)
        range.high = (struct store_cursor){INT64_MAX, INT64_MAX};
    if (f->before_row && f->before_ns < range.high.ns)
        range.high = (struct store_cursor){f->before_ns, f->before_row};
    return range;
}

/* Narrow a range for a visit from old to new: end at the newest letter of now,
 * because replays that die again would otherwise be visited forever, and begin
 * at the oldest of the newest `limit`. -ENOENT if no letter matches. */
static int range_freeze(struct store *s, const struct letter_filter *f,
                        struct range *range)
{
    struct store_cursor newest = {0}, first = {0};
    int err = edge_find(s, f, range, 0, &newest);

    if (err)
        return err;
    newest.row++;
    range->high = newest;
    if (f->limit == 0)
        return 0;
    err = edge_find(s, f, range, f->limit - 1, &first);
    if (err)
        return err == -ENOENT ? 0 : err; /* fewer than the limit: all */
    first.row--;
    range->low = first;
    return 0;
}

int letters_narrow(struct store *s, struct letter_filter *f, uint64_t most)
{
    const struct letter_filter times = {.replayed = f->replayed};
    struct range range = range_of(f);
    struct store_cursor place = {0};
    int err = edge_find(s, &times, &range, most, &place);

    /* There are more than `most`: begin at the oldest of the newest `most`. */
    if (!err)
        err = edge_find(s, &times, &range, most - 1, &place);
    if (err)
        return err == -ENOENT ? NO : err;
    f->since_ns = place.ns;
    return YES;
}

int letters_each(struct store *s, const struct letter_filter *f,
                 bool oldest_first,
                 int (*visit)(const struct letter *l, void *arg), void *arg)
{
    enum sql_id list = f->retries     ? SQL_LIST_RETRIES
                       : oldest_first ? SQL_LIST_OLDEST
                                      : SQL_LIST_NEWEST;
    struct range range = range_of(f);
    struct store_cursor *end = oldest_first ? &range.low : &range.high;
    uint64_t left = f->limit ? f->limit : UINT64_MAX;
    struct store_page page;
    int more, err = oldest_first ? range_freeze(s, f, &range) : 0;

    if (err)
        return err == -ENOENT ? 0 : err;
    do {
        more = store_page_read(s, &page, letter_make, store_boot(s), list,
                               LETTER_VALUES(f, &range, left, VALUE_NONE));
        err = more < 0 ? more : 0;
        for (size_t i = 0; i < page.count; i++) {
            const struct letter *l = page.rows[i];

            *end = (struct store_cursor){l->m.died_ns, l->m.row};
            if (!err)
                err = visit(l, arg);
            free(page.rows[i]);
        }
        left -= page.count;
    } while (!err && more == STEP_ROW);
    return err;
}

int letters_deaths(struct store *s, const struct store_cursor *after,
                   struct store_cursor out[STORE_PAGE])
{
    return store_cursors(s, SQL_OLDEST_DEAD, after, VALUE_NONE, out);
}

int letters_of_id(struct store *s, const struct ulid *id,
                  const struct store_cursor *after,
                  struct store_cursor out[STORE_PAGE])
{
    return store_cursors(s, SQL_LETTERS_OF_ID, after,
                         value_blob(id, sizeof *id), out);
}

/* Visit one letter; with `retry` also a replayed letter that waits for its
 * retry. */
static int letter_visit(struct store *s, int64_t row, bool retry,
                        int (*visit)(const struct letter *l, void *arg),
                        void *arg)
{
    struct store_page page;
    int err = store_page_read(s, &page, letter_make, store_boot(s), SQL_LETTER,
                              SQL_VALUES(value_int(row), value_int(retry)));

    if (page.count == 0)
        return err < 0 ? err : -ENOENT;
    if (!err)
        err = visit(page.rows[0], arg);
    free(page.rows[0]);
    return err;
}

int letters_get(struct store *s, int64_t row,
                int (*visit)(const struct letter *l, void *arg), void *arg)
{
    return letter_visit(s, row, false, visit, arg);
}

const char *letter_replay_text(const struct letter *l)
{
    if (l->m.state != STORE_REPLAYED)
        return NULL;
    return !l->replay.here                      ? "lost"
           : l->replay.known && !l->replay.sent ? "unsure"
                                                : "sent";
}

/* ---- counts by value, and history ---- */

struct tally {
    STAILQ_ENTRY(tally) link;
    struct letter_tally is;
};

/* The whole summary is read before the first visit. */
int letters_summary(struct store *s, enum letter_by by,
                    const struct letter_filter *f,
                    int (*visit)(const struct letter_tally *t, void *arg),
                    void *arg)
{
    static const int columns[] = {0, 3};
    STAILQ_HEAD(, tally) all = STAILQ_HEAD_INITIALIZER(all);
    struct range range = range_of(f);
    struct sql_bytes part[2];
    sqlite3_stmt *st;
    struct tally *t;
    int err =
        store_ask(s, &st, SQL_SUMMARY,
                  LETTER_VALUES(f, &range, f->limit ? f->limit : UINT64_MAX,
                                value_int(by)));

    for (; err == STEP_ROW; err = sql_step(st)) {
        t = sql_copy(st, sizeof *t, columns, 2, part);
        if (!t) {
            err = -ENOMEM;
            break;
        }
        if (by == LETTER_BY_REASON) {
            part[0].at =
                dead_reason_text((enum dead_reason)sqlite3_column_int(st, 0));
            part[0].size = strlen(part[0].at);
        }
        t->is = (struct letter_tally){
            .value = part[0].at,
            .size = part[0].size,
            .text = part[1].at,
            .count = sql_column_u64(st, 1),
            .newest_ns = sql_column_u64(st, 2),
        };
        STAILQ_INSERT_TAIL(&all, t, link);
    }
    (void)store_answered(s, st, err);
    while ((t = STAILQ_FIRST(&all)) != NULL) {
        STAILQ_REMOVE_HEAD(&all, link);
        if (!err)
            err = visit(&t->is, arg);
        free(t);
    }
    return err;
}

int letters_history(struct store *s, int64_t row,
                    int (*visit)(unsigned n, const struct store_attempt *a,
                                 void *arg),
                    void *arg)
{
    static const int columns[] = {ATTEMPT_ERROR, ATTEMPT_STDERR};
    struct sql_bytes part[2];
    struct store_attempt *a;
    sqlite3_stmt *st;
    int err;

    for (unsigned n = 0;;) { /* the attempt after number n */
        err = store_ask(s, &st, SQL_HISTORY,
                        SQL_VALUES(value_int(row), value_int(n)));
        a = err > 0 ? sql_copy(st, sizeof *a, columns, 2, part) : NULL;
        if (a) {
            n = (unsigned)sqlite3_column_int64(st, ATTEMPT_N);
            *a = (struct store_attempt){
                .started_ns = sql_column_u64(st, ATTEMPT_STARTED),
                .duration_ns = sql_column_u64(st, ATTEMPT_DURATION),
                .error = part[0].at,
                .stderr_tail = part[1].at,
                .stderr_size = part[1].size,
                .said = sqlite3_column_int(st, ATTEMPT_SAID) != 0,
            };
            if (sqlite3_column_count(st) > ATTEMPT_PEAK)
                a->usage = (struct usage){sql_column_u64(st, ATTEMPT_CPU),
                                          sql_column_u64(st, ATTEMPT_PEAK)};
        } else if (err > 0) {
            err = -ENOMEM;
        }
        (void)store_answered(s, st, err);
        if (!a)
            return err; /* 0: it was the last attempt */
        err = visit(n, a, arg);
        free(a);
        if (err)
            return err;
    }
}

/* ---- changing ---- */

struct mark {
    const struct letter_mark *mark;
    const struct letter_mark *sent; /* NULL: none */
    const char *boot;
};

/* Return the token of a mark as a value. */
static struct sql_value token_of(const struct letter_mark *mark)
{
    return value_blob(&mark->token, sizeof mark->token);
}

/* Mark a letter as replayed, with its edit, and record a new replay, or the new
 * time of the last one. */
static int mark_apply(struct sql *sql, void *arg)
{
    const struct mark *m = arg;
    const struct letter_mark *mark = m->mark;
    const struct sql_value row = value_int(mark->row);
    const struct sql_value died = value_u64(mark->died_ns);
    const struct sql_value marked = value_u64(mark->marked_ns);
    const struct sql_value boot = value_string(m->boot);
    const struct sql_value id = value_blob(&mark->id, sizeof mark->id);
    const struct letter_edit *e = mark->edit;
    int64_t is;
    int err = e ? sql_change(sql, SQL_EDIT,
                             SQL_VALUES(row, died, boot, id,
                                        value_blob(&e->id, sizeof e->id),
                                        value_u64(e->header_size),
                                        value_blob(e->data, e->size)))
                : sql_change(sql, mark->again ? SQL_MARK_AGAIN : SQL_MARK,
                             SQL_VALUES(row, died, boot, id));

    if (err == -ENOENT && !mark->again) {
        err = sql_number(sql, &is, SQL_MARKED, SQL_VALUES(row, died));
        return err < 0 ? err : err == STEP_ROW ? -EALREADY : -ENOENT;
    }
    if (!err)
        err = mark->again
                  ? sql_change(sql, SQL_REPLAY_AGAIN,
                               SQL_VALUES(row, token_of(mark), marked))
                  : sql_change(sql, SQL_REPLAY_ADD,
                               SQL_VALUES(row, token_of(mark), died, marked));
    if (err || !m->sent)
        return err;
    return sql_run(sql, SQL_REPLAY_SENT,
                   SQL_VALUES(value_int(m->sent->row), token_of(m->sent)));
}

/* The mark comes before the send, because a fast worker could otherwise take
 * the message before the store has its token. Crash after the mark and before
 * the send: the letter is in no queue, but marked, and not noted as sent. An
 * operator can send it again, and a reboot makes it dead again.
 * With an edit, the row of the original becomes the edited message. Crash
 * before the commit: only the original exists. After it: only the edited
 * message exists, marked. So there is always one of the two. Copies that an
 * earlier replay of the original left in the queue have an earlier token, by
 * which the worker drops them. */
int letters_mark_replayed(struct store *s, const struct letter_mark *mark,
                          const struct letter_mark *sent)
{
    struct mark m = {.mark = mark, .sent = sent, .boot = store_boot(s)};

    return FAULT_POINTS("letters_mark", store_write(s, mark_apply, NULL, &m));
}

/* Crash after the send and before this commit: the letter is not noted as sent.
 * If an operator sends it again, the worker drops one of the two messages. */
int letters_mark_sent(struct store *s, const struct letter_mark *mark)
{
    return store_run(s, SQL_REPLAY_SENT,
                     SQL_VALUES(value_int(mark->row), token_of(mark)), NULL);
}

/* The message is in the queue. Crash before the commit: the letter is in the
 * store, too, and can be sent a second time. A letter that was edited while the
 * program waited for room stays, because only the store has the new body. */
int letters_remove_sent(struct store *s, const struct letter_mark *mark)
{
    int64_t gone;
    int err =
        store_run(s, SQL_SENT_AWAY,
                  SQL_VALUES(value_int(mark->row), value_u64(mark->died_ns),
                             value_string(store_boot(s)),
                             value_blob(&mark->id, sizeof mark->id)),
                  &gone);

    return err ? err : gone ? 0 : -ENOENT;
}

/* Make a letter dead again, and delete the replay. */
static int unmark_apply(struct sql *sql, void *arg)
{
    const struct letter_mark *mark = arg;
    int err = sql_change(sql, SQL_REPLAY_DROP,
                         SQL_VALUES(value_int(mark->row), token_of(mark),
                                    value_u64(mark->marked_ns)));

    return err ? err
               : sql_change(sql, SQL_UNMARK, SQL_VALUES(value_int(mark->row)));
}

int letters_unmark(struct store *s, const struct letter_mark *mark)
{
    return store_write(s, unmark_apply, NULL, (void *)mark);
}

/* Letters to remove, by their deaths or by their messages. */
struct removal {
    const struct store_cursor *deaths; /* NULL: by `letters` */
    const struct letter_name *letters;
    size_t n;
    int64_t gone;
};

/* Remove letters, except those that an operator has edited meanwhile or, by
 * their deaths, sent again. */
static int removal_apply(struct sql *sql, void *arg)
{
    struct removal *r = arg;
    int err = 0;

    r->gone = 0;
    for (size_t i = 0; !err && i < r->n; i++) {
        err = r->deaths ? sql_run(sql, SQL_DROP,
                                  SQL_VALUES(value_int(r->deaths[i].row),
                                             value_u64(r->deaths[i].ns)))
                        : sql_run(sql, SQL_DISCARD,
                                  SQL_VALUES(value_int(r->letters[i].row),
                                             value_blob(&r->letters[i].id,
                                                        sizeof(struct ulid))));
        r->gone += err ? 0 : sqlite3_changes(sql->db);
    }
    return err;
}

int64_t letters_discard(struct store *s, const struct letter_name *letters,
                        size_t n)
{
    struct removal r = {.letters = letters, .n = n};
    int err = FAULT_POINTS("letters_discard",
                           store_write(s, removal_apply, NULL, &r));

    return err ? err : r.gone;
}

/* Crash before the commit: the group is held. After it: a running worker
 * notices the write and releases the group, or the next worker does. */
int64_t letters_let_go(struct store *s, const char *group, size_t size)
{
    int64_t letters;
    int err =
        FAULT_POINTS("letters_let_go",
                     store_run(s, SQL_GROUP_LET_GO,
                               SQL_VALUES(value_text(group, size)), &letters));

    return err ? err : letters;
}

/* Crash before the commit: all letters are there, and the next worker drops
 * them. After it: they are gone. */
int64_t letters_drop(struct store *s, const struct store_cursor *list, size_t n)
{
    struct removal r = {.deaths = list, .n = n};
    int err =
        FAULT_POINTS("letters_drop", store_write(s, removal_apply, NULL, &r));

    return err ? err : r.gone;
}

/* Cut up to 1024 unused pages off the file. *arg becomes true if any were cut:
 * there may be more. */
static int shrink_apply(struct sql *sql, void *arg)
{
    int64_t worth = 0;
    int err = sql_number(sql, &worth, SQL_SHRINK_WORTH, NULL);

    *(bool *)arg = worth != 0;
    if (err < 0)
        return err;
    return worth ? sql_run(sql, SQL_SHRINK, NULL) : 0;
}

int letters_shrink(struct store *s)
{
    bool more;
    int err;

    do {
        err = store_write(s, shrink_apply, NULL, &more);
    } while (!err && more);
    return err;
}

struct import {
    const struct letter_import *letters;
    size_t n;
    struct letter_known *known; /* NULL: import all */
};

/* Return STEP_ROW if the store has that letter, STEP_END if not, or -errno. */
static int letter_find(struct sql *sql, const struct letter_import *l,
                       int64_t last_row)
{
    const struct store_row *m = &l->m;
    const struct sql_value data = value_blob(m->data, m->size);
    const struct sql_value priority = value_int(m->priority);
    const struct sql_value died = value_u64(m->died_ns);
    int64_t is;

    if (l->named)
        return sql_number(sql, &is, SQL_LETTER_HAS_ID,
                          SQL_VALUES(value_blob(&m->id, sizeof m->id), priority,
                                     data, value_int(last_row),
                                     l->dated ? died : VALUE_NULL));
    if (l->dated)
        return sql_number(sql, &is, SQL_LETTER_HAS_DEATH,
                          SQL_VALUES(died, priority, data));
    return STEP_END;
}

/* Insert all letters, with their history, as dead rows. They get no
 * receive_seq, because no slot of this machine has held them. On an error the
 * caller rolls back, so none is inserted. */
static int import_apply(struct sql *sql, void *arg)
{
    struct import *import = arg;
    struct letter_known *known = import->known;
    int err = 0;

    if (known)
        known->present = 0;
    for (size_t i = 0; !err && i < import->n; i++) {
        const struct letter_import *l = &import->letters[i];
        int found = known ? letter_find(sql, l, known->last_row) : STEP_END;
        struct store_row m = l->m;
        int64_t row;

        if (found == STEP_ROW) {
            known->present++;
            continue;
        }
        m.row = 0;
        m.state = STORE_DEAD;
        m.receive_seq = 0;
        err = found < 0 ? found : sql_row_valid(&m) ? 0 : -EINVAL;
        if (!err)
            err = sql_put_row(sql, &m, NULL, &row);
        for (size_t h = 0; !err && h < l->history_count; h++)
            err = sql_insert_attempt(sql, row, &l->history[h]);
    }
    return err;
}

int letters_import(struct store *s, const struct letter_import *l, size_t n,
                   struct letter_known *known)
{
    struct import import = {.letters = l, .n = n, .known = known};

    return store_write(s, import_apply, NULL, &import);
}

int letters_last_row(struct store *s, int64_t *row)
{
    return store_number(s, row, SQL_LAST_ROW, NULL);
}

/* ---- deaths for --on-dead ---- */

/* store_put records a death in the commit that makes the row a letter. The
 * command runs before letters_hook_end. Crash before the commit of
 * letters_hook_end: the next worker runs the command again. After it: no worker
 * does. So the command runs at least once. The foreign key deletes the record
 * of a death together with its letter. If the letter dies again meanwhile, the
 * new death has another number, so that letters_hook_end of the old one does
 * not delete it. */

int letters_hook(struct store *s, int64_t after, struct letter_hook *out)
{
    sqlite3_stmt *st;
    int found = store_ask(s, &st, SQL_HOOK_NEXT, SQL_VALUES(value_int(after)));

    if (found > 0)
        *out = (struct letter_hook){sqlite3_column_int64(st, 0),
                                    sqlite3_column_int64(st, 1)};
    return store_answered(s, st, found);
}

struct end {
    int64_t n, next;
    bool told;
};

/* Delete a death, or give it a new number after all others; 0 if it was deleted
 * with its letter meanwhile. */
static int end_apply(struct sql *sql, void *arg)
{
    struct end *end = arg;
    int err = sql_change(sql, end->told ? SQL_HOOK_DONE : SQL_HOOK_LATER,
                         SQL_VALUES(value_int(end->n)));

    end->next = err || end->told ? 0 : sqlite3_last_insert_rowid(sql->db);
    return err == -ENOENT ? 0 : err;
}

int letters_hook_end(struct store *s, int64_t n, bool told, int64_t *next)
{
    struct end end = {.n = n, .told = told};
    int err =
        FAULT_POINTS("letters_hook_end", store_write(s, end_apply, NULL, &end));

    if (!err && next)
        *next = end.next;
    return err;
}

int letters_hooks_forget(struct store *s)
{
    struct letter_hook any;
    int err = letters_hook(s, 0, &any);

    if (!err)
        err = store_run(s, SQL_HOOKS_FORGET, NULL, NULL);
    return err == -ENOENT ? 0 : err;
}

/* ---- as JSON ---- */

/* A letter on its way to JSON. */
struct writing {
    const char *queue;
    int64_t row;
    const struct letter_elsewhere *elsewhere; /* NULL: of this machine */
    json_t *history;
    json_t *object;
    int err; /* -ENOMEM: a field could not be made; later fields are left out */
};

/* Set a field; a value that could not be made is NULL. */
static void put_new(struct writing *w, json_t *object, const char *name,
                    json_t *value)
{
    if (json_object_set_new(object, name, value) < 0)
        w->err = -ENOMEM;
}

/* Set a number, which is below 2^63. */
static void put_int(struct writing *w, json_t *object, const char *name,
                    uint64_t value)
{
    put_new(w, object, name, json_integer((json_int_t)value));
}

/* Set bytes as a string if they can be one, else as NAME_base64. */
static void put_bytes(struct writing *w, json_t *object, const char *name,
                      const void *data, size_t size)
{
    if (json_put_bytes(object, name, data, size) < 0)
        w->err = -ENOMEM;
}

/* Set a string or null. */
static void put_text(struct writing *w, json_t *object, const char *name,
                     const char *text)
{
    put_bytes(w, object, name, text, text ? strlen(text) : 0);
}

/* Set a time as text, and as NAME_ns in ns; null and 0 if it is unknown (0). */
static void put_time(struct writing *w, json_t *object, const char *name,
                     uint64_t wall_ns)
{
    if (json_put_time(object, name, wall_ns) < 0)
        w->err = -ENOMEM;
}

/* Visit: add one failed delivery to the history. */
static int attempt_put(unsigned n, const struct store_attempt *a, void *arg)
{
    struct writing *w = arg;
    char text[ERROR_TEXT];
    json_t *o = json_object();

    put_int(w, o, "n", n);
    put_time(w, o, "started_at", a->started_ns);
    put_int(w, o, "duration_ns", a->duration_ns);
    if (json_put_usage(o, &a->usage) < 0)
        w->err = -ENOMEM;
    put_text(w, o, "error", a->error);
    error_text(text, a->error, a->said, a->stderr_tail ? a->stderr_tail : "",
               a->stderr_size);
    put_text(w, o, "error_text", text[0] ? text : NULL);
    put_new(w, o, "said", json_boolean(a->said));
    put_bytes(w, o, "stderr", a->stderr_tail ? a->stderr_tail : "",
              a->stderr_size);
    if (w->elsewhere)
        put_text(w, o, "machine",
                 w->elsewhere->machine(w->elsewhere->arg, w->row, n));
    return json_array_append_new(w->history, o) < 0 ? -ENOMEM : w->err;
}

/* Visit: make the object of a letter, with its history. */
static int letter_object_make(const struct letter *l, void *arg)
{
    const struct store_row *m = &l->m;
    struct writing *w = arg;
    char id[ULID_TEXT];
    json_t *o = w->object = json_object();

    if (!w->elsewhere)
        put_int(w, o, "id", (uint64_t)m->row);
    put_text(w, o, "message_id", ulid_print(m->id, id));
    put_text(w, o, "queue", w->queue);
    put_text(w, o, "state",
             m->state == STORE_REPLAYED ? "replayed"
             : m->state == STORE_DEAD   ? "dead"
                                        : "retry");
    put_text(w, o, "replay", letter_replay_text(l));
    put_time(w, o, "replayed_at", l->replay.known ? l->replay.marked_ns : 0);
    put_time(w, o, "died_at", m->died_ns);
    put_text(w, o, "reason", dead_reason_text(m->reason));
    put_text(w, o, "error", m->error);
    put_text(w, o, "error_text", l->error_text);
    put_int(w, o, "attempts", m->attempts);
    put_int(w, o, "crashes", m->crashes);
    put_new(w, o, "redelivered", json_boolean(m->flags & STORE_REDELIVERED));
    put_new(w, o, "length_inferred",
            json_boolean(m->flags & STORE_LENGTH_INFERRED));
    put_new(w, o, "released", json_boolean(m->flags & STORE_LET_GO));
    put_int(w, o, "priority", m->priority);
    put_bytes(w, o, "group", m->group, m->group ? m->group_size : 0);
    put_time(w, o, "first_received_at", m->first_received_ns);
    if (m->header_size > 0)
        put_bytes(w, o, "header", m->data, m->header_size);
    put_int(w, o, "size", l->body_size);
    put_bytes(w, o, "body", l->body_size ? l->body : "", l->body_size);
    put_bytes(w, o, "stderr", l->stderr_size ? l->stderr_tail : "",
              l->stderr_size);
    put_new(w, o, "history", json_incref(w->history));
    return w->err;
}

int letter_json_print(struct store *s, const char *queue, int64_t row,
                      const struct letter_elsewhere *elsewhere, FILE *out)
{
    struct writing w = {.queue = queue,
                        .row = row,
                        .elsewhere = elsewhere,
                        .history = json_array()};
    int err = w.history ? letters_history(s, row, attempt_put, &w) : -ENOMEM;

    if (!err)
        err = letter_visit(s, row, true, letter_object_make, &w);
    if (!err)
        err = json_print_line(json_incref(w.object), out);
    json_decref(w.object);
    json_decref(w.history);
    return err;
}
