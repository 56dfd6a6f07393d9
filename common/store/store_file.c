/* store_file.c - the store's file; see store_file.h
 *
 * The schema of version 2. Change it: raise STORE_VERSION, bring the old one up
 * to it (store_file_upgrade), keep a frozen copy of each in
 * tests/unit/storage/test_store.c.
 *
 * messages   one row a message. `data` is the last column, so that the others
 *            are read without walking through a large body. receive_seq is NULL
 *            where there is none. boot: where a replayed letter was sent.
 * attempts   its failed deliveries, n from 1.
 * replays    how often it was sent again as a letter, from 1; since version 2.
 * identity   one row: a random number of this file; since version 2.
 * Indexes are partial: each state pays for its own only. They name the state
 * all the same, or SQLite looks at the table to check it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/fault_point.h"
#include "common/file/folder.h"
#include "common/file/mount_point.h"
#include "common/store/store_file.h"
#include "common/store/store_sql.h"

/* What version 2 has more than version 1. It may be there already where the
 * number says 1: a worker of that version, which had the store open when it was
 * brought up to 2, writes its number again when a sync fails (store_wal_bury).
 */
#define SINCE_2                                                          \
    "CREATE TABLE IF NOT EXISTS replays ("                               \
    " row INTEGER NOT NULL REFERENCES messages (row) ON DELETE CASCADE," \
    " n INTEGER NOT NULL,"                                               \
    " token BLOB NOT NULL,"                                              \
    " died_ns INTEGER NOT NULL,"                                         \
    " marked_ns INTEGER NOT NULL,"                                       \
    " sent INTEGER NOT NULL,"                                            \
    " PRIMARY KEY (row, n)) WITHOUT ROWID;"                              \
    "CREATE TABLE IF NOT EXISTS identity (id BLOB NOT NULL);"            \
    "INSERT INTO identity SELECT randomblob(8)"                          \
    " WHERE NOT EXISTS (SELECT 1 FROM identity);"

/* auto_vacuum is a property of the file that cannot be given to it later;
 * INCREMENTAL lets a large discard hand its room back to the disk. Nothing here
 * needs to be durable step by step: the file has no name yet. */
static const char schema[] =
    "PRAGMA journal_mode = MEMORY;"
    "PRAGMA synchronous = OFF;"
    "PRAGMA page_size = 4096;"
    "PRAGMA auto_vacuum = INCREMENTAL;"
    "PRAGMA application_id = 0x4d515753;"
    "PRAGMA user_version = 2;"
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
    " PRIMARY KEY (row, n)) WITHOUT ROWID;" SINCE_2 "COMMIT;"
    "PRAGMA journal_mode = WAL;";
_Static_assert(STORE_MAGIC == 0x4d515753 && STORE_VERSION == 2,
               "the schema writes these numbers");

/* folder_of - open the folder a file is in, -1 with errno */
static int folder_of(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash)
        return open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    size_t size = slash == path ? 1 : (size_t)(slash - path);
    if (size >= sizeof folder) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(folder, path, size);
    folder[size] = '\0';
    return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* temporary_make - an empty file beside `path`, for the folder's owner
 * SQLite gives the -wal and -shm files the mode and owner of the main file. */
static int temporary_make(const char *path, int folder, char name[PATH_MAX])
{
    struct stat st;
    if ((size_t)snprintf(name, PATH_MAX, "%s.XXXXXX", path) >= PATH_MAX)
        return -ENAMETOOLONG;
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int err = fstat(folder, &st) < 0 ? -errno : 0;
    if (!err && geteuid() == 0 && fchown(fd, st.st_uid, st.st_gid) < 0)
        err = -errno;
    close(fd);
    if (err)
        unlink(name);
    return err;
}

/* file_sync - bring a file that nobody has open to the disk */
static int file_sync(const char *name)
{
    int fd = open(name, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int err = fsync(fd) < 0 ? -errno : 0;
    close(fd);
    return err;
}

/* schema_write - fill the empty file `name` and bring it to the disk */
static int schema_write(const char *name)
{
    sqlite3 *db = NULL;
    int rc = sqlite3_open_v2(name, &db, SQLITE_OPEN_READWRITE, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, schema, NULL, NULL, NULL);
    int err = sql_error(db, rc);
    sqlite3_close(db);
    return err ? err : file_sync(name);
}

/* copy_write - fill the empty file `name` with all that `from` holds, and bring
 * it to the disk; its -wal included, whatever became of the names of both */
static int copy_write(const char *name, sqlite3 *from)
{
    static const char settings[] =
        "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;";
    sqlite3 *db = NULL;
    sqlite3_backup *copy = NULL;
    int rc = sqlite3_open_v2(name, &db, SQLITE_OPEN_READWRITE, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, settings, NULL, NULL, NULL);
    if (rc == SQLITE_OK) {
        copy = sqlite3_backup_init(db, "main", from, "main");
        rc = copy ? sqlite3_backup_step(copy, -1) : sqlite3_errcode(db);
    }
    if (rc == SQLITE_DONE)
        rc = sqlite3_backup_finish(copy);
    else if (copy)
        sqlite3_backup_finish(copy);
    int err = sql_error(db, rc);
    sqlite3_close(db);
    return err ? err : file_sync(name);
}

/* temporary_remove - take the temporary name away, and what SQLite left of
 * it */
static void temporary_remove(const char *name)
{
    static const char *const tails[] = {"", "-wal", "-shm"};
    char file[PATH_MAX + 8];
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        snprintf(file, sizeof file, "%s%s", name, tails[i]);
        unlink(file);
    }
}

/* store_make - make the store in an open folder
 * Crash before link: a temporary file is left, the store is still missing.
 * Crash after link: the store is there, complete and on the disk. link(2), not
 * rename(2), so that of two programs that make it at once the first wins. */
static int store_make(const char *path, int folder)
{
    char name[PATH_MAX];
    int err = temporary_make(path, folder, name);
    if (err)
        return err;
    err = schema_write(name);
    FAULT_POINT("store_make_before_link");
    if (!err && link(name, path) < 0 && errno != EEXIST)
        err = -errno;
    FAULT_POINT("store_make_after_link");
    temporary_remove(name);
    if (!err && fsync(folder) < 0)
        err = -errno;
    return err;
}

/* store_file_copy - the copy appears complete or not at all
 * Crash before it has its name: a temporary file is left, and `path` is as
 * somebody left it. Crash after that: the copy is there. Beside it may be the
 * -wal of `db`: each frame of that is in the copy, so a start that takes them
 * over once more changes nothing. */
int store_file_copy(sqlite3 *db, const char *path, bool replace)
{
    char name[PATH_MAX], tail[PATH_MAX + 8];
    int folder = folder_of(path);
    if (folder < 0)
        return -errno;
    int err = temporary_make(path, folder, name);
    if (!err) {
        err = copy_write(name, db);
        FAULT_POINT("store_copy_before_name");
        if (!err && (replace ? rename(name, path) : link(name, path)) < 0)
            err = -errno;
        FAULT_POINT("store_copy_after_name");
        temporary_remove(name);
    }
    for (int i = 0; i < 2 && !err; i++) {
        snprintf(tail, sizeof tail, "%s%s", path, i ? "-shm" : "-wal");
        if (unlink(tail) < 0 && errno != ENOENT)
            err = -errno;
    }
    if (!err && fsync(folder) < 0)
        err = -errno;
    close(folder);
    return err;
}

/* memory_problem - not for want of a disk */
static int memory_problem(const char *path, struct problem *p)
{
    return problem_set(p, EX_OSERR, ENOMEM,
                       "%s cannot be opened: out of memory", path);
}

/* mount_of - where the disk is mounted that is full */
static const char *mount_of(const char *path, char out[PATH_MAX])
{
    char folder[PATH_MAX];
    char *slash;

    strlcpy(folder, path, sizeof folder);
    slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    return mount_point(slash ? folder : ".", out);
}

/* store_file_create - make an empty store */
int store_file_create(const char *path, struct problem *p)
{
    char user[FOLDER_USER], mount[PATH_MAX];
    int folder = folder_of(path);
    int err = folder < 0 ? -errno : store_make(path, folder);
    if (folder >= 0)
        close(folder);
    if (!err)
        return 0;
    if (err == -ENOMEM)
        return memory_problem(path, p);
    if (err == -ENOSPC || err == -EDQUOT)
        return problem_set(
            p, EX_CANTCREAT, -err,
            "%s cannot be created: %s; %s on %s, or give another "
            "--state-dir",
            path, strerror(-err), folder_room(path), mount_of(path, mount));
    return problem_set(p, EX_CANTCREAT, -err,
                       "%s cannot be created: %s; give the folder to %s, or "
                       "use another --state-dir",
                       path, strerror(-err), folder_user(geteuid(), user));
}

/* number_at - big-endian 32 bits of SQLite's file header */
static uint32_t number_at(const unsigned char *header, size_t at)
{
    return (uint32_t)header[at] << 24 | (uint32_t)header[at + 1] << 16 |
           (uint32_t)header[at + 2] << 8 | header[at + 3];
}

/* version_problem - refuse a store of another version */
static int version_problem(const char *path, int64_t version, struct problem *p)
{
    return problem_set(p, EX_CONFIG, ENOTSUP,
                       "%s has store version %lld, this program knows versions "
                       "%d to %d; left as it is: use the mqworker that wrote "
                       "it, or another --state-dir",
                       path, (long long)version, STORE_OLDEST, STORE_VERSION);
}

/* version_known - whether it can be used */
static bool version_known(int64_t version)
{
    return version >= STORE_OLDEST && version <= STORE_VERSION;
}

/* magic_problem - refuse a file that is no store at all */
static int magic_problem(const char *path, const char *what, struct problem *p)
{
    return problem_set(p, EX_CANTCREAT, EBADMSG,
                       "%s is %s, no mqworker store; left as it is: move it "
                       "away, or use another --state-dir",
                       path, what);
}

/* store_file_check - judge the first 100 bytes, read past SQLite's cache
 * Read through SQLite's own descriptor: closing one of ours would drop the
 * locks that this process may have on the file (fcntl(2)). A store is in WAL
 * mode, with both numbers written, before it gets its name. */
int store_file_check(sqlite3 *db, const char *path, struct problem *p)
{
    static const char magic[16] = "SQLite format 3";
    unsigned char header[100];
    sqlite3_file *file = NULL;
    sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    if (!file || !file->pMethods)
        return store_file_refuse(db, SQLITE_CANTOPEN, path, p);
    int rc = file->pMethods->xRead(file, header, sizeof header, 0);
    if (rc != SQLITE_OK && rc != SQLITE_IOERR_SHORT_READ)
        return store_file_refuse(db, rc, path, p);
    if (rc != SQLITE_OK || memcmp(header, magic, sizeof magic) != 0)
        return magic_problem(path, "not an SQLite file", p);
    if (number_at(header, 68) != STORE_MAGIC)
        return magic_problem(path, "an SQLite file of another program", p);
    if (!version_known(number_at(header, 60)))
        return version_problem(path, number_at(header, 60), p);
    return 0;
}

/* version_ask - what SQLite says; a SQLite result code */
static int version_ask(sqlite3 *db, int64_t *version)
{
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &st, NULL);
    if (rc != SQLITE_OK)
        return rc;
    rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        *version = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

/* store_file_verify - ask SQLite for the version, and whether we may write */
int store_file_verify(sqlite3 *db, const char *path, struct problem *p)
{
    int64_t version = 0;
    int rc = version_ask(db, &version);
    if (rc != SQLITE_OK)
        return store_file_refuse(db, rc, path, p);
    if (!version_known(version))
        return version_problem(path, version, p);
    return 0;
}

/* store_file_upgrade - one transaction, so that of two programs that do it at
 * once the second finds nothing left to do
 * Crash before the commit: the store is of version 1, as it was. After it: of
 * version 2. A program of version 1 that has it open meanwhile goes on: it
 * names the columns and tables that it uses, and they are as they were. */
int store_file_upgrade(sqlite3 *db, const char *path, struct problem *p)
{
    int64_t version = 0;
    int rc = version_ask(db, &version);
    if (rc == SQLITE_OK && version == STORE_VERSION)
        return 0;
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, "BEGIN IMMEDIATE;", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, SINCE_2 "PRAGMA user_version = 2; COMMIT;", NULL,
                          NULL, NULL);
    if (rc == SQLITE_OK)
        return 0;
    int err = store_file_refuse(db, rc, path, p); /* asks what went wrong */
    if (!sqlite3_get_autocommit(db))
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return err;
}

/* read_only - whether its file system is mounted so, or is so after an error,
 * which statvfs(3) does not tell of (see file_watch.c) */
static bool read_only(sqlite3 *db, const char *path)
{
    struct statvfs s;

    return sqlite3_system_errno(db) == EROFS ||
           (statvfs(path, &s) == 0 && s.f_flag & ST_RDONLY);
}

/* store_file_refuse - say why SQLite cannot use the file, and what helps */
int store_file_refuse(sqlite3 *db, int rc, const char *path, struct problem *p)
{
    char user[FOLDER_USER];
    int err = -sql_error(db, rc);
    err = err ? err : EIO;
    if ((rc & 0xff) == SQLITE_CANTOPEN && sqlite3_system_errno(db) == EMFILE)
        return problem_set(p, EX_OSERR, EMFILE, "%s cannot be opened: %s", path,
                           strerror(EMFILE));
    if (err == ENOMEM)
        return memory_problem(path, p);
    switch (rc & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return problem_set(p, EX_CANTCREAT, err,
                           "%s is damaged (%s); left as it is: keep a copy, "
                           "save what can be read with sqlite3's .recover, or "
                           "use another --state-dir",
                           path, sqlite3_errstr(rc));
    case SQLITE_BUSY:
        return problem_set(p, EX_CANTCREAT, err,
                           "%s was locked by another program for 5s; end that "
                           "program (see fuser(1)) and try again",
                           path);
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
        if (read_only(db, path))
            return folder_read_only(path, p);
        return problem_set(p, EX_CANTCREAT, EACCES,
                           "%s and its folder cannot be written by %s on "
                           "a local file system; run as their owner, or use "
                           "another --state-dir",
                           path, folder_user(geteuid(), user));
    default:
        return problem_set(p, EX_CANTCREAT, err,
                           "%s cannot be opened: %s (%s); make room on its "
                           "disk, or use another --state-dir",
                           path, sqlite3_errstr(rc), strerror(err));
    }
}

/* store_file_modes - keep others out of what messages say */
int store_file_modes(const char *path, struct problem *p)
{
    static const char *const tails[] = {"", "-wal", "-shm"};
    char file[PATH_MAX], user[FOLDER_USER];
    struct stat st;
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        snprintf(file, sizeof file, "%s%s", path, tails[i]);
        if (lstat(file, &st) < 0 || !S_ISREG(st.st_mode))
            continue;
        if ((st.st_mode & 07777) == 0600 || chmod(file, 0600) == 0)
            continue;
        int err = errno;
        return problem_set(p, EX_CANTCREAT, err,
                           "%s has mode %04o and cannot get 0600: %s; run as "
                           "its owner, %s",
                           file, (unsigned)st.st_mode & 07777, strerror(err),
                           folder_user(st.st_uid, user));
    }
    return 0;
}
