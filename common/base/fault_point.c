/* fault_point.c - see fault_point.h */
#include "common/base/fault_point.h"

#ifdef MQW_FAULT_POINTS

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

extern struct fault_point *const __start_fault_points[];
extern struct fault_point *const __stop_fault_points[];

/* SIGKILL ends all threads; this one does not return from the call. */
void fault_point_pass(struct fault_point *point)
{
    unsigned pass = atomic_fetch_add(&point->passes, 1) + 1;

    if (pass == point->kill_at)
        kill(getpid(), SIGKILL);
}

/* Print all points at the exit of the program. */
static void points_print(void)
{
    for (struct fault_point *const *p = __start_fault_points;
         p < __stop_fault_points; p++)
        fprintf(stderr, "%s %u\n", (*p)->name, atomic_load(&(*p)->passes));
}

/* Read the environment before main starts: MQW_KILL_AT is NAME or NAME:N. */
__attribute__((constructor)) static void points_read(void)
{
    const char *at = getenv("MQW_KILL_AT");
    size_t size = at ? strcspn(at, ":") : 0;
    bool found = false;

    if (getenv("MQW_KILL_LIST"))
        atexit(points_print);
    for (struct fault_point *const *p = __start_fault_points;
         at && p < __stop_fault_points; p++)
        if (strlen((*p)->name) == size && memcmp((*p)->name, at, size) == 0) {
            (*p)->kill_at =
                at[size] ? (unsigned)strtoul(at + size + 1, NULL, 10) : 1;
            found = true;
        }
    if (at && !found) {
        fprintf(stderr,
                "MQW_KILL_AT: no point \"%s\" in this program; "
                "MQW_KILL_LIST=1 lists them\n",
                at);
        _exit(EX_USAGE);
    }
}

#else

/* ISO C requires a declaration in each file. */
typedef int fault_point_none;

#endif
