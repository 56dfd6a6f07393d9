/* power_record.c - record what a program does to the files of a folder
 *
 * A library for LD_PRELOAD, not a handler. $POWER_TRACE is the trace
 * (tests/crash/power/power_trace.h), $POWER_ROOT the folder, $POWER_WITNESS a
 * file whose writes are visible outside. Each call is made and recorded under
 * one lock of all processes, so the records are in the order of the effects.
 * A sync of a path that contains $POWER_DROP is recorded as not made: a
 * deliberate fault. Programs started by this one do not inherit any of this.
 *
 * The boot id comes from $POWER_BOOT, because the record stands for another
 * machine than the one that replays it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "common/base/libc.h"
#include "tests/crash/power/power_trace.h"

#define BOOT "/proc/sys/kernel/random/boot_id"

/* mqsend is built without SQLite. */
#pragma weak sqlite3_db_handle
#pragma weak sqlite3_get_autocommit
#pragma weak sqlite3_sql
#pragma weak sqlite3_db_filename
#pragma weak sqlite3_stmt_readonly

static struct power_trace trace;
static char here[PATH_MAX], root[PATH_MAX], witness[PATH_MAX], boot[PATH_MAX],
    drop[64];

#define REAL(name, type, ...) __extension__((type(*)(__VA_ARGS__))next(name))

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static void take(const char *name, char *to, size_t size)
{
    const char *value = getenv(name);

    snprintf(to, size, "%s", value ? value : "");
    unsetenv(name);
}

__attribute__((constructor)) static void record_begin(void)
{
    take("POWER_TRACE", here, sizeof here);
    take("POWER_ROOT", root, sizeof root);
    take("POWER_WITNESS", witness, sizeof witness);
    take("POWER_BOOT", boot, sizeof boot);
    take("POWER_DROP", drop, sizeof drop);
    unsetenv("LD_PRELOAD");
    /* plugins/power.c finds the witness by this variable. */
    setenv("POWER_SEEN", witness, 1);
    power_trace_open(&trace, here, false);
}

/* Close inherited descriptors, as the worker does at its start, except the
 * trace. */
void closefrom(int first)
{
    REAL("closefrom", void, int)(first);
    power_trace_open(&trace, here, false);
}

/* Return true if a path is in the folder. */
static bool ours(const char *path)
{
    size_t n = strlen(root);

    return n && strncmp(path, root, n) == 0 && (!path[n] || path[n] == '/');
}

/* Return the path of an open file; "": it has none. */
static const char *fd_path(int fd, char out[PATH_MAX])
{
    char name[64];
    ssize_t n;

    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    n = readlink(name, out, PATH_MAX - 1);
    out[n > 0 ? n : 0] = '\0';
    return out;
}

static uint64_t fd_file(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

static uint64_t path_file(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 ? st.st_ino : 0;
}

/* Return the inode of the folder of a path, and the last name. */
static uint64_t folder_of(const char *path, const char **name)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');

    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    *name = slash + 1;
    return path_file(folder);
}

static void named(enum power_kind kind, const char *path)
{
    const char *name;
    uint64_t folder = folder_of(path, &name);

    power_trace_add(&trace,
                    (struct power_record){.kind = kind,
                                          .folder = folder,
                                          .file = path_file(path)},
                    name, "", "", 0);
}

static void sized(uint64_t file, uint64_t size)
{
    power_trace_add(
        &trace,
        (struct power_record){.kind = POWER_SIZE, .file = file, .at = size}, "",
        "", "", 0);
}

/* ---- names ---- */

static int opened(const char *call, const char *path, int flags, mode_t mode)
{
    int (*real)(const char *, int, ...) =
        __extension__((int (*)(const char *, int, ...))next(call));
    bool fresh;
    int fd;

    if (boot[0] && strcmp(path, BOOT) == 0)
        path = boot;
    if (!ours(path) || !(flags & (O_CREAT | O_TRUNC)))
        return real(path, flags, mode);
    power_trace_lock(&trace);
    fresh = access(path, F_OK) < 0;
    fd = real(path, flags, mode);
    if (fd >= 0 && fresh)
        named(POWER_CREATE, path);
    else if (fd >= 0 && flags & O_TRUNC)
        sized(fd_file(fd), 0);
    power_trace_unlock(&trace);
    return fd;
}

#define OPEN(name)                               \
    int name(const char *path, int flags, ...);  \
    int name(const char *path, int flags, ...)   \
    {                                            \
        va_list args;                            \
        mode_t mode = 0;                         \
        if (flags & O_CREAT) {                   \
            va_start(args, flags);               \
            mode = va_arg(args, mode_t);         \
            va_end(args);                        \
        }                                        \
        return opened(#name, path, flags, mode); \
    }
#undef open
#undef open64
OPEN(open)
OPEN(open64)

#define MADE_TEMP(name)                                  \
    int name(char *path, int flags);                     \
    int name(char *path, int flags)                      \
    {                                                    \
        int fd;                                          \
        power_trace_lock(&trace);                        \
        fd = REAL(#name, int, char *, int)(path, flags); \
        if (fd >= 0 && ours(path))                       \
            named(POWER_CREATE, path);                   \
        power_trace_unlock(&trace);                      \
        return fd;                                       \
    }
MADE_TEMP(mkostemp)
MADE_TEMP(mkostemp64)

int mkdir(const char *path, mode_t mode)
{
    int rc;

    power_trace_lock(&trace);
    rc = REAL("mkdir", int, const char *, mode_t)(path, mode);
    if (rc == 0 && ours(path))
        named(POWER_MKDIR, path);
    power_trace_unlock(&trace);
    return rc;
}

int link(const char *from, const char *to)
{
    int rc;

    power_trace_lock(&trace);
    rc = REAL("link", int, const char *, const char *)(from, to);
    if (rc == 0 && ours(to))
        named(POWER_LINK, to);
    power_trace_unlock(&trace);
    return rc;
}

int unlink(const char *path)
{
    const char *name;
    int rc, err;

    power_trace_lock(&trace);
    rc = REAL("unlink", int, const char *)(path);
    err = errno;
    if (rc == 0 && ours(path)) {
        uint64_t folder = folder_of(path, &name);

        power_trace_add(
            &trace,
            (struct power_record){.kind = POWER_UNLINK, .folder = folder}, name,
            "", "", 0);
    }
    power_trace_unlock(&trace);
    errno = err;
    return rc;
}

/* Record a rename; `from` and `to` are both in the folder, or neither is. */
static void moved(bool exchange, const char *from, const char *to)
{
    struct power_record r = {.kind = exchange ? POWER_EXCHANGE : POWER_RENAME,
                             .file = path_file(to),
                             .at = path_file(from)};
    const char *name, *name2;

    r.folder = folder_of(to, &name);
    r.other = folder_of(from, &name2);
    power_trace_add(&trace, r, name, name2, "", 0);
}

int rename(const char *from, const char *to)
{
    int rc;

    power_trace_lock(&trace);
    rc = REAL("rename", int, const char *, const char *)(from, to);
    if (rc == 0 && ours(to))
        moved(false, from, to);
    power_trace_unlock(&trace);
    return rc;
}

int renameat2(int a, const char *from, int b, const char *to,
              unsigned int flags)
{
    int rc;

    power_trace_lock(&trace);
    rc = REAL("renameat2", int, int, const char *, int, const char *,
              unsigned)(a, from, b, to, flags);
    if (rc == 0 && ours(to))
        moved(flags & RENAME_EXCHANGE, from, to);
    power_trace_unlock(&trace);
    return rc;
}

/* ---- content ---- */

static bool recorded(int fd)
{
    char path[PATH_MAX];

    return ours(fd_path(fd, path));
}

static void written(int fd, const void *data, ssize_t size, off_t at)
{
    if (size > 0)
        power_trace_add(&trace,
                        (struct power_record){.kind = POWER_WRITE,
                                              .file = fd_file(fd),
                                              .at = (uint64_t)at},
                        "", "", data, (size_t)size);
}

#define PWRITE(name)                                                          \
    ssize_t name(int fd, const void *data, size_t size, off_t at);            \
    ssize_t name(int fd, const void *data, size_t size, off_t at)             \
    {                                                                         \
        bool is = recorded(fd);                                               \
        ssize_t n;                                                            \
        if (is)                                                               \
            power_trace_lock(&trace);                                         \
        n = REAL(#name, ssize_t, int, const void *, size_t, off_t)(fd, data,  \
                                                                   size, at); \
        if (is) {                                                             \
            written(fd, data, n, at);                                         \
            power_trace_unlock(&trace);                                       \
        }                                                                     \
        return n;                                                             \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

ssize_t write(int fd, const void *data, size_t size)
{
    char path[PATH_MAX];
    bool world = strcmp(fd_path(fd, path), witness) == 0 && path[0];
    bool is = ours(path);
    ssize_t n;

    if (is || world)
        power_trace_lock(&trace);
    n = REAL("write", ssize_t, int, const void *, size_t)(fd, data, size);
    if (is && n > 0)
        written(fd, data, n, lseek(fd, 0, SEEK_CUR) - n);
    if (world && n > 0)
        power_trace_add(&trace, (struct power_record){.kind = POWER_WORLD}, "",
                        "", data, (size_t)n);
    if (is || world)
        power_trace_unlock(&trace);
    return n;
}

/* Record a call that may have changed the size of a file. */
static int resized(const char *call, int fd, off_t at, off_t size, bool three)
{
    bool is = recorded(fd);
    struct stat st;
    int rc;

    if (is)
        power_trace_lock(&trace);
    rc = three ? REAL(call, int, int, off_t, off_t)(fd, at, size)
               : REAL(call, int, int, off_t)(fd, size);
    if (is) {
        if (rc == 0 && fstat(fd, &st) == 0)
            sized(st.st_ino, (uint64_t)st.st_size);
        power_trace_unlock(&trace);
    }
    return rc;
}

#define RESIZE2(name)                              \
    int name(int fd, off_t size);                  \
    int name(int fd, off_t size)                   \
    {                                              \
        return resized(#name, fd, 0, size, false); \
    }
#define RESIZE3(name)                              \
    int name(int fd, off_t at, off_t size);        \
    int name(int fd, off_t at, off_t size)         \
    {                                              \
        return resized(#name, fd, at, size, true); \
    }
RESIZE2(ftruncate)
RESIZE2(ftruncate64)
RESIZE3(posix_fallocate)
RESIZE3(posix_fallocate64)

/* ---- syncs ---- */

static int synced(const char *call, int fd)
{
    char path[PATH_MAX];
    bool is = ours(fd_path(fd, path));
    bool out = is && drop[0] && strstr(path + strlen(root), drop);
    int rc;

    if (is)
        power_trace_lock(&trace);
    rc = REAL(call, int, int)(fd);
    if (is) {
        power_trace_add(
            &trace,
            (struct power_record){.kind = out ? POWER_UNSYNC : POWER_SYNC,
                                  .file = fd_file(fd)},
            "", "", "", 0);
        power_trace_unlock(&trace);
    }
    return rc;
}

int fsync(int fd)
{
    return synced("fsync", fd);
}

int fdatasync(int fd)
{
    return synced("fdatasync", fd);
}

/* ---- promises ---- */

/* Record the end of a writing transaction as a promise, because the caller may
 * now report it. */
int sqlite3_step(sqlite3_stmt *st)
{
    int rc = REAL("sqlite3_step", int, sqlite3_stmt *)(st);
    sqlite3 *db = sqlite3_db_handle(st);
    const char *sql, *file;

    if (rc != SQLITE_DONE || !sqlite3_get_autocommit(db))
        return rc;
    sql = sqlite3_sql(st);
    file = sqlite3_db_filename(db, "main");
    if (!file || !ours(file) || !strstr(file, "/store.db") ||
        strlen(strstr(file, "/store.db")) != strlen("/store.db") ||
        (sqlite3_stmt_readonly(st) && (!sql || strncmp(sql, "COMMIT", 6) != 0)))
        return rc;
    power_trace_lock(&trace);
    power_trace_add(&trace, (struct power_record){.kind = POWER_PROMISE}, "",
                    "", "", 0);
    power_trace_unlock(&trace);
    return rc;
}
