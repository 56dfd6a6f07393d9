/* signals.h - the signals that a worker takes, as events of the loop
 *
 * WHAT   Blocks them, reads them from a signalfd, and tells of each.
 * WHO    block: before any thread is started. open, close: the engine's thread.
 * OWNS   The signalfd.
 * FAILS  open: -errno.
 */
#ifndef WORKER_LOOP_SIGNALS_H
#define WORKER_LOOP_SIGNALS_H

#include "worker/loop/loop.h"

struct signals {
    struct loop_source source; /* fd -1: not open */
    void (*came)(void *arg, int signal);
    void *arg;
};

/* SIGTERM SIGINT SIGQUIT SIGHUP SIGUSR2 SIGCONT SIGTTIN SIGTTOU are blocked in
 * this thread and those it starts; SIGPIPE and SIGXFSZ do nothing. */
void signals_block(void);
/* What the two do. Not SIG_IGN, which a program that is executed inherits: each
 * handler would have to undo it, by a system call for each. */
void signals_nothing(int signal);
/* `came` is called in the loop for each of the blocked ones. */
int signals_open(struct signals *s, struct loop *loop,
                 void (*came)(void *arg, int signal), void *arg);
void signals_close(struct signals *s);

#endif
