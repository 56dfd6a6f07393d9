/* mq_groups.c - what the store knows of groups (see source_mq.h) */
#include "worker/source/mq/source_mq.h"

#include <errno.h>

#include "worker/source/mq/group_hold_watch.h"

/* head_seq - of the row that a group waits for; 0: it is gone */
static int head_seq(struct source_mq *q, int64_t row, uint64_t *seq)
{
    struct store_row m = {0};
    int err = row ? store_get(q->store, row, &m, NULL, 0, NULL) : 0;

    *seq = m.receive_seq;
    return err == -ENOENT ? 0 : err;
}

int mq_groups(struct source *s,
              int (*visit)(void *arg, const struct source_group *group),
              void *arg)
{
    struct source_mq *q = source_mq_of(s);
    char key[HEADER_VALUE_MAX];
    struct store_group g;
    size_t size = 0;
    int err;

    while ((err = store_next_group(q->store, key, &size, &g)) == 0) {
        struct source_group one = {.key = {.at = key, .size = size},
                                   .parked = g.parked,
                                   .letters = g.letters};

        err = head_seq(q, g.head, &one.head);
        if (!err)
            err = visit(arg, &one);
        if (err)
            return err;
    }
    return err == -ENOENT ? 0 : err;
}

int mq_letters(struct source *s, struct header_text key)
{
    int64_t row;
    int err =
        store_group_letter(source_mq_of(s)->store, key.at, key.size, &row);

    return err == -ENOENT ? NO : err ? err : YES;
}

void mq_watch(struct source *s, bool soon)
{
    struct source_mq *q = source_mq_of(s);

    if (!q->hold_watch)
        return;
    if (soon)
        group_hold_watch_again(q->hold_watch);
    else
        group_hold_watch_watch(q->hold_watch);
}
