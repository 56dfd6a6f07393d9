/* place.h - queues and files of the benchmark
 *
 * WHAT   Names, a scratch directory, and a fresh queue and state directory for
 *        each measurement.
 * WHO    The process that was started, alone.
 * OWNS   The queue's name and the directory.
 * FAILS  With a problem. Where queues of 90 messages are not allowed, it enters
 *        an IPC namespace of its own that allows them, if it may.
 */
#ifndef TESTS_BENCH_PLACE_H
#define TESTS_BENCH_PLACE_H

#include "common/base/problem.h"
#include "tests/bench/bench.h"

#define DEEP 90 /* depth of the deepest queue */

/* Call this before the process has threads or children. `pin`: where handlers
 * do nothing, a sender gets the first processor, the consumer the others. */
int place_open(bool pin, struct problem *p);
/* Remove what the last task left, and make what this one needs. */
int place_ready(const struct task *task, struct problem *p);
/* Remove the queue and all files. */
void place_close(void);
/* Use the queue of the program that started this one; clean up nothing. */
void place_join(const char *queue);

#endif
