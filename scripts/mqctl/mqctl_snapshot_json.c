/* mqctl_snapshot_json.c - a view as the object of mqctl status --json (see
 * mqctl_snapshot.h) */
#include "common/text/json_line.h"
#include "scripts/mqctl/mqctl_snapshot.h"

/* totals - since the worker started */
static json_t *totals(const struct snapshot *v)
{
    static struct histogram_sum handler, latency;
    const struct counters_sum *s = &v->sum;

    if (v->counters)
        counters_histograms(v->counters, &handler, &latency);
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
        " s:I}",
        "deliveries", (json_int_t)s->deliveries, "done", (json_int_t)s->done,
        "retried", (json_int_t)s->retried, "died", (json_int_t)s->dead,
        "discarded", (json_int_t)s->discarded, "expired",
        (json_int_t)s->expired, "crashes", (json_int_t)s->crashes,
        "handler_p50_ns", (json_int_t)snapshot_handler_ns(v, &handler, 0.5),
        "handler_p99_ns", (json_int_t)snapshot_handler_ns(v, &handler, 0.99),
        "handler_max_ns", (json_int_t)s->longest_ns, "latency_p50_ns",
        (json_int_t)histogram_quantile(&latency, 0.5), "latency_p99_ns",
        (json_int_t)histogram_quantile(&latency, 0.99));
}

/* totals_put - and the last error; null where there are no counters */
static void totals_put(json_t *o, const struct snapshot *v)
{
    json_t *all = totals(v), *value;
    const char *name;

    json_object_foreach(all, name, value)
    {
        json_object_set(o, name, v->counters ? value : json_null());
    }
    json_decref(all);
    json_object_set_new(o, "last_error",
                        v->head.texts[COUNTERS_LAST_ERROR][0]
                            ? json_string(v->head.texts[COUNTERS_LAST_ERROR])
                            : json_null());
    json_object_set_new(o, "last_error_at",
                        json_time(v->head.text_ns[COUNTERS_LAST_ERROR]));
}

/* live_put - what only a worker that answers has; null without one */
static void live_put(json_t *o, const struct snapshot *v, const char *name)
{
    json_t *value = json_object_get(v->live, name);

    json_object_set(o, name, value ? value : json_null());
}

/* now_put - a number of the worker that runs; null without one */
static void now_put(json_t *o, const struct snapshot *v, const char *name,
                    uint64_t value)
{
    json_object_set_new(o, name,
                        v->worker == SNAPSHOT_RUNS
                            ? json_integer((json_int_t)value)
                            : json_null());
}

/* breaker_put - its state, and why it opened last */
static void breaker_put(json_t *o, const struct snapshot *v)
{
    const char *why =
        json_string_value(json_object_get(v->live, "breaker_reason"));

    if (!why)
        why = v->head.texts[COUNTERS_WHY_BREAKER];
    json_object_set_new(o, "breaker",
                        v->worker == SNAPSHOT_RUNS
                            ? json_string(snapshot_breaker(v))
                            : json_null());
    json_object_set_new(o, "breaker_reason",
                        *why ? json_string(why) : json_null());
}

/* worker_put - of the one that runs, else of the last one */
static void worker_put(json_t *o, const struct snapshot *v)
{
    bool runs = v->worker == SNAPSHOT_RUNS;

    now_put(o, v, "pid", (uint64_t)snapshot_number(v, "pid", (uint64_t)v->pid));
    json_object_set_new(o, "state", json_string(snapshot_state(v)));
    json_object_set_new(
        o, "in_flight",
        json_integer(runs ? snapshot_number(v, "in_flight", v->sum.running)
                          : 0));
    now_put(o, v, "max_concurrency", snapshot_cap(v));
    now_put(o, v, "window", snapshot_window(v));
    now_put(o, v, "capacity", snapshot_capacity(v));
    now_put(o, v, "groups", snapshot_groups(v));
    now_put(o, v, "groups_held", snapshot_groups_held(v));
    json_object_set_new(o, "paused", json_boolean(snapshot_paused(v)));
    live_put(o, v, "paused_for_ns");
    breaker_put(o, v);
    json_object_set_new(o, "started_at", json_time(v->head.started_ns));
    totals_put(o, v);
    live_put(o, v, "settings");
}

/* snapshot_json - null is what is not known */
json_t *snapshot_json(const struct snapshot *v)
{
    json_t *o = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "queue",
        v->queue, "depth", json_known(v->depth), "queue_depth",
        json_known(v->depth_max), "message_size", json_known(v->message_size),
        "bytes", json_known(v->bytes), "waiting", json_known(v->waiting),
        "parked", json_known(v->parked), "dead", json_known(v->dead),
        "replayed", json_known(v->replayed), "custody", json_known(v->custody),
        "held", json_known(v->held));

    if (o)
        worker_put(o, v);
    return o;
}
