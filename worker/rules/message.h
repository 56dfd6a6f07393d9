/* message.h - a message while it is lent to a handler
 *
 * WHAT   What handlers, groups and rules may know of a message, wherever it
 *        comes from: facts, its bytes, and two calls to whoever lends it.
 * WHO    One pool thread at a time; unrun: also the loop, for a call that will
 *        not be heard of again.
 * OWNS   Nothing: the source owns what it lends.
 * FAILS  Never.
 */
#ifndef WORKER_RULES_MESSAGE_H
#define WORKER_RULES_MESSAGE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/ulid.h"

enum {                                   /* message.flags */
       MESSAGE_REDELIVERED = 1 << 0,     /* a handler may have seen it before */
       MESSAGE_LENGTH_INFERRED = 1 << 1, /* a kill came before its length */
};

struct message;
struct message_ops {
    /* The process that is about to have it, found again by the next start: by
     * its mark (0: the sequence is the mark), and, once its group is told, by
     * that. In this order, before a byte of the message can reach it. */
    void (*handler)(struct message *m, uint64_t mark, uint64_t start);
    void (*handler_group)(struct message *m, pid_t group);
    /* What it runs in will not be heard of again. It may have run. */
    void (*unrun)(struct message *m);
};

/* Constant while it is lent. */
struct message {
    const struct message_ops *ops;
    const unsigned char *data; /* as received, header included; stays there */
    size_t size;
    struct ulid id;
    uint64_t seq;         /* > 0, never twice; the order of the source */
    uint64_t received_ns; /* wall; of its first life in this source */
    uint32_t priority;
    uint32_t failures; /* attempts that failed */
    unsigned flags;    /* MESSAGE_ */
};

#endif
