/* mqctl_findings.h - what doctor finds, one line each
 *
 * WHAT   Prints a finding and the command that fixes it, as text or JSON, and
 *        remembers whether one was bad.
 * WHO    mqctl_doctor*.c
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef SCRIPTS_MQCTL_DOCTOR_MQCTL_FINDINGS_H
#define SCRIPTS_MQCTL_DOCTOR_MQCTL_FINDINGS_H

#include <limits.h>
#include <stdbool.h>

enum level { FINE, NOTE, WARN, BAD };

struct findings {
    bool json;
    bool some;         /* a WARN or BAD among them */
    const char *queue; /* they are of; NULL: of the machine */
    char fix[2 * PATH_MAX];
};

struct finding {
    enum level level;
    const char *check; /* what was looked at: "limits" */
    const char *fix;   /* command, or advice; NULL: nothing to fix */
};

void finding(struct findings *f, const struct finding *what, const char *fmt,
             ...) __attribute__((format(printf, 3, 4)));
/* A command that has to be put together; until the next one. */
const char *fix(struct findings *f, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
#define FOUND(f, l, c, m, ...)                                              \
    finding((f), &(struct finding){.level = (l), .check = (c), .fix = (m)}, \
            __VA_ARGS__)

#endif
