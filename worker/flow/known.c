/* known.c - see known.h */
#include "worker/flow/known.h"

#include <errno.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define KNOWN (HEADER_LETTER | HEADER_UNIQUE)

/* link - one that says it is a letter: whether it is, and whether it is a
 * second copy of one */
static int link(struct flow *f, struct delivery *d, bool *letter)
{
    int is = f->source->ops->link(f->source, d->message, &d->header);

    d->repeat = is == LINK_REPEAT;
    *letter = is == LINK_LETTER;
    return is < 0 ? is : 0;
}

/* not_looked_at - it runs as if it had no key; said once */
static int not_looked_at(struct flow *f)
{
    if (!atomic_exchange(&f->unique_told, true))
        log_warn("unique_not_looked_at", F_STR("queue", f->set->queue),
                 F_STR("next", "messages with a unique line run as if they had "
                               "none: there are keys for a POSIX queue only, "
                               "none for a broker's"));
    return 0;
}

/* claim - claim the message's unique key for its time. A message from the store
 * claimed its key before it was stored, and the key may have expired since. A
 * replayed letter gave its key back when it died: the letter claims the key
 * again if it is free, and runs in any case.
 */
static int claim(struct flow *f, struct delivery *d, bool letter)
{
    uint64_t ms = d->header.fields & HEADER_UNIQUE_FOR ? d->header.unique_for_ms
                                                       : HEADER_UNIQUE_MS;
    uint64_t most = UINT64_MAX / NS_PER_MS;
    int err;

    if (!letter && d->message->flags & (MESSAGE_STORED | MESSAGE_KEYED))
        return 0;
    if (!f->source->ops->claim)
        return not_looked_at(f);
    (void)message_name(d->message); /* a duplicate of it names it */
    err = f->source->ops->claim(f->source, d->message, d->header.unique,
                                (ms < most ? ms : most) * NS_PER_MS, &d->first);
    if (err == -EOPNOTSUPP)
        return not_looked_at(f);
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
        err = link(f, d, &letter);
    if (!err && !d->repeat && d->header.fields & HEADER_UNIQUE)
        err = claim(f, d, letter);
    return err;
}
