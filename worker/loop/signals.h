/* signals.h - the signals that a worker handles, as events of the loop
 *
 * WHAT   Blocks the signals that a worker handles, reads them from a signalfd,
 *        and calls a function for each in the loop.
 * WHO    block: main.c or library.c, before any thread is started. open: the
 *        engine's thread.
 * OWNS   Nothing; the engine closes the signalfd.
 * FAILS  open: -errno.
 */
#ifndef WORKER_LOOP_SIGNALS_H
#define WORKER_LOOP_SIGNALS_H

#include <stdbool.h>

#include "worker/loop/loop.h"

struct signals {
    struct loop_source source; /* fd -1: not open */
    void (*came)(void *arg, int signal);
    void *arg;
};

/* Block SIGTERM SIGINT SIGQUIT SIGHUP SIGUSR2 SIGCONT SIGTTIN SIGTTOU in this
 * thread and in threads started by it, and ignore SIGPIPE and SIGXFSZ. HUP, INT
 * and QUIT stay ignored if they were. With `whole_process` (not for a program
 * that embeds the worker), also block signals that would kill the process but
 * mean nothing to the worker; SIGXCPU stops the worker, others are logged. */
void signals_block(bool whole_process);
/* Ignore SIGPIPE or SIGXFSZ: their signal handler. SIG_IGN is not used, because
 * an executed program would inherit it, and undoing that would cost each start
 * of a command two system calls. */
void signals_nothing(int signal);
/* Watch the signals: `came` is called in the loop for each meaningful
 * signal. */
int signals_open(struct signals *s, struct loop *loop,
                 void (*came)(void *arg, int signal), void *arg);

#endif
