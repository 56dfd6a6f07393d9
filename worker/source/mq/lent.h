/* lent.h - the message in a slot of custody, as the worker sees it
 *
 * WHAT   One struct message for each slot. Its operations write to the slot.
 *        The functions below also copy a message from its slot to a row of the
 *        store, and back.
 * WHO    The other files of this room, on the thread that owns the slot. The
 *        worker's threads call the operations through message_ops.
 * OWNS   Nothing; the array belongs to source_mq.
 * FAILS  row_too_large, row_restore: -errno, as stated there.
 */
#ifndef WORKER_SOURCE_MQ_LENT_H
#define WORKER_SOURCE_MQ_LENT_H

#include "common/base/basics.h"
#include "common/custody/slot.h"
#include "common/store/store.h"
#include "worker/rules/message.h"

struct source_mq;

struct lent {
    struct message m;
    struct slot *slot;
    bool forwarded;             /* no handler can be to blame for a crash */
    int64_t spooled;            /* key of its row in the spool; 0: none */
    char key[HEADER_VALUE_MAX]; /* the group that m.group points to */
};

/* Flags with the same bits in a slot, in a row and in a message. */
#define LENT_MARKS (SLOT_REDELIVERED | SLOT_LENGTH_INFERRED)

static inline struct lent *lent_of(const struct message *m)
{
    return CONTAINER_OF((struct message *)m, struct lent, m);
}
/* Set the fields that do not change while the message is in that slot. */
void lent_init(struct lent *l, struct slot *slot, bool forwarded);
/* Set the other fields from a HELD slot. m.group stays empty, which means the
 * group of the header, until lent_group sets it. */
void lent_fill(struct lent *l);
/* Set the other fields of a message that was just received. */
static inline void lent_fresh(struct lent *l, size_t size, uint64_t received_ns)
{
    const struct slot *slot = l->slot;
    struct message *m = &l->m;

    m->size = size;
    m->seq = slot->seq;
    m->received_ns = received_ns;
    m->due_ns = 0;
    m->priority = slot->priority;
    m->failures = m->crashes = 0;
    m->flags = 0;
    m->group = (struct header_text){0};
}
/* Set the message's group to the one that its row names. */
void lent_group(struct lent *l, const char *key, size_t size);
/* Note that the message is not running any more. Marks it as redelivered if a
 * handler may have seen it. */
void lent_unrun(struct message *m, bool may_have_run);

/* Fill a row with what the store keeps of a message. The row borrows the slot's
 * body and the group. */
void row_make(struct store_row *row, const struct lent *l,
              struct header_text group, size_t header_size);
/* Make a dead letter of a stored message that is larger than a slot, so that no
 * handler can get it. */
int row_too_large(struct source_mq *q, struct store_row *m);
/* Load a stored message into a FREE slot, which becomes HELD. After an error
 * the slot is FREE: -ENOENT if the row is gone or not in `state`, -EMSGSIZE if
 * it was larger than a slot and died, or the store's error. */
int row_restore(struct source_mq *q, int64_t row, enum store_state state,
                struct lent *l);

#endif
