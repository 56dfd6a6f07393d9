/* prefetch.c - how much of the queue is in hand (see amqp_inner.h)
 *
 * What is in hand, no other worker can run, and consumer_timeout counts for it.
 * So it is as little as does not slow this worker down: two messages for each
 * that may run, as many as may be lent once it has shown that it is fast, and
 * one where what waits in hand waits for long. A broker that is far away gives
 * no more than two in the time that an acknowledgement and a message are on
 * their way. So where handlers often have nothing to run, it is as many as run
 * in half of SLOW_NS at the rate seen. It is more, too, where fewer run
 * than may as the others wait for the confirms of their verdicts: a queue of
 * letters that is full holds up no other message. A worker that takes nothing,
 * as it is paused or its breaker is open, gives back what waits and consumes
 * nothing until it takes again.
 *
 * A queue with partitions has none of this: the order of a group is that in
 * which the broker gave its messages.
 */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/source/amqp/amqp_inner.h"

enum { PREFETCH_FULL, PREFETCH_SOME, PREFETCH_LEAN };

#define SLOW_NS (5 * NS_PER_S) /* so long in hand is long */
#define LATE_NS NS_PER_S       /* and so long a confirm */

/* size_of - a level, in messages */
static unsigned size_of(const struct source_amqp *q, unsigned level)
{
    unsigned full = atomic_load(&q->prefetch);
    unsigned run = (unsigned)(q->set->concurrency * q->set->window);
    unsigned n = level == PREFETCH_SOME ? 2 * run : run;

    if (level == PREFETCH_SOME && q->fetch.more > n)
        n = q->fetch.more;
    return level == PREFETCH_FULL || n > full ? full : n;
}

static void level_set(struct source_amqp *q, unsigned level)
{
    struct prefetch *f = &q->fetch;

    f->level = level;
    f->level_ns = clock_mono_ns();
    f->acked = f->starved = 0;
    if (level != PREFETCH_SOME)
        f->more = 0;
}

/* fetched_set - for the thread that gives the outbox a job (amqp_job_locked) */
static void fetched_set(struct source_amqp *q, unsigned n)
{
    pthread_mutex_lock(&q->mtx);
    q->fetched = n;
    pthread_mutex_unlock(&q->mtx);
}

void prefetch_begin(struct source_amqp *q)
{
    q->fetch.consuming = false;
    q->fetch.consumer = 0;
    if (q->fetch.level_ns == 0)
        level_set(q, amqp_parted(q) ? PREFETCH_FULL : PREFETCH_SOME);
}

/* prefetch_delivered - a long idle time is no part of a period: a worker that
 * had nothing to run was not slow */
void prefetch_delivered(struct source_amqp *q)
{
    struct prefetch *f = &q->fetch;
    uint64_t last = f->acked_ns > f->level_ns ? f->acked_ns : f->level_ns;
    uint64_t idle = q->window.open == 0 ? clock_mono_ns() - last : 0;

    if (idle > SLOW_NS)
        f->level_ns += idle;
}

bool prefetch_starves_locked(const struct source_amqp *q)
{
    unsigned running = q->lent_count - q->late_count;

    return TAILQ_EMPTY(&q->arrived) &&
           running < q->set->concurrency * q->set->window;
}

/* more_set - at the end of a period, to what runs in half of SLOW_NS at its
 * rate. Each change is a new consumer. So it has to be twice as much, which it
 * is where the broker is what limits the rate, or half, before which a message
 * waits SLOW_NS at most. */
static void more_set(struct source_amqp *q, uint64_t spent)
{
    struct prefetch *f = &q->fetch;
    unsigned full = size_of(q, PREFETCH_FULL), now = size_of(q, PREFETCH_SOME);
    uint64_t want = f->acked * SLOW_NS / spent / 2;
    /* A queue that is nearly empty starves them, too: then hardly any of what
     * may be in hand is on its way. */
    bool starved =
        4 * f->starved >= f->acked && 4 * f->acked * f->trip_ns / spent >= now;

    if (want > full)
        want = full;
    if ((want >= 2 * (uint64_t)now && starved) || 2 * want <= f->more)
        f->more = (unsigned)want;
}

/* prefetch_acked - with twice what a level has in hand within SLOW_NS, a
 * message would wait half of that at most. A worker that was fast and is no
 * more starts over. */
void prefetch_acked(struct source_amqp *q, size_t n, bool starved)
{
    struct prefetch *f = &q->fetch;
    uint64_t spent;

    if (amqp_parted(q))
        return;
    f->acked_ns = clock_mono_ns();
    spent = f->acked_ns - f->level_ns;
    f->acked += n;
    f->starved += starved ? n : 0;
    if (spent < SLOW_NS && f->level > PREFETCH_FULL &&
        f->acked >= 2 * (uint64_t)size_of(q, f->level - 1)) {
        level_set(q, f->level - 1);
    } else if (spent >= SLOW_NS && f->level == PREFETCH_FULL &&
               2 * f->acked < size_of(q, PREFETCH_FULL)) {
        level_set(q, PREFETCH_SOME);
    } else if (spent >= SLOW_NS) {
        if (f->level == PREFETCH_SOME)
            more_set(q, spent);
        level_set(q, f->level);
    }
}

/* prefetch_apply - the next consumer begins once so little is in hand that it
 * does not get more than twice its size together with that */
int prefetch_apply(struct source_amqp *q)
{
    struct prefetch *f = &q->fetch;
    unsigned want = atomic_load(&q->source.rests) ? 0 : size_of(q, f->level);
    unsigned each =
        amqp_parted(q) ? partition_in_hand(q->topology.partitions) : want;
    uint64_t since;
    int err;

    if (f->consuming && want == f->size)
        return 0;
    if (f->consuming) {
        f->called = true;
        err = consumer_end(q, f->consumer);
        if (err)
            return err;
        f->consuming = false;
    }
    fetched_set(q, want);
    if (want == 0 || q->window.open >= want)
        return 0;
    f->called = true;
    since = clock_mono_ns();
    err = consumer_begin(q, each, ++f->consumer);
    f->trip_ns = (clock_mono_ns() - since) / 2; /* it is two calls */
    f->consuming = err == 0;
    f->size = want;
    return err;
}

/* ---- what nobody takes ---- */

/* take_back - what waits in hand; its tags, to be freed. NULL: nothing */
static uint64_t *take_back(struct source_amqp *q, size_t *n)
{
    uint64_t *tags = NULL;
    struct amqp_message *m;

    *n = 0;
    pthread_mutex_lock(&q->mtx);
    if (q->arrived_count > 0)
        tags = calloc(q->arrived_count, sizeof *tags);
    while (tags && (m = TAILQ_FIRST(&q->arrived)) != NULL) {
        tags[(*n)++] = m->tag;
        amqp_arrived_remove(q, m);
        amqp_free(m);
    }
    (void)amqp_ready_locked(q);
    pthread_mutex_unlock(&q->mtx);
    return tags;
}

/* give_back - cancelled first, or the broker gives it here again */
static int give_back(struct source_amqp *q)
{
    uint64_t *tags;
    size_t n;
    int err;

    atomic_store(&q->source.rests, true);
    if (q->events.wants(q->events.arg)) { /* only just: see source.h */
        atomic_store(&q->source.rests, false);
        return 0;
    }
    level_set(q, PREFETCH_LEAN);
    err = prefetch_apply(q);
    tags = err ? NULL : take_back(q, &n);
    if (!tags)
        return err;
    log_info("given_back", F_STR("queue", q->operand->shown),
             F_UINT("count", n),
             F_STR("next", "this worker takes no messages just now, so others "
                           "may have these, marked as redelivered"));
    err = consumer_give_back(q, tags, n);
    free(tags);
    return err;
}

/* idles - none waits in hand, fewer run than may, and the others that may be in
 * hand wait for confirms. mtx is held. */
static bool idles(const struct source_amqp *q)
{
    return prefetch_starves_locked(q) && q->job_count > 0 &&
           q->window.open >= size_of(q, q->fetch.level);
}

/* late_look - how long until confirms are late; UINT64_MAX: they keep nothing
 * from being fetched, or there is nothing more to fetch. A level at a time, as
 * more than one message of a slow worker would wait long. */
static uint64_t late_look(struct source_amqp *q, bool idle, uint64_t now)
{
    struct prefetch *f = &q->fetch;

    if (!idle || f->level == PREFETCH_FULL || atomic_load(&q->source.rests)) {
        f->late_ns = 0;
        return UINT64_MAX;
    }
    if (f->late_ns == 0)
        f->late_ns = now;
    if (now - f->late_ns < LATE_NS)
        return LATE_NS - (now - f->late_ns);
    level_set(q, f->level - 1);
    f->late_ns = now;
    return LATE_NS;
}

int prefetch_look(struct source_amqp *q, uint64_t *next_ns)
{
    struct prefetch *f = &q->fetch;
    uint64_t now = clock_mono_ns(), since = 0;
    const struct amqp_message *m;
    bool idle;

    *next_ns = UINT64_MAX;
    if (amqp_parted(q))
        return 0;
    if (atomic_load(&q->source.rests))
        prefetch_wanted(&q->source);
    pthread_mutex_lock(&q->mtx);
    m = TAILQ_FIRST(&q->arrived);
    if (m)
        since = m->arrived_ns > f->level_ns ? m->arrived_ns : f->level_ns;
    idle = idles(q);
    pthread_mutex_unlock(&q->mtx);
    *next_ns = late_look(q, idle, now);
    if (!m)
        return 0;
    *next_ns = SLOW_NS;
    if (now - since < SLOW_NS) {
        *next_ns = SLOW_NS - (now - since);
        return 0;
    }
    if (!q->events.wants(q->events.arg))
        return give_back(q);
    level_set(q, f->level < PREFETCH_LEAN ? f->level + 1 : f->level);
    return 0;
}

void prefetch_wanted(struct source *s)
{
    struct source_amqp *q = source_amqp_of(s);

    if (!q->events.wants(q->events.arg))
        return;
    atomic_store(&s->rests, false);
    side_wake(&q->inbox);
}
