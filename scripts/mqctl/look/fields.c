/* fields.c - what a snapshot has, as JSON and as metrics (see
 * snapshot.h) */
#include <string.h>

#include "common/base/clock.h"
#include "common/base/folder.h"
#include "common/cli/json_line.h"
#include "scripts/mqctl/look/snapshot.h"

/* Return a member of an object; null if there is no object or no member. */
static json_t *member_copy(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);

    return value ? json_incref(value) : json_null();
}

/* Return the text, or null if it is empty. */
static json_t *text_copy(const char *text)
{
    return *text ? json_printable(text) : json_null();
}

/* Return a quantile that is at most `most` ns; -1 if nothing was counted. */
static int64_t quantile_known(const struct histogram_sum *h, double q,
                              uint64_t most)
{
    uint64_t ns = histogram_quantile(h, q);

    return h->total == 0 ? -1 : (int64_t)(ns < most ? ns : most);
}

/* Add up a number, or count a truth, over all partitions; -1 if the queue has
 * no partitions. */
static int64_t partitions_sum(const struct snapshot *v, const char *name)
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

/* Return the age of a message received at that wall time; -1 if there is no
 * message. */
static int64_t message_age(uint64_t received_ns)
{
    uint64_t now = clock_wall_ns();

    return !received_ns        ? -1
           : now > received_ns ? (int64_t)(now - received_ns)
                               : 0;
}

/* Return the totals over all runs; null without counters. */
static json_t *totals_json(const struct snapshot *v)
{
    const struct counters_sum *t = &v->totals;

    return v->counters
               ? json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
                           "deliveries", (json_int_t)t->deliveries, "done",
                           (json_int_t)t->done, "retried",
                           (json_int_t)t->retried, "died", (json_int_t)t->dead,
                           "discarded", (json_int_t)t->discarded, "expired",
                           (json_int_t)t->expired, "crashes",
                           (json_int_t)t->crashes, "duplicates",
                           (json_int_t)t->duplicates, "removed",
                           (json_int_t)t->removed, "on_dead_failed",
                           (json_int_t)t->hooks_failed)
               : json_null();
}

#define ALWAYS  SNAPSHOT_ALWAYS
#define COUNTED SNAPSHOT_COUNTED
#define RUNNING SNAPSHOT_RUNNING
#define OLDEST                                                              \
    "Time since the oldest message in that state was received; the kernel " \
    "queue cannot be looked into."

/* Fill the table: a row for each field, with its value now. The caller owns the
 * JSON values. */
/* NOLINTNEXTLINE(readability-function-size): a row for each field */
static void fields_read(const struct snapshot *v, struct snapshot_fields *out)
{
    static struct histogram_sum handler, latency;
    const bool running = v->worker == SNAPSHOT_RUNS;
    const struct counters_sum *n = v->in_all ? &v->totals : &v->sum;
    const json_t *runs = json_object_get(v->live, "runs");
    const json_t *uid = json_object_get(runs, "uid");
    const char *why = snapshot_text(v, "breaker_reason");
    const char *breaker = snapshot_breaker(v);
    int64_t in_flight =
        running ? snapshot_number(v, "in_flight", v->sum.running) : 0;
    uint64_t received_ns = v->totals.received_ns;
    uint64_t longest_ns = v->sum.longest_ns;
    char user[FOLDER_USER];
    struct pause_note pause;
    bool noted = snapshot_pause(v, &pause);

    memset(&handler, 0, sizeof handler);
    memset(&latency, 0, sizeof latency);
    if (v->counters)
        counters_histograms(v->counters, false, &handler, &latency);
    *out = (struct snapshot_fields){{
        {"queue", .value = json_printable(v->queue)},
        {"engine", .value = json_string(v->engine)},
        {NULL, ALWAYS, v->worker == SNAPSHOT_UNSEEN ? -1 : running,
         .metric = "mqworker_up",
         .help = "Whether a worker is running on the queue."},
        {"depth", ALWAYS, v->depth, .metric = "mqworker_queue_messages",
         .help = "Messages in the kernel queue."},
        {"queue_depth", ALWAYS, v->depth_max,
         .metric = "mqworker_queue_messages_limit",
         .help = "Messages that the kernel queue has room for."},
        {"message_size", .number = v->message_size},
        {"bytes", ALWAYS, v->bytes, .metric = "mqworker_queue_bytes",
         .help = "Bytes in the kernel queue."},
        {"waiting", ALWAYS, v->waiting, .metric = "mqworker_waiting",
         .help = "Delayed and retrying messages in the store."},
        {"parked", ALWAYS, v->parked, .metric = "mqworker_parked",
         .help = "Messages in the store behind the head of their group."},
        {"spooled", ALWAYS, v->spooled, .metric = "mqworker_spooled",
         .help = "Messages in the spool."},
        {"dead", ALWAYS, v->dead, .metric = "mqworker_dead_letters",
         .help = "Dead letters in the store."},
        {"replayed", ALWAYS, v->replayed, .metric = "mqworker_replayed_letters",
         .help = "Dead letters being replayed."},
        {"custody", ALWAYS, v->custody, .metric = "mqworker_custody",
         .help = "Messages received and not finished."},
        {"held", ALWAYS, v->held, .metric = "mqworker_held",
         .help = "Messages in custody without a handler."},
        {"oldest_waiting_ns", ALWAYS, message_age(v->ages.waiting),
         .metric = "mqworker_oldest_seconds", .help = OLDEST,
         .label = "waiting"},
        {"oldest_parked_ns", ALWAYS, message_age(v->ages.parked),
         .metric = "mqworker_oldest_seconds", .help = OLDEST,
         .label = "parked"},
        {"oldest_spooled_ns", ALWAYS, message_age(v->ages.spooled),
         .metric = "mqworker_oldest_seconds", .help = OLDEST,
         .label = "spooled"},
        {"oldest_held_ns", ALWAYS, message_age(v->held_since_ns),
         .metric = "mqworker_oldest_seconds", .help = OLDEST, .label = "held"},
        {"last_received_at", ALWAYS, received_ns ? (int64_t)received_ns : -1,
         .value = json_time(received_ns),
         .metric = "mqworker_last_received_seconds",
         .help = "Time at which a worker last received a message, seconds "
                 "since the epoch."},
        {"pid", RUNNING, .number = snapshot_number(v, "pid", (uint64_t)v->pid)},
        {"state", .value = json_string(snapshot_state_text(v))},
        {"severity",
         .value = json_string(worker_severity_text(snapshot_severity(v)))},
        {"in_flight", COUNTED, in_flight, .value = json_integer(in_flight),
         .metric = "mqworker_in_flight", .help = "Messages being handled."},
        {"max_concurrency", RUNNING, snapshot_cap(v),
         .metric = "mqworker_max_concurrency",
         .help = "Handlers that may run at the same time."},
        {"window", RUNNING, snapshot_window(v), .metric = "mqworker_window",
         .help = "Messages that each handler may have at the same time."},
        {"capacity", RUNNING, snapshot_capacity(v),
         .metric = "mqworker_capacity",
         .help = "Messages that may be in flight: max_concurrency times "
                 "window."},
        {"groups", RUNNING, (int64_t)snapshot_groups(v),
         .metric = "mqworker_groups",
         .help = "Ordered groups known to the worker."},
        {"groups_held", RUNNING, (int64_t)snapshot_groups_held(v),
         .metric = "mqworker_groups_held",
         .help = "Ordered groups held by a dead letter."},
        {"paused", COUNTED, snapshot_paused(v),
         .value = json_boolean(snapshot_paused(v)), .metric = "mqworker_paused",
         .help = "Whether the worker is paused."},
        {"paused_for_ns", .value = member_copy(v->live, "paused_for_ns")},
        {"paused_at", .value = noted ? json_time(pause.since_ns) : json_null()},
        {"paused_until",
         .value = noted ? json_time(pause.until_ns) : json_null()},
        {"paused_by", .value = noted ? json_printable(pause.by) : json_null()},
        {"rate_reached", COUNTED, snapshot_rate_reached(v),
         .value = json_boolean(snapshot_rate_reached(v)),
         .metric = "mqworker_rate_reached",
         .help = "Whether --rate is holding back deliveries."},
        {"breaker", COUNTED, running && strcmp(breaker, "closed") != 0,
         .value = text_copy(running ? breaker : ""),
         .metric = "mqworker_breaker_open",
         .help = "Whether the breaker is open or probing."},
        {"breaker_reason",
         .value = text_copy(why ? why : v->head.texts[COUNTERS_WHY_BREAKER])},
        {"started_at", COUNTED, (int64_t)v->head.started_ns,
         .value = json_time(v->head.started_ns),
         .metric = "mqworker_start_time_seconds",
         .help = "Start of the worker, seconds since the epoch."},
        {"deliveries", COUNTED, (int64_t)n->deliveries,
         .metric = "mqworker_deliveries_total", .help = "Handlers started."},
        {"done", COUNTED, (int64_t)n->done, .metric = "mqworker_done_total",
         .help = "Messages done."},
        {"retried", COUNTED, (int64_t)n->retried,
         .metric = "mqworker_retried_total",
         .help = "Failed deliveries with a retry."},
        {"died", COUNTED, (int64_t)n->dead, .metric = "mqworker_dead_total",
         .help = "Messages that became dead letters."},
        {"discarded", COUNTED, (int64_t)n->discarded,
         .metric = "mqworker_discarded_total", .help = "Messages discarded."},
        {"expired", COUNTED, (int64_t)n->expired,
         .metric = "mqworker_expired_total",
         .help = "Messages that became dead letters because they expired."},
        {"crashes", COUNTED, (int64_t)n->crashes,
         .metric = "mqworker_crashes_total",
         .help = "Crashes of the worker during handlers, as counted by "
                 "recovery."},
        {"duplicates", COUNTED, (int64_t)n->duplicates,
         .metric = "mqworker_duplicates_total",
         .help = "Messages discarded because another one had their unique "
                 "key."},
        {"removed", COUNTED, (int64_t)n->removed,
         .metric = "mqworker_removed_letters_total",
         .help = "Dead letters removed by keep-dead or max-dead."},
        {"on_dead_failed", COUNTED, (int64_t)n->hooks_failed,
         .metric = "mqworker_on_dead_failed_total",
         .help = "Failed runs of on-dead."},
        {"totals", .value = totals_json(v)},
        {"on_dead_waiting", COUNTED, (int64_t)v->head.gauges[COUNTERS_ON_DEAD],
         .metric = "mqworker_on_dead_waiting",
         .help = "Dead letters waiting for another run of on-dead after a "
                 "failure."},
        {"handler_p50_ns", COUNTED,
         .number = quantile_known(&handler, 0.5, longest_ns)},
        {"handler_p99_ns", COUNTED,
         .number = quantile_known(&handler, 0.99, longest_ns)},
        {"handler_max_ns", COUNTED,
         .number = longest_ns ? (int64_t)longest_ns : -1},
        {"latency_p50_ns", COUNTED,
         .number = quantile_known(&latency, 0.5, UINT64_MAX)},
        {"latency_p99_ns", COUNTED,
         .number = quantile_known(&latency, 0.99, UINT64_MAX)},
        {"last_error", .value = text_copy(v->head.texts[COUNTERS_LAST_ERROR])},
        {"last_error_at",
         .value = json_time(v->head.text_ns[COUNTERS_LAST_ERROR])},
        {"partitions", .value = member_copy(v->live, "partitions")},
        {NULL, RUNNING, partitions_sum(v, "here"),
         .metric = "mqworker_partitions_here",
         .help = "Partitions from which this worker takes messages."},
        {NULL, RUNNING, partitions_sum(v, "blocked_groups"),
         .metric = "mqworker_groups_blocked",
         .help = "Groups of partitions whose head is waiting for a retry."},
        {"store_check", .value = member_copy(v->live, "store_check")},
        {"settings", .value = member_copy(v->live, "settings")},
        {"settings_changed", .value = member_copy(v->live, "settings_changed")},
        {"version", .value = member_copy(runs, "version")},
        {"handler", .value = member_copy(runs, "handler")},
        {"command", .value = member_copy(runs, "command")},
        {"path", .value = member_copy(runs, "path")},
        {"user", .value = uid ? json_string(folder_user(
                                    (uid_t)json_integer_value(uid), user))
                              : json_null()},
        {"state_dir",
         .value = v->has_folder ? json_printable(v->dir.folder) : json_null()},
        {"flags", .value = member_copy(runs, "flags")},
    }};
}

/* Return true if the number of a field is known. */
static bool field_is_known(const struct snapshot_field *f,
                           const struct snapshot *v)
{
    return f->when == ALWAYS ||
           (f->when == COUNTED ? v->counters != NULL
                               : v->worker == SNAPSHOT_RUNS);
}

json_t *snapshot_json(const struct snapshot *v)
{
    static struct snapshot_fields fields;
    json_t *o = json_object();
    int err = 0;

    fields_read(v, &fields);
    for (size_t i = 0; i < SNAPSHOT_FIELDS; i++) {
        const struct snapshot_field *f = &fields.at[i];

        if (f->json)
            err |= json_object_set_new(o, f->json,
                                       f->value ? f->value
                                       : field_is_known(f, v)
                                           ? json_known(f->number)
                                           : json_null());
    }
    if (!err)
        return o;
    json_decref(o);
    return NULL;
}

void snapshot_metrics(const struct snapshot *v, struct snapshot_fields *out)
{
    fields_read(v, out);
    for (size_t i = 0; i < SNAPSHOT_FIELDS; i++) {
        struct snapshot_field *f = &out->at[i];

        json_decref(f->value);
        f->value = NULL;
        /* A worker that is not running has nothing in flight: 0. */
        if (f->when != ALWAYS && !v->counters)
            f->number = -1;
        else if (!field_is_known(f, v))
            f->number = 0;
    }
}
