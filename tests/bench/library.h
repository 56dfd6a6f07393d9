/* library.h - our side: the library, with a handler that counts
 *
 * WHAT   A worker in this process, from mqw_run to its end.
 * WHO    A measuring process.
 * OWNS   Nothing.
 * FAILS  fail().
 */
#ifndef TESTS_BENCH_LIBRARY_H
#define TESTS_BENCH_LIBRARY_H

#include "tests/bench/bench.h"
#include "worker/mqworker.h"

/* Consume the queue until the handler stops the worker. */
void library_run(const struct task *task, mqw_handler *handler, void *user);

/* Run a handler that does the task: messages a second. Knows HOW_SENDER,
 * HOW_SLEEPS, HOW_LIMIT, HOW_GROUPS (16 of them) and HOW_SETTLED. */
enum measured library_rate(const struct task *task, double value[ROWS_MOST]);

#endif
