/* store_check.c - check the whole store for damage (see store.h) Otherwise
 * damage shows only in a query that reads the damaged page, or not at all: a
 * flipped bit in an index hides the rows behind it, and the query succeeds.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <bsd/string.h>

#include "common/store/sql.h"

#define STEPS \
    10000 /* steps of SQLite's virtual machine between two checks of
                       *stop */

static int check_is_stopped(void *arg)
{
    const atomic_bool *stop = arg;

    return atomic_load(stop);
}

/* Copy the path of the store's file. */
static void path_copy(struct store *s, char path[PATH_MAX])
{
    struct sql *sql = store_read_begin(s);

    strlcpy(path, sqlite3_db_filename(sql->db, "main"), PATH_MAX);
    store_read_end(s);
}

/* Return the error of a check that could not read a page, or SQLITE_CORRUPT if
 * it found damage. SQLite reports both as a line of text: "unable to get the
 * page. error code=7" is a lack of memory, and "failed to get page 9", of a
 * page in a list, has no code. */
static int error_of(const char *text)
{
    const char *code = strstr(text, "error code=");

    if (code)
        return (int)strtol(code + strlen("error code="), NULL, 10);
    return strstr(text, "failed to get page") ? SQLITE_IOERR : SQLITE_CORRUPT;
}

/* Run the check over one connection; SQLITE_OK, or the result code and a
 * description. */
static int check_run(sqlite3 *db, char found[STORE_FOUND])
{
    sqlite3_stmt *st = NULL;
    const char *text, *line;
    int rc = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &st, NULL);

    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        text = (const char *)sqlite3_column_text(st, 0);
        if (text && strcmp(text, "ok") == 0)
            rc = SQLITE_OK;
        else
            rc = text ? error_of(text) : SQLITE_NOMEM;
        if ((rc & 0xff) == SQLITE_CORRUPT) {
            /* A first line of "*** in database main ***" says nothing. */
            line = strncmp(text, "***", 3) == 0 ? strchr(text, '\n') : NULL;
            strlcpy(found, line ? line + 1 : text, STORE_FOUND);
        }
    } else if ((rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB) {
        strlcpy(found, sqlite3_errstr(rc), STORE_FOUND);
    }
    sqlite3_finalize(st);
    /* quick_check prints several lines per page; the first is enough for a
     * log. */
    found[strcspn(found, "\n")] = '\0';
    return rc;
}

int store_check(struct store *s, const atomic_bool *stop,
                char found[STORE_FOUND])
{
    char path[PATH_MAX];
    struct sql sql;
    int rc, err;

    found[0] = '\0';
    path_copy(s, path);
    rc = sql_open(&sql, path);
    if (rc == SQLITE_OK)
        rc = sql_setup(&sql, SQL_READER);
    if (sql.db)
        sqlite3_db_config(sql.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (rc == SQLITE_OK && stop)
        sqlite3_progress_handler(sql.db, STEPS, check_is_stopped, (void *)stop);
    if (rc == SQLITE_OK)
        rc = check_run(sql.db, found);
    err = (rc & 0xff) == SQLITE_INTERRUPT ? -ECANCELED : sql_error(sql.db, rc);
    sql_close(&sql);
    return err;
}

uint64_t store_bytes(struct store *s)
{
    char path[PATH_MAX], wal[PATH_MAX + 8];
    uint64_t bytes = 0;
    struct stat st;

    path_copy(s, path);
    if (stat(path, &st) == 0)
        bytes += (uint64_t)st.st_size;
    snprintf(wal, sizeof wal, "%s-wal", path);
    if (stat(wal, &st) == 0)
        bytes += (uint64_t)st.st_size;
    return bytes;
}
