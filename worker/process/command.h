/* command.h - the command that is run for messages: where it is, and a start
 *
 * WHAT   Looks a command up in $PATH once, and again when it is no longer
 *        there.
 * WHO    init, fini: the engine. start: any thread, several at once.
 * OWNS   A copy of the path.
 * FAILS  start: -errno as process_start. A command that cannot be found or run
 *        at init is logged; it may be put in place later.
 */
#ifndef WORKER_PROCESS_COMMAND_H
#define WORKER_PROCESS_COMMAND_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* m = under mtx   c = constant after open */
struct command {
    char *const *argv; /* c */
    int alive; /* c  key of what counts what it starts (process_stat.h) */
    pthread_mutex_t mtx;
    char path[PATH_MAX]; /* m  "": not found */
};

/* `nonce` is the source's, and marks the started processes. */
void command_init(struct command *c, char *const *argv, uint64_t nonce);
void command_fini(struct command *c);
/* `env` and `fds` as process_start. */
struct process; /* process.h */
int command_start(struct command *c, struct process *out, char *const env[],
                  const int fds[3]);

/* Explain why the start failed with `err` (-errno), and give advice. */
#define COMMAND_WHY 128
const char *command_why(struct command *c, int err, char buf[COMMAND_WHY]);
/* Explain why the first line of the command, a script, keeps it from running.
 * Returns false if no fault is known. */
bool command_fault(struct command *c, char buf[COMMAND_WHY]);

#endif
