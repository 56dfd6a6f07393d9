/* source_amqp.c - a queue on a broker, as a source (see source_amqp.h) */
#include "worker/source/amqp/source_amqp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/broker/broker_engine.h"
#include "common/broker/broker_operand.h"
#include "worker/config/settings.h"
#include "worker/source/amqp/amqp_inner.h"

#define TICK_NS (20 * NS_PER_MS)

/* ---- looking ---- */

static int poll_fd(const struct source *s)
{
    return source_amqp_of(s)->ready_fd;
}

static bool pending(const struct source *s)
{
    (void)s;
    return false;
}

/* ---- lanes ---- */

static void rest(struct source *s, unsigned lane)
{
    amqp_lane_keep(source_amqp_of(s), lane, NULL);
}

/* ---- how many ---- */

/* lent - as many as the last owner's runs, while these are looked at */
static unsigned lent(const struct source *s)
{
    struct source_amqp *q = source_amqp_of(s);

    return q->started && !amqp_parted(q) ? atomic_load(&q->prefetch)
                                         : RUN_SLOTS;
}

/* Set the longest time limit of a message. One that stays in hand gets no more
 * than the worker's unless --max-timeout says so, as all of its attempts end
 * before the broker takes it back (settings.h). */
static void limit_set(struct source_amqp *q)
{
    uint64_t most = atomic_load(&q->set->max_timeout_ns);

    if (q->set->access.partitions && most == UINT64_MAX)
        most = atomic_load(&q->set->timeout_ns);
    atomic_store(&q->source.timeout_most_ns, most);
}

/* Wake the inbox: it fetches as much as max-concurrency asks for. */
static void tuned(struct source *s)
{
    limit_set(source_amqp_of(s));
    side_wake(&source_amqp_of(s)->inbox);
}

/* clock_set - wake the inbox, whose timer stands still while the machine is
 * suspended */
static void clock_set(struct source *s)
{
    struct source_amqp *q = source_amqp_of(s);

    pthread_mutex_lock(&q->mtx);
    q->ahead_ns = clock_ahead_ns();
    pthread_mutex_unlock(&q->mtx);
    side_wake(&q->inbox);
}

static int resize(struct source *s, unsigned n, struct problem *p)
{
    struct source_amqp *q = source_amqp_of(s);

    (void)p;
    if (amqp_parted(q)) /* it is the same for all workers */
        return 0;
    atomic_store(&q->prefetch, n < s->lent_most ? n : s->lent_most);
    side_wake(&q->inbox);
    return 0;
}

/* ---- from one owner to the next ---- */

struct visit {
    void (*visit)(void *arg, const struct source_run *run);
    void *arg;
};

static void on_run(void *arg, uint64_t mark, uint64_t start, pid_t group)
{
    const struct visit *v = arg;

    v->visit(v->arg, &(struct source_run){
                         .mark = mark, .start = start, .group = group});
}

static int runs(struct source *s,
                void (*visit)(void *arg, const struct source_run *run),
                void *arg, struct problem *p)
{
    struct visit v = {visit, arg};

    (void)p;
    run_file_runs(source_amqp_of(s)->runs, on_run, &v);
    return 0;
}

/* recover - the broker gives the messages again, and then their crashes are
 * known */
static int recover(struct source *s,
                   int (*visit)(void *arg, const struct source_left *left),
                   void *arg)
{
    struct source_amqp *q = source_amqp_of(s);
    unsigned n = run_file_crashed(q->runs);

    (void)visit, (void)arg;
    if (n > 0)
        log_warn("crashed", F_STR("queue", q->operand->shown),
                 F_UINT("messages", n),
                 F_STR("next", "a worker died while handlers had them; they "
                               "come again, marked as redelivered"));
    return 0;
}

static void start(struct source *s)
{
    struct source_amqp *q = source_amqp_of(s);
    int err;

    q->started = true;
    err = side_start(&q->outbox, outbox_main);
    if (!err)
        err = side_start(&q->inbox, inbox_main);
    if (err)
        q->events.ended(q->events.arg, "a thread cannot be started", EX_OSERR);
}

static const struct source_ops amqp_ops = {
    .name = "amqp",
    .late = true,
    .take = amqp_take,
    .take_due = amqp_take_due,
    .settle = amqp_settle,
    .release = amqp_release,
    .rest = rest,
    .poll_fd = poll_fd,
    .pending = pending,
    .room = amqp_room,
    .fresh = amqp_fresh,
    .is_due = amqp_is_due,
    .count = amqp_count,
    .parts = amqp_parts,
    .lent = lent,
    .resize = resize,
    .wanted = prefetch_wanted,
    .tuned = tuned,
    .clock_set = clock_set,
    .runs = runs,
    .recover = recover,
    .start = start,
};

/* ---- open and close ---- */

/* parts_name - the queues that it consumes */
static int parts_name(struct source_amqp *q)
{
    q->part_count = amqp_parted(q) ? q->topology.partitions : 1;
    q->parts = calloc(q->part_count, sizeof *q->parts);
    for (unsigned i = 0; q->parts && i < q->part_count; i++)
        topology_queue(&q->topology, i, q->parts[i]);
    return q->parts ? 0 : -ENOMEM;
}

/* lists_open - in memory */
static int lists_open(struct source_amqp *q)
{
    unsigned parts = q->topology.partitions;
    unsigned want = parts ? parts * partition_in_hand(parts)
                          : slots_for(q->set, (unsigned)q->set->concurrency);
    pthread_mutexattr_t kind;
    pthread_condattr_t clock;

    /* It is held for very short: a thread that wants it meanwhile does not
     * sleep. */
    pthread_mutexattr_init(&kind);
    (void)pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP);
    q->ahead_ns = clock_ahead_ns();
    pthread_mutex_init(&q->mtx, &kind);
    pthread_mutexattr_destroy(&kind);
    pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&q->changed, &clock);
    pthread_condattr_destroy(&clock);
    TAILQ_INIT(&q->incoming);
    TAILQ_INIT(&q->arrived);
    TAILQ_INIT(&q->held);
    TAILQ_INIT(&q->due);
    TAILQ_INIT(&q->put_off);
    TAILQ_INIT(&q->lent);
    TAILQ_INIT(&q->jobs);
    q->source.ops = &amqp_ops;
    limit_set(q);
    q->source.lanes = ITEMS_MAX;
    q->source.lent_most = RUN_SLOTS;
    q->lanes = calloc(ITEMS_MAX, sizeof *q->lanes);
    q->free_index = calloc(RUN_SLOTS, sizeof *q->free_index);
    q->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!q->lanes || !q->free_index || q->ready_fd < 0 || parts_name(q) < 0)
        return -ENOMEM;
    for (unsigned i = 0; i < RUN_SLOTS; i++)
        q->free_index[i] = RUN_SLOTS - 1 - i;
    q->free_count = RUN_SLOTS;
    atomic_store(&q->prefetch, want < RUN_SLOTS ? want : RUN_SLOTS);
    return 0;
}

/* setup_fill - what both connections are made of */
static void setup_fill(struct source_amqp *q,
                       const struct broker_source_setup *setup)
{
    const struct settings *set = setup->set;

    q->set = set;
    q->operand = &set->broker;
    q->events = setup->events;
    q->source.attention = setup->attention;
    if (gethostname(q->machine, sizeof q->machine - 1) < 0)
        strlcpy(q->machine, "?", sizeof q->machine);
    q->setup = (struct link_setup){.operand = q->operand,
                                   .password = q->password,
                                   .tls = set->access.tls,
                                   .name = "mqworker"};
    q->topology = (struct topology){
        .operand = q->operand,
        .no_create = set->no_create,
        .allow_unreplicated = set->allow_unreplicated,
        .partitions = (unsigned)set->access.partitions,
    };
    topology_dead(&q->topology, q->dead);
}

static void source_amqp_close(struct source *source);

static int source_amqp_open(struct source **out,
                            const struct broker_source_setup *setup,
                            struct problem *p)
{
    struct source_amqp *q = calloc(1, sizeof *q);
    int err;

    if (!q)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    setup_fill(q, setup);
    q->inbox.wake_fd = q->outbox.wake_fd = -1;
    err = lists_open(q);
    if (!err)
        err = side_init(&q->inbox, q, "inbox");
    if (!err)
        err = side_init(&q->outbox, q, "outbox");
    if (err)
        err = problem_set(p, EX_OSERR, -err, "cannot start: %s",
                          errno_text(-err));
    if (!err)
        err = broker_password_find(q->password, q->operand,
                                   q->set->access.password_file, p);
    if (!err)
        err = run_file_open(&q->runs, setup->runs, p);
    if (!err)
        err = inbox_open(q, p);
    if (!err)
        err = outbox_open(q, p);
    if (err) {
        source_amqp_close(&q->source);
        return err;
    }
    q->seq = run_file_first(q->runs);
    q->source.nonce = run_file_nonce(q->runs);
    *out = &q->source;
    return 0;
}

/* jobs_wait - for verdicts on their way: a publish that is not confirmed by
 * then is not acknowledged, and comes again */
static void jobs_wait(struct source_amqp *q, uint64_t limit_ns)
{
    struct timespec until;
    uint64_t end = clock_mono_ns() + limit_ns;
    int err = 0;

    until = (struct timespec){.tv_sec = (time_t)(end / NS_PER_S),
                              .tv_nsec = (long)(end % NS_PER_S)};
    pthread_mutex_lock(&q->mtx);
    while (!err && q->job_count > 0)
        err = pthread_cond_timedwait(&q->changed, &q->mtx, &until);
    if (q->job_count > 0)
        log_warn("unconfirmed", F_STR("queue", q->operand->shown),
                 F_UINT("count", q->job_count),
                 F_STR("next", "these verdicts are not confirmed: their "
                               "messages come again, marked as redelivered"));
    pthread_mutex_unlock(&q->mtx);
}

static void side_join(struct amqp_side *side)
{
    if (!side->running)
        return;
    side_wake(side);
    pthread_join(side->thread, NULL);
    side->running = false;
}

/* Stop the outbox first: the messages that it has confirmed are acknowledged by
 * the inbox. */
static void source_amqp_stop(struct source *source, uint64_t limit_ns)
{
    struct source_amqp *q = source_amqp_of(source);

    if (q->outbox.running)
        jobs_wait(q, limit_ns);
    atomic_store(&q->stopping, true);
    side_join(&q->outbox);
    side_join(&q->inbox);
    /* The broker gives to others what is not acknowledged. */
    link_close(&q->outbox.link);
    link_close(&q->inbox.link);
}

static void list_free(struct amqp_list *list)
{
    struct amqp_message *m;

    while ((m = TAILQ_FIRST(list)) != NULL) {
        TAILQ_REMOVE(list, m, link);
        amqp_free(m);
    }
}

static void source_amqp_close(struct source *source)
{
    struct source_amqp *q = source_amqp_of(source);

    source_amqp_stop(source, 0);
    list_free(&q->arrived);
    list_free(&q->held);
    list_free(&q->due);
    list_free(&q->lent);
    for (unsigned i = 0; q->lanes && i < ITEMS_MAX; i++)
        if (q->lanes[i])
            amqp_free(q->lanes[i]);
    if (q->part.m)
        amqp_free(q->part.m);
    side_fini(&q->inbox);
    side_fini(&q->outbox);
    run_file_close(&q->runs);
    if (q->ready_fd > 0)
        close(q->ready_fd);
    explicit_bzero(q->password, sizeof q->password);
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->mtx);
    free(q->acks);
    free(q->lanes);
    free(q->parts);
    free(q->free_index);
    free(q);
}

const struct broker_engine broker_engine_amqp = {
    .source_open = source_amqp_open,
    .source_stop = source_amqp_stop,
    .source_close = source_amqp_close,
};
