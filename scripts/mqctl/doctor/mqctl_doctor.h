/* mqctl_doctor.h - doctor: look for trouble, with the command that fixes it
 *
 * WHAT   The machine's limits, name spaces, the state directory, then each
 *        queue: its worker, its other readers, its dead letters.
 * WHO    main; machine_check, queue_check: mqctl_doctor.c.
 * OWNS   Nothing.
 * FAILS  An exit status: 1 if it found something.
 */
#ifndef SCRIPTS_MQCTL_DOCTOR_MQCTL_DOCTOR_H
#define SCRIPTS_MQCTL_DOCTOR_MQCTL_DOCTOR_H

#include "scripts/mqctl/doctor/mqctl_findings.h"
#include "scripts/mqctl/mqctl_queue_list.h"
#include "scripts/mqctl/mqctl.h"
#include "scripts/mqctl/mqctl_snapshot.h"

int doctor_run(const struct options *o);

/* mqctl_doctor_machine.c: limits, name spaces, state directory. */
void machine_check(struct findings *f, const struct options *o,
                   const struct queue_list *queues);
/* mqctl_doctor_queue.c */
void queue_check(struct findings *f, struct snapshot *v);
/* mqctl_doctor_clock.c: what waits too long since the clock was set. */
void clock_check(struct findings *f, struct snapshot *v);
/* mqctl_doctor_readers.c: who else receives from it. */
void readers_check(struct findings *f, const struct snapshot *v);

/* Messages in flight whose state directory is gone: in the runtime directory
 * that is found by the rule, and in the one that a queue of ours uses. */
void strays_check(struct findings *f);
void strays_beside(struct findings *f, const struct statedir *dir);

#endif
