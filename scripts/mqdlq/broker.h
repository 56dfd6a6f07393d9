/* broker.h - dead letters of a queue on a broker
 *
 * WHAT   Takes all letters of NAME.dead, unacknowledged, and puts copies in a
 *        store of its own that has no name: what lists, chooses and shows is
 *        the same as for letters of this machine. A row of that store is a
 *        letter that is held. A letter that is not acknowledged goes back to
 *        its place.
 * WHO    One thread; one such program at a time, as the broker has it.
 * OWNS   The connections and the store, until `close`.
 * FAILS  Exit statuses; the reason is out on stderr.
 */
#ifndef SCRIPTS_MQDLQ_BROKER_H
#define SCRIPTS_MQDLQ_BROKER_H

#include "common/base/problem.h"
#include "scripts/mqdlq/decode.h"
#include "scripts/mqdlq/mqdlq.h"

#define BROKER_MACHINE 80
#define BROKER_WHY     120

/* What became of a letter that was to be sent. */
struct broker_sent {
    bool sent;            /* it was, or would be (--dry-run) */
    int refused;          /* an exit status, if the letter is at fault; 0: no */
    char why[BROKER_WHY]; /* then */
};
/* What an import has done with letters. */
struct broker_imported {
    uint64_t in;      /* confirmed */
    uint64_t present; /* there already, and left out */
};

/* The functions of scripts/mqdlq/amqp/, found by broker_engine.h. */
struct broker_letters {
    /* Take the letters of ctx->o's operand; no store: there is no such
     * queue. */
    int (*open)(struct context *ctx);
    /* Give back the letters that are left; complain if the broker does not
     * have them. */
    int (*close)(struct context *ctx);
    /* Remove letters by row: how many went, or -errno. */
    int64_t (*discard)(struct context *ctx, const int64_t *rows, size_t n);
    /* letters.h: where attempt `n` was. `arg` is the broker. */
    const char *(*machine)(void *arg, int64_t row, unsigned n);
    /* Prepare to send letters again; the name of the queue to `*to`. */
    int (*replay_begin)(struct context *ctx, const char **to);
    /* Send a letter again, or with --dry-run tell of it. `first`: it may be the
     * canary. Anything but 0 ends it all. */
    int (*replay)(struct context *ctx, const struct letter *l, bool first,
                  struct broker_sent *out);
    /* Wait until the letter that was sent last is a letter again, or was none
     * for as long as told. */
    int (*canary_wait)(struct context *ctx);
    /* Import the next `n` letters of a file. 0, or -errno and a problem; *sum
     * grows by what is certain in any case. */
    int (*import)(struct context *ctx, const struct decoding *list, size_t n,
                  struct broker_imported *sum, struct problem *p);
};

#endif
