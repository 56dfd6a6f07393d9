/* torture_tracer.h - one thread of a worker, one instruction at a time
 *
 * WHAT   A worker is traced from its start on. The thread that receives is
 *        stopped as mq_timedreceive(2) returns to it with a message, and goes
 *        on by single instructions, or from system call to system call. What is
 *        seen when the worker is killed then is what a SIGKILL at that point
 *        leaves. The other threads run freely meanwhile.
 * WHO    The parent of the worker, which has no other child. The worker has one
 *        receiving thread at a time (-c 1).
 * OWNS   Nothing. The worker dies with the tracer.
 * FAILS  The calls say how; torture_die where ptrace(2) does what it should
 *        not, or where nothing happens for tracer_limit_s().
 */
#ifndef TESTS_CRASH_TORTURE_TRACER_H
#define TESTS_CRASH_TORTURE_TRACER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define TRACER_REFUSAL 126 /* exit status of a child that may not be traced */

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
    TRACER_REFUSED, /* nobody may trace a process here; it was reaped */
    TRACER_ENDED,   /* the worker did, by itself; it was reaped */
};

/* How long any wait for a child may take before the run is given up. */
unsigned tracer_limit_s(void);
/* As waitpid, with that limit. */
pid_t tracer_wait(pid_t pid, int *status);

/* In the child, before its exec; it ends where that is refused. */
void tracer_child(void);
/* The child is stopped after its exec. */
enum tracer_caught tracer_start(struct tracer *tr, pid_t pid);
/* The thread that is the `nth` (1 and up) to receive a message from now on is
 * stopped as the call returns. */
enum tracer_caught tracer_catch(struct tracer *tr, unsigned nth);
/* The thread that is the first to make this system call is. Its way (see
 * tracer_step) ends at its call of mq_timedreceive, on x86-64, or with the
 * worker: a thread whose time is up leaves the queue to another one. */
enum tracer_caught tracer_catch_call(struct tracer *tr, uint64_t number);

/* A call of a function of this object is one step, and so is each stop before
 * and after a system call in it; its instructions are none. Where there is no
 * such object, or no register for a breakpoint (x86-64 has), they are. */
void tracer_pass(struct tracer *tr, const char *object);
/* Called after each instruction with the address of the next one. */
typedef void tracer_visit(void *arg, uint64_t ip);
/* At most `n` instructions; how many there were until the thread has come back
 * from mq_timedreceive once more (*again), whatever that returned; the call
 * itself is one of them. `visit` may be NULL. */
uint64_t tracer_step(struct tracer *tr, uint64_t n, tracer_visit *visit,
                     void *arg, bool *again);
/* Whether what outlives the worker has changed since it was last asked. */
typedef bool tracer_look(void *arg);
/* The same with changes for instructions: those that are a system call, or
 * after which `look` says so, and each stop in an object that is passed. Other
 * threads change something, too, which is one of them then. */
uint64_t tracer_changes(struct tracer *tr, uint64_t n, tracer_look *look,
                        void *arg, bool *again);
/* The slot at this offset of the custody file is watched from its mapping on:
 * each store of the thread to what recovery goes by (state, length, priority,
 * sequence, check sum) is a stop of tracer_calls. On x86-64. */
void tracer_watch(struct tracer *tr, uint64_t offset);
/* Whether it has memory that others see or that is there after its end, but
 * what SQLite shares. If not, a kill at any instruction between two system
 * calls leaves the same. */
bool tracer_shares(const struct tracer *tr);
/* At most `n` stops before and after system calls of the thread; how many there
 * were until the worker ended by itself (*ended). */
uint64_t tracer_calls(struct tracer *tr, uint64_t n, bool *ended);

/* The thread that was caught runs freely, as the others do ... */
void tracer_run(struct tracer *tr);
/* ... if those that stop meanwhile are let go again and again ... */
void tracer_serve(struct tracer *tr);
/* ... until all are stopped; tracer_catch is next. */
void tracer_hold(struct tracer *tr);

/* SIGKILL, and reap the worker, unless it has ended by itself. */
void tracer_kill(struct tracer *tr);

#endif
