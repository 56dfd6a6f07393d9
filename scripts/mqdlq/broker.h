/* broker.h - operations on the dead letters of a queue on a broker
 *
 * WHAT   A table of functions. `open` takes all messages of the queue
 *        NAME.dead without acknowledging them, and puts copies into a temporary
 *        store, where the verbs list, choose and show them like letters of this
 *        machine. A row of that store stands for one unacknowledged message.
 *        The broker puts a message that is never acknowledged back in its
 *        place.
 * WHO    The verbs, in the one thread of mqdlq. scripts/mqdlq/amqp/ fills the
 *        table; the broker allows one such program at a time.
 * OWNS   The connections and the store, from open to close.
 * FAILS  Exit statuses, after printing the reason to stderr.
 */
#ifndef SCRIPTS_MQDLQ_BROKER_H
#define SCRIPTS_MQDLQ_BROKER_H

#include "common/base/problem.h"
#include "scripts/mqdlq/decode.h"
#include "scripts/mqdlq/mqdlq.h"

#define BROKER_MACHINE 80
#define BROKER_WHY     120

/* Result of sending one letter. */
struct broker_sent {
    bool sent;            /* it was sent, or would be (--dry-run) */
    int refused;          /* exit status if the letter is at fault; else 0 */
    char why[BROKER_WHY]; /* why it was refused */
};
/* Result of an import. */
struct broker_imported {
    uint64_t in;      /* letters that the broker confirmed */
    uint64_t present; /* letters skipped because they existed already */
};

/* The table, which broker_engine.h finds. */
struct broker_letters {
    /* Take the letters of the queue that ctx->o names. ctx->store stays NULL if
     * the queue does not exist. */
    int (*open)(struct context *ctx);
    /* Give the remaining letters back; complain if the broker did not get
     * them. */
    int (*close)(struct context *ctx);
    /* Remove letters by row. Returns how many, or -errno. */
    int64_t (*discard)(struct context *ctx, const struct letter_name *letters,
                       size_t n);
    /* Return the machine of attempt `n` (letters.h); `arg` is the broker. */
    const char *(*machine)(void *arg, int64_t row, unsigned n);
    /* Prepare to send letters again; set *to to the name of the queue. */
    int (*replay_begin)(struct context *ctx, const char **to);
    /* Send a letter again, or print it with --dry-run. `first`: it may be the
     * canary. A status other than 0 ends the verb. */
    int (*replay)(struct context *ctx, const struct letter *l, bool first,
                  struct broker_sent *out);
    /* Wait until the letter sent last is dead again, or has not died within
     * --canary-time after a worker took it. */
    int (*canary_wait)(struct context *ctx);
    /* Import the next `n` letters of a file. Returns 0, or -errno and a
     * problem. *sum grows by the certain results even after an error. */
    int (*import)(struct context *ctx, const struct decoding *list, size_t n,
                  struct broker_imported *sum, struct problem *p);
};

#endif
