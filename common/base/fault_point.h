/* fault_point.h - named steps at which a test may kill the process
 *
 * WHAT   FAULT_POINT("slot_arm_before_word") is nothing, unless the program is
 *        compiled with -DMQW_FAULT_POINTS (make torture). Then
 *        MQW_KILL_AT=NAME[:N] makes the process kill itself with SIGKILL as it
 *        passes that point for the Nth time (1), and MQW_KILL_LIST=1 makes it
 *        print "NAME PASSES" for each point to stderr at its exit.
 *        FAULT_POINTS("store_put", call) makes the call between the points
 *        store_put_before and store_put_after, and has its value.
 * WHO    Any thread. A name is used once, describes the step before or after
 *        it, and is listed in tests/crash/README.md.
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

/* The linker collects the addresses of all points of a program in one section.
 */
#define FAULT_POINT(what)                                                   \
    do {                                                                    \
        static struct fault_point fault_point_ = {.name = (what)};          \
        static struct fault_point *const fault_point_at_                    \
            __attribute__((used, section("fault_points"))) = &fault_point_; \
        fault_point_pass(fault_point_at_);                                  \
    } while (0)
#define FAULT_POINTS(what, call)            \
    __extension__({                         \
        FAULT_POINT(what "_before");        \
        __auto_type fault_result_ = (call); \
        FAULT_POINT(what "_after");         \
        fault_result_;                      \
    })

#else

#define FAULT_POINT(what)        ((void)0)
#define FAULT_POINTS(what, call) (call)

#endif
#endif
