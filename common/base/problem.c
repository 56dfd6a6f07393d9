/* problem.c - describe errors, limits and locks in words (see problem.h) */
#include "common/base/problem.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/libc.h"
#include "common/base/safe_text.h"

void problem_fill(struct problem *p, int status, const char *fmt, ...)
{
    char text[sizeof p->text], *at; /* an argument may be p->text itself */
    unsigned char lead;
    va_list args;
    int size, want;

    if (!p)
        return;
    va_start(args, fmt);
    size = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (size < 0)
        text[0] = '\0';
    else if ((size_t)size >= sizeof text) {
        /* Remove the UTF-8 character that the cut has split, if any. */
        at = text + sizeof text - 1;
        while (at > text && ((unsigned char)at[-1] & 0xC0) == 0x80)
            at--;
        lead = at > text ? (unsigned char)at[-1] : 0;
        want = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
        if (text + sizeof text - at < want)
            at[-1] = '\0';
    }
    /* Values in the text come from users: a newline or an escape sequence in
     * one must not make a second line. */
    for (at = text; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
    p->status = status;
    memcpy(p->text, text, sizeof text);
}

void problem_memory(struct problem *p)
{
    (void)problem_set(p, EX_OSERR, ENOMEM, "out of memory");
}

bool problem_descriptors_gone(void)
{
    int fd = open("/", O_PATH | O_CLOEXEC);

    if (fd < 0)
        return errno == EMFILE;
    close(fd);
    return false;
}

/* Name the memory limits of this process, because they are the likely cause: a
 * machine without memory kills processes instead of refusing memory. */
static void memory_advice(struct problem *p)
{
    static const struct {
        __rlimit_resource_t which;
        const char *name, *flag, *of;
    } limits[] = {{RLIMIT_AS, "AS", "-v", "address space"},
                  {RLIMIT_DATA, "DATA", "-d", "data"}};

    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct rlimit limit;

        if (getrlimit(limits[i].which, &limit) < 0 ||
            limit.rlim_cur == RLIM_INFINITY)
            continue;
        text_append(p->text, sizeof p->text,
                    "; RLIMIT_%s allows %llu KiB of %s: raise it, `ulimit %s "
                    "unlimited`, systemd `Limit%s=infinity`",
                    limits[i].name, (unsigned long long)limit.rlim_cur >> 10,
                    limits[i].of, limits[i].flag, limits[i].name);
    }
}

/* Text after that of the error is replaced, unless it already says how to raise
 * a limit. */
void problem_limit(struct problem *p, int err)
{
    struct rlimit limit = {.rlim_cur = 0};
    unsigned long long want;
    char *said;

    if (!p || (err != EMFILE && err != ENFILE && err != ENOMEM) ||
        strstr(p->text, "ulimit") || strstr(p->text, "sysctl"))
        return;
    said = strstr(p->text, errno_text(err));
    if (said)
        said[strlen(errno_text(err))] = '\0';
    p->status = EX_OSERR;
    if (err == ENOMEM) {
        memory_advice(p);
    } else if (err == ENFILE) {
        text_append(p->text, sizeof p->text,
                    "; this is the limit of the machine; raise it as root: "
                    "`sysctl fs.file-max=N`");
    } else {
        getrlimit(RLIMIT_NOFILE, &limit);
        want = limit.rlim_cur < 512 ? 1024 : limit.rlim_cur * 2;
        text_append(p->text, sizeof p->text,
                    "; raise the limit: `ulimit -n %llu`, systemd "
                    "`LimitNOFILE=%llu`",
                    want, want);
    }
}

/* ---- what an errno says ---- */

const char *errno_text(int err)
{
    static _Thread_local char unknown[32];
    const char *known = strerrordesc_np(err);

    if (err == EUCLEAN) /* reported by our files, and by file systems */
        return "the file is damaged";
    if (err == EBUSY)
        return "in use, or locked by another program";
    if (known)
        return known;
    snprintf(unknown, sizeof unknown, "Unknown error %d", err);
    return unknown;
}

const char *errno_limit_text(int err, char buf[ERRNO_LIMIT_TEXT])
{
    bool files = err == EMFILE;
    struct rlimit limit = {.rlim_cur = 0};
    char value[24] = "unlimited";

    if (err == ENFILE)
        return "too many open files on this machine: raise fs.file-max";
    if (err != EMFILE && err != EAGAIN)
        return errno_text(err);
    getrlimit(files ? RLIMIT_NOFILE : RLIMIT_NPROC, &limit);
    if (limit.rlim_cur != RLIM_INFINITY)
        snprintf(value, sizeof value, "%llu",
                 (unsigned long long)limit.rlim_cur);
    snprintf(buf, ERRNO_LIMIT_TEXT,
             files ? "too many open files: raise RLIMIT_NOFILE (%s): ulimit "
                     "-n, LimitNOFILE="
                   : "too many processes: raise RLIMIT_NPROC (%s), pids.max "
                     "(TasksMax=) or kernel.threads-max",
             value);
    return buf;
}

/* ---- advice for errors on files of the state directory ---- */

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

/* A line is "1: POSIX ADVISORY WRITE 47 fd:00:1234 120 120". A line with "->"
 * before the kind describes a process that is waiting for a lock. */
pid_t lock_find(const struct stat *file, const struct lock_look *look)
{
    enum { KIND = 1, MODE = 3, PID, NODE, FIRST, LAST, WORDS };
    FILE *locks = fopen("/proc/locks", "re");
    char line[256], node[64], *word[WORDS];
    pid_t found = 0;

    snprintf(node, sizeof node, "%02x:%02x:%ju", major(file->st_dev),
             minor(file->st_dev), (uintmax_t)file->st_ino);
    while (locks && !found && fgets(line, sizeof line, locks)) {
        char *rest = line;
        size_t n = 0;

        while (n < WORDS && (word[n] = strsep(&rest, " \n")) != NULL)
            n += word[n][0] != '\0';
        if (n < WORDS || strcmp(word[KIND], look->kind) != 0 ||
            (look->mode && strcmp(word[MODE], look->mode) != 0) ||
            strcmp(word[NODE], node) != 0 ||
            look->at < strtoull(word[FIRST], NULL, 10) ||
            (strcmp(word[LAST], "EOF") != 0 &&
             look->at > strtoull(word[LAST], NULL, 10)))
            continue;
        found = (pid_t)strtol(word[PID], NULL, 10);
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
