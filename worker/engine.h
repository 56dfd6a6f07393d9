/* engine.h - the worker: owns the parts, starts and ends them
 *
 * WHAT   Opens what a worker needs, recovers what the last worker left, runs
 *        until it is stopped, and closes everything in order.
 * WHO    open, run, close: main.c and library.c, on one thread, which becomes
 *        the peeker. notify.c uses the struct, too; the parts never include it.
 * OWNS   Every part.
 * FAILS  open: a problem with the exit status of docs/mqworker.8.
 */
#ifndef WORKER_ENGINE_H
#define WORKER_ENGINE_H

#include <limits.h>

#include "common/state/runtimedir.h"
#include "common/state/statedir.h"
#include "worker/files/store_look.h"
#include "worker/flow/flow.h"
#include "worker/loop/loop.h"
#include "worker/loop/signals.h"
#include "worker/operate/halt.h"
#include "worker/operate/live_settings.h"
#include "worker/operate/orders.h"
#include "worker/operate/status.h"
#include "worker/process/stderr_tail.h"
#include "worker/source/mq/source_mq.h"

/* Everything is constant after open, except the state inside the parts. */
struct engine {
    struct statedir dir;
    struct runtimedir runtime; /* custody and counters are there */
    struct pid_file *lock;     /* one worker per directory */
    struct flow flow;
    struct source_mq mq; /* flow.source, unless there is a broker */
    const struct broker_engine
        *broker;         /* of flow.source; NULL: a POSIX queue */
    char runs[PATH_MAX]; /* path of the broker's run file */
    struct file_watch *file_watch;
    struct store_look store_look;
    struct on_dead *on_dead; /* NULL: no --on-dead */
    struct signals signals;
    struct clock_watch clock_watch;
    struct stop stop;
    struct status status;
    struct cap cap;
    struct pause pause;
    struct settings started; /* the settings at the start */
    struct orders orders;
    char path[PATH_MAX];     /* of the command or plugin; "": not found */
    struct control *control; /* NULL: could not be opened */
    struct stderr_limit stderr_limit;
    /* Execute the program again. Called for a restart while handlers that are
     * threads of this process still run. Set before engine_run. */
    void (*restart)(void *arg);
    void *restart_arg;
    /* Called about once a second while the worker cannot exit, because messages
     * in flight cannot be written yet. May be NULL. */
    void (*waiting)(void *arg);
    void *waiting_arg;
};

/* Open a worker and recover what the last one left. `set` must outlive it. */
int engine_open(struct engine **out, struct settings *set,
                const struct handler_ops *ops, struct problem *p);
/* Return true if the worker is stopping in order to start again, because a file
 * was removed, and nobody has ordered a stop or a drain. */
bool engine_restarts(const struct engine *e);
/* Run until stopped; return the exit status. -ESTALE: a file of the worker was
 * removed, and it has to be opened again. */
int engine_run(struct engine *e);
void engine_close(struct engine **engine); /* NULL-safe; sets NULL */

#endif
