/* metrics.c - mqctl metrics: the numbers of all queues, for Prometheus
 *
 * main and the children of mqctl serve call metrics_run on their only thread.
 * The format (prometheus.io/docs/instrumenting/exposition_formats) wants all
 * samples of a family together, so snapshots of all queues are taken first.
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

/* A queue, and the numbers of its metrics. */
struct measured {
    struct snapshot v;
    struct snapshot_fields fields;
};

static double ns_seconds(uint64_t ns)
{
    return (double)ns / (double)NS_PER_S;
}

/* Print the name of a sample and its first two labels: the queue, as UTF-8 with
 * \ and " escaped, and its engine. */
static void sample_begin(FILE *out, const char *name, const char *suffix,
                         const struct snapshot *v)
{
    char queue[4 * QUEUE_NAME_MAX]; /* each byte as an escape */

    safe_text_copy(queue, sizeof queue, v->queue, strlen(v->queue));
    fprintf(out, "%s%s{queue=\"", name, suffix);
    for (const char *c = queue; *c; c++) {
        if (*c == '\\' || *c == '"')
            fputc('\\', out);
        fputc(*c, out);
    }
    fprintf(out, "\",engine=\"%s\"", v->engine);
}

/* Print the lines that begin a family. */
static void family_print(FILE *out, const char *name, const char *type,
                         const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* ---- histograms ---- */

/* Upper bounds in ns: 1, 2.5 and 5 in each decade, from 1 us to 2500 s. */
#define DECADES 10
#define BOUNDS  (3 * DECADES - 1)

/* Return the upper bound of a bucket, ns. */
static uint64_t bound_ns(size_t i)
{
    static const uint64_t steps[] = {10, 25, 50};
    uint64_t ns = steps[i % 3] * 100;

    for (size_t d = 0; d < i / 3; d++)
        ns *= 10;
    return ns;
}

/* Print one sample as JSON; takes over `value`. 0 or -ENOMEM. */
static int object_print(const struct snapshot *v, const char *name,
                        const char *state, const char *type, json_t *value)
{
    json_t *o =
        json_pack("{s:o,s:s,s:s,s:s}", "queue", json_printable(v->queue),
                  "engine", v->engine, "name", name, "type", type);

    if (state)
        (void)json_object_set_new(o, "state", json_string(state));
    if (json_object_set_new(o, "value", value) == 0)
        return json_print_line(o, stdout);
    json_decref(o);
    return -ENOMEM;
}

/* Print the histograms of handler times, or of latencies. `out` is NULL for
 * JSON. */
static int histograms_print(FILE *out, const struct measured *all, size_t n,
                            bool latency)
{
    const char *name =
        latency ? "mqworker_latency_seconds" : "mqworker_handler_seconds";
    static struct histogram_sum h;
    json_t *buckets;
    char le[32];
    int err = 0;

    if (out)
        family_print(out, name, "histogram",
                     latency ? "From sent, or received, to the start of the "
                               "handler, at the first delivery."
                             : "How long handlers ran.");
    for (size_t i = 0; i < n && !err; i++) {
        const struct snapshot *v = &all[i].v;
        uint64_t sum_ns = v->totals.took_ns;
        double middles = 0;

        if (!v->counters)
            continue;
        counters_histograms(v->counters, true, latency ? NULL : &h,
                            latency ? &h : NULL);
        /* The counters have no sum of latencies: estimate it, with the middle
         * of its bucket for each latency. */
        for (unsigned k = 0; latency && k < HISTOGRAM_BUCKETS; k++)
            middles += (double)h.count[k] *
                       (double)(histogram_low(k) + histogram_low(k + 1) - 1) /
                       2;
        if (latency)
            sum_ns = (uint64_t)middles;
        /* In JSON the bounds are text, as in the labels of the other format. */
        buckets = out ? NULL : json_object();
        for (size_t k = 0; k <= BOUNDS; k++) {
            uint64_t upto =
                k < BOUNDS ? histogram_upto(&h, bound_ns(k)) : h.total;

            if (k < BOUNDS)
                snprintf(le, sizeof le, "%.10g", ns_seconds(bound_ns(k)));
            else
                snprintf(le, sizeof le, "+Inf");
            if (out) {
                sample_begin(out, name, "_bucket", v);
                fprintf(out, ",le=\"%s\"} %" PRIu64 "\n", le, upto);
            } else {
                err |= json_object_set_new(buckets, le,
                                           json_integer((json_int_t)upto));
            }
        }
        if (out) {
            sample_begin(out, name, "_sum", v);
            fprintf(out, "} %.9f\n", ns_seconds(sum_ns));
            sample_begin(out, name, "_count", v);
            fprintf(out, "} %" PRIu64 "\n", h.total);
        } else if (err) {
            json_decref(buckets);
            err = -ENOMEM;
        } else {
            err = object_print(
                v, name, NULL, "histogram",
                json_pack("{s:I,s:f,s:o}", "count", (json_int_t)h.total, "sum",
                          ns_seconds(sum_ns), "buckets", buckets));
        }
    }
    return err;
}

static bool ends_in(const char *name, const char *end)
{
    size_t size = strlen(name), n = strlen(end);

    return size >= n && strcmp(name + size - n, end) == 0;
}

/* Print all families to `out`; if that is NULL, print JSON on stdout, an object
 * for each queue and metric. Returns 0 or -ENOMEM. */
static int families_print(FILE *out, const struct measured *all, size_t n)
{
    const char *family = NULL; /* the family that was begun last */
    int err = 0;

    for (size_t i = 0; n && i < SNAPSHOT_FIELDS; i++) {
        const struct snapshot_field *f = &all[0].fields.at[i];
        const char *type =
            f->metric && ends_in(f->metric, "_total") ? "counter" : "gauge";

        if (!f->metric)
            continue;
        for (size_t k = 0; k < n && !err; k++) {
            double value = (double)all[k].fields.at[i].number;

            if (ends_in(f->metric, "_seconds")) /* the field is in ns */
                value /= (double)NS_PER_S;
            if (value < 0)
                continue;
            if (!out) { /* print whole numbers without a decimal point */
                err = object_print(&all[k].v, f->metric, f->label, type,
                                   (double)(json_int_t)value == value
                                       ? json_integer((json_int_t)value)
                                       : json_real(value));
                continue;
            }
            if (!family || strcmp(family, f->metric) != 0)
                family_print(out, f->metric, type, f->help);
            family = f->metric;
            sample_begin(out, f->metric, "", &all[k].v);
            if (f->label)
                fprintf(out, ",state=\"%s\"", f->label);
            fprintf(out, "} %.17g\n", value);
        }
    }
    if (!err)
        err = histograms_print(out, all, n, false);
    return err ? err : histograms_print(out, all, n, true);
}

/* Write a temporary file beside `path`, then rename it, so that a reader finds
 * either the old file or the whole new one. Returns an exit status. */
static int textfile_put(const char *path, const struct measured *all, size_t n)
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
    err = errno; /* folder_user below changes errno */
    if (!out)
        return complain(EX_CANTCREAT,
                        "cannot create %s: %s; you are %s: give a "
                        "--textfile in another folder",
                        beside, errno_text(err), folder_user(geteuid(), user));
    (void)families_print(out, all, n);
    ok = fflush(out) == 0 && !ferror(out) && fsync(fd) == 0;
    ok = fclose(out) == 0 && ok && rename(beside, path) == 0;
    if (ok)
        return 0;
    err = errno;
    unlink(beside);
    return complain(EX_CANTCREAT, "cannot write %s: %s; it is unchanged", path,
                    errno_text(err));
}

int metrics_run(const struct options *o)
{
    struct words dirs = o->serve.state_dirs; /* empty unless serve calls */
    struct queue_list n = {0};
    int status = 0, written;
    struct measured *all;
    struct problem p;
    size_t count = 0;

    if (o->json && o->textfile)
        return complain(EX_USAGE, "--json and --textfile cannot be combined: "
                                  "a text file is not JSON; leave out one");
    if (dirs.count == 0)
        dirs.at[dirs.count++] = o->state_dir;
    for (size_t i = 0; i < dirs.count && !status; i++) {
        if (queue_list_of_all_workers(&n, dirs.at[i]) < 0)
            status = complain_memory();
        else if (n.folder_trouble[0])
            status = complain(EX_CANTCREAT, "%s", n.folder_trouble);
    }
    all = status ? NULL : calloc(n.count + 1, sizeof *all);
    if (!status && !all)
        status = complain_memory();
    if (!all) {
        queue_list_free(&n);
        return status;
    }
    for (size_t i = 0; i < n.count; i++) {
        struct snapshot *v = &all[count].v;

        if (snapshot_open(v, snapshot_dir(dirs.at, dirs.count, n.at[i]),
                          n.at[i], true, &p) < 0) {
            status = complain_of(&p);
            continue;
        }
        if (v->shut) {
            status = complain_of(&v->no_live);
            snapshot_close(v);
            continue;
        }
        v->in_all = true; /* a restart does not reset a counter */
        snapshot_metrics(v, &all[count++].fields);
    }
    if (o->textfile)
        written = textfile_put(o->textfile, all, count);
    else
        written = families_print(o->json ? NULL : stdout, all, count) < 0
                      ? complain_memory()
                      : 0;
    for (size_t i = 0; i < count; i++)
        snapshot_close(&all[i].v);
    free(all);
    queue_list_free(&n);
    return written ? written : status;
}
