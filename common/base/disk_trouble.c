/* disk_trouble.c - see disk_trouble.h */
#include "common/base/disk_trouble.h"

#include <errno.h>
#include <inttypes.h>
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
        {EDQUOT, "the disk quota of this user is used up; free some of it, or "
                 "have it raised"},
        {EFBIG, "files may not grow as large as this; raise the limit "
                "(prlimit --fsize=unlimited --pid PID, LimitFSIZE=, "
                "ulimit -f)"},
        {EBUSY, "another program has store.db locked; let it finish, or stop "
                "it"},
        {EUCLEAN, DISK_DAMAGED_ADVICE},
        {EROFS, "mount the file system of --state-dir for writing again"},
        {EBADFD, "do what event=file_gone says"},
        {ENOMEM, "free some memory"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].err == -err)
            return rows[i].advice;
    return "check the disk (dmesg, smartctl)";
}

/* Read a line of /proc/locks, "1: POSIX ADVISORY WRITE 47 fd:00:1234 120 120".
 * Returns the process that has byte `at` of `node` locked for itself alone; 0:
 * another lock. A line with "->" is of a process that waits for one. */
static int line_read(const char *line, const struct stat *node, uint64_t at)
{
    unsigned major, minor;
    uint64_t ino, first, last;
    char end[24];
    int pid;

    if (sscanf(line,
               "%*[^:]: %*s %*s WRITE %d %x:%x:%" SCNu64 " %" SCNu64 " %23s",
               &pid, &major, &minor, &ino, &first, end) != 6 ||
        strstr(line, "->") || ino != node->st_ino ||
        major != major(node->st_dev) || minor != minor(node->st_dev))
        return 0;
    last = strcmp(end, "EOF") == 0 ? UINT64_MAX : strtoull(end, NULL, 10);
    return at >= first && at <= last ? pid : 0;
}

/* Return the process, other than `but`, that has byte `at` of a file locked for
 * itself alone; 0: none is seen. */
static int holder_of(const char *path, uint64_t at, pid_t but)
{
    FILE *locks = fopen("/proc/locks", "re");
    char line[256];
    struct stat node;
    int found = 0;

    if (locks && stat(path, &node) == 0)
        while (!found && fgets(line, sizeof line, locks)) {
            found = line_read(line, &node, at);
            found = found == but ? 0 : found;
        }
    if (locks)
        fclose(locks);
    return found;
}

/* A writer in WAL mode has byte 120 of the -shm (walformat.html of SQLite); one
 * of another mode, or with an exclusive lock, has the shared bytes of the
 * file. */
const char *lock_holder(const char *path, pid_t but, char out[LOCK_HOLDER])
{
    enum { WAL_WRITE = 120 };
    const uint64_t shared = 0x40000002;
    char shm[PATH_MAX + 8], comm[32] = "";
    FILE *f;
    int pid;

    snprintf(shm, sizeof shm, "%s-shm", path);
    pid = holder_of(shm, WAL_WRITE, but);
    if (!pid)
        pid = holder_of(path, shared, but);
    if (!pid)
        return NULL;
    snprintf(shm, sizeof shm, "/proc/%d/comm", pid);
    f = fopen(shm, "re");
    if (f && fgets(comm, sizeof comm, f))
        comm[strcspn(comm, "\n")] = '\0';
    if (f)
        fclose(f);
    snprintf(out, LOCK_HOLDER, "%s%s(pid %d)", comm, comm[0] ? " " : "", pid);
    return out;
}
