/* fields.c - the values of a snapshot, as JSON and as metrics (see snapshot.h)
 *
 * status, top and mqctl serve call snapshot_json; metrics calls
 * snapshot_metrics; both on the only thread of the process.
 */
#include <string.h>

#include "common/base/clock.h"
#include "common/base/folder.h"
#include "common/cli/json_line.h"
#include "scripts/mqctl/look/snapshot.h"

/* Return a new reference to a member of an object; JSON null if there is no
 * object or no such member. */
static json_t *member_copy(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);

    return value ? json_incref(value) : json_null();
}

/* Return a text as JSON; null if it is empty. */
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

/* Add up a number over all partitions, or count the partitions in which a
 * boolean is true. Returns -1 if the queue has no partitions. */
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

/* Return the time since `wall_ns`; -1 if that is 0, which means no message. */
static int64_t message_age(uint64_t wall_ns)
{
    uint64_t now = clock_wall_ns();

    return !wall_ns ? -1 : now > wall_ns ? (int64_t)(now - wall_ns) : 0;
}

#define ALWAYS  SNAPSHOT_ALWAYS
#define COUNTED SNAPSHOT_COUNTED
#define RUNNING SNAPSHOT_RUNNING
#define OLDEST                                                            \
    "Time since the oldest message in that state was received; overdue: " \
    "since it was due; queue: how long the message received last had "    \
    "waited in the kernel queue."

/* Fill the table: a row for each field, with its value now. The caller owns the
 * JSON values. */
/* NOLINTNEXTLINE(readability-function-size): a row for each field */
static void fields_read(const struct snapshot *v, struct snapshot_fields *out)
{
    static struct histogram_sum handler, latency;
    const bool running = v->worker == SNAPSHOT_RUNS;
    const struct counters_sum *all = &v->totals;
    const struct counters_sum *n = v->in_all ? all : &v->sum;
    const json_t *runs = json_object_get(v->live, "runs");
    const json_t *uid = json_object_get(runs, "uid");
    const char *why = snapshot_text(v, "breaker_reason");
    const char *breaker = snapshot_breaker(v);
    int64_t in_flight =
        running ? snapshot_number(v, "in_flight", v->sum.running) : 0;
    uint64_t received_ns = all->received_ns;
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
         "mqworker_up", "Whether a worker is running on the queue."},
        {"depth", ALWAYS, v->depth, "mqworker_queue_messages",
         "Messages in the kernel queue."},
        {"queue_depth", ALWAYS, v->depth_max, "mqworker_queue_messages_limit",
         "Messages that the kernel queue has room for."},
        {"message_size", .number = v->message_size},
        {"bytes", ALWAYS, v->bytes, "mqworker_queue_bytes",
         "Bytes in the kernel queue."},
        {"waiting", ALWAYS, v->rows.waiting, "mqworker_waiting",
         "Delayed and retrying messages in the store."},
        {"parked", ALWAYS, v->rows.parked, "mqworker_parked",
         "Messages in the store behind the head of their group."},
        {"spooled", ALWAYS, v->rows.spooled, "mqworker_spooled",
         "Messages in the spool."},
        {"dead", ALWAYS, v->rows.dead, "mqworker_dead_letters",
         "Dead letters in the store."},
        {"replayed", ALWAYS, v->rows.replayed, "mqworker_replayed_letters",
         "Dead letters being replayed."},
        {"custody", ALWAYS, v->custody, "mqworker_custody",
         "Messages received and not finished."},
        {"held", ALWAYS, v->held, "mqworker_held",
         "Messages in custody without a handler."},
        {"oldest_waiting_ns", ALWAYS, message_age(v->rows.ages.waiting),
         "mqworker_oldest_seconds", OLDEST, "waiting"},
        {"oldest_parked_ns", ALWAYS, message_age(v->rows.ages.parked),
         "mqworker_oldest_seconds", OLDEST, "parked"},
        {"oldest_spooled_ns", ALWAYS, message_age(v->rows.ages.spooled),
         "mqworker_oldest_seconds", OLDEST, "spooled"},
        {"oldest_held_ns", ALWAYS, message_age(v->held_since_ns),
         "mqworker_oldest_seconds", OLDEST, "held"},
        {"oldest_overdue_ns", ALWAYS,
         v->rows.ages.due <= clock_wall_ns() ? message_age(v->rows.ages.due)
                                             : -1,
         "mqworker_oldest_seconds", OLDEST, "overdue"},
        {"oldest_queue_ns", ALWAYS,
         v->queue_wait_ns ? (int64_t)v->queue_wait_ns : -1,
         "mqworker_oldest_seconds", OLDEST, "queue"},
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
         "mqworker_max_concurrency", "Handlers that may run at the same time."},
        {"window", RUNNING, snapshot_window(v), "mqworker_window",
         "Messages that each handler may have at the same time."},
        {"capacity", RUNNING, snapshot_capacity(v), "mqworker_capacity",
         "Messages that may be in flight: max_concurrency times "
         "window."},
        {"groups", RUNNING, (int64_t)snapshot_groups(v), "mqworker_groups",
         "Ordered groups known to the worker."},
        {"groups_held", RUNNING, (int64_t)snapshot_groups_held(v),
         "mqworker_groups_held", "Ordered groups held by a dead letter."},
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
         "mqworker_deliveries_total", "Handlers started."},
        {"done", COUNTED, (int64_t)n->done, "mqworker_done_total",
         "Messages done."},
        {"retried", COUNTED, (int64_t)n->retried, "mqworker_retried_total",
         "Failed deliveries with a retry."},
        {"died", COUNTED, (int64_t)n->dead, "mqworker_dead_total",
         "Messages that became dead letters."},
        {"discarded", COUNTED, (int64_t)n->discarded,
         "mqworker_discarded_total", "Messages discarded."},
        {"expired", COUNTED, (int64_t)n->expired, "mqworker_expired_total",
         "Messages that became dead letters because they expired."},
        {"crashes", COUNTED, (int64_t)n->crashes, "mqworker_crashes_total",
         "Crashes of the worker during handlers, as counted by "
         "recovery."},
        {"duplicates", COUNTED, (int64_t)n->duplicates,
         "mqworker_duplicates_total",
         "Messages discarded because another one had their unique "
         "key."},
        {"removed", COUNTED, (int64_t)n->removed,
         "mqworker_removed_letters_total",
         "Dead letters removed by keep-dead or max-dead."},
        {"on_dead_failed", COUNTED, (int64_t)n->hooks_failed,
         "mqworker_on_dead_failed_total", "Failed runs of on-dead."},
        {"totals", /* over all runs */
         .value =
             v->counters
                 ? json_pack(
                       "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
                       "deliveries", (json_int_t)all->deliveries, "done",
                       (json_int_t)all->done, "retried",
                       (json_int_t)all->retried, "died", (json_int_t)all->dead,
                       "discarded", (json_int_t)all->discarded, "expired",
                       (json_int_t)all->expired, "crashes",
                       (json_int_t)all->crashes, "duplicates",
                       (json_int_t)all->duplicates, "removed",
                       (json_int_t)all->removed, "on_dead_failed",
                       (json_int_t)all->hooks_failed)
                 : json_null()},
        {"on_dead_waiting", COUNTED, (int64_t)v->head.gauges[COUNTERS_ON_DEAD],
         "mqworker_on_dead_waiting",
         "Dead letters waiting for another run of on-dead after a "
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
        {NULL, RUNNING, partitions_sum(v, "here"), "mqworker_partitions_here",
         "Partitions from which this worker takes messages."},
        {NULL, RUNNING, partitions_sum(v, "blocked_groups"),
         "mqworker_groups_blocked",
         "Groups of partitions whose head is waiting for a retry."},
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
