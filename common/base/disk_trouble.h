/* disk_trouble.h - advice for errors on files of the state directory
 *
 * WHAT   One table from errno to advice, for the log and the tools, and a
 *        search for the program that has a file locked.
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

/* Return true if the error, 0 or below, means that the disk, the quota or the
 * file size limit is full. */
bool disk_is_full(int err);
/* Return advice for an error, 0 or below, starting in lower case: "free some
 * space on the disk of --state-dir". */
const char *disk_advice(int err);
/* Advice for a damaged store; the runbook has the details. */
#define DISK_DAMAGED_ADVICE                                                \
    "stop the worker, copy the folder, then put back a backup "            \
    "(docs/backup.md), save what can be read with sqlite3's .recover, or " \
    "start with another --state-dir (\"A damaged store\" in docs/runbook.md)"

struct stat;
struct lock_look {
    const char *kind; /* "FLOCK" or "POSIX", as in /proc/locks */
    const char *mode; /* "WRITE": no shared lock; NULL: any lock */
    uint64_t at;      /* a byte in the locked range */
    pid_t but;        /* exclude this process; 0: none */
};
/* Return a process that holds such a lock on a file; 0 if none is visible. */
pid_t lock_find(const struct stat *file, const struct lock_look *look);

#define LOCK_HOLDER 64
/* Return "sqlite3 (pid 4711)" for a process other than `but` that blocks all
 * writers of the SQLite database `path`; NULL if none is visible. Does not open
 * the database's files, because closing one would drop this process's locks. */
const char *lock_holder(const char *path, pid_t but, char out[LOCK_HOLDER]);

#endif
