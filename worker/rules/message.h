/* message.h - a message while it is lent to the worker
 *
 * WHAT   The part of a message that flow, groups, rules and handlers use, for
 *        every source: facts, the bytes, and a few calls to the source.
 * WHO    One thread at a time, mostly the pool thread that runs its work item.
 *        unrun: also the loop, for a handler whose answer is ignored by then.
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

/* Bits of message.flags. */
enum {
    MESSAGE_REDELIVERED = 1 << 0,     /* a handler may have seen it before */
    MESSAGE_LENGTH_INFERRED = 1 << 1, /* a kill came before it was noted */
    /* The source stored it before, or it is a replayed letter: its not-before
     * does not delay it again, and its end changes what the source stores. */
    MESSAGE_STORED = 1 << 2,
    MESSAGE_FRONT = 1 << 3, /* a letter: before all others of its group */
    /* An operator cancelled it: it must not run, and is settled as DISCARD. Set
     * by take, take_due or unpark. */
    MESSAGE_CANCELLED = 1 << 4,
    MESSAGE_KEYED = 1 << 5,         /* the source has claimed its unique key */
    MESSAGE_CRASHED_ALONE = 1 << 6, /* nothing else ran at its last crash */
    MESSAGE_ID_DERIVED = 1 << 7,    /* equal messages have the same id */
};

struct message;
struct message_ops {
    /* Called before a byte of the message can reach a handler. From here on, a
     * crash of the worker counts against the message. */
    void (*run)(struct message *m, uint64_t started_ns); /* wall */
    /* Called after run, before a byte of the message can reach the process, but
     * not for a C function. The next start finds the process by its mark (0:
     * the sequence is the mark), or kills its group. The start time is written
     * before the group, because no group without a start time is killed. */
    void (*handler)(struct message *m, uint64_t mark, uint64_t start,
                    pid_t group);
    /* Called if the handler never had the message, or its answer is ignored.
     * The message is still lent. */
    void (*unrun)(struct message *m, bool may_have_run);
};

/* Constant while the message is lent, except for the marked fields.
 * a = atomic   o = only for the thread that has the message */
struct message {
    const struct message_ops *ops;
    const unsigned char *data; /* as received, header included; stays there */
    size_t size;
    struct ulid *id;      /* o  in the source's memory. All 0: none yet;
                           *    message_name makes it before it is shown */
    uint64_t seq;         /* > 0, never twice; the order of the source */
    uint64_t received_ns; /* wall; when this source received it first */
    uint64_t due_ns; /* wall; when it was to run, if the source stored it until
                      * then; else 0 */
    uint32_t priority;
    uint32_t failures;        /* attempts that failed */
    uint32_t crashes;         /* of the worker, while a handler had it */
    unsigned flags;           /* MESSAGE_; link and unrun add to them */
    struct header_text group; /* at NULL: as in its header */
    unsigned index;    /* below source.lent_most, unique among lent messages */
    atomic_bool stale; /* a  the source took it back: it is not run, and settle
                        *    returns -ESTALE */
    STAILQ_ENTRY(message) link; /* o  one list at a time */
};

/* Return true if the message has an id. */
static inline bool message_named(const struct message *m)
{
    uint64_t half[2];

    memcpy(half, m->id->bytes, sizeof half);
    return (half[0] | half[1]) != 0;
}
/* Return the message's id, which it gets now if it has none: for a caller that
 * shows it. Any thread that may read the message. */
const struct ulid *message_name(struct message *m);

#endif
