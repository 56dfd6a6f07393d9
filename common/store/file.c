/* file.c - telling a store from other files; see file.h */
#include "common/store/file.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/disk_trouble.h"
#include "common/base/errno_text.h"
#include "common/file/folder.h"
#include "common/store/sql.h"

int store_memory_problem(const char *path, struct problem *p)
{
    return problem_set(p, EX_OSERR, ENOMEM,
                       "%s cannot be opened: out of memory", path);
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
                       "%s has store version %lld, but this program reads "
                       "version %d; it was left untouched. Use the mqworker "
                       "version that wrote it, or another --state-dir",
                       path, (long long)version, STORE_VERSION);
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
    int rc;

    sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    if (!file || !file->pMethods)
        return store_file_refuse(db, SQLITE_CANTOPEN, path, p);
    rc = file->pMethods->xRead(file, header, sizeof header, 0);
    if (rc != SQLITE_OK && rc != SQLITE_IOERR_SHORT_READ)
        return store_file_refuse(db, rc, path, p);
    if (rc != SQLITE_OK || memcmp(header, magic, sizeof magic) != 0)
        return magic_problem(path, "not an SQLite file", p);
    if (number_at(header, 68) != STORE_MAGIC)
        return magic_problem(path, "an SQLite file of another program", p);
    if (number_at(header, 60) != STORE_VERSION)
        return version_problem(path, number_at(header, 60), p);
    return 0;
}

int store_file_verify(sqlite3 *db, const char *path, struct problem *p)
{
    int64_t version = 0;
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &st, NULL);

    if (rc == SQLITE_OK) {
        rc = sqlite3_step(st);
        if (rc == SQLITE_ROW)
            version = sqlite3_column_int64(st, 0);
        sqlite3_finalize(st);
    }
    if (rc != SQLITE_ROW)
        return store_file_refuse(db, rc, path, p);
    return version == STORE_VERSION ? 0 : version_problem(path, version, p);
}

/* read_only - whether its file system is mounted so, or is so after an error,
 * which statvfs(3) does not tell of (see file_watch.c) */
static bool read_only(sqlite3 *db, const char *path)
{
    struct statvfs s;

    return sqlite3_system_errno(db) == EROFS ||
           (statvfs(path, &s) == 0 && s.f_flag & ST_RDONLY);
}

int store_file_refuse(sqlite3 *db, int rc, const char *path, struct problem *p)
{
    char user[FOLDER_USER], who[LOCK_HOLDER];
    const char *holder;
    int err = -sql_error(db, rc);

    err = err ? err : EIO;
    if ((rc & 0xff) == SQLITE_CANTOPEN && sqlite3_system_errno(db) == EMFILE)
        return problem_set(p, EX_OSERR, EMFILE, "%s cannot be opened: %s", path,
                           errno_text(EMFILE));
    if (err == ENOMEM)
        return store_memory_problem(path, p);
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
        if (read_only(db, path))
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
