/* process.h - start the processes of handlers, and signal them
 *
 * WHAT   Starts a process with what every handler needs: its own session and
 *        process group, default signals, no descriptors but 0, 1, 2. A command
 *        is looked up in $PATH once, and at each start while it is no longer
 *        there. denied_check checks that no filter denies the system calls
 *        without which a handler that did its work would count as failed.
 * WHO    Any thread, several at once. process_start, command_start: a thread
 *        that blocks all signals (pool.c). command_init, denied_check: the
 *        engine.
 * OWNS   Nothing. The caller reaps a started process and closes its
 *        descriptor.
 * FAILS  -errno. A command that cannot be found or run at init is logged; it
 *        may be put in place later. denied_check: a problem with status 71.
 */
#ifndef WORKER_PROCESS_PROCESS_H
#define WORKER_PROCESS_PROCESS_H

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/problem.h"
#include "common/base/process_stat.h"

struct environment_base; /* environment.h */
struct settings;

/* A started process. */
struct process {
    pid_t pid;
    int end;        /* readable once it has ended: a pidfd, or an eventfd */
    uint64_t start; /* clock ticks since boot; with the pid, names a process */
};

/* Open `end` of a running process, whose pid and start are set. On an error
 * `end` is -1. */
int process_watch(struct process *p);
/* Signal a process whose `end` is open. -ESRCH: it has ended. */
int process_signal(const struct process *p, int sig);

/* Find the path of `name`: unchanged if it has a slash, else the first
 * executable file in $PATH. -ENOENT: not found, -EACCES: not executable. */
int process_find(const char *name, char out[PATH_MAX]);

/* Start a process. `fds` become its 0, 1 and 2; -1: the worker's own. `alive`
 * is the key of the count of living handlers (process_stat.h); 0: not
 * counted. */
int process_start(struct process *out, const char *path, char *const argv[],
                  char *const env[], const int fds[3], int alive);

/* Signal a process group, or its leader if that has moved to another group.
 * SIGTERM also continues stopped processes. The leader must not be reaped. */
void process_group_signal(pid_t leader, int sig);

/* Wait for a child. Returns how it ended, and in *usage (unless NULL) what it
 * used. `flags` as waitid(2): with WNOWAIT the child stays a zombie. If its
 * status cannot be read, si_code is 0 and si_errno is the reason. */
siginfo_t process_wait(pid_t pid, int flags, struct usage *usage);
/* Set the peak to 0 (unknown) if it is not above the worker's own: a handler
 * starts in the memory of the worker (process_start), and the kernel counts the
 * peak of that memory, too (exec_mmap in fs/exec.c). Makes a system call. */
void process_peak_check(struct usage *usage);
/* Reap a process that was started or watched and has ended, if it is our child.
 * A later process with the same pid is not reaped. */
void process_reap(const struct process *p);

/* ---- the command that is run for messages ---- */

/* Constant after init. */
struct command {
    char *const *argv;
    int alive; /* key of the count of its processes (process_stat.h) */
    char path[PATH_MAX]; /* "": not found at init */
};

/* `nonce` is the source's, and marks the started processes. */
void command_init(struct command *c, char *const *argv, uint64_t nonce);
/* `env` and `fds` as process_start. */
int command_start(struct command *c, struct process *out, char *const env[],
                  const int fds[3]);

/* Explain why the start failed with `err` (-errno), and give advice. */
#define COMMAND_WHY 128
const char *command_why(struct command *c, int err, char buf[COMMAND_WHY]);
/* Explain why the first line of the command, a script, keeps it from running.
 * Returns false if no fault is known. */
bool command_fault(struct command *c, char buf[COMMAND_WHY]);

/* ---- calls of the kernel that a filter may deny ---- */

/* Check waitid, and memfd_create unless handlers are long-lived. */
int denied_check(const struct settings *set, struct problem *p);

/* ---- a long-lived process ----
 *
 * A command with a pipe each for stdin, stdout and stderr: pipes, not a socket,
 * so that a script may open /dev/stdin. Our ends do not block and are closed on
 * exec. One thread at a time; child_signal: any thread. */

/* m = written under mtx by the child's thread, read by others under it */
struct child {
    pthread_mutex_t mtx;
    pid_t pid;        /* m  of a child that is not reaped yet; 0: none */
    uint64_t start;   /* clock ticks since boot */
    uint64_t mark;    /* in its environment (environment.h) */
    int in, out, err; /* -1: closed */
    int end;          /* of struct process */
    int statm;        /* -1: not measured */
};

/* A struct child before child_start. */
#define CHILD_NONE                                                        \
    {                                                                     \
        .mtx = PTHREAD_MUTEX_INITIALIZER, .in = -1, .out = -1, .err = -1, \
        .end = -1, .statm = -1,                                           \
    }

struct child_spec {
    struct command *command;
    const struct environment_base *base;
    uint64_t mark;
    const atomic_int *signal; /* sent to the child after its start; 0: none */
    bool measured;            /* child_rss will be called */
};

/* Start the child and open its pipes: all, or none. */
int child_start(struct child *c, const struct child_spec *spec);
/* Signal the child's process group, if there is a child. */
void child_signal(struct child *c, int sig);
/* Return the child's resident memory in bytes; 0: not known. */
uint64_t child_rss(const struct child *c);
/* Wait for the child's end, take its status as process_wait does, and close its
 * descriptors. */
siginfo_t child_reap(struct child *c);

#endif
