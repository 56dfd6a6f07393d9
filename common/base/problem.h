/* problem.h - why something was refused, in one line
 *
 * WHAT   Carries an exit status (sysexits.h) and one line of text that says
 *        what went wrong, with which value, what is allowed, what to do next.
 * WHO    The caller owns the struct, usually on its stack. No locks.
 * OWNS   Nothing; the text is inside.
 * FAILS  Never. Text that does not fit is cut.
 */
#ifndef COMMON_BASE_PROBLEM_H
#define COMMON_BASE_PROBLEM_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

struct problem {
    int status;     /* exit status for a program that stops because of it */
    char text[768]; /* one line, no newline at the end */
};

/* Fill `p`; NULL is allowed. */
void problem_fill(struct problem *p, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Filled because of `err`: if that is a limit on open files or on memory,
 * EX_OSERR, and what to do is to raise it, whatever the text said behind the
 * error's own; else as it is. NULL is allowed. */
void problem_limit(struct problem *p, int err);

/* Out of memory: EX_OSERR, and what problem_limit says of it. */
void problem_memory(struct problem *p);

/* Whether this process cannot open another file; if it can, EMFILE was about
 * another limit. */
bool problem_descriptors_gone(void);

/* -err, and never 0: a refusal cannot look like success. */
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

#endif
