/* amqp_take.c - from a broker to the worker (see source_amqp.h)
 *
 * A broker whose connection broke gives again what it had no acknowledgement
 * of, marked. Three answers to that: one that was settled here is acknowledged
 * and does not run again; one that still runs here, or has its verdict on the
 * way, has its claim back; all else runs, and says that it may have run before.
 */
#include "worker/source/amqp/amqp_inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/base/problem.h"

#define SUMMED        4096 /* bytes of a body that tell it from others */
#define INCOMING_MOST 32   /* that wait to be placed, while more come */

/* ---- what a handler does to it ---- */

static struct source_amqp *source_of(struct message *m)
{
    return amqp_message_of(m)->q;
}

static void run(struct message *m, uint64_t started_ns)
{
    struct amqp_message *a = amqp_message_of(m);

    (void)started_ns;
    atomic_store(&a->runs, true);
    run_file_run(source_of(m)->runs, m->index, &a->key, m->seq);
}

static void handler(struct message *m, uint64_t mark, uint64_t start)
{
    run_file_handler(source_of(m)->runs, m->index, mark, start);
}

static void handler_group(struct message *m, pid_t group)
{
    run_file_group(source_of(m)->runs, m->index, group);
}

static void unrun(struct message *m, bool may_have_run)
{
    run_file_unrun(source_of(m)->runs, m->index);
    atomic_store(&amqp_message_of(m)->runs, false);
    if (may_have_run)
        m->flags |= MESSAGE_REDELIVERED;
}

static const struct message_ops message_ops = {.run = run,
                                               .handler = handler,
                                               .handler_group = handler_group,
                                               .unrun = unrun};

/* ---- lists; mtx is held ---- */

bool amqp_ready_locked(struct source_amqp *q)
{
    uint64_t n = 1;
    bool is = !TAILQ_EMPTY(&q->arrived);
    bool due = !TAILQ_EMPTY(&q->due);

    if (is != q->ready_said && is)
        (void)!write(q->ready_fd, &n, sizeof n);
    else if (is != q->ready_said)
        (void)!read(q->ready_fd, &n, sizeof n);
    q->ready_said = is;
    if (due == source_due(&q->source))
        return false;
    if (due)
        source_due_set(&q->source, 1);
    else
        source_due_clear(&q->source, 1);
    return due;
}

static void arrived_put(struct source_amqp *q, struct amqp_message *m)
{
    m->at = AMQP_ARRIVED;
    m->arrived_ns = clock_mono_ns();
    TAILQ_INSERT_TAIL(&q->arrived, m, link);
    q->arrived_count++;
    (void)amqp_ready_locked(q);
}

void amqp_arrived_remove(struct source_amqp *q, struct amqp_message *m)
{
    TAILQ_REMOVE(&q->arrived, m, link);
    q->arrived_count--;
}

uint64_t amqp_due(struct source_amqp *q)
{
    uint64_t now = clock_boot_ns(), next = UINT64_MAX;
    struct amqp_message *m;
    bool due;

    pthread_mutex_lock(&q->mtx);
    while ((m = TAILQ_FIRST(&q->held)) != NULL && m->due_ns <= now) {
        TAILQ_REMOVE(&q->held, m, link);
        q->held_count--;
        if (m->again)
            amqp_due_locked(q, m);
        else
            arrived_put(q, m);
    }
    if (m)
        next = m->due_ns - now;
    due = amqp_ready_locked(q);
    pthread_mutex_unlock(&q->mtx);
    if (due)
        q->events.changed(q->events.arg);
    return next;
}

/* ---- arriving ---- */

/* in_line - it waits behind others of its group, and its claim is gone: those
 * before it may come again behind it, so it does, too */
static bool in_line(const struct source_amqp *q, const struct amqp_message *m)
{
    return m->grouped && m->epoch != q->epoch && m->at == AMQP_LENT &&
           !atomic_load(&m->runs);
}

/* twin_of - the same message, which is here: its claim went with its
 * connection, or it is a copy that we published twice */
static struct amqp_message *twin_of(struct source_amqp *q,
                                    const struct amqp_message *m)
{
    struct amqp_message *twin;

    TAILQ_FOREACH (twin, &q->lent, link)
        if ((twin->epoch != q->epoch || m->line) && !in_line(q, twin) &&
            memcmp(&twin->key, &m->key, sizeof m->key) == 0)
            return twin;
    return NULL;
}

static bool is_in(const struct amqp_list *list, const struct amqp_message *m)
{
    const struct amqp_message *twin;

    TAILQ_FOREACH (twin, list, link)
        if (memcmp(&twin->key, &m->key, sizeof m->key) == 0)
            return true;
    return false;
}

/* waited - at the broker, as its sender made it: no worker has given it a line
 * of its own */
static bool waited(const struct amqp_message *m)
{
    return m->m.flags & MESSAGE_STORED && !m->line && !m->derived;
}

/* may_have_run - though the broker does not mark it
 * It forwards a message from a wait queue at least once: a node that dies may
 * do so a second time. Of two that have one id and one body the sender may have
 * meant both, so both run. And a worker of this machine that was killed may
 * have had it. One whose id is derived may be another that is equal.
 */
static bool may_have_run(const struct source_amqp *q,
                         const struct amqp_message *m)
{
    const struct amqp_list *const all[] = {&q->lent, &q->arrived, &q->held,
                                           &q->put_off, &q->due};

    if (m->m.crashes > 0)
        return !m->derived;
    if (!waited(m))
        return false;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (is_in(all[i], m))
            return true;
    return run_file_was_settled(q->runs, &m->key);
}

/* asked_for - it may be known: all others are not looked for */
static bool asked_for(const struct amqp_message *m)
{
    return (m->m.flags & MESSAGE_REDELIVERED && !m->marked) || m->line;
}

/* known - it is one that we know the end of, or will: it does not run again.
 * The end of one whose id is derived may be that of an equal message, and so
 * may that of a letter that no worker wrote.
 * A claim that is good is not given up for another one: the second is
 * acknowledged, and the broker gives the first again if that breaks. mtx is
 * held. */
static bool known(struct source_amqp *q, const struct amqp_message *m)
{
    struct amqp_message *twin;

    if (!asked_for(m))
        return false;
    twin = twin_of(q, m);
    if (twin && twin->epoch != q->epoch) {
        twin->epoch = m->epoch;
        twin->tag = m->tag;
        atomic_store(&twin->m.stale, false);
        return true;
    }
    if (!twin && (m->derived || (!m->line && run_key_copy(&m->key)) ||
                  !run_file_was_settled(q->runs, &m->key)))
        return false;
    amqp_ack_locked(q, m->epoch, m->tag);
    return true;
}

/* place - where it is from here on; mtx is held */
static void place(struct source_amqp *q, struct amqp_message *m)
{
    uint64_t now = clock_wall_ns();

    if (m->refused) {
        amqp_die_locked(q, m, REASON_BAD_HEADER, m->refused);
    } else if (m->due_wall_ns > now &&
               topology_length((m->due_wall_ns - now) / NS_PER_MS) > 0) {
        amqp_hop_locked(q, m);
    } else if (m->due_wall_ns > now) {
        /* Compute both from one instant, so that messages with the same instant
         * keep their order. */
        m->due_ns = (uint64_t)((int64_t)m->due_wall_ns - q->ahead_ns);
        amqp_hold_locked(q, m);
    } else {
        arrived_put(q, m);
    }
}

/* key_set - that of a copy has the line of it: two messages of a producer may
 * have one id, and each has copies of its own. That of an original has its
 * body: messages that differ are not taken for each other.
 */
static void key_set(struct amqp_message *m, const struct envelope *e)
{
    uint64_t sum = 0xcbf29ce484222325U ^ m->body_size, part;

    m->line = e->line;
    m->derived = e->derived;
    m->key = (struct run_key){e->id, (uint32_t)e->attempt, (uint16_t)e->replay,
                              (uint16_t)e->hop};
    for (size_t i = 0; !m->line && i < m->body_size && i < SUMMED; i++)
        sum = (sum ^ m->body[i]) * 0x100000001b3U;
    memcpy(&part, m->key.id.bytes, sizeof part);
    part ^= m->line ? m->line : sum;
    memcpy(m->key.id.bytes, &part, sizeof part);
}

/* group_set - its group, or why it cannot be in one: only what comes to one
 * part has an order */
static void group_set(struct source_amqp *q, struct amqp_message *m,
                      const struct envelope *e)
{
    unsigned parts = q->topology.partitions;

    m->grouped = true;
    m->group_crc = e->group_crc;
    if (!parts)
        m->refused = AMQP_GROUPED;
    else if (!e->good_group)
        m->refused = AMQP_NO_GROUP;
    else if (e->group_crc % parts != m->part)
        m->refused = AMQP_MISPLACED;
    if (m->refused && !atomic_exchange(&q->group_told, true))
        log_error("group_refused", F_STR("queue", q->operand->shown),
                  F_STR("error", m->refused),
                  F_STR("next",
                        parts ? "such messages are dead letters: the routing "
                                "key is CRC-32 of mqw-group modulo the number "
                                "of partitions"
                              : "such messages are dead letters, as several "
                                "workers would run them in any order; leave "
                                "out mqw-group, or give --partitions to its "
                                "workers and senders"));
}

/* read_envelope - what its properties say */
static int read_envelope(struct source_amqp *q, struct amqp_message *m,
                         bool redelivered)
{
    char head[HEADER_MAX];
    struct envelope e;
    int err = envelope_read(&e, m->raw, m->body, m->body_size, head);

    if (err)
        return err;
    m->id = e.id;
    key_set(m, &e);
    m->due_wall_ns = e.due_ns;
    m->first_ns = e.first_ns;
    m->m.ops = &message_ops;
    m->m.data = m->body - e.head;
    m->m.size = m->body_size + e.head;
    memcpy((unsigned char *)(uintptr_t)m->m.data, head, e.head);
    m->m.id = &m->id;
    m->m.priority = e.priority;
    m->m.failures = (uint32_t)e.attempt;
    if (redelivered || e.resent)
        m->m.flags |= MESSAGE_REDELIVERED;
    if (e.due_ns)
        m->m.flags |= MESSAGE_STORED;
    if (e.has_group)
        group_set(q, m, &e);
    if (!m->refused)
        m->refused = e.wrong;
    return 0;
}

void amqp_arrived(struct source_amqp *q, struct amqp_message *m,
                  bool redelivered)
{
    int err = read_envelope(q, m, redelivered);

    if (err) {
        log_error("message_unreadable", F_STR("queue", q->operand->shown),
                  F_STR("error", errno_text(-err)),
                  F_UINT("size", m->body_size),
                  F_STR("next", "it stays in the queue, unacknowledged; look "
                                "at its properties"));
        amqp_free(m);
        return;
    }
    TAILQ_INSERT_TAIL(&q->incoming, m, link);
    if (++q->incoming_count == INCOMING_MOST)
        amqp_place_all(q);
}

/* amqp_place_all - many with one lock, which the threads that take want, too:
 * one that is looked for in all that was settled has a lock of its own */
void amqp_place_all(struct source_amqp *q)
{
    struct amqp_message *m;
    bool searched = false, alone;

    if (q->incoming_count == 0)
        return;
    q->incoming_count = 0;
    pthread_mutex_lock(&q->mtx);
    while ((m = TAILQ_FIRST(&q->incoming)) != NULL) {
        if (searched) {
            pthread_mutex_unlock(&q->mtx);
            pthread_mutex_lock(&q->mtx);
        }
        searched = asked_for(m) || waited(m);
        TAILQ_REMOVE(&q->incoming, m, link);
        q->given[m->part] = m->epoch;
        m->m.crashes = run_file_crashes(q->runs, &m->key, &alone);
        m->m.flags |= alone ? MESSAGE_CRASHED_ALONE : 0;
        if (known(q, m)) {
            amqp_free(m);
            continue;
        }
        if (!(m->m.flags & MESSAGE_REDELIVERED) && may_have_run(q, m)) {
            m->m.flags |= MESSAGE_REDELIVERED;
            m->marked = true;
        }
        place(q, m);
    }
    pthread_mutex_unlock(&q->mtx);
}

/* amqp_void_claims - the broker gives all of it again
 * A job of the outbox goes on: the copy is confirmed, and then the original is
 * known as settled when it comes.
 */
void amqp_void_claims(struct source_amqp *q)
{
    struct amqp_message *m;
    bool due;

    pthread_mutex_lock(&q->mtx);
    q->epoch = 0;
    while ((m = TAILQ_FIRST(&q->arrived)) != NULL) {
        amqp_arrived_remove(q, m);
        amqp_free(m);
    }
    while ((m = TAILQ_FIRST(&q->held)) != NULL) {
        TAILQ_REMOVE(&q->held, m, link);
        if (m->again) /* its group waits for it */
            amqp_due_locked(q, m);
        else
            amqp_free(m);
    }
    q->held_count = 0;
    q->ack_count = 0;
    TAILQ_FOREACH (m, &q->lent, link)
        atomic_store(&m->m.stale, true);
    TAILQ_FOREACH (m, &q->due, link)
        atomic_store(&m->m.stale, true);
    due = amqp_ready_locked(q);
    pthread_mutex_unlock(&q->mtx);
    if (due)
        q->events.changed(q->events.arg);
}

/* ---- taking ---- */

/* lend - mtx is held */
static void lend(struct source_amqp *q, struct amqp_message *m,
                 uint64_t wall_ns)
{
    m->at = AMQP_LENT;
    atomic_store(&m->runs, false);
    m->m.index = q->free_index[--q->free_count];
    if (m->m.seq == 0)
        m->m.seq = ++q->seq;
    if (m->first_ns == 0)
        m->first_ns = wall_ns;
    m->m.received_ns = m->first_ns;
    TAILQ_INSERT_TAIL(&q->lent, m, link);
    q->lent_count++;
}

int amqp_take(struct source *s, unsigned lane, uint64_t wall_ns,
              struct message **out)
{
    struct source_amqp *q = source_amqp_of(s);
    struct amqp_message *m = NULL;

    amqp_lane_keep(q, lane, NULL);
    pthread_mutex_lock(&q->mtx);
    /* Two copies may have come before either of them ran. */
    while (!m && q->free_count > 0 && (m = TAILQ_FIRST(&q->arrived)) != NULL) {
        amqp_arrived_remove(q, m);
        if (known(q, m)) {
            amqp_free(m);
            m = NULL;
        }
    }
    if (m)
        lend(q, m, wall_ns);
    (void)amqp_ready_locked(q);
    pthread_mutex_unlock(&q->mtx);
    if (!m)
        return -EAGAIN;
    FAULT_POINT("amqp_taken");
    *out = &m->m;
    return m->m.crashes ? -ECANCELED : 0;
}

/* amqp_take_due - heads of groups that failed; all else that waited comes as
 * take gives it */
int amqp_take_due(struct source *s, unsigned lane, struct message **out)
{
    struct source_amqp *q = source_amqp_of(s);
    struct amqp_message *m = NULL;

    amqp_lane_keep(q, lane, NULL);
    pthread_mutex_lock(&q->mtx);
    if (q->free_count > 0 && !TAILQ_EMPTY(&q->due))
        m = amqp_due_take(q);
    if (m)
        lend(q, m, m->first_ns);
    (void)amqp_ready_locked(q);
    pthread_mutex_unlock(&q->mtx);
    if (!m)
        return -EAGAIN;
    *out = &m->m;
    return 0;
}
