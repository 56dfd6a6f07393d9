/* lent.c - the message in a slot, as it is lent (see lent.h) */
#include "worker/source/mq/lent.h"

#include <string.h>

static void run(struct message *m, uint64_t started_ns)
{
    slot_run(lent_of(m)->slot, started_ns);
}

/* name_handler - slot_run has set both of them to 0 */
static void name_handler(struct message *m, uint64_t mark, uint64_t start)
{
    struct slot *slot = lent_of(m)->slot;

    slot->handler_mark = mark;
    slot->handler_start = start;
}

/* name_group - after the start time: recovery kills no group without that */
static void name_group(struct message *m, pid_t group)
{
    atomic_store_explicit(&lent_of(m)->slot->handler_pgid, group,
                          memory_order_release);
}

static void unrun(struct message *m, bool may_have_run)
{
    lent_unrun(lent_of(m), may_have_run);
}

static const struct message_ops slot_ops = {
    .run = run,
    .handler = name_handler,
    .handler_group = name_group,
    .unrun = unrun,
};

_Static_assert((int)MESSAGE_REDELIVERED == (int)SLOT_REDELIVERED &&
                   (int)MESSAGE_LENGTH_INFERRED == (int)SLOT_LENGTH_INFERRED,
               "a slot's flags are a message's");

void lent_init(struct lent *l, struct slot *slot)
{
    l->slot = slot;
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
    m->priority = slot->priority;
    m->failures = slot->failures;
    m->crashes = w.crashes;
    m->flags = w.flags & (SLOT_REDELIVERED | SLOT_LENGTH_INFERRED);
    if (slot->row)
        m->flags |= MESSAGE_STORED;
    m->group = (struct header_text){0};
}

void lent_group(struct lent *l, const char *key, size_t size)
{
    memcpy(l->key, key, size);
    l->m.group = (struct header_text){.at = l->key, .size = size};
}

void lent_link(struct lent *l, int64_t row)
{
    slot_link(l->slot, row);
    l->m.flags |= MESSAGE_STORED;
}

void lent_mark(struct lent *l)
{
    slot_mark(l->slot);
    l->m.flags |= MESSAGE_REDELIVERED;
}

void lent_unrun(struct lent *l, bool may_have_run)
{
    slot_unrun(l->slot, may_have_run);
    if (may_have_run)
        l->m.flags |= MESSAGE_REDELIVERED;
}
