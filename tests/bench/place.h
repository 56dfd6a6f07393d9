/* place.h - queues and files of the benchmark
 *
 * WHAT   Names, a scratch directory, and a fresh queue and state directory for
 *        each measurement.
 * WHO    The process that was started, alone.
 * OWNS   The queue's name and the directory.
 * FAILS  A problem. Where queues of 90 are not allowed, it moves to an IPC
 *        namespace of its own in which they are, if it may.
 */
#ifndef TESTS_BENCH_PLACE_H
#define TESTS_BENCH_PLACE_H

#include "common/base/problem.h"
#include "tests/bench/bench.h"

#define DEEP 90 /* the deepest queue that is made */

/* Before the process has threads or children. `pin`: where handlers do nothing,
 * a sender gets the first processor, the consumer the others. */
int place_open(bool pin, struct problem *p);
/* What the task needs; nothing is left of the last one. */
int place_ready(const struct task *task, struct problem *p);
/* The queue and all files are gone. */
void place_close(void);
/* Of a program that another one started: its queue, and nothing to clean up. */
void place_join(const char *queue);

#endif
