/* mqctl_metrics.c - see mqctl.h
 *
 * The format: prometheus.io/docs/instrumenting/exposition_formats. All samples
 * of a family stand together, so all queues are looked at first.
 */
#include "scripts/mqctl/mqctl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/file/folder.h"
#include "scripts/mqctl/mqctl_queue_list.h"
#include "common/text/complain.h"
#include "scripts/mqctl/mqctl_snapshot.h"

/* ---- what a family says of a queue ---- */

static double seconds(uint64_t ns)
{
    return (double)ns / (double)NS_PER_S;
}

#define TOTAL(field)                                    \
    static double get_##field(const struct snapshot *v) \
    {                                                   \
        return (double)v->sum.field;                    \
    }
TOTAL(deliveries)
TOTAL(done)
TOTAL(retried)
TOTAL(discarded)
TOTAL(dead)
TOTAL(expired)
TOTAL(crashes)
#undef TOTAL

static bool runs(const struct snapshot *v)
{
    return v->worker == SNAPSHOT_RUNS;
}

static double get_up(const struct snapshot *v)
{
    return v->worker == SNAPSHOT_UNSEEN ? -1 : runs(v);
}

static double get_start(const struct snapshot *v)
{
    return seconds(v->head.started_ns);
}

static double get_flight(const struct snapshot *v)
{
    return runs(v) ? (double)v->sum.running : 0;
}

static double get_cap(const struct snapshot *v)
{
    return runs(v) ? snapshot_cap(v) : 0;
}

static double get_window(const struct snapshot *v)
{
    return runs(v) ? snapshot_window(v) : 0;
}

static double get_capacity(const struct snapshot *v)
{
    return runs(v) ? snapshot_capacity(v) : 0;
}

static double get_paused(const struct snapshot *v)
{
    return snapshot_paused(v);
}

static double get_breaker(const struct snapshot *v)
{
    return runs(v) && strcmp(snapshot_breaker(v), "closed") != 0;
}

static double get_groups(const struct snapshot *v)
{
    return (double)snapshot_groups(v);
}

static double get_groups_held(const struct snapshot *v)
{
    return (double)snapshot_groups_held(v);
}

#define KNOWN(name, field)                             \
    static double get_##name(const struct snapshot *v) \
    {                                                  \
        return (double)v->field;                       \
    }
KNOWN(depth, depth)
KNOWN(depth_max, depth_max)
KNOWN(bytes, bytes)
KNOWN(waiting, waiting)
KNOWN(parked, parked)
KNOWN(letters, dead)
KNOWN(replayed, replayed)
KNOWN(custody, custody)
KNOWN(held, held)
#undef KNOWN

/* Less than 0 leaves the sample out: it is not known. */
static const struct {
    const char *name, *type, *help;
    double (*get)(const struct snapshot *v);
    bool counted; /* only of queues with counters */
} families[] = {
    {"mqworker_up", "gauge", "Whether a worker runs on the queue.", get_up,
     false},
    {"mqworker_start_time_seconds", "gauge",
     "Start of the worker, seconds since the epoch.", get_start, true},
    {"mqworker_deliveries_total", "counter", "Handlers started.",
     get_deliveries, true},
    {"mqworker_done_total", "counter", "Messages that ended done.", get_done,
     true},
    {"mqworker_retried_total", "counter",
     "Deliveries that failed and were put off.", get_retried, true},
    {"mqworker_discarded_total", "counter", "Messages that were discarded.",
     get_discarded, true},
    {"mqworker_dead_total", "counter", "Messages that became dead letters.",
     get_dead, true},
    {"mqworker_expired_total", "counter",
     "Dead letters that expired before they were started.", get_expired, true},
    {"mqworker_crashes_total", "counter",
     "Handlers under which a worker died, as recovery counted them.",
     get_crashes, true},
    {"mqworker_in_flight", "gauge", "Messages that handlers have now.",
     get_flight, true},
    {"mqworker_max_concurrency", "gauge", "Handlers that may run at once.",
     get_cap, true},
    {"mqworker_window", "gauge", "Messages that each handler may have at once.",
     get_window, true},
    {"mqworker_capacity", "gauge",
     "Messages that may be in flight: max_concurrency times window.",
     get_capacity, true},
    {"mqworker_paused", "gauge", "Whether the worker was told to pause.",
     get_paused, true},
    {"mqworker_breaker_open", "gauge",
     "Whether the breaker is open or probing.", get_breaker, true},
    {"mqworker_groups", "gauge", "Ordered groups that are known.", get_groups,
     true},
    {"mqworker_groups_held", "gauge",
     "Ordered groups that a dead letter holds until somebody deals with it.",
     get_groups_held, true},
    {"mqworker_queue_messages", "gauge", "Messages in the kernel queue.",
     get_depth, false},
    {"mqworker_queue_messages_limit", "gauge",
     "Messages that the kernel queue has room for.", get_depth_max, false},
    {"mqworker_queue_bytes", "gauge", "Bytes in the kernel queue.", get_bytes,
     false},
    {"mqworker_custody", "gauge", "Messages received and not finished.",
     get_custody, false},
    {"mqworker_held", "gauge",
     "Of those in custody, the ones that no handler has now.", get_held, false},
    {"mqworker_waiting", "gauge",
     "Messages in the store that wait for their time.", get_waiting, false},
    {"mqworker_parked", "gauge",
     "Messages in the store behind the head of their group.", get_parked,
     false},
    {"mqworker_dead_letters", "gauge", "Dead letters in the store.",
     get_letters, false},
    {"mqworker_replayed_letters", "gauge",
     "Dead letters on their way through the queue again.", get_replayed, false},
};

/* label - a queue's name as a label value: \ and " and newline escaped */
static void label(FILE *out, const char *queue)
{
    fputs("{queue=\"", out);
    for (const char *c = queue; *c; c++) {
        if (*c == '\\' || *c == '"')
            fputc('\\', out);
        fputc(*c, out);
    }
    fputc('"', out);
}

static void family(FILE *out, const char *name, const char *type,
                   const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* ---- histograms ---- */

/* Upper bounds in ns: 1, 2.5 and 5 in each decade, from 1 us to 2500 s. */
static const uint64_t steps[] = {10, 25, 50};
#define DECADES 10 /* from 100 ns x 10 */

static uint64_t bound(size_t i)
{
    uint64_t ns = steps[i % 3] * 100;

    for (size_t d = 0; d < i / 3; d++)
        ns *= 10;
    return ns;
}
#define BOUNDS (3 * DECADES - 1)

/* histogram - one queue; `sum_ns` of all values */
static void histogram(FILE *out, const char *name, const struct snapshot *v,
                      const struct histogram_sum *h, uint64_t sum_ns)
{
    for (size_t i = 0; i < BOUNDS; i++) {
        fprintf(out, "%s_bucket", name);
        label(out, v->queue);
        fprintf(out, ",le=\"%.10g\"} %" PRIu64 "\n", seconds(bound(i)),
                histogram_upto(h, bound(i)));
    }
    fprintf(out, "%s_bucket", name);
    label(out, v->queue);
    fprintf(out, ",le=\"+Inf\"} %" PRIu64 "\n%s_sum", h->total, name);
    label(out, v->queue);
    fprintf(out, "} %.9f\n%s_count", seconds(sum_ns), name);
    label(out, v->queue);
    fprintf(out, "} %" PRIu64 "\n", h->total);
}

/* roughly - the sum of a histogram that has none: the middle of each bucket */
static uint64_t roughly(const struct histogram_sum *h)
{
    double sum = 0;

    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        sum += (double)h->count[i] *
               (double)(histogram_low(i) + histogram_low(i + 1) - 1) / 2;
    return (uint64_t)sum;
}

static void histograms(FILE *out, const struct snapshot *views, size_t n)
{
    static struct histogram_sum h;

    family(out, "mqworker_handler_seconds", "histogram",
           "How long handlers ran.");
    for (size_t i = 0; i < n; i++) {
        if (!views[i].counters)
            continue;
        counters_histograms(views[i].counters, &h, NULL);
        histogram(out, "mqworker_handler_seconds", &views[i], &h,
                  views[i].sum.took_ns);
    }
    family(out, "mqworker_latency_seconds", "histogram",
           "From sent, or received, to the start of the handler, at the first "
           "delivery.");
    for (size_t i = 0; i < n; i++) {
        if (!views[i].counters)
            continue;
        counters_histograms(views[i].counters, NULL, &h);
        histogram(out, "mqworker_latency_seconds", &views[i], &h, roughly(&h));
    }
}

/* ---- the text ---- */

static void print_all(FILE *out, const struct snapshot *views, size_t n)
{
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        family(out, families[f].name, families[f].type, families[f].help);
        for (size_t i = 0; i < n; i++) {
            double value = families[f].get(&views[i]);

            if (value < 0 || (families[f].counted && !views[i].counters))
                continue;
            fputs(families[f].name, out);
            label(out, views[i].queue);
            fprintf(out, "} %.17g\n", value);
        }
    }
    histograms(out, views, n);
}

/* to_file - beside it, then in its place */
static int to_file(const char *path, const struct snapshot *views, size_t n)
{
    char beside[PATH_MAX], user[FOLDER_USER];
    int fd, ok;
    FILE *out;

    if (snprintf(beside, sizeof beside, "%s.%d", path, (int)getpid()) >=
        (int)sizeof beside)
        return complain(EX_USAGE, "--textfile: the path is too long");
    fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
              0644);
    out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!out)
        return complain(EX_CANTCREAT,
                        "cannot make %s: %s; give a --textfile in a "
                        "folder that %s may write",
                        beside, strerror(errno), folder_user(geteuid(), user));
    print_all(out, views, n);
    ok = fflush(out) == 0 && !ferror(out) && fsync(fd) == 0;
    ok = fclose(out) == 0 && ok && rename(beside, path) == 0;
    if (ok)
        return 0;
    n = (size_t)errno;
    unlink(beside);
    return complain(EX_CANTCREAT, "cannot write %s: %s; it is as it was", path,
                    strerror((int)n));
}

/* look_all - views of all queues that have a folder; how many */
static size_t look_all(const struct options *o, const struct queue_list *n,
                       struct snapshot *views, int *status)
{
    struct problem p;
    size_t count = 0;

    for (size_t i = 0; i < n->count; i++) {
        struct snapshot *v = &views[count];

        if (snapshot_open(v, o->state_dir, n->at[i], true, &p) < 0) {
            *status = complain_of(&p);
        } else if (v->shut) {
            *status = complain_of(&v->no_live);
            snapshot_close(v);
        } else {
            count++;
        }
    }
    return count;
}

/* metrics_run - all of them, then the text */
int metrics_run(const struct options *o)
{
    struct queue_list n = {0};
    struct snapshot *views;
    size_t count;
    int status = 0;

    if (queue_list_of_workers(&n, o->state_dir) < 0)
        return complain_memory();
    if (n.folder_trouble[0]) {
        queue_list_free(&n);
        return complain(EX_CANTCREAT, "%s", n.folder_trouble);
    }
    views = calloc(n.count + 1, sizeof *views);
    if (!views)
        return complain_memory();
    count = look_all(o, &n, views, &status);
    if (o->textfile) {
        int written = to_file(o->textfile, views, count);

        status = written ? written : status;
    } else {
        print_all(stdout, views, count);
    }
    for (size_t i = 0; i < count; i++)
        snapshot_close(&views[i]);
    free(views);
    queue_list_free(&n);
    return status;
}
