/* fields.c - what a snapshot has, as JSON and as metrics (see
 * snapshot.h) */
#include <string.h>

#include "common/base/clock.h"
#include "common/base/folder.h"
#include "common/cli/json_line.h"
#include "scripts/mqctl/look/snapshot.h"

static bool runs(const struct snapshot *v)
{
    return v->worker == SNAPSHOT_RUNS;
}

/* quantile - of handler times, or of latencies; -1: there is none yet */
static int64_t quantile(const struct snapshot *v, bool latency, double q)
{
    static struct histogram_sum h;
    uint64_t ns, most = latency ? UINT64_MAX : v->sum.longest_ns;

    counters_histograms(v->counters, latency ? NULL : &h, latency ? &h : NULL);
    ns = histogram_quantile(&h, q);
    return h.total == 0 ? -1 : (int64_t)(ns < most ? ns : most);
}

/* live - what only a worker that answers has; null without one */
static json_t *live(const struct snapshot *v, const char *name)
{
    json_t *value = json_object_get(v->live, name);

    return value ? json_incref(value) : json_null();
}

/* parts_sum - of a number, or of what is so, over all partitions; -1: it has
 * none */
static int64_t parts_sum(const struct snapshot *v, const char *name)
{
    const json_t *all = json_object_get(v->live, "partitions"), *part, *value;
    int64_t sum = 0;
    size_t i;

    if (json_array_size(all) == 0)
        return -1;
    json_array_foreach(all, i, part)
    {
        value = json_object_get(part, name);
        sum += json_is_true(value) ? 1 : (int64_t)json_integer_value(value);
    }
    return sum;
}

/* running - what a worker that answers tells of what runs; null without one */
static json_t *running(const struct snapshot *v, const char *name)
{
    json_t *value = json_object_get(json_object_get(v->live, "runs"), name);

    return value ? json_incref(value) : json_null();
}

/* user_of - its name, or else its number */
static json_t *user_of(const struct snapshot *v)
{
    const json_t *uid =
        json_object_get(json_object_get(v->live, "runs"), "uid");
    char user[FOLDER_USER];

    return uid ? json_string(folder_user((uid_t)json_integer_value(uid), user))
               : json_null();
}

/* Return the totals over all runs. */
static json_t *totals_as(const struct snapshot *v)
{
    const struct counters_sum *t = &v->totals;
    const struct {
        const char *name;
        uint64_t n;
    } counts[] = {
        {"deliveries", t->deliveries}, {"done", t->done},
        {"retried", t->retried},       {"died", t->dead},
        {"discarded", t->discarded},   {"expired", t->expired},
        {"crashes", t->crashes},       {"duplicates", t->duplicates},
        {"removed", t->removed},       {"on_dead_failed", t->hooks_failed},
    };
    json_t *o = v->counters ? json_object() : json_null();

    for (size_t i = 0; v->counters && i < sizeof counts / sizeof *counts; i++)
        json_object_set_new(o, counts[i].name,
                            json_integer((json_int_t)counts[i].n));
    return o;
}

/* text - null for none */
static json_t *text(const char *s)
{
    return *s ? json_printable(s) : json_null();
}

/* Return the start and the end of the pause, and the user who paused; null if
 * not paused. */
static json_t *pause_as(const struct snapshot *v, char what)
{
    struct pause_note n;

    if (!snapshot_pause(v, &n))
        return json_null();
    return what == 's'   ? json_time(n.since_ns)
           : what == 'u' ? json_time(n.until_ns)
                         : json_printable(n.by);
}

/* breaker_why - of the worker itself, else as it wrote it */
static const char *breaker_why(const struct snapshot *v)
{
    const char *why =
        json_string_value(json_object_get(v->live, "breaker_reason"));

    return why ? why : v->head.texts[COUNTERS_WHY_BREAKER];
}

#define NUMBER(name, expression)                       \
    static int64_t name##_of(const struct snapshot *v) \
    {                                                  \
        return (int64_t)(expression);                  \
    }
#define COUNT(name, field) \
    NUMBER(name, v->in_all ? v->totals.field : v->sum.field)
#define VALUE(name, expression)                        \
    static json_t *name##_as(const struct snapshot *v) \
    {                                                  \
        return expression;                             \
    }
NUMBER(up, v->worker == SNAPSHOT_UNSEEN ? -1 : runs(v))
NUMBER(depth, v->depth)
NUMBER(depth_max, v->depth_max)
NUMBER(message_size, v->message_size)
NUMBER(bytes, v->bytes)
NUMBER(waiting, v->waiting)
NUMBER(parked, v->parked)
NUMBER(spooled, v->spooled)
NUMBER(dead, v->dead)
NUMBER(replayed, v->replayed)
NUMBER(custody, v->custody)
NUMBER(held, v->held)
/* Return the age of a message received at that wall time; -1 if there is no
 * message. */
static int64_t age_json(uint64_t received_ns)
{
    uint64_t now = clock_wall_ns();

    return !received_ns        ? -1
           : now > received_ns ? (int64_t)(now - received_ns)
                               : 0;
}

NUMBER(oldest_waiting, age_json(v->ages.waiting))
NUMBER(oldest_parked, age_json(v->ages.parked))
NUMBER(oldest_spooled, age_json(v->ages.spooled))
NUMBER(oldest_held, age_json(v->held_since_ns))
NUMBER(last_received,
       v->totals.received_ns ? (int64_t)v->totals.received_ns : -1)
VALUE(last_received, json_time(v->totals.received_ns))
NUMBER(pid, snapshot_number(v, "pid", (uint64_t)v->pid))
NUMBER(in_flight, runs(v) ? snapshot_number(v, "in_flight", v->sum.running) : 0)
NUMBER(cap, snapshot_cap(v))
NUMBER(window, snapshot_window(v))
NUMBER(capacity, snapshot_capacity(v))
NUMBER(groups, snapshot_groups(v))
NUMBER(groups_held, snapshot_groups_held(v))
NUMBER(parts_here, parts_sum(v, "here"))
NUMBER(parts_blocked, parts_sum(v, "blocked_groups"))
NUMBER(paused, snapshot_paused(v))
NUMBER(rate_reached, snapshot_rate_reached(v))
NUMBER(tripped, runs(v) && strcmp(snapshot_breaker(v), "closed") != 0)
NUMBER(started, v->head.started_ns)
COUNT(deliveries, deliveries)
COUNT(done, done)
COUNT(retried, retried)
COUNT(died, dead)
COUNT(discarded, discarded)
COUNT(expired, expired)
COUNT(crashes, crashes)
COUNT(removed, removed)
COUNT(duplicates, duplicates)
NUMBER(untold, v->head.gauges[COUNTERS_UNTOLD])
COUNT(hooks_failed, hooks_failed)
NUMBER(handler_p50, quantile(v, false, 0.5))
NUMBER(handler_p99, quantile(v, false, 0.99))
NUMBER(handler_max, v->sum.longest_ns ? (int64_t)v->sum.longest_ns : -1)
NUMBER(latency_p50, quantile(v, true, 0.5))
NUMBER(latency_p99, quantile(v, true, 0.99))
VALUE(queue, json_printable(v->queue))
VALUE(engine, json_string(snapshot_engine(v)))
VALUE(state, json_string(snapshot_state_text(v)))
VALUE(severity, json_string(worker_severity_text(snapshot_severity(v))))
VALUE(in_flight, json_integer(in_flight_of(v)))
VALUE(paused, json_boolean(snapshot_paused(v)))
VALUE(paused_for, live(v, "paused_for_ns"))
VALUE(paused_at, pause_as(v, 's'))
VALUE(paused_until, pause_as(v, 'u'))
VALUE(paused_by, pause_as(v, 'b'))
VALUE(rate_reached, json_boolean(snapshot_rate_reached(v)))
VALUE(breaker, text(runs(v) ? snapshot_breaker(v) : ""))
VALUE(breaker_why, text(breaker_why(v)))
VALUE(started, json_time(v->head.started_ns))
VALUE(error, text(v->head.texts[COUNTERS_LAST_ERROR]))
VALUE(error_at, json_time(v->head.text_ns[COUNTERS_LAST_ERROR]))
VALUE(partitions, live(v, "partitions"))
VALUE(store_check, live(v, "store_check"))
VALUE(settings, live(v, "settings"))
VALUE(settings_changed, live(v, "settings_changed"))
VALUE(version, running(v, "version"))
VALUE(handler, running(v, "handler"))
VALUE(command, running(v, "command"))
VALUE(path, running(v, "path"))
VALUE(state_dir, v->has_folder ? json_printable(v->dir.folder) : json_null())
VALUE(user, user_of(v))
VALUE(flags, running(v, "flags"))

#define ALWAYS  SNAPSHOT_ALWAYS
#define COUNTED SNAPSHOT_COUNTED
#define RUNNING SNAPSHOT_RUNNING
#define OLDEST                                                              \
    "Time since the oldest message in that state was received; the kernel " \
    "queue cannot be looked into."
const struct snapshot_field snapshot_fields[] = {
    {"queue", ALWAYS, NULL, queue_as, NULL, NULL, NULL},
    {"engine", ALWAYS, NULL, engine_as, NULL, NULL, NULL},
    {NULL, ALWAYS, up_of, NULL, "mqworker_up",
     "Whether a worker is running on the queue.", NULL},
    {"depth", ALWAYS, depth_of, NULL, "mqworker_queue_messages",
     "Messages in the kernel queue.", NULL},
    {"queue_depth", ALWAYS, depth_max_of, NULL, "mqworker_queue_messages_limit",
     "Messages that the kernel queue has room for.", NULL},
    {"message_size", ALWAYS, message_size_of, NULL, NULL, NULL, NULL},
    {"bytes", ALWAYS, bytes_of, NULL, "mqworker_queue_bytes",
     "Bytes in the kernel queue.", NULL},
    {"waiting", ALWAYS, waiting_of, NULL, "mqworker_waiting",
     "Delayed and retrying messages in the store.", NULL},
    {"parked", ALWAYS, parked_of, NULL, "mqworker_parked",
     "Messages in the store behind the head of their group.", NULL},
    {"spooled", ALWAYS, spooled_of, NULL, "mqworker_spooled",
     "Messages in the spool.", NULL},
    {"dead", ALWAYS, dead_of, NULL, "mqworker_dead_letters",
     "Dead letters in the store.", NULL},
    {"replayed", ALWAYS, replayed_of, NULL, "mqworker_replayed_letters",
     "Dead letters being replayed.", NULL},
    {"custody", ALWAYS, custody_of, NULL, "mqworker_custody",
     "Messages received and not finished.", NULL},
    {"held", ALWAYS, held_of, NULL, "mqworker_held",
     "Messages in custody without a handler.", NULL},
    {"oldest_waiting_ns", ALWAYS, oldest_waiting_of, NULL,
     "mqworker_oldest_seconds", OLDEST, "waiting"},
    {"oldest_parked_ns", ALWAYS, oldest_parked_of, NULL,
     "mqworker_oldest_seconds", OLDEST, "parked"},
    {"oldest_spooled_ns", ALWAYS, oldest_spooled_of, NULL,
     "mqworker_oldest_seconds", OLDEST, "spooled"},
    {"oldest_held_ns", ALWAYS, oldest_held_of, NULL, "mqworker_oldest_seconds",
     OLDEST, "held"},
    {"last_received_at", ALWAYS, last_received_of, last_received_as,
     "mqworker_last_received_seconds",
     "Time at which a worker last received a message, seconds since the epoch.",
     NULL},
    {"pid", RUNNING, pid_of, NULL, NULL, NULL, NULL},
    {"state", ALWAYS, NULL, state_as, NULL, NULL, NULL},
    {"severity", ALWAYS, NULL, severity_as, NULL, NULL, NULL},
    {"in_flight", COUNTED, in_flight_of, in_flight_as, "mqworker_in_flight",
     "Messages being handled.", NULL},
    {"max_concurrency", RUNNING, cap_of, NULL, "mqworker_max_concurrency",
     "Handlers that may run at the same time.", NULL},
    {"window", RUNNING, window_of, NULL, "mqworker_window",
     "Messages that each handler may have at the same time.", NULL},
    {"capacity", RUNNING, capacity_of, NULL, "mqworker_capacity",
     "Messages that may be in flight: max_concurrency times window.", NULL},
    {"groups", RUNNING, groups_of, NULL, "mqworker_groups",
     "Ordered groups known to the worker.", NULL},
    {"groups_held", RUNNING, groups_held_of, NULL, "mqworker_groups_held",
     "Ordered groups held by a dead letter.", NULL},
    {"paused", COUNTED, paused_of, paused_as, "mqworker_paused",
     "Whether the worker is paused.", NULL},
    {"paused_for_ns", ALWAYS, NULL, paused_for_as, NULL, NULL, NULL},
    {"paused_at", ALWAYS, NULL, paused_at_as, NULL, NULL, NULL},
    {"paused_until", ALWAYS, NULL, paused_until_as, NULL, NULL, NULL},
    {"paused_by", ALWAYS, NULL, paused_by_as, NULL, NULL, NULL},
    {"rate_reached", COUNTED, rate_reached_of, rate_reached_as,
     "mqworker_rate_reached", "Whether --rate is holding back deliveries.",
     NULL},
    {"breaker", COUNTED, tripped_of, breaker_as, "mqworker_breaker_open",
     "Whether the breaker is open or probing.", NULL},
    {"breaker_reason", ALWAYS, NULL, breaker_why_as, NULL, NULL, NULL},
    {"started_at", COUNTED, started_of, started_as,
     "mqworker_start_time_seconds",
     "Start of the worker, seconds since the epoch.", NULL},
    {"deliveries", COUNTED, deliveries_of, NULL, "mqworker_deliveries_total",
     "Handlers started.", NULL},
    {"done", COUNTED, done_of, NULL, "mqworker_done_total", "Messages done.",
     NULL},
    {"retried", COUNTED, retried_of, NULL, "mqworker_retried_total",
     "Failed deliveries with a retry.", NULL},
    {"died", COUNTED, died_of, NULL, "mqworker_dead_total",
     "Messages that became dead letters.", NULL},
    {"discarded", COUNTED, discarded_of, NULL, "mqworker_discarded_total",
     "Messages discarded.", NULL},
    {"expired", COUNTED, expired_of, NULL, "mqworker_expired_total",
     "Messages that became dead letters because they expired.", NULL},
    {"crashes", COUNTED, crashes_of, NULL, "mqworker_crashes_total",
     "Crashes of the worker during handlers, as counted by recovery.", NULL},
    {"duplicates", COUNTED, duplicates_of, NULL, "mqworker_duplicates_total",
     "Messages discarded because another one had their unique key.", NULL},
    {"removed", COUNTED, removed_of, NULL, "mqworker_removed_letters_total",
     "Dead letters removed by keep-dead or max-dead.", NULL},
    {"on_dead_failed", COUNTED, hooks_failed_of, NULL,
     "mqworker_on_dead_failed_total", "Failed runs of on-dead.", NULL},
    {"totals", COUNTED, NULL, totals_as, NULL, NULL, NULL},
    {"on_dead_waiting", COUNTED, untold_of, NULL, "mqworker_on_dead_waiting",
     "Dead letters waiting for another run of on-dead after a failure.", NULL},
    {"handler_p50_ns", COUNTED, handler_p50_of, NULL, NULL, NULL, NULL},
    {"handler_p99_ns", COUNTED, handler_p99_of, NULL, NULL, NULL, NULL},
    {"handler_max_ns", COUNTED, handler_max_of, NULL, NULL, NULL, NULL},
    {"latency_p50_ns", COUNTED, latency_p50_of, NULL, NULL, NULL, NULL},
    {"latency_p99_ns", COUNTED, latency_p99_of, NULL, NULL, NULL, NULL},
    {"last_error", ALWAYS, NULL, error_as, NULL, NULL, NULL},
    {"last_error_at", ALWAYS, NULL, error_at_as, NULL, NULL, NULL},
    {"partitions", RUNNING, NULL, partitions_as, NULL, NULL, NULL},
    {NULL, RUNNING, parts_here_of, NULL, "mqworker_partitions_here",
     "Partitions from which this worker takes messages.", NULL},
    {NULL, RUNNING, parts_blocked_of, NULL, "mqworker_groups_blocked",
     "Groups of partitions whose head is waiting for a retry.", NULL},
    {"store_check", ALWAYS, NULL, store_check_as, NULL, NULL, NULL},
    {"settings", ALWAYS, NULL, settings_as, NULL, NULL, NULL},
    {"settings_changed", ALWAYS, NULL, settings_changed_as, NULL, NULL, NULL},
    {"version", ALWAYS, NULL, version_as, NULL, NULL, NULL},
    {"handler", ALWAYS, NULL, handler_as, NULL, NULL, NULL},
    {"command", ALWAYS, NULL, command_as, NULL, NULL, NULL},
    {"path", ALWAYS, NULL, path_as, NULL, NULL, NULL},
    {"user", ALWAYS, NULL, user_as, NULL, NULL, NULL},
    {"state_dir", ALWAYS, NULL, state_dir_as, NULL, NULL, NULL},
    {"flags", ALWAYS, NULL, flags_as, NULL, NULL, NULL},
};
const size_t snapshot_field_count =
    sizeof snapshot_fields / sizeof *snapshot_fields;

/* there - whether the field can be told of that queue */
static bool there(const struct snapshot_field *f, const struct snapshot *v)
{
    return f->when == ALWAYS || (f->when == COUNTED ? !!v->counters : runs(v));
}

/* snapshot_json - null is what is not known */
json_t *snapshot_json(const struct snapshot *v)
{
    json_t *o = json_object();
    int err = 0;

    for (size_t i = 0; i < snapshot_field_count; i++) {
        const struct snapshot_field *f = &snapshot_fields[i];
        json_t *value = NULL;

        if (!f->json)
            continue;
        if (f->value)
            value = f->value(v);
        else
            value = there(f, v) ? json_known(f->number(v)) : json_null();
        err |= json_object_set_new(o, f->json, value);
    }
    if (!err)
        return o;
    json_decref(o);
    return NULL;
}

/* snapshot_metric - one of a worker that is gone is 0 if it is about now */
double snapshot_metric(const struct snapshot_field *f, const struct snapshot *v)
{
    if (f->when != ALWAYS && !v->counters)
        return -1;
    return there(f, v) ? (double)f->number(v) : 0;
}
