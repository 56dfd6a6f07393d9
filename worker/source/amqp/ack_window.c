/* ack_window.c - see ack_window.h */
#include "worker/source/amqp/ack_window.h"

#include <string.h>

void ack_window_begin(struct ack_window *w)
{
    *w = (struct ack_window){.low = 1, .next = 1};
}

void ack_window_delivered(struct ack_window *w, uint64_t tag)
{
    w->next = tag + 1;
    w->open++;
}

static uint64_t *word_of(struct ack_window *w, uint64_t tag)
{
    return &w->done[tag % ACK_WINDOW / 64];
}

/* begin_again - from what is still to come, as this tag does not fit */
static void begin_again(struct ack_window *w)
{
    w->low = w->next;
    w->behind = w->open;
    memset(w->done, 0, sizeof w->done);
}

static void mark(struct ack_window *w, uint64_t tag)
{
    w->open--;
    if (tag < w->low)
        w->behind--;
    else if (tag - w->low < ACK_WINDOW)
        *word_of(w, tag) |= UINT64_C(1) << tag % 64;
    else
        begin_again(w);
}

/* advance - `low` is the first that is open again; what is passed is free for
 * tags to come */
static void advance(struct ack_window *w)
{
    while (w->low < w->next && *word_of(w, w->low) & UINT64_C(1)
                                                         << w->low % 64) {
        *word_of(w, w->low) &= ~(UINT64_C(1) << w->low % 64);
        w->low++;
    }
}

/* ack_window_send - the broker knows no tag that it has heard of before, so
 * the one that speaks for others is of these */
int ack_window_send(struct ack_window *w, const uint64_t *tags, size_t n,
                    ack_send *tell, void *arg)
{
    size_t i = 0;
    int err = 0;

    for (size_t k = 0; k < n; k++)
        mark(w, tags[k]);
    if (w->behind == 0) {
        advance(w);
        while (i < n && tags[i] < w->low)
            i++;
        if (i > 0)
            err = tell(arg, tags[i - 1], i > 1);
    }
    for (; i < n && !err; i++)
        err = tell(arg, tags[i], false);
    return err;
}
