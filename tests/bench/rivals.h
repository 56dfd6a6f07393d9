/* rivals.h - what the worker is compared with
 *
 * WHAT   What people write who call mq_receive themselves, and the least that
 *        a process for each message or a long-lived child can cost.
 * WHO    A measuring process.
 * OWNS   Nothing that outlives that.
 * FAILS  fail().
 */
#ifndef TESTS_BENCH_RIVALS_H
#define TESTS_BENCH_RIVALS_H

#include "tests/bench/bench.h"

/* Start a thread that sleeps until the process ends, as any worker has one. */
void second_thread(void);

/* All of these measure messages a second, by the same tally as ours. */

/* Call mq_receive without blocking, and poll(2) when the queue is empty. */
measure bare_rate;
/* The same under the conditions of any worker: the process has a second thread
 * (asleep), the priority is asked for, bodies go to slots in a mapped file. No
 * consumer with these can be faster. */
measure floor_rate;
/* The same, and a record in the file that keeps a kill at any instruction from
 * losing a message: it is marked before mq_receive and cleared at the end. The
 * second also looks at the clock for each message, as a worker must to know how
 * long a handler took. */
measure custody_rate, custody_clock_rate;
/* As bare_rate, and a pwrite of each body to the end of a file: what people do
 * who fear a crash. (A kill between the two still loses the message.) */
measure journal_rate;
/* A blocking mq_receive. */
measure blocking_rate;
/* `threads` threads that each block in mq_receive, and do the task's work. */
measure pool_rate;
/* The same, but by a mutex one thread receives at a time, so that the order of
 * messages is known, without which nobody can keep that of a group. */
measure turns_rate;
/* `threads` threads that do the work and nothing else: no queue, no sender. */
measure ideal_rate;
/* `threads` threads, each posix_spawn and waitpid of PROGRAM. */
#define SPAWNED "/bin/true"
measure spawn_rate;
/* What a worker cannot do without, by hand: `threads` threads take messages
 * from the queue, and for each start PROGRAM with the body as its stdin, its
 * stderr in a pipe, its own process group and signals at their defaults; they
 * wait where its stderr and its end both wake them. Ends the process after
 * `n`. */
_Noreturn void spawn_floor(unsigned threads, unsigned long n);
/* A child at the other end of a socket pair sends each message back. With
 * HOW_SENDER the messages come from the queue. */
measure trip_rate;

#endif
