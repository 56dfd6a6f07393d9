/* scene.h - what is tried under many orders of its threads
 *
 * WHAT   Messages, and how flow is to handle them: scene_run does it once, in
 *        the order of a plan.
 * WHO    The main thread; one scene at a time.
 * OWNS   Nothing between two runs.
 * FAILS  By turn_fault.
 */
#ifndef TESTS_SCHEDULES_SCENE_H
#define TESTS_SCHEDULES_SCENE_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/schedules/turn.h"

/* The i-th from now on; its name, NULL: there are no more. */
const char *scene_choose(unsigned i);
/* Once, as planned; the points that there were. */
uint64_t scene_run(const struct turn_plan *plan);
/* Runs since scene_choose in which handlers ran beside each other. */
uint64_t scene_together(void);

#endif
