/* lent.h - the message in a slot, as it is lent, and its row in the store
 *
 * WHAT   One struct message for each slot. Carries out in the slot what is
 *        asked of the message's owner, and copies a message from its slot to a
 *        row and back.
 * WHO    The thread that owns the slot.
 * OWNS   Nothing; the array is source_mq's.
 * FAILS  Rows: as each says.
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
    int64_t spooled;            /* key of its row in the spool; 0: none */
    char key[HEADER_VALUE_MAX]; /* the group that m.group points to */
};

/* Marks that a message has in its slot, in its row and for the worker. */
#define LENT_MARKS (SLOT_REDELIVERED | SLOT_LENGTH_INFERRED)

static inline struct lent *lent_of(const struct message *m)
{
    return CONTAINER_OF((struct message *)m, struct lent, m);
}
/* Set what does not change while the message is in that slot. `forwarded`: no
 * handler has it that could be to blame for a crash. */
void lent_init(struct lent *l, struct slot *slot, bool forwarded);
/* Set the rest from a HELD slot. The message has no group but what its bytes
 * say. */
void lent_fill(struct lent *l);
/* Do the same for a message that was just received. */
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
/* Set the group that a row names. */
void lent_group(struct lent *l, const char *key, size_t size);
/* Note that the message is not running any more. */
void lent_unrun(struct message *m, bool may_have_run);

/* Fill a row with what the store keeps of a message; it borrows the slot's body
 * and the group. */
void row_make(struct store_row *row, const struct lent *l,
              struct header_text group, size_t header_size);
/* Make a dead letter of a message that is too large to run. */
int row_too_large(struct source_mq *q, struct store_row *m);
/* Load a stored message into a FREE slot, which is HELD after it. -ENOENT: the
 * row is gone or in another state; -EMSGSIZE: it is larger than a slot, and a
 * dead letter now; or the store's error. The slot is FREE then. */
int row_restore(struct source_mq *q, int64_t row, enum store_state state,
                struct lent *l);

#endif
