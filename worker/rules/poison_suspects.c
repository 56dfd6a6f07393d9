/* poison_suspects.c - messages under which the process may have crashed (see
 * poison_suspects.h) */
#include "worker/rules/poison_suspects.h"

#include <errno.h>
#include <stdlib.h>

#include "common/custody/slot.h"

int suspects_add(struct suspects *s, struct slot *slot, int64_t row)
{
    struct suspect *more = reallocarray(s->list, s->count + 1, sizeof *more);

    if (!more)
        return -ENOMEM;
    s->list = more;
    atomic_init(&more[s->count].slot, slot);
    atomic_init(&more[s->count].row, slot ? 0 : row);
    s->count++;
    atomic_store(&s->any, true);
    return 0;
}

void suspects_fini(struct suspects *s)
{
    free(s->list);
    s->list = NULL;
    s->count = 0;
}

void suspects_done(struct suspects *s, int64_t row)
{
    if (!atomic_load_explicit(&s->any, memory_order_relaxed))
        return;
    for (size_t i = 0; i < s->count; i++)
        if (atomic_load(&s->list[i].row) == row)
            atomic_store(&s->list[i].row, 0);
}

void suspects_forget(struct suspects *s)
{
    atomic_store(&s->any, false);
}

/* slot_left - whether its slot still has the message; asked when the slot of
 * the last message is free, before it has the next one */
static bool slot_left(struct suspect *one)
{
    struct slot *slot = atomic_load(&one->slot);

    if (!slot)
        return false;
    if (slot_word(slot).state != SLOT_FREE)
        return true;
    atomic_store(&one->slot, NULL);
    return false;
}

bool suspects_left(struct suspects *s)
{
    bool left = false;

    if (!atomic_load_explicit(&s->any, memory_order_relaxed))
        return false;
    for (size_t i = 0; i < s->count; i++)
        if (slot_left(&s->list[i]) || atomic_load(&s->list[i].row))
            left = true;
    if (!left)
        atomic_store(&s->any, false);
    return left;
}
