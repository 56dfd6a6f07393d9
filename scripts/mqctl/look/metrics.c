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
#include "common/text/complain.h"
#include "common/text/json_line.h"
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

static const char *histogram_name(bool latency)
{
    return latency ? "mqworker_latency_seconds" : "mqworker_handler_seconds";
}

/* histograms - of handler times, or of latencies; of these no sum is kept */
static void histograms(FILE *out, const struct snapshot *all, size_t n,
                       bool latency)
{
    const char *name = histogram_name(latency);
    static struct histogram_sum h;

    family(out, name, "histogram",
           latency ? "From sent, or received, to the start of the handler, at "
                     "the first delivery."
                   : "How long handlers ran.");
    for (size_t i = 0; i < n; i++) {
        if (!all[i].counters)
            continue;
        counters_histogram_totals(all[i].counters, latency ? NULL : &h,
                                  latency ? &h : NULL);
        histogram(out, name, &all[i], &h,
                  latency ? roughly(&h) : all[i].totals.took_ns);
    }
}

/* ---- the text ---- */

static bool ends_in(const char *name, const char *end)
{
    size_t size = strlen(name), n = strlen(end);

    return size >= n && strcmp(name + size - n, end) == 0;
}

/* Print one family, or its part with one label, if any queue has a value. Input
 * times are in ns. *family_is is the last family begun. */
static void numbers(FILE *out, const struct snapshot_field *f,
                    const struct snapshot *all, size_t n,
                    const char **family_is)
{
    double unit = ends_in(f->metric, "_seconds") ? (double)NS_PER_S : 1;
    bool named = *family_is && strcmp(*family_is, f->metric) == 0;

    for (size_t i = 0; i < n; i++) {
        double value = snapshot_metric(f, &all[i]);

        if (value < 0)
            continue;
        if (!named)
            family(out, f->metric,
                   ends_in(f->metric, "_total") ? "counter" : "gauge", f->help);
        named = true;
        *family_is = f->metric;
        fputs(f->metric, out);
        labels(out, &all[i]);
        if (f->label)
            fprintf(out, ",state=\"%s\"", f->label);
        fprintf(out, "} %.17g\n", value / unit);
    }
}

static void print_all(FILE *out, const struct snapshot *all, size_t n)
{
    const char *family_is = NULL;

    for (size_t i = 0; i < snapshot_field_count; i++)
        if (snapshot_fields[i].metric)
            numbers(out, &snapshot_fields[i], all, n, &family_is);
    histograms(out, all, n, false);
    histograms(out, all, n, true);
}

/* ---- the same as JSON, an object for each queue and name ---- */

/* object_print - takes over `value`, under its name, and prints all; 0 or
 * -ENOMEM */
static int object_print(const struct snapshot *v, const char *name,
                        const char *state, const char *type,
                        const char *value_name, json_t *value)
{
    json_t *o =
        json_pack("{s:o,s:s,s:s,s:s}", "queue", json_printable(v->queue),
                  "engine", snapshot_engine(v), "name", name, "type", type);

    if (state)
        (void)json_object_set_new(o, "state", json_string(state));
    if (json_object_set_new(o, value_name, value) == 0)
        return json_print_line(o, stdout);
    json_decref(o);
    return -ENOMEM;
}

/* json_of - a whole number without a point */
static json_t *json_of(double value)
{
    json_int_t whole = (json_int_t)value;

    return (double)whole == value ? json_integer(whole) : json_real(value);
}

/* json_numbers - one name of the queues */
static int json_numbers(const struct snapshot_field *f,
                        const struct snapshot *all, size_t n)
{
    double unit = ends_in(f->metric, "_seconds") ? (double)NS_PER_S : 1;
    int err = 0;

    for (size_t i = 0; i < n && !err; i++) {
        double value = snapshot_metric(f, &all[i]);

        if (value >= 0)
            err =
                object_print(&all[i], f->metric, f->label,
                             ends_in(f->metric, "_total") ? "counter" : "gauge",
                             "value", json_of(value / unit));
    }
    return err;
}

/* json_histogram - its count, its sum, and the count up to each bound; the
 * bounds are text as in the labels of the other format */
static json_t *json_histogram(const struct histogram_sum *h, uint64_t sum_ns)
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

/* json_all - an exit status */
static int json_all(const struct snapshot *all, size_t n)
{
    static struct histogram_sum h;
    int err = 0;

    for (size_t i = 0; i < snapshot_field_count && !err; i++)
        if (snapshot_fields[i].metric)
            err = json_numbers(&snapshot_fields[i], all, n);
    for (size_t i = 0; i < 2 * n && !err; i++) {
        const struct snapshot *v = &all[i % n];
        bool latency = i >= n;

        if (!v->counters)
            continue;
        counters_histogram_totals(v->counters, latency ? NULL : &h,
                                  latency ? &h : NULL);
        err = object_print(
            v, histogram_name(latency), NULL, "histogram", "value",
            json_histogram(&h, latency ? roughly(&h) : v->totals.took_ns));
    }
    return err ? complain_memory() : 0;
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
    print_all(out, all, n);
    ok = fflush(out) == 0 && !ferror(out) && fsync(fd) == 0;
    ok = fclose(out) == 0 && ok && rename(beside, path) == 0;
    if (ok)
        return 0;
    n = (size_t)errno;
    unlink(beside);
    return complain(EX_CANTCREAT, "cannot write %s: %s; it is as it was", path,
                    errno_text((int)n));
}

/* looked - whether an earlier directory has that queue, as pages show it */
static bool looked(const struct snapshot *all, size_t count, const char *queue)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(all[i].queue, queue) == 0)
            return true;
    return false;
}

/* look_all - at the queues of a directory that have a folder; how many there
 * are with those that were there */
static size_t look_all(const char *dir, const struct queue_list *n,
                       struct snapshot *all, size_t count, int *status)
{
    struct problem p;

    for (size_t i = 0; i < n->count; i++) {
        struct snapshot *v = &all[count];

        if (looked(all, count, n->at[i]))
            continue;
        if (snapshot_open(v, dir, n->at[i], true, &p) < 0) {
            *status = complain_of(&p);
        } else if (v->shut) {
            *status = complain_of(&v->no_live);
            snapshot_close(v);
        } else {
            v->in_all = true; /* a restart does not reset a counter */
            count++;
        }
    }
    return count;
}

/* dir_at - serve may be told of several state directories */
static const char *dir_at(const struct options *o, size_t i)
{
    return o->serve.state_dirs.count ? o->serve.state_dirs.at[i] : o->state_dir;
}

/* lists_read - the queues of each directory; an exit status */
static int lists_read(const struct options *o, struct queue_list *lists,
                      size_t dirs, size_t *count)
{
    for (size_t i = 0; i < dirs; i++) {
        if (queue_list_of_all_workers(&lists[i], dir_at(o, i)) < 0)
            return complain_memory();
        if (lists[i].folder_trouble[0])
            return complain(EX_CANTCREAT, "%s", lists[i].folder_trouble);
        *count += lists[i].count;
    }
    return 0;
}

/* metrics_tell - look at all, then the text */
static int metrics_tell(const struct options *o, const struct queue_list *lists,
                        size_t dirs, struct snapshot *all)
{
    size_t count = 0;
    int status = 0, written;

    for (size_t i = 0; i < dirs; i++)
        count = look_all(dir_at(o, i), &lists[i], all, count, &status);
    if (o->textfile) {
        written = to_file(o->textfile, all, count);
        status = written ? written : status;
    } else if (o->json) {
        written = json_all(all, count);
        status = written ? written : status;
    } else {
        print_all(stdout, all, count);
    }
    for (size_t i = 0; i < count; i++)
        snapshot_close(&all[i]);
    return status;
}

int metrics_run(const struct options *o)
{
    size_t dirs = o->serve.state_dirs.count ? o->serve.state_dirs.count : 1;
    struct queue_list *lists = NULL;
    struct snapshot *all = NULL;
    size_t count = 0;
    int status;

    if (o->json && o->textfile)
        return complain(EX_USAGE, "--json does not go with --textfile, whose "
                                  "reader takes the text format; give one");
    lists = calloc(dirs, sizeof *lists);
    status = lists ? lists_read(o, lists, dirs, &count) : complain_memory();

    if (lists && !status) {
        all = calloc(count + 1, sizeof *all);
        status = all ? metrics_tell(o, lists, dirs, all) : complain_memory();
    }
    for (size_t i = 0; lists && i < dirs; i++)
        queue_list_free(&lists[i]);
    free(lists);
    free(all);
    return status;
}
