/* file.c - makes, checks and copies the files of a store (see sql.h)
 *
 * store.c calls most of this when a store is opened, or put back after its
 * file was removed. A worker calls store_check at its start or in the pool, and
 * mqctl doctor calls it as well.
 */
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/libc.h"
#include "common/base/problem.h"
#include "common/store/sql.h"

int store_version_refuse(const char *path, int64_t version, struct problem *p)
{
    return problem_set(p, EX_CONFIG, ENOTSUP,
                       "%s has store version %lld, but this program reads "
                       "version %d; it was left untouched. Use the mqworker "
                       "version that wrote it, or another --state-dir",
                       path, (long long)version, STORE_VERSION);
}

/* Check the first 100 bytes of the file. SQLite's own descriptor reads them
 * past its cache, because closing a descriptor of ours would drop the locks
 * that this process may have on the file (fcntl(2)). These bytes have
 * STORE_MAGIC and STORE_VERSION, which a store has before it gets its name. */
int store_file_check(sqlite3 *db, const char *path, struct problem *p)
{
    static const char magic[16] = "SQLite format 3";
    uint32_t header[25]; /* big-endian */
    const char *other = NULL;
    sqlite3_file *file = NULL;
    int rc;

    sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    if (!file || !file->pMethods)
        return store_file_refuse(db, SQLITE_CANTOPEN, path, p);
    rc = file->pMethods->xRead(file, header, sizeof header, 0);
    if (rc != SQLITE_OK && rc != SQLITE_IOERR_SHORT_READ)
        return store_file_refuse(db, rc, path, p);
    if (rc != SQLITE_OK || memcmp(header, magic, sizeof magic) != 0)
        other = "not an SQLite file";
    else if (be32toh(header[17]) != STORE_MAGIC)
        other = "an SQLite file of another program";
    if (other)
        return problem_set(p, EX_CANTCREAT, EBADMSG,
                           "%s is %s, not an mqworker store, and was left "
                           "untouched: move it away, or use another "
                           "--state-dir",
                           path, other);
    if (be32toh(header[15]) != STORE_VERSION)
        return store_version_refuse(path, be32toh(header[15]), p);
    return 0;
}

int store_file_refuse(sqlite3 *db, int rc, const char *path, struct problem *p)
{
    char user[FOLDER_USER], who[LOCK_HOLDER];
    const char *holder;
    struct statvfs mount;
    int err = -sql_error(db, rc);

    err = err ? err : EIO;
    if ((rc & 0xff) == SQLITE_CANTOPEN && sqlite3_system_errno(db) == EMFILE)
        return problem_set(p, EX_OSERR, EMFILE, "%s cannot be opened: %s", path,
                           errno_text(EMFILE));
    if (err == ENOMEM)
        return problem_set(p, EX_OSERR, ENOMEM,
                           "%s cannot be opened: out of memory", path);
    switch (rc & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return problem_set(p, EX_CANTCREAT, err,
                           "%s is damaged (%s) and was left untouched: %s",
                           path, sqlite3_errstr(rc), DISK_DAMAGED_ADVICE);
    case SQLITE_BUSY:
        holder = lock_holder(path, getpid(), who);
        return problem_set(
            p, EX_CANTCREAT, err,
            "%s is locked by %s, even after a wait of 5s or more. Wait for "
            "that program to finish or stop it, then try again",
            path, holder ? holder : "another program (see fuser(1))");
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
        /* After an error the kernel may have made the file system read-only,
         * which statvfs(3) does not show (see file_watch.c). */
        if (sqlite3_system_errno(db) == EROFS ||
            (statvfs(path, &mount) == 0 && mount.f_flag & ST_RDONLY))
            return folder_read_only(path, p);
        return problem_set(p, EX_CANTCREAT, EACCES,
                           "%s and its folder cannot be written by %s on "
                           "a local file system; run as their owner, or use "
                           "another --state-dir",
                           path, folder_user(geteuid(), user));
    default:
        return problem_set(p, EX_CANTCREAT, err,
                           "%s cannot be opened: %s (%s); %s, or use another "
                           "--state-dir",
                           path, sqlite3_errstr(rc), errno_text(err),
                           disk_advice(-err));
    }
}

int store_file_modes(const char *path, struct problem *p)
{
    static const char *const tails[] = {"", "-wal", "-shm"};
    char file[PATH_MAX], user[FOLDER_USER];
    struct stat st;
    int err;

    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        snprintf(file, sizeof file, "%s%s", path, tails[i]);
        if (lstat(file, &st) < 0 || !S_ISREG(st.st_mode))
            continue;
        if ((st.st_mode & 07777) == 0600 || chmod(file, 0600) == 0)
            continue;
        err = errno;
        return problem_set(p, EX_CANTCREAT, err,
                           "%s has mode %04o and cannot get 0600: %s; run as "
                           "its owner, %s",
                           file, (unsigned)st.st_mode & 07777, errno_text(err),
                           folder_user(st.st_uid, user));
    }
    return 0;
}

/* ---- making a store, or a copy of one ---- */

/* The schema, which docs/formats/store.md describes. After a change, raise
 * STORE_VERSION and the store in tests/golden.
 *
 * `data` is the last column of messages, so that the others are read without
 * reading a large body.
 * Indexes are partial, so that each state pays only for its own. They contain
 * the state as well, because SQLite would otherwise read the table to check it.
 * messages_waiting has `attempts > 0`, so that a delayed message is found fast
 * among a million retries, and a retry among delayed messages (waiting.c).
 * messages_letter_ids finds a letter by the id of its message. With the two
 * indexes of cancelled messages, `mqctl status` counts these without reading
 * the others. */

#define RANDOM "XXXXXX" /* of mkostemp(3) */
#define RANDOM_SET \
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

/* Settings for a file without a name, which is synced once at the end. */
#define UNNAMED "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;"

/* auto_vacuum can be set only in a new file; INCREMENTAL lets letters_shrink
 * return room to the disk. */
static const char schema[] = UNNAMED
    "PRAGMA page_size = 4096;"
    "PRAGMA auto_vacuum = INCREMENTAL;"
    "PRAGMA application_id = 0x4d515753;"
    "PRAGMA user_version = 1;"
    "BEGIN;"
    "CREATE TABLE messages ("
    " row INTEGER PRIMARY KEY AUTOINCREMENT,"
    " state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4),"
    " receive_seq INTEGER,"
    " id BLOB NOT NULL,"
    " priority INTEGER NOT NULL,"
    " attempts INTEGER NOT NULL,"
    " crashes INTEGER NOT NULL,"
    " flags INTEGER NOT NULL,"
    " group_key TEXT,"
    " due_ns INTEGER NOT NULL,"
    " delay_ns INTEGER NOT NULL DEFAULT 0,"
    " first_received_ns INTEGER NOT NULL,"
    " died_ns INTEGER NOT NULL,"
    " reason INTEGER NOT NULL,"
    " error TEXT,"
    " boot TEXT,"
    " header_size INTEGER NOT NULL,"
    " data BLOB NOT NULL);"
    "CREATE UNIQUE INDEX messages_seq ON messages (receive_seq)"
    " WHERE receive_seq IS NOT NULL;"
    "CREATE INDEX messages_due ON messages (state, due_ns) WHERE state = 1;"
    "CREATE INDEX messages_order ON messages"
    " (state, priority DESC, due_ns, receive_seq) WHERE state = 1;"
    "CREATE INDEX messages_parked ON messages"
    " (state, group_key, priority, receive_seq) WHERE state = 2;"
    "CREATE INDEX messages_groups ON messages (group_key, state, attempts)"
    " WHERE group_key IS NOT NULL;"
    "CREATE INDEX messages_letters ON messages (state, died_ns)"
    " WHERE state >= 3;"
    "CREATE TABLE attempts ("
    " row INTEGER NOT NULL REFERENCES messages (row) ON DELETE CASCADE,"
    " n INTEGER NOT NULL,"
    " started_ns INTEGER NOT NULL,"
    " duration_ns INTEGER NOT NULL,"
    " error TEXT,"
    " stderr BLOB NOT NULL,"
    " said INTEGER NOT NULL DEFAULT 0,"
    " cpu_ns INTEGER,"
    " peak_bytes INTEGER,"
    " PRIMARY KEY (row, n)) WITHOUT ROWID;"
    "CREATE TABLE replays ("
    " row INTEGER NOT NULL REFERENCES messages (row) ON DELETE CASCADE,"
    " n INTEGER NOT NULL,"
    " token BLOB NOT NULL,"
    " died_ns INTEGER NOT NULL,"
    " marked_ns INTEGER NOT NULL,"
    " sent INTEGER NOT NULL,"
    " PRIMARY KEY (row, n)) WITHOUT ROWID;"
    "CREATE TABLE identity (id BLOB NOT NULL);"
    "INSERT INTO identity SELECT randomblob(8);"
    "CREATE TABLE hooks ("
    " n INTEGER PRIMARY KEY AUTOINCREMENT,"
    " row INTEGER NOT NULL UNIQUE REFERENCES messages (row)"
    " ON DELETE CASCADE);"
    "CREATE TABLE spool ("
    " key INTEGER PRIMARY KEY,"
    " received_ns INTEGER NOT NULL,"
    " id BLOB,"
    " crashes INTEGER NOT NULL,"
    " flags INTEGER NOT NULL,"
    " letter INTEGER,"
    " data BLOB NOT NULL);"
    "CREATE TABLE keys ("
    " key TEXT PRIMARY KEY,"
    " seq INTEGER NOT NULL,"
    " id BLOB NOT NULL,"
    " from_ns INTEGER NOT NULL,"
    " until_ns INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX keys_until ON keys (until_ns);"
    "CREATE INDEX keys_seq ON keys (seq);"
    "CREATE INDEX spool_letters ON spool (letter) WHERE letter IS NOT NULL;"
    "CREATE TABLE spool_state (count INTEGER NOT NULL,"
    " boot TEXT, run INTEGER NOT NULL, doubt INTEGER NOT NULL);"
    "INSERT INTO spool_state VALUES (0, NULL, 0, 0);"
    "CREATE INDEX messages_waiting ON messages"
    " (state, attempts > 0, due_ns) WHERE state = 1;"
    "CREATE INDEX messages_letter_ids ON messages (id) WHERE state >= 3;"
    "CREATE INDEX messages_cancelled ON messages (state) WHERE flags & 8;"
    "CREATE INDEX spool_cancelled ON spool (key) WHERE flags & 8;"
    "CREATE TABLE clock (ahead_ns INTEGER NOT NULL, boot TEXT);"
    "INSERT INTO clock VALUES (0, NULL);"
    "COMMIT;"
    "PRAGMA journal_mode = WAL;";
_Static_assert(STORE_MAGIC == 0x4d515753 && STORE_VERSION == 1,
               "the schema writes these numbers");

/* A temporary file that becomes a store. The process that makes it holds a lock
 * on it (flock(2)), so that store_make_tidy removes only the drafts of killed
 * processes. */
struct draft {
    char folder[PATH_MAX];
    char name[PATH_MAX];
    int fd;
};

/* Make an empty file beside `path`, which belongs to the folder's owner. SQLite
 * gives the -wal and -shm files the mode and owner of the main file. */
static int draft_open(struct draft *d, const char *path)
{
    struct stat st;
    bool locked;

    strlcpy(d->folder, path, sizeof d->folder);
    (void)file_parent(d->folder);
    for (;;) {
        if (snprintf(d->name, PATH_MAX, "%s." RANDOM, path) >= PATH_MAX)
            return -ENAMETOOLONG;
        d->fd = mkostemp(d->name, O_CLOEXEC);
        if (d->fd < 0)
            return -errno;
        locked = flock(d->fd, LOCK_EX | LOCK_NB) == 0;
        if (!locked && errno != EWOULDBLOCK)
            break; /* without locks, store_make_tidy removes nothing */
        if (locked && fstat(d->fd, &st) == 0 && st.st_nlink > 0)
            break;
        close(d->fd); /* store_make_tidy has removed the file already */
    }
    if (stat(d->folder, &st) < 0 ||
        (geteuid() == 0 && fchown(d->fd, st.st_uid, st.st_gid) < 0))
        return -errno;
    return 0;
}

/* Remove a temporary file, and the files that SQLite has put beside it. */
static void name_remove(const char *name)
{
    static const char *const tails[] = {"", "-wal", "-shm"};
    char file[PATH_MAX + 8];

    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        snprintf(file, sizeof file, "%s%s", name, tails[i]);
        unlink(file);
    }
}

/* Return true if `path` names one of two files. */
static bool is_replaceable(const char *path, const struct stat replace[2])
{
    struct stat st;

    return stat(path, &st) == 0 &&
           (file_same(&st, &replace[0]) || file_same(&st, &replace[1]));
}

/* Give a draft the name of a file in `replace`. The names are exchanged before
 * that file is checked, because a check before rename(2) could lose a file that
 * another program puts there in between. Crash between the exchange and its
 * undo: the other program's file is left as a draft, which the next start
 * removes. */
static int draft_exchange(const char *draft, const char *path,
                          const struct stat replace[2])
{
    if (renameat2(AT_FDCWD, draft, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
        if (is_replaceable(draft, replace))
            return 0;
        (void)renameat2(AT_FDCWD, draft, AT_FDCWD, path, RENAME_EXCHANGE);
        return -EEXIST;
    }
    if (errno != EINVAL) /* a file system that cannot exchange names */
        return -errno;
    if (!is_replaceable(path, replace))
        return -EEXIST;
    return rename(draft, path) < 0 ? -errno : 0;
}

/* Crash before the draft is linked or renamed: a draft is left, and `path` is
 * unchanged. Crash after it: the store is at `path`, and on the disk. The -wal
 * of `from` may still be beside a copy; each of its frames is in the copy, so a
 * start that applies them once more changes nothing. link(2) is used instead of
 * rename(2), so that of two programs that make an empty store the first one
 * wins. */
int store_file_make(const char *path, sqlite3 *from,
                    const struct stat replace[2])
{
    char tail[PATH_MAX + 8];
    struct draft d = {.fd = -1};
    sqlite3_backup *copy = NULL;
    sqlite3 *db = NULL;
    int err = draft_open(&d, path), rc, end;

    if (!err) {
        rc = sqlite3_open_v2(d.name, &db, SQLITE_OPEN_READWRITE, NULL);
        if (rc == SQLITE_OK)
            rc = sqlite3_exec(db, from ? UNNAMED : schema, NULL, NULL, NULL);
        if (rc == SQLITE_OK && from) {
            /* The copy includes the -wal of `from`, even if its name is
             * gone. */
            copy = sqlite3_backup_init(db, "main", from, "main");
            rc = copy ? sqlite3_backup_step(copy, -1) : sqlite3_errcode(db);
            end = copy ? sqlite3_backup_finish(copy) : rc;
            rc = rc == SQLITE_DONE ? end : rc;
        }
        err = sql_error(db, rc);
        sqlite3_close(db);
        if (!err && fsync(d.fd) < 0)
            err = -errno;
    }
    FAULT_POINT("store_make_before_link");
    if (!err && link(d.name, path) < 0)
        err = -errno;
    if (err == -EEXIST && replace)
        err = draft_exchange(d.name, path, replace);
    FAULT_POINT("store_make_after_link");
    if (d.fd >= 0) {
        name_remove(d.name);
        close(d.fd);
    }
    if (err == -EEXIST && !from)
        err = 0; /* another program was first */
    for (int i = 0; i < 2 && !err && from; i++) {
        snprintf(tail, sizeof tail, "%s%s", path, i ? "-shm" : "-wal");
        if (unlink(tail) < 0 && errno != ENOENT)
            err = -errno;
    }
    return err ? err : folder_sync(d.folder);
}

/* Refuse to make a store beside a -wal whose store is gone, because SQLite
 * would copy the pages of that -wal into the new store. */
int store_file_require(const char *path, bool create, struct problem *p)
{
    char user[FOLDER_USER], folder[PATH_MAX], mount[PATH_MAX];
    char wal[PATH_MAX + 8];
    struct stat st;
    int err;

    if (stat(path, &st) == 0)
        return 0;
    err = errno;
    if (err != ENOENT || !create)
        return problem_set(p, EX_CANTCREAT, err, "%s: %s", path,
                           errno_text(err));
    snprintf(wal, sizeof wal, "%s-wal", path);
    if (stat(wal, &st) == 0 && st.st_size > WAL_HEAD)
        return problem_set(p, EX_CANTCREAT, ENOENT,
                           "%s is missing, but its -wal is there: put the file "
                           "back, or move %s away to begin with an empty store",
                           path, wal);
    err = store_file_make(path, NULL, NULL);
    if (!err)
        return 0;
    if (err == -ENOMEM)
        return problem_set(p, EX_OSERR, ENOMEM,
                           "%s cannot be opened: out of memory", path);
    strlcpy(folder, path, sizeof folder);
    (void)file_parent(folder);
    if (err == -ENOSPC || err == -EDQUOT)
        return problem_set(
            p, EX_CANTCREAT, -err,
            "%s cannot be created: %s; %s on %s, or give another --state-dir",
            path, errno_text(-err), folder_room(path),
            mount_point(folder, mount));
    return problem_set(p, EX_CANTCREAT, -err,
                       "%s cannot be created: %s; make %s the owner of the "
                       "folder, or use another --state-dir",
                       path, errno_text(-err), folder_user(geteuid(), user));
}

void store_make_tidy(const char *path)
{
    char folder[PATH_MAX], name[PATH_MAX];
    const char *slash = strrchr(path, '/'), *rest;
    const size_t size = strlen(slash ? slash + 1 : path);
    const struct dirent *entry;
    DIR *dir;
    int fd;

    strlcpy(folder, path, sizeof folder);
    (void)file_parent(folder);
    dir = opendir(folder);
    while (dir && (entry = readdir(dir))) {
        rest = entry->d_name + size; /* "." RANDOM, behind the store's name */
        /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): a prefix */
        if (strncmp(entry->d_name, slash ? slash + 1 : path, size) != 0 ||
            *rest != '.' || strspn(rest + 1, RANDOM_SET) != strlen(RANDOM) ||
            rest[1 + strlen(RANDOM)] != '\0' ||
            !folder_join(name, folder, "/", entry->d_name))
            continue;
        fd = open(name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            name_remove(name);
        fd_close(&fd);
    }
    if (dir)
        closedir(dir);
}

/* A program that has the store open keeps using its removed -wal. We would make
 * a new -wal, which does not match the index (-shm) that both share, and each
 * program would look for the other's frames in its own file. The first user of
 * the index empties it, and recovery fills it (walformat.html of SQLite,
 * section 2), so a filled index has another user. SQLite's lock on the index
 * would show the same, but /proc/locks has no locks of other PID namespaces,
 * and names another device for a file on btrfs. */
int store_wal_check(sqlite3 *db, const char *path, struct problem *p)
{
    enum { REGION = 32768, READY = 12 };
    char wal[PATH_MAX + 8], shm[PATH_MAX + 8];
    const sqlite3_io_methods *m;
    volatile void *index = NULL;
    sqlite3_file *file = NULL;
    bool shared = false;
    struct stat st;

    snprintf(wal, sizeof wal, "%s-wal", path);
    snprintf(shm, sizeof shm, "%s-shm", path);
    if (stat(wal, &st) == 0 || stat(shm, &st) < 0)
        return 0;
    sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    m = file ? file->pMethods : NULL;
    if (!m || m->iVersion < 2 || m->xLock(file, SQLITE_LOCK_SHARED))
        return 0; /* SQLite will report the error to the caller */
    if (m->xShmMap(file, 0, REGION, 0, &index) == SQLITE_OK && index)
        shared = ((const volatile unsigned char *)index)[READY] != 0;
    m->xShmUnmap(file, 0);
    m->xUnlock(file, SQLITE_LOCK_NONE);
    if (!shared || stat(wal, &st) == 0)
        return 0;
    return problem_set(p, EX_CANTCREAT, EBUSY,
                       "%s was removed while another program has the store "
                       "open; a second program would damage the store. A "
                       "worker writes the file again within seconds (its log: "
                       "event=file_gone): try again then",
                       wal);
}

/* SQLite appends a commit to the -wal, syncs it, then adds it to its index. A
 * commit that was cut off in between is in the file but not in the index.
 * Programs that have the store open do not see it; but after the last of them
 * has exited, the next one would accept it, although its messages may have been
 * settled in another way meanwhile. So the -wal is emptied. If a reader or the
 * disk prevents that, a commit that changes nothing is written over the first
 * frame of the cut-off one, and SQLite ignores all frames after a frame that
 * does not match. The write helps even if it cannot be synced, because written
 * pages survive a kill. */
int store_wal_bury(sqlite3 *db)
{
    int rc = sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE,
                                       NULL, NULL);

    _Static_assert(STORE_VERSION == 1, "the pragma below changes nothing");
    if (rc != SQLITE_OK)
        rc = sqlite3_exec(db, "PRAGMA user_version = 1", NULL, NULL, NULL);
    return rc;
}

/* ---- checking the whole store ---- */

/* Without this check, damage shows only in a query that reads the damaged page,
 * or not at all: a flipped bit in an index hides the rows behind it, and the
 * query succeeds. */

/* Steps of SQLite's virtual machine between two checks of *stop. */
#define STEPS 10000

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

/* Check the store at `path` once, over a connection of its own: 0 or -errno. */
static int check_file(const char *path, const atomic_bool *stop,
                      char found[STORE_FOUND])
{
    const char *text, *line, *code;
    sqlite3_stmt *st = NULL;
    struct sql sql;
    int rc, err;

    found[0] = '\0';
    rc = sql_open(&sql, path);
    if (rc == SQLITE_OK)
        rc = sql_setup(&sql, SQL_READER);
    if (sql.db)
        sqlite3_db_config(sql.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (rc == SQLITE_OK && stop)
        sqlite3_progress_handler(sql.db, STEPS, check_is_stopped, (void *)stop);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(sql.db, "PRAGMA quick_check(1)", -1, &st, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        /* SQLite reports an error that prevented a read as text, too: "unable
         * to get the page. error code=7" is a lack of memory; "failed to get
         * page 9", for a page of a list, has no code. */
        text = (const char *)sqlite3_column_text(st, 0);
        code = text ? strstr(text, "error code=") : NULL;
        rc = !text  ? SQLITE_NOMEM
             : code ? (int)strtol(code + strlen("error code="), NULL, 10)
             : strcmp(text, "ok") == 0            ? SQLITE_OK
             : strstr(text, "failed to get page") ? SQLITE_IOERR
                                                  : SQLITE_CORRUPT;
        if ((rc & 0xff) == SQLITE_CORRUPT) {
            /* Skip a first line such as "*** in database main ***". */
            line = strncmp(text, "***", 3) == 0 ? strchr(text, '\n') : NULL;
            strlcpy(found, line ? line + 1 : text, STORE_FOUND);
        }
    } else if ((rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB) {
        strlcpy(found, sqlite3_errstr(rc), STORE_FOUND);
    }
    /* quick_check prints several lines per page; the first is enough for a
     * log. */
    found[strcspn(found, "\n")] = '\0';
    sqlite3_finalize(st);
    err = (rc & 0xff) == SQLITE_INTERRUPT ? -ECANCELED : sql_error(sql.db, rc);
    sql_close(&sql);
    return err;
}

int store_check(struct store *s, const atomic_bool *stop,
                char found[STORE_FOUND])
{
    char path[PATH_MAX];
    int err;

    path_copy(s, path);
    err = check_file(path, stop, found);
    /* A lack of memory can end the count of an index early, and SQLite 3.46
     * then reports a wrong number of entries. Real damage is found again. */
    if (found[0])
        err = check_file(path, stop, found);
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

/* ---- whether a store has changed ---- */

/* Clocks and file systems count in smaller steps than this. So a file whose
 * time is older than this gets another time with the next write. */
#define SETTLED_NS (3 * NS_PER_S)

/* Compare what a commit changes. In a store without a -wal, a commit changes
 * the file itself. In a store with a -wal, a commit changes the head of the
 * -shm (https://www.sqlite.org/walformat.html), and a checkpoint changes the
 * file. The times of the -shm are not compared: writers map it, and a write to
 * a mapping does not set them. */
bool store_unchanged(const char *path, struct store_mark *mark)
{
    static const char *const tails[] = {"", "-wal", "-shm"};
    enum { MAIN, WAL, SHM };
    struct store_mark now;
    uint64_t written, clock = clock_wall_ns();
    char file[PATH_MAX + 8];
    bool settled, same;
    struct stat st;
    int fd;

    memset(&now, 0, sizeof now); /* padding is compared as well */
    for (int i = MAIN; i <= SHM; i++) {
        snprintf(file, sizeof file, "%s%s", path, tails[i]);
        if (stat(file, &st) < 0)
            continue;
        now.files[i].dev = st.st_dev;
        now.files[i].ino = st.st_ino;
        now.files[i].size = st.st_size;
        if (i != SHM)
            now.files[i].written = st.st_mtim;
        /* SQLite changes the owner of the others when root opens them. */
        if (i == MAIN)
            now.files[i].changed = st.st_ctim;
    }
    fd = now.files[SHM].ino
             ? open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
             : -1;
    settled = fd >= 0 ? pread(fd, now.index, sizeof now.index, 0) ==
                                (ssize_t)sizeof now.index &&
                            now.index[0]
                      : !now.files[SHM].ino && !now.files[WAL].ino;
    fd_close(&fd);
    written = (uint64_t)now.files[MAIN].written.tv_sec * NS_PER_S +
              (uint64_t)now.files[MAIN].written.tv_nsec;
    if (!now.files[MAIN].ino || written > clock ||
        clock - written < SETTLED_NS || !settled)
        memset(&now, 0, sizeof now);
    same = now.files[MAIN].ino && memcmp(mark, &now, sizeof now) == 0;
    memcpy(mark, &now, sizeof now);
    return same;
}

/* ---- a copy of a store that has lost commits ---- */

/* Copy a file through SQLite's own descriptor: closing one of ours would drop
 * the locks that this process has on the file (fcntl(2)). */
static int file_copy(sqlite3_file *from, const char *to)
{
    char data[65536];
    sqlite3_int64 size = 0, at = 0;
    int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), err = 0;

    if (fd < 0)
        return -errno;
    if (from->pMethods->xFileSize(from, &size) != SQLITE_OK)
        err = -EIO;
    while (!err && at < size) {
        int n =
            size - at < (int)sizeof data ? (int)(size - at) : (int)sizeof data;

        if (from->pMethods->xRead(from, data, n, at) != SQLITE_OK)
            err = -EIO;
        else
            err = file_write(fd, data, (size_t)n, at);
        at += n;
    }
    if (!err && fsync(fd) < 0)
        err = -errno;
    close(fd);
    return err;
}

/* sqlite3(1) opens the copy with its -wal. */
int store_set_aside(struct store *s, char copy[PATH_MAX])
{
    static const struct {
        int pointer;
        const char *tail;
    } files[] = {{SQLITE_FCNTL_FILE_POINTER, ""},
                 {SQLITE_FCNTL_JOURNAL_POINTER, "-wal"}};
    struct sql *sql = store_read_begin(s);
    char path[PATH_MAX + 8];
    int err = 0;

    if (snprintf(copy, PATH_MAX, "%s.behind.%llu",
                 sqlite3_db_filename(sql->db, "main"),
                 (unsigned long long)clock_wall_ns()) >= PATH_MAX)
        err = -ENAMETOOLONG;
    for (size_t i = 0; i < 2 && !err; i++) {
        sqlite3_file *file = NULL;

        sqlite3_file_control(sql->db, "main", files[i].pointer, &file);
        snprintf(path, sizeof path, "%s%s", copy, files[i].tail);
        if (file && file->pMethods)
            err = file_copy(file, path);
    }
    store_read_end(s);
    return err;
}
