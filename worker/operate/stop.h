/* stop.h - the way a worker is stopped: grace, then signals to its handlers
 *
 * WHAT   The first signal lets what runs end within --grace, then handlers are
 *        ended: by SIGTERM, and after --kill-after by SIGKILL. A second signal
 *        skips the rest of the grace. A removed file stops the worker like a
 *        first signal.
 * WHO    The loop.
 * OWNS   Its timer.
 * FAILS  Never.
 */
#ifndef WORKER_OPERATE_STOP_H
#define WORKER_OPERATE_STOP_H

#include <stdbool.h>

#include "worker/loop/timers.h"

struct flow;

/* All of it is the loop's. */
struct stop {
    struct flow *flow;
    struct timer timer;
    struct timer again; /* starting it stops the worker for a restart */
    int signals;        /* to stop, so far */
    bool ending;        /* handlers were told to end */
    void (*last)(void *arg);
    void *arg;
};

/* `last`: handlers are threads of ours and have to end with the process: end it
 * in good order. Does not return. */
void stop_init(struct stop *s, struct flow *f, void (*last)(void *arg),
               void *arg);
/* `signal`: SIGTERM, SIGINT, SIGQUIT; 0: as SIGTERM. */
void stop_worker(struct stop *s, int signal);

#endif
