/* suspects.c - messages under which the process may have crashed (see
 * suspects.h) */
#include "worker/suspects.h"

#include <errno.h>
#include <stdlib.h>

#include "common/slot.h"

int suspects_add(struct suspects *s, struct slot *slot)
{
    _Atomic(struct slot *) *more =
        reallocarray(s->slots, s->count + 1, sizeof *more);

    if (!more)
        return -ENOMEM;
    s->slots = more;
    atomic_init(&s->slots[s->count++], slot);
    atomic_store(&s->any, true);
    return 0;
}

void suspects_fini(struct suspects *s)
{
    free(s->slots);
    s->slots = NULL;
    s->count = 0;
}

void suspects_forget(struct suspects *s)
{
    atomic_store(&s->any, false);
}

/* suspects_left - the one work item asks when the slot of its last message is
 * free, before it takes the next one */
bool suspects_left(struct suspects *s)
{
    bool left = false;

    if (!atomic_load_explicit(&s->any, memory_order_relaxed))
        return false;
    for (size_t i = 0; i < s->count; i++) {
        struct slot *slot = atomic_load(&s->slots[i]);

        if (slot && slot_word(slot).state == SLOT_FREE)
            atomic_store(&s->slots[i], NULL);
        else if (slot)
            left = true;
    }
    if (!left)
        atomic_store(&s->any, false);
    return left;
}
