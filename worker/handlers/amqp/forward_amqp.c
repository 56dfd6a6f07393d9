/* forward_amqp.c - send each message to a queue on a broker (see
 * worker/handlers/handler.h, worker/handlers/forward.h)
 *
 * A message is done when the broker has confirmed it. Many are open at once:
 * send publishes without waiting, and next waits until all that were published
 * are confirmed.
 * Crash before the confirm, or between the confirm and the verdict: the slot
 * reads RUNNING, and the next start publishes the message again, with the same
 * id and line (envelope.h), marked as resent. So a worker that ran the first
 * copy acknowledges the second, and one that did not know it runs it, marked.
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

/* How long the broker may take to confirm before the messages are given back:
 * longer than a queue takes to elect a leader. */
#define CONFIRM_NS (30 * NS_PER_S)
/* A connection that rested for longer is not trusted: only this file's own
 * calls send its heartbeats. */
#define REST_NS (LINK_HEARTBEAT * NS_PER_S / 2)
/* Lines of a header that a queue on a broker does not have. */
#define LINES_LEFT_OUT (HEADER_MAX_ATTEMPTS | HEADER_BACKOFF | HEADER_UNIQUE)

/* Of DEST, found by check before there are threads: it may come from the
 * environment, and is removed from there. A process has one such handler. */
static char password[BROKER_PASSWORD];
static bool password_in_environment; /* check removed it from there */

/* A delivery that is open. */
struct sent {
    struct delivery *d;
    bool refused; /* it was not published; `lane.out` of it is `out` */
    struct outcome out;
};

/* A connection, and what one work item has open on it. */
struct coprocess {
    LIST_ENTRY(coprocess) link; /* h->idle */
    struct handler *h;
    struct publisher *publisher; /* NULL: not connected */
    uint64_t rests_ns;           /* monotonic; since when it is idle */
    atomic_bool woken;
    bool flushed;          /* what is open is confirmed, or `failed` */
    struct problem failed; /* why it is not; text "": it is */
    struct sent *open;     /* settings.window of them */
    unsigned count, next;  /* of open; of them, the next that ends */
};

/* m = under mtx   c = constant after open   a = atomic */
struct handler {
    const struct settings *set; /* c */
    atomic_bool stopping;       /* a */
    atomic_uint part;           /* a  of the next message without a group */
    atomic_bool warned;         /* a  that lines are left out */
    pthread_mutex_t mtx;
    LIST_HEAD(, coprocess) idle; /* m */
};

static bool told_to_stop(void *arg)
{
    const struct handler *h = arg;

    return atomic_load(&h->stopping);
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
        lane->open = calloc(h->set->window, sizeof *lane->open);
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

static void lane_free(struct coprocess *lane)
{
    publisher_close(&lane->publisher);
    free(lane->open);
    free(lane);
}

static int lane_ready(struct coprocess *lane, struct outcome *out)
{
    struct handler *h = lane->h;
    const struct settings *set = h->set;
    const struct publisher_setup setup = {
        .link = {.operand = &set->forward_to,
                 .password = password,
                 .tls = set->access.tls,
                 .name = "mqworker --forward"},
        .topology = {.operand = &set->forward_to,
                     .allow_unreplicated = set->allow_unreplicated,
                     .partitions = set->forward_partitions},
        .wait_ns = CONFIRM_NS,
        .stop = told_to_stop,
        .arg = h,
    };
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

/* Return the hash by which a worker of the destination knows that two messages
 * are copies of one: the same for each sending of the message (FNV-1a). */
static uint64_t line_of(const struct settings *set, const struct message *m)
{
    uint64_t sum = 0xcbf29ce484222325U;
    char bytes[QUEUE_NAME_MAX + sizeof *m->id + sizeof m->received_ns];
    size_t size = strlen(set->queue);

    memcpy(bytes, set->queue, size);
    memcpy(bytes + size, m->id, sizeof *m->id);
    size += sizeof *m->id;
    memcpy(bytes + size, &m->received_ns, sizeof m->received_ns);
    size += sizeof m->received_ns;
    for (size_t i = 0; i < size; i++)
        sum = (sum ^ (unsigned char)bytes[i]) * 0x100000001b3U;
    sum &= INT64_MAX; /* a number in a header of AMQP has a sign */
    return sum ? sum : 1;
}

/* Say once that the destination does not know all that messages ask for. */
static void left_out_warn(struct handler *h, struct delivery *d)
{
    if (!(d->header.fields & LINES_LEFT_OUT) ||
        atomic_exchange(&h->warned, true))
        return;
    log_warn("lines_left_out", F_STR("queue", h->set->queue),
             F_STR("msg", delivery_id(d)),
             F_STR("next",
                   "a queue on a broker has no max-attempts, backoff or "
                   "unique for a single message, so these lines are "
                   "left out; set --max-attempts and --backoff of its "
                   "worker instead"));
}

/* Find the queue of the message: a part by its group, else the next in turn. */
static bool queue_of(struct handler *h, const struct delivery *d,
                     char queue[TOPOLOGY_NAME], struct outcome *out)
{
    const struct settings *set = h->set;
    const struct topology t = {.operand = &set->forward_to,
                               .partitions = set->forward_partitions};
    unsigned part = 0;

    if (d->group.at && !t.partitions) {
        forward_refuse(out, "not forwarded: it has a group, and a queue on a "
                            "broker keeps groups only with --partitions; give "
                            "that to both workers, then run mqdlq replay");
        return false;
    }
    if (d->group.at)
        part = partition_of(d->group.at, d->group.size, t.partitions);
    else if (t.partitions)
        part = atomic_fetch_add(&h->part, 1) % t.partitions;
    topology_queue(&t, part, queue);
    return true;
}

/* Make the properties, as a worker of the broker would have written them. */
static int properties_make(const struct settings *set, struct delivery *d,
                           uint64_t count, struct envelope_made *e)
{
    const struct message *m = d->message;
    const struct ulid *id = message_name(d->message);
    struct header h = d->header;
    struct envelope_change change = {.id = id,
                                     .attempt = m->failures,
                                     .first_ns =
                                         m->failures ? m->received_ns : 0,
                                     .due_ns = forward_due(d),
                                     .line = line_of(set, m),
                                     .resent = forward_resent(d)};
    int err;

    h.forwarded = count;
    h.fields |= HEADER_FORWARDED;
    if (d->group.at) {
        h.group = d->group;
        h.fields |= HEADER_GROUP;
    }
    err = envelope_made_begin(e, id, m->priority, m->data, &h);
    return err ? err : envelope_made_end(e, &change);
}

/* Publish. What can never be published is a dead letter; any other error is
 * that of the connection, and of all that is open. */
static void publish(struct coprocess *lane, struct sent *s)
{
    struct handler *h = lane->h;
    struct delivery *d = s->d;
    struct envelope_made e = {0};
    char queue[TOPOLOGY_NAME];
    uint64_t count;
    int err;

    s->refused = forward_count(d, &count, &s->out) < 0 ||
                 !queue_of(h, d, queue, &s->out);
    if (s->refused)
        return;
    left_out_warn(h, d);
    err = properties_make(h->set, d, count, &e);
    if (err)
        (void)problem_set(&lane->failed, EX_OSERR, -err,
                          "the properties of the message cannot be written: %s",
                          errno_text(-err));
    else
        err = publisher_put(
            lane->publisher,
            &(struct publication){.queue = queue,
                                  .properties = &e.copy.properties,
                                  .body = d->body,
                                  .size = d->body_size},
            &lane->failed);
    envelope_made_free(&e);
    if (err == -EMSGSIZE) {
        forward_refuse(&s->out, "not forwarded: %s", lane->failed.text);
        s->refused = true;
        lane->failed.text[0] = '\0';
    }
}

static unsigned lane_room(const struct coprocess *lane)
{
    return lane->flushed || lane->failed.text[0]
               ? 0
               : (unsigned)lane->h->set->window - lane->count;
}

static void lane_send(struct coprocess *lane, struct delivery *d)
{
    struct sent *s = &lane->open[lane->count++];

    s->d = d;
    forward_begin(&s->out);
    publish(lane, s);
}

/* Wait until what was published is confirmed. After a failure the connection is
 * closed, with its copies of what was not confirmed: these messages are given
 * back, and are published again from their slots. */
static void lane_flush(struct coprocess *lane)
{
    FAULT_POINT("amqp_forward_sent");
    if (!lane->failed.text[0])
        (void)publisher_flush(lane->publisher, &lane->failed);
    FAULT_POINT("amqp_forward_confirmed");
    if (lane->failed.text[0])
        publisher_close(&lane->publisher);
    lane->flushed = true;
}

static struct delivery *lane_next(struct coprocess *lane, struct outcome *out)
{
    const struct sent *s;

    if (!lane->flushed) {
        if (atomic_exchange(&lane->woken, false) && lane_room(lane) > 0)
            return NULL;
        lane_flush(lane);
    }
    s = &lane->open[lane->next++];
    *out = s->out;
    if (lane->failed.text[0] && !s->refused) {
        verdict_not_started(out, "%s", lane->failed.text);
        if (told_to_stop(lane->h))
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

/* Have publishers stop waiting; they ask for that several times a second. */
static void forward_stop(struct handler *h, int signal)
{
    (void)signal;
    atomic_store(&h->stopping, true);
}

static void forward_close(struct handler **handler)
{
    struct handler *h = *handler;
    struct coprocess *lane;

    explicit_bzero(password, sizeof password);
    if (!h)
        return;
    *handler = NULL;
    while ((lane = LIST_FIRST(&h->idle)) != NULL) {
        LIST_REMOVE(lane, link);
        lane_free(lane);
    }
    pthread_mutex_destroy(&h->mtx);
    free(h);
}

static int forward_open(struct handler **out, const struct handler_setup *setup,
                        struct problem *p)
{
    struct handler *h = calloc(1, sizeof *h);

    *out = h;
    if (!h)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    h->set = setup->settings;
    pthread_mutex_init(&h->mtx, NULL);
    LIST_INIT(&h->idle);
    return 0;
}

/* Find the password. A queue on a broker that is consumed has the same, and
 * looks for it after this. */
static int forward_check(const struct settings *set, struct problem *p)
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
    return err;
}

/* Put the password back into the environment for the program that this process
 * is about to execute. If that fails for want of memory, its check reports that
 * there is no password. */
static void forward_restore(void)
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
    .check = forward_check,
    .restore = forward_restore,
    .open = forward_open,
    .coprocesses = &lanes,
    .stop = forward_stop,
    .close = forward_close,
};
