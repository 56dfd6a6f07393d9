/* letters_write.c - what an operator does to dead letters; see letters.h */
#include <errno.h>
#include <string.h>

#include "common/base/fault_point.h"
#include "common/store/letters.h"
#include "common/store/store_sql.h"

#define SHRINK_LEAST 256 /* unused pages of 4 KiB that are left alone */

struct mark {
    const struct letter_mark *mark;
    const struct letter_mark *sent; /* NULL: none */
    const char *boot;
};

/* changed - 0, or -ENOENT when a statement found no row to change */
static int changed(struct sql *sql, int err)
{
    return !err && sqlite3_changes(sql->db) == 0 ? -ENOENT : err;
}

/* token_bind - a row and its token, values 1 and 2 */
static void token_bind(sqlite3_stmt *st, const struct letter_mark *mark)
{
    sqlite3_bind_int64(st, 1, mark->row);
    sql_bind_blob(st, 2, &mark->token, sizeof mark->token);
}

/* sent_note - the send of a letter has returned */
static int sent_note(struct sql *sql, const struct letter_mark *mark)
{
    sqlite3_stmt *st;
    int err = sql_use(sql, SQL_REPLAY_SENT, &st);
    if (err)
        return err;
    token_bind(st, mark);
    return sql_run(sql, st);
}

/* replay_add - the replay begins; again: unless there is another one */
static int replay_add(struct sql *sql, const struct letter_mark *mark)
{
    sqlite3_stmt *st;
    int err = sql_use(sql, SQL_REPLAY_ADD, &st);
    if (err)
        return err;
    token_bind(st, mark);
    sql_bind_u64(st, 3, mark->died_ns);
    sql_bind_u64(st, 4, mark->marked_ns);
    sqlite3_bind_int(st, 5, mark->again);
    return changed(sql, sql_run(sql, st));
}

/* replay_again - the replay that it is on its way in goes on; one that an older
 * version has sent begins here */
static int replay_again(struct sql *sql, const struct letter_mark *mark)
{
    sqlite3_stmt *st;
    int err = sql_use(sql, SQL_REPLAY_AGAIN, &st);
    if (err)
        return err;
    token_bind(st, mark);
    sql_bind_u64(st, 3, mark->marked_ns);
    err = changed(sql, sql_run(sql, st));
    return err == -ENOENT ? replay_add(sql, mark) : err;
}

/* marked_already - why a letter that was to be dead is not marked */
static int marked_already(struct sql *sql, const struct letter_mark *mark)
{
    sqlite3_stmt *st;
    int err = sql_use(sql, SQL_MARKED, &st);
    if (err)
        return err;
    sqlite3_bind_int64(st, 1, mark->row);
    sql_bind_u64(st, 2, mark->died_ns);
    err = sql_step(sql, st);
    sql_done(st);
    return err < 0 ? err : err > 0 ? -EALREADY : -ENOENT;
}

/* mark_apply - a letter is on its way */
static int mark_apply(struct sql *sql, void *arg)
{
    const struct mark *m = arg;
    const struct letter_mark *mark = m->mark;
    sqlite3_stmt *st;
    int err = sql_use(sql, mark->again ? SQL_MARK_AGAIN : SQL_MARK, &st);
    if (err)
        return err;
    sqlite3_bind_int64(st, 1, mark->row);
    sql_bind_u64(st, 2, mark->died_ns);
    sql_bind_text(st, 3, m->boot, strlen(m->boot));
    err = changed(sql, sql_run(sql, st));
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
    FAULT_POINT("letters_mark_before");
    int err = store_write(s, mark_apply, &m);
    FAULT_POINT("letters_mark_after");
    return err;
}

/* sent_apply - as sent_note */
static int sent_apply(struct sql *sql, void *arg)
{
    const struct mark *m = arg;
    return sent_note(sql, m->mark);
}

/* letters_mark_sent - after the letter is sent
 * Crash before this: it was sent and looks as if it might not have been. Who
 * sends it again makes a second copy, and the worker drops one of them. */
int letters_mark_sent(struct store *s, const struct letter_mark *mark)
{
    struct mark m = {.mark = mark};
    return store_write(s, sent_apply, &m);
}

/* unmark_apply - a letter is dead again, and that replay never was */
static int unmark_apply(struct sql *sql, void *arg)
{
    const struct mark *m = arg;
    const struct letter_mark *mark = m->mark;
    sqlite3_stmt *st;
    int err = sql_use(sql, SQL_REPLAY_DROP, &st);
    if (err)
        return err;
    token_bind(st, mark);
    sql_bind_u64(st, 3, mark->marked_ns);
    err = changed(sql, sql_run(sql, st));
    if (!err)
        err = sql_use(sql, SQL_UNMARK, &st);
    if (err)
        return err;
    sqlite3_bind_int64(st, 1, mark->row);
    return changed(sql, sql_run(sql, st));
}

/* letters_unmark - the letter was not sent after all */
int letters_unmark(struct store *s, const struct letter_mark *mark)
{
    struct mark m = {.mark = mark};
    return store_write(s, unmark_apply, &m);
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
    sqlite3_stmt *st;
    int err = sql_use(sql, SQL_DISCARD, &st);
    d->gone = 0;
    for (size_t i = 0; !err && i < d->n; i++) {
        sqlite3_bind_int64(st, 1, d->rows[i]);
        err = sql_run(sql, st);
        d->gone += sqlite3_changes(sql->db);
    }
    return err;
}

/* letters_discard - remove letters, all in one transaction */
int64_t letters_discard(struct store *s, const int64_t *rows, size_t n)
{
    struct discard d = {.rows = rows, .n = n};
    FAULT_POINT("letters_discard_before");
    int err = store_write(s, discard_apply, &d);
    FAULT_POINT("letters_discard_after");
    return err ? err : d.gone;
}

/* shrink_apply - take up to 1024 unused pages off the file; *arg: come again */
static int shrink_apply(struct sql *sql, void *arg)
{
    bool *more = arg;
    int64_t unused = 0, pages = 0;
    sqlite3_stmt *st;
    int err = sql_use(sql, SQL_FREE_PAGES, &st);
    if (err)
        return err;
    err = sql_step(sql, st);
    if (err > 0) {
        unused = sqlite3_column_int64(st, 0);
        pages = sqlite3_column_int64(st, 1);
    }
    sql_done(st);
    *more = err > 0 && unused > SHRINK_LEAST && unused > pages / 4;
    if (err < 0 || !*more)
        return err < 0 ? err : 0;
    return sql_exec(sql, SQL_SHRINK);
}

/* letters_shrink - give unused room back to the disk */
int letters_shrink(struct store *s)
{
    bool more;
    int err;
    do {
        err = store_write(s, shrink_apply, &more);
    } while (!err && more);
    return err;
}

struct import {
    const struct letter_import *letters;
    size_t n;
};

/* import_one - a dead row that no slot of ours ever held, with its history */
static int import_one(struct sql *sql, const struct letter_import *l)
{
    struct store_row m = l->m;
    int64_t row;
    m.state = STORE_DEAD;
    m.receive_seq = 0;
    if (!sql_row_valid(&m))
        return -EINVAL;
    int err = sql_insert_row(sql, &m, NULL, &row);
    for (size_t i = 0; !err && i < l->history_count; i++)
        err = sql_insert_attempt(sql, row, &l->history[i]);
    return err;
}

/* import_apply - all letters or, as the caller undoes it, none */
static int import_apply(struct sql *sql, void *arg)
{
    const struct import *import = arg;
    int err = 0;
    for (size_t i = 0; !err && i < import->n; i++)
        err = import_one(sql, &import->letters[i]);
    return err;
}

/* letters_import - put in letters from elsewhere */
int letters_import(struct store *s, const struct letter_import *l, size_t n)
{
    struct import import = {.letters = l, .n = n};
    return store_write(s, import_apply, &import);
}
