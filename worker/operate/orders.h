/* orders.h - what orders to a worker that runs are carried out on
 *
 * WHAT   Handles for control, tune and cap.
 * WHO    The loop.
 * OWNS   Nothing; the engine does.
 * FAILS  Never.
 */
#ifndef WORKER_OPERATE_ORDERS_H
#define WORKER_OPERATE_ORDERS_H

struct cap;
struct file_watch; /* file_watch.h */
struct flow;
struct settings;
struct stop;

/* Constant once the worker runs. */
struct orders {
    struct flow *flow;
    struct settings
        *live; /* what flow->set points to: live_settings.c writes there */
    struct stop *stop;
    struct cap *cap;
    struct file_watch *file_watch;
};

#endif
