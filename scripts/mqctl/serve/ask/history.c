/* history.c - see history.h */
#include "scripts/mqctl/serve/ask/history.h"

#include <bsd/string.h>
#include <bsd/sys/queue.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/json_line.h"

enum series { DONE, FAILED, DIED, WAITING, IN_FLIGHT, P50, P99, SERIES };
/* Names of the series, and of the members of a look that they are made of. For
 * the first three, the look counts since the worker's start, and the series has
 * rates. */
static const struct {
    const char *name, *field, *added;
} kinds[SERIES] = {
    [DONE] = {"done", "done", NULL},
    [FAILED] = {"failed", "retried", "died"},
    [DIED] = {"died", "died", NULL},
    [WAITING] = {"waiting", "all_waiting", NULL},
    [IN_FLIGHT] = {"in_flight", "in_flight", NULL},
    [P50] = {"p50_ms", "p50_ns", NULL},
    [P99] = {"p99_ms", "p99_ns", NULL},
};
#define COUNTERS WAITING /* the series before this one are rates */

/* All parts of the file are multiples of 32 bytes, the size of a sample. So no
 * sample is in two sectors, and a power cut leaves the old one or the new
 * one. */
struct sample {
    uint32_t at; /* number of its second, or of its ten seconds; 0: none */
    float value[SERIES];
};
_Static_assert(sizeof(struct sample) == 32, "samples of the file");

/* A ring has the sample with number `at` in place at % size. */
#define SECONDS 600
#define TENS    8640
#define TEN     10 /* seconds */
#define FILL_S  15 /* the longest time that one sample stands for */
#define MARKS   32

enum mark_what { STARTED, PAUSED, RESUMED, CONCURRENCY };

struct history {
    LIST_ENTRY(history) link;
    char queue[QUEUE_NAME_MAX];
    int block; /* its place in the file; -1: none */
    struct sample seconds[SECONDS], tens[TENS];
    struct sample last;
    /* ---- the previous look, and the first look of these ten seconds ---- */
    uint64_t seen_ns, ten_ns; /* monotonic; 0: none */
    uint32_t ten;             /* their number */
    double seen[SERIES], first[SERIES];
    float p50, p99; /* the last ones in these ten seconds; NAN: none */
    /* ---- what happened to the worker ---- */
    char started[TIME_TEXT];
    int paused;       /* -1: not known */
    json_int_t limit; /* of its concurrency; 0: not known */
    struct {
        uint64_t ns;
        enum mark_what what;
        json_int_t from, to;
    } marks[MARKS];
    unsigned mark_count;
};
static LIST_HEAD(, history) all = LIST_HEAD_INITIALIZER(all);

/* ---- the file: a head, and a block for each queue ---- */

static const char file_head[32] = "mqctl-history-1";
struct block {
    char queue[QUEUE_NAME_MAX]; /* "": the block is free */
    struct sample tens[TENS];
};
#define BLOCK(n) \
    ((off_t)sizeof file_head + (off_t)(n) * (off_t)sizeof(struct block))
static int file = -1;
static bool block_used[HISTORY_QUEUES];

static struct history *history_find(const char *queue)
{
    struct history *h;

    LIST_FOREACH (h, &all, link)
        if (strcmp(h->queue, queue) == 0)
            return h;
    return NULL;
}

/* Make the history of a queue, with that block of the file; NULL: no memory. */
static struct history *history_make(const char *queue, int block)
{
    struct history *h = calloc(1, sizeof *h);

    if (!h)
        return NULL;
    strlcpy(h->queue, queue, sizeof h->queue);
    h->block = block;
    h->paused = -1;
    h->p50 = h->p99 = NAN;
    LIST_INSERT_HEAD(&all, h, link);
    return h;
}

void history_open(const char *path)
{
    uint32_t now = (uint32_t)(clock_wall_ns() / NS_PER_S / TEN);
    static struct block b;
    char head[sizeof file_head] = "";

    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                0600);
    /* Keep a second server with this state directory from writing to it. */
    if (file < 0 || flock(file, LOCK_EX | LOCK_NB) < 0 ||
        pread(file, head, sizeof head, 0) < 0 ||
        (memcmp(head, file_head, sizeof head) != 0 &&
         (ftruncate(file, 0) < 0 ||
          pwrite(file, file_head, sizeof file_head, 0) < 0))) {
        log_warn("web_history", F_STR("path", path),
                 F_STR("error", errno == EWOULDBLOCK
                                    ? "another mqctl serve is using it"
                                    : errno_text(errno)),
                 F_STR("next", "charts begin now, without earlier values"));
        if (file >= 0)
            close(file);
        file = -1;
    }
    for (int n = 0; file >= 0 && n < HISTORY_QUEUES; n++) {
        uint32_t newest = 0;
        struct history *h;

        memset(&b, 0, sizeof b);
        if (pread(file, &b, sizeof b, BLOCK(n)) <= 0)
            break;
        b.queue[sizeof b.queue - 1] = '\0';
        for (unsigned i = 0; i < TENS; i++)
            if (b.tens[i].at % TENS != i || b.tens[i].at > now)
                b.tens[i].at = 0;
            else if (b.tens[i].at > newest)
                newest = b.tens[i].at;
        /* The block of a queue without a sample of this day is free again. */
        h = b.queue[0] && newest + TENS > now && !history_find(b.queue)
                ? history_make(b.queue, n)
                : NULL;
        if (!h)
            continue;
        block_used[n] = true;
        memcpy(h->tens, b.tens, sizeof b.tens);
    }
}

void history_forget(const char *queue)
{
    struct history *h = history_find(queue);

    if (!h)
        return;
    if (h->block >= 0) {
        block_used[h->block] = false;
        (void)!pwrite(file, "", 1, BLOCK(h->block));
    }
    LIST_REMOVE(h, link);
    free(h);
}

/* ---- a look ---- */

/* Make a sample of two looks: the rates of counters, NAN if they decreased
 * because the worker is new, and the other values. */
static void sample_make(struct sample *out, const double *now,
                        const double *before, uint64_t ns)
{
    for (int i = 0; i < SERIES; i++)
        if (i >= COUNTERS)
            out->value[i] = (float)now[i];
        else if (ns == 0 || now[i] < before[i])
            out->value[i] = NAN;
        else
            out->value[i] =
                (float)((now[i] - before[i]) * (double)NS_PER_S / (double)ns);
}

/* Put a sample in its place, and in up to `fill` - 1 empty places before it,
 * whose time it covers as well. */
static void ring_put(struct sample *ring, unsigned size, struct sample s,
                     unsigned fill)
{
    uint32_t at = s.at;

    do {
        s.at = at;
        ring[at % size] = s;
        at--;
    } while (--fill && ring[at % size].at != at);
}

static void mark_add(struct history *h, enum mark_what what, json_int_t from,
                     json_int_t to)
{
    unsigned n = h->mark_count++ % MARKS;

    h->marks[n].ns = clock_wall_ns();
    h->marks[n].what = what;
    h->marks[n].from = from;
    h->marks[n].to = to;
}

/* Mark what is different from the last look: another worker, a pause, another
 * concurrency. */
static void marks_add(struct history *h, const json_t *look)
{
    const char *started =
        json_string_value(json_object_get(look, "started_at"));
    int paused = json_is_true(json_object_get(look, "paused"));
    json_int_t limit =
        json_integer_value(json_object_get(look, "max_concurrency"));

    if (!started)
        return;
    if (h->started[0] && strcmp(h->started, started) != 0)
        mark_add(h, STARTED, 0, 0);
    else if (h->limit && limit && h->limit != limit)
        mark_add(h, CONCURRENCY, h->limit, limit);
    if (h->paused >= 0 && h->paused != paused)
        mark_add(h, paused ? PAUSED : RESUMED, 0, 0);
    strlcpy(h->started, started, sizeof h->started);
    h->paused = paused;
    if (limit)
        h->limit = limit;
}

void history_add(const char *queue, const json_t *look)
{
    struct history *h = history_find(queue);
    uint64_t mono = clock_mono_ns();
    uint32_t s = (uint32_t)(clock_wall_ns() / NS_PER_S), ten = s / TEN;
    static const struct sample none[TENS];
    struct sample sample;
    double now[SERIES];

    if (!h)
        h = history_make(queue, -1);
    if (!h)
        return;
    /* Take a free block of the file: remove the samples of the queue that had
     * it, then write the name. A kill in between leaves a block without a
     * sample of this day, which is free for the next server. */
    for (int n = 0; file >= 0 && h->block < 0 && n < HISTORY_QUEUES; n++)
        if (!block_used[n]) {
            if (pwrite(file, none, sizeof none,
                       BLOCK(n) + (off_t)offsetof(struct block, tens)) < 0 ||
                pwrite(file, h->queue, sizeof h->queue, BLOCK(n)) < 0)
                break; /* no room: try again with the next look */
            block_used[n] = true;
            h->block = n;
        }
    for (int i = 0; i < SERIES; i++) {
        const json_t *v = json_object_get(look, kinds[i].field);

        now[i] = json_is_number(v) ? json_number_value(v) : NAN;
        if (kinds[i].added)
            now[i] += json_number_value(json_object_get(look, kinds[i].added));
        if (i >= P50)
            now[i] /= (double)NS_PER_MS;
    }
    marks_add(h, look);
    sample_make(&h->last, now, h->seen, h->seen_ns ? mono - h->seen_ns : 0);
    h->last.at = s;
    ring_put(h->seconds, SECONDS, h->last, h->seen_ns ? FILL_S : 1);
    memcpy(h->seen, now, sizeof now);
    h->seen_ns = mono;
    if (!isnan(now[P50])) {
        h->p50 = (float)now[P50];
        h->p99 = (float)now[P99];
    }
    if (h->ten_ns && ten == h->ten)
        return;
    sample_make(&sample, now, h->first, h->ten_ns ? mono - h->ten_ns : 0);
    sample.at = ten;
    sample.value[P50] = h->p50;
    sample.value[P99] = h->p99;
    ring_put(h->tens, TENS, sample, h->ten_ns ? 2 : 1);
    /* A sample that cannot be written is missing after a restart. */
    for (uint32_t at = ten - 1; h->block >= 0 && at <= ten; at++)
        (void)!pwrite(file, &h->tens[at % TENS], sizeof sample,
                      BLOCK(h->block) + (off_t)offsetof(struct block, tens) +
                          (off_t)(at % TENS * sizeof sample));
    memcpy(h->first, now, sizeof now);
    h->ten_ns = mono;
    h->ten = ten;
    h->p50 = h->p99 = NAN;
}

/* ---- curves ---- */

/* Return a number with three digits after the point; null for NAN. */
static json_t *number_json(double value)
{
    return isnan(value) ? json_null() : json_real(round(value * 1000) / 1000);
}

/* Return the mean over the seconds that end with `end`; NAN: none of them was
 * measured. For a multiple of ten seconds, it comes from the ring of a day,
 * which also stands in for seconds before the server's start. */
static double mean_of(const struct history *h, int which, uint32_t end,
                      unsigned seconds)
{
    unsigned step = seconds % TEN ? 1 : TEN, n = 0;
    double sum = 0;

    for (uint32_t s = end; s > end - seconds; s -= step) {
        const struct sample *one = &h->seconds[s % SECONDS];

        if (step == TEN || one->at != s) {
            one = &h->tens[s / TEN % TENS];
            if (one->at != s / TEN)
                continue;
        }
        if (!isnan(one->value[which])) {
            sum += (double)one->value[which];
            n++;
        }
    }
    return n ? sum / n : NAN;
}

json_t *history_json(const char *queue, const char *range)
{
    static const struct {
        const char *name;
        unsigned step, count;
    } ranges[] = {{"10m", 2, 300}, {"1h", 10, 360}, {"24h", 180, 480}};
    static const char *const words[] = {"started", "paused", "resumed",
                                        "concurrency"};
    const struct history *h = history_find(queue);
    json_t *o, *list, *marks = json_array();
    size_t r = 0;
    uint32_t end;

    while (strcmp(ranges[r].name, range) != 0)
        if (++r == sizeof ranges / sizeof *ranges)
            return NULL;
    end = (uint32_t)(clock_wall_ns() / NS_PER_S / ranges[r].step *
                     ranges[r].step);
    o = json_pack("{s:o, s:i, s:o, s:o}", "queue", json_printable(queue),
                  "step_s", (int)ranges[r].step, "end",
                  json_time((uint64_t)end * NS_PER_S), "marks", marks);
    for (int i = 0; i < SERIES; i++) {
        list = json_array();
        for (unsigned n = ranges[r].count; n-- > 0;)
            json_array_append_new(
                list, number_json(h ? mean_of(h, i, end - n * ranges[r].step,
                                              ranges[r].step)
                                    : NAN));
        json_object_set_new(o, kinds[i].name, list);
    }
    for (unsigned n = h && h->mark_count > MARKS ? h->mark_count - MARKS : 0;
         h && n < h->mark_count; n++)
        json_array_append_new(
            marks, json_pack("{s:o, s:s, s:o}", "at",
                             json_time(h->marks[n % MARKS].ns), "what",
                             words[h->marks[n % MARKS].what], "text",
                             h->marks[n % MARKS].what == CONCURRENCY
                                 ? json_sprintf("%" JSON_INTEGER_FORMAT
                                                " -> %" JSON_INTEGER_FORMAT,
                                                h->marks[n % MARKS].from,
                                                h->marks[n % MARKS].to)
                                 : json_null()));
    return o;
}

#define SPARK 60 /* values */

/* Set one curve, with its highest value. */
static void spark_set(json_t *o, const struct history *h, int which,
                      uint32_t end, const char *name, const char *max_name)
{
    static const char levels[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    char text[SPARK + 1] = "";
    float most = 0;

    for (int pass = 0; pass < 2; pass++)
        for (unsigned i = 0; i < SPARK; i++) {
            uint32_t at = end - (SPARK - 1) + i;
            const struct sample *one = &h->tens[at % TENS];
            float value = one->at == at ? one->value[which] : NAN;

            if (value > most)
                most = value;
            text[i] = isnan(value) ? '-'
                      : most > 0   ? levels[(int)ceilf(value / most * 35)]
                                   : '0';
        }
    if (most <= 0 && which == FAILED)
        return;
    json_object_set_new(o, max_name, number_json(most));
    json_object_set_new(o, name, json_string(text));
}

json_t *history_sparks(void)
{
    /* These ten seconds may not have been measured yet. */
    uint32_t end = (uint32_t)(clock_wall_ns() / NS_PER_S / TEN) - 1;
    json_t *queues = json_array(), *o;
    const struct history *h;

    LIST_FOREACH (h, &all, link) {
        if (!h->last.at)
            continue; /* a queue of the file only */
        o = json_pack("{s:o}", "queue", json_printable(h->queue));
        spark_set(o, h, DONE, end, "done", "max");
        spark_set(o, h, FAILED, end, "failed", "failed_max");
        json_array_append_new(queues, o);
    }
    return json_pack("{s:i, s:o, s:o}", "step_s", TEN, "end",
                     json_time((uint64_t)end * TEN * NS_PER_S), "queues",
                     queues);
}

/* Set a member of a row, rounded to a tenth; leave it out if not measured. */
static void row_set(json_t *row, const char *name, double value)
{
    if (!isnan(value))
        json_object_set_new(row, name, json_real(round(value * 10) / 10));
}

void history_row(const char *queue, json_t *row)
{
    const struct history *h = history_find(queue);
    double done, failed;

    if (!h || !h->last.at)
        return;
    row_set(row, "done_s", mean_of(h, DONE, h->last.at, 5));
    row_set(row, "failed_s", mean_of(h, FAILED, h->last.at, 5));
    /* 299 is no multiple of ten, so the ring of single seconds is used. */
    done = mean_of(h, DONE, h->last.at, 299);
    failed = mean_of(h, FAILED, h->last.at, 299);
    if (done + failed > 0)
        row_set(row, "failed_pct", 100 * failed / (done + failed));
    row_set(row, "p50_ms", mean_of(h, P50, h->last.at, 5));
    row_set(row, "p99_ms", mean_of(h, P99, h->last.at, 5));
}
