/* scene.h - scenes to run under many thread schedules
 *
 * WHAT   A scene has messages and says how flow is to handle them. scene_run
 *        runs the chosen scene once, with the schedule of a plan.
 * WHO    The main thread; one scene at a time.
 * OWNS   Nothing between two runs.
 * FAILS  By turn_fault.
 */
#ifndef TESTS_SCHEDULES_SCENE_H
#define TESTS_SCHEDULES_SCENE_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/schedules/turn.h"

/* Choose the i-th scene and return its name; NULL: there are no more. */
const char *scene_choose(unsigned i);
/* Run the scene once and return how many switching points it passed. */
uint64_t scene_run(const struct turn_plan *plan);
/* Return in how many runs since scene_choose two handlers ran at a time. */
uint64_t scene_together(void);

#endif
