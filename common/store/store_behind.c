/* store_behind.c - whether the store has lost commits (see store.h)
 *
 * SQLite takes over what a -wal holds up to the first frame that does not match
 * its checksum, and drops the rest without a word. So each commit of a worker
 * has a number (commit.c), and the number of the last one that was durable is
 * kept where a damaged disk, or a store that was replaced, cannot change it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/file/file.h"
#include "common/store/sql.h"

/* store_commits - the number is a row of a table that each insert writes */
uint64_t store_commits(struct store *s)
{
    int64_t n = 0;
    int err = store_number(s, &n, SQL_COMMITS, NULL);

    return err && err != -ENOENT ? UINT64_MAX : (uint64_t)n;
}

/* file_copy - through SQLite's own descriptor: closing one of ours would drop
 * the locks that this process has on the file (fcntl(2)) */
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

/* store_set_aside - sqlite3(1) opens the copy with its -wal */
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
