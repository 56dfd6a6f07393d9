/* internal.h - what the files of the harness share
 *
 * WHAT   Failing at the caller's place, strings that live until harness_fini,
 *        and the ends of the fixture's parts.
 * WHO    The files of tests/harness; includes harness.h without its macros.
 * OWNS   See harness.h.
 * FAILS  harness_fail does not return.
 */
#ifndef TESTS_HARNESS_INTERNAL_H
#define TESTS_HARNESS_INTERNAL_H

#define HARNESS_INTERNAL
#include "tests/harness/harness.h"

/* End the test with "file:line: message". */
_Noreturn void harness_fail(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
/* Free `memory` at harness_fini; NULL fails. */
void *harness_keep(void *memory);

/* Kill and reap all processes of harness_start. */
void processes_end(void);
/* Describe running and failed processes with the end of their stderr, the
 * newest first, and other processes that have this test's environment. */
void processes_said(char *out, size_t room);
/* Return true if harness_start started the process. */
bool processes_know(pid_t pid);
/* Read the start of a file of /proc. Return false if it cannot be read. */
bool said_text(const char *path, char *out, size_t room);
/* Print where each thread of a process waits in the kernel; return the size. */
size_t said_threads(pid_t pid, char *out, size_t room);
/* Print the processes with this test's environment that harness_start did not
 * start. */
void said_others(char *out, size_t room);
/* Return true if process `pid` was started with this entry in its
 * environment. */
bool environment_has(const char *pid, const char *wanted);
/* Return the first sanitizer's report that a program left, or NULL. */
const char *processes_report(void);

/* The janitor process, which cleans up when the test ends or asks for it. */
struct janitor {
    unsigned *queues; /* shared with it: number of names handed out */
    pid_t pid;
    int fd; /* close it to clean up */
};
/* Start the janitor; return 0 or -errno. It removes `dir` and `runtime` at the
 * end; the strings must stay valid. */
int janitor_start(struct janitor *j, const char *dir, const char *runtime);
/* Call this in a child that outlives the test: the janitor does not wait for
 * it. */
void janitor_leave(void);
/* Make the janitor clean up, and wait until it has. */
void janitor_finish(struct janitor *j);
/* Print the name of queue `number` of the test in `dir`. */
void janitor_queue_name(const char *dir, unsigned number, char *out,
                        size_t room);

#endif
