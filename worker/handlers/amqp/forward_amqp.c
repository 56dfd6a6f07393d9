/* forward_amqp.c - mqworker --forward to a queue on a broker (see
 * worker/handlers/handler.h, worker/handlers/forward.h)
 *
 * Each work item has a lane: a connection, and the messages that are open on
 * this connection. lane_send publishes without waiting, and lane_next waits
 * until the broker has confirmed all open messages, which are done then. Work
 * items call the functions of a lane, on their threads, through the table
 * `lanes`. The engine's thread calls the other functions, through
 * handler_forward_amqp; any thread may call amqp_forward_stop.
 * Crash before the confirm, or between the confirm and the verdict: the slot
 * reads RUNNING, and the next start publishes the message again, with the same
 * id and line (envelope.h), marked as resent. A worker that ran the first copy
 * acknowledges the second; any other worker runs it, marked.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/string.h>
#include <bsd/sys/queue.h>

#include "common/amqp/envelope.h"
#include "common/amqp/topology.h"
#include "common/amqp/publisher.h"
#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/broker/broker_operand.h"
#include "worker/handlers/forward.h"
#include "worker/handlers/handler.h"
#include "worker/rules/verdict.h"

/* Time limit for a confirm, after which the messages are given back. A queue
 * elects a leader in less. */
#define CONFIRM_NS (30 * NS_PER_S)
/* A connection that was idle for longer is opened again, because heartbeats are
 * sent only during calls of this file. */
#define REST_NS (LINK_HEARTBEAT * NS_PER_S / 2)
/* Time that a host may take to answer at the start, which waits for it. */
#define LOOK_S 2
/* Header lines that have no effect in a queue on a broker. */
#define LINES_LEFT_OUT (HEADER_MAX_ATTEMPTS | HEADER_BACKOFF | HEADER_UNIQUE)

/* The password for the broker. amqp_forward_check finds it while there is only
 * one thread, as it may have to remove it from the environment. A process has
 * one such handler. */
static char password[BROKER_PASSWORD];
static bool password_in_environment; /* at the start; removed since */

/* An open delivery. */
struct sent {
    struct delivery *d;
    bool refused; /* not published, and `out` says why */
    struct outcome out;
};

/* The lane of a work item. */
struct coprocess {
    LIST_ENTRY(coprocess) link; /* h->idle */
    struct handler *h;
    struct publisher *publisher; /* NULL: not connected */
    uint64_t rests_ns;           /* monotonic; when lane_put was called */
    atomic_bool woken;
    bool flushed; /* lane_next has waited for confirms; `failed` is the result
                   * for all of `open` */
    struct problem failed; /* text "": all are confirmed, or not yet */
    struct sent *open;     /* settings.window of them */
    unsigned count, next;  /* used in `open`; index of the next result */
};

/* m = under mtx   c = constant after open   a = atomic */
struct handler {
    const struct settings *set; /* c */
    atomic_bool stopping;       /* a */
    atomic_uint part;           /* a  partition for the next without a group */
    atomic_bool warned;         /* a  lines_left_out was logged */
    pthread_mutex_t mtx;
    LIST_HEAD(, coprocess) idle; /* m */
};

static bool forward_stopping(void *arg)
{
    const struct handler *h = arg;

    return atomic_load(&h->stopping);
}

static struct publisher_setup publisher_setup_of(struct handler *h)
{
    const struct settings *set = h->set;

    return (struct publisher_setup){
        .link = {.operand = &set->forward_to,
                 .password = password,
                 .tls = set->access.tls,
                 .name = "mqworker --forward"},
        .topology = {.operand = &set->forward_to,
                     .allow_unreplicated = set->allow_unreplicated,
                     .partitions = set->forward_partitions},
        .wait_ns = CONFIRM_NS,
        .stop = forward_stopping,
        .arg = h,
    };
}

/* ---- the connection ---- */

static struct coprocess *lane_get(struct handler *h)
{
    struct coprocess *lane;

    pthread_mutex_lock(&h->mtx);
    lane = LIST_FIRST(&h->idle);
    if (lane)
        LIST_REMOVE(lane, link);
    pthread_mutex_unlock(&h->mtx);
    if (lane && clock_mono_ns() - lane->rests_ns > REST_NS)
        publisher_close(&lane->publisher);
    if (lane)
        return lane;
    lane = calloc(1, sizeof *lane);
    if (lane)
        lane->open = calloc((size_t)h->set->window, sizeof *lane->open);
    if (!lane || !lane->open) {
        free(lane);
        return NULL;
    }
    lane->h = h;
    return lane;
}

static void lane_put(struct handler *h, struct coprocess *lane)
{
    lane->rests_ns = clock_mono_ns();
    pthread_mutex_lock(&h->mtx);
    LIST_INSERT_HEAD(&h->idle, lane, link);
    pthread_mutex_unlock(&h->mtx);
}

static int lane_ready(struct coprocess *lane, struct outcome *out)
{
    const struct publisher_setup setup = publisher_setup_of(lane->h);
    struct problem p = {0};
    int err;

    if (lane->publisher)
        return 0;
    err = publisher_open(&lane->publisher, &setup, &p);
    if (err)
        verdict_not_started(out, "%s", p.text);
    return err;
}

/* ---- publishing ---- */

/* Make the properties of the message on the broker. */
static int forward_properties(const struct settings *set, struct delivery *d,
                              uint64_t count, struct envelope_copy *copy)
{
    const struct message *m = d->message;
    struct envelope_change change = {.id = message_name(d->message),
                                     .attempt = m->failures,
                                     .first_ns =
                                         m->failures ? m->received_ns : 0,
                                     .due_ns = forward_due(d),
                                     .derived = m->flags & MESSAGE_ID_DERIVED,
                                     .resent = forward_resent(d)};
    struct header h = d->header;

    /* A worker of the destination recognizes copies of one message by this
     * hash, which is the same each time the message is sent. */
    change.line = fnv_add(FNV_BEGIN, set->queue, strlen(set->queue));
    change.line = fnv_add(change.line, m->id, sizeof *m->id);
    change.line = fnv_add(change.line, &m->received_ns, sizeof m->received_ns);
    change.line &= INT64_MAX; /* a number in a header of AMQP has a sign */
    if (change.line == 0)
        change.line = 1;
    h.forwarded = count;
    h.fields |= HEADER_FORWARDED;
    if (d->group.at) {
        h.group = d->group;
        h.fields |= HEADER_GROUP;
    }
    return envelope_make(copy, m->priority, m->data, &h, &change);
}

/* Return how many more deliveries may be opened. */
static unsigned lane_room(const struct coprocess *lane)
{
    return lane->flushed || lane->failed.text[0]
               ? 0
               : (unsigned)lane->h->set->window - lane->count;
}

/* Publish a message. A message that can never be published becomes a dead
 * letter. After any other error the connection is closed, and all open messages
 * are given back. */
static void lane_send(struct coprocess *lane, struct delivery *d)
{
    struct sent *s = &lane->open[lane->count++];
    struct handler *h = lane->h;
    const struct topology t = {.operand = &h->set->forward_to,
                               .partitions = h->set->forward_partitions};
    struct envelope_copy copy;
    char queue[TOPOLOGY_NAME];
    unsigned part = 0;
    uint64_t count;
    int err;

    s->d = d;
    outcome_begin(&s->out);
    s->refused = forward_count(d, &count, &s->out) < 0;
    if (s->refused)
        return;
    if (d->group.at && !t.partitions) {
        forward_refuse(&s->out,
                       "not forwarded: it has a group, and a queue on a broker "
                       "keeps groups only with --partitions; give that to both "
                       "workers, then run mqdlq replay");
        s->refused = true;
        return;
    }
    if (d->header.fields & LINES_LEFT_OUT && !atomic_exchange(&h->warned, true))
        log_warn("lines_left_out", F_STR("queue", h->set->queue),
                 F_STR("msg", delivery_id(d)),
                 F_STR("next",
                       "a queue on a broker has no max-attempts, backoff or "
                       "unique for a single message, so these lines are "
                       "left out; set --max-attempts and --backoff of its "
                       "worker instead"));
    /* A group has its partition; other messages take the partitions in turn. */
    if (d->group.at)
        part = partition_of(d->group.at, d->group.size, t.partitions);
    else if (t.partitions)
        part = atomic_fetch_add(&h->part, 1) % t.partitions;
    topology_queue(&t, part, queue);
    err = forward_properties(h->set, d, count, &copy);
    if (err) {
        (void)problem_set(&lane->failed, EX_OSERR, -err,
                          "the properties of the message cannot be written: %s",
                          errno_text(-err));
        return;
    }
    err = publisher_put(lane->publisher, queue, &copy.properties, d->body,
                        d->body_size, &lane->failed);
    envelope_copy_free(&copy);
    if (err == -EMSGSIZE) {
        forward_refuse(&s->out, "not forwarded: %s", lane->failed.text);
        s->refused = true;
        lane->failed.text[0] = '\0';
    }
}

/* Close the connection after a failure. A message that the broker refuses as
 * too large becomes a dead letter, because each try would delay the others. */
static void lane_fail(struct coprocess *lane)
{
    uint64_t most = publisher_largest_body(lane->publisher);

    for (unsigned i = 0; most > 0 && i < lane->count; i++) {
        struct sent *s = &lane->open[i];

        if (s->refused || s->d->body_size <= most)
            continue;
        forward_refuse(&s->out, "not forwarded: %s; then run mqdlq replay",
                       lane->failed.text);
        s->refused = true;
    }
    publisher_close(&lane->publisher);
}

/* Wait until all published messages are confirmed, then return the next open
 * delivery with its outcome. NULL: woken, and there is room for more. After a
 * failure, close the connection and drop its copies of the messages: the
 * messages are given back, and published again from their slots. */
static struct delivery *lane_next(struct coprocess *lane, struct outcome *out)
{
    const struct sent *s;

    if (!lane->flushed) {
        if (atomic_exchange(&lane->woken, false) && lane_room(lane) > 0)
            return NULL;
        FAULT_POINT("amqp_forward_sent");
        if (!lane->failed.text[0])
            (void)publisher_flush(lane->publisher, &lane->failed);
        FAULT_POINT("amqp_forward_confirmed");
        if (lane->failed.text[0])
            lane_fail(lane);
        lane->flushed = true;
    }
    s = &lane->open[lane->next++];
    *out = s->out;
    if (lane->failed.text[0] && !s->refused) {
        verdict_not_started(out, "%s", lane->failed.text);
        if (forward_stopping(lane->h))
            out->kind = OUTCOME_STOPPED;
    }
    if (lane->next == lane->count) {
        lane->next = lane->count = 0;
        lane->flushed = false;
        lane->failed.text[0] = '\0';
    }
    return s->d;
}

static void lane_wake(struct coprocess *lane)
{
    atomic_store(&lane->woken, true);
}

/* ---- the handler ---- */

/* Have publishers stop waiting: they call forward_stopping several times a
 * second. */
static void amqp_forward_stop(struct handler *h, int signal)
{
    (void)signal;
    atomic_store(&h->stopping, true);
}

static void amqp_forward_close(struct handler **handler)
{
    struct handler *h = *handler;
    struct coprocess *lane;

    explicit_bzero(password, sizeof password);
    if (!h)
        return;
    *handler = NULL;
    while ((lane = LIST_FIRST(&h->idle)) != NULL) {
        LIST_REMOVE(lane, link);
        publisher_close(&lane->publisher);
        free(lane->open);
        free(lane);
    }
    pthread_mutex_destroy(&h->mtx);
    free(h);
}

static int amqp_forward_open(struct handler **out,
                             const struct handler_setup *setup,
                             struct problem *p)
{
    struct handler *h = calloc(1, sizeof *h);
    struct publisher_setup destination;
    struct problem unusable = {0};
    struct link *link = NULL;
    int err;

    *out = h;
    if (!h)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    h->set = setup->settings;
    pthread_mutex_init(&h->mtx, NULL);
    /* Log if the destination cannot be used. The worker starts in any case,
     * because the broker may come up and the queue may be created later. */
    destination = publisher_setup_of(h);
    destination.link.limit_s = LOOK_S;
    err = link_open(&link, &destination.link, 0, &unusable);
    if (!err)
        err = topology_number(link, &destination.topology, &unusable);
    if (!err)
        err = topology_there(link, &destination.topology, 0, &unusable);
    link_close(&link);
    if (err)
        forward_unusable(h->set, &unusable);
    return 0;
}

/* Find the password, and load the library. If the consumed queue is on a
 * broker, too, leave the password in the environment, where the source looks
 * for it later. */
static int amqp_forward_check(const struct settings *set, struct problem *p)
{
    const char *variable = getenv("AMQP_PASSWORD");
    char *kept = variable ? strdup(variable) : NULL;
    int err;

    password_in_environment = variable != NULL;
    err = broker_password_find(password, &set->forward_to,
                               set->access.password_file, p);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no threads yet */
    if (kept && settings_on_broker(set) && setenv("AMQP_PASSWORD", kept, 1) < 0)
        err = problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    if (kept) {
        explicit_bzero(kept, strlen(kept));
        free(kept);
    }
    return err ? err : rabbit_load(p);
}

/* Put the password back into the environment for the program that this process
 * is about to execute. Without memory for that, the new program reports that
 * there is no password. */
static void amqp_forward_restore(void)
{
    if (password_in_environment)
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): execv follows */
        (void)setenv("AMQP_PASSWORD", password, 1);
}

static const struct coprocess_ops lanes = {
    .get = lane_get,
    .put = lane_put,
    .ready = lane_ready,
    .room = lane_room,
    .send = lane_send,
    .next = lane_next,
    .wake = lane_wake,
};

const struct handler_ops handler_forward_amqp = {
    .name = "forward",
    .within = true,
    .guess_ns = NS_PER_MS,
    .check = amqp_forward_check,
    .restore = amqp_forward_restore,
    .open = amqp_forward_open,
    .coprocesses = &lanes,
    .stop = amqp_forward_stop,
    .close = amqp_forward_close,
};
