/* history.c - see history.h */
#include "scripts/mqctl/serve/ask/history.h"

#include <bsd/string.h>
#include <bsd/sys/queue.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/cli/json_line.h"

enum series {
    DONE,
    RETRIED,
    DIED,
    DEPTH,
    IN_FLIGHT,
    WAITING,
    DEAD,
    P50,
    P99,
    SERIES,
};
/* Each series: its name, the field of a look that it is made of, and whether
 * that field is a counter, whose rate is kept. */
static const struct {
    const char *name, *field;
    int counter;
} kinds[SERIES] = {
    [DONE] = {"done", "done", 1},
    [RETRIED] = {"retried", "retried", 1},
    [DIED] = {"died", "died", 1},
    [DEPTH] = {"depth", "depth", 0},
    [IN_FLIGHT] = {"in_flight", "in_flight", 0},
    [WAITING] = {"waiting", "waiting", 0},
    [DEAD] = {"dead", "dead", 0},
    [P50] = {"p50_ms", "p50_ns", 0},
    [P99] = {"p99_ms", "p99_ns", 0},
};

struct sample {
    uint64_t at; /* seconds, or minutes, since the epoch; 0: none */
    float value[SERIES];
};

struct history {
    LIST_ENTRY(history) link;
    char queue[QUEUE_NAME_MAX];
    struct sample seconds[HISTORY_SECONDS], minutes[HISTORY_MINUTES];
    struct sample last;
    /* ---- the previous look, and the first look of this minute ---- */
    uint64_t seen_ns, minute_ns; /* monotonic; 0: none */
    uint64_t minute_at;          /* minutes since the epoch */
    double seen[SERIES], minute[SERIES];
};
static LIST_HEAD(, history) all = LIST_HEAD_INITIALIZER(all);

static struct history *history_find(const char *queue)
{
    struct history *h;

    LIST_FOREACH (h, &all, link)
        if (strcmp(h->queue, queue) == 0)
            return h;
    return NULL;
}

/* Make a sample of two looks: the rates of counters, NAN if they decreased
 * because the worker is new, and the other values. */
static void sample_make(struct sample *out, const double *now,
                        const double *before, uint64_t ns)
{
    for (int i = 0; i < SERIES; i++)
        if (!kinds[i].counter)
            out->value[i] = (float)now[i];
        else if (ns == 0 || now[i] < before[i])
            out->value[i] = NAN;
        else
            out->value[i] =
                (float)((now[i] - before[i]) * (double)NS_PER_S / (double)ns);
}

void history_add(const char *queue, const json_t *look)
{
    struct history *h = history_find(queue);
    uint64_t s = clock_wall_ns() / NS_PER_S, mono = clock_mono_ns();
    double now[SERIES];

    if (!h) {
        h = calloc(1, sizeof *h);
        if (!h)
            return;
        strlcpy(h->queue, queue, sizeof h->queue);
        LIST_INSERT_HEAD(&all, h, link);
    }
    for (int i = 0; i < SERIES; i++) {
        const json_t *v = json_object_get(look, kinds[i].field);

        now[i] = json_is_number(v) ? json_number_value(v) : NAN;
        if (i == P50 || i == P99)
            now[i] /= (double)NS_PER_MS;
    }
    sample_make(&h->last, now, h->seen, h->seen_ns ? mono - h->seen_ns : 0);
    h->last.at = s;
    h->seconds[s % HISTORY_SECONDS] = h->last;
    memcpy(h->seen, now, sizeof now);
    h->seen_ns = mono;
    if (h->minute_ns && s / 60 == h->minute_at)
        return;
    sample_make(&h->minutes[s / 60 % HISTORY_MINUTES], now, h->minute,
                h->minute_ns ? mono - h->minute_ns : 0);
    h->minutes[s / 60 % HISTORY_MINUTES].at = s / 60;
    memcpy(h->minute, now, sizeof now);
    h->minute_ns = mono;
    h->minute_at = s / 60;
}

void history_forget(const char *queue)
{
    struct history *h = history_find(queue);

    if (!h)
        return;
    LIST_REMOVE(h, link);
    free(h);
}

/* Return a number with three digits after the point; null for NAN. */
static json_t *number_json(float value)
{
    return isnan(value) ? json_null()
                        : json_real(round((double)value * 1000) / 1000);
}

/* Return one value of each sample of a ring, oldest first. */
static json_t *series_json(const struct sample *ring, unsigned room,
                           uint64_t end, unsigned count, int which)
{
    json_t *list = json_array();

    for (unsigned i = count; i-- > 0;) {
        const struct sample *one = &ring[(end - i) % room];

        json_array_append_new(list, one->at == end - i
                                        ? number_json(one->value[which])
                                        : json_null());
    }
    return list;
}

json_t *history_json(const char *queue, int minutes)
{
    const struct history *h = history_find(queue);
    uint64_t now = clock_wall_ns() / NS_PER_S;
    json_t *o =
        json_pack("{s:o, s:i, s:o}", "queue", json_printable(queue), "step_s",
                  minutes ? 60 : 1, "end",
                  json_time((minutes ? now / 60 * 60 : now) * NS_PER_S));

    for (int i = 0; i < SERIES && h; i++)
        json_object_set_new(o, kinds[i].name,
                            minutes ? series_json(h->minutes, HISTORY_MINUTES,
                                                  now / 60, HISTORY_MINUTES, i)
                                    : series_json(h->seconds, HISTORY_SECONDS,
                                                  now, HISTORY_SECONDS, i));
    return o;
}

json_t *history_sparks(void)
{
    uint64_t end = clock_wall_ns() / NS_PER_S / HISTORY_SPARK * HISTORY_SPARK;
    json_t *queues = json_array();
    const struct history *h;

    LIST_FOREACH (h, &all, link) {
        json_t *done = json_array();
        unsigned n = 0;
        float sum = 0;

        for (uint64_t at = end - HISTORY_SECONDS; at < end; at++) {
            const struct sample *one = &h->seconds[at % HISTORY_SECONDS];

            if (one->at == at && !isnan(one->value[DONE])) {
                sum += one->value[DONE];
                n++;
            }
            if ((at + 1) % HISTORY_SPARK != 0)
                continue;
            json_array_append_new(done, number_json(n ? sum / (float)n : NAN));
            n = 0;
            sum = 0;
        }
        json_array_append_new(queues, json_pack("{s:o, s:o}", "queue",
                                                json_printable(h->queue),
                                                "done", done));
    }
    return json_pack("{s:i, s:o, s:o}", "step_s", HISTORY_SPARK, "end",
                     json_time(end * NS_PER_S), "queues", queues);
}

json_t *history_recent(const char *queue)
{
    const struct history *h = history_find(queue);
    json_t *o = json_object();

    for (int i = 0; i < SERIES && h && h->last.at; i++)
        json_object_set_new(o, kinds[i].name, number_json(h->last.value[i]));
    return o;
}
