/* disk_trouble.h - what helps when a file of the state directory fails us
 *
 * WHAT   One table from errno to advice, for the log and the tools; and which
 *        other program has a file locked.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never.
 *
 * The store (common/store/) reports -ENOSPC, -EDQUOT or -EFBIG if there is no
 * room, -EBUSY if another program has it locked, and -EUCLEAN if it is damaged.
 */
#ifndef COMMON_BASE_DISK_TROUBLE_H
#define COMMON_BASE_DISK_TROUBLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Return true for an error, 0 or below, that more room on the disk ends. */
bool disk_is_full(int err);
/* Return what to do about an error, 0 or below, as a clause without a capital:
 * "free some space on the disk of --state-dir". */
const char *disk_advice(int err);
/* How to get on with a damaged store; the runbook has it at length. */
#define DISK_DAMAGED_ADVICE                                                \
    "stop the worker, copy the folder, then put back a backup "            \
    "(docs/backup.md), save what can be read with sqlite3's .recover, or " \
    "start with another --state-dir (\"A damaged store\" in docs/runbook.md)"

struct stat;
struct lock_look {
    const char *kind; /* "FLOCK" or "POSIX", as in /proc/locks */
    const char *mode; /* "WRITE": no shared lock; NULL: any lock */
    uint64_t at;      /* a byte that is locked */
    pid_t but;        /* another process than this; 0: any */
};
/* Return a process that has such a lock on a file, 0 if none is seen. */
pid_t lock_find(const struct stat *file, const struct lock_look *look);

#define LOCK_HOLDER 64
/* Return "sqlite3 (pid 4711)" for another process than `but` that keeps all
 * others from writing to the SQLite database `path`; NULL: none is seen from
 * here. Opens no file of it, as closing one drops the locks of this process. */
const char *lock_holder(const char *path, pid_t but, char out[LOCK_HOLDER]);

#endif
