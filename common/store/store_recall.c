/* store_recall.c - what a machine that went down leaves in doubt (see
 * store.h) */
#include <errno.h>
#include <string.h>

#include "common/base/fault_point.h"
#include "common/store/sql.h"

struct recall {
    const char *boot;
    int64_t rows[STORE_PAGE];
    int n, recalled;
};

/* recall_apply - they are dead again, unless somebody has sent them
 * meanwhile */
static int recall_apply(struct sql *sql, void *arg)
{
    struct recall *recall = arg;
    int err = 0;

    recall->recalled = 0;
    for (int i = 0; !err && i < recall->n; i++) {
        err = sql_run(
            sql, SQL_RECALL,
            SQL_VALUES(value_int(recall->rows[i]), value_string(recall->boot)));
        recall->recalled += sqlite3_changes(sql->db);
    }
    return err;
}

/* recall_page - one commit for those that `skip` does not hold; how many */
static int recall_page(struct store *s, const struct store_cursor *page, int n,
                       bool (*skip)(int64_t row, void *arg), void *arg)
{
    struct recall recall = {.boot = store_boot(s)};
    int err;

    for (int i = 0; i < n; i++)
        if (!skip || !skip(page[i].row, arg))
            recall.rows[recall.n++] = page[i].row;
    if (recall.n == 0)
        return 0;
    FAULT_POINT("store_recall_before");
    err = store_write(s, recall_apply, NULL, &recall);
    FAULT_POINT("store_recall_after");
    return err ? err : recall.recalled;
}

int store_recall(struct store *s, bool (*skip)(int64_t row, void *arg),
                 void *arg)
{
    struct store_cursor page[STORE_PAGE], after = {0};
    int n, done, recalled = 0;

    if (!*store_boot(s))
        return -ENOENT;
    do {
        n = store_page(s, SQL_STRAYS, &after, value_string(store_boot(s)),
                       page);
        done = n > 0 ? recall_page(s, page, n, skip, arg) : n;
        if (done < 0)
            return done;
        recalled += done;
        if (n > 0)
            after = page[n - 1];
    } while (n == STORE_PAGE);
    return recalled;
}

static int doubt_apply(struct sql *sql, void *arg)
{
    (void)arg;
    return sql_run(sql, SQL_DOUBT, NULL);
}

/* store_doubt - one commit, all or nothing
 * Crash before it: no row is marked, and none has run since custody was lost,
 * as the start that marks them comes before the first handler. Crash after it:
 * all are marked, and marking them once more changes nothing.
 */
int store_doubt(struct store *s)
{
    int err;

    FAULT_POINT("store_doubt_before");
    err = store_write(s, doubt_apply, NULL, NULL);
    FAULT_POINT("store_doubt_after");
    return err;
}

struct doubt {
    const int64_t *rows;
    size_t n;
};

static int rows_apply(struct sql *sql, void *arg)
{
    const struct doubt *d = arg;
    int err = 0;

    for (size_t i = 0; i < d->n && !err; i++)
        err = sql_run(sql, SQL_DOUBT_ROW, SQL_VALUES(value_int(d->rows[i])));
    return err;
}

int store_doubt_rows(struct store *s, const int64_t *rows, size_t n)
{
    struct doubt d = {rows, n};

    return store_write(s, rows_apply, NULL, &d);
}
