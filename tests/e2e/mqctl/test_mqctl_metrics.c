/* test_mqctl_metrics.c - mqctl metrics, checked by a parser as strict as the
 * format */
#include <ctype.h>

#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(mqctl_metrics, .init = harness_init, .fini = harness_fini);

struct family {
    char name[128], type[16];
    long samples;
    double bucket; /* of the previous bucket; 0: before the first */
    double all;    /* of the last bucket */
};

struct exposition {
    struct family families[64];
    size_t count;
};

/* Return the place after a metric or label name; NULL: there is none. */
static const char *name_end(const char *at, bool colon)
{
    const char *from = at;

    if (!isalpha((unsigned char)*at) && *at != '_' && !(colon && *at == ':'))
        return NULL;
    while (isalnum((unsigned char)*at) || *at == '_' || (colon && *at == ':'))
        at++;
    return at > from ? at : NULL;
}

/* Check the labels "{name=\"value\",...}"; return the place after them. */
static const char *labels_end(const char *at)
{
    for (at++; *at != '}'; at += *at == ',') {
        at = name_end(at, false);
        cr_assert(at && at[0] == '=' && at[1] == '"', "a label: %s", at);
        for (at += 2; *at != '"'; at++) {
            cr_assert(*at && *at != '\n', "a value without an end");
            if (*at == '\\') {
                at++;
                cr_assert(strchr("\\\"n", *at), "an escape: %s", at);
            }
        }
        at++;
        cr_assert(*at == ',' || *at == '}', "after a label: %s", at);
    }
    return at + 1;
}

/* Return the family of a sample, which must be the last one: its name, or for a
 * histogram its name and a suffix. */
static struct family *family_of(struct exposition *e, const char *name,
                                size_t size)
{
    static const char *const suffixes[] = {"_bucket", "_sum", "_count"};
    struct family *f = e->count ? &e->families[e->count - 1] : NULL;

    cr_assert_not_null(f, "a sample before its TYPE");
    if (strlen(f->name) == size && memcmp(f->name, name, size) == 0)
        return f;
    cr_assert_str_eq(f->type, "histogram", "%.*s is of no family", (int)size,
                     name);
    for (size_t i = 0; i < 3; i++)
        if (size == strlen(f->name) + strlen(suffixes[i]) &&
            memcmp(name, f->name, strlen(f->name)) == 0 &&
            memcmp(name + strlen(f->name), suffixes[i], strlen(suffixes[i])) ==
                0)
            return f;
    cr_assert_fail("%.*s is not of %s", (int)size, name, f->name);
    return NULL;
}

/* Read "# HELP name text" or "# TYPE name type". */
static void comment(struct exposition *e, const char *at)
{
    char name[128], rest[512];
    struct family *f = e->count ? &e->families[e->count - 1] : NULL;

    if (sscanf(at, "# HELP %127s %511[^\n]", name, rest) == 2) {
        for (size_t i = 0; i < e->count; i++)
            cr_assert_str_neq(e->families[i].name, name, "told twice");
        cr_assert_lt(e->count, 64);
        strcpy(e->families[e->count++].name, name);
    } else {
        cr_assert_eq(sscanf(at, "# TYPE %127s %511[^\n]", name, rest), 2, "%s",
                     at);
        cr_assert(f && strcmp(f->name, name) == 0, "TYPE of %s", name);
        cr_assert(strcmp(rest, "gauge") == 0 || strcmp(rest, "counter") == 0 ||
                  strcmp(rest, "histogram") == 0);
        snprintf(f->type, sizeof f->type, "%.15s", rest);
        /* promtool: a counter ends in _total, nothing else does. */
        cr_assert_eq(strcmp(rest, "counter") == 0,
                     strlen(name) > 6 &&
                         strcmp(name + strlen(name) - 6, "_total") == 0,
                     "%s", name);
    }
}

/* Check a value: buckets never decrease, and the last one equals the count. */
static void value_check(struct family *f, const char *line, double value)
{
    const char *suffix = line + strlen(f->name);

    f->samples++;
    if (strncmp(suffix, "_bucket{", 8) == 0) {
        cr_assert(value >= f->bucket, "less than before: %.120s", line);
        f->bucket = memmem(line, strcspn(line, "\n"), "+Inf", 4) ? 0 : value;
        f->all = value;
    } else if (strncmp(suffix, "_count{", 7) == 0) {
        cr_assert_eq(value, f->all, "not the last bucket: %.120s", line);
    }
}

/* Parse all of the text. Fail the test at anything that a strict parser
 * refuses. */
static void parse(struct exposition *e, const char *text)
{
    memset(e, 0, sizeof *e);
    for (const char *at = text; *at; at = strchr(at, '\n') + 1) {
        struct family *f;
        const char *end;
        char *after;
        double value;

        cr_assert_not_null(strchr(at, '\n'), "the last line has no end");
        if (*at == '#') {
            comment(e, at);
            continue;
        }
        end = name_end(at, true);
        cr_assert_not_null(end, "a name: %.80s", at);
        f = family_of(e, at, (size_t)(end - at));
        if (*end == '{')
            end = labels_end(end);
        cr_assert_eq(*end, ' ', "before a value: %.80s", at);
        value = strtod(end + 1, &after);
        cr_assert(after > end + 1 && *after == '\n', "a value: %.80s", at);
        value_check(f, at, value);
    }
}

/* Return the value of the first line with this beginning; -1: there is none. */
static double sample(const char *text, const char *begin)
{
    const char *at = strstr(text, begin);

    return at ? strtod(at + strlen(begin), NULL) : -1;
}

/* Check the value of a queue's metric. */
static void value_is(const char *text, const char *q, const char *name,
                     double value)
{
    char begin[256];

    snprintf(begin, sizeof begin, "%s{queue=\"%s\",engine=\"mq\"} ", name, q);
    cr_assert_eq(sample(text, begin), value, "%s is not %g in: %s", begin,
                 value, text);
}

Test(mqctl_metrics, metrics_are_what_a_strict_parser_takes)
{
    static struct exposition e;
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--max-attempts", "1", "--", "sh",
                                           "-c", "read b; [ $b = good ]");
    const char *text;

    harness_send_text(q, "good\n");
    harness_send_text(q, "bad\n");
    harness_until(ctl_number(q, "dead") == 1 && ctl_number(q, "done") == 1,
                  SOON_MS);
    text = ctl_out("metrics", NULL);
    parse(&e, text);
    cr_assert_geq(e.count, 20);
    for (size_t i = 0; i < e.count; i++)
        cr_assert_gt(e.families[i].samples, 0, "%s", e.families[i].name);
    value_is(text, q, "mqworker_up", 1);
    value_is(text, q, "mqworker_deliveries_total", 2);
    value_is(text, q, "mqworker_done_total", 1);
    value_is(text, q, "mqworker_retried_total", 0);
    value_is(text, q, "mqworker_dead_total", 1);
    value_is(text, q, "mqworker_dead_letters", 1);
    value_is(text, q, "mqworker_handler_seconds_count", 2);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    text = ctl_out("metrics", NULL);
    parse(&e, text);
    value_is(text, q, "mqworker_up", 0);
}

/* The worker adds durations of quick functions several at a time. The last few
 * must be added as well when no more messages come. */
Test(mqctl_metrics, each_call_of_a_function_has_its_duration)
{
    enum { N = 10 }; /* eight at once, and two */
    const char *q = harness_queue(N, 0);
    struct harness_process *w;
    char begin[128];

    snprintf(begin, sizeof begin,
             "mqworker_handler_seconds_count{queue=\"%s\",engine=\"mq\"} ", q);
    for (int i = 0; i < N; i++)
        harness_send_text(q, "a\n");
    w = ctl_worker(q, "--plugin", harness_plugin("nothing"));
    harness_until(ctl_number(q, "done") == N, SOON_MS);
    harness_until(sample(ctl_out("metrics", NULL), begin) == (double)N,
                  SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_metrics, metrics_escape_what_a_label_may_not_hold)
{
    static struct exposition e;
    const char *q = harness_queue_name(), *text;
    char name[64];

    snprintf(name, sizeof name, "%s\"\\x", q);
    cr_assert_eq(harness_run("mkdir", "-p",
                             harness_path("%s%s", harness_state_dir(), name))
                     .status,
                 0);
    text = ctl_out("metrics", NULL);
    parse(&e, text);
    snprintf(name, sizeof name, "%s\\\"\\\\x", q);
    value_is(text, name, "mqworker_up", 0);
}

Test(mqctl_metrics, metrics_replace_a_file_whole_or_leave_it)
{
    static struct exposition e;
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    struct harness_result r;

    harness_write("m.prom", "old\n", 4);
    ctl_out("metrics", "--textfile", harness_path("m.prom"));
    parse(&e, harness_read("m.prom", NULL));
    value_is(harness_read("m.prom", NULL), q, "mqworker_up", 1);
    r = ctl("metrics", "--textfile", harness_path("no/m.prom"));
    cr_assert_eq(r.status, 73);
    cr_assert(strstr(r.err, "No such file or directory"), "%s", r.err);
    cr_assert_str_eq(harness_run("sh", "-c", "ls m.prom*").out, "m.prom\n");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Return a new reference to the value of a queue's metric; NULL: none. */
static json_t *json_of_name(const char *text, const char *queue,
                            const char *name)
{
    json_t *found = NULL;

    for (const char *at = text; *at && !found; at = strchr(at, '\n') + 1) {
        json_t *o = ctl_json(at);
        const char *of = json_string_value(json_object_get(o, "queue"));

        if (strcmp(of, queue) == 0 &&
            strcmp(json_string_value(json_object_get(o, "name")), name) == 0)
            found = json_incref(json_object_get(o, "value"));
        json_decref(o);
    }
    return found;
}

/* Each line of the JSON has the number that the text has (for a histogram its
 * sum). The worker has exited, so nothing changes between the two. */
Test(mqctl_metrics, json_has_the_numbers_of_the_text)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    static struct exposition e;
    char *text, *json, begin[256];
    size_t seen = 0;

    harness_send_text(q, "one");
    harness_until(ctl_number(q, "done") == 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    text = strdup(ctl_out("metrics", NULL));
    json = strdup(ctl_out("metrics", "--json"));
    for (const char *at = json; *at; at = strchr(at, '\n') + 1, seen++) {
        json_t *o = ctl_json(at), *value = json_object_get(o, "value");

        cr_assert_str_eq(json_string_value(json_object_get(o, "engine")), "mq");
        if (json_is_object(value)) {
            snprintf(begin, sizeof begin, "%s_count",
                     json_string_value(json_object_get(o, "name")));
            value_is(text, q, begin,
                     json_number_value(json_object_get(value, "count")));
        }
        snprintf(begin, sizeof begin, "%s%s{queue=\"%s\",engine=\"mq\"} ",
                 json_string_value(json_object_get(o, "name")),
                 json_is_object(value) ? "_sum" : "", q);
        if (json_is_object(value))
            value = json_object_get(value, "sum");
        cr_assert_float_eq(sample(text, begin), json_number_value(value), 1e-5,
                           "%s: %.200s", begin, at);
        json_decref(o);
    }
    parse(&e, text);
    cr_assert_eq(seen, e.count, "a metric of the text is missing");
    free(text);
    free(json);
}

Test(mqctl_metrics, json_of_a_histogram_counts_up_to_each_bound)
{
    const char *q = harness_queue(0, 0), *text;
    struct harness_process *w = ctl_worker(q, "--", "true");
    json_t *h, *count;
    const char *bound;
    json_int_t before = 0;

    harness_send_text(q, "one");
    harness_until(ctl_number(q, "done") == 1, SOON_MS);
    text = ctl_out("metrics", "--json");
    h = json_of_name(text, q, "mqworker_handler_seconds");
    cr_assert_eq(json_integer_value(json_object_get(h, "count")), 1);
    json_object_foreach(json_object_get(h, "buckets"), bound, count)
    {
        cr_assert_geq(json_integer_value(count), before, "%s", bound);
        before = json_integer_value(count);
    }
    cr_assert_eq(before, 1);
    cr_assert(json_object_get(json_object_get(h, "buckets"), "+Inf"));
    json_decref(h);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_metrics, a_textfile_is_not_json)
{
    struct harness_result r =
        ctl("metrics", "--json", "--textfile", harness_path("m.prom"));

    cr_assert_eq(r.status, 64);
    cr_assert(strstr(r.err, "--textfile"), "%s", r.err);
    cr_assert_neq(harness_run("ls", harness_path("m.prom")).status, 0);
}
