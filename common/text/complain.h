/* complain.h - one line on stderr, and the exit status to go on with
 *
 * WHAT   "program: text", with what a terminal could be tricked by escaped. On
 *        a terminal that is too narrow for it: several lines, of whole words.
 * WHO    Programs with one thread; main says the program's name first.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef COMMON_TEXT_COMPLAIN_H
#define COMMON_TEXT_COMPLAIN_H

#include "common/base/problem.h"

/* The name in front of each line from here on; it is not copied. */
void complain_as(const char *program);
/* Returns `status`, as all below. */
int complain(int status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int complain_of(const struct problem *p);
/* Out of memory, with the limit that says so. */
int complain_memory(void);
/* The end of a program: `status`, or EX_IOERR and why if stdout, which may be a
 * file on a full disk, did not take everything. */
int complain_output(int status);
/* Where stdin is a terminal: `what` is read from it, and what ends that.
 * Somebody who forgot an argument learns why nothing happens. */
void complain_reads(const char *what);

#endif
