/* store_sql.c - statements and settings of a connection; see store_sql.h */
#include <errno.h>
#include <fnmatch.h>
#include <string.h>

#include "common/base/boot_id.h"
#include "common/store/store_sql.h"

#define BUSY_MS 5000

/* synchronous=FULL: each commit is on the disk before COMMIT returns.
 * temp_store: the undo of a savepoint stays in memory, so that a full /tmp is
 * no trouble of ours. journal_size_limit: a burst leaves no huge -wal behind.
 * secure_delete=FAST: discarded bodies are wiped where that costs no write. */
#define WRITER_SETTINGS            \
    "PRAGMA synchronous = FULL;"   \
    "PRAGMA cache_size = -512;"    \
    "PRAGMA foreign_keys = ON;"    \
    "PRAGMA trusted_schema = OFF;" \
    "PRAGMA secure_delete = FAST;" \
    "PRAGMA temp_store = MEMORY;"  \
    "PRAGMA journal_size_limit = 8388608;"
#define READER_SETTINGS         \
    "PRAGMA query_only = ON;"   \
    "PRAGMA cache_size = -512;" \
    "PRAGMA trusted_schema = OFF;"

#define ROW_COLUMNS                                                         \
    "row, state, ifnull(receive_seq, 0), id, priority, attempts, crashes,"  \
    " flags, group_key, due_ns, first_received_ns, died_ns, reason, error," \
    " header_size, length(data)"
#define LAST_REPLAY(column)           \
    "(SELECT " column " FROM replays" \
    " WHERE replays.row = messages.row ORDER BY n DESC LIMIT 1)"
#define LETTER_COLUMNS                                                         \
    ROW_COLUMNS ", data, (SELECT stderr FROM attempts"                         \
                " WHERE attempts.row = messages.row ORDER BY n DESC LIMIT 1)," \
                " boot, " LAST_REPLAY("token") ", " LAST_REPLAY(               \
                    "marked_ns") ", " LAST_REPLAY("sent")

/* "state >= 3" is what lets SQLite use the index of letters. The body is looked
 * at last: the other conditions spare reading it. */
#define LETTERS                                                    \
    " FROM messages WHERE state >= 3 AND state = ?9"               \
    " AND (died_ns, row) > (?1, ?2) AND (died_ns, row) < (?3, ?4)" \
    " AND (?5 = 0 OR reason = ?5)"                                 \
    " AND (?6 IS NULL OR group_key = ?6)"                          \
    " AND (?7 IS NULL OR error_like(error, ?7))"                   \
    " AND (?8 IS NULL OR body_has(data, header_size, ?8))"
#define NEWEST_FIRST " ORDER BY died_ns DESC, row DESC"
#define OLDEST_FIRST " ORDER BY died_ns, row"

static const char *const sql_texts[SQL_IDS] = {
    [SQL_BEGIN] = "BEGIN IMMEDIATE",
    [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK",
    [SQL_SAVE] = "SAVEPOINT op",
    [SQL_UNDO] = "ROLLBACK TO op",
    [SQL_RELEASE] = "RELEASE op",
    [SQL_INSERT] =
        "INSERT INTO messages (state, receive_seq, id, priority, attempts,"
        " crashes, flags, group_key, due_ns, first_received_ns, died_ns,"
        " reason, error, boot, header_size, data)"
        " VALUES (?1, nullif(?2, 0), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,"
        " ?12, ?13, ?14, ?15, ?16)",
    [SQL_UPDATE] =
        "UPDATE messages SET state = ?1, receive_seq = nullif(?2, 0), id = ?3,"
        " priority = ?4, attempts = ?5, crashes = ?6, flags = ?7,"
        " group_key = ?8, due_ns = ?9, first_received_ns = ?10, died_ns = ?11,"
        " reason = ?12, error = ?13, boot = ?14 WHERE row = ?15",
    [SQL_DELETE] = "DELETE FROM messages WHERE row = ?1",
    [SQL_ADD_ATTEMPT] =
        "INSERT INTO attempts (row, n, started_ns, duration_ns, error, stderr)"
        " SELECT ?1, 1 + ifnull(max(n), 0), ?2, ?3, ?4, ?5"
        " FROM attempts WHERE row = ?1",
    [SQL_STRAYS] =
        "SELECT row, died_ns FROM messages WHERE state >= 3 AND state = 4"
        " AND (died_ns, row) > (?1, ?2) AND elsewhere(boot, ?4)" OLDEST_FIRST
        " LIMIT ?3",
    [SQL_RECALL] = "UPDATE messages SET state = 3, boot = NULL"
                   " WHERE row = ?1 AND state = 4 AND elsewhere(boot, ?2)",
    [SQL_DUE] = "SELECT row, due_ns FROM messages WHERE state = 1"
                " AND (due_ns, row) > (?1, ?2) ORDER BY due_ns, row LIMIT ?3",
    [SQL_GET] =
        "SELECT " ROW_COLUMNS ", CASE WHEN length(data) <= ?2 THEN data END"
        " FROM messages WHERE row = ?1",
    [SQL_STATE] = "SELECT state FROM messages WHERE row = ?1",
    [SQL_STEPPED] =
        "SELECT total(seen > ?2), total(seen <= ?2 AND due_ns - seen > ?3),"
        " ifnull(max(due_ns) FILTER (WHERE seen > ?2 OR due_ns - seen > ?3),"
        " 0), max(seen) FROM"
        " (SELECT due_ns, max(first_received_ns,"
        " (SELECT ifnull(max(started_ns + duration_ns), 0) FROM attempts"
        " WHERE attempts.row = messages.row)) AS seen"
        " FROM messages WHERE state = 1 AND due_ns > ?1 AND (attempts > 0 OR"
        " (first_received_ns > ?2 AND instr(CAST(substr(data, 1, header_size)"
        " AS TEXT), 'not-before') = 0)))",
    [SQL_FIND_SEQ] = "SELECT row FROM messages WHERE receive_seq = ?1",
    [SQL_FIND_ID] = "SELECT row FROM messages WHERE id = ?1"
                    " ORDER BY row DESC LIMIT 1",
    [SQL_MAX_SEQ] = "SELECT ifnull(max(receive_seq), 0) FROM messages"
                    " WHERE receive_seq IS NOT NULL",
    [SQL_COUNT_WAITING] = "SELECT count(*) FROM messages WHERE state = 1",
    [SQL_COUNT_PARKED] = "SELECT count(*) FROM messages WHERE state = 2",
    [SQL_COUNT_LETTERS] =
        "SELECT count(*) FROM messages WHERE state >= 3 AND state = ?1",
    [SQL_NEXT_DEAD] = "SELECT row FROM messages WHERE state >= 3 AND state = 3"
                      " AND (died_ns, row) > (?1, ?2)" OLDEST_FIRST " LIMIT 1",
    [SQL_PARKED_HIGH] =
        "SELECT row, priority, receive_seq FROM messages WHERE state = 2 AND"
        " group_key = ?1 ORDER BY priority DESC, receive_seq LIMIT 1",
    [SQL_PARKED_LOW] =
        "SELECT row, priority, receive_seq FROM messages WHERE state = 2 AND"
        " group_key = ?1 ORDER BY priority, receive_seq LIMIT 1",
    [SQL_GROUPS] =
        "SELECT group_key, total(state = 2), total(state >= 3),"
        " coalesce(max(CASE WHEN state = 1 AND attempts > 0 THEN row END),"
        " min(CASE WHEN state = 1 AND flags & 4 THEN row END))"
        " FROM messages WHERE group_key IS NOT NULL AND group_key > ?1"
        " GROUP BY group_key ORDER BY group_key LIMIT 1",
    [SQL_GROUP_LETTER] =
        "SELECT row FROM messages WHERE group_key = ?1 AND state >= 3"
        " UNION ALL SELECT row FROM messages WHERE group_key = ?1"
        " AND state = 1 AND flags & 4 LIMIT 1",
    [SQL_LIST_NEWEST] =
        "SELECT " LETTER_COLUMNS LETTERS NEWEST_FIRST " LIMIT ?10",
    [SQL_LIST_OLDEST] =
        "SELECT " LETTER_COLUMNS LETTERS OLDEST_FIRST " LIMIT ?10",
    [SQL_EDGE] =
        "SELECT died_ns, row" LETTERS NEWEST_FIRST " LIMIT 1 OFFSET ?10",
    [SQL_SUMMARY] =
        "SELECT value, count(*) AS times, max(died_ns) AS newest FROM"
        " (SELECT CASE ?11 WHEN 0 THEN reason WHEN 1 THEN error"
        " ELSE group_key END AS value, died_ns" LETTERS NEWEST_FIRST
        " LIMIT ?10) GROUP BY value ORDER BY times DESC, newest DESC",
    [SQL_LETTER] =
        "SELECT " LETTER_COLUMNS " FROM messages WHERE row = ?1 AND state >= 3",
    [SQL_HISTORY] = "SELECT n, started_ns, duration_ns, error, stderr"
                    " FROM attempts WHERE row = ?1 AND n > ?2"
                    " ORDER BY n LIMIT 1",
    [SQL_MARK] = "UPDATE messages SET state = 4, boot = ?3"
                 " WHERE row = ?1 AND died_ns = ?2 AND state = 3",
    [SQL_MARK_AGAIN] = "UPDATE messages SET boot = ?3"
                       " WHERE row = ?1 AND died_ns = ?2 AND state = 4",
    [SQL_MARKED] = "SELECT 1 FROM messages"
                   " WHERE row = ?1 AND died_ns = ?2 AND state = 4",
    [SQL_UNMARK] = "UPDATE messages SET state = 3, boot = NULL"
                   " WHERE row = ?1 AND state = 4",
    [SQL_REPLAY_ADD] =
        "INSERT INTO replays (row, n, token, died_ns, marked_ns, sent)"
        " SELECT ?1, 1 + ifnull(last, 0), ?2, ?3, ?4, 0"
        " FROM (SELECT max(n) AS last FROM replays WHERE row = ?1)"
        " WHERE NOT ?5 OR last IS NULL",
    [SQL_REPLAY_AGAIN] =
        "UPDATE replays SET marked_ns = ?3, sent = 0 WHERE row = ?1"
        " AND n = (SELECT max(n) FROM replays WHERE row = ?1) AND token = ?2",
    [SQL_REPLAY_SENT] =
        "UPDATE replays SET sent = 1 WHERE row = ?1 AND token = ?2",
    [SQL_REPLAY_DROP] =
        "DELETE FROM replays WHERE row = ?1 AND token = ?2 AND marked_ns = ?3",
    [SQL_REPLAY_FIND] =
        "SELECT given.seq, m.state, m.id, m.died_ns, r.n, r.died_ns,"
        " (SELECT max(n) FROM replays WHERE row = ?1)"
        " FROM (SELECT ifnull(max(seq), 0) AS seq FROM sqlite_sequence"
        " WHERE name = 'messages') AS given"
        " LEFT JOIN messages AS m ON m.row = ?1"
        " LEFT JOIN replays AS r ON r.row = ?1 AND r.token = ?2",
    [SQL_DISCARD] = "DELETE FROM messages WHERE row = ?1 AND state >= 3",
    [SQL_FREE_PAGES] = "SELECT freelist_count, page_count FROM"
                       " pragma_freelist_count, pragma_page_count",
    [SQL_SHRINK] = "PRAGMA incremental_vacuum(1024)",
    [SQL_NUMBER] = "UPDATE sqlite_sequence SET seq = ?1 WHERE name = 'commits'",
    [SQL_FIRST_NUMBER] =
        "INSERT INTO sqlite_sequence (name, seq) VALUES ('commits', ?1)",
    [SQL_COMMITS] = "SELECT seq FROM sqlite_sequence WHERE name = 'commits'",
};

_Static_assert(STORE_WAITING == 1 && STORE_PARKED == 2 && STORE_DEAD == 3 &&
                   STORE_REPLAYED == 4 && STORE_FRONT == 4,
               "the statements and the file's indexes name these numbers");

/* error_like - SQL function error_like(error, glob): fnmatch(3) on the error */
static void error_like(sqlite3_context *context, int n, sqlite3_value **args)
{
    (void)n;
    const char *error = (const char *)sqlite3_value_text(args[0]);
    const char *glob = (const char *)sqlite3_value_text(args[1]);
    bool hit = error && glob && fnmatch(glob, error, 0) == 0;
    sqlite3_result_int(context, hit);
}

/* body_has - SQL function body_has(data, header_size, bytes) */
static void body_has(sqlite3_context *context, int n, sqlite3_value **args)
{
    (void)n;
    const char *data = sqlite3_value_blob(args[0]);
    int64_t size = sqlite3_value_bytes(args[0]);
    int64_t skip = sqlite3_value_int64(args[1]);
    const void *bytes = sqlite3_value_blob(args[2]);
    size_t bytes_size = (size_t)sqlite3_value_bytes(args[2]);
    bool hit = bytes_size == 0;
    if (!hit && data && bytes && skip >= 0 && skip < size)
        hit = memmem(data + skip, (size_t)(size - skip), bytes, bytes_size);
    sqlite3_result_int(context, hit);
}

/* sql_elsewhere - whether two texts of store_boot are of other queues */
bool sql_elsewhere(const char *then, const char *now)
{
    const char *text[2] = {then, now}, *rest[2];
    struct boot boot[2];
    for (int i = 0; i < 2; i++) {
        rest[i] = strchrnul(text[i], '/');
        boot_parse(&boot[i], text[i], (size_t)(rest[i] - text[i]));
    }
    return strcmp(rest[0], rest[1]) != 0 || !boot_same(&boot[0], &boot[1]);
}

/* elsewhere - SQL function elsewhere(boot, now): it was sent in another run of
 * the machine, or in another IPC namespace (store_boot) */
static void elsewhere(sqlite3_context *context, int argc, sqlite3_value **args)
{
    const char *then = (const char *)sqlite3_value_text(args[0]);
    const char *now = (const char *)sqlite3_value_text(args[1]);
    (void)argc;
    sqlite3_result_int(context,
                       sql_elsewhere(then ? then : "", now ? now : ""));
}

/* sql_open - connect to an existing file without looking into it */
int sql_open(struct sql *sql, const char *path)
{
    *sql = (struct sql){0};
    int rc = sqlite3_open_v2(path, &sql->db,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (!sql->db)
        return SQLITE_NOMEM;
    sqlite3_extended_result_codes(sql->db, 1);
    if (rc != SQLITE_OK)
        return sqlite3_extended_errcode(sql->db);
    store_shm_guard(&sql->shm, sql->db);
    return rc;
}

/* wal_wanted - make sure of WAL mode; the file says so itself, unless somebody
 * changed it by hand or the file system has no shared memory */
static int wal_wanted(sqlite3 *db)
{
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db, "PRAGMA journal_mode = WAL", -1, &st, NULL);
    if (rc != SQLITE_OK)
        return rc;
    rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        const char *mode = (const char *)sqlite3_column_text(st, 0);
        rc = mode && !strcmp(mode, "wal") ? SQLITE_OK : SQLITE_CANTOPEN;
    }
    sqlite3_finalize(st);
    return rc;
}

/* sql_setup - make the connection a reader or the writer */
int sql_setup(struct sql *sql, enum sql_role role)
{
    const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY;
    sqlite3 *db = sql->db;
    sqlite3_busy_timeout(db, BUSY_MS);
    int rc = sqlite3_create_function(db, "elsewhere", 2, flags, NULL, elsewhere,
                                     NULL, NULL);
    if (rc != SQLITE_OK)
        return rc;
    if (role == SQL_WRITER) {
        rc = wal_wanted(db);
        if (rc != SQLITE_OK)
            return rc;
        return sqlite3_exec(db, WRITER_SETTINGS, NULL, NULL, NULL);
    }
    rc = sqlite3_create_function(db, "error_like", 2, flags, NULL, error_like,
                                 NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_create_function(db, "body_has", 3, flags, NULL, body_has,
                                     NULL, NULL);
    if (rc != SQLITE_OK)
        return rc;
    return sqlite3_exec(db, READER_SETTINGS, NULL, NULL, NULL);
}

/* sql_close - end the statements and the connection */
void sql_close(struct sql *sql)
{
    for (int i = 0; i < SQL_IDS; i++)
        sqlite3_finalize(sql->stmts[i]);
    sqlite3_close(sql->db);
    *sql = (struct sql){0};
}

/* sql_replace - SQLite knows where the guard of the -shm is */
void sql_replace(struct sql *to, struct sql *from)
{
    sql_close(to);
    *to = *from;
    *from = (struct sql){0};
    store_shm_moved(&to->shm, to->db);
}

/* wal_errno - errno of the last write to the -wal that failed
 * sqlite3_system_errno() is 0 where it was COMMIT that wrote. */
static int wal_errno(sqlite3 *db)
{
    int err = 0;
    sqlite3_file *wal = NULL;
    sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &wal);
    if (wal && wal->pMethods)
        wal->pMethods->xFileControl(wal, SQLITE_FCNTL_LAST_ERRNO, &err);
    return err;
}

/* io_error - what an SQLITE_IOERR means
 * SQLite reports ENOSPC of a write as SQLITE_FULL, but a quota, a file size
 * limit and the -shm file as I/O errors: all are "no room". store_shm has no
 * errno for the last, whose page fault gives none. A failed sync stays an I/O
 * error whatever its errno: after it nobody knows what is on the disk. */
static int io_error(sqlite3 *db, int rc)
{
    if (rc == SQLITE_IOERR_NOMEM)
        return -ENOMEM;
    if (rc == SQLITE_IOERR_FSYNC || rc == SQLITE_IOERR_DIR_FSYNC)
        return -EIO;
    int err = sqlite3_system_errno(db);
    if (rc == SQLITE_IOERR_WRITE && err == 0)
        err = wal_errno(db);
    bool full = err == ENOSPC || err == EDQUOT || err == EFBIG ||
                (rc == SQLITE_IOERR_SHMSIZE && err != EIO);
    return full ? -ENOSPC : -EIO;
}

bool sql_index_failed(const struct sql *sql)
{
    int rc = sqlite3_extended_errcode(sql->db);
    return rc == SQLITE_IOERR_SHMSIZE || rc == SQLITE_IOERR_SHMMAP;
}

/* sql_error - a result code as -errno */
int sql_error(sqlite3 *db, int rc)
{
    switch (rc & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return 0;
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return -EBUSY;
    case SQLITE_NOMEM:
        return -ENOMEM;
    case SQLITE_IOERR:
        return io_error(db, rc);
    case SQLITE_TOOBIG:
        return -EMSGSIZE;
    case SQLITE_CONSTRAINT:
        if (rc == SQLITE_CONSTRAINT_UNIQUE)
            return -EEXIST;
        return rc == SQLITE_CONSTRAINT_FOREIGNKEY ? -ENOENT : -EINVAL;
    default: /* CORRUPT, NOTADB, READONLY, CANTOPEN, ...: not to be used */
        return -EIO;
    }
}

/* sql_use - the statement of that name, prepared once */
int sql_use(struct sql *sql, enum sql_id id, sqlite3_stmt **st)
{
    int rc = SQLITE_OK;
    if (!sql->stmts[id])
        rc = sqlite3_prepare_v3(sql->db, sql_texts[id], -1,
                                SQLITE_PREPARE_PERSISTENT, &sql->stmts[id],
                                NULL);
    *st = sql->stmts[id];
    if (*st)
        return 0;
    int err = sql_error(sql->db, rc);
    return err ? err : -EIO;
}

/* sql_step - the next row of a statement */
int sql_step(struct sql *sql, sqlite3_stmt *st)
{
    int rc = sqlite3_step(st);
    return rc == SQLITE_ROW ? 1 : sql_error(sql->db, rc);
}

/* sql_done - reset the statement */
void sql_done(sqlite3_stmt *st)
{
    sqlite3_reset(st); /* repeats the result that step gave already */
    sqlite3_clear_bindings(st);
}

/* sql_run - all steps of a statement whose rows do not matter */
int sql_run(struct sql *sql, sqlite3_stmt *st)
{
    int more;
    do {
        more = sql_step(sql, st);
    } while (more > 0);
    sql_done(st);
    return more;
}

/* sql_exec - run a statement by name */
int sql_exec(struct sql *sql, enum sql_id id)
{
    sqlite3_stmt *st;
    int err = sql_use(sql, id, &st);
    return err ? err : sql_run(sql, st);
}

/* sql_bind_u64 - bind a count or a time, cut to what SQLite can hold */
void sql_bind_u64(sqlite3_stmt *st, int at, uint64_t value)
{
    sqlite3_bind_int64(st, at, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

/* sql_bind_text - bind borrowed text or NULL */
void sql_bind_text(sqlite3_stmt *st, int at, const char *text, size_t size)
{
    sqlite3_bind_text64(st, at, text, size, SQLITE_STATIC, SQLITE_UTF8);
}

/* sql_bind_blob - bind borrowed bytes; no bytes are an empty blob, not NULL */
void sql_bind_blob(sqlite3_stmt *st, int at, const void *data, size_t size)
{
    sqlite3_bind_blob64(st, at, size ? data : "", size, SQLITE_STATIC);
}
