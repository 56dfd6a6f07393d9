/* sweep.h - how much of a long sweep a run takes
 *
 * A sweep tries the same thing at many positions, such as each system call of a
 * start or each bit of a file. With $MQW_TEST_WHOLE set, as CI sets it, a run
 * takes all positions. Without it, a run takes one position in SWEEP_DAYS, and
 * each day begins one position later: a week of runs takes them all.
 *
 * Tests call these functions on their main thread. Each sweep prints how much
 * of it was taken; scripts/run-tests adds that up.
 */
#ifndef TESTS_HARNESS_SWEEP_H
#define TESTS_HARNESS_SWEEP_H

#include <stdbool.h>

enum { SWEEP_DAYS = 7 };

/* Return the distance between positions to take: 1 or SWEEP_DAYS. */
unsigned sweep_step(void);
/* Return the first position to take, from 0; less than sweep_step(). */
unsigned sweep_first(void);

/* Count one more position and return true if this run takes it. */
bool sweep_takes(void);
/* Print how many of the positions since the last sweep_end were taken. If none
 * was, fail the test. */
void sweep_end(const char *name);

/* Return how many of `whole` random tries this run makes, at least one, and
 * print it. */
unsigned sweep_share(const char *name, unsigned whole);

#endif
