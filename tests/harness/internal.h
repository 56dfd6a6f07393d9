/* internal.h - what the harness's own files share
 *
 * WHAT   Failing with the caller's place, strings that live until
 *        harness_fini, and the two ends of the fixture.
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

/* Kill and reap all that harness_start started. */
void processes_end(void);
/* What those that run, or failed, said last, the newest first; then what else
 * runs with the environment of this test. */
void processes_said(char *out, size_t room);
/* Whether harness_start started it. */
bool processes_know(pid_t pid);
/* A file of /proc, cut; false: it cannot be read. */
bool said_text(const char *path, char *out, size_t room);
/* Where each thread of it waits, in the kernel's words; how much. */
size_t said_threads(pid_t pid, char *out, size_t room);
/* What runs with the environment of this test, and harness_start did not
 * start. */
void said_others(char *out, size_t room);
/* Whether process `pid` was started with the entry `wanted`. */
bool environment_has(const char *pid, const char *wanted);
/* First sanitizer's report that a program left, or NULL. */
const char *processes_report(void);

/* The janitor: cleans up when the test process is gone or asks for it. */
struct janitor {
    unsigned *queues; /* shared: names handed out so far */
    pid_t pid;
    int fd; /* closed = clean up now */
};
/* 0 or -errno; `dir` and `runtime` are removed at the end and must stay
 * valid. */
int janitor_start(struct janitor *j, const char *dir, const char *runtime);
/* In a child that goes on beside the test: the janitor does not wait for it. */
void janitor_leave(void);
/* Have it clean up, and wait until it has. */
void janitor_finish(struct janitor *j);
/* The name of queue `number` of the test in `dir`. */
void janitor_queue_name(const char *dir, unsigned number, char *out,
                        size_t room);

#endif
