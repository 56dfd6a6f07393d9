/* delivery.h - one message on its way through a handler
 *
 * WHAT   The message as a handler sees it, and how the handler ended.
 * WHO    One pool thread at a time.
 * OWNS   The message, until settled. Views point into its data.
 * FAILS  Never.
 */
#ifndef WORKER_RULES_DELIVERY_H
#define WORKER_RULES_DELIVERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/process_stat.h"
#include "common/message/error_text.h"
#include "common/message/header.h"
#include "worker/mqworker.h"
#include "worker/rules/message.h"

#define OUTCOME_ERROR ERROR_TEXT
#define OUTCOME_TAIL  4096

struct delivery {
    struct message *message;
    struct group *lease; /* of its group; NULL: no group, or no lease yet */
    /* The work item's block, where the end is counted; NULL: none. Set once by
     * the maker of the delivery, and so is `timeout_most`. */
    struct counters_block *count;
    unsigned place; /* number of the work item, which no other item has */
    /* The source's bound on the time limit that a header asks for; NULL: there
     * is no bound. */
    const _Atomic uint64_t *timeout_most;
    uint64_t started_ns; /* wall; just before a handler gets the message */
    uint64_t begun_ns;   /* monotonic: the same, or a few us before */
    struct header header;
    struct header_text group;  /* at NULL: none; else in the data or in `key` */
    const unsigned char *body; /* in the message's data */
    size_t body_size;
    /* enum dead_reason: the message must become a dead letter, for `why`.
     * BAD_HEADER: all of the message is the body. */
    uint8_t unfit;
    bool repeat;    /* a second copy of a letter: to be dropped */
    bool duplicate; /* `first` has its unique key: to be discarded */
    /* "" until delivery_id is called. It is beside the flags, because they are
     * cleared together. */
    char id_text[ULID_TEXT];
    struct ulid first;
    char why[HEADER_WHY];
    char key[HEADER_VALUE_MAX]; /* group of a stored row */
};

/* Read the message's header, body and group; if it has no id yet it gets one. A
 * stored message has the group that it was stored with. `separator`: the end of
 * the group in a message without a header; 0: such a message has no group. */
void delivery_read(struct delivery *d, struct message *m, char separator);
/* Do the same, but give the message an id only if its header has one. */
void delivery_sort(struct delivery *d, struct message *m, char separator);
/* Begin a delivery whose header was read and is valid. */
static inline void delivery_begin(struct delivery *d, struct message *m)
{
    d->message = m;
    d->lease = NULL;
    d->body = m->data + d->header.bytes;
    d->body_size = m->size - d->header.bytes;
    d->unfit = REASON_NONE;
    d->repeat = d->duplicate = false;
    d->id_text[0] = '\0';
}
/* Read a message without a header, where no separator is set; it gets no id.
 * Returns false if it has a header. */
static inline bool delivery_plain(struct delivery *d, struct message *m)
{
    if (header_found(m->data, m->size))
        return false;
    d->header.bytes = 0;
    d->header.fields = d->header.x_count = 0;
    d->group.at = NULL;
    d->group.size = 0;
    delivery_begin(d, m);
    return true;
}
/* Read a message whose header names its group and says nothing else. Returns
 * false for any other: delivery_sort reads it. */
static inline bool delivery_grouped(struct delivery *d, struct message *m)
{
    if (m->group.at || !header_group_alone(m->data, m->size, &d->header))
        return false;
    d->group.at = d->header.group.at; /* one wide load would wait for stores */
    d->group.size = d->header.group.size;
    delivery_begin(d, m);
    return true;
}
/* Do what delivery_sort does, but give the message no id at all. */
void delivery_parse(struct delivery *d, struct message *m, char separator);
/* Return the time limit of the header, or what the source allows if that is
 * less. Without a limit in the header, return `otherwise`, the worker's limit,
 * which the source does not bound; UINT64_MAX: none. */
uint64_t delivery_limit_ns(const struct delivery *d, uint64_t otherwise);
/* Return the time limit that the header asks for, in ns. */
uint64_t delivery_limit_asked(const struct delivery *d);
/* Return after how many failures the message is dead: the number in its header,
 * or else `otherwise`. */
uint64_t delivery_max_attempts(const struct delivery *d, uint64_t otherwise);
/* Return the id as text, which the first call makes. */
const char *delivery_id(struct delivery *d);
/* Return true if the message has expired, so that it must not be started. */
bool delivery_expired(const struct delivery *d, uint64_t now);
/* Return how long the message had to wait for its not-before when it was
 * received, ns; 0: the time has come, or an attempt has failed. */
uint64_t delivery_ahead(const struct delivery *d, uint64_t now);
/* Return true if the message has to wait in the source for its not-before. A
 * message that has expired, or asks for a wait of more than `most`, does not
 * wait: it dies in its turn, so that no message of its group overtakes it. */
bool delivery_delayed(const struct delivery *d, uint64_t most);
/* Return when the message is due by its header. The values are for the members
 * due_ns, due_boot_ns and delay_ns of struct settle. */
uint64_t delivery_due(const struct delivery *d, uint64_t *boot_ns,
                      uint64_t *delay_ns);
/* Replace the group by the one that the message was stored with. */
void delivery_regroup(struct delivery *d, const char *key, size_t size);

/* How a handler ended. */
enum outcome_kind {
    OUTCOME_VERDICT,     /* it said (or failed to say) what to do */
    OUTCOME_NOT_STARTED, /* it could not be started: not the message's fault */
    OUTCOME_STOPPED,     /* it was stopped, because the worker stops */
    OUTCOME_UNSENT, /* its child exited before it got a byte of the message */
};

struct outcome {
    enum outcome_kind kind;
    enum mqw_verdict verdict;
    bool ran;     /* the handler may have done something */
    bool said;    /* the error is the handler's own words */
    bool delayed; /* a retry waits delay_ns, and not for the backoff */
    char error[OUTCOME_ERROR]; /* "exit 1", "signal 11"; "" when done */
    uint64_t duration_ns;
    uint64_t delay_ns;  /* of a retry, if `delayed` */
    struct usage usage; /* of a handler that is one process for one message;
                         * all other handlers leave it 0 */
    size_t tail_size;
    char tail[OUTCOME_TAIL]; /* end of its stderr */
};

/* Begin the outcome of a run: done, unless a later step changes it. */
static inline void outcome_begin(struct outcome *out)
{
    out->kind = OUTCOME_VERDICT;
    out->verdict = MQW_DONE;
    out->ran = true;
    out->said = false;
    out->delayed = false;
    out->error[0] = '\0';
    out->tail_size = 0;
}

#endif
