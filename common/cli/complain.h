/* complain.h - report errors, catch signals, limit a rate
 *
 * WHAT   Prints "program: text" to stderr, with escapes for bytes that could
 *        trick a terminal, broken into lines that fit the terminal. Lets a
 *        program finish its report before it dies of a signal, and paces it.
 * WHO    The programs mqsend, mqdlq and mqctl, in their only thread; main of
 *        mqworker, before it starts threads. main sets the program's name.
 * OWNS   The handlers of SIGINT, SIGTERM, SIGHUP and SIGALRM, once signals are
 *        caught.
 * FAILS  rate_limit_wait: -EINTR.
 */
#ifndef COMMON_CLI_COMPLAIN_H
#define COMMON_CLI_COMPLAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/problem.h"

/* Put this name, which is not copied, in front of each line from here on. A
 * program that mqctl runs is called "mqctl", and keeps that name. */
void complain_as(const char *program);
/* Print an error. Returns `status`, as the next functions do. */
int complain(int status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int complain_of(const struct problem *p);
/* Print that memory is used up, and the limit, if there is one. */
int complain_memory(void);
/* Finish a program: return `status`, or EX_IOERR after an error if stdout,
 * which may be a file on a full disk, did not take everything. */
int complain_output(int status);
/* Cut the newlines at the end of what one of our programs has printed. Returns
 * its last line, without the name of mqctl or mqdlq in front: usually the
 * error, after notes about progress. */
const char *complaint_of(char *text);
/* If stdin is a terminal, print that `what` is read from it and how to end the
 * input, for a user who forgot an argument. */
void complain_reads(const char *what);

/* ---- interrupted ----
 *
 * SIGINT, SIGTERM and SIGHUP end blocking calls with EINTR and are remembered,
 * so that a program can say how far it got before it dies of the signal. A
 * second signal kills the program.
 */

/* Catch signals. An ignored one (nohup) stays ignored. */
void cli_interrupt_catch(void);
/* Return the signal that was caught, or 0. */
int cli_interrupt_seen(void);
/* Return true after such a signal. Passed as a callback to long waits. */
bool cli_interrupted(void *arg);
/* Die of the caught signal, so that a shell sees it; return if there was
 * none. */
void cli_interrupt_die(void);

/* ---- a rate, without drift ----
 *
 * The k-th step is due at start + k / rate on the monotonic clock. After a
 * stall, at most the steps of one second are made up for at full speed.
 * Embedded in the caller.
 */

struct rate_limit {
    uint64_t rate; /* steps per second; 0: no limit */
    uint64_t start_ns, steps;
};

void rate_limit_start(struct rate_limit *p, uint64_t rate, uint64_t now_ns);
/* Return the time at which the next step is due, and count the step. */
uint64_t rate_limit_next(struct rate_limit *p, uint64_t now_ns);
/* Sleep until the next step is due. Returns 0, or -EINTR without counting
 * it. */
int rate_limit_wait(struct rate_limit *p);

#endif
