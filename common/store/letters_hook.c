/* letters_hook.c - deaths that somebody is to be told of; see letters.h
 *
 * store_put notes a death in the commit that makes the row a letter: there is
 * never one without the other. The command runs before letters_hook_end. Crash
 * before the commit of that: the next worker runs the command again. After it:
 * none does. So it runs at least once. The note goes with its letter, by the
 * foreign key; if the letter dies again meanwhile, its note is another one, and
 * the end of the first leaves it there.
 */
#include <errno.h>

#include "common/base/fault_point.h"
#include "common/store/letters.h"
#include "common/store/sql.h"

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
