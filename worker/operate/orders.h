/* orders.h - the parts that orders to a running worker act on
 *
 * WHAT   Handles for control.c, live_settings.c and cap.c.
 * WHO    The loop.
 * OWNS   Nothing; the engine does.
 * FAILS  Never.
 */
#ifndef WORKER_OPERATE_ORDERS_H
#define WORKER_OPERATE_ORDERS_H

#include <stdint.h>

#include "worker/config/settings.h"

struct cap;
struct file_watch; /* file_watch.h */
struct flow;
struct pause;      /* pause.h */
struct store_look; /* store_look.h */
struct stop;

/* Constant once the worker runs, but for set_ns. */
struct orders {
    struct flow *flow;
    struct settings *live; /* flow->set, writable: for live_settings.c */
    struct stop *stop;
    struct cap *cap;
    struct pause *pause;
    const struct store_look *store_look;
    struct file_watch *file_watch;
    const struct settings *started; /* as they were at the start */
    /* Wall time of the last change of each setting, in the order of their rows;
     * 0: unchanged since the start. Loop only. */
    uint64_t set_ns[SETTINGS_MOST];
    const char *path; /* of the command or plugin, as it was at the start; "":
                         it was not there. NULL: a function of a program */
};

/* Do what an operator's signal means; `arg` is the struct. */
void orders_signal(void *arg, int signal);

#endif
