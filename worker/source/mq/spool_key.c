/* spool_key.c - keys of unique messages (see spool_inner.h)
 *
 * A key is asked for in the commit that brings the message to the disk, so one
 * that has a row has its key, and no other write is needed. Each commit takes
 * all that wait, in the order of their receipt.
 */
#include "worker/source/mq/spool_inner.h"

#include "common/base/clock.h"

/* unique_of - what its header says; a letter that is sent again had its key */
static bool unique_of(const struct message *m, struct header *h)
{
    char why[HEADER_WHY];

    return header_found(m->data, m->size) &&
           header_parse(m->data, m->size, h, why) == 0 &&
           h->fields & HEADER_UNIQUE && !(h->fields & HEADER_LETTER);
}

bool spool_unique(const struct lent *l)
{
    struct header h;

    return unique_of(&l->m, &h);
}

/* spool_key_ask - a duplicate of it names its id */
void spool_key_ask(struct store_key *key, struct lent *l)
{
    struct message *m = &l->m;
    uint64_t ms = HEADER_UNIQUE_MS, most = UINT64_MAX / NS_PER_MS;
    uint64_t from = m->received_ns ? m->received_ns : clock_wall_ns();
    struct header h = {0};

    (void)unique_of(m, &h);
    if (h.fields & HEADER_ID && !message_named(m))
        *m->id = h.id;
    if (h.fields & HEADER_UNIQUE_FOR)
        ms = h.unique_for_ms < most ? h.unique_for_ms : most;
    *key = (struct store_key){.text = h.unique.at,
                              .size = h.unique.size,
                              .seq = m->seq,
                              .id = *message_name(m),
                              .received_ns = from,
                              .until_ns = ns_add(from, ms * NS_PER_MS)};
}
