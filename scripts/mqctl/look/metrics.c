/* metrics.c - see mqctl.h
 *
 * The format: prometheus.io/docs/instrumenting/exposition_formats. All samples
 * of a family stand together, so all queues are looked at first.
 */
#include "scripts/mqctl/mqctl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/folder.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "scripts/mqctl/look/snapshot.h"
#include "scripts/mqctl/queue_list.h"

static double seconds(uint64_t ns)
{
    return (double)ns / (double)NS_PER_S;
}

/* labels - a queue's name, as UTF-8 and with \ and " escaped, and what it is a
 * queue of */
static void labels(FILE *out, const struct snapshot *v)
{
    char name[4 * QUEUE_NAME_MAX]; /* each byte as an escape */

    safe_text_copy(name, sizeof name, v->queue, strlen(v->queue));
    fputs("{queue=\"", out);
    for (const char *c = name; *c; c++) {
        if (*c == '\\' || *c == '"')
            fputc('\\', out);
        fputc(*c, out);
    }
    fprintf(out, "\",engine=\"%s\"", snapshot_engine(v));
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
        labels(out, v);
        fprintf(out, ",le=\"%.10g\"} %" PRIu64 "\n", seconds(bound(i)),
                histogram_upto(h, bound(i)));
    }
    fprintf(out, "%s_bucket", name);
    labels(out, v);
    fprintf(out, ",le=\"+Inf\"} %" PRIu64 "\n%s_sum", h->total, name);
    labels(out, v);
    fprintf(out, "} %.9f\n%s_count", seconds(sum_ns), name);
    labels(out, v);
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

/* Its count, its sum, and the count up to each bound; the bounds are text as in
 * the labels of the other format. */
static json_t *histogram_json(const struct histogram_sum *h, uint64_t sum_ns)
{
    json_t *buckets = json_object();
    char le[32];
    int err = 0;

    for (size_t i = 0; i < BOUNDS; i++) {
        snprintf(le, sizeof le, "%.10g", seconds(bound(i)));
        err |= json_object_set_new(
            buckets, le, json_integer((json_int_t)histogram_upto(h, bound(i))));
    }
    err |= json_object_set_new(buckets, "+Inf",
                               json_integer((json_int_t)h->total));
    if (!err)
        return json_pack("{s:I,s:f,s:o}", "count", (json_int_t)h->total, "sum",
                         seconds(sum_ns), "buckets", buckets);
    json_decref(buckets);
    return NULL;
}

/* ---- both formats ---- */

/* Print one sample as JSON; takes over `value`. 0 or -ENOMEM. */
static int object_print(const struct snapshot *v, const char *name,
                        const char *state, const char *type, json_t *value)
{
    json_t *o =
        json_pack("{s:o,s:s,s:s,s:s}", "queue", json_printable(v->queue),
                  "engine", snapshot_engine(v), "name", name, "type", type);

    if (state)
        (void)json_object_set_new(o, "state", json_string(state));
    if (json_object_set_new(o, "value", value) == 0)
        return json_print_line(o, stdout);
    json_decref(o);
    return -ENOMEM;
}

/* Print handler times, or latencies, of which no sum is kept. `out`: NULL for
 * JSON. */
static int histograms(FILE *out, const struct snapshot *all, size_t n,
                      bool latency)
{
    const char *name =
        latency ? "mqworker_latency_seconds" : "mqworker_handler_seconds";
    static struct histogram_sum h;
    int err = 0;

    if (out)
        family(out, name, "histogram",
               latency ? "From sent, or received, to the start of the handler, "
                         "at the first delivery."
                       : "How long handlers ran.");
    for (size_t i = 0; i < n && !err; i++) {
        uint64_t sum_ns;

        if (!all[i].counters)
            continue;
        counters_histogram_totals(all[i].counters, latency ? NULL : &h,
                                  latency ? &h : NULL);
        sum_ns = latency ? roughly(&h) : all[i].totals.took_ns;
        if (out)
            histogram(out, name, &all[i], &h, sum_ns);
        else
            err = object_print(&all[i], name, NULL, "histogram",
                               histogram_json(&h, sum_ns));
    }
    return err;
}

static bool ends_in(const char *name, const char *end)
{
    size_t size = strlen(name), n = strlen(end);

    return size >= n && strcmp(name + size - n, end) == 0;
}

/* Print one family, or its part with one label, if any queue has a value. Input
 * times are in ns. *family_is is the last family begun. `out`: NULL for JSON,
 * in which a whole number has no point. */
static int numbers(FILE *out, const struct snapshot_field *f,
                   const struct snapshot *all, size_t n, const char **family_is)
{
    double unit = ends_in(f->metric, "_seconds") ? (double)NS_PER_S : 1;
    const char *type = ends_in(f->metric, "_total") ? "counter" : "gauge";
    bool named = *family_is && strcmp(*family_is, f->metric) == 0;
    int err = 0;

    for (size_t i = 0; i < n && !err; i++) {
        double value = snapshot_metric(f, &all[i]);

        if (value < 0)
            continue;
        value /= unit;
        if (!out) {
            err = object_print(&all[i], f->metric, f->label, type,
                               (double)(json_int_t)value == value
                                   ? json_integer((json_int_t)value)
                                   : json_real(value));
            continue;
        }
        if (!named)
            family(out, f->metric, type, f->help);
        named = true;
        *family_is = f->metric;
        fputs(f->metric, out);
        labels(out, &all[i]);
        if (f->label)
            fprintf(out, ",state=\"%s\"", f->label);
        fprintf(out, "} %.17g\n", value);
    }
    return err;
}

/* Print all families as text, or with NULL as JSON: an object for each queue
 * and name. 0 or -ENOMEM. */
static int print_all(FILE *out, const struct snapshot *all, size_t n)
{
    const char *family_is = NULL;
    int err = 0;

    for (size_t i = 0; i < snapshot_field_count && !err; i++)
        if (snapshot_fields[i].metric)
            err = numbers(out, &snapshot_fields[i], all, n, &family_is);
    if (!err)
        err = histograms(out, all, n, false);
    return err ? err : histograms(out, all, n, true);
}

/* to_file - beside it, then in its place */
static int to_file(const char *path, const struct snapshot *all, size_t n)
{
    char beside[PATH_MAX], user[FOLDER_USER];
    int fd, ok;
    FILE *out;
    int err;

    if (snprintf(beside, sizeof beside, "%s.%d", path, (int)getpid()) >=
        (int)sizeof beside)
        return complain(EX_USAGE, "--textfile: the path is too long");
    fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
              0644);
    out = fd >= 0 ? fdopen(fd, "w") : NULL;
    err = errno; /* folder_user has one of its own */
    if (!out)
        return complain(EX_CANTCREAT,
                        "cannot make %s: %s; this runs as %s: give a "
                        "--textfile in another folder",
                        beside, errno_text(err), folder_user(geteuid(), user));
    (void)print_all(out, all, n);
    ok = fflush(out) == 0 && !ferror(out) && fsync(fd) == 0;
    ok = fclose(out) == 0 && ok && rename(beside, path) == 0;
    if (ok)
        return 0;
    n = (size_t)errno;
    unlink(beside);
    return complain(EX_CANTCREAT, "cannot write %s: %s; it is as it was", path,
                    errno_text((int)n));
}

/* Look at a queue. Returns true if there is a snapshot to print. */
static bool look(struct snapshot *v, const char *dir, const char *queue,
                 int *status)
{
    struct problem p;

    if (snapshot_open(v, dir, queue, true, &p) < 0) {
        *status = complain_of(&p);
        return false;
    }
    v->in_all = true; /* a restart does not reset a counter */
    if (!v->shut)
        return true;
    *status = complain_of(&v->no_live);
    snapshot_close(v);
    return false;
}

/* Look at all queues, then print them; returns an exit status. */
static int metrics_tell(const struct options *o, const struct words *dirs,
                        const struct queue_list *n, struct snapshot *all)
{
    size_t count = 0;
    int status = 0, written;

    for (size_t i = 0; i < n->count; i++)
        count +=
            look(&all[count], snapshot_dir(dirs->at, dirs->count, n->at[i]),
                 n->at[i], &status);
    if (o->textfile)
        written = to_file(o->textfile, all, count);
    else
        written = print_all(o->json ? NULL : stdout, all, count) < 0
                      ? complain_memory()
                      : 0;
    for (size_t i = 0; i < count; i++)
        snapshot_close(&all[i]);
    return written ? written : status;
}

int metrics_run(const struct options *o)
{
    struct words dirs = o->serve.state_dirs; /* of serve, else our own */
    struct queue_list n = {0};
    struct snapshot *all;
    int status = 0;

    if (o->json && o->textfile)
        return complain(EX_USAGE, "--json does not go with --textfile, whose "
                                  "reader takes the text format; give one");
    if (dirs.count == 0)
        dirs.at[dirs.count++] = o->state_dir;
    for (size_t i = 0; i < dirs.count && !status; i++) {
        if (queue_list_of_all_workers(&n, dirs.at[i]) < 0)
            status = complain_memory();
        else if (n.folder_trouble[0])
            status = complain(EX_CANTCREAT, "%s", n.folder_trouble);
    }
    all = status ? NULL : calloc(n.count + 1, sizeof *all);
    if (!status)
        status = all ? metrics_tell(o, &dirs, &n, all) : complain_memory();
    free(all);
    queue_list_free(&n);
    return status;
}
