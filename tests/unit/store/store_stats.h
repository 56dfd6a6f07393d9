/* store_stats.h - count the commits of a store and its waiting writers
 *
 * WHAT   The numbers are in fields that store.h does not show, so this file
 *        compiles store.c into a test.
 * WHO    Tests, on any thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef TESTS_UNIT_STORE_STORE_STATS_H
#define TESTS_UNIT_STORE_STORE_STATS_H

/* NOLINTNEXTLINE(bugprone-suspicious-include): it looks inside */
#include "common/store/store.c"

struct store_stats {
    uint64_t commits; /* transactions since the store was opened */
    unsigned waiting; /* calls that are waiting for a commit now */
};

static inline void store_stats(struct store *s, struct store_stats *out)
{
    const struct op *op;

    pthread_mutex_lock(&s->mtx);
    *out = (struct store_stats){.commits = s->commits};
    TAILQ_FOREACH (op, &s->queue, link)
        out->waiting++;
    pthread_mutex_unlock(&s->mtx);
}

#endif
