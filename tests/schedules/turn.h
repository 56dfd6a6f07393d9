/* turn.h - threads of which one runs at a time, in an order that a seed gives
 *
 * WHAT   Real threads that hand a turn on to each other. A thread may lose its
 *        turn at each atomic operation (atomics.c has the compiler call us),
 *        and at each call that locks, waits or wakes (wrapped when it is
 *        linked). So a run is decided by the seed alone, and can be run again.
 * WHO    turn_begin, turn_end: the main thread, around each run. The rest: the
 *        thread that has the turn.
 * OWNS   The order; the threads end by themselves.
 * FAILS  By `turn_fault`: it prints what is wrong and the seed, and ends the
 *        program with 1.
 */
#ifndef TESTS_SCHEDULES_TURN_H
#define TESTS_SCHEDULES_TURN_H

#include <stdbool.h>
#include <stdint.h>

enum { TURN_THREADS = 64, TURN_SWITCHES = 8 };

/* How one run goes. */
struct turn_plan {
    uint64_t seed; /* of every choice; 0: the first thread that can run */
    unsigned rate; /* a switch at one point of so many; 0: only those listed */
    unsigned count;
    struct {
        uint64_t step;   /* at this point */
        unsigned which;  /* of the other threads that can run; any number */
    } at[TURN_SWITCHES]; /* in the order of steps */
};

/* `idle` is called when no thread can run but those that poll, by one that has
 * the turn: time may pass, or it is a fault. */
void turn_begin(const struct turn_plan *plan, void (*idle)(void));
/* All other threads have ended or are on their way; the points that there were
 */
uint64_t turn_end(void);
/* Somebody else may run from here on. */
void turn_point(void);
/* Until `able` says so; time passes only when nobody else can run. */
void turn_until(bool (*able)(void *arg), void *arg);
/* All threads on one processor: they take turns anyway. */
void turn_one_processor(void);
/* What this run is called, for turn_fault. */
void turn_name(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void turn_fault(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

#endif
