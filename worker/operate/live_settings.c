/* live_settings.c - settings that may change while the worker runs (see
 * live_settings.h) */
#include "worker/operate/live_settings.h"

#include <errno.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/string.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/broker/broker_engine.h"
#include "worker/flow/flow.h"
#include "worker/flow/dispatch.h"
#include "worker/operate/orders.h"

/* Return true for the only live setting that is not a number. */
static bool is_backoff(const struct option_row *row)
{
    return strcmp(row->name, "backoff") == 0;
}

/* Return the row of a live setting; otherwise NULL, and the problem says why
 * it cannot be set. */
static const struct option_row *live_row(const char *name, struct problem *p)
{
    static const char *const fixed[] = {"mode", "queue-depth", "message-size"};
    const struct option_row *row = settings_row(name);
    const char *guess = NULL;
    char all[SETTING_TEXT] = "";
    size_t far = SIZE_MAX;

    if (row && row->live)
        return row;
    for (size_t i = 0; row && i < sizeof fixed / sizeof *fixed; i++)
        if (strcmp(row->name, fixed[i]) == 0) {
            problem_set(p, EX_USAGE, EINVAL,
                        "%s: is fixed when the queue is created; %s", row->name,
                        i == 0 ? "use chmod in /dev/mqueue"
                               : "recreate it: \"Moving a queue\" in the "
                                 "runbook");
            return NULL;
        }
    if (row) {
        problem_set(p, EX_USAGE, EINVAL,
                    "%s: cannot be changed while the worker is running; "
                    "restart the worker with another --%s",
                    row->name, row->name);
        return NULL;
    }
    for (size_t i = 0; i < settings_table.count; i++)
        if (settings_table.rows[i].live) {
            strlcat(all, *all ? ", " : "", sizeof all);
            strlcat(all, settings_table.rows[i].name, sizeof all);
            if (word_nearer(name, strlen(name), settings_table.rows[i].name,
                            &far))
                guess = settings_table.rows[i].name;
        }
    if (guess)
        problem_set(p, EX_USAGE, EINVAL,
                    "%.64s: there is no such setting; did you mean %s?", name,
                    guess);
    else
        problem_set(p, EX_USAGE, EINVAL,
                    "%.64s: there is no such setting; give %s", name, all);
    return NULL;
}

static _Atomic uint64_t *setting_at(struct settings *s,
                                    const struct option_row *row)
{
    return (_Atomic uint64_t *)(void *)((char *)s + row->offset);
}

static _Atomic uint64_t *set_ns_at(struct orders *o,
                                   const struct option_row *row)
{
    return &o->set_ns[row - settings_table.rows];
}

void live_settings_stamp(struct orders *o, const char *name)
{
    *set_ns_at(o, settings_row(name)) = clock_wall_ns();
}

/* Copy the worker's settings, so that a change can be checked in the copy. */
static void next_make(struct orders *o, struct settings *next)
{
    struct backoff b;

    settings_init(next);
    next->access.partitions = o->flow->set->access.partitions;
    for (size_t i = 0; i < settings_table.count; i++) {
        const struct option_row *row = &settings_table.rows[i];

        if (row->live && !is_backoff(row))
            atomic_store(setting_at(next, row),
                         atomic_load(setting_at(o->live, row)));
    }
    settings_backoff(o->live, &b);
    settings_set_backoff(next, &b);
}

/* Check a change together with the other settings: some cannot be used with
 * --forward or for a queue on a broker, and with --partitions all attempts have
 * to fit into the time that a broker waits. */
static int together_check(struct orders *o, const struct option_row *row,
                          struct settings *next, struct problem *p)
{
    const struct settings *set = o->flow->set;
    int err = 0;

    if (row->seen)
        *((bool *)((char *)next + row->seen - 1)) = true;
    next->forward = set->forward;
    if (set->forward)
        err = settings_forward_check(next, NULL, p);
    if (!err && settings_on_broker(set))
        err = broker_option_check("mqworker", row, next, set->queue,
                                  set->access.partitions, p);
    if (!err && set->access.partitions)
        err = in_hand_limit_check(next, &next->backoff, p);
    return err;
}

/* Change the setting, but first in the part that keeps a copy of it and may
 * refuse the change. */
static int number_set(struct orders *o, const struct option_row *row,
                      uint64_t value, struct problem *p)
{
    struct flow *f = o->flow;
    int err = 0;

    /* All other settings are read each time they are needed. */
    if (strcmp(row->name, "max-concurrency") == 0)
        err = cap_set(o->cap, (unsigned)value, p);
    else if (strcmp(row->name, "breaker-failures") == 0)
        gate_tune_breaker(&f->gate, value, f->set->breaker_pause_ns);
    else if (strcmp(row->name, "breaker-pause") == 0)
        gate_tune_breaker(&f->gate, f->set->breaker_failures, value);
    else if (strcmp(row->name, "group-quantum") == 0)
        groups_set_quantum(f->groups, (unsigned)value);
    else if (strcmp(row->name, "rate") == 0)
        rate_set(&f->rate, value);
    if (!err || err == -EINPROGRESS)
        *set_ns_at(o, row) = clock_wall_ns();
    if (err)
        return err == -EINPROGRESS ? 0 : err; /* slots_grown will set it */
    atomic_store(setting_at(o->live, row), value);
    backlog_look(f);
    gate_changed(&f->gate); /* more may be parked now */
    f->source->ops->tuned(f->source);
    return 0;
}

int live_settings_number(struct orders *o, const char *name, uint64_t value,
                         struct problem *p)
{
    const struct option_row *row = live_row(name, p);
    struct settings next;
    int err = row ? settings_check_number(row, value, p) : -EINVAL;

    if (err)
        return err;
    next_make(o, &next);
    atomic_store(setting_at(&next, row), value);
    err = together_check(o, row, &next, p);
    return err ? err : number_set(o, row, value, p);
}

/* Read a value into `next`, a copy of the settings, and check it. Returns its
 * row, or NULL and a problem. */
static const struct option_row *setting_read(struct orders *o, const char *name,
                                             const char *text,
                                             struct settings *next,
                                             struct problem *p)
{
    const struct option_row *row = live_row(name, p);

    if (!row)
        return NULL;
    next_make(o, next);
    if (option_read(row, text, next, p) == 0 &&
        together_check(o, row, next, p) == 0)
        return row;
    /* mqctl set takes the name of a flag without its dashes. */
    if (strncmp(p->text, "--", 2) == 0 &&
        strncmp(p->text + 2, name, strlen(name)) == 0)
        memmove(p->text, p->text + 2, strlen(p->text + 2) + 1);
    return NULL;
}

int live_settings_ready(struct orders *o, const char *name, const char *text,
                        struct problem *p)
{
    struct settings next;
    const struct option_row *row = setting_read(o, name, text, &next, p);

    if (!row)
        return -EINVAL;
    return strcmp(name, "max-concurrency") == 0
               ? cap_ready(o->cap, (unsigned)next.concurrency, p)
               : 0;
}

int live_settings_text(struct orders *o, const char *name, const char *text,
                       char old[SETTING_TEXT], char now[SETTING_TEXT],
                       struct problem *p)
{
    struct settings next;
    const struct option_row *row = setting_read(o, name, text, &next, p);
    int err = 0;

    if (!row)
        return -EINVAL;
    option_print(row, o->live, old, SETTING_TEXT);
    if (is_backoff(row)) {
        settings_set_backoff(o->live, &next.backoff);
        live_settings_stamp(o, name);
    } else {
        err = number_set(o, row, *setting_at(&next, row), p);
    }
    if (err)
        return err;
    option_print(row, o->live, now, SETTING_TEXT);
    /* The cap logs its change itself, once the change can take effect. */
    if (strcmp(name, "max-concurrency") != 0)
        log_info("setting", F_STR("queue", o->flow->set->queue),
                 F_STR("name", name), F_STR("old", old), F_STR("new", now));
    return 0;
}

/* ---- the cap ---- */

/* Add the slots, on a pool thread. Clear flow->growing last, so that a thread
 * that reads false sees all new slots. */
static void grow_job(struct pool_job *job)
{
    struct cap *c = CONTAINER_OF(job, struct cap, job);
    struct flow *f = c->flow;

    if (f->source->ops->resize(f->source, slots_for(f->set, c->growing),
                               &c->problem) == 0)
        c->growing = 0;
    atomic_store(&f->growing, false);
    timers_start(f->timers, &c->timer, clock_mono_ns());
}

int cap_ready(struct cap *c, unsigned cap, struct problem *p)
{
    struct flow *f = c->flow;
    int err;

    if (c->busy)
        return -EINPROGRESS;
    if (slots_for(f->set, cap) <= f->source->ops->count(f->source, COUNT_SLOTS))
        return 0;
    if (c->failed == cap) {
        c->failed = 0; /* the next request tries again */
        if (p)
            *p = c->problem;
        return -ENOSPC;
    }
    c->busy = true;
    c->growing = cap;
    c->failed = 0;
    atomic_store(&f->growing, true);
    err = pool_submit(f->pool, &c->job);
    if (!err)
        return -EINPROGRESS;
    c->busy = false;
    atomic_store(&f->growing, false);
    return problem_set(p, EX_OSERR, -err, "cannot start a thread: %s",
                       errno_text(-err));
}

int cap_set(struct cap *c, unsigned cap, struct problem *p)
{
    struct flow *f = c->flow;
    unsigned old;
    int err = cap_ready(c, cap, p);

    c->later = err == -EINPROGRESS ? cap : 0; /* the last order counts */
    if (err)
        return err;
    old = gate_cap(&f->gate);
    pool_resize(f->pool, cap + SPARE_THREADS);
    c->live->concurrency = cap;
    gate_set_cap(&f->gate, cap);
    f->source->ops->tuned(f->source); /* the cap limits what it fetches */
    if (f->ops->coprocesses &&
        cap < old) /* wake the items that wait for a child: some must leave */
        items_wake_all(&f->items, f->ops->coprocesses->wake);
    dirty_state(&f->dirty);
    log_info("max_concurrency", F_UINT("old", old), F_UINT("new", cap));
    gate_changed(&f->gate);
    return 0;
}

/* Set the cap; no client waits for the answer, so a failure is logged. */
static void set_or_tell(struct cap *c, unsigned cap)
{
    struct problem p;
    int err = cap_set(c, cap, &p);

    if (err && err != -EINPROGRESS)
        log_error("cap_not_raised", F_STR("error", p.text));
}

/* Set the cap that waited for the job, now that the job is over. */
static void slots_grown(struct timer *timer)
{
    struct cap *c = CONTAINER_OF(timer, struct cap, timer);
    unsigned later = c->later;

    c->busy = false;
    c->failed = c->growing;
    c->later = 0;
    if (later)
        set_or_tell(c, later);
    if (c->over)
        c->over(c->arg);
}

void cap_change(struct cap *c, int change)
{
    unsigned now = c->later ? c->later : gate_cap(&c->flow->gate);
    unsigned want = now + (unsigned)change;

    if (want >= 1 && want <= CONCURRENCY_MAX)
        set_or_tell(c, want);
}

void cap_init(struct cap *c, struct flow *f, struct settings *live)
{
    c->flow = f;
    c->live = live;
    c->job.run = grow_job;
    timer_init(&c->timer, slots_grown);
}
