/* power_store.c - read a store as SQLite does (see power.h) */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/crash/power/power.h"

#define FNV 0x100000001b3u

/* Hash the type and bytes of each column. */
static void mix(uint64_t *hash, sqlite3_stmt *st)
{
    for (int i = 0; i < sqlite3_column_count(st); i++) {
        const unsigned char *data = sqlite3_column_blob(st, i);
        int size = sqlite3_column_bytes(st, i);

        *hash = (*hash ^ (unsigned)size) * FNV;
        *hash = (*hash ^ (unsigned)sqlite3_column_type(st, i)) * FNV;
        for (int at = 0; at < size; at++)
            *hash = (*hash ^ data[at]) * FNV;
    }
}

static int each(sqlite3 *db, const char *sql, struct power_content *out,
                void (*visit)(struct power_content *out, sqlite3_stmt *st))
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

    while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        visit(out, st);
        rc = SQLITE_OK;
    }
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static void hashed(struct power_content *out, sqlite3_stmt *st)
{
    mix(&out->hash, st);
}

/* Note a row. Its number follows the last # of its body, but a torn store may
 * contain anything. */
static void row_note(struct power_content *out, sqlite3_stmt *st)
{
    struct power_row *row = &out->rows[out->count];
    const size_t most = sizeof out->rows / sizeof *out->rows;
    const char *data = sqlite3_column_blob(st, 2);
    int at = sqlite3_column_bytes(st, 2);
    char text[16];

    while (at > 0 && data[at - 1] != '#')
        at--;
    snprintf(text, sizeof text, "%.*s", sqlite3_column_bytes(st, 2) - at,
             data ? data + at : "");
    *row = (struct power_row){.number = (unsigned)strtoul(text, NULL, 10),
                              .state = (unsigned)sqlite3_column_int(st, 0),
                              .cancelled = sqlite3_column_int(st, 1) & 8};
    if (at == 0 || row->number >= POWER_NUMBERS)
        out->strange = true;
    else if (++out->count == most)
        power_fail("more than %zu rows", most - 1);
}

bool power_store_read(const struct power_place *at, struct power_content *out,
                      char error[200])
{
    static const char *const tables[] = {
        "SELECT * FROM messages ORDER BY row",
        "SELECT * FROM attempts ORDER BY row, n",
        "SELECT * FROM replays ORDER BY row, n",
        "SELECT * FROM identity",
        "SELECT * FROM hooks ORDER BY n",
        "SELECT * FROM spool ORDER BY key",
        "SELECT * FROM keys ORDER BY key",
        "SELECT * FROM spool_state",
        "SELECT * FROM sqlite_sequence ORDER BY name",
    };
    char path[160], shm[168];
    sqlite3 *db = NULL;
    int rc;

    memset(out, 0, offsetof(struct power_content, rows));
    snprintf(path, sizeof path, "%s%s/store.db", at->root, at->queue);
    snprintf(shm, sizeof shm, "%s-shm", path);
    if (access(path, F_OK) < 0)
        return true;
    out->hash = 0xcbf29ce484222325u;
    rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    for (size_t i = 0; i < sizeof tables / sizeof *tables && rc == SQLITE_OK;
         i++)
        rc = each(db, tables[i], out, hashed);
    if (rc == SQLITE_OK)
        rc = each(db, "SELECT state, flags, data FROM messages", out, row_note);
    if (rc == SQLITE_OK)
        rc = each(db, "SELECT 5, 0, data FROM spool", out, row_note);
    if (rc != SQLITE_OK)
        snprintf(error, 200, "%s", sqlite3_errmsg(db));
    else if (out->strange)
        snprintf(error, 200, "a row has a body that nobody sent");
    sqlite3_close(db);
    unlink(shm);
    return rc == SQLITE_OK && !out->strange;
}
