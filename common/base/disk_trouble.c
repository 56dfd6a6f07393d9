/* disk_trouble.c - see disk_trouble.h */
#include "common/base/disk_trouble.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

bool disk_is_full(int err)
{
    return err == -ENOSPC || err == -EDQUOT || err == -EFBIG;
}

const char *disk_advice(int err)
{
    static const struct {
        int err;
        const char *advice;
    } rows[] = {
        {ENOSPC, "free some space on the disk of --state-dir"},
        {EDQUOT, "this user's disk quota is used up; delete some files or "
                 "raise the quota"},
        {EFBIG, "a file has reached the size limit of the process; raise the "
                "limit (prlimit --fsize=unlimited --pid PID, LimitFSIZE=, "
                "ulimit -f)"},
        {EBUSY, "another program has store.db locked; wait for it to finish, "
                "or stop it"},
        {EUCLEAN, DISK_DAMAGED_ADVICE},
        {EROFS, "remount the file system of --state-dir read-write"},
        {EBADFD, "do what event=file_gone says"},
        {ENOMEM, "free some memory"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].err == -err)
            return rows[i].advice;
    return "check the disk (dmesg, smartctl)";
}

/* Read a line of /proc/locks, "1: POSIX ADVISORY WRITE 47 fd:00:1234 120 120".
 * Returns the process if its lock matches `look`, else 0. A line with "->"
 * before the kind describes a process that is waiting for a lock. */
static pid_t line_read(char *line, const char *node,
                       const struct lock_look *look)
{
    enum { KIND = 1, MODE = 3, PID, NODE, FIRST, LAST, WORDS };
    char *word[WORDS], *rest = line;
    uint64_t last;
    size_t n = 0;

    while (n < WORDS && (word[n] = strsep(&rest, " \n")) != NULL)
        n += word[n][0] != '\0';
    if (n < WORDS || strcmp(word[KIND], look->kind) != 0 ||
        (look->mode && strcmp(word[MODE], look->mode) != 0) ||
        strcmp(word[NODE], node) != 0)
        return 0;
    last = strcmp(word[LAST], "EOF") == 0 ? UINT64_MAX
                                          : strtoull(word[LAST], NULL, 10);
    return look->at >= strtoull(word[FIRST], NULL, 10) && look->at <= last
               ? (pid_t)strtol(word[PID], NULL, 10)
               : 0;
}

pid_t lock_find(const struct stat *file, const struct lock_look *look)
{
    FILE *locks = fopen("/proc/locks", "re");
    char line[256], node[64];
    pid_t found = 0;

    snprintf(node, sizeof node, "%02x:%02x:%ju", major(file->st_dev),
             minor(file->st_dev), (uintmax_t)file->st_ino);
    while (locks && !found && fgets(line, sizeof line, locks)) {
        found = line_read(line, node, look);
        found = found == look->but ? 0 : found;
    }
    if (locks)
        fclose(locks);
    return found;
}

/* Return the process, other than `but`, that holds an exclusive lock on byte
 * `at` of a file; 0 if none is visible. */
static pid_t writer_find(const char *path, uint64_t at, pid_t but)
{
    const struct lock_look look = {
        .kind = "POSIX", .mode = "WRITE", .at = at, .but = but};
    struct stat file;

    return stat(path, &file) == 0 ? lock_find(&file, &look) : 0;
}

/* A writer in WAL mode locks byte 120 of the -shm file (walformat.html of
 * SQLite). A writer in another mode, or with an exclusive lock, locks the
 * shared bytes of the database file. */
const char *lock_holder(const char *path, pid_t but, char out[LOCK_HOLDER])
{
    enum { WAL_WRITE = 120 };
    const uint64_t shared = 0x40000002;
    char shm[PATH_MAX + 8], comm[32] = "";
    FILE *f;
    pid_t pid;

    snprintf(shm, sizeof shm, "%s-shm", path);
    pid = writer_find(shm, WAL_WRITE, but);
    if (!pid)
        pid = writer_find(path, shared, but);
    if (!pid)
        return NULL;
    snprintf(shm, sizeof shm, "/proc/%d/comm", (int)pid);
    f = fopen(shm, "re");
    if (f && fgets(comm, sizeof comm, f))
        comm[strcspn(comm, "\n")] = '\0';
    if (f)
        fclose(f);
    snprintf(out, LOCK_HOLDER, "%s%s(pid %d)", comm, comm[0] ? " " : "",
             (int)pid);
    return out;
}
