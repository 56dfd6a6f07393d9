/* claims.c - the messages that a worker has received from a broker (see
 * claims.h)
 *
 * When a connection is lost, the broker delivers each message again that was
 * not acknowledged, marked as redelivered:
 * - A message that was settled here is acknowledged and does not run again.
 * - A message that is running here, or whose verdict is being published, gets
 *   the tag of the new delivery as its claim.
 * - Any other message runs, marked as a possible repeat.
 * The broker may also have two copies of a message. A machine that has run one
 * of them marks the other (may_have_run). Another machine cannot know of it.
 *
 * A failed head of a group waits for its retry in the worker, unacknowledged:
 * the broker would put a copy of it, or the message itself if it were given
 * back, behind the rest of its group. The messages behind the head wait in the
 * worker, too. If the worker or its connection dies during that wait, the count
 * of failures is lost: the broker delivers the message as it was sent.
 *
 * The steps always have one order: the outbox publishes what follows from the
 * verdict, the broker confirms it, the run file notes that the original is
 * settled, and the inbox acknowledges the original.
 * Crash before the confirm: the broker delivers the original again, marked. If
 * the broker also has the copy, the two have the same id but different numbers
 * of attempts: the message is repeated, not lost. Crash between confirm and
 * acknowledgement: the original is delivered again, and is recognized by the
 * run file if that happens on this machine.
 * Assumed: a message that a quorum queue has confirmed survives as long as most
 * of its replicas do; a message that is not acknowledged is delivered again.
 */
#include "worker/source/amqp/claims.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <bsd/stdlib.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/libc.h"
#include "common/base/log.h"
#include "common/base/problem.h"

#define SUMMED        4096 /* bytes of a body that its key depends on */
#define INCOMING_MOST 32   /* messages that wait to be placed together */
#define CHAINS        1024
#define ANY_HOP       UINT16_MAX /* `hop` of the repeat_key of a copy */

TAILQ_HEAD(amqp_list, amqp_message);
LIST_HEAD(amqp_chain, amqp_message);

/* c = constant after open   q = under mtx   i = the inbox's */
struct claims {
    struct amqp_queue *queue;    /* c */
    struct amqp_message **lanes; /* c  the message that each lane may still
                                  *    read; used by the lane's thread only */
    int ready_fd;                /* c  readable while `arrived` is not empty */
    struct amqp_list incoming;   /* i  messages to be placed on a list */
    unsigned incoming_count;     /* i */

    pthread_mutex_t mtx;
    pthread_cond_t changed;   /* q  job_count became 0 */
    struct amqp_list arrived; /* q  CLAIM_ARRIVED */
    struct amqp_list delayed; /* q  CLAIM_DELAYED, by due_ns, then priority */
    struct amqp_list lent;    /* q  CLAIM_LENT, CLAIM_SETTLING, CLAIM_MOVING */
    struct amqp_chain chains[CHAINS]; /* q  by `repeat_key` */
    struct amqp_list due;             /* q  CLAIM_DUE */
    int64_t ahead_ns;    /* q  clock_ahead_ns when the clock was set */
    unsigned head_count; /* q  failed heads that are not lent */
    unsigned arrived_count, delayed_count; /* q */
    unsigned lent_count;                   /* q  LENT and SETTLING */
    unsigned settling_count; /* q  SETTLING: their handlers are done */
    bool ready_written;      /* q  ready_fd is readable */
    uint64_t epoch;          /* q  number of the connection; 0: none */
    uint64_t epochs;         /* q  number of all connections */
    uint64_t delivered[PARTITIONS_MAX]; /* q  last epoch of each part */
    uint64_t seq;         /* q  last number given to a lent message */
    uint64_t idle_seq;    /* q  seq + 1 at the last call of claims_still_idle */
    unsigned *free_index; /* q  stack of free_count indices for lent messages */
    unsigned free_count;  /* q */
    uint64_t *acks;       /* q  tags of this epoch to acknowledge */
    size_t ack_count, ack_room;   /* q */
    struct unconfirmed_list jobs; /* q  jobs for the outbox */
    unsigned job_count;           /* q  jobs not confirmed yet */
};

static struct amqp_message *message_of(struct message *m)
{
    return CONTAINER_OF(m, struct amqp_message, m);
}

void amqp_message_free(struct amqp_message *m)
{
    free(m->own_raw);
    free(m);
}

/* Report to the flow, if `due`, that take_due has a message. Any thread; mtx is
 * not held. */
static void changed_tell(const struct claims *c, bool due)
{
    if (due)
        c->queue->events.changed(c->queue->events.flow);
}

/* Keep a message until its time. mtx is held. */
static void delayed_put(struct claims *c, struct amqp_message *m)
{
    struct amqp_message *before;

    m->at = CLAIM_DELAYED;
    c->delayed_count++;
    TAILQ_FOREACH_REVERSE(before, &c->delayed, amqp_list, link)
    if (before->due_ns < m->due_ns ||
        (before->due_ns == m->due_ns && before->m.priority >= m->m.priority)) {
        TAILQ_INSERT_AFTER(&c->delayed, before, m, link);
        return;
    }
    TAILQ_INSERT_HEAD(&c->delayed, m, link);
}

/* Make ready_fd and source.due match the lists. Called after each change of
 * `arrived` or `due`; mtx is held. Returns true if `due` was empty before and
 * is not empty now: the caller then calls changed_tell, after it has released
 * mtx. */
static bool ready_update(struct claims *c)
{
    uint64_t n = 1;
    bool ready = !TAILQ_EMPTY(&c->arrived);
    bool due = !TAILQ_EMPTY(&c->due);

    if (ready != c->ready_written && ready)
        (void)!write(c->ready_fd, &n, sizeof n);
    else if (ready != c->ready_written)
        (void)!read(c->ready_fd, &n, sizeof n);
    c->ready_written = ready;
    if (due == source_due(&c->queue->source))
        return false;
    if (due)
        source_due_set(&c->queue->source, 1);
    else
        source_due_clear(&c->queue->source, 1);
    return due;
}

/* Let a failed head of a group be taken again. mtx is held. */
static void due_put(struct claims *c, struct amqp_message *m)
{
    m->at = CLAIM_DUE;
    if (m->epoch != c->epoch)
        atomic_store(&m->m.stale, true);
    TAILQ_INSERT_TAIL(&c->due, m, link);
}

/* ---- messages that a lane may still read ---- */

/* Free a message that no lane reads any more, or delay it if it was returned.
 * Called by the lane's next call, on the lane's thread; or, for LANE_NONE, by
 * the caller of settle. If the message were delayed earlier, another lane could
 * take, settle and free it while this lane still reads it. A failed head stays
 * even without its claim, because its group waits for the head. */
void claims_release(struct source *s, struct message *released)
{
    struct amqp_message *m = message_of(released);
    struct claims *c = amqp_queue_of(s)->claims;
    bool due;

    if (m->at != CLAIM_RETURNED) {
        amqp_message_free(m);
        return;
    }
    pthread_mutex_lock(&c->mtx);
    if (m->epoch == c->epoch)
        delayed_put(c, m);
    else if (m->failed_head)
        due_put(c, m);
    else
        amqp_message_free(m);
    due = ready_update(c);
    pthread_mutex_unlock(&c->mtx);
    side_wake(&c->queue->inbox);
    changed_tell(c, due);
}

/* Let the lane read `m` (may be NULL), and release the message that the lane
 * could read before. Called on the lane's thread, without mtx. */
static void lane_remember(struct claims *c, unsigned lane,
                          struct amqp_message *m)
{
    struct amqp_message *last;

    if (lane == LANE_NONE)
        return;
    last = c->lanes[lane];
    c->lanes[lane] = m;
    if (last)
        claims_release(&c->queue->source, &last->m);
}

void claims_lane_rest(struct source *s, unsigned lane)
{
    lane_remember(amqp_queue_of(s)->claims, lane, NULL);
}

/* ---- acknowledgements ---- */

/* Have the inbox acknowledge a message, unless its connection is gone. Without
 * memory the message is not acknowledged: the broker delivers the message again
 * when the connection ends, and settle_known then finds it in the run file. mtx
 * is held. */
static void ack_add(struct claims *c, uint64_t epoch, uint64_t tag)
{
    uint64_t *acks;

    if (epoch != c->epoch)
        return;
    acks = array_grow(c->acks, c->ack_count, &c->ack_room, sizeof *acks);
    if (!acks)
        return;
    c->acks = acks;
    c->acks[c->ack_count++] = tag;
    if (c->ack_count == 1)
        side_wake(&c->queue->inbox);
}

/* Give the outbox a message to publish. Wake the inbox, too, if all messages in
 * hand are running or being published, because the inbox may then fetch more
 * (inbox.c). mtx is held. */
static void job_add(struct claims *c, struct amqp_message *m)
{
    unsigned running = c->lent_count - c->settling_count;

    while (m->line == 0) /* 63 bits: a number in a header is signed */
        m->line = (uint64_t)arc4random() << 31 ^ arc4random();
    TAILQ_INSERT_TAIL(&c->jobs, &m->job.u, link);
    c->job_count++;
    if (TAILQ_EMPTY(&c->arrived) &&
        running + c->job_count >= atomic_load(&c->queue->fetched))
        side_wake(&c->queue->inbox);
    side_wake(&c->queue->outbox);
}

struct envelope_attempt amqp_attempt_of(const struct amqp_queue *queue,
                                        const struct attempt *a,
                                        uint64_t number)
{
    return (struct envelope_attempt){.at_ns = a->started_ns,
                                     .duration_ns = a->duration_ns,
                                     .usage = a->usage,
                                     .number = number,
                                     .error = a->error,
                                     .machine = queue->machine,
                                     .tail = a->stderr_tail,
                                     .tail_size = a->stderr_size};
}

/* ---- the operations of a message, on the thread that runs it ---- */

static struct run_file *runs_of(struct message *m)
{
    return message_of(m)->claims->queue->runs;
}

static void message_run(struct message *m, uint64_t started_ns)
{
    struct amqp_message *a = message_of(m);

    (void)started_ns;
    atomic_store(&a->runs, true);
    run_file_run(runs_of(m), m->index, &a->repeat_key, m->seq);
}

static void message_handler(struct message *m, uint64_t mark, uint64_t start,
                            pid_t group)
{
    run_file_handler(runs_of(m), m->index, mark, start, group);
}

static void message_unrun(struct message *m, bool may_have_run)
{
    run_file_unrun(runs_of(m), m->index);
    atomic_store(&message_of(m)->runs, false);
    if (may_have_run)
        m->flags |= MESSAGE_REDELIVERED;
}

static const struct message_ops message_ops = {
    .run = message_run, .handler = message_handler, .unrun = message_unrun};

/* ---- lists; mtx is held ---- */

static void arrived_put(struct claims *c, struct amqp_message *m)
{
    m->at = CLAIM_ARRIVED;
    m->arrived_ns = clock_mono_ns();
    TAILQ_INSERT_TAIL(&c->arrived, m, link);
    c->arrived_count++;
    (void)ready_update(c);
}

static void arrived_remove(struct claims *c, struct amqp_message *m)
{
    TAILQ_REMOVE(&c->arrived, m, link);
    c->arrived_count--;
}

/* Return the chain for a message and its twins. */
static struct amqp_chain *chain_of(struct claims *c,
                                   const struct amqp_message *m)
{
    const uint8_t *id = m->repeat_key.id.bytes;

    return &c->chains[(id[0] << 8 | id[15]) % CHAINS];
}

static void lent_put(struct claims *c, struct amqp_message *m)
{
    TAILQ_INSERT_TAIL(&c->lent, m, link);
    LIST_INSERT_HEAD(chain_of(c, m), m, twins);
}

static void lent_remove(struct claims *c, struct amqp_message *m)
{
    TAILQ_REMOVE(&c->lent, m, link);
    LIST_REMOVE(m, twins);
}

uint64_t claims_due(struct claims *c)
{
    uint64_t now = clock_boot_ns(), next = UINT64_MAX;
    struct amqp_message *m;
    bool due;

    pthread_mutex_lock(&c->mtx);
    while ((m = TAILQ_FIRST(&c->delayed)) != NULL && m->due_ns <= now) {
        TAILQ_REMOVE(&c->delayed, m, link);
        c->delayed_count--;
        if (m->failed_head)
            due_put(c, m);
        else
            arrived_put(c, m);
    }
    if (m)
        next = m->due_ns - now;
    due = ready_update(c);
    pthread_mutex_unlock(&c->mtx);
    changed_tell(c, due);
    return next;
}

/* ---- arriving ---- */

/* Return true if the outbox is moving a message to another queue because it
 * must not run yet. mtx is held. */
static bool is_moved(const struct amqp_message *m)
{
    const struct settle *s = m->job.settle;

    return m->at == CLAIM_MOVING ||
           (m->at == CLAIM_SETTLING && s->kind == SETTLE_RETRY && !s->attempt);
}

/* Return true if a message may have run here:
 * - A killed worker of this machine was running it.
 * - It was settled here, or another copy of it is in hand. A broker forwards a
 *   message from a wait queue twice when a node dies in between. A publisher
 *   without a confirm publishes a second copy and marks that; but the first
 *   copy, without a mark, may be stuck in a node that hung, and run later.
 * An original whose id is derived does not count, because an equal message has
 * the same id. A copy of such an original counts: its repeat_key contains its
 * line, which equal messages do not share.
 * A twin that ran is not found if its connection was lost before its handler
 * failed, or if the worker returned it to the list of arrived messages, because
 * neither is noted in the run file. mtx is held. */
static bool may_have_run(struct claims *c, const struct amqp_message *m)
{
    const struct amqp_message *twin;

    if (m->m.flags & MESSAGE_ID_DERIVED && !m->line)
        return false;
    if (m->m.crashes > 0 ||
        run_file_was_settled(c->queue->runs, &m->repeat_key))
        return true;
    /* The copy of a moved message may arrive before it is confirmed, and has
     * one hop more. */
    LIST_FOREACH (twin, chain_of(c, m), twins)
        if (run_key_equal(&twin->repeat_key, &m->repeat_key) &&
            (twin->key.hop == m->key.hop || !is_moved(twin)))
            return true;
    return false;
}

/* Mark a repeat that the broker has not marked, before the message is lent or
 * moved to another queue. The sender may have meant both messages, so both run.
 * mtx is held. */
static void repeat_mark(struct claims *c, struct amqp_message *m)
{
    if (m->m.flags & MESSAGE_REDELIVERED || !may_have_run(c, m))
        return;
    m->m.flags |= MESSAGE_REDELIVERED;
    m->marked = true;
}

/* Finish a message that must not run again, because it was settled here or will
 * be. Called on the inbox's thread, and again by the lane that takes the
 * message; mtx is held. Returns false if the message may run.
 * Its twin is the same message among those lent: its claim was lost with its
 * connection, or the two are copies that were published twice. A twin without
 * its claim that waits behind others of its group does not count: the broker
 * may deliver the messages before the twin again behind it, so the twin must
 * run from its new delivery, too.
 * A good claim is not replaced: the second message is acknowledged, and the
 * broker delivers the first one again if its connection breaks.
 * A message without a line is not searched in the run file in two cases: its id
 * is derived, so an equal message has the same id; or it is a copy, which no
 * worker has written, because a worker's copies have a line. */
static bool settle_known(struct claims *c, const struct amqp_message *m)
{
    bool derived = m->m.flags & MESSAGE_ID_DERIVED;
    struct amqp_message *twin;

    if ((!(m->m.flags & MESSAGE_REDELIVERED) || m->marked) && !m->line)
        return false;
    LIST_FOREACH (twin, chain_of(c, m), twins) {
        bool stale = twin->epoch != c->epoch;
        bool in_line = stale && twin->grouped && twin->at == CLAIM_LENT &&
                       !atomic_load(&twin->runs);

        if ((stale || m->line) && !in_line && twin->at >= CLAIM_LENT &&
            twin->at <= CLAIM_MOVING && run_key_equal(&twin->key, &m->key))
            break;
    }
    if (twin && twin->epoch != c->epoch) {
        twin->epoch = m->epoch;
        twin->tag = m->tag;
        atomic_store(&twin->m.stale, false);
        return true;
    }
    if (!twin && ((!m->line && (derived || run_key_copy(&m->key))) ||
                  !run_file_was_settled(c->queue->runs, &m->key)))
        return false;
    ack_add(c, m->epoch, m->tag);
    return true;
}

/* Read the group of a message. Refuse the message unless it came to the
 * partition of its group, because a group has an order only in its own
 * partition. Called on the inbox's thread. */
static void group_set(struct amqp_message *m, struct amqp_queue *queue,
                      const struct envelope *e)
{
    unsigned parts = queue->topology.partitions;

    m->grouped = true;
    m->group_crc = e->group_crc;
    if (!parts)
        m->refused =
            "it names a group, and a queue without partitions keeps no "
            "order";
    else if (!e->good_group)
        m->refused = "the value of its mqw-group cannot be a group";
    else if (e->group_crc % parts != m->part)
        m->refused = "it is not in the partition of its group";
    if (m->refused && !atomic_exchange(&queue->group_logged, true))
        log_error("group_refused", F_STR("queue", queue->operand->shown),
                  F_STR("error", m->refused),
                  F_STR("next",
                        parts ? "such messages become dead letters: the "
                                "routing key must be CRC-32 of mqw-group "
                                "modulo the number of partitions"
                              : "such messages become dead letters, because "
                                "several workers would run them in any order; "
                                "leave out mqw-group, or give --partitions to "
                                "the queue's workers and senders"));
}

void claims_arrived(struct claims *c, struct incoming *in, unsigned part)
{
    struct amqp_message *m = (void *)in->block;
    size_t summed = in->body_size < SUMMED ? in->body_size : SUMMED;
    char head[HEADER_MAX];
    struct envelope e;
    uint64_t id, mixed;
    int err;

    *m = (struct amqp_message){.claims = c,
                               .raw = in->raw,
                               .body = in->body,
                               .body_size = in->body_size,
                               .epoch = c->epoch,
                               .tag = in->tag,
                               .part = part};
    in->block = NULL;
    err = envelope_read(&e, m->raw, m->body, m->body_size, head);
    if (err) {
        log_error(
            "message_unreadable", F_STR("queue", c->queue->operand->shown),
            F_STR("error", errno_text(-err)), F_UINT("size", m->body_size),
            F_STR("next", "it stays in the queue, unacknowledged; "
                          "inspect its properties"));
        amqp_message_free(m);
        return;
    }
    m->id = e.id;
    m->line = e.line;
    /* Two messages of a producer may have the same id. So the key of an
     * original is mixed with its body, and the key of a copy is mixed with its
     * line, which all copies share that one worker made of an original. */
    m->key = (struct run_key){e.id, (uint32_t)e.attempt, (uint16_t)e.replay,
                              (uint16_t)e.hop};
    memcpy(&id, e.id.bytes, sizeof id);
    mixed = id ^ fnv_add(FNV_BEGIN ^ m->body_size, m->body, summed);
    memcpy(m->key.id.bytes, &mixed, sizeof mixed);
    m->repeat_key = m->key;
    if (m->line) {
        mixed = id ^ m->line;
        memcpy(m->key.id.bytes, &mixed, sizeof mixed);
        m->repeat_key.hop = ANY_HOP;
    }
    if (e.derived) /* copies of equal messages are no repeats */
        m->repeat_key = m->key;
    m->due_wall_ns = e.due_ns;
    m->first_ns = e.first_ns;
    memcpy(m->body - e.head, head, e.head);
    m->m = (struct message){.ops = &message_ops,
                            .data = m->body - e.head,
                            .size = m->body_size + e.head,
                            .id = &m->id,
                            .priority = e.priority,
                            .failures = (uint32_t)e.attempt};
    if (in->redelivered || e.resent)
        m->m.flags |= MESSAGE_REDELIVERED;
    if (e.derived)
        m->m.flags |= MESSAGE_ID_DERIVED;
    if (e.due_ns)
        m->m.flags |= MESSAGE_STORED;
    if (e.has_group)
        group_set(m, c->queue, &e);
    /* A refused message must not run. */
    if (!m->refused)
        m->refused = e.wrong;
    TAILQ_INSERT_TAIL(&c->incoming, m, link);
    if (++c->incoming_count == INCOMING_MOST)
        claims_place(c);
}

/* Place many messages under one lock, because the threads that take need mtx,
 * too. */
void claims_place(struct claims *c)
{
    struct amqp_message *m;
    bool alone;

    if (c->incoming_count == 0)
        return;
    c->incoming_count = 0;
    pthread_mutex_lock(&c->mtx);
    while ((m = TAILQ_FIRST(&c->incoming)) != NULL) {
        uint64_t now, wait;

        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it was unlinked */
        TAILQ_REMOVE(&c->incoming, m, link);
        c->delivered[m->part] = m->epoch;
        m->m.crashes = run_file_crashes(c->queue->runs, &m->repeat_key, &alone);
        m->m.flags |= alone ? MESSAGE_CRASHED_ALONE : 0;
        if (settle_known(c, m)) {
            amqp_message_free(m);
            continue;
        }
        now = clock_wall_ns();
        wait = m->due_wall_ns > now ? m->due_wall_ns - now : 0;
        if (!m->refused && topology_length(wait / NS_PER_MS) == 0) {
            /* Messages with one due time keep their order, because ahead_ns is
             * the same for all of them. */
            m->due_ns = (uint64_t)((int64_t)m->due_wall_ns - c->ahead_ns);
            if (wait > 0)
                delayed_put(c, m);
            else
                arrived_put(c, m);
            continue;
        }
        /* Move the message to another queue: the dead letters, or a wait queue.
         */
        m->job.due_wall_ns = m->refused ? 0 : m->due_wall_ns;
        if (m->refused) {
            m->job.own = (struct settle){.m = &m->m,
                                         .kind = SETTLE_DEAD,
                                         .lane = LANE_NONE,
                                         .reason = REASON_BAD_HEADER,
                                         .error = m->refused,
                                         .died_ns = now};
            m->job.settle = &m->job.own;
        }
        repeat_mark(c, m);
        m->at = CLAIM_MOVING;
        lent_put(c, m);
        job_add(c, m);
    }
    pthread_mutex_unlock(&c->mtx);
}

/* Forget all claims, because the connection is lost and the broker delivers all
 * messages again. Called on the inbox's thread. The jobs of the outbox
 * continue: once the copy is confirmed, the original is known as settled when
 * it is delivered again. */
bool claims_void(struct claims *c)
{
    struct amqp_message *m;
    bool due, none;

    pthread_mutex_lock(&c->mtx);
    none = c->epoch == 0;
    c->epoch = 0;
    while ((m = TAILQ_FIRST(&c->arrived)) != NULL) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it was unlinked */
        arrived_remove(c, m);
        amqp_message_free(m);
    }
    while ((m = TAILQ_FIRST(&c->delayed)) != NULL) {
        TAILQ_REMOVE(&c->delayed, m, link);
        if (m->failed_head) /* the group waits for this head */
            due_put(c, m);
        else
            amqp_message_free(m);
    }
    c->delayed_count = 0;
    c->ack_count = 0;
    TAILQ_FOREACH (m, &c->lent, link)
        atomic_store(&m->m.stale, true);
    TAILQ_FOREACH (m, &c->due, link)
        atomic_store(&m->m.stale, true);
    due = ready_update(c);
    pthread_mutex_unlock(&c->mtx);
    changed_tell(c, due);
    return none;
}

/* ---- taking ---- */

/* Lend a message that was just taken off its list. mtx is held. */
static void message_lend(struct claims *c, struct amqp_message *m,
                         uint64_t wall_ns)
{
    m->at = CLAIM_LENT;
    atomic_store(&m->runs, false);
    m->m.index = c->free_index[--c->free_count];
    if (m->m.seq == 0)
        m->m.seq = ++c->seq;
    if (m->first_ns == 0)
        m->first_ns = wall_ns;
    m->m.received_ns = m->first_ns;
    lent_put(c, m);
    c->lent_count++;
}

int claims_take(struct source *s, unsigned lane, uint64_t wall_ns,
                struct message **out)
{
    struct claims *c = amqp_queue_of(s)->claims;
    struct amqp_message *m = NULL;

    claims_lane_rest(s, lane);
    pthread_mutex_lock(&c->mtx);
    /* Check again that the message may run: of two copies that arrived one
     * after the other, the first may have run by now. */
    while (!m && c->free_count > 0 && (m = TAILQ_FIRST(&c->arrived)) != NULL) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it was unlinked */
        arrived_remove(c, m);
        if (settle_known(c, m)) {
            amqp_message_free(m);
            m = NULL;
        }
    }
    if (m) {
        repeat_mark(c, m);
        message_lend(c, m, wall_ns);
    }
    (void)ready_update(c);
    pthread_mutex_unlock(&c->mtx);
    if (!m)
        return -EAGAIN;
    FAULT_POINT("amqp_taken");
    *out = &m->m;
    return m->m.crashes ? -ECANCELED : 0;
}

/* Take a failed head of a group whose retry is due. claims_take takes any other
 * message that has waited. */
int claims_take_due(struct source *s, unsigned lane, struct message **out)
{
    struct claims *c = amqp_queue_of(s)->claims;
    struct amqp_message *m = NULL;

    claims_lane_rest(s, lane);
    pthread_mutex_lock(&c->mtx);
    if (c->free_count > 0 && (m = TAILQ_FIRST(&c->due)) != NULL) {
        TAILQ_REMOVE(&c->due, m, link);
        LIST_REMOVE(m, twins);
        c->head_count--;
        m->m.failures = m->head_failures;
        message_lend(c, m, m->first_ns);
    }
    (void)ready_update(c);
    pthread_mutex_unlock(&c->mtx);
    if (!m)
        return -EAGAIN;
    *out = &m->m;
    return 0;
}

/* End the loan of a message, and free its index. The caller checks whether
 * another message is due. mtx is held. */
static void message_unlend(struct claims *c, struct amqp_message *m)
{
    lent_remove(c, m);
    c->lent_count--;
    c->settling_count -= m->at == CLAIM_SETTLING;
    run_file_unrun(c->queue->runs, m->m.index);
    c->free_index[c->free_count++] = m->m.index;
    (void)ready_update(c);
}

/* Note that a message is settled. If a copy `ran`, note also that each other
 * copy with as many failures is a repeat: when a worker is killed before it
 * acknowledges the original, the next worker makes copies of its own. mtx is
 * held. */
static void settled_note(struct claims *c, const struct amqp_message *m,
                         bool ran)
{
    if (ran && !run_key_equal(&m->repeat_key, &m->key))
        run_file_settled(c->queue->runs, &m->repeat_key);
    run_file_settled(c->queue->runs, &m->key);
}

/* Settle and acknowledge the original, because the broker has confirmed the
 * copy that follows from its verdict. Called on the outbox's thread. Crash
 * before the acknowledgement is sent: see the head of this file. */
void claims_confirmed(struct claims *c, struct amqp_job *j)
{
    const struct source_events *events = &c->queue->events;
    struct amqp_message *m = amqp_job_message(j);
    struct settle *verdict;
    bool due;

    FAULT_POINT("amqp_confirmed");
    pthread_mutex_lock(&c->mtx);
    verdict = m->at == CLAIM_SETTLING ? j->settle : NULL;
    settled_note(c, m, !is_moved(m));
    ack_add(c, m->epoch, m->tag);
    if (verdict)
        message_unlend(c, m);
    else
        lent_remove(c, m);
    pthread_mutex_unlock(&c->mtx);
    if (verdict) {
        verdict->err = 0;
        events->settled(events->flow, verdict);
    } else if (j->settle) { /* refused: the message died without being lent */
        events->died(events->flow,
                     &(struct source_death){.id = m->id,
                                            .reason = m->job.own.reason,
                                            .error = m->job.own.error,
                                            .died_ns = m->job.own.died_ns,
                                            .size = m->m.size});
    }
    pthread_mutex_lock(&c->mtx);
    if (--c->job_count == 0)
        pthread_cond_broadcast(&c->changed);
    /* The next message of the group may run now. Send the event to wake the
     * work items, because no arriving message does. */
    due = m->grouped || source_due(&c->queue->source);
    pthread_mutex_unlock(&c->mtx);
    amqp_message_free(m);
    changed_tell(c, due);
}

/* ---- settling ---- */

/* Settle a verdict that needs no copy. Returns 0; -ESTALE; or -EINPROGRESS if
 * the broker must confirm a copy first, with nothing changed. mtx is held. */
static int settle_now(struct claims *c, struct amqp_message *m,
                      struct settle *s)
{
    bool stays = m->grouped && s->kind == SETTLE_RETRY;
    struct envelope_attempt failed;
    amqp_bytes_t raw;

    if (s->kind <= SETTLE_DISCARD) {
        /* A broker does not confirm an acknowledgement, and delivers a message
         * again if the acknowledgement was lost. So note in the run file first
         * that the message is settled: a second delivery to this worker is then
         * recognized. Crash before the note: the message runs again, marked. */
        settled_note(c, m, true);
        FAULT_POINT("amqp_done_before_ack");
        ack_add(c, m->epoch, m->tag);
    } else if (m->epoch == c->epoch && !stays && s->kind != SETTLE_RETURN) {
        return -EINPROGRESS;
    }
    message_unlend(c, m);
    m->at = CLAIM_SETTLED;
    if (s->kind <= SETTLE_DISCARD)
        return 0;
    if (m->epoch != c->epoch) /* another worker may have it by now */
        return -ESTALE;
    if (stays) {
        m->failed_head = true;
        m->head_failures = m->m.failures + (s->attempt != NULL);
    }
    if (stays && s->attempt) {
        /* Add the failed attempt to the properties, in case the message becomes
         * a letter. Leave the attempt out if there is no memory or no room for
         * it. */
        failed = amqp_attempt_of(c->queue, s->attempt, m->head_failures);
        if (envelope_attempt_add(&raw, m->raw, &m->id, &failed) == 0) {
            free(m->own_raw);
            m->own_raw = raw.bytes;
            m->raw = raw;
        }
    }
    if (m->failed_head) {
        c->head_count++;
        LIST_INSERT_HEAD(chain_of(c, m), m, twins);
    }
    /* claims_release delays the message as soon as its lane does not read it
     * any more. */
    m->due_ns = settle_due(s);
    m->at = CLAIM_RETURNED;
    return 0;
}

/* `n` is always 1: the flow gives a source that settles late one verdict at a
 * time. */
int claims_settle(struct source *s, struct settle *st, size_t n)
{
    struct claims *c = amqp_queue_of(s)->claims;
    struct amqp_message *m = message_of(st->m);
    unsigned lane = st->lane;
    int err;

    (void)n;
    pthread_mutex_lock(&c->mtx);
    err = settle_now(c, m, st);
    if (err == -EINPROGRESS) {
        uint64_t now = clock_boot_ns(), due = settle_due(st);

        /* Have the outbox publish the copy that follows from the verdict. The
         * handler has finished, so a crash from here on does not count against
         * the message. */
        m->at = CLAIM_SETTLING;
        m->job = (struct amqp_job){.settle = st};
        if (st->kind == SETTLE_RETRY)
            m->job.due_wall_ns =
                st->due_boot_ns ? clock_wall_ns() + (due > now ? due - now : 0)
                                : st->due_ns;
        c->settling_count++;
        run_file_unrun(c->queue->runs, m->m.index);
        (void)ready_update(c); /* the caller checks `due` itself */
        job_add(c, m);
    }
    pthread_mutex_unlock(&c->mtx);
    if (err == -EINPROGRESS)
        return err; /* the message and the verdict may be gone by now */
    st->err = err;
    if (err == -ESTALE && lane == LANE_NONE)
        amqp_message_free(m);
    else
        lane_remember(c, lane, m);
    return err;
}

/* ---- numbers ---- */

/* Return true if no message can be taken, and fewer run than may run. mtx is
 * held. */
static bool claims_starved(const struct claims *c)
{
    const struct settings *set = c->queue->set;

    return TAILQ_EMPTY(&c->arrived) &&
           c->lent_count - c->settling_count < set->concurrency * set->window;
}

struct claims_counts claims_count(struct claims *c)
{
    const struct amqp_message *first;
    struct claims_counts counts;

    pthread_mutex_lock(&c->mtx);
    first = TAILQ_FIRST(&c->arrived);
    counts = (struct claims_counts){.room = c->free_count,
                                    .arrived = c->arrived_count,
                                    .delayed = c->delayed_count,
                                    .jobs = c->job_count,
                                    .starved = claims_starved(c),
                                    .oldest_ns = first ? first->arrived_ns : 0};
    pthread_mutex_unlock(&c->mtx);
    return counts;
}

bool claims_still_idle(struct claims *c)
{
    bool still;

    pthread_mutex_lock(&c->mtx);
    still = c->idle_seq == c->seq + 1 && c->head_count == 0;
    c->idle_seq = c->seq + 1;
    pthread_mutex_unlock(&c->mtx);
    return still;
}

/* Count the messages of a list for their parts. mtx is held. */
static void part_count(const struct amqp_list *list, struct source_part *parts)
{
    const struct amqp_message *m;

    TAILQ_FOREACH (m, list, link) {
        parts[m->part].in_hand++;
        parts[m->part].blocked += m->failed_head && m->at != CLAIM_LENT;
    }
}

/* A consumer cannot find out from the broker whether it is the active consumer.
 * So a partition counts as this worker's once it has delivered a message on
 * this connection: it then delivers no message to other workers while the
 * connection lasts. Any thread. */
void claims_parts(struct source *s,
                  void (*visit)(void *arg, const struct source_part *part),
                  void *arg)
{
    struct amqp_queue *queue = amqp_queue_of(s);
    struct source_part parts[PARTITIONS_MAX] = {0};
    struct claims *c = queue->claims;

    if (!amqp_queue_is_parted(queue))
        return;
    pthread_mutex_lock(&c->mtx);
    part_count(&c->arrived, parts);
    part_count(&c->delayed, parts);
    part_count(&c->due, parts);
    part_count(&c->lent, parts);
    for (unsigned i = 0; i < queue->part_count; i++) {
        parts[i].number = i;
        parts[i].here = c->delivered[i] != 0 && c->delivered[i] == c->epoch;
    }
    pthread_mutex_unlock(&c->mtx);
    for (unsigned i = 0; i < queue->part_count; i++)
        visit(arg, &parts[i]);
}

/* ---- for the inbox, on its thread ---- */

void claims_begin(struct claims *c)
{
    pthread_mutex_lock(&c->mtx);
    c->epoch = ++c->epochs;
    pthread_mutex_unlock(&c->mtx);
}

uint64_t *claims_acks(struct claims *c, size_t *n, bool *starved)
{
    uint64_t *acks = NULL;

    pthread_mutex_lock(&c->mtx);
    *n = c->ack_count;
    *starved = claims_starved(c);
    if (*n > 0) {
        acks = c->acks;
        c->acks = NULL;
        c->ack_count = c->ack_room = 0;
    }
    pthread_mutex_unlock(&c->mtx);
    return acks;
}

uint64_t *claims_take_back(struct claims *c, size_t *n)
{
    uint64_t *tags = NULL;
    struct amqp_message *m;

    *n = 0;
    pthread_mutex_lock(&c->mtx);
    if (c->arrived_count > 0)
        tags = calloc(c->arrived_count, sizeof *tags);
    while (tags && (m = TAILQ_FIRST(&c->arrived)) != NULL) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it was unlinked */
        tags[(*n)++] = m->tag;
        arrived_remove(c, m);
        amqp_message_free(m);
    }
    (void)ready_update(c);
    pthread_mutex_unlock(&c->mtx);
    return tags;
}

/* ---- for the outbox, on its thread ---- */

void claims_jobs_take(struct claims *c, struct unconfirmed_list *to)
{
    pthread_mutex_lock(&c->mtx);
    TAILQ_CONCAT(to, &c->jobs, link);
    pthread_mutex_unlock(&c->mtx);
}

/* ---- open and close ---- */

/* Follow a clock that was set. Called on the loop's thread. The inbox is woken,
 * too, because its timer stood still during a suspend. */
void claims_clock_set(struct source *s)
{
    struct claims *c = amqp_queue_of(s)->claims;

    pthread_mutex_lock(&c->mtx);
    c->ahead_ns = clock_ahead_ns();
    pthread_mutex_unlock(&c->mtx);
    side_wake(&c->queue->inbox);
}

unsigned claims_drain(struct claims *c, uint64_t limit_ns)
{
    uint64_t end = clock_mono_ns() + limit_ns;
    struct timespec until = {.tv_sec = (time_t)(end / NS_PER_S),
                             .tv_nsec = (long)(end % NS_PER_S)};
    unsigned left;
    int err = 0;

    pthread_mutex_lock(&c->mtx);
    while (!err && c->job_count > 0)
        err = pthread_cond_timedwait(&c->changed, &c->mtx, &until);
    left = c->job_count;
    pthread_mutex_unlock(&c->mtx);
    return left;
}

int claims_open(struct claims **out, struct amqp_queue *queue)
{
    struct claims *c = calloc(1, sizeof *c);
    pthread_mutexattr_t kind;
    pthread_condattr_t clock;

    *out = c;
    if (!c)
        return -ENOMEM;
    c->queue = queue;
    c->seq = queue->first_seq;
    c->ahead_ns = clock_ahead_ns();
    /* The mutex is never held for long, so threads spin for it. */
    pthread_mutexattr_init(&kind);
    (void)pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&c->mtx, &kind);
    pthread_mutexattr_destroy(&kind);
    pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &clock);
    pthread_condattr_destroy(&clock);
    TAILQ_INIT(&c->incoming);
    TAILQ_INIT(&c->arrived);
    TAILQ_INIT(&c->delayed);
    TAILQ_INIT(&c->due);
    TAILQ_INIT(&c->lent);
    TAILQ_INIT(&c->jobs);
    c->lanes = calloc(ITEMS_MAX, sizeof *c->lanes);
    c->free_index = calloc(RUN_SLOTS, sizeof *c->free_index);
    c->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!c->lanes || !c->free_index || c->ready_fd < 0) {
        claims_close(out);
        return -ENOMEM;
    }
    queue->source.poll_fd = c->ready_fd;
    for (unsigned i = 0; i < RUN_SLOTS; i++)
        c->free_index[i] = RUN_SLOTS - 1 - i;
    c->free_count = RUN_SLOTS;
    return 0;
}

void claims_close(struct claims **claims)
{
    struct claims *c = *claims;
    struct amqp_message *m;

    if (!c)
        return;
    *claims = NULL;
    TAILQ_CONCAT(&c->lent, &c->arrived, link);
    TAILQ_CONCAT(&c->lent, &c->delayed, link);
    TAILQ_CONCAT(&c->lent, &c->due, link);
    while ((m = TAILQ_FIRST(&c->lent)) != NULL) {
        TAILQ_REMOVE(&c->lent, m, link);
        amqp_message_free(m);
    }
    for (unsigned i = 0; c->lanes && i < ITEMS_MAX; i++)
        if (c->lanes[i])
            amqp_message_free(c->lanes[i]);
    if (c->ready_fd >= 0)
        close(c->ready_fd);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mtx);
    free(c->acks);
    free(c->lanes);
    free(c->free_index);
    free(c);
}
