/* doctor.h - the checks of mqctl doctor, and their findings
 *
 * WHAT   Checks the machine's limits, name spaces, the state directory, then
 *        each queue: its worker, its other readers, its dead letters. Prints a
 *        finding for each check, with the command that fixes it.
 * WHO    doctor_run here, doctor_broker_run in scripts/mqctl/amqp, and mqctl
 *        explain; on the only thread of the process.
 * OWNS   The text of findings, from findings_begin to findings_end.
 * FAILS  Never; a problem is a finding. Without memory findings are printed in
 *        the order of the checks.
 */
#ifndef SCRIPTS_MQCTL_LOOK_DOCTOR_H
#define SCRIPTS_MQCTL_LOOK_DOCTOR_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "scripts/mqctl/mqctl.h"
#include "scripts/mqctl/proc.h"
#include "scripts/mqctl/queue_list.h"
#include "scripts/mqctl/look/snapshot.h"

enum level { FINE, NOTE, WARN, BAD, LEVELS };

struct findings {
    bool json, quiet;      /* quiet: only WARN and BAD */
    const char *queue;     /* being checked; NULL: the machine */
    const struct fds *fds; /* who has which queue open */
    unsigned counts[LEVELS];
    FILE *parts[LEVELS]; /* to `texts`, printed at the end, the worst first */
    char *texts[LEVELS];
    size_t sizes[LEVELS];
    char fix[2 * PATH_MAX];
};

/* Keep the text of the findings until findings_end. */
void findings_begin(struct findings *f);
/* Print the findings, the worst first, and their number. Returns true if any is
 * WARN or BAD. */
bool findings_end(struct findings *f);

/* A finding is the result of one check, good or bad: a level, the subject, and
 * a sentence. Its fix is the command that repairs what was found, or advice if
 * no command does. */
struct finding {
    enum level level;
    const char *check; /* the subject: "limits" */
    const char *fix;   /* NULL: nothing to fix */
};

/* Count a finding and print it, or keep its text for the end. */
void finding_print(struct findings *f, const struct finding *what,
                   const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Print a command into f->fix, where it lasts until the next call. */
const char *fix(struct findings *f, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
#define FOUND(f, l, c, m, ...)                                               \
    finding_print((f),                                                       \
                  &(struct finding){.level = (l), .check = (c), .fix = (m)}, \
                  __VA_ARGS__)

/* Check the kernel's limits, and how much of them is used. */
void limits_check(struct findings *f, const struct options *o,
                  const struct queue_list *queues);
/* If the last operand is the name of an error of mq_overview(7), print its
 * causes, each checked on this machine. Returns an exit status, or -1 if it is
 * no such name. */
int error_explain(const struct options *o);
/* Return the first cause of an error that error_explain knows; else NULL. */
const struct cause *cause_find(const char *error);
/* Return the names of these errors: "EMFILE, ENFILE, EINVAL". */
#define ERROR_NAMES 256
const char *error_names(char buf[ERROR_NAMES]);
/* Check a queue and its worker. */
void queue_check(struct findings *f, struct snapshot *v);
/* Check a running worker. */
void worker_state_check(struct findings *f, const struct snapshot *v);
/* Check for other programs that receive from the queue. */
void readers_check(struct findings *f, const struct snapshot *v);

#endif
