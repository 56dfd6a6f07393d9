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

/* Start mqworker -q --state-dir ... QUEUE ARGUMENTS, which end with NULL. Its
 * warnings go to stderr. Return its pid. */
int program_start_on(const char *queue, const char *const *arguments);
/* Start it on the queue of this measurement. */
int program_start(const char *const *arguments);
/* Send SIGTERM and wait for its end. */
void program_stop(int pid);
/* Send `n` messages; fail if there is no room for a minute. */
void program_send(int mq, unsigned long n, size_t size);

#endif
