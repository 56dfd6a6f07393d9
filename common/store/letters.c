/* letters.c - dead letters as an operator sees them; see letters.h
 *
 * Lists are read page by page: a page is copied out and its read transaction
 * ended before the first visit, because an open one keeps the -wal of a running
 * worker from being used again. A page ends at 64 letters or 1 MiB.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <bsd/sys/queue.h>

#include "common/base/basics.h"
#include "common/base/fault_point.h"
#include "common/store/letters.h"
#include "common/store/sql.h"

#define PAGE_LETTERS 64
#define PAGE_BYTES   (1u << 20)

/* Letters strictly between two places in the order of death. */
struct range {
    struct store_cursor low, high;
};

struct page {
    struct letter *letters[PAGE_LETTERS]; /* one block of memory each */
    size_t count;
    size_t bytes;
    struct store_cursor last;
};

/* replay_copy - how it was sent last; where the boot is not known, it may have
 * been in this one */
static struct letter_replay replay_copy(sqlite3_stmt *st, const char *boot)
{
    const char *there = (const char *)sqlite3_column_text(st, COL_BOOT);
    const void *token = sqlite3_column_blob(st, COL_TOKEN);
    struct letter_replay r = {
        .here = there && (!*there || !*boot || !sql_elsewhere(there, boot)),
        .sent = sqlite3_column_int(st, COL_SENT) != 0,
        .marked_ns = sql_column_u64(st, COL_MARKED),
    };

    r.known = token && sqlite3_column_bytes(st, COL_TOKEN) == sizeof r.token;
    if (r.known)
        memcpy(&r.token, token, sizeof r.token);
    return r;
}

/* letter_copy - the letter a statement stands on, in one block of its own */
static int letter_copy(sqlite3_stmt *st, const char *boot, struct letter **out,
                       size_t *bytes)
{
    const char *text;
    const void *tail, *data;
    size_t tail_size, error_size, text_size;
    struct store_row m;
    struct letter *l;
    char *at;
    int err = sql_read_row(st, &m);

    if (err)
        return err;
    tail = sqlite3_column_blob(st, COL_STDERR);
    tail_size = (size_t)sqlite3_column_bytes(st, COL_STDERR);
    text = (const char *)sqlite3_column_text(st, COL_ERROR_TEXT);
    text_size = (size_t)sqlite3_column_bytes(st, COL_ERROR_TEXT);
    data = m.size ? sqlite3_column_blob(st, COL_DATA) : "";
    error_size = m.error ? strlen(m.error) : 0;
    *bytes = sizeof **out + m.size + m.group_size + error_size + tail_size +
             text_size + 5;
    l = data ? malloc(*bytes) : NULL;
    if (!l)
        return -ENOMEM;
    at = (char *)(l + 1);
    m.data = sql_copy(&at, data, m.size);
    m.group = sql_copy(&at, m.group, m.group_size);
    m.error = sql_copy(&at, m.error, error_size);
    *l = (struct letter){
        .m = m,
        .replay = replay_copy(st, boot),
        .body = (const char *)m.data + m.header_size,
        .body_size = m.size - m.header_size,
        .stderr_tail = sql_copy(&at, tail, tail_size),
        .stderr_size = tail_size,
        .error_text = sql_copy(&at, text, text_size),
    };
    *out = l;
    return 0;
}

/* letters_ask - a statement over the letters of a filter; `room` and `by` are
 * its values 10 and 11 */
static int letters_ask(struct store *s, sqlite3_stmt **st, enum sql_id id,
                       const struct letter_filter *f, const struct range *range,
                       uint64_t room, struct sql_value by)
{
    return store_ask(
        s, st, id,
        SQL_VALUES(value_u64(range->low.ns), value_int(range->low.row),
                   value_u64(range->high.ns), value_int(range->high.row),
                   value_int(f->reason), value_string(f->group),
                   value_string(f->error_like), value_string(f->match),
                   value_int(f->replayed ? STORE_REPLAYED : STORE_DEAD),
                   value_u64(room), by));
}

/* page_read - the next page of at most `room` letters; empty at the end */
static int page_read(struct store *s, enum sql_id list,
                     const struct letter_filter *f, const struct range *range,
                     uint64_t room, struct page *page)
{
    uint64_t most = room < PAGE_LETTERS ? room : PAGE_LETTERS;
    sqlite3_stmt *st;
    int err = letters_ask(s, &st, list, f, range, most, VALUE_NONE);

    page->count = page->bytes = 0;
    while (err == STEP_ROW) {
        struct letter *l;
        size_t bytes;

        err = letter_copy(st, store_boot(s), &l, &bytes);
        if (err)
            break;
        page->letters[page->count++] = l;
        page->bytes += bytes;
        page->last = (struct store_cursor){l->m.died_ns, l->m.row};
        if (page->count < most && page->bytes < PAGE_BYTES)
            err = sql_step(st);
    }
    (void)store_answered(s, st, err);
    return err;
}

/* page_visit - visit the letters and free them, also when a visit or reading
 * the page (`err`) went wrong */
static int page_visit(struct page *page, int err,
                      int (*visit)(const struct letter *l, void *arg),
                      void *arg)
{
    for (size_t i = 0; i < page->count; i++) {
        if (!err)
            err = visit(page->letters[i], arg);
        free(page->letters[i]);
    }
    return err;
}

/* edge_find - the matching letter that is `nth` from the newest; -ENOENT */
static int edge_find(struct store *s, const struct letter_filter *f,
                     const struct range *range, uint64_t nth,
                     struct store_cursor *place)
{
    sqlite3_stmt *st;
    int found = letters_ask(s, &st, SQL_EDGE, f, range, nth, VALUE_NONE);

    if (found > 0)
        *place = (struct store_cursor){sql_column_u64(st, 0),
                                       sqlite3_column_int64(st, 1)};
    return store_answered(s, st, found);
}

/* range_of - from `since` up to `until` and `before`, all as open ends; rows
 * start at 1 */
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

/* range_freeze - for going from old to new: end at what is the newest now, or
 * replays that die again would be visited for ever; begin at the oldest of the
 * newest `limit`. -ENOENT when nothing matches. */
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
    struct range range = range_of(f);
    struct page page;
    enum sql_id list = oldest_first ? SQL_LIST_OLDEST : SQL_LIST_NEWEST;
    uint64_t left = f->limit ? f->limit : UINT64_MAX;
    int err = oldest_first ? range_freeze(s, f, &range) : 0;

    if (err)
        return err == -ENOENT ? 0 : err;
    do {
        err = page_read(s, list, f, &range, left, &page);
        err = page_visit(&page, err, visit, arg);
        *(oldest_first ? &range.low : &range.high) = page.last;
        left -= page.count;
    } while (!err && page.count > 0 && left > 0);
    return err;
}

int letters_deaths(struct store *s, const struct letter_death *after,
                   struct letter_death out[LETTERS_DEATHS])
{
    const struct store_cursor from = {after->died_ns, after->row};
    struct store_cursor page[STORE_PAGE];
    int n = store_page(s, SQL_OLDEST_DEAD, &from, VALUE_NONE, page);

    _Static_assert(STORE_PAGE == LETTERS_DEATHS, "one page is one list");
    for (int i = 0; i < n; i++)
        out[i] = (struct letter_death){page[i].ns, page[i].row};
    return n;
}

int letters_get(struct store *s, int64_t row,
                int (*visit)(const struct letter *l, void *arg), void *arg)
{
    struct letter *l = NULL;
    size_t bytes;
    sqlite3_stmt *st;
    int err = store_ask(s, &st, SQL_LETTER, SQL_VALUES(value_int(row)));

    if (err == STEP_ROW) {
        err = letter_copy(st, store_boot(s), &l, &bytes);
        err = err ? err : STEP_ROW;
    }
    err = store_answered(s, st, err);
    if (!err)
        err = visit(l, arg);
    free(l);
    return err;
}

/* ---- how often what ---- */

struct tally {
    STAILQ_ENTRY(tally) link;
    struct letter_tally is; /* value and text: NULL, or point to bytes */
    char bytes[];
};
STAILQ_HEAD(tallies, tally);

/* tally_copy - the line of the summary a statement stands on */
static struct tally *tally_copy(sqlite3_stmt *st, enum letter_by by)
{
    const char *value = (const char *)sqlite3_column_text(st, 0);
    size_t size = (size_t)sqlite3_column_bytes(st, 0);
    const char *text = (const char *)sqlite3_column_text(st, 3);
    size_t text_size = (size_t)sqlite3_column_bytes(st, 3);
    struct tally *t;
    char *at;

    if (by == LETTER_BY_REASON) {
        value = dead_reason_text((enum dead_reason)sqlite3_column_int(st, 0));
        size = strlen(value);
    }
    t = malloc(sizeof *t + size + text_size + 2);
    if (!t)
        return NULL;
    at = t->bytes;
    t->is = (struct letter_tally){
        .value = sql_copy(&at, value, size),
        .size = size,
        .text = sql_copy(&at, text, text_size),
        .count = sql_column_u64(st, 1),
        .newest_ns = sql_column_u64(st, 2),
    };
    return t;
}

/* tallies_read - the whole summary; entries that were read stay in the list */
static int tallies_read(struct store *s, enum letter_by by,
                        const struct letter_filter *f, struct tallies *all)
{
    struct range range = range_of(f);
    sqlite3_stmt *st;
    int err = letters_ask(s, &st, SQL_SUMMARY, f, &range,
                          f->limit ? f->limit : UINT64_MAX, value_int(by));

    for (; err == STEP_ROW; err = sql_step(st)) {
        struct tally *t = tally_copy(st, by);

        if (!t) {
            err = -ENOMEM;
            break;
        }
        STAILQ_INSERT_TAIL(all, t, link);
    }
    (void)store_answered(s, st, err);
    return err;
}

int letters_summary(struct store *s, enum letter_by by,
                    const struct letter_filter *f,
                    int (*visit)(const struct letter_tally *t, void *arg),
                    void *arg)
{
    struct tallies all = STAILQ_HEAD_INITIALIZER(all);
    int err = tallies_read(s, by, f, &all);

    while (!STAILQ_EMPTY(&all)) {
        struct tally *t = STAILQ_FIRST(&all);

        STAILQ_REMOVE_HEAD(&all, link);
        if (!err)
            err = visit(&t->is, arg);
        free(t);
    }
    return err;
}

/* ---- history ---- */

/* attempt_copy - the attempt a statement stands on, in one block */
static struct store_attempt *attempt_copy(sqlite3_stmt *st)
{
    const char *error = (const char *)sqlite3_column_text(st, 3);
    size_t error_size = (size_t)sqlite3_column_bytes(st, 3);
    const void *tail = sqlite3_column_blob(st, 4);
    size_t tail_size = (size_t)sqlite3_column_bytes(st, 4);
    struct store_attempt *a = malloc(sizeof *a + error_size + tail_size + 2);
    char *at;

    if (!a)
        return NULL;
    at = (char *)(a + 1);
    *a = (struct store_attempt){
        .started_ns = sql_column_u64(st, 1),
        .duration_ns = sql_column_u64(st, 2),
        .error = sql_copy(&at, error, error_size),
        .stderr_tail = sql_copy(&at, tail, tail_size),
        .stderr_size = tail_size,
        .said = sqlite3_column_int(st, 5) != 0,
    };
    return a;
}

/* attempt_next - the attempt after number *n, its own number to *n; NULL at
 * the end */
static int attempt_next(struct store *s, int64_t row, unsigned *n,
                        struct store_attempt **out)
{
    sqlite3_stmt *st;
    int found = store_ask(s, &st, SQL_HISTORY,
                          SQL_VALUES(value_int(row), value_int(*n)));

    *out = NULL;
    if (found > 0) {
        *n = (unsigned)sqlite3_column_int64(st, 0);
        *out = attempt_copy(st);
    }
    (void)store_answered(s, st, found);
    return found > 0 && !*out ? -ENOMEM : found < 0 ? found : 0;
}

int letters_history(struct store *s, int64_t row,
                    int (*visit)(unsigned n, const struct store_attempt *a,
                                 void *arg),
                    void *arg)
{
    struct store_attempt *a;
    unsigned n = 0;

    for (;;) {
        int err = attempt_next(s, row, &n, &a);

        if (err || !a)
            return err;
        err = visit(n, a, arg);
        free(a);
        if (err)
            return err;
    }
}

/* ---- changing ---- */

#define SHRINK_LEAST 256 /* unused pages of 4 KiB that are left alone */

struct mark {
    const struct letter_mark *mark;
    const struct letter_mark *sent; /* NULL: none */
    const char *boot;
};

/* token_of - that value */
static struct sql_value token_of(const struct letter_mark *mark)
{
    return value_blob(&mark->token, sizeof mark->token);
}

/* sent_note - the send of a letter has returned */
static int sent_note(struct sql *sql, const struct letter_mark *mark)
{
    return sql_run(sql, SQL_REPLAY_SENT,
                   SQL_VALUES(value_int(mark->row), token_of(mark)));
}

/* replay_add - the replay begins; again: unless there is another one */
static int replay_add(struct sql *sql, const struct letter_mark *mark)
{
    return sql_change(sql, SQL_REPLAY_ADD,
                      SQL_VALUES(value_int(mark->row), token_of(mark),
                                 value_u64(mark->died_ns),
                                 value_u64(mark->marked_ns),
                                 value_int(mark->again)));
}

/* Record that the message of a replayed letter is sent once more. */
static int replay_again(struct sql *sql, const struct letter_mark *mark)
{
    return sql_change(sql, SQL_REPLAY_AGAIN,
                      SQL_VALUES(value_int(mark->row), token_of(mark),
                                 value_u64(mark->marked_ns)));
}

/* marked_already - why a letter that was to be dead is not marked */
static int marked_already(struct sql *sql, const struct letter_mark *mark)
{
    sqlite3_stmt *st;
    int err =
        sql_bind(sql, SQL_MARKED, &st,
                 SQL_VALUES(value_int(mark->row), value_u64(mark->died_ns)));

    if (err)
        return err;
    err = sql_step(st);
    sql_done(st);
    return err < 0 ? err : err == STEP_ROW ? -EALREADY : -ENOENT;
}

/* mark_apply - a letter is on its way */
static int mark_apply(struct sql *sql, void *arg)
{
    const struct mark *m = arg;
    const struct letter_mark *mark = m->mark;
    int err =
        sql_change(sql, mark->again ? SQL_MARK_AGAIN : SQL_MARK,
                   SQL_VALUES(value_int(mark->row), value_u64(mark->died_ns),
                              value_string(m->boot)));

    if (err == -ENOENT && !mark->again)
        return marked_already(sql, mark);
    if (!err)
        err = mark->again ? replay_again(sql, mark) : replay_add(sql, mark);
    return !err && m->sent ? sent_note(sql, m->sent) : err;
}

/* letters_mark_replayed - before the letter is sent
 * Crash after this and before the send: the letter stays marked, though it is
 * in no queue, and not noted as sent; it can be sent again, and a reboot makes
 * it dead again. Were it marked after the send, a quick worker would find no
 * token for it. */
int letters_mark_replayed(struct store *s, const struct letter_mark *mark,
                          const struct letter_mark *sent)
{
    struct mark m = {mark, sent, store_boot(s)};
    int err;

    FAULT_POINT("letters_mark_before");
    err = store_write(s, mark_apply, NULL, &m);
    FAULT_POINT("letters_mark_after");
    return err;
}

/* sent_apply - as sent_note */
static int sent_apply(struct sql *sql, void *arg)
{
    return sent_note(sql, ((const struct mark *)arg)->mark);
}

/* letters_mark_sent - after the letter is sent
 * Crash before this: the letter was sent and looks as if it might not have
 * been. If an operator sends it again, the worker drops one of the two. */
int letters_mark_sent(struct store *s, const struct letter_mark *mark)
{
    struct mark m = {.mark = mark};

    return store_write(s, sent_apply, NULL, &m);
}

/* unmark_apply - a letter is dead again, and that replay never was */
static int unmark_apply(struct sql *sql, void *arg)
{
    const struct letter_mark *mark = ((const struct mark *)arg)->mark;
    int err = sql_change(sql, SQL_REPLAY_DROP,
                         SQL_VALUES(value_int(mark->row), token_of(mark),
                                    value_u64(mark->marked_ns)));

    return err ? err
               : sql_change(sql, SQL_UNMARK, SQL_VALUES(value_int(mark->row)));
}

int letters_unmark(struct store *s, const struct letter_mark *mark)
{
    struct mark m = {.mark = mark};

    return store_write(s, unmark_apply, NULL, &m);
}

struct discard {
    const int64_t *rows;
    size_t n;
    int64_t gone;
};

/* discard_apply - remove those of the rows that are letters */
static int discard_apply(struct sql *sql, void *arg)
{
    struct discard *d = arg;
    int err = 0;

    d->gone = 0;
    for (size_t i = 0; !err && i < d->n; i++) {
        err = sql_run(sql, SQL_DISCARD, SQL_VALUES(value_int(d->rows[i])));
        d->gone += sqlite3_changes(sql->db);
    }
    return err;
}

int64_t letters_discard(struct store *s, const int64_t *rows, size_t n)
{
    struct discard d = {.rows = rows, .n = n};
    int err;

    FAULT_POINT("letters_discard_before");
    err = store_write(s, discard_apply, NULL, &d);
    FAULT_POINT("letters_discard_after");
    return err ? err : d.gone;
}

struct let_go {
    const char *group;
    size_t size;
    int64_t letters;
};

/* let_go_apply - all of the group, or none */
static int let_go_apply(struct sql *sql, void *arg)
{
    struct let_go *l = arg;
    int err = sql_run(sql, SQL_GROUP_LET_GO,
                      SQL_VALUES(value_text(l->group, l->size)));

    l->letters = err ? 0 : sqlite3_changes(sql->db);
    return err;
}

/* letters_let_go - Crash before the commit: the group is held. After it: it
 * goes on, under this worker, which sees the write, or the next one. */
int64_t letters_let_go(struct store *s, const char *group, size_t size)
{
    struct let_go l = {.group = group, .size = size};
    int err;

    FAULT_POINT("letters_let_go_before");
    err = store_write(s, let_go_apply, NULL, &l);
    FAULT_POINT("letters_let_go_after");
    return err ? err : l.letters;
}

struct drop {
    const struct letter_death *list;
    size_t n;
    int64_t gone;
};

/* drop_apply - those that an operator sends meanwhile are not dead any more */
static int drop_apply(struct sql *sql, void *arg)
{
    struct drop *d = arg;
    int err = 0;

    d->gone = 0;
    for (size_t i = 0; !err && i < d->n; i++) {
        err = sql_run(sql, SQL_DROP,
                      SQL_VALUES(value_int(d->list[i].row),
                                 value_u64(d->list[i].died_ns)));
        d->gone += sqlite3_changes(sql->db);
    }
    return err;
}

/* letters_drop - Crash before the commit: all are there, and the next worker
 * drops them. After it: none is. */
int64_t letters_drop(struct store *s, const struct letter_death *list, size_t n)
{
    struct drop d = {.list = list, .n = n};
    int err;

    FAULT_POINT("letters_drop_before");
    err = store_write(s, drop_apply, NULL, &d);
    FAULT_POINT("letters_drop_after");
    return err ? err : d.gone;
}

/* shrink_apply - take up to 1024 unused pages off the file; *arg: come again */
static int shrink_apply(struct sql *sql, void *arg)
{
    bool *more = arg;
    int64_t unused = 0, pages = 0;
    sqlite3_stmt *st;
    int err = sql_bind(sql, SQL_FREE_PAGES, &st, NULL);

    if (err)
        return err;
    err = sql_step(st);
    if (err == STEP_ROW) {
        unused = sqlite3_column_int64(st, 0);
        pages = sqlite3_column_int64(st, 1);
    }
    sql_done(st);
    *more = err == STEP_ROW && unused > SHRINK_LEAST && unused > pages / 4;
    if (err < 0)
        return err;
    return *more ? sql_run(sql, SQL_SHRINK, NULL) : 0;
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
    bool only_new;    /* leave out letters that the store has */
    int64_t last_row; /* as letters_import_new has it */
    uint64_t present; /* left out */
};

/* Return STEP_ROW if the store has that letter, STEP_END if not, or -errno. */
static int letter_find(struct sql *sql, const struct letter_import *l,
                       int64_t last_row)
{
    const struct store_row *m = &l->m;
    const struct sql_value data = value_blob(m->data, m->size);
    sqlite3_stmt *st;
    int err;

    if (!l->named && !l->dated)
        return STEP_END;
    err = l->named
              ? sql_bind(sql, SQL_LETTER_HAS_ID, &st,
                         SQL_VALUES(
                             value_blob(&m->id, sizeof m->id),
                             value_int(m->priority), data, value_int(last_row),
                             l->dated ? value_u64(m->died_ns) : VALUE_NULL))
              : sql_bind(sql, SQL_LETTER_HAS_DEATH, &st,
                         SQL_VALUES(value_u64(m->died_ns),
                                    value_int(m->priority), data));
    if (err)
        return err;
    err = sql_step(st);
    sql_done(st);
    return err;
}

/* import_one - a dead row that no slot of ours ever held, with its history */
static int import_one(struct sql *sql, const struct letter_import *l)
{
    struct store_row m = l->m;
    int64_t row;
    int err;

    m.state = STORE_DEAD;
    m.receive_seq = 0;
    if (!sql_row_valid(&m))
        return -EINVAL;
    err = sql_insert_row(sql, &m, NULL, &row);
    for (size_t i = 0; !err && i < l->history_count; i++)
        err = sql_insert_attempt(sql, row, &l->history[i]);
    return err;
}

/* Insert all letters. On an error the caller rolls back, so none is
 * inserted. */
static int import_apply(struct sql *sql, void *arg)
{
    struct import *import = arg;
    int err = 0;

    import->present = 0;
    for (size_t i = 0; !err && i < import->n; i++) {
        const struct letter_import *l = &import->letters[i];
        int found =
            import->only_new ? letter_find(sql, l, import->last_row) : STEP_END;

        if (found == STEP_ROW)
            import->present++;
        else
            err = found < 0 ? found : import_one(sql, l);
    }
    return err;
}

int letters_import(struct store *s, const struct letter_import *l, size_t n)
{
    struct import import = {.letters = l, .n = n};

    return store_write(s, import_apply, NULL, &import);
}

int letters_import_new(struct store *s, const struct letter_import *l, size_t n,
                       int64_t last_row, uint64_t *present)
{
    struct import import = {
        .letters = l, .n = n, .only_new = true, .last_row = last_row};
    int err = store_write(s, import_apply, NULL, &import);

    *present = err ? 0 : import.present;
    return err;
}

int letters_last_row(struct store *s, int64_t *row)
{
    return store_number(s, row, SQL_LAST_ROW, NULL);
}

/* ---- deaths that somebody is to be told of ---- */

/* store_put notes a death in the commit that makes the row a letter: there is
 * never one without the other. The command runs before letters_hook_end. Crash
 * before the commit of that: the next worker runs the command again. After it:
 * none does. So it runs at least once. The note goes with its letter, by the
 * foreign key; if the letter dies again meanwhile, its note is another one, and
 * the end of the first leaves it there.
 */

int letters_hook(struct store *s, int64_t after, struct letter_hook *out)
{
    sqlite3_stmt *st;
    int found = store_ask(s, &st, SQL_HOOK_NEXT, SQL_VALUES(value_int(after)));

    if (found > 0)
        *out = (struct letter_hook){sqlite3_column_int64(st, 0),
                                    sqlite3_column_int64(st, 1)};
    return store_answered(s, st, found);
}

int letters_hook_of(struct store *s, int64_t row)
{
    int64_t n;

    return store_number(s, &n, SQL_HOOK_OF, SQL_VALUES(value_int(row)));
}

struct end {
    int64_t n, next;
    bool told;
};

/* end_apply - the note is gone, or has a new number behind all others; one
 * that went with its letter meanwhile gets none */
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
    int err;

    FAULT_POINT("letters_hook_end_before");
    err = store_write(s, end_apply, NULL, &end);
    FAULT_POINT("letters_hook_end_after");
    if (!err && next)
        *next = end.next;
    return err;
}

static int forget_apply(struct sql *sql, void *arg)
{
    (void)arg;
    return sql_run(sql, SQL_HOOKS_FORGET, NULL);
}

int letters_hooks_forget(struct store *s)
{
    struct letter_hook any;
    int err = letters_hook(s, 0, &any);

    if (err)
        return err == -ENOENT ? 0 : err;
    return store_write(s, forget_apply, NULL, NULL);
}
