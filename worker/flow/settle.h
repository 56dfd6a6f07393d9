/* settle.h - what follows from the end of a message: done, retry, dead, discard
 *
 * WHAT   Decides what becomes of a message, and has the source make that
 *        durable. A verdict that the source refuses (disk full), or settles
 *        late, is on the list of unsettled.h until it is durable.
 * WHO    Work items, on pool threads; the engine at the start.
 * OWNS   Nothing. A call that settles a message takes it from the caller.
 * FAILS  Never towards the caller.
 */
#ifndef WORKER_FLOW_SETTLE_H
#define WORKER_FLOW_SETTLE_H

#include "common/base/log.h"
#include "common/message/error_text.h"
#include "common/state/counters.h"
#include "worker/flow/flow.h"
#include "worker/flow/dispatch.h"
#include "worker/rules/delivery.h"
#include "worker/source/source.h"

/* Who discarded a message. */
enum discarded_by {
    DISCARDED_BY_HANDLER,
    DISCARDED_BY_OPERATOR,
    DISCARDED_AS_DUPLICATE, /* another message has its unique key */
    DISCARDED_AS_REPEAT,    /* it is a second copy of a letter */
};

struct decision {
    struct settle s;
    enum mqw_verdict verdict; /* the source may still set s.kind to DISCARD */
    enum discarded_by discarded;  /* if s.kind is DISCARD */
    struct group *lease;          /* of its group; NULL: none */
    struct counters_block *count; /* counts it; NULL: the shared block */
    bool stored;                  /* the message was MESSAGE_STORED */
    uint64_t max_attempts;        /* the message's own; 0: the worker's */
    uint64_t took_ns;             /* run time of the handler */
    uint64_t end_ns;              /* wall time when the handler ended */
    uint64_t wait_ns;             /* until the retry */
};

/* Begin a decision on the message, which gets an id if it has none. */
void decision_init(struct decision *dec, const struct delivery *d,
                   enum mqw_verdict verdict);
/* Apply the consequences of a decision that is durable now: count it, log it,
 * end the lease of the group, and call the handler's `settled`. The message can
 * still be read. */
void decision_done(struct flow *f, const struct decision *dec);
/* Drop a decision whose claim on the message was gone. Nothing was written, and
 * the source redelivers the message. */
void decision_stale(struct flow *f, const struct decision *dec);
/* Apply the consequences of a stored message that could not run and died. */
void decision_died(struct flow *f, const struct source_death *death);

/* Make a dead letter of a message that will not run, or not run again. `error`
 * may be NULL. */
void settle_dead(struct flow *f, struct delivery *d, enum dead_reason reason,
                 const char *error);
/* Discard a message that known_look found: a second copy of a letter, or a
 * duplicate of another message by its unique key. */
void settle_repeat(struct flow *f, struct delivery *d);
/* Discard a message because the source found that its unique key belongs to the
 * message `first`. */
void settle_duplicate(struct flow *f, struct message *m,
                      const struct ulid *first);
/* Count and log a message that the source has stored until its not-before. */
void settle_delayed(struct flow *f, struct message *m);
/* Discard a message that an operator cancelled before it ran. */
void settle_cancelled(struct flow *f, struct delivery *d);
/* Cancel a lent message that is not running, named by its sequence and the key
 * of its group (at NULL: no group). Returns 0 once that is durable; -EAGAIN if
 * the message is running or moving elsewhere; -errno of the disk, and then the
 * message waits as before. May wait for a disk, so it is called by a job of the
 * pool (worker/operate/orders.c). Not for a source that settles late. */
int settle_cancel(struct flow *f, struct header_text key, uint64_t seq);
/* Return a message whose claim is gone, without running it, because the source
 * redelivers it. */
void settle_stale(struct flow *f, struct delivery *d);
/* Let the messages of item->later, at least one, wait in the source until their
 * not-before. Called before anything that takes long. */
#define SETTLE_LATER_MOST 16
void settle_later(struct work_item *item);

/* ---- for the inline functions below ---- */

/* Keep the verdict done, which the source refused with `err`. Not inline, so
 * that the usual path stays short. */
__attribute__((noinline)) void settle_refused(struct flow *f,
                                              const struct delivery *d,
                                              const struct outcome *out,
                                              int err);
/* Call the handler's own `settled` for the verdict done. */
__attribute__((noinline)) void settle_notify(struct flow *f,
                                             const struct delivery *d,
                                             const struct outcome *out);
/* Return the wall time at which the handler ended, without reading a clock. */
static inline uint64_t settle_ended_at(const struct delivery *d,
                                       const struct outcome *out)
{
    return d->started_ns + out->duration_ns;
}

static inline void settle_plain(struct flow *f, struct delivery *d,
                                const struct outcome *out)
{
    struct message *m = d->message;
    int err = f->source->local->done(f->source, m, d->place);

    if (err) {
        settle_refused(f, d, out, err);
        return;
    }
    counters_add(&d->count->done, 1);
    if (message_named(m)) /* nobody can look for a message without an id */
        counters_settled(f->counters, COUNTERS_DONE, m->id,
                         settle_ended_at(d, out));
    if (d->lease)
        dispatch_done(f, d->lease);
    if (f->wants_settled)
        settle_notify(f, d, out);
}

void settle_other(struct flow *f, struct delivery *d, struct outcome *out);

/* Settle a message whose handler ended. Usually the message is done, has no row
 * in a store, and nothing else depends on its end. */
static inline void settle_outcome(struct flow *f, struct delivery *d,
                                  struct outcome *out)
{
    if (out->kind == OUTCOME_VERDICT && out->verdict == MQW_DONE &&
        !(attention_look(&f->gate.attention) & ATTEND_END) &&
        !(d->message->flags & MESSAGE_STORED) && d->count &&
        !log_enabled(LOG_DEBUG))
        settle_plain(f, d, out);
    else
        settle_other(f, d, out);
}

#endif
