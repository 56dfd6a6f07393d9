/* orders.h - carries out requests of mqctl and signals of an operator
 *
 * WHAT   One request of the control socket in, one JSON object out
 *        (docs/formats/control.md); signals; the parts that both act on.
 * WHO    control.c and signals.c, in the loop. The engine fills in the struct.
 * OWNS   Nothing; the engine has the parts, and a client of control.c has the
 *        `steering` that its request began.
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
    const struct settings *started; /* as they were at the start */
    /* Wall time of the last change of each setting, in the order of their rows;
     * 0: unchanged since the start. Loop only. */
    uint64_t set_ns[SETTINGS_MOST];
    const char *path; /* of the command or plugin at the start; "": not found.
                         NULL: a function of a program, or it forwards */
};

/* One request of a client. */
struct order_call {
    bool again;        /* it was asked before, and not answered */
    uint64_t begun_ns; /* monotonic time at which it was asked first */
    uid_t uid;         /* of the client */
    bool later;        /* out: there is no answer yet, ask again */
    uint64_t ask_ns;   /* out: when to ask again at the latest; 0: never */
    /* NULL, or what the request has begun; the client's to drop. */
    struct steering **steering;
    void (*over)(void *arg); /* called when that is over, on a pool thread */
    void *arg;
};
/* Answer one line, which is cut into words. The caller owns the answer. NULL
 * and `later`: the answer needs a job that is running. Call again, with `again`
 * set, after the job has called `over`, that of the cap, or `saved` of the
 * pause. */
json_t *orders_answer(struct orders *orders, char *line,
                      struct order_call *call);
/* Return {"ok": false, "status": ..., "error": ...}. */
json_t *orders_refusal(int status, const char *text);
void steering_drop(struct steering **steering); /* NULL-safe; sets NULL */
/* Carry out a signal of an operator; `arg` is the struct. */
void orders_signal(void *arg, int signal);

#endif
