/* library.c - see library.h */
#include "tests/bench/library.h"

#include <stdatomic.h>

#include "common/base/clock.h"
#include "tests/bench/feed.h"
#include "tests/bench/work.h"

#define LIMIT_NS     (60 * NS_PER_S) /* never reached */
#define SPOOLED_MOST 1000000         /* nor this */

/* What the handler knows. */
struct job {
    const struct task *task;
    struct tally tally;
    _Atomic uint64_t settled[MQW_DISCARD + 1], took_ns;
};

static int handle_nothing(const struct mqw_message *m, struct mqw_context *c)
{
    struct job *job = mqw_user(c);

    (void)m;
    if (tally_count(&job->tally))
        mqw_stop(mqw_worker_of(c));
    return MQW_DONE;
}

static int handle_work(const struct mqw_message *m, struct mqw_context *c)
{
    struct job *job = mqw_user(c);

    work(job->task);
    return handle_nothing(m, c);
}

/* Do the least that somebody who keeps books does for each verdict. */
static void count_settled(const struct mqw_message *m, enum mqw_verdict verdict,
                          uint64_t took_ns, void *user)
{
    struct job *job = user;

    (void)m;
    atomic_fetch_add_explicit(&job->settled[verdict], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&job->took_ns, took_ns, memory_order_relaxed);
}

void library_run(const struct task *task, mqw_handler *handler, void *user)
{
    char why[512] = "";
    struct mqw_options o;

    mqw_options_init(&o, sizeof o);
    o.queue = place->queue;
    o.state_dir = place->state;
    o.no_create = 1;
    o.max_concurrency = task->threads;
    o.log_level = MQW_LOG_WARN;
    o.problem = why;
    o.problem_size = sizeof why;
    if (task->how & HOW_LIMIT)
        o.timeout = LIMIT_NS;
    if (task->how & HOW_GROUPS)
        o.group_separator = ':';
    if (task->how & HOW_SETTLED)
        o.settled = count_settled;
    if (task->how & HOW_SPOOL)
        o.spool = SPOOLED_MOST;
    if (mqw_run(&o, handler, user) != 0)
        fail(0, "mqw_run: %s", why);
}

enum measured library_rate(const struct task *task, double value[ROWS_MOST])
{
    static struct job job;

    job.task = task;
    tally_start(&job.tally, task);
    library_run(task, task->work_ns ? handle_work : handle_nothing, &job);
    value[0] = tally_rate(&job.tally);
    return MEASURED;
}
