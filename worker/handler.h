/* handler.h - what runs for a message: a table of operations
 *
 * WHAT   One kind of handler (a process per message, a long-lived child, a C
 *        function) behind five calls.
 * WHO    open and close: the engine. run: pool threads, several at once. stop:
 *        the peeker, while others run.
 * OWNS   Its processes.
 * FAILS  open: a problem. run never fails: trouble is an outcome.
 */
#ifndef WORKER_HANDLER_H
#define WORKER_HANDLER_H

#include "common/problem.h"
#include "worker/delivery.h"
#include "worker/settings.h"

struct handler; /* each kind has its own body */
struct peeker;
struct timers;

/* What a handler is given; what is pointed to outlives it. */
struct handler_setup {
    const struct settings *settings;
    uint64_t nonce; /* of the custody file, marks what is started */
    struct timers *timers;
    struct peeker *peeker;
};

/* A verdict that is durable. The slot is FREE, still the caller's, and its
 * record and body are as they were. */
struct settlement {
    struct slot *slot;
    struct slot_word was; /* its word before */
    struct header_text group;
    enum mqw_verdict verdict;
    uint64_t took_ns; /* the handler; 0: it did not run */
};

struct handler_ops {
    const char *name;
    /* How long a run may take before one has been measured, ns. */
    uint64_t guess_ns;
    /* By the thread that becomes the peeker. */
    int (*open)(struct handler **out, const struct handler_setup *setup,
                struct problem *p);
    /* Deliver; returns when the handler is done with it. */
    void (*run)(struct handler *h, struct delivery *d, struct outcome *out);
    /* End what runs with this signal. From now on a run that ends without
     * success ends as OUTCOME_STOPPED. May be called again. Nothing that a
     * handler started outlives its end by SIGKILL. */
    void (*stop)(struct handler *h, int signal);
    void (*close)(struct handler **h); /* nothing runs any more */
    /* NULL: nobody wants to know. On any thread of the pool, without a lock;
     * the group of the message goes on meanwhile. */
    void (*settled)(struct handler *h, const struct settlement *s);
};

extern const struct handler_ops handler_exec;

#endif
