/* orders.h - carries out requests of mqctl and signals of an operator
 *
 * WHAT   Answers each request of the control socket with one JSON object
 *        (docs/formats/control.md), carries out signals, and holds pointers to
 *        the parts of the worker that both of these change.
 * WHO    control.c and signals.c, in the loop. The engine fills in the struct.
 * OWNS   Nothing: the parts are the engine's, and a client of control.c owns
 *        the `steering` that its request began.
 * FAILS  orders_answer: NULL without memory. Other errors are in the answer.
 */
#ifndef WORKER_OPERATE_ORDERS_H
#define WORKER_OPERATE_ORDERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "worker/config/settings.h"

struct steering; /* an order about single messages, which takes a pool job */

/* Constant once the worker is running, except set_ns. */
struct orders {
    struct flow *flow;
    struct settings *live; /* flow->set, writable: for live_settings.c */
    struct stop *stop;
    struct cap *cap;
    struct pause *pause;
    const struct store_look *store_look;
    struct file_watch *file_watch;
    const struct settings *started; /* the settings at the start */
    /* Wall time of the last change of each setting, in the order of their rows;
     * 0: unchanged since the start. Written by any thread, read in the loop. */
    _Atomic uint64_t set_ns[SETTINGS_MOST];
    const char *path; /* of the command or plugin at the start; "": not found;
                         NULL: the handler is neither */
};

/* One request of a client. */
struct order_call {
    bool again;        /* not the first call for this request */
    uint64_t begun_ns; /* monotonic time of the first call */
    uid_t uid;         /* of the client */
    bool later;        /* out: there is no answer yet, call again */
    uint64_t ask_ns;   /* out: when to call again at the latest; 0: never */
    /* The job that the request began, or NULL; the client drops it. */
    struct steering **steering;
    void (*over)(void *arg); /* called when that job ends, on a pool thread */
    void *arg;
};
/* Answer one line, which is cut into words. The caller owns the answer. NULL
 * with `later` set: the answer needs a job that is running. Call again, with
 * `again` set, after the job has called call->over, cap.over or pause.saved. */
json_t *orders_answer(struct orders *orders, char *line,
                      struct order_call *call);
/* Return {"ok": false, "status": ..., "error": ...}. */
json_t *orders_refusal(int status, const char *text);
void steering_drop(struct steering **steering); /* NULL-safe; sets NULL */
/* Carry out a signal of an operator; `arg` is the struct. */
void orders_signal(void *arg, int signal);

#endif
