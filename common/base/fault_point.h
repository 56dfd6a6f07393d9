/* fault_point.h - named steps at which a test may have the process killed
 *
 * WHAT   FAULT_POINT("slot_arm_before_word") is nothing, unless the program is
 *        compiled with -DMQW_FAULT_POINTS (make torture). Then
 *        MQW_KILL_AT=NAME[:N] has the process kill itself with SIGKILL as it
 *        passes that point for the Nth time (1), and MQW_KILL_LIST=1 has it
 *        print "NAME PASSES" for each point there is to stderr at its exit.
 * WHO    Any thread. A name is used once; it says what was done last or is done
 *        next, and is found in docs/reliability.md.
 * OWNS   Nothing.
 * FAILS  An unknown name in MQW_KILL_AT ends the program with status 64.
 */
#ifndef COMMON_BASE_FAULT_POINT_H
#define COMMON_BASE_FAULT_POINT_H

#ifdef MQW_FAULT_POINTS

#include <stdatomic.h>

/* c = constant after start   a = atomic */
struct fault_point {
    const char *name;        /* c */
    unsigned kill_at;        /* c  at which pass; 0: never */
    _Atomic unsigned passes; /* a */
};
void fault_point_pass(struct fault_point *point);

/* All points of a program are found by the linker: their addresses are in one
 * section. */
#define FAULT_POINT(what)                                                   \
    do {                                                                    \
        static struct fault_point fault_point_ = {.name = (what)};          \
        static struct fault_point *const fault_point_at_                    \
            __attribute__((used, section("fault_points"))) = &fault_point_; \
        fault_point_pass(fault_point_at_);                                  \
    } while (0)

#else

#define FAULT_POINT(what) ((void)0)

#endif
#endif
