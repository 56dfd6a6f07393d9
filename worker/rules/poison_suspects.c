/* poison_suspects.c - messages under which the process may have crashed (see
 * poison_suspects.h) */
#include "worker/rules/poison_suspects.h"

#include <errno.h>
#include <stdlib.h>

int suspects_add(struct suspects *s, uint64_t seq)
{
    _Atomic uint64_t *more = reallocarray(s->seqs, s->count + 1, sizeof *more);

    if (!more)
        return -ENOMEM;
    s->seqs = more;
    atomic_init(&more[s->count++], seq);
    atomic_store(&s->any, true);
    return 0;
}

void suspects_fini(struct suspects *s)
{
    free(s->seqs);
    s->seqs = NULL;
    s->count = 0;
}

void suspects_one_done(struct suspects *s, uint64_t seq)
{
    for (size_t i = 0; i < s->count; i++)
        if (atomic_load(&s->seqs[i]) == seq)
            atomic_store(&s->seqs[i], 0);
}

void suspects_forget(struct suspects *s)
{
    atomic_store(&s->any, false);
}

bool suspects_left(struct suspects *s)
{
    if (!atomic_load_explicit(&s->any, memory_order_relaxed))
        return false;
    for (size_t i = 0; i < s->count; i++)
        if (atomic_load(&s->seqs[i]))
            return true;
    atomic_store(&s->any, false);
    return false;
}
