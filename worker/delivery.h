/* delivery.h - one message on its way through a handler
 *
 * WHAT   The message as a handler sees it, and how the handler ended.
 * WHO    One pool thread at a time.
 * OWNS   The slot it names, until settled. Views point into the slot.
 * FAILS  Never.
 */
#ifndef WORKER_DELIVERY_H
#define WORKER_DELIVERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/header.h"
#include "common/slot.h"
#include "worker/mqworker.h"

#define OUTCOME_ERROR 160
#define OUTCOME_TAIL  4096

struct delivery {
    struct slot *slot;
    struct header header;
    const unsigned char *body; /* in the slot */
    size_t body_size;
    char id[ULID_TEXT];
};

/* Look at a HELD slot: header, id (assigned and written to the slot if there is
 * none yet), body. False: the header is broken, `why` says how; then the whole
 * message is the body. */
bool delivery_read(struct delivery *d, struct slot *slot, char why[HEADER_WHY]);

/* How a handler ended. */
enum outcome_kind {
    OUTCOME_VERDICT,     /* it said (or failed to say) what to do */
    OUTCOME_NOT_STARTED, /* it never ran, or cannot: not the message's fault */
    OUTCOME_STOPPED,     /* we ended it because the worker stops */
};

struct outcome {
    enum outcome_kind kind;
    enum mqw_verdict verdict;
    bool ran;                  /* something of it may have happened */
    char error[OUTCOME_ERROR]; /* "exit 1", "signal 11"; "" when done */
    uint64_t duration_ns;
    size_t tail_size;
    char tail[OUTCOME_TAIL]; /* end of its stderr */
};

#endif
