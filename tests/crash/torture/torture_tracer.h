/* torture_tracer.h - run one thread of a worker instruction by instruction
 *
 * WHAT   A worker is traced from its start. The receiving thread is stopped
 *        when mq_timedreceive(2) returns to it with a message, and continues
 *        by single instructions or from system call to system call. Killing
 *        the worker there leaves what a SIGKILL at that point leaves. The
 *        other threads run freely meanwhile.
 * WHO    The parent of the worker, which has no other child. Only one thread
 *        of the worker receives at a time (-c 1).
 * OWNS   Nothing. The worker dies with the tracer.
 * FAILS  By return values; by torture_die if ptrace(2) does something
 *        unexpected, or if nothing happens for tracer_limit_s().
 */
#ifndef TESTS_CRASH_TORTURE_TRACER_H
#define TESTS_CRASH_TORTURE_TRACER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Exit status of a child if tracing is not permitted */
#define TRACER_REFUSAL 126

struct tracer {
    pid_t pid, tid;    /* process; the thread that received */
    pid_t inside;      /* thread that is in mq_timedreceive; 0: none */
    uint64_t after_ip; /* address to which mq_timedreceive returns */
    uint64_t clock_ip; /* address to which clock_gettime returns; 0: unknown */
    uint64_t call_ip;  /* syscall(2) in the worker, after tracer_catch_call */
    uint64_t pass_from, pass_to; /* addresses of the object to skip
                                  * (tracer_pass) */
    uint64_t watched;            /* offset for tracer_watch; 0: none */
    int status;                  /* wait status of the worker */
    bool reaped;                 /* the worker has exited by itself */
    bool maps, watches;          /* the thread is in mmap; the slot is
                                  * watched */
};

enum tracer_caught {
    TRACER_CAUGHT,
    TRACER_REFUSED, /* tracing is not permitted; the child was reaped */
    TRACER_ENDED,   /* the worker exited by itself and was reaped */
};

/* Return the limit for any wait for a child, in seconds. */
unsigned tracer_limit_s(void);
/* Call waitpid with that limit; torture_die when it is over. */
pid_t tracer_wait(pid_t pid, int *status);

/* Make the child traced before its exec. The child exits if that is not
 * permitted. */
void tracer_child(void);
/* Wait for the stop of the child after its exec. */
enum tracer_caught tracer_start(struct tracer *tr, pid_t pid);
/* Stop the `nth` thread (from 1) to receive a message from now on, when the
 * call returns. */
enum tracer_caught tracer_catch(struct tracer *tr, unsigned nth);
/* Stop the first thread to make this system call. On x86-64, its steps (see
 * tracer_step) end at its call of mq_timedreceive. */
enum tracer_caught tracer_catch_call(struct tracer *tr, uint64_t number);

/* Run each call of a function of this object without stepping. The call counts
 * as one step, and so does each stop at a system call in it. If there is no
 * such object, or no debug register (x86-64 has them), the instructions are
 * stepped. */
void tracer_pass(struct tracer *tr, const char *object);
/* Called after each instruction with the address of the next one. */
typedef void tracer_visit(void *arg, uint64_t ip);
/* Step at most `n` instructions. Return how many there were until the thread
 * returned from mq_timedreceive again (*again), with or without a message; the
 * system call counts as one instruction. The exit of the worker sets *again as
 * well: a thread whose batch has no time left leaves the queue to another
 * thread. `visit` may be NULL. */
uint64_t tracer_step(struct tracer *tr, uint64_t n, tracer_visit *visit,
                     void *arg, bool *again);
/* Return true if what outlives the worker has changed since the last call. */
typedef bool tracer_look(void *arg);
/* Do the same, but count changes instead of instructions: instructions that are
 * a system call or after which `look` returns true, and each stop in a skipped
 * object. A change by another thread counts as well. */
uint64_t tracer_changes(struct tracer *tr, uint64_t n, tracer_look *look,
                        void *arg, bool *again);
/* Watch the slot at this offset of the custody file once it is mapped. Each
 * store of the thread to a word that recovery reads (state, length, priority,
 * sequence, check sum) is a stop of tracer_calls. Only on x86-64. */
void tracer_watch(struct tracer *tr, uint64_t offset);
/* Return true if the process has writable memory that others share or that
 * outlives it, except what SQLite shares. If it has none, a kill at any
 * instruction between two system calls leaves the same. */
bool tracer_shares(const struct tracer *tr);
/* Run the thread to at most `n` stops before and after its system calls. Return
 * how many it made before the worker exited by itself (*ended). */
uint64_t tracer_calls(struct tracer *tr, uint64_t n, bool *ended);

/* Let the caught thread run freely like the others. */
void tracer_run(struct tracer *tr);
/* Continue threads that have stopped; call this repeatedly while they run. */
void tracer_serve(struct tracer *tr);
/* Stop all threads; call tracer_catch next. */
void tracer_hold(struct tracer *tr);

/* Kill and reap the worker unless it has exited by itself. */
void tracer_kill(struct tracer *tr);

#endif
