/* letters_write.c - what an operator does to dead letters; see letters.h */
#include <errno.h>
#include <string.h>

#include "common/base/fault_point.h"
#include "common/store/letters.h"
#include "common/store/sql.h"

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
