/* message.h - a message while it is lent to the worker
 *
 * WHAT   What flow, groups, rules and handlers may know of a message, wherever
 *        it comes from: facts, its bytes, and a few calls to the part that
 *        lends it.
 * WHO    One thread at a time; unrun: also the loop, for a call that will not
 *        be heard of again.
 * OWNS   Nothing: the source (worker/source/source.h) owns what it lends.
 * FAILS  Never.
 */
#ifndef WORKER_RULES_MESSAGE_H
#define WORKER_RULES_MESSAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <bsd/sys/queue.h>

#include "common/base/ulid.h"
#include "common/message/header.h"

enum {                                   /* message.flags */
       MESSAGE_REDELIVERED = 1 << 0,     /* a handler may have seen it before */
       MESSAGE_LENGTH_INFERRED = 1 << 1, /* a kill came before its length */
       /* It waited in the source before, or is a letter on its way again: it is
        * not put off once more, and its end changes what waits there. */
       MESSAGE_STORED = 1 << 2,
       MESSAGE_FRONT = 1 << 3, /* before all others of its group: a letter */
       /* From take, take_due or unpark: an operator cancelled it. Nobody runs
        * it, it is settled as DISCARD. */
       MESSAGE_CANCELLED = 1 << 4,
       /* Its unique key, if it asks for one, was given to it by the source. */
       MESSAGE_KEYED = 1 << 5,
       MESSAGE_CRASHED_ALONE = 1 << 6, /* no other one ran at its last crash */
};

struct message;
struct message_ops {
    /* A handler is about to have it: before a byte of the message can reach
     * one. From here on a crash of the worker counts. */
    void (*run)(struct message *m, uint64_t started_ns); /* wall */
    /* After run: the process that is about to have it, found again by the next
     * start: by its mark (0: the sequence is the mark), and, once its group is
     * told, by that. In this order, before a byte of the message can reach
     * it. Neither is called for a C function. */
    void (*handler)(struct message *m, uint64_t mark, uint64_t start);
    void (*handler_group)(struct message *m, pid_t group);
    /* What it runs in will not be heard of again, or never had it. It is lent
     * still. */
    void (*unrun)(struct message *m, bool may_have_run);
};

/* Constant while it is lent, but for what is marked.
 * a = atomic   o = its owner's: the thread that it is lent to */
struct message {
    const struct message_ops *ops;
    const unsigned char *data; /* as received, header included; stays there */
    size_t size;
    struct ulid *id;      /* o  in the source's memory. All 0: it has none yet,
                           *    and is named before anybody is told of it */
    uint64_t seq;         /* > 0, never twice; the order of the source */
    uint64_t received_ns; /* wall; of its first life in this source */
    uint64_t due_ns; /* wall; when it was to run, if it waited for that in the
                      * source; else 0 */
    uint32_t priority;
    uint32_t failures;        /* attempts that failed */
    uint32_t crashes;         /* of the worker, while a handler had it */
    unsigned flags;           /* MESSAGE_; link and unrun add to them */
    struct header_text group; /* at NULL: as its bytes say */
    /* Below source.lent_most; no two that are lent have the same. */
    unsigned index;
    /* a  its claim is gone: it is not worth a run, and settle says -ESTALE */
    atomic_bool stale;
    STAILQ_ENTRY(message) link; /* o  one list at a time */
};

/* Whether it has an id: from its sender, or because somebody asked. */
static inline bool message_named(const struct message *m)
{
    uint64_t half[2];

    memcpy(half, m->id->bytes, sizeof half);
    return (half[0] | half[1]) != 0;
}
/* Its id, which it gets now if it has none: for a caller that tells others of
 * it. Any thread that may read the message. */
const struct ulid *message_name(struct message *m);

#endif
