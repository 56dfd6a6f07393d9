/* known.c - see known.h */
#include "worker/flow/known.h"

#include <errno.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define KNOWN (HEADER_LETTER | HEADER_UNIQUE)

/* Ask the source whether a message whose header says so is a letter, or a
 * second copy of one. */
static int letter_look(struct flow *f, struct delivery *d, bool *letter)
{
    const struct source_local_ops *local = f->source->local;
    int is = local ? local->link(f->source, d->message, &d->header) : LINK_NONE;

    d->repeat = is == LINK_REPEAT;
    *letter = is == LINK_LETTER;
    return is < 0 ? is : 0;
}

/* Say once that messages run as if they had no key. */
static int keys_ignored(struct flow *f)
{
    if (!atomic_exchange(&f->unique_told, true))
        log_warn("unique_not_looked_at", F_STR("queue", f->set->queue),
                 F_STR("next", "messages with a unique line run as if they had "
                               "none: there are keys for a POSIX queue only, "
                               "none for a broker's"));
    return 0;
}

/* Claim the message's unique key for its time. A message from the store
 * claimed its key before it was stored, and the key may have expired since. A
 * replayed letter gave its key back when it died: the letter claims the key
 * again if it is free, and runs in any case.
 */
static int key_claim(struct flow *f, struct delivery *d, bool letter)
{
    uint64_t ms = d->header.fields & HEADER_UNIQUE_FOR ? d->header.unique_for_ms
                                                       : HEADER_UNIQUE_MS;
    uint64_t most = UINT64_MAX / NS_PER_MS;
    int err;

    if (!letter && d->message->flags & (MESSAGE_STORED | MESSAGE_KEYED))
        return 0;
    if (!f->source->local)
        return keys_ignored(f);
    (void)message_name(d->message); /* a duplicate of it names it */
    err =
        f->source->local->claim(f->source, d->message, d->header.unique,
                                (ms < most ? ms : most) * NS_PER_MS, &d->first);
    if (err == -EOPNOTSUPP)
        return keys_ignored(f);
    d->duplicate = err == -EEXIST && !letter;
    return err == -EEXIST ? 0 : err;
}

int known_look(struct flow *f, struct delivery *d)
{
    bool letter = false;
    int err = 0;

    if (!(d->header.fields & KNOWN))
        return 0;
    if (d->header.fields & HEADER_LETTER)
        err = letter_look(f, d, &letter);
    if (!err && !d->repeat && d->header.fields & HEADER_UNIQUE)
        err = key_claim(f, d, letter);
    return err;
}
