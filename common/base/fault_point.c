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

/* fault_point_pass - and no further, if this is the one
 * SIGKILL goes to all threads at once; this one does not return from the
 * call. */
void fault_point_pass(struct fault_point *point)
{
    unsigned pass = atomic_fetch_add(&point->passes, 1) + 1;

    if (pass == point->kill_at)
        kill(getpid(), SIGKILL);
}

/* points_print - at the exit */
static void points_print(void)
{
    for (struct fault_point *const *p = __start_fault_points;
         p < __stop_fault_points; p++)
        fprintf(stderr, "%s %u\n", (*p)->name, atomic_load(&(*p)->passes));
}

/* point_choose - NAME or NAME:N */
static bool point_choose(const char *text)
{
    size_t size = strcspn(text, ":");
    unsigned n = text[size] ? (unsigned)strtoul(text + size + 1, NULL, 10) : 1;
    bool found = false;

    for (struct fault_point *const *p = __start_fault_points;
         p < __stop_fault_points; p++)
        if (strlen((*p)->name) == size && memcmp((*p)->name, text, size) == 0) {
            (*p)->kill_at = n;
            found = true;
        }
    return found;
}

/* points_read - before main */
__attribute__((constructor)) static void points_read(void)
{
    const char *at = getenv("MQW_KILL_AT");

    if (getenv("MQW_KILL_LIST"))
        atexit(points_print);
    if (at && !point_choose(at)) {
        fprintf(stderr,
                "MQW_KILL_AT: no point \"%s\" in this program; "
                "MQW_KILL_LIST=1 lists them\n",
                at);
        _exit(EX_USAGE);
    }
}

#else

/* ISO C wants something here. */
typedef int fault_point_none;

#endif
