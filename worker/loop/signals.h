/* signals.h - the signals that a worker takes, as events of the loop
 *
 * WHAT   Blocks them, reads them from a signalfd, and tells of each.
 * WHO    block: before any thread is started. open, close: the engine's thread.
 * OWNS   The signalfd.
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
 * thread and those that it starts, and let SIGPIPE and SIGXFSZ do nothing. HUP,
 * INT and QUIT stay ignored if they are. With `whole_process`, which a program
 * that embeds the worker is not, also block the signals that would end it by
 * default and mean nothing to it: they are logged, and SIGXCPU stops it. */
void signals_block(bool whole_process);
/* What the two do. Not SIG_IGN, which a program that is executed inherits: each
 * handler would have to undo it, by a system call for each. */
void signals_nothing(int signal);
/* `came` is called in the loop for each signal that has a meaning. */
int signals_open(struct signals *s, struct loop *loop,
                 void (*came)(void *arg, int signal), void *arg);
void signals_close(struct signals *s);

#endif
