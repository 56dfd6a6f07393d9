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

struct handler_ops {
    const char *name;
    /* How long a run may take before one has been measured, ns. */
    uint64_t guess_ns;
    /* `nonce`: of the custody file, marks what is started (docs/handlers). */
    int (*open)(struct handler **out, const struct settings *settings,
                uint64_t nonce, struct problem *p);
    /* Deliver; returns when the handler is done with it. */
    void (*run)(struct handler *h, struct delivery *d, struct outcome *out);
    /* End what runs with this signal. From now on a run that ends without
     * success ends as OUTCOME_STOPPED. May be called again. */
    void (*stop)(struct handler *h, int signal);
    void (*close)(struct handler **h); /* nothing runs any more */
};

extern const struct handler_ops handler_exec;

#endif
