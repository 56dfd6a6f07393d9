/* problem.h - an error in one line, with an exit status
 *
 * WHAT   Carries an exit status (sysexits.h) and one line of text that says
 *        what went wrong, with which value, what is allowed, what to do next.
 *        Has the words for an errno, and the advice for errors on files of the
 *        state directory.
 * WHO    All rooms, in any thread. The caller owns the struct, usually on its
 *        stack.
 * FAILS  Never. Text that does not fit is cut.
 */
#ifndef COMMON_BASE_PROBLEM_H
#define COMMON_BASE_PROBLEM_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct problem {
    int status;     /* exit status for a program that stops because of it */
    char text[768]; /* one line, no newline at the end */
};

/* Fill `p`; NULL is allowed. */
void problem_fill(struct problem *p, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Adapt a filled problem to its cause `err`. If `err` is a limit on open files
 * or memory, set the status to EX_OSERR, and replace the text after the error's
 * own text by advice on raising the limit. NULL is allowed. */
void problem_limit(struct problem *p, int err);

/* Fill `p` with EX_OSERR and "out of memory", and name the memory limit of the
 * process, if there is one. */
void problem_memory(struct problem *p);

/* Return true if this process cannot open another file; if false, EMFILE meant
 * another limit. */
bool problem_descriptors_gone(void);

/* Return -err, never 0: a refusal cannot look like success. */
static inline int problem_code(int err)
{
    return err > 0 ? -err : -EIO;
}

/* Fill `p` and return -err, so that a function can end in `return
 * problem_set(p, EX_OSERR, ENOSPC, "...")`. `err` is an errno > 0. */
#define problem_set(p, status, err, ...)                              \
    __extension__({                                                   \
        int problem_err_ = (err); /* before anything changes errno */ \
        problem_fill(p, status, __VA_ARGS__);                         \
        problem_limit(p, problem_err_);                               \
        problem_code(problem_err_);                                   \
    })

/* ---- what an errno says ---- */

/* Return the text for `err` > 0, as strerror(3), but always in English and
 * never NULL. A number that has no text is "Unknown error NUMBER", valid until
 * the thread's next call. */
const char *errno_text(int err);

/* Return the error text for a call that opens files or starts processes or
 * threads. If a limit was reached, the text has its name, its value and how to
 * raise it. */
#define ERRNO_LIMIT_TEXT 128
const char *errno_limit_text(int err, char buf[ERRNO_LIMIT_TEXT]);

/* ---- advice for errors on files of the state directory ----
 *
 * The store (common/store/) reports -ENOSPC, -EDQUOT or -EFBIG if there is no
 * room, -EBUSY if another program has it locked, and -EUCLEAN if it is damaged.
 */

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
