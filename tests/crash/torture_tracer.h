/* torture_tracer.h - one thread of a worker, one instruction at a time
 *
 * WHAT   Stops the thread that receives as mq_timedreceive(2) returns to it
 *        with a message, steps it, and kills the process between two
 *        instructions: what is seen then is what a SIGKILL at that point
 *        leaves. The other threads are let go and run meanwhile; where they are
 *        is as random as with any kill.
 * WHO    The driver, whose child the worker is; one at a time.
 * OWNS   Nothing when a call has returned: the threads are let go, or gone.
 * FAILS  tracer_catch says how; torture_die where ptrace(2) does what it should
 *        not.
 */
#ifndef TESTS_CRASH_TORTURE_TRACER_H
#define TESTS_CRASH_TORTURE_TRACER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct tracer {
    pid_t pid, tid;    /* process; the thread that is stopped */
    uint64_t after_ip; /* where mq_timedreceive returns to */
};

enum tracer_caught {
    TRACER_CAUGHT,
    TRACER_NOTHING, /* it received nothing in time, and was let go */
    TRACER_REFUSED, /* nobody may trace it here */
    TRACER_ENDED,   /* the worker did, by itself; not reaped */
};

/* The thread that is the `nth` (1 and up) to receive a message from now on is
 * stopped as the call returns; what else was traced is let go. */
enum tracer_caught tracer_catch(struct tracer *tr, pid_t pid, unsigned nth);
/* At most `n` instructions; how many there were until the thread has come back
 * from mq_timedreceive once more (*again), whatever it returned. */
uint64_t tracer_step(struct tracer *tr, uint64_t n, bool *again);
/* SIGKILL while it is stopped, and reap the worker. */
void tracer_kill(struct tracer *tr);

#endif
