/* hook_command.h - the command of --on-dead, run once for one death
 *
 * WHAT   /bin/sh with the letter's JSON on stdin and its handler's environment,
 *        supervised until it has ended: --timeout (60 s without), and what is
 *        left of its process group then ends with it.
 * WHO    run: one thread. stop: any other.
 * OWNS   Its process while it runs.
 * FAILS  open: -errno. run: false, and out.error says why.
 */
#ifndef WORKER_HOOKS_HOOK_COMMAND_H
#define WORKER_HOOKS_HOOK_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/process/environment.h"
#include "worker/process/stderr_tail.h"
#include "worker/rules/delivery.h"

#define HOOK_MARK UINT64_MAX /* where a delivery has its sequence */

struct settings;
struct source_hook;

/* c = constant after open   r = the run's */
struct hook_command {
    const struct settings *set;        /* c */
    struct stderr_limit *stderr_limit; /* c */
    int stop;                          /* c  eventfd: readable once it stops */
    struct environment_base base;      /* c */
    struct environment env;            /* r */
    struct stderr_tail tail;           /* r */
    struct outcome out;                /* r  why it did not tell, its stderr */
};

int hook_command_open(struct hook_command *c, const struct settings *set,
                      struct stderr_limit *limit, uint64_t nonce);
void hook_command_close(struct hook_command *c); /* also if open failed */
/* Whether it told. */
bool hook_command_run(struct hook_command *c, const struct source_hook *hook);
/* One that runs may finish within --kill-after, gets SIGTERM, and, that much
 * later, SIGKILL. */
void hook_command_stop(struct hook_command *c);

#endif
