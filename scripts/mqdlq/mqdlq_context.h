/* mqdlq_context.h - what every verb has before it: options, queue, open store
 *
 * WHAT   Finds and opens the store of a queue; says on stderr what goes wrong
 *        and turns it into an exit status.
 * WHO    One thread.
 * OWNS   The store.
 * FAILS  context_open: an exit status, the reason is out on stderr. No store is
 *        no failure: `store` is NULL then, and stderr says where it was looked
 *        for.
 */
#ifndef SCRIPTS_MQDLQ_MQDLQ_CONTEXT_H
#define SCRIPTS_MQDLQ_MQDLQ_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/queue_name.h"
#include "common/mq/queue.h"
#include "common/store/store.h"
#include "scripts/mqdlq/mqdlq_options.h"

struct context {
    const struct options *o;
    char queue[QUEUE_NAME_MAX];
    struct store *store; /* NULL: there is none */
};

/* With `create` the store is made if it is missing. 0 or an exit status. */
int context_open(struct context *d, const struct options *o, bool create);
void context_close(struct context *d);

/* "mqdlq: text" on stderr; returns `status`. */
int context_say(int status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* A -errno of the store while it was asked to `what`; the exit status. */
int context_store_failed(const char *what, int err);
/* "s", or "" for one. */
const char *context_plural(uint64_t n);
/* First trouble wins: the status to keep. */
int context_worse(int status, int other);

#endif
