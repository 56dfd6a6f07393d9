/* exec_inner.h - inside of a handler that is a process for each message:
 * handler_exec.c, exec_cancel.c
 *
 * WHAT   What runs, and what it was sent signals for.
 * WHO    As each field says.
 * OWNS   See handler_exec.c.
 * FAILS  Never.
 */
#ifndef WORKER_HANDLERS_EXEC_INNER_H
#define WORKER_HANDLERS_EXEC_INNER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <bsd/sys/queue.h>

#include "worker/handlers/handler.h"
#include "worker/loop/timers.h"
#include "worker/process/command.h"
#include "worker/process/environment.h"
#include "worker/process/process.h"

/* One that runs; on the stack of its pool thread.
 * m = under mtx   c = constant after its start */
struct running {
    LIST_ENTRY(running) link; /* m */
    struct process process;   /* c  not reaped while it is on the list: the
                               * number is ours */
    struct handler *handler;  /* c */
    const char *id;           /* c  of the message */
    uint64_t limit_ns;        /* c  UINT64_MAX: none */
    int body, out, err;       /* c  stdin; stderr, the end that is read and the
                               * one that is written; -1: closed */
    uint64_t cancelled_ns;    /* m  an operator had it ended; 0: no */
};

/* m = under mtx   c = constant after open   a = atomic */
struct handler {
    const struct settings *set;   /* c */
    struct environment_base base; /* c */
    struct command command;
    struct leftovers *leftovers;       /* c */
    struct stderr_limit *stderr_limit; /* c */
    pthread_mutex_t mtx;
    LIST_HEAD(, running) running; /* m */
    int signal;                   /* m  sent by stop; 0: none yet */
    uint64_t signal_ns;           /* m  when the first was */
    struct timers *timers;        /* c */
    struct timer kill;            /* of runs that were cancelled */
};

/* ---- exec_cancel.c ---- */

/* As the operation of handler.h. */
bool exec_cancel(struct handler *h, const char *id);
/* Those that were cancelled --kill-after ago, and have not ended. */
void exec_kill_due(struct timer *timer);

#endif
