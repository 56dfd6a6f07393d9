/* delivery_read.c - the message in a slot, as it is lent (see
 * delivery_read.h) */
#include "worker/source/mq/delivery_read.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/container.h"

/* slot_of - a message that is lent is a delivery's */
static struct slot *slot_of(struct message *m)
{
    return CONTAINER_OF(m, struct delivery, message)->slot;
}

/* name_handler - slot_run has set both of them to 0 */
static void name_handler(struct message *m, uint64_t mark, uint64_t start)
{
    struct slot *slot = slot_of(m);

    slot->handler_mark = mark;
    slot->handler_start = start;
}

/* name_group - after the start time: recovery kills no group without that */
static void name_group(struct message *m, pid_t group)
{
    atomic_store_explicit(&slot_of(m)->handler_pgid, group,
                          memory_order_release);
}

static void run(struct message *m, uint64_t started_ns)
{
    slot_run(slot_of(m), started_ns);
}

static void unrun(struct message *m, bool may_have_run)
{
    slot_unrun(slot_of(m), may_have_run);
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

void message_read(struct message *m, struct slot *slot, struct slot_word word)
{
    *m = (struct message){
        .ops = &slot_ops,
        .data = slot->body,
        .size = atomic_load_explicit(&slot->length, memory_order_relaxed),
        .id = &slot->id,
        .seq = slot->seq,
        .received_ns = slot->received_ns,
        .priority = slot->priority,
        .failures = slot->failures,
        .flags = word.flags & (SLOT_REDELIVERED | SLOT_LENGTH_INFERRED),
    };
}

/* has_id - whether the message was named before */
static bool has_id(const struct message *m)
{
    static const struct ulid none;

    return memcmp(m->id, &none, sizeof none) != 0;
}

/* delivery_read - as delivery_parse, and it has a name
 * Crash before the id is in the slot: the next run names the message again,
 * and nobody has seen the other name.
 */
void delivery_read(struct delivery *d, struct slot *slot, char separator)
{
    struct message *m = &d->message;

    d->slot = slot;
    message_read(m, slot, slot_word(slot));
    delivery_parse(d, separator);
    if (has_id(m))
        return;
    *m->id = d->header.fields & HEADER_ID
                 ? d->header.id
                 : ulid_make(m->received_ns ? m->received_ns : clock_wall_ns());
}

void delivery_mark(struct delivery *d)
{
    slot_mark(d->slot);
    d->message.flags |= MESSAGE_REDELIVERED;
}
