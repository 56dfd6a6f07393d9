/* turn.h - run real threads one at a time, in an order that a seed determines
 *
 * WHAT   A thread may lose its turn at each atomic operation (the compiler
 *        calls atomics.c) and at each call that locks, waits or wakes (wrapped
 *        by the linker). So the seed alone determines a run, which can be
 *        repeated.
 * WHO    turn_begin, turn_end: the main thread, around each run. The rest: the
 *        thread that has the turn.
 * OWNS   The order; the threads end by themselves.
 * FAILS  By `turn_fault`, which prints what is wrong and the seed, and ends the
 *        program with status 1.
 */
#ifndef TESTS_SCHEDULES_TURN_H
#define TESTS_SCHEDULES_TURN_H

#include <stdbool.h>
#include <stdint.h>

enum { TURN_THREADS = 64, TURN_SWITCHES = 8 };

/* The schedule of a run. */
struct turn_plan {
    uint64_t seed; /* for every choice; 0: always the first thread that can
                    * run */
    unsigned rate; /* a switch at one point of so many; 0: only those listed */
    unsigned count;
    struct {
        uint64_t step;   /* number of the point */
        unsigned which;  /* index among the other threads that can run, modulo
                          * their number */
    } at[TURN_SWITCHES]; /* in ascending order of step */
};

/* Start a run. `idle` is called by the thread that has the turn when no thread
 * can run: it lets time pass or reports a fault. */
void turn_begin(const struct turn_plan *plan, void (*idle)(void));
/* Wait for all other threads and return how many points the run passed. */
uint64_t turn_end(void);
/* Mark a point at which another thread may get the turn. */
void turn_point(void);
/* Wait until `able` returns true. Time passes only when no thread can run. */
void turn_until(bool (*able)(void *arg), void *arg);
/* Bind all threads to one processor, because they take turns anyway. */
void turn_one_processor(void);
/* Name this run, for turn_fault. */
void turn_name(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void turn_fault(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

#endif
