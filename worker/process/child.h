/* child.h - a long-lived process and the pipes to it
 *
 * WHAT   Starts a command with a pipe each for stdin, stdout and stderr, reads
 *        how large it has grown, and takes its status when it has ended. Pipes,
 *        not a socket, so that a script may open /dev/stdin.
 * WHO    One thread at a time; child_signal: any thread.
 * OWNS   The process, until child_reap; our ends of the pipes, which do not
 *        block and are closed on exec.
 * FAILS  start: -errno.
 */
#ifndef WORKER_PROCESS_CHILD_H
#define WORKER_PROCESS_CHILD_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "worker/process/process.h"
#include "worker/process/environment.h"

/* m = written under mtx by the child's thread, read by others under it */
struct child {
    pthread_mutex_t mtx;
    pid_t pid;        /* m  not reaped, so the number is ours; 0: none */
    uint64_t start;   /* clock ticks since boot */
    uint64_t mark;    /* in its environment (environment.h) */
    int in, out, err; /* -1: closed */
    int end;          /* pidfd */
    int statm;        /* -1: not measured */
};

struct child_spec {
    struct command *command;
    const struct environment_base *base;
    uint64_t mark;
    const atomic_int *signal; /* sent to the child at once, unless 0 */
    bool measured;            /* child_rss will be called */
};

void child_init(struct child *c);
void child_fini(struct child *c); /* after child_reap */
int child_start(struct child *c, const struct child_spec *spec);
/* Signal the child's process group, if there is a child. */
void child_signal(struct child *c, int sig);
/* Return the child's resident memory in bytes; 0: not known. */
uint64_t child_rss(const struct child *c);
/* Close one of in, out, err. */
void child_close(int *fd);
/* Take the status of a child that has ended, and close all. Returns false if
 * somebody else took the status (leftovers.h). */
bool child_reap(struct child *c, siginfo_t *how);

#endif
