/* criterion.h - the assertions of the fixtures of flow, without Criterion
 *
 * A fixture includes <criterion/criterion.h>. A program that schedules its own
 * threads cannot run under that framework.
 */
#ifndef TESTS_SCHEDULES_CRITERION_H
#define TESTS_SCHEDULES_CRITERION_H

#include <string.h>

#include "tests/schedules/turn.h"

#define SCHEDULES_MUST(is, ...) \
    ((is) ? (void)0 : turn_fault("%s:%d: not so: %s", __FILE__, __LINE__, #is))
#define SCHEDULES_BOTH(a, op, b, ...) SCHEDULES_MUST((a)op(b), "")
/* The messages of assertions are left out. */
#define cr_assert(...)        SCHEDULES_MUST(__VA_ARGS__, "")
#define cr_assert_eq(a, ...)  SCHEDULES_BOTH(a, ==, __VA_ARGS__, "")
#define cr_assert_gt(a, ...)  SCHEDULES_BOTH(a, >, __VA_ARGS__, "")
#define cr_assert_lt(a, ...)  SCHEDULES_BOTH(a, <, __VA_ARGS__, "")
#define cr_assert_geq(a, ...) SCHEDULES_BOTH(a, >=, __VA_ARGS__, "")
#define cr_assert_leq(a, ...) SCHEDULES_BOTH(a, <=, __VA_ARGS__, "")

#endif
