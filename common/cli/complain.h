/* complain.h - how a tool complains, is interrupted, and keeps to a rate
 *
 * WHAT   "program: text", with what a terminal could be tricked by escaped. On
 *        a terminal that is too narrow for it: several lines, of whole words.
 * WHO    Programs with one thread; main says the program's name first.
 * OWNS   The handlers of SIGINT, SIGTERM, SIGHUP and SIGALRM, once signals are
 *        caught.
 * FAILS  rate_limit_wait: -EINTR.
 */
#ifndef COMMON_CLI_COMPLAIN_H
#define COMMON_CLI_COMPLAIN_H

#include <stdint.h>

#include "common/base/problem.h"

/* Put this name, which is not copied, in front of each line from here on. A
 * program that mqctl runs is called "mqctl", and keeps that name. */
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

/* ---- interrupted ----
 *
 * SIGINT, SIGTERM and SIGHUP end blocking calls with EINTR and are remembered,
 * so that a program can say how far it got before it dies of the signal. A
 * second signal kills at once.
 */

/* From here on signals are caught. An ignored one (nohup) stays ignored. */
void cli_interrupt_catch(void);
/* The signal that came, or 0. */
int cli_interrupt_seen(void);
/* Die of the signal that came, so that a shell knows; returns if none did. */
void cli_interrupt_die(void);

/* ---- a rate, without drift ----
 *
 * The k-th step is due at start + k / rate on the monotonic clock. After a
 * stall at most one second's worth is caught up with at full speed. Embedded
 * in the caller.
 */

struct rate_limit {
    uint64_t rate; /* a second; 0 = as fast as it goes */
    uint64_t start_ns, steps;
};

void rate_limit_start(struct rate_limit *p, uint64_t rate, uint64_t now_ns);
/* When the next step is due, and count it. */
uint64_t rate_limit_next(struct rate_limit *p, uint64_t now_ns);
/* Sleep until the next step is due: 0, or -EINTR (the step is not counted). */
int rate_limit_wait(struct rate_limit *p);

#endif
