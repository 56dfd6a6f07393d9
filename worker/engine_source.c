/* engine_source.c - which source the worker has, and what hears of its events
 * (see engine_source.h)
 */
#include "worker/engine_source.h"

#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/broker/broker_password.h"
#include "common/state/counters.h"
#include "worker/flow/decision.h"
#include "worker/flow/group_dispatch.h"
#include "worker/flow/schedule.h"
#include "worker/flow/settle.h"
#include "worker/flow/unsettled.h"
#include "worker/hooks/on_dead.h"
#include "worker/loop/peeker.h"
#include "worker/source/spool/spool.h"
#ifdef MQW_AMQP
#include "worker/source/amqp/source_amqp.h"
#endif

#define CONFIRM_NS (10 * NS_PER_S) /* for the last verdicts of a broker */

/* ---- its events ---- */

/* on_letters_gone - whether held groups go on */
static int on_letters_gone(void *arg)
{
    struct engine *e = arg;
    int released = dispatch_release(&e->flow);

    if (released != 0)
        gate_changed(&e->flow.gate);
    return released;
}

/* on_hooks - a letter died */
static void on_hooks(void *arg)
{
    const struct engine *e = arg;

    on_dead_wake(e->on_dead);
}

/* on_removed - by --keep-dead or --max-dead */
static void on_removed(void *arg, uint64_t letters)
{
    struct engine *e = arg;
    struct counters_block *b = counters_rest(e->flow.counters);

    counters_add(&b->removed, letters);
    counters_rest_done(e->flow.counters);
}

static size_t held(void *arg)
{
    const struct engine *e = arg;

    return dispatch_held(&e->flow);
}

/* on_changed - a row is due, or the queue's name is gone, and what is left in
 * it is to be taken */
static void on_changed(void *arg)
{
    struct engine *e = arg;

    schedule_wake(&e->flow);
}

static void on_moved(void *arg)
{
    struct engine *e = arg;

    peeker_queue_changed(e->flow.peeker);
}

static void on_settled(void *arg, struct settle *s)
{
    struct engine *e = arg;

    unsettled_settled(&e->flow.unsettled, s);
}

static void on_died(void *arg, const struct source_death *death)
{
    struct engine *e = arg;

    decision_died(&e->flow, death);
}

static void on_duplicate(void *arg, struct message *m, const struct ulid *first)
{
    struct engine *e = arg;

    settle_duplicate(&e->flow, m, first);
}

static void on_put_by(void *arg, struct message *m)
{
    struct engine *e = arg;

    settle_put_by(&e->flow, m);
}

/* on_wants - one that is busy, or waits a moment for --rate, will take more */
static bool on_wants(void *arg)
{
    struct engine *e = arg;
    enum gate_why why = gate_why(&e->flow.gate);

    return why == WHY_NOT_SO || why == WHY_RATE || why >= WHY_ALONE;
}

static void on_ended(void *arg, const char *why, int status)
{
    struct engine *e = arg;

    gate_finish(&e->flow.gate, why, status);
}

void engine_trouble(void *arg, const char *what, int err)
{
    struct engine *e = arg;

    gate_trouble(&e->flow.gate, what, err);
}

/* ---- a broker ---- */

#ifdef MQW_AMQP
static int broker_open(struct engine *e, const struct source_events *events,
                       struct problem *p)
{
    const struct settings *set = e->flow.set;
    char password[BROKER_PASSWORD];
    int err = broker_password_find(password, &set->broker,
                                   set->access.password_file, p);

    if (!err)
        err = source_amqp_open(
            &e->broker,
            &(struct source_amqp_setup){.set = set,
                                        .operand = &set->broker,
                                        .password = password,
                                        .runs = e->runs,
                                        .attention = &e->flow.gate.attention,
                                        .events = *events},
            p);
    explicit_bzero(password, sizeof password);
    if (!err)
        e->flow.source = source_amqp_source(e->broker);
    return err;
}

/* engine_broker_stop - verdicts on their way are confirmed, and nothing else
 * comes */
void engine_broker_stop(struct engine *e)
{
    if (e->broker)
        source_amqp_stop(e->broker, CONFIRM_NS);
}

void engine_broker_close(struct engine *e)
{
    source_amqp_close(&e->broker);
}

#else /* settings_operands.c refuses an operand */
static int broker_open(struct engine *e, const struct source_events *events,
                       struct problem *p)
{
    (void)e, (void)events;
    return problem_set(p, EX_USAGE, ENOTSUP, "no librabbitmq");
}

void engine_broker_stop(struct engine *e)
{
    (void)e;
}

void engine_broker_close(struct engine *e)
{
    (void)e;
}
#endif

/* ---- either of them ---- */

/* hold_take - nobody takes meanwhile */
static void hold_take(void *arg, bool begins)
{
    struct engine *e = arg;

    if (begins)
        solo_stop(&e->flow.solo);
    else
        solo_go_on(&e->flow.solo);
}

/* engine_source_open - claims and watches of the source, and what waits in
 * front of it */
int engine_source_open(struct engine *e, struct problem *p)
{
    int err;

    e->mq.events = (struct source_events){.arg = e,
                                          .changed = on_changed,
                                          .moved = on_moved,
                                          .settled = on_settled,
                                          .died = on_died,
                                          .duplicate = on_duplicate,
                                          .put_by = on_put_by,
                                          .letters_gone = on_letters_gone,
                                          .held = held,
                                          .hooks = on_hooks,
                                          .removed = on_removed,
                                          .trouble = engine_trouble,
                                          .wants = on_wants,
                                          .ended = on_ended};
    if (settings_on_broker(e->flow.set))
        return broker_open(e, &e->mq.events, p);
    e->mq.set = e->flow.set;
    e->mq.folder = e->dir.folder;
    e->mq.timers = e->flow.timers;
    e->mq.loop = e->flow.loop;
    e->mq.pool = &e->flow.pool;
    e->mq.dirty = &e->flow.dirty;
    e->mq.hold_take = hold_take;
    e->mq.hold_arg = e;
    e->flow.source = &e->mq.source;
    e->mq.source.attention = &e->flow.gate.attention;
    err = source_mq_open(&e->mq, p);
    if (!err)
        err = source_mq_watch(&e->mq, p);
    return err ? err : spool_open(&e->spool, &e->mq, p);
}
