/* errno_text.c - see errno_text.h */
#include "common/base/errno_text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

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
