/* program.h - our side: the program mqworker
 *
 * WHAT   Starts it, on the queue of this measurement or one of a broker, and
 *        ends it.
 * WHO    A measuring process.
 * OWNS   The process is bound to ours.
 * FAILS  fail().
 */
#ifndef TESTS_BENCH_PROGRAM_H
#define TESTS_BENCH_PROGRAM_H

#include "tests/bench/bench.h"

/* mqworker -q --state-dir ... QUEUE and what follows, NULL at the end. Its
 * warnings come on stderr. */
int program_start_on(const char *queue, const char *const *arguments);
/* On the queue of this measurement. */
int program_start(const char *const *arguments);
/* SIGTERM, and its end. */
void program_stop(int pid);
/* Send, waiting for room; not for ever. */
void program_send(int mq, unsigned long n, size_t size);

#endif
