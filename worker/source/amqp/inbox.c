/* inbox.c - the thread that consumes and acknowledges (see inbox.h)
 *
 * No other worker can run a message that this one has in hand, and the broker's
 * consumer_timeout counts for it. So the inbox has only as many in hand as keep
 * the handlers busy. There are three levels:
 * - SOME, the usual one: two for each message that may run. If handlers often
 *   wait because the broker is far away: as many as run in half of SLOW_NS.
 * - FULL, once the worker has proved fast: as many as may be lent.
 * - LEAN, while messages wait long for a handler: one for each that may run.
 * The inbox also goes up a level while handlers are free only because other
 * messages wait for their confirms, so that a full queue of letters holds up
 * nothing else. A worker that takes no messages, because it is paused or its
 * breaker is open, gives back those in hand, and consumes again when it takes.
 *
 * None of this applies to a queue with partitions, where the number in hand is
 * fixed (partition_in_hand), and giving back would change the order of groups.
 */
#include "worker/source/amqp/inbox.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/stdlib.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"

#define CONSUMER "mqworker"     /* a dot and a number follow */
#define SLOW_NS  (5 * NS_PER_S) /* a long wait for a handler; a period */
#define LATE_NS  NS_PER_S       /* a long wait for a confirm */

/* Levels of messages in hand, from most to fewest. */
enum { PREFETCH_FULL, PREFETCH_SOME, PREFETCH_LEAN };

/* How many messages are in hand, and what decides that. */
struct prefetch {
    unsigned level;    /* PREFETCH_ */
    uint64_t level_ns; /* clock_mono_ns of its last change: the period begins */
    uint64_t acked;    /* messages acknowledged in the period */
    uint64_t starved;  /* those acknowledged while handlers were idle */
    uint64_t acked_ns; /* clock_mono_ns of the last acknowledgement; 0: none */
    uint64_t trip_ns;  /* duration of a call to the broker and its answer */
    unsigned more;     /* size of PREFETCH_SOME for a far broker; 0: usual */
    unsigned consumer; /* last consumer on this connection; 0: none */
    unsigned size;     /* prefetch of that consumer */
    bool consuming;    /* that consumer was not cancelled */
    bool called;       /* the library may have kept back frames in a call */
    uint64_t late_ns;  /* clock_mono_ns since when handlers are free because of
                        * late confirms; 0: they are not */
};

/* c = constant after open  t = the thread's */
struct inbox {
    struct amqp_queue *queue; /* c */
    struct side *side;        /* c  the queue's */
    struct incoming part;     /* t */
    struct ack_window window; /* t */
    struct prefetch fetch;    /* t */
};

/* ---- acknowledgements ---- */

void ack_window_delivered(struct ack_window *w, uint64_t tag)
{
    w->next = tag + 1;
    w->open++;
}

#define ACK_BIT(tag) (UINT64_C(1) << (tag) % 64)

static uint64_t *ack_word(struct ack_window *w, uint64_t tag)
{
    return &w->done[tag % ACK_WINDOW / 64];
}

/* A broker refuses a tag that was acknowledged before. So only one of the given
 * tags is used to cover others. */
size_t ack_window_close(struct ack_window *w, const uint64_t *tags, size_t n)
{
    size_t covered = 0;

    for (size_t k = 0; k < n; k++) {
        w->open--;
        if (tags[k] < w->low) {
            w->behind--;
        } else if (tags[k] - w->low < ACK_WINDOW) {
            *ack_word(w, tags[k]) |= ACK_BIT(tags[k]);
        } else { /* too far ahead: begin again with the tags still to come */
            w->low = w->next;
            w->behind = w->open;
            memset(w->done, 0, sizeof w->done);
        }
    }
    if (w->behind > 0)
        return 0;
    /* Move `low` to the first open tag, and free the bits behind it. */
    while (w->low < w->next && *ack_word(w, w->low) & ACK_BIT(w->low)) {
        *ack_word(w, w->low) &= ~ACK_BIT(w->low);
        w->low++;
    }
    while (covered < n && tags[covered] < w->low)
        covered++;
    return covered;
}

static int tag_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Send one frame of acks_send. `all`: it also covers each tag before. */
static int ack_send(struct link *l, uint64_t tag, bool all, bool give_back)
{
    return link_status(l, give_back
                              ? amqp_basic_nack(l->c, LINK_CHANNEL, tag, all, 1)
                              : amqp_basic_ack(l->c, LINK_CHANNEL, tag, all));
}

/* Acknowledge messages, or give them back. */
static int acks_send(struct inbox *in, uint64_t *tags, size_t n, bool give_back)
{
    struct link *l = in->side->link;
    size_t i;
    int err = 0;

    qsort(tags, n, sizeof *tags, tag_order);
    i = ack_window_close(&in->window, tags, n);
    if (i > 0)
        err = ack_send(l, tags[i - 1], i > 1, give_back);
    for (; i < n && !err; i++)
        err = ack_send(l, tags[i], false, give_back);
    return err;
}

/* ---- consuming ---- */

/* Print the name of a consumer: with the number of its part, or else with its
 * own number on this connection. A cancelled consumer may still have messages,
 * and RabbitMQ 3.10.8 closes the connection if another one takes its name. */
static void tag_print(const struct inbox *in, unsigned part, unsigned consumer,
                      char tag[24])
{
    snprintf(tag, 24, CONSUMER ".%u",
             amqp_queue_is_parted(in->queue) ? part : consumer);
}

/* Return the number of messages of a level. */
static unsigned level_size(const struct inbox *in, unsigned level)
{
    unsigned full = atomic_load(&in->queue->in_hand);
    unsigned run =
        (unsigned)(in->queue->set->concurrency * in->queue->set->window);
    unsigned n = level == PREFETCH_SOME ? 2 * run : run;

    if (level == PREFETCH_SOME && in->fetch.more > n)
        n = in->fetch.more;
    return level == PREFETCH_FULL || n > full ? full : n;
}

/* Set the level, and begin a period. */
static void level_set(struct inbox *in, unsigned level)
{
    struct prefetch *f = &in->fetch;

    f->level = level;
    f->level_ns = clock_mono_ns();
    f->acked = f->starved = 0;
    if (level != PREFETCH_SOME)
        f->more = 0;
}

/* Consume with the prefetch of the level. A consumer keeps the prefetch that it
 * began with, so another number needs a new consumer. That one begins when
 * fewer messages than its prefetch are in hand, so there are never more than
 * twice that number. -errno: the connection is of no more use. */
static int prefetch_apply(struct inbox *in)
{
    struct prefetch *f = &in->fetch;
    struct link *l = in->side->link;
    unsigned count = in->queue->part_count, first;
    unsigned want =
        atomic_load(&in->queue->source.rests) ? 0 : level_size(in, f->level);
    unsigned each = amqp_queue_is_parted(in->queue)
                        ? partition_in_hand(in->queue->topology.partitions)
                        : want;
    uint64_t since;
    char tag[24];
    int err;

    if (f->consuming && want == f->size)
        return 0;
    if (f->consuming) {
        f->called = true;
        tag_print(in, 0, f->consumer, tag);
        (void)amqp_basic_cancel(l->c, LINK_CHANNEL, amqp_cstring_bytes(tag));
        err = link_reply(l, amqp_get_rpc_reply(l->c));
        if (err)
            return err;
        f->consuming = false;
    }
    atomic_store(&in->queue->fetched, want);
    if (want == 0 || in->window.open >= want)
        return 0;
    /* The first consumer of a part becomes its active one. Each worker begins
     * at a random part, so that no worker gets all of them. */
    f->called = true;
    f->consumer++;
    first = arc4random_uniform(count);
    since = clock_mono_ns();
    (void)amqp_basic_qos(l->c, LINK_CHANNEL, 0, (uint16_t)each, 0);
    err = link_reply(l, amqp_get_rpc_reply(l->c));
    for (unsigned i = 0; i < count && !err; i++) {
        unsigned part = (first + i) % count;

        tag_print(in, part, f->consumer, tag);
        (void)amqp_basic_consume(
            l->c, LINK_CHANNEL, amqp_cstring_bytes(in->queue->parts[part]),
            amqp_cstring_bytes(tag), 0, 0, 0, (amqp_table_t){0, NULL});
        err = link_reply(l, amqp_get_rpc_reply(l->c));
    }
    f->trip_ns = (clock_mono_ns() - since) / 2; /* it is two calls */
    f->consuming = err == 0;
    f->size = want;
    return err;
}

/* Give back the messages that wait in hand. Cancel the consumer first, or the
 * broker would deliver them here again. */
static int hand_give_back(struct inbox *in)
{
    uint64_t *tags;
    size_t n;
    int err;

    atomic_store(&in->queue->source.rests, true);
    if (in->queue->events.wants(
            in->queue->events.gate)) { /* only now: see `rests` in source.h */
        atomic_store(&in->queue->source.rests, false);
        return 0;
    }
    level_set(in, PREFETCH_LEAN);
    err = prefetch_apply(in);
    tags = err ? NULL : claims_take_back(in->queue->claims, &n);
    if (!tags)
        return err;
    log_info("given_back", F_STR("queue", in->queue->operand->shown),
             F_UINT("count", n),
             F_STR("next", "this worker takes no messages at the moment; other "
                           "workers get these, marked as redelivered"));
    err = acks_send(in, tags, n, true);
    free(tags);
    return err;
}

void inbox_wanted(struct source *s)
{
    struct amqp_queue *queue = amqp_queue_of(s);

    if (!queue->events.wants(queue->events.gate))
        return;
    atomic_store(&s->rests, false);
    side_wake(&queue->inbox);
}

/* Adapt the level to messages that wait long, for a handler or a confirm.
 * *next_ns: time until the next check; UINT64_MAX: none is needed. */
static int prefetch_look(struct inbox *in, uint64_t *next_ns)
{
    struct prefetch *f = &in->fetch;
    uint64_t now = clock_mono_ns(), since;
    struct claims_counts load;

    *next_ns = UINT64_MAX;
    if (amqp_queue_is_parted(in->queue))
        return 0;
    if (atomic_load(&in->queue->source.rests))
        inbox_wanted(&in->queue->source);
    load = claims_count(in->queue->claims);
    /* Fetch more if handlers are free for LATE_NS, with nothing in hand to run,
     * because the other messages wait for confirms. Go up only one level at a
     * time, because in a slow worker the messages in hand wait long. */
    if (!load.starved || load.jobs == 0 ||
        in->window.open < level_size(in, f->level) ||
        f->level == PREFETCH_FULL || atomic_load(&in->queue->source.rests)) {
        f->late_ns = 0;
    } else {
        if (f->late_ns == 0)
            f->late_ns = now;
        if (now - f->late_ns >= LATE_NS) {
            level_set(in, f->level - 1);
            f->late_ns = now;
        }
        *next_ns = LATE_NS - (now - f->late_ns);
    }
    if (load.oldest_ns == 0)
        return 0;
    /* Fetch fewer if a message waits for a handler for SLOW_NS. */
    since = load.oldest_ns > f->level_ns ? load.oldest_ns : f->level_ns;
    *next_ns = SLOW_NS;
    if (now - since < SLOW_NS) {
        *next_ns = SLOW_NS - (now - since);
        return 0;
    }
    if (!in->queue->events.wants(in->queue->events.gate))
        return hand_give_back(in);
    level_set(in, f->level < PREFETCH_LEAN ? f->level + 1 : f->level);
    return 0;
}

/* ---- frames ---- */

/* Read all frames that have come. */
static int inbox_read(struct inbox *in)
{
    struct prefetch *fetch = &in->fetch;
    struct link *l = in->side->link;
    uint64_t last, idle;
    const char *number;
    amqp_frame_t f;
    int n, err = 0;

    while (!err && (n = link_frame(l, &f)) != NO) {
        if (n == YES && f.channel != LINK_CHANNEL)
            continue;
        if (n == YES)
            n = incoming_frame(&in->part, l, &f);
        err = n < 0 ? n : 0;
        if (n == NO && f.frame_type == AMQP_FRAME_METHOD &&
            f.payload.method.id == AMQP_BASIC_DELIVER_METHOD) {
            /* A message begins. Do not count a long idle time as part of the
             * period: a worker that had nothing to run was not slow. */
            last = fetch->acked_ns > fetch->level_ns ? fetch->acked_ns
                                                     : fetch->level_ns;
            idle = in->window.open == 0 ? clock_mono_ns() - last : 0;
            if (idle > SLOW_NS)
                fetch->level_ns += idle;
            ack_window_delivered(&in->window, in->part.tag);
        }
        if (n == YES) {
            /* The name of the consumer ends with the number of the part. */
            number = strchr(in->part.consumer, '.');
            claims_arrived(
                in->queue->claims, &in->part,
                (unsigned)strtoul(number ? number + 1 : "", NULL, 10) %
                    in->queue->part_count);
            incoming_next(&in->part);
        }
        /* Free the library's copy: a large message has many frames. */
        amqp_maybe_release_buffers(l->c);
        if (!amqp_frames_enqueued(l->c) && !amqp_data_in_buffer(l->c))
            claims_place(in->queue->claims);
    }
    claims_place(in->queue->claims);
    return err;
}

/* Send the acknowledgements, without a lock: a write may wait for the broker.
 * Then adapt the level to their number. A worker goes up to a level if it runs
 * twice as many messages within SLOW_NS as that level has in hand: no message
 * then waits longer than half of SLOW_NS. At the end of a period, a worker that
 * is no longer fast begins again at PREFETCH_SOME. */
static int acks_flush(struct inbox *in)
{
    struct prefetch *f = &in->fetch;
    unsigned full = level_size(in, PREFETCH_FULL), now;
    uint64_t *acks, spent, want;
    bool starved;
    size_t n;
    int err;

    acks = claims_acks(in->queue->claims, &n, &starved);
    if (!acks)
        return 0;
    err = acks_send(in, acks, n, false);
    free(acks);
    if (amqp_queue_is_parted(in->queue))
        return err;
    f->acked_ns = clock_mono_ns();
    spent = f->acked_ns - f->level_ns;
    f->acked += n;
    f->starved += starved ? n : 0;
    if (spent < SLOW_NS) {
        if (f->level > PREFETCH_FULL &&
            f->acked >= 2 * (uint64_t)level_size(in, f->level - 1))
            level_set(in, f->level - 1);
        return err;
    }
    if (f->level == PREFETCH_FULL && 2 * f->acked < full) {
        level_set(in, PREFETCH_SOME);
        return err;
    }
    /* Set `more` to the messages that run in half of SLOW_NS. Each change needs
     * a new consumer, so at least double or halve `more`. Raise it only if
     * handlers were often idle although as many messages as allowed were on
     * their way, because an almost empty queue leaves handlers idle as well.
     * Before it is lowered, a message waits at most SLOW_NS. */
    if (f->level == PREFETCH_SOME) {
        now = level_size(in, PREFETCH_SOME);
        want = f->acked * SLOW_NS / spent / 2;
        if (want > full)
            want = full;
        if ((want >= 2 * (uint64_t)now && 4 * f->starved >= f->acked &&
             4 * f->acked * f->trip_ns / spent >= now) ||
            2 * want <= f->more)
            f->more = (unsigned)want;
    }
    level_set(in, f->level);
    return err;
}

/* ---- the connection ---- */

/* Begin to consume on a new connection. */
static int inbox_begin(struct inbox *in)
{
    claims_begin(in->queue->claims);
    in->window = (struct ack_window)ACK_WINDOW_NEW;
    in->fetch.consuming = false;
    in->fetch.consumer = 0;
    if (in->fetch.level_ns == 0)
        level_set(in, amqp_queue_is_parted(in->queue) ? PREFETCH_FULL
                                                      : PREFETCH_SOME);
    return prefetch_apply(in);
}

static void inbox_lost(struct inbox *in, int err)
{
    uint64_t wait = in->side->wait_ns;

    side_lost(in->side, err);
    incoming_next(&in->part);
    /* Wait longer each time if the connection is lost before it is used. */
    if (claims_void(in->queue->claims))
        in->side->wait_ns =
            10 * wait < 10 * NS_PER_S ? 10 * wait : 10 * NS_PER_S;
}

void *inbox_main(void *inbox)
{
    struct inbox *in = inbox;
    struct side *side = in->side;
    struct problem p = {0};
    uint64_t due, wait;
    int err = inbox_begin(in);

    if (err)
        inbox_lost(in, err);
    while (!atomic_load(&in->queue->stopping)) {
        if (!side->link) {
            if (!side_reconnect(side))
                continue;
            /* The queue may have been deleted before this connection. */
            err = topology_open(side->link, &in->queue->topology, &p);
            if (err) {
                snprintf(side->link->why, LINK_WHY, "%.200s", p.text);
            } else {
                side_limited(side);
                err = inbox_begin(in);
            }
            if (err)
                inbox_lost(in, err);
            continue;
        }
        in->fetch.called = false;
        err = inbox_read(in);
        due = claims_due(in->queue->claims);
        /* Send a request to a host that the outbox has given up. */
        if (!err &&
            atomic_exchange(&in->queue->doubted, 0) == side->link->host + 1) {
            in->fetch.called = true;
            err = topology_count(side->link, in->queue->parts[0], NULL, NULL);
        }
        if (!err)
            err = acks_flush(in);
        if (!err)
            err = prefetch_look(in, &wait);
        if (!err)
            err = prefetch_apply(in);
        /* Wait, unless there was a call to the broker: the library may have
         * kept back frames that came before the answer. */
        if (err)
            inbox_lost(in, err);
        else if (!in->fetch.called)
            side_wait(side, due < wait ? due : wait);
    }
    if (side->link)
        (void)acks_flush(in);
    return NULL;
}

/* ---- open and close ---- */

int inbox_open(struct inbox **out, struct amqp_queue *queue, struct problem *p)
{
    struct inbox *in = calloc(1, sizeof *in);
    uint32_t messages;
    int err;

    *out = in;
    if (!in)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    in->queue = queue;
    in->side = &queue->inbox;
    in->part.before = sizeof(struct amqp_message);
    in->part.gap = HEADER_MAX;
    err = link_open(&in->side->link, &queue->setup, arc4random(), p);
    if (!err)
        err = topology_unlike(in->side->link, &queue->topology, p);
    if (!err)
        err = topology_open(in->side->link, &queue->topology, p);
    if (err)
        return err;
    for (unsigned i = 0; i < queue->part_count && !err; i++) {
        err = topology_count(in->side->link, queue->parts[i], &messages, NULL);
        if (!err)
            atomic_fetch_add(&queue->ready, (long)messages);
    }
    if (err)
        return problem_set(p, EX_UNAVAILABLE, -err, "queue %s: %s",
                           queue->operand->queue, in->side->link->why);
    side_limited(in->side);
    return 0;
}

void inbox_close(struct inbox **inbox)
{
    struct inbox *in = *inbox;

    if (!in)
        return;
    *inbox = NULL;
    incoming_next(&in->part);
    free(in);
}
