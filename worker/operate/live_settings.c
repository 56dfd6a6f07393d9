/* live_settings.c - settings that may change while the worker runs (see
 * live_settings.h) */
#include "worker/operate/live_settings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/options/option_value.h"
#include "worker/config/settings.h"
#include "worker/config/rate_text.h"
#include "common/broker/broker_refused.h"
#include "worker/operate/cap.h"
#include "worker/flow/flow.h"
#include "worker/operate/orders.h"
#include "worker/flow/group_dispatch.h"

/* ---- parts that must be told of a change ---- */

static int concurrency_change(struct orders *o, uint64_t value,
                              struct problem *p)
{
    return cap_set(o->cap, (unsigned)value, p);
}

static int failures_change(struct orders *o, uint64_t value, struct problem *p)
{
    (void)p;
    gate_tune_breaker(&o->flow->gate, value, o->flow->set->breaker_pause_ns);
    return 0;
}

static int pause_change(struct orders *o, uint64_t value, struct problem *p)
{
    (void)p;
    gate_tune_breaker(&o->flow->gate, o->flow->set->breaker_failures, value);
    return 0;
}

static int quantum_change(struct orders *o, uint64_t value, struct problem *p)
{
    (void)p;
    dispatch_set_quantum(o->flow, (unsigned)value);
    return 0;
}

static int rate_change(struct orders *o, uint64_t value, struct problem *p)
{
    (void)p;
    rate_set(&o->flow->rate, value);
    return 0;
}

/* Each of them, by the flag that reads it. `change` comes first, and may
 * refuse; where it is NULL, all who want the setting read it anew each time. */
static const struct {
    const char *name;
    int (*change)(struct orders *o, uint64_t value, struct problem *p);
} tunables[] = {
    {"max-concurrency", concurrency_change},
    {"timeout", NULL},
    {"max-timeout", NULL},
    {"max-delay", NULL},
    {"kill-after", NULL},
    {"grace", NULL},
    {"max-attempts", NULL},
    {"backoff", NULL},
    {"jitter", NULL},
    {"retry-for", NULL},
    {"batch-time-limit", NULL},
    {"breaker-failures", failures_change},
    {"breaker-pause", pause_change},
    {"group-quantum", quantum_change},
    {"rate", rate_change},
    {"max-parked", NULL},
    {"max-waiting", NULL},
    {"spool", NULL},
    {"stderr-rate", NULL},
    {"keep-dead", NULL},
    {"max-dead", NULL},
};
#define TUNABLES (sizeof tunables / sizeof tunables[0])
_Static_assert(TUNABLES <= LIVE_SETTINGS_MOST, "room for a time of each");
#define BACKOFF "backoff" /* the only setting that is not a number */

const char *live_settings_name(size_t i)
{
    return i < TUNABLES ? tunables[i].name : NULL;
}

/* find - its place in the table, or a problem that names all of them */
static int find(const char *name, size_t *at, struct problem *p)
{
    char all[TUNE_TEXT] = "";

    for (*at = 0; *at < TUNABLES; ++*at)
        if (strcmp(tunables[*at].name, name) == 0)
            return 0;
    for (size_t i = 0; i < TUNABLES; i++) {
        strlcat(all, i ? ", " : "", sizeof all);
        strlcat(all, tunables[i].name, sizeof all);
    }
    return problem_set(p, EX_USAGE, EINVAL, "%.64s: %s; give %s", name,
                       settings_row(name)
                           ? "cannot be changed while the worker runs, start "
                             "it again with the flag of that name"
                           : "there is no such setting",
                       all);
}

static _Atomic uint64_t *number_at(struct settings *s,
                                   const struct option_row *row)
{
    return (_Atomic uint64_t *)(void *)((char *)s + row->offset);
}

/* number_print - as its row would read it */
static void number_print(const struct option_row *row, uint64_t value,
                         char out[TUNE_TEXT])
{
    char text[DURATION_TEXT], rate[RATE_TEXT];

    if (row->call) /* the only one of them that is a number */
        strlcpy(out, rate_print(value, rate), TUNE_TEXT);
    else if (row->words && value == UINT64_MAX)
        strlcpy(out, row->words, TUNE_TEXT);
    else if (row->type == OPT_DURATION)
        strlcpy(out, duration_print(value, text), TUNE_TEXT);
    else
        snprintf(out, TUNE_TEXT, "%" PRIu64, value);
}

/* Print one setting of `s` in the form of its flag. */
static void setting_print(const struct settings *s, const char *name,
                          char out[TUNE_TEXT])
{
    const struct option_row *row = settings_row(name);
    struct backoff b;

    if (strcmp(name, BACKOFF) == 0) {
        settings_backoff(s, &b);
        backoff_print(&b, out, TUNE_TEXT);
    } else {
        number_print(row, atomic_load(number_at((struct settings *)s, row)),
                     out);
    }
}

void live_settings_print(struct orders *o, const char *name,
                         char out[TUNE_TEXT])
{
    setting_print(o->live, name, out);
}

bool live_settings_started(struct orders *o, size_t i, char out[TUNE_TEXT],
                           uint64_t *set_ns)
{
    char now[TUNE_TEXT];

    setting_print(o->started, tunables[i].name, out);
    setting_print(o->live, tunables[i].name, now);
    *set_ns = o->set_ns[i];
    return strcmp(out, now) != 0;
}

void live_settings_stamp(struct orders *o, const char *name)
{
    size_t at;

    if (find(name, &at, NULL) == 0)
        o->set_ns[at] = clock_wall_ns();
}

/* parted_check - with --partitions all attempts have to fit into what a broker
 * waits; `next` has the new value, and of others what a worker begins with */
static int parted_check(struct orders *o, const char *name,
                        struct settings *next, struct problem *p)
{
    static const char *const numbers[] = {"max-attempts", "jitter", "timeout",
                                          "max-timeout"};
    bool is = strcmp(name, BACKOFF) == 0;
    struct backoff b;

    if (!is) {
        settings_backoff(o->flow->set, &b);
        settings_set_backoff(next, &b);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const struct option_row *row = settings_row(numbers[i]);

        if (strcmp(name, numbers[i]) == 0)
            is = true;
        else
            atomic_store(number_at(next, row),
                         atomic_load(number_at(o->live, row)));
    }
    return is && o->flow->set->access.partitions
               ? in_hand_limit_check(next, &next->backoff, p)
               : 0;
}

/* flag_strip - what is no flag here */
static void flag_strip(struct problem *p)
{
    if (strncmp(p->text, "--", 2) == 0)
        memmove(p->text, p->text + 2, strlen(p->text + 2) + 1);
}

/* broker_check - for a queue on a broker some of them mean nothing; `next` has
 * the new value, and of all others the default */
static int broker_check(struct orders *o, const char *name,
                        struct settings *next, struct problem *p)
{
    const struct option_row *row = settings_row(name);
    int err;

    if (!settings_on_broker(o->flow->set))
        return 0;
    if (row->seen)
        *((bool *)((char *)next + row->seen - 1)) = true;
    err = broker_option_check("mqworker", row, next, o->flow->set->queue,
                              o->flow->set->access.partitions, p);
    if (err)
        flag_strip(p);
    return err;
}

/* together_check - with what else is set */
static int together_check(struct orders *o, const char *name,
                          struct settings *next, struct problem *p)
{
    int err = broker_check(o, name, next, p);

    return err ? err : parted_check(o, name, next, p);
}

/* number_set - first the part that must be told, then the setting */
static int number_set(struct orders *o, size_t at, uint64_t value,
                      struct problem *p)
{
    const struct option_row *row = settings_row(tunables[at].name);
    int err = tunables[at].change ? tunables[at].change(o, value, p) : 0;

    if (!err || err == -EINPROGRESS)
        o->set_ns[at] = clock_wall_ns();
    if (err)
        return err == -EINPROGRESS ? 0 : err; /* it sets it when it can */
    atomic_store(number_at(o->live, row), value);
    backlog_look(o->flow);
    gate_changed(&o->flow->gate); /* more may be parked now */
    o->flow->source->ops->tuned(o->flow->source);
    return 0;
}

int live_settings_number(struct orders *o, const char *name, uint64_t value,
                         struct problem *p)
{
    struct settings next;
    size_t at;
    int err = find(name, &at, p);

    if (!err)
        err = settings_check_number(settings_row(name), value, p);
    if (!err && strcmp(name, BACKOFF) != 0) {
        settings_init(&next);
        atomic_store(number_at(&next, settings_row(name)), value);
        err = parted_check(o, name, &next, p);
    }
    return err ? err : number_set(o, at, value, p);
}

/* text_read - by its row, into settings of no worker; with what else is set */
static int text_read(struct orders *o, const char *name, const char *text,
                     struct settings *next, size_t *at, struct problem *p)
{
    int err = find(name, at, p);

    if (err)
        return err;
    settings_init(next);
    err = option_read(settings_row(name), text, next, p);
    if (err)
        flag_strip(p);
    else
        err = together_check(o, name, next, p);
    return err;
}

int live_settings_ready(struct orders *o, const char *name, const char *text,
                        struct problem *p)
{
    struct settings next;
    size_t at;
    int err = text_read(o, name, text, &next, &at, p);

    if (err || tunables[at].change != concurrency_change)
        return err;
    return cap_ready(o->cap, (unsigned)next.concurrency, p);
}

int live_settings_text(struct orders *o, const char *name, const char *text,
                       char old[TUNE_TEXT], char now[TUNE_TEXT],
                       struct problem *p)
{
    struct settings next;
    size_t at;
    int err = text_read(o, name, text, &next, &at, p);

    if (err)
        return err;
    live_settings_print(o, name, old);
    if (strcmp(name, BACKOFF) == 0) {
        settings_set_backoff(o->live, &next.backoff);
        o->set_ns[at] = clock_wall_ns();
    } else {
        err = number_set(o, at, *number_at(&next, settings_row(name)), p);
    }
    if (err)
        return err;
    live_settings_print(o, name, now);
    if (at < sizeof tunables / sizeof *tunables &&
        tunables[at].change == concurrency_change)
        return 0; /* the cap logs it, once it can take effect */
    log_info("setting", F_STR("queue", o->flow->set->queue),
             F_STR("name", name), F_STR("old", old), F_STR("new", now));
    return 0;
}
