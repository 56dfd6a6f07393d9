/* coprocess_cancel.c - open messages that an operator has ended (see
 * coprocess_inner.h)
 *
 * A message and its child end together, as at a time limit. The thread of the
 * coprocess looks when all answers that it has read were dealt with: one that
 * was answered in time is not cancelled any more.
 *
 * Crash before the verdict is durable: the message runs again, and nobody was
 * told that it was cancelled.
 */
#include "worker/handlers/coprocess_inner.h"

#include <string.h>
#include <bsd/string.h>

#include "common/base/log.h"

/* cancel - one order; true: its message is open here */
static bool cancel(struct coprocess *l, const char *id)
{
    struct open_message *m;

    TAILQ_FOREACH (m, &l->open, link)
        if (!m->cancelled && !m->heard && strcmp(delivery_id(m->d), id) == 0)
            break;
    if (!m)
        return false;
    m->cancelled = true;
    log_info("handler_cancelled", F_STR("msg", id), F_INT("pid", l->child.pid),
             F_UINT("open", l->count),
             F_DURATION("kill_after", l->stream->set->kill_after_ns));
    return true;
}

void coprocess_cancels_forget(struct coprocess *l)
{
    struct stream_cancels *c = &l->stream->cancels;

    pthread_mutex_lock(&c->mtx);
    l->cancel_seen = c->count;
    pthread_mutex_unlock(&c->mtx);
}

void coprocess_cancels(struct coprocess *l)
{
    struct stream_cancels *c = &l->stream->cancels;
    char ids[STREAM_CANCELS][ULID_TEXT];
    bool found = false;
    size_t n = 0;

    l->ordered = false;
    pthread_mutex_lock(&c->mtx);
    if (c->count - l->cancel_seen > STREAM_CANCELS)
        l->cancel_seen = c->count - STREAM_CANCELS;
    for (; l->cancel_seen < c->count; l->cancel_seen++)
        memcpy(ids[n++], c->ids[l->cancel_seen % STREAM_CANCELS], ULID_TEXT);
    pthread_mutex_unlock(&c->mtx);
    for (size_t i = 0; i < n; i++)
        found |= cancel(l, ids[i]);
    if (!found || !coprocess_works(l))
        return;
    l->why = "cancelled";
    strlcpy(l->cause, "ended for another message that was cancelled",
            sizeof l->cause);
    coprocess_step(l, COPROCESS_END);
}
