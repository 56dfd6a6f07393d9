/* untold.c - see untold.h */
#include "worker/hooks/untold.h"

static uint64_t longer(uint64_t wait_ns)
{
    uint64_t next = wait_ns ? 2 * wait_ns : UNTOLD_FIRST_NS;

    return next < UNTOLD_LAST_NS ? next : UNTOLD_LAST_NS;
}

/* find - its place; count: it has none */
static size_t find(const struct untold *u, int64_t n)
{
    size_t i = 0;

    while (i < u->count && u->all[i].n != n)
        i++;
    return i;
}

bool untold_has(const struct untold *u, int64_t n)
{
    return find(u, n) < u->count;
}

uint64_t untold_failed(struct untold *u, int64_t n, uint64_t now_ns)
{
    size_t i = find(u, n);
    struct untold_one *one = &u->all[i];

    if (i == UNTOLD_MOST)
        return 0;
    if (i == u->count) {
        u->count++;
        *one = (struct untold_one){.n = n};
    } else {
        u->pause_ns = longer(u->pause_ns);
        u->paused_until_ns = ns_add(now_ns, u->pause_ns);
    }
    one->wait_ns = longer(one->wait_ns);
    one->due_ns = ns_add(now_ns, one->wait_ns);
    return one->wait_ns;
}

void untold_moved(struct untold *u, int64_t n, int64_t next)
{
    size_t i = find(u, n);

    if (i == u->count)
        return;
    if (next)
        u->all[i].n = next;
    else
        u->all[i] = u->all[--u->count];
}

void untold_told(struct untold *u, int64_t n)
{
    untold_moved(u, n, 0);
    u->pause_ns = u->paused_until_ns = 0;
}

int64_t untold_first(const struct untold *u, uint64_t *due_ns)
{
    const struct untold_one *first = NULL;

    for (size_t i = 0; i < u->count; i++)
        if (!first || u->all[i].due_ns < first->due_ns)
            first = &u->all[i];
    *due_ns = !first                               ? UINT64_MAX
              : first->due_ns > u->paused_until_ns ? first->due_ns
                                                   : u->paused_until_ns;
    return first ? first->n : 0;
}
