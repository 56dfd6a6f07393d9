/* source_amqp.c - a queue on a broker as the origin of messages (see source.h)
 *
 * Two threads, each with a connection of its own: the inbox consumes and
 * acknowledges, the outbox publishes copies that follow from verdicts. A
 * message stays unacknowledged until its copy is confirmed. worker/engine.c
 * opens, stops and closes the source through broker_engine.h. The table
 * amqp_ops has the other functions, on the threads that source.h names.
 */
#include "worker/source/amqp/inbox.h"
#include "worker/source/amqp/outbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/broker/broker_engine.h"
#include "common/broker/broker_operand.h"
#include "worker/config/settings.h"

/* ---- how many messages there are ---- */

/* Count the messages in the queue. -EAGAIN: the broker does not answer. */
static int ready_ask(struct amqp_queue *q)
{
    long ready = 0;
    uint32_t n;

    for (unsigned i = 0; i < q->part_count; i++) {
        if (outbox_count(q->out, q->parts[i], &n) < 0)
            return -EAGAIN;
        ready += (long)n;
    }
    atomic_store(&q->ready, ready);
    return 0;
}

static int64_t source_amqp_count(struct source *s, enum source_count what)
{
    struct amqp_queue *q = amqp_queue_of(s);
    uint32_t n;

    switch (what) {
    case COUNT_WAITING:
        return claims_count(q->claims).delayed;
    case COUNT_DEAD:
        (void)ready_ask(q);
        return outbox_count(q->out, q->dead, &n) < 0 ? -EAGAIN : (int64_t)n;
    case COUNT_SLOTS: /* before the start: what the last owner could lend */
        return q->started && !amqp_queue_is_parted(q) ? atomic_load(&q->in_hand)
                                                      : RUN_SLOTS;
    case COUNT_FREE:
        return claims_count(q->claims).room;
    case COUNT_FRESH: /* arrived, or in the queue when it was last asked */
        return (int64_t)claims_count(q->claims).arrived +
               atomic_load(&q->ready);
    default:
        return 0;
    }
}

/* Return YES if a message is due. A message that is on its way from the broker
 * is neither in the queue nor here. So the answer is NO only if the call before
 * found nothing either, and nothing came since. A head that waits for its retry
 * counts as due: if the worker exited now, its failures would be lost. */
static int source_amqp_is_due(struct source *s)
{
    struct amqp_queue *q = amqp_queue_of(s);
    int err = ready_ask(q);

    if (err || source_amqp_count(s, COUNT_FRESH) > 0)
        return err ? err : YES;
    return claims_still_idle(q->claims) ? NO : YES;
}

/* ---- how many may be lent ---- */

/* Set the longest time limit that a message may ask for. With partitions it is
 * the worker's own unless --max-timeout is given, because all attempts must end
 * before the broker takes the message back (settings.h). */
static void limit_set(struct amqp_queue *q)
{
    const struct settings *set = q->set;
    uint64_t most = atomic_load(&set->max_timeout_ns);

    if (set->access.partitions && most == UINT64_MAX)
        most = atomic_load(&set->timeout_ns);
    atomic_store(&q->source.timeout_most_ns, most);
}

/* Wake the inbox: the number in hand depends on max-concurrency. */
static void source_amqp_tuned(struct source *s)
{
    limit_set(amqp_queue_of(s));
    side_wake(&amqp_queue_of(s)->inbox);
}

/* Set how many messages may be lent. With partitions the number is fixed,
 * because it must be the same for all workers. */
static int source_amqp_resize(struct source *s, unsigned n, struct problem *p)
{
    struct amqp_queue *q = amqp_queue_of(s);

    (void)p;
    if (!amqp_queue_is_parted(q)) {
        atomic_store(&q->in_hand, n < s->lent_most ? n : s->lent_most);
        side_wake(&q->inbox);
    }
    return 0;
}

/* ---- from one owner to the next ---- */

static int source_amqp_runs(struct source *s,
                            void (*visit)(void *arg,
                                          const struct source_run *run),
                            void *arg, struct problem *p)
{
    (void)p;
    run_file_runs(amqp_queue_of(s)->runs, visit, arg);
    return 0;
}

/* Count the crashes; the broker will deliver their messages again. */
static int source_amqp_recover(struct source *s,
                               int (*visit)(void *arg,
                                            const struct source_left *left),
                               void *arg)
{
    struct amqp_queue *q = amqp_queue_of(s);
    unsigned n = run_file_crashed(q->runs);

    (void)visit, (void)arg;
    if (n > 0)
        log_warn("crashed", F_STR("queue", q->operand->shown),
                 F_UINT("messages", n),
                 F_STR("next", "a worker died while they were running; they "
                               "run again, marked as redelivered"));
    return 0;
}

static void source_amqp_start(struct source *s)
{
    struct amqp_queue *q = amqp_queue_of(s);
    int err;

    q->started = true;
    err = side_start(&q->outbox, outbox_main, q->out);
    if (!err)
        err = side_start(&q->inbox, inbox_main, q->in);
    if (err)
        q->events.ended(q->events.gate, "a thread cannot be started", EX_OSERR);
}

static const struct source_ops amqp_ops = {
    .name = "amqp",
    .late = true,
    .take = claims_take,
    .take_due = claims_take_due,
    .settle = claims_settle,
    .release = claims_release,
    .rest = claims_lane_rest,
    .is_due = source_amqp_is_due,
    .count = source_amqp_count,
    .parts = claims_parts,
    .resize = source_amqp_resize,
    .wanted = inbox_wanted,
    .tuned = source_amqp_tuned,
    .clock_set = claims_clock_set,
    .runs = source_amqp_runs,
    .recover = source_amqp_recover,
    .start = source_amqp_start,
};

/* ---- open and close ---- */

/* Stop the outbox first: the inbox then acknowledges all messages whose copies
 * are confirmed. A message without a confirmed copy stays unacknowledged, and
 * is delivered again. */
static void source_amqp_stop(struct source *source, uint64_t limit_ns)
{
    struct amqp_queue *q = amqp_queue_of(source);
    unsigned left = 0;

    if (q->started && !atomic_load(&q->stopping))
        left = claims_drain(q->claims, limit_ns);
    if (left > 0)
        log_warn("unconfirmed", F_STR("queue", q->operand->shown),
                 F_UINT("count", left),
                 F_STR("next",
                       "the broker has not confirmed these verdicts: it "
                       "delivers their messages again, marked as "
                       "redelivered"));
    atomic_store(&q->stopping, true);
    side_stop(&q->outbox);
    side_stop(&q->inbox);
}

static void source_amqp_close(struct source *source)
{
    struct amqp_queue *q = amqp_queue_of(source);

    source_amqp_stop(source, 0);
    inbox_close(&q->in);
    outbox_close(&q->out);
    if (q->inbox.wake_fd >= 0)
        close(q->inbox.wake_fd);
    if (q->outbox.wake_fd >= 0)
        close(q->outbox.wake_fd);
    claims_close(&q->claims);
    run_file_close(&q->runs);
    explicit_bzero(q->password, sizeof q->password);
    free(q->parts);
    free(q);
}

static int source_amqp_open(struct source **out,
                            const struct broker_source_setup *setup,
                            struct problem *p)
{
    const struct settings *set = setup->set;
    struct amqp_queue *q = calloc(1, sizeof *q);
    unsigned parts = (unsigned)set->access.partitions, want;
    int err;

    if (!q)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    q->source.ops = &amqp_ops;
    q->source.lent_most = RUN_SLOTS;
    q->source.attention = setup->attention;
    q->events = setup->events;
    q->set = set;
    q->operand = &set->broker;
    q->inbox.wake_fd = q->outbox.wake_fd = -1;
    if (gethostname(q->machine, sizeof q->machine - 1) < 0)
        strlcpy(q->machine, "?", sizeof q->machine);
    q->setup = (struct link_setup){.operand = q->operand,
                                   .password = q->password,
                                   .tls = set->access.tls,
                                   .name = "mqworker"};
    q->topology =
        (struct topology){.operand = q->operand,
                          .no_create = set->no_create,
                          .allow_unreplicated = set->allow_unreplicated,
                          .partitions = parts};
    topology_dead(&q->topology, q->dead);
    limit_set(q);
    want = parts ? parts * partition_in_hand(parts)
                 : slots_for(set, (unsigned)set->concurrency);
    atomic_store(&q->in_hand, want < RUN_SLOTS ? want : RUN_SLOTS);
    q->part_count = parts ? parts : 1;
    q->parts = calloc(q->part_count, sizeof *q->parts);
    for (unsigned i = 0; q->parts && i < q->part_count; i++)
        topology_queue(&q->topology, i, q->parts[i]);
    err = q->parts ? broker_password_find(q->password, q->operand,
                                          set->access.password_file, p)
                   : problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    if (!err)
        err = run_file_open(&q->runs, setup->runs, &q->source.nonce,
                            &q->first_seq, p);
    if (!err) {
        err = side_init(&q->inbox, q, "inbox");
        if (!err)
            err = side_init(&q->outbox, q, "outbox");
        if (!err)
            err = claims_open(&q->claims, q);
        if (err)
            err = problem_set(p, EX_OSERR, -err, "cannot start: %s",
                              errno_text(-err));
    }
    /* Connect both sides, the inbox first. */
    if (!err)
        err = inbox_open(&q->in, q, p);
    if (!err)
        err = outbox_open(&q->out, q, p);
    if (err)
        source_amqp_close(&q->source);
    else
        *out = &q->source;
    return err;
}

const struct broker_engine broker_engine_amqp = {
    .source_open = source_amqp_open,
    .source_stop = source_amqp_stop,
    .source_close = source_amqp_close,
    .forward = &handler_forward_amqp,
};
