/* delivery.c - read a message's header, and its limits and times (see message.h
 * and delivery.h) */
#include "worker/rules/delivery.h"

#include <pthread.h>
#include <string.h>

#include "common/base/clock.h"

/* Held while a message gets its id, because the thread of its handler and the
 * thread of its time limit may both call message_name. */
static pthread_mutex_t name_mtx = PTHREAD_MUTEX_INITIALIZER;

/* Crash before the id is in the source's memory: the next run makes another id.
 * That does no harm, because the first id was never shown. */
const struct ulid *message_name(struct message *m)
{
    pthread_mutex_lock(&name_mtx);
    if (!message_named(m))
        *m->id = ulid_make(m->received_ns ? m->received_ns : clock_wall_ns());
    pthread_mutex_unlock(&name_mtx);
    return m->id;
}

void delivery_parse(struct delivery *d, struct message *m, char separator)
{
    d->message = m;
    d->lease = NULL;
    d->group = m->group;
    d->repeat = d->duplicate = false;
    d->unfit = REASON_NONE;
    if (header_parse(m->data, m->size, &d->header, d->why) < 0) {
        d->unfit = REASON_BAD_HEADER;
        d->header.bytes = d->header.fields = d->header.x_count = 0;
    }
    d->id_text[0] = '\0';
    d->body = m->data + d->header.bytes;
    d->body_size = m->size - d->header.bytes;
    if (d->header.fields & HEADER_RESENT)
        m->flags |= MESSAGE_REDELIVERED;
    if (m->group.at)
        return;
    if (d->header.fields & HEADER_GROUP)
        d->group = d->header.group;
    else if (separator && !d->unfit && d->header.bytes == 0 &&
             !(m->flags & MESSAGE_STORED) &&
             header_group_raw(d->body, d->body_size, separator, &d->group,
                              d->why) < 0)
        d->unfit = REASON_BAD_HEADER;
}

void delivery_sort(struct delivery *d, struct message *m, char separator)
{
    delivery_parse(d, m, separator);
    if (d->header.fields & HEADER_ID && !message_named(m))
        *m->id = d->header.id;
}

void delivery_read(struct delivery *d, struct message *m, char separator)
{
    delivery_sort(d, m, separator);
    (void)message_name(m);
}

const char *delivery_id(struct delivery *d)
{
    return d->id_text[0] ? d->id_text
                         : ulid_print(*message_name(d->message), d->id_text);
}

uint64_t delivery_limit_asked(const struct delivery *d)
{
    uint64_t ms = d->header.timeout_ms;

    return ms < UINT64_MAX / NS_PER_MS ? ms * NS_PER_MS : UINT64_MAX;
}

uint64_t delivery_limit_ns(const struct delivery *d, uint64_t otherwise)
{
    uint64_t asks, most;

    if (!(d->header.fields & HEADER_TIMEOUT))
        return otherwise;
    asks = delivery_limit_asked(d);
    most = d->timeout_most ? atomic_load(d->timeout_most) : UINT64_MAX;
    return asks < most ? asks : most;
}

uint64_t delivery_max_attempts(const struct delivery *d, uint64_t otherwise)
{
    return d->header.fields & HEADER_MAX_ATTEMPTS ? d->header.max_attempts
                                                  : otherwise;
}

bool delivery_expired(const struct delivery *d, uint64_t now)
{
    return d->header.fields & HEADER_EXPIRES && d->header.expires_ns <= now;
}

/* Return the longest time that the message may wait for its not-before. */
static uint64_t delay_of(const struct delivery *d)
{
    uint64_t ms = d->header.delay_ms;

    return d->header.fields & HEADER_DELAY && ms < UINT64_MAX / NS_PER_MS
               ? ms * NS_PER_MS
               : UINT64_MAX;
}

uint64_t delivery_ahead(const struct delivery *d, uint64_t now)
{
    uint64_t until = d->header.not_before_ns, from = d->message->received_ns;
    uint64_t most = delay_of(d);

    if (!(d->header.fields & HEADER_NOT_BEFORE) || until <= now ||
        d->message->failures > 0)
        return 0;
    if (from == 0) /* the worker was killed before it noted the time */
        from = now;
    if (until <= from)
        return 0;
    return until - from < most ? until - from : most;
}

bool delivery_delayed(const struct delivery *d, uint64_t most)
{
    uint64_t now;

    if (d->message->flags & MESSAGE_STORED ||
        !(d->header.fields & HEADER_NOT_BEFORE))
        return false;
    now = clock_wall_ns();
    return d->header.not_before_ns > now && !delivery_expired(d, now) &&
           delivery_ahead(d, now) <= most;
}

/* Return not-before to the ns, so that messages with the same not-before are
 * due together. A message with a delay is due at its not-before as well, unless
 * the clock was set back since it was sent: then *boot_ns limits the wait. */
uint64_t delivery_due(const struct delivery *d, uint64_t *boot_ns,
                      uint64_t *delay_ns)
{
    uint64_t when = d->header.not_before_ns, most = delay_of(d), now;

    *boot_ns = *delay_ns = 0;
    if (most == UINT64_MAX)
        return when;
    now = clock_wall_ns();
    *delay_ns = most;
    if (when > now && when - now > most)
        *boot_ns = ns_add(clock_boot_ns(), most);
    return when;
}

void delivery_regroup(struct delivery *d, const char *key, size_t size)
{
    memcpy(d->key, key, size);
    d->group = (struct header_text){.at = d->key, .size = size};
}
