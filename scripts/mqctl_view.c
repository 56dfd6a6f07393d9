/* mqctl_view.c - see mqctl_view.h */
#include "scripts/mqctl_view.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/clock.h"
#include "scripts/mqctl_ask.h"

/* queue_look - the kernel's side */
static void queue_look(struct view *v)
{
    struct queue *q;

    v->depth = v->depth_max = v->message_size = v->bytes = -1;
    if (queue_open(&q, v->queue, 0, NULL, NULL, &v->no_queue) < 0)
        return;
    v->has_queue = true;
    v->depth = queue_length(q);
    v->depth_max = (long)queue_depth(q);
    v->message_size = (long)queue_message_size(q);
    v->bytes = queue_bytes(q);
    queue_close(&q);
}

/* counters_look - what the worker wrote last */
static void counters_look(struct view *v)
{
    char path[PATH_MAX];

    if (statedir_path(&v->dir, STATEDIR_COUNTERS, path, &v->no_counters) < 0 ||
        counters_attach(&v->counters, path, &v->no_counters) < 0)
        return;
    counters_header(v->counters, &v->head);
    counters_sum(v->counters, &v->sum);
    v->worker = counters_alive(&v->head)            ? VIEW_RUNS
                : v->head.gauges[COUNTERS_ENDED_NS] ? VIEW_ENDED
                                                    : VIEW_KILLED;
}

/* live_look - who answers runs, even in a namespace where its pid says nothing */
static void live_look(struct view *v)
{
    if (ask(&v->dir, v->queue, "status", &v->live, &v->no_live) == 0)
        v->worker = VIEW_RUNS;
}

/* view_store - the file of a queue that was never used may be missing */
int view_store(struct view *v, struct store **out)
{
    char path[PATH_MAX];
    int err = v->has_folder
                  ? statedir_path(&v->dir, STATEDIR_STORE, path, &v->no_store)
                  : -ENOENT;

    *out = NULL;
    return err ? err : store_open(out, path, false, &v->no_store);
}

/* store_look - counted now, not when the worker last did */
static void store_look(struct view *v)
{
    struct store *s;

    v->waiting = v->parked = v->dead = v->replayed = -1;
    if (view_store(v, &s) < 0)
        return;
    v->waiting = store_count(s, STORE_WAITING);
    v->parked = store_count(s, STORE_PARKED);
    v->dead = store_count(s, STORE_DEAD);
    v->replayed = store_count(s, STORE_REPLAYED);
    store_close(&s);
}

/* view_folder - statedir speaks to whoever wants to run a worker there; who only
 * looks is not to change owners */
int view_folder(struct statedir *out, const char *state_dir, const char *queue,
                struct problem *p)
{
    int err = statedir_open(out, state_dir, queue, false, p);
    struct stat st;

    if (err == -ENOENT)
        p->status = EX_UNAVAILABLE;
    else if (err == -EACCES)
        p->status = EX_NOPERM;
    else if (err && geteuid() != 0 && lstat(out->folder, &st) == 0 &&
             st.st_uid != geteuid())
        problem_fill(p, EX_NOPERM,
                     "%s belongs to uid %u; run mqctl as that user or root, "
                     "like sudo -u '#%u' mqctl ...",
                     out->folder, (unsigned)st.st_uid, (unsigned)st.st_uid);
    return err;
}

/* view_open - look at everything once */
int view_open(struct view *v, const char *state_dir, const char *queue,
              bool ask_worker, struct problem *p)
{
    int err;

    memset(v, 0, sizeof *v);
    err = queue_name(queue, v->queue, p);
    if (err)
        return err;
    queue_look(v);
    err = view_folder(&v->dir, state_dir, v->queue, &v->no_live);
    v->has_folder = !err;
    v->shut = err && err != -ENOENT;
    if (err)
        v->no_counters = v->no_store = v->no_live;
    else
        counters_look(v);
    if (!err && ask_worker)
        live_look(v);
    store_look(v);
    return 0;
}

void view_close(struct view *v)
{
    counters_close(&v->counters);
    json_decref(v->live);
    v->live = NULL;
}

/* number - what the worker says, else what it wrote */
static json_int_t number(const struct view *v, const char *name,
                         uint64_t otherwise)
{
    json_t *value = json_object_get(v->live, name);

    return json_is_integer(value) ? json_integer_value(value)
                                  : (json_int_t)otherwise;
}

unsigned view_cap(const struct view *v)
{
    return (unsigned)number(v, "max_concurrency", v->head.gauges[COUNTERS_CAP]);
}

bool view_paused(const struct view *v)
{
    json_t *paused = json_object_get(v->live, "paused");

    return v->worker == VIEW_RUNS &&
           (paused ? json_is_true(paused)
                   : (v->head.gauges[COUNTERS_HOLDS] & COUNTERS_PAUSED) != 0);
}

const char *view_breaker(const struct view *v)
{
    static const char *const texts[] = {"closed", "open", "probing"};
    const char *live = json_string_value(json_object_get(v->live, "breaker"));
    uint64_t state = v->head.gauges[COUNTERS_BREAKER];

    return live ? live : texts[state < 3 ? state : 0];
}

const char *view_state(const struct view *v)
{
    const char *live = json_string_value(json_object_get(v->live, "state"));
    const char *text =
        live ? live : counters_holds_text(v->head.gauges[COUNTERS_HOLDS]);

    if (v->shut)
        return "not known";
    if (v->worker == VIEW_KILLED)
        return "killed";
    if (v->worker != VIEW_RUNS)
        return "not running";
    if (strcmp(text, "running") == 0 && strcmp(view_breaker(v), "closed") != 0)
        return strcmp(view_breaker(v), "open") == 0 ? "breaker open"
                                                    : "breaker probing";
    return text;
}

uint64_t view_handler_ns(const struct view *v, const struct histogram_sum *h,
                         double q)
{
    uint64_t ns = histogram_quantile(h, q);

    return ns < v->sum.longest_ns ? ns : v->sum.longest_ns;
}

/* ---- JSON ---- */

/* known - a number that is not known is null */
static json_t *known(int64_t value)
{
    return value < 0 ? json_null() : json_integer(value);
}

/* time_json - null for one that has not come */
static json_t *time_json(uint64_t wall_ns)
{
    char text[TIME_TEXT];

    return wall_ns ? json_string(time_print(wall_ns, text)) : json_null();
}

/* totals_put - since the worker started */
static void totals_put(json_t *o, const struct view *v)
{
    static struct histogram_sum handler, latency;
    const struct counters_sum *s = &v->sum;

    counters_histograms(v->counters, &handler, &latency);
    json_object_update_new(
        o, json_pack(
               "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
               " s:I, s:I}",
               "deliveries", (json_int_t)s->deliveries, "done",
               (json_int_t)s->done, "retried", (json_int_t)s->retried, "died",
               (json_int_t)s->dead, "discarded", (json_int_t)s->discarded,
               "expired", (json_int_t)s->expired, "crashes",
               (json_int_t)s->crashes, "handler_p50_ns",
               (json_int_t)view_handler_ns(v, &handler, 0.5), "handler_p99_ns",
               (json_int_t)view_handler_ns(v, &handler, 0.99), "handler_max_ns",
               (json_int_t)s->longest_ns, "latency_p50_ns",
               (json_int_t)histogram_quantile(&latency, 0.5), "latency_p99_ns",
               (json_int_t)histogram_quantile(&latency, 0.99), "groups",
               (json_int_t)v->head.gauges[COUNTERS_GROUPS]));
    json_object_set_new(o, "last_error",
                        v->head.texts[COUNTERS_LAST_ERROR][0]
                            ? json_string(v->head.texts[COUNTERS_LAST_ERROR])
                            : json_null());
    json_object_set_new(o, "last_error_at",
                        time_json(v->head.text_ns[COUNTERS_LAST_ERROR]));
}

/* worker_put - of the one that runs, else of the last one */
static void worker_put(json_t *o, const struct view *v)
{
    bool runs = v->worker == VIEW_RUNS;
    const char *why =
        json_string_value(json_object_get(v->live, "breaker_reason"));

    json_object_set_new(
        o, "pid",
        runs ? json_integer(number(v, "pid", (uint64_t)v->head.pid))
             : json_null());
    json_object_set_new(o, "state", json_string(view_state(v)));
    json_object_set_new(
        o, "in_flight",
        json_integer(runs ? number(v, "in_flight", v->sum.running) : 0));
    json_object_set_new(o, "max_concurrency",
                        runs ? json_integer(view_cap(v)) : json_null());
    json_object_set_new(o, "paused", json_boolean(view_paused(v)));
    if (json_object_get(v->live, "paused_for_ns"))
        json_object_set(o, "paused_for_ns",
                        json_object_get(v->live, "paused_for_ns"));
    json_object_set_new(o, "breaker",
                        runs ? json_string(view_breaker(v)) : json_null());
    if (!why)
        why = v->head.texts[COUNTERS_WHY_BREAKER];
    json_object_set_new(o, "breaker_reason",
                        *why ? json_string(why) : json_null());
    json_object_set_new(o, "started_at", time_json(v->head.started_ns));
    if (v->counters)
        totals_put(o, v);
    if (json_object_get(v->live, "settings"))
        json_object_set(o, "settings", json_object_get(v->live, "settings"));
}

/* view_json - null is what is not known */
json_t *view_json(const struct view *v)
{
    json_t *o = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "queue", v->queue,
        "depth", known(v->depth), "queue_depth", known(v->depth_max),
        "message_size", known(v->message_size), "bytes", known(v->bytes),
        "waiting", known(v->waiting), "parked", known(v->parked), "dead",
        known(v->dead), "replayed", known(v->replayed));

    if (o)
        worker_put(o, v);
    return o;
}
