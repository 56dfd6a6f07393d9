/* lent.c - the message in a slot, as it is lent, and its row (see lent.h) */
#include "worker/source/mq/lent.h"

#include <errno.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "worker/source/mq/source_mq.h"

/* Note that the message is running. A crash while a message is forwarded is not
 * the message's fault, so its slot then says that others ran beside it: a later
 * worker with a command counts the crash, but makes no dead letter of it. */
static void lent_run(struct message *m, uint64_t started_ns)
{
    const struct lent *l = lent_of(m);

    slot_run(l->slot, started_ns);
    if (l->forwarded)
        slot_mark(l->slot, SLOT_BESIDE);
}

/* Note the handler's processes. slot_run has set these fields to 0. Crash
 * before the group is written: recovery finds the process by its mark. */
static void handler_note(struct message *m, uint64_t mark, uint64_t start,
                         pid_t group)
{
    struct slot *slot = lent_of(m)->slot;

    slot->handler_mark = mark;
    slot->handler_start = start;
    FAULT_POINT("handler_before_group");
    atomic_store_explicit(&slot->handler_pgid, group, memory_order_release);
}

static const struct message_ops slot_ops = {
    .run = lent_run,
    .handler = handler_note,
    .unrun = lent_unrun,
};

_Static_assert((int)MESSAGE_REDELIVERED == (int)SLOT_REDELIVERED &&
                   (int)MESSAGE_LENGTH_INFERRED == (int)SLOT_LENGTH_INFERRED &&
                   (int)STORE_REDELIVERED == (int)SLOT_REDELIVERED &&
                   (int)STORE_LENGTH_INFERRED == (int)SLOT_LENGTH_INFERRED,
               "LENT_MARKS are the same everywhere");

void lent_init(struct lent *l, struct slot *slot, bool forwarded)
{
    l->slot = slot;
    l->forwarded = forwarded;
    l->m.ops = &slot_ops;
    l->m.data = slot->body;
    l->m.id = &slot->id;
}

void lent_fill(struct lent *l)
{
    struct slot *slot = l->slot;
    struct slot_word w = slot_word(slot);
    struct message *m = &l->m;

    m->size = atomic_load_explicit(&slot->length, memory_order_relaxed);
    m->seq = slot->seq;
    m->received_ns = slot->received_ns;
    m->due_ns = 0;
    m->priority = slot->priority;
    m->failures = slot->failures;
    m->crashes = w.crashes;
    m->flags = w.flags & LENT_MARKS;
    if (slot->row)
        m->flags |= MESSAGE_STORED;
    m->group = (struct header_text){0};
}

void lent_group(struct lent *l, const char *key, size_t size)
{
    memcpy(l->key, key, size);
    l->m.group = (struct header_text){.at = l->key, .size = size};
}

void lent_unrun(struct message *m, bool may_have_run)
{
    slot_unrun(lent_of(m)->slot, may_have_run);
    if (may_have_run)
        m->flags |= MESSAGE_REDELIVERED;
}

/* ---- the row of a message ---- */

void row_make(struct store_row *row, const struct lent *l,
              struct header_text group, size_t header_size)
{
    struct slot *slot = l->slot;
    struct slot_word w = slot_word(slot);

    *row = (struct store_row){
        .row = slot->row,
        .receive_seq = slot->seq,
        .id = *message_name((struct message *)&l->m),
        .priority = slot->priority,
        .attempts = slot->failures,
        .crashes = w.crashes,
        .flags = w.flags & LENT_MARKS,
        .group = group.at,
        .group_size = group.size,
        .first_received_ns = slot->received_ns,
        .data = slot->body,
        .size = atomic_load(&slot->length),
        .header_size = header_size,
        .spool = l->spooled,
        .slot = slot,
        .retire = slot_retire,
    };
    if (l->spooled && l->m.flags & MESSAGE_CANCELLED)
        row->flags |= STORE_CANCELLED;
}

int row_too_large(struct source_mq *q, struct store_row *m)
{
    int64_t row = m->row;
    int err;

    m->state = STORE_DEAD;
    m->reason = REASON_REJECTED;
    m->error = "larger than the queue takes now";
    m->died_ns = clock_wall_ns();
    m->hook = q->set->on_dead != NULL;
    err = store_put(q->store, m, NULL, &row);
    if (err)
        return err;
    q->events.died(
        q->events.flow,
        &(struct source_death){.id = m->id,
                               .seq = m->receive_seq,
                               .letter = row,
                               .group = {.at = m->group, .size = m->group_size},
                               .reason = m->reason,
                               .error = m->error,
                               .died_ns = m->died_ns,
                               .size = m->size,
                               .allowed = custody_body_bytes(q->custody)});
    source_mq_died(q);
    return 0;
}

int row_restore(struct source_mq *q, int64_t row, enum store_state state,
                struct lent *l)
{
    char group[HEADER_VALUE_MAX + 1];
    struct slot *slot = l->slot;
    struct store_row m;
    int err;

    /* The whole body may be written now. slot_arm fills it again before the
     * next message is received. */
    slot->dirty = (uint32_t)custody_body_bytes(q->custody);
    err = store_get(q->store, row, &m, slot->body, slot->dirty, group);
    if (err == -EMSGSIZE) {
        err = store_get(q->store, row, &m, NULL, 0, group);
        if (!err)
            err = row_too_large(q, &m);
        return err ? err : -EMSGSIZE;
    }
    if (err)
        return err;
    if (m.state != state)
        return -ENOENT;
    slot_hold(slot, &(struct slot_meta){.row = m.row,
                                        .length = (uint32_t)m.size,
                                        .priority = m.priority,
                                        .failures = m.attempts,
                                        .crashes = m.crashes,
                                        .flags = m.flags & LENT_MARKS,
                                        .seq = m.receive_seq,
                                        .received_ns = m.first_received_ns,
                                        .id = m.id});
    lent_fill(l);
    if (state == STORE_WAITING)
        l->m.due_ns = m.due_ns;
    if (m.flags & STORE_FRONT)
        l->m.flags |= MESSAGE_FRONT;
    if (m.flags & STORE_CANCELLED)
        l->m.flags |= MESSAGE_CANCELLED;
    if (m.group)
        lent_group(l, group, m.group_size);
    return 0;
}
