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

#include "common/message/error_text.h"
#include "common/message/header.h"
#include "worker/mqworker.h"
#include "worker/rules/message.h"

#define OUTCOME_ERROR ERROR_TEXT
#define OUTCOME_TAIL  4096

struct counters_block; /* common/state/counters.h */
struct group;          /* groups.h */

struct delivery {
    struct message *message;
    struct group *lease; /* of its group; NULL: it has none, or not yet */
    /* Where its end is counted: that of the work item. NULL: it has none. Set
     * once by the maker of the delivery; nothing here changes it. */
    struct counters_block *count;
    unsigned place; /* of the work item; no two that run have the same */
    /* The longest time limit that the message may have by its header, as its
     * source says; set once by the maker, too. NULL: there is no bound. */
    const _Atomic uint64_t *timeout_most;
    uint64_t started_ns; /* wall; when a handler was about to have it */
    uint64_t begun_ns;   /* monotonic: the same, or a few us before */
    struct header header;
    struct header_text group;  /* at NULL: none; else the message's or `key` */
    const unsigned char *body; /* the message's */
    size_t body_size;
    /* enum dead_reason: it is a letter at once, and `why`. BAD_HEADER: all of
     * the message is the body. */
    uint8_t unfit;
    bool repeat;    /* of a letter that was taken already: to drop */
    bool duplicate; /* of `first`, by its unique key: to be discarded */
    /* "" until delivery_id was asked; beside them: all are cleared at once */
    char id_text[ULID_TEXT];
    struct ulid first;          /* of duplicate */
    char why[HEADER_WHY];       /* what is wrong with it */
    char key[HEADER_VALUE_MAX]; /* group of a stored row */
};

/* Look at `m`: header, body, group; if it has no id yet it gets one. A stored
 * message has the group that it was stored with. `separator`: where the group
 * of another one without a header ends; 0: such a message has none. */
void delivery_read(struct delivery *d, struct message *m, char separator);
/* The same, but it is named only if its sender did that. */
void delivery_sort(struct delivery *d, struct message *m, char separator);
/* Inside: its header is read, and was not broken. */
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
/* The short way of a message that has just come from its origin, where no
 * separator is set: true if it has no header. It is not named (message_name).
 */
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
/* The short way of one whose header names its group and says nothing else; with
 * any separator. False: delivery_sort reads it. */
static inline bool delivery_grouped(struct delivery *d, struct message *m)
{
    if (m->group.at || !header_group_alone(m->data, m->size, &d->header))
        return false;
    d->group.at = d->header.group.at; /* of 16 bytes at once it would wait */
    d->group.size = d->header.group.size;
    delivery_begin(d, m);
    return true;
}
/* The same, but without a name. */
void delivery_parse(struct delivery *d, struct message *m, char separator);
/* Return the time limit: the message's own, up to what its source allows, else
 * `otherwise`, which is the worker's and not bounded; UINT64_MAX: none. */
uint64_t delivery_limit_ns(const struct delivery *d, uint64_t otherwise);
/* Return the time limit that the header asks for, in ns. */
uint64_t delivery_limit_asked(const struct delivery *d);
/* After how many failures it is dead: the message's own number, else
 * `otherwise`, which is the worker's. */
uint64_t delivery_max_attempts(const struct delivery *d, uint64_t otherwise);
/* Its id as text; it costs something, so it is made when somebody wants it. */
const char *delivery_id(struct delivery *d);
/* Return true if the message has expired, so that it must not be started. */
bool delivery_expired(const struct delivery *d, uint64_t now);
/* How far its not-before lay ahead when it was received; 0: the time has come,
 * or it waited for it already. */
uint64_t delivery_ahead(const struct delivery *d, uint64_t now);
/* It is to wait in the source. One that waits for nothing, as it has expired
 * already or asks for more than `most`, dies in its turn, and nothing of its
 * group passes it meanwhile. */
bool delivery_delayed(const struct delivery *d, uint64_t most);
/* Return when the message is due, by its header, in the members of struct
 * settle with the same names. */
uint64_t delivery_due(const struct delivery *d, uint64_t *boot_ns,
                      uint64_t *delay_ns);
/* Return a wait from the wall clock's `now`, capped to the range of a
 * source. */
uint64_t delivery_wait_cut(uint64_t now, uint64_t wait);
/* Its group is this one, whatever the message says: it was stored so. */
void delivery_regroup(struct delivery *d, const char *key, size_t size);

/* How a handler ended. */
enum outcome_kind {
    OUTCOME_VERDICT,     /* it said (or failed to say) what to do */
    OUTCOME_NOT_STARTED, /* it never ran, or cannot: not the message's fault */
    OUTCOME_STOPPED,     /* we ended it because the worker stops */
    OUTCOME_UNSENT,      /* its child ended before it had all of it */
};

struct outcome {
    enum outcome_kind kind;
    enum mqw_verdict verdict;
    bool ran;     /* something of it may have happened */
    bool said;    /* the error is the handler's own words */
    bool delayed; /* a retry waits delay_ns, whatever the backoff says */
    char error[OUTCOME_ERROR]; /* "exit 1", "signal 11"; "" when done */
    uint64_t duration_ns;
    uint64_t delay_ns; /* so it is 0, false, where a handler cannot say so */
    size_t tail_size;
    char tail[OUTCOME_TAIL]; /* end of its stderr */
};

#endif
