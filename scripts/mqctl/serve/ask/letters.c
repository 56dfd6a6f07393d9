/* letters.c - dead letters as JSON (see ask.h) */
#include "scripts/mqctl/serve/ask/ask.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/moment.h"
#include "common/message/error_text.h"
#include "common/store/letters.h"
#include "scripts/mqctl/look/snapshot.h"

#define PAGE_LEAST 100
#define PAGE_MOST  500
#define LOOKED_AT  20000       /* letters that one answer inspects */
#define PREVIEW    160         /* bytes of a body in a list */
#define BODY_SHOWN (64u << 10) /* bytes of a body on its letter's page */
#define HEX_SHOWN  (4u << 10)

/* ---- opening ---- */

/* Open the store of a queue; NULL in *out: the queue has none. */
static int ask_store(const struct serve_ask *a, const char *queue,
                     struct store **out, struct problem *p)
{
    static struct snapshot v;
    int err;

    v = (struct snapshot){0};
    *out = NULL;
    if (ask_kept_here(queue, p) < 0)
        return -EINVAL;
    err = snapshot_folder(&v.dir, ask_state_dir(a, queue), queue, p);
    if (err == -ENOENT)
        p->status = EX_NOINPUT;
    if (err)
        return err;
    v.has_folder = true;
    err = snapshot_store(&v, out);
    if (err && err != -ENOENT)
        *p = v.no_store;
    return err == -ENOENT ? 0 : err;
}

/* Describe a -errno of the store; returns NULL. */
static json_t *ask_failed(struct problem *p, int err)
{
    problem_fill(p,
                 err == -EBUSY    ? EX_TEMPFAIL
                 : err == -ENOMEM ? EX_OSERR
                                  : EX_IOERR,
                 "cannot read the letters: %s; try again", errno_text(-err));
    return NULL;
}

/* ---- what a request chooses ---- */

/* Read "DIED_NS.ROW", the cursor of a letter. */
static bool cursor_read(const char *text, uint64_t *ns, int64_t *row)
{
    char *end;

    *ns = strtoull(text, &end, 10);
    return isdigit((unsigned char)*text) && *ns > 0 && *ns <= INT64_MAX &&
           *end == '.' && serve_number_read(end + 1, row);
}

/* Print an error with "*" for the numbers and ids in the handler's own words,
 * so that errors that differ only in numbers and ids become the same. The
 * worker's words, such as "exit 65", stay; an imported letter has both in
 * `error`. An id is a word with a digit in it, of eight or more hex digits, or
 * of twenty or more letters and digits. */
static const char *pattern_print(char out[ERROR_JOINED], const char *error,
                                 const char *text)
{
    char line[ERROR_JOINED], raw[ERROR_JOINED];
    const char *at = line;
    bool both = error && text && *text && strcmp(error, text) != 0;
    size_t n = 0, kept, word;

    error_text_join(raw, sizeof raw, error, text);
    safe_text_copy(line, sizeof line, raw, strlen(raw));
    word = strncmp(line, "exit ", 5) == 0     ? 5
           : strncmp(line, "signal ", 7) == 0 ? 7
                                              : 0;
    kept = both   ? strlen(error)
           : word ? word + strspn(line + word, "0123456789")
                  : 0;
    if (!kept && (!text || !*text))
        kept = strlen(line); /* all of it is the worker's */
    while (*at && (size_t)(at - line) < kept && n < ERROR_JOINED - 1)
        out[n++] = *at++;
    while (*at && n < ERROR_JOINED - 1) {
        const char *hex = strncmp(at, "0x", 2) == 0 ? at + 2 : at, *end = NULL;
        size_t size = strspn(hex, "0123456789abcdefABCDEF-");
        size_t before_digit = strcspn(at, "0123456789");

        word = 0;
        while (isalnum((unsigned char)at[word]))
            word++;
        if (at > line && isalnum((unsigned char)at[-1]))
            ; /* it is inside a word */
        else if (size && !isalnum((unsigned char)hex[size]) &&
                 (hex != at || (size >= 8 && before_digit < size)))
            end = hex + size;
        else if (word >= 20 && before_digit < word)
            end = at + word;
        if (!end && isdigit((unsigned char)*at))
            end = at + strspn(at, "0123456789");
        if (!end)
            out[n++] = *at++;
        else if (n == 0 || out[n - 1] != '*')
            out[n++] = '*';
        at = end ? end : at;
    }
    out[n] = '\0';
    return out;
}

/* Return true if a query has no pattern, or the letter has that pattern. */
static bool pattern_fits(const struct serve_ask *a, const struct letter *l)
{
    const char *wanted = a->query[QUERY_PATTERN];
    char pattern[ERROR_JOINED];

    return !wanted || strcmp(wanted, pattern_print(pattern, l->m.error,
                                                   l->error_text)) == 0;
}

static int query_refuse(struct problem *p, const char *name, const char *text,
                        const char *allowed)
{
    return problem_set(p, EX_USAGE, EINVAL, "%s: \"%.64s\" is not %s", name,
                       text, allowed);
}

/* Make the filter that a query describes. */
static int ask_filter(const struct serve_ask *a, struct letter_filter *f,
                      struct problem *p)
{
    const char *after = a->query[QUERY_AFTER], *limit = a->query[QUERY_LIMIT],
               *reason = a->query[QUERY_REASON],
               *pattern = a->query[QUERY_PATTERN],
               *since = a->query[QUERY_SINCE], *until = a->query[QUERY_UNTIL];
    int64_t n = PAGE_LEAST;

    if (a->o->no_bodies && a->query[QUERY_MATCH])
        return problem_set(p, EX_NOPERM, EPERM,
                           "match: this server shows no bodies (--no-bodies), "
                           "so it cannot search them");
    *f = (struct letter_filter){.error_like = a->query[QUERY_ERROR],
                                .group = a->query[QUERY_GROUP],
                                .match = a->query[QUERY_MATCH]};
    /* Turn the pattern into a glob for the store. It may match more letters
     * than the pattern; pattern_fits leaves those out. A pattern with an escape
     * in it makes no glob, because the store has the text without escapes. */
    if (pattern && !f->error_like && !strchr(pattern, '\\')) {
        static char glob[2 * ERROR_JOINED];
        size_t to = 0;

        for (; *pattern && to < sizeof glob - 2; pattern++) {
            if (strchr("?[", *pattern))
                glob[to++] = '\\';
            glob[to++] = *pattern;
        }
        glob[to] = '\0';
        f->error_like = glob;
    }
    if (reason) {
        f->reason = dead_reason_parse(reason);
        if (f->reason == REASON_NONE || f->reason == REASON_COUNT)
            return query_refuse(
                p, "reason", reason,
                "exhausted, rejected, expired, crashed, bad-header or "
                "group-closed");
    }
    if (since && moment_past_parse(since, clock_wall_ns(), &f->since_ns) < 0)
        return query_refuse(p, "since", since,
                            "a time, or how long ago, like 2h");
    if (until && moment_past_parse(until, clock_wall_ns(), &f->until_ns) < 0)
        return query_refuse(p, "until", until,
                            "a time, or how long ago, like 2h");
    if (after && *after && !cursor_read(after, &f->before_ns, &f->before_row))
        return query_refuse(p, "after", after, "the cursor of a letter");
    if (limit && (!serve_number_read(limit, &n) || n > PAGE_MOST))
        return query_refuse(p, "limit", limit, "1 to 500");
    f->limit = (uint64_t)n;
    return 0;
}

/* ---- which letters one answer looks at ---- */

/* An answer looks at LOOKED_AT letters at most. A filter that matches only old
 * letters would find none among the newest. So the answer first goes back, for
 * a limited time, to the newest letter that matches. */
#define STEP    2000 /* letters between two looks at the clock */
#define MOST_NS (50 * NS_PER_MS)

enum search { NONE_MATCHES, FOUND, TIME_OVER };

/* Visit: let the filter begin at this letter. */
static int place_take(const struct letter *l, void *arg)
{
    struct letter_filter *f = arg;

    f->before_ns = l->m.died_ns;
    f->before_row = l->m.row + 1;
    return FOUND;
}

/* Let the filter begin at the newest letter that it matches. If the time is
 * over before one is found, it begins after the last letter that was read.
 * Returns an enum search or -errno. */
static int newest_find(struct store *s, struct letter_filter *f)
{
    uint64_t end = clock_mono_ns() + MOST_NS;

    for (;;) {
        struct letter_filter step = *f;
        int older = letters_narrow(s, &step, STEP), got;

        if (older < 0)
            return older;
        step.limit = 1;
        got = letters_each(s, &step, false, place_take, f);
        if (got || older == NO)
            return got;
        f->before_ns = step.since_ns;
        f->before_row = 1;
        if (clock_mono_ns() < end)
            continue;
        f->since_ns = step.since_ns;
        return TIME_OVER;
    }
}

/* Let the filter begin at the newest letter that it matches, and end LOOKED_AT
 * letters later. Returns YES if older letters, before since_ns, are left out;
 * the filter may then match none, because the time was over. Returns NO if none
 * is. */
static int window_find(struct store *s, struct letter_filter *f)
{
    bool asks = f->error_like || f->group || f->match || f->reason;
    int got = asks ? newest_find(s, f) : FOUND;

    if (got < 0 || got == TIME_OVER)
        return got < 0 ? got : YES;
    return letters_narrow(s, f, LOOKED_AT);
}

/* ---- letters ---- */

/* Return the time at which the search ended, to the nanosecond, as a filter
 * takes it. Returns null if it covered all letters. `narrowed` is the result of
 * window_find. */
static json_t *ask_since(int narrowed, const struct letter_filter *f)
{
    return narrowed == YES
               ? json_sprintf("@%" PRIu64 ".%09" PRIu64, f->since_ns / NS_PER_S,
                              f->since_ns % NS_PER_S)
               : json_null();
}

json_t *ask_text(const void *bytes, size_t size, bool one_line)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = bytes ? open_memstream(&text, &length) : NULL;
    json_t *s = NULL;

    if (!out)
        return json_null();
    safe_text(out, bytes, size, one_line);
    if (fclose(out) == 0)
        s = json_stringn(text, length);
    free(text);
    return s ? s : json_null();
}

static json_t *error_safe(const char *error)
{
    return ask_text(error, error ? strlen(error) : 0, true);
}

/* Return the command that replays a replayed letter again, if it may not have
 * been sent or was lost; null for every other letter. */
static json_t *letter_fix(const char *queue, const struct letter *l)
{
    const char *replay = letter_replay_text(l);

    return !replay || strcmp(replay, "sent") == 0
               ? json_null()
               : json_sprintf("mqdlq replay %s%s %" PRId64,
                              l->replay.here ? "--again " : "",
                              SHELL_QUEUE(queue), l->m.row);
}

/* Describe a letter, as in a list. */
static json_t *letter_brief(const struct serve_ask *a, const struct letter *l,
                            bool bodies)
{
    size_t shown = l->body_size < PREVIEW ? l->body_size : PREVIEW;
    char id[ULID_TEXT], pattern[ERROR_JOINED], line[ERROR_JOINED];
    json_t *o = json_pack(
        "{s:o, s:o, s:s, s:s, s:s?, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:I, "
        "s:I, s:I}",
        "row", json_sprintf("%" PRId64, l->m.row), "cursor",
        json_sprintf("%" PRIu64 ".%" PRId64, l->m.died_ns, l->m.row),
        "message_id", ulid_print(l->m.id, id), "state",
        l->m.state == STORE_REPLAYED ? "replayed" : "dead", "replay",
        letter_replay_text(l), "fix", letter_fix(a->path.queue, l), "died_at",
        json_time(l->m.died_ns), "reason", dead_reason_text(l->m.reason),
        "error", error_safe(l->m.error), "error_line",
        l->m.error || l->error_text
            ? error_safe(
                  error_text_join(line, sizeof line, l->m.error, l->error_text))
            : json_null(),
        "pattern",
        json_printable(pattern_print(pattern, l->m.error, l->error_text)),
        "group", ask_text(l->m.group, l->m.group_size, true), "attempts",
        (json_int_t)l->m.attempts, "crashes", (json_int_t)l->m.crashes, "size",
        (json_int_t)l->body_size);

    if (bodies)
        json_object_set_new(o, "preview", ask_text(l->body, shown, true));
    return o;
}

struct listing {
    const struct serve_ask *ask;
    json_t *list;
    uint64_t most;
    bool more;
    struct store *store; /* of a letter that is shown alone */
};

/* Visit: add a letter to the list. */
static int brief_add(const struct letter *l, void *arg)
{
    struct listing *g = arg;

    if (!pattern_fits(g->ask, l))
        return 0;
    if (json_array_size(g->list) == g->most) {
        g->more = true;
        return VISIT_ENOUGH;
    }
    json_array_append_new(g->list,
                          letter_brief(g->ask, l, !g->ask->o->no_bodies));
    return 0;
}

json_t *ask_letters(const struct serve_ask *a, struct problem *p)
{
    struct listing g = {.ask = a, .list = json_array()};
    struct letter_filter f;
    struct store *s;
    const json_t *last;
    json_t *next;
    int narrowed, err;

    if (ask_filter(a, &f, p) < 0 || ask_store(a, a->path.queue, &s, p) < 0)
        return NULL;
    g.most = f.limit;
    f.limit = a->query[QUERY_PATTERN] ? 0 : f.limit + 1;
    narrowed = s ? window_find(s, &f) : NO;
    err = s && narrowed >= 0 ? letters_each(s, &f, false, brief_add, &g)
                             : narrowed;
    if (err < 0)
        return ask_failed(p, err);
    last = json_array_get(g.list, json_array_size(g.list) - 1);
    if (g.more)
        next = json_incref(json_object_get(last, "cursor"));
    else if (narrowed == YES)
        next = json_sprintf("%" PRIu64 ".1", f.since_ns);
    else
        next = json_null();
    return json_pack("{s:o, s:o, s:I, s:o, s:o, s:o, s:b, s:b}", "queue",
                     json_printable(a->path.queue), "letters", g.list, "dead",
                     s ? (json_int_t)store_count(s, STORE_DEAD) : 0, "next",
                     next, "since", ask_since(narrowed, &f), "looked_to",
                     narrowed == YES ? json_time(f.since_ns) : json_null(),
                     "write", a->o->allow_write, "bodies", !a->o->no_bodies);
}

/* ---- one letter ---- */

/* Print lines of an offset, 16 bytes, and the printable characters in them. */
static json_t *hex_text(const char *bytes, size_t size)
{
    size_t shown = size < HEX_SHOWN ? size : HEX_SHOWN, length = 0;
    char *text = NULL;
    FILE *out = open_memstream(&text, &length);
    json_t *s;

    if (!out)
        return json_null();
    for (size_t at = 0; at < shown; at += 16) {
        fprintf(out, "%06zx ", at);
        for (size_t i = at; i < at + 16; i++)
            if (i < shown)
                fprintf(out, " %02x", (unsigned char)bytes[i]);
            else
                fputs("   ", out);
        fputs("  ", out);
        for (size_t i = at; i < at + 16 && i < shown; i++)
            fputc(isprint((unsigned char)bytes[i]) ? bytes[i] : '.', out);
        fputc('\n', out);
    }
    s = fclose(out) == 0 ? json_stringn(text, length) : NULL;
    free(text);
    return s ? s : json_null();
}

/* Return the body indented if it is JSON, and else null. Characters that hide
 * something are escaped, as in any text. */
static json_t *json_text(const char *bytes, size_t size)
{
    json_t *body = size && size <= BODY_SHOWN
                       ? json_loadb(bytes, size, JSON_DECODE_ANY, NULL)
                       : NULL,
           *s = NULL;
    char *text =
        body ? json_dumps(body, JSON_INDENT(2) | JSON_ENCODE_ANY) : NULL;

    if (text)
        s = ask_text(text, strlen(text), false);
    free(text);
    json_decref(body);
    return s ? s : json_null();
}

/* Visit: add an attempt to the history. */
static int attempt_add(unsigned n, const struct store_attempt *at, void *arg)
{
    json_t *o = json_pack("{s:i, s:o, s:I, s:o, s:o}", "n", (int)n,
                          "started_at", json_time(at->started_ns), "took_ms",
                          (json_int_t)(at->duration_ns / NS_PER_MS), "error",
                          error_safe(at->error), "stderr",
                          ask_text(at->stderr_tail, at->stderr_size, false));

    (void)json_put_usage(o, &at->usage);
    json_array_append_new(arg, o);
    return 0;
}

int ask_whole(const struct serve_ask *a, json_t *o, struct store *s,
              int64_t row, const struct ask_bytes *b)
{
    size_t shown = b->body_size < BODY_SHOWN ? b->body_size : BODY_SHOWN;
    json_t *history = json_array();
    int err = s && row ? letters_history(s, row, attempt_add, history) : 0;

    json_object_update_new(o, json_pack("{s:o, s:b, s:b}", "history", history,
                                        "bodies", !a->o->no_bodies, "write",
                                        a->o->allow_write));
    if (!a->o->no_bodies)
        json_object_update_new(
            o, json_pack("{s:o, s:o, s:o, s:o, s:b}", "header",
                         ask_text(b->header, b->header_size, false), "body",
                         ask_text(b->body, shown, false), "body_hex",
                         hex_text(b->body, shown), "body_json",
                         json_text(b->body, b->body_size), "body_cut",
                         shown < b->whole_size));
    return err == -ENOENT ? 0 : err;
}

/* Visit: describe a letter in full. */
static int letter_full(const struct letter *l, void *arg)
{
    struct listing *g = arg;

    g->list = letter_brief(g->ask, l, false);
    json_object_update_new(
        g->list,
        json_pack("{s:o, s:o, s:I, s:o, s:o}", "queue",
                  json_printable(g->ask->path.queue), "first_received_at",
                  json_time(l->m.first_received_ns), "priority",
                  (json_int_t)l->m.priority, "sent_again_at",
                  json_time(l->replay.known ? l->replay.marked_ns : 0),
                  "stderr", ask_text(l->stderr_tail, l->stderr_size, false)));
    return ask_whole(g->ask, g->list, g->store, l->m.row,
                     &(struct ask_bytes){l->m.data, l->body, l->m.header_size,
                                         l->body_size, l->body_size});
}

/* Report that there is no letter of that number in a store (NULL: none). */
static json_t *letter_absent(const struct serve_ask *a, struct store *s,
                             struct problem *p)
{
    struct store_row m = {.state = STORE_DEAD};
    char id[ULID_TEXT];

    if (s && store_get(s, a->path.row, &m, NULL, 0, NULL) == 0 &&
        m.state < STORE_DEAD)
        problem_fill(
            p, EX_NOINPUT,
            "%" PRId64 " is not a dead letter: its message waits for its "
            "next attempt; see mqctl explain %s %s",
            a->path.row, SHELL_QUEUE(a->path.queue), ulid_print(m.id, id));
    else
        problem_fill(p, EX_NOINPUT,
                     "%s has no letter %" PRId64 "; a letter is removed when "
                     "its replay is done, or when it is discarded",
                     a->path.queue, a->path.row);
    return NULL;
}

json_t *ask_letter(const struct serve_ask *a, struct problem *p)
{
    struct listing g = {.ask = a};
    int err;

    if (ask_store(a, a->path.queue, &g.store, p) < 0)
        return NULL;
    err =
        g.store ? letters_get(g.store, a->path.row, letter_full, &g) : -ENOENT;
    if (err == -ENOENT)
        return letter_absent(a, g.store, p);
    return err < 0 ? ask_failed(p, err) : g.list;
}

/* Visit: print the body. */
static int letter_body_print(const struct letter *l, void *arg)
{
    (void)arg;
    fwrite(l->body, 1, l->body_size, stdout);
    return 0;
}

int ask_body(const struct serve_ask *a)
{
    struct problem p;
    struct store *s;
    int err;

    if (a->o->no_bodies)
        return complain(EX_NOPERM, "this server shows no bodies (--no-bodies)");
    if (ask_store(a, a->path.queue, &s, &p) < 0)
        return complain_of(&p);
    err = s ? letters_get(s, a->path.row, letter_body_print, NULL) : -ENOENT;
    if (err == -ENOENT)
        (void)letter_absent(a, s, &p);
    else if (err < 0)
        (void)ask_failed(&p, err);
    return err ? complain_of(&p) : 0;
}

/* ---- by error ---- */

#define GROUPS_MOST 200
#define BARS        20 /* of a histogram */

/* Letters of one queue with one pattern. */
struct alike {
    char pattern[ERROR_JOINED], sample[ERROR_JOINED]; /* sample: the newest */
    const char *queue;
    char up_to[64]; /* the cursor of the newest letter */
    uint64_t count, first_ns, last_ns;
    uint64_t bars[BARS];
};

/* What this child has found; it answers only one request. */
static struct {
    const struct serve_ask *ask;
    const char *queue;            /* being looked at */
    struct alike at[GROUPS_MOST]; /* letters of others are only in `total` */
    size_t count;
    uint64_t total, from_ns, to_ns; /* to_ns: now, or a later death */
    struct {
        uint64_t ns;
        size_t group;
    } deaths[2 * LOOKED_AT];
    size_t death_count;
} found;

/* Visit, newest first: count a letter in its group. */
static int letter_tally(const struct letter *l, void *arg)
{
    char pattern[ERROR_JOINED], line[ERROR_JOINED];
    struct alike *g = found.at, *end = found.at + found.count;

    (void)arg;
    if (!pattern_fits(found.ask, l))
        return 0;
    found.total++;
    if (!found.from_ns || l->m.died_ns < found.from_ns)
        found.from_ns = l->m.died_ns;
    if (l->m.died_ns > found.to_ns)
        found.to_ns = l->m.died_ns;
    pattern_print(pattern, l->m.error, l->error_text);
    while (g < end && (strcmp(g->pattern, pattern) != 0 ||
                       strcmp(g->queue, found.queue) != 0))
        g++;
    if (g == found.at + GROUPS_MOST)
        return 0;
    if (g == end) {
        found.count++;
        *g = (struct alike){.queue = found.queue, .last_ns = l->m.died_ns};
        strlcpy(g->pattern, pattern, sizeof g->pattern);
        error_text_join(line, sizeof line, l->m.error, l->error_text);
        strlcpy(g->sample, line, sizeof g->sample);
        snprintf(g->up_to, sizeof g->up_to, "%" PRIu64 ".%" PRId64,
                 l->m.died_ns, l->m.row);
    }
    g->count++;
    g->first_ns = l->m.died_ns;
    if (found.death_count < sizeof found.deaths / sizeof *found.deaths) {
        found.deaths[found.death_count].ns = l->m.died_ns;
        found.deaths[found.death_count++].group = (size_t)(g - found.at);
    }
    return 0;
}

/* Compare for qsort: the most letters first, then the newest. */
static int alike_order(const void *a, const void *b)
{
    const struct alike *x = a, *y = b;

    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    return (x->last_ns < y->last_ns) - (x->last_ns > y->last_ns);
}

/* Group the newest `most` letters of a queue that the query chooses. *since
 * gets the end of the search. */
static int queue_tally(const struct serve_ask *a, const char *queue,
                       uint64_t most, json_t **since, struct problem *p)
{
    struct letter_filter f;
    struct store *s;
    int err = ask_filter(a, &f, p), narrowed = NO;

    if (err < 0 || ask_store(a, queue, &s, p) < 0)
        return -EINVAL;
    found.queue = queue;
    f.limit = 0;
    if (s)
        err = narrowed = most == LOOKED_AT ? window_find(s, &f)
                                           : letters_narrow(s, &f, most);
    if (s && err >= 0)
        err = letters_each(s, &f, false, letter_tally, NULL);
    store_close(&s);
    if (err < 0)
        (void)ask_failed(p, err);
    else
        *since = ask_since(narrowed, &f);
    return err;
}

json_t *ask_by_error(const struct serve_ask *a, struct problem *p)
{
    json_t *queues, *one, *since = NULL, *bars, *groups = json_array(),
                          *cut = json_array(), *troubles = json_array();
    struct letter_filter unused;
    struct serve_ask named = *a;
    size_t i, with = 0; /* queues with letters */
    double span;

    found.ask = a;
    found.to_ns = clock_wall_ns();
    if (ask_filter(a, &unused, p) < 0)
        return NULL;
    if (a->query[QUERY_QUEUE]) {
        if (!ask_named_queue(a, &named, p))
            return NULL;
        queues = json_pack("{s:[{s:s, s:i}]}", "queues", "queue",
                           named.path.queue, "dead", 1);
    } else {
        queues = ask_queues(a, p);
        json_array_extend(troubles, json_object_get(queues, "troubles"));
    }
    json_array_foreach(json_object_get(queues, "queues"), i, one)
    {
        with += json_integer_value(json_object_get(one, "dead")) > 0;
    }
    /* The queues share the letters that one answer may look at. */
    json_array_foreach(json_object_get(queues, "queues"), i, one)
    {
        const char *queue = json_string_value(json_object_get(one, "queue"));
        uint64_t before = found.total;

        if (with == 0 || json_integer_value(json_object_get(one, "dead")) <= 0)
            continue;
        if (queue_tally(a, queue, LOOKED_AT / with, &since, p) < 0) {
            if (a->query[QUERY_QUEUE])
                return NULL;
            json_array_append_new(troubles, json_string(p->text));
            continue;
        }
        if (!json_is_null(since))
            json_array_append_new(cut,
                                  json_pack("{s:o, s:I, s:O}", "queue",
                                            json_printable(queue), "looked_at",
                                            (json_int_t)(found.total - before),
                                            "since", since));
        json_decref(since);
    }
    /* Draw for each group a histogram of the whole time, and print the groups
     * in their order. */
    span = (double)(found.to_ns - found.from_ns) + 1;
    for (i = 0; i < found.death_count; i++) {
        double after = (double)(found.deaths[i].ns - found.from_ns);
        size_t bar = (size_t)(after / span * BARS);

        found.at[found.deaths[i].group].bars[bar < BARS ? bar : BARS - 1]++;
    }
    qsort(found.at, found.count, sizeof *found.at, alike_order);
    for (const struct alike *g = found.at; g < found.at + found.count; g++) {
        bars = json_array();
        for (i = 0; i < BARS; i++)
            json_array_append_new(bars, json_integer((json_int_t)g->bars[i]));
        json_array_append_new(
            groups,
            json_pack(
                "{s:o, s:o, s:o, s:I, s:o, s:o, s:s, s:o}", "queue",
                json_printable(g->queue), "pattern", json_printable(g->pattern),
                "sample", error_safe(g->sample), "count", (json_int_t)g->count,
                "first", json_time(g->first_ns), "last", json_time(g->last_ns),
                "up_to", g->up_to, "histogram", bars));
    }
    return json_pack("{s:I, s:o, s:o, s:o, s:o, s:o}", "total",
                     (json_int_t)found.total, "from", json_time(found.from_ns),
                     "to", json_time(found.to_ns), "groups", groups, "cut", cut,
                     "troubles", troubles);
}

/* ---- letters to replay or to discard ---- */

#define ROWS_MOST 100000 /* letters of one request */
#define EDIT_WAIT "5s"   /* for room in the queue; a request has 10 s */

/* The letters of a request. */
struct chosen {
    const struct serve_ask *ask; /* with the filter as its query */
    uint64_t *count;
};

/* Visit: print and count the letter. */
static int letter_row_print(const struct letter *l, void *arg)
{
    const struct chosen *c = arg;

    if (!pattern_fits(c->ask, l))
        return 0;
    fwrite(&l->m.row, sizeof l->m.row, 1, stdout);
    return ++*c->count > ROWS_MOST ? -E2BIG : 0;
}

/* Print each named row once, because a letter named twice must not be sent
 * twice. */
static int named_print(const json_t *rows, uint64_t *count)
{
    json_t *had = json_object();
    const json_t *one;
    int64_t row;
    size_t i;

    json_array_foreach(rows, i, one)
    {
        if (!serve_number_read(json_string_value(one), &row))
            return complain(EX_USAGE, "rows: each must be a string of digits, "
                                      "like `row` of a letter");
        if (json_object_get(had, json_string_value(one)))
            continue;
        if (json_object_set_new(had, json_string_value(one), json_true()) < 0)
            return complain_memory();
        fwrite(&row, sizeof row, 1, stdout);
        ++*count;
    }
    json_decref(had);
    return 0;
}

/* Print the letters that a filter matches, up to the newest one that the user
 * has seen. The filter has the same names as a query. */
static int chosen_print(const struct serve_ask *a, const json_t *body,
                        uint64_t *count)
{
    const char *up_to = json_string_value(json_object_get(body, "up_to"));
    const json_t *filter = json_object_get(body, "filter");
    struct serve_ask other = *a;
    struct letter_filter f;
    struct problem p;
    struct store *s;
    int err;

    for (int i = 0; i < QUERY_COUNT; i++)
        other.query[i] =
            json_string_value(json_object_get(filter, serve_query_names[i]));
    other.query[QUERY_LIMIT] = NULL;
    other.query[QUERY_AFTER] = NULL;
    if (ask_filter(&other, &f, &p) < 0)
        return complain_of(&p);
    if (!up_to || !cursor_read(up_to, &f.before_ns, &f.before_row))
        return complain(EX_USAGE, "up_to is missing; give the cursor of the "
                                  "newest letter to include");
    f.before_row++;
    f.limit = 0;
    if (ask_store(a, a->path.queue, &s, &p) < 0)
        return complain_of(&p);
    err = s ? letters_each(s, &f, true, letter_row_print,
                           &(struct chosen){&other, count})
            : 0;
    if (err == -E2BIG)
        return complain(EX_USAGE,
                        "more than %d letters match; narrow the filter, "
                        "or use mqdlq",
                        ROWS_MOST);
    if (err < 0)
        (void)ask_failed(&p, err);
    return err < 0 ? complain_of(&p) : 0;
}

/* Refuse a letter that is no longer the message that the page showed, because
 * an edit gave it another id. An unreadable letter is left to mqdlq. */
static int letter_check(const struct serve_ask *a, int64_t row, const char *id,
                        struct problem *p)
{
    char now[ULID_TEXT];
    struct store_row m;
    struct store *s;
    int err = ask_store(a, a->path.queue, &s, p);

    if (err)
        return err;
    err = s ? store_get(s, row, &m, NULL, 0, NULL) : -ENOENT;
    store_close(&s);
    if (err || strcmp(id, ulid_print(m.id, now)) == 0)
        return 0;
    return problem_set(p, 1, ESTALE,
                       "letter %" PRId64 " is another message now, %s, because "
                       "it was edited; reload the page",
                       row, now);
}

int ask_rows(const struct serve_ask *a)
{
    struct problem p;
    json_t *body = ask_body_read(a, &p);
    json_t *rows = json_object_get(body, "rows"),
           *filter = json_object_get(body, "filter"),
           *expected = json_object_get(body, "expect_count"),
           *again = json_object_get(body, "again");
    const char *shown = json_string_value(json_object_get(body, "message_id")),
               *row = json_string_value(json_array_get(rows, 0));
    uint64_t count = 0;
    int64_t number;
    struct ulid id;
    int status;

    if (!body || ask_kept_here(a->path.queue, &p) < 0)
        return complain_of(&p);
    if (rows && (filter || json_object_get(body, "up_to")))
        return complain(EX_USAGE, "give rows or filter, not both; up_to is "
                                  "allowed with filter only");
    if (!rows && !filter)
        return complain(EX_USAGE,
                        "nothing chosen; give {\"rows\": [\"1\", ...]}, or "
                        "{\"filter\": {...}, \"up_to\": CURSOR, "
                        "\"expect_count\": N}");
    if (!rows && !expected)
        return complain(EX_USAGE, "expect_count is missing: give the number "
                                  "of letters that was shown");
    if (filter && json_is_true(again))
        return complain(EX_USAGE, "again is about letters that are on their "
                                  "way already; name them in rows");
    if (shown && (json_array_size(rows) != 1 ||
                  ulid_parse(shown, strlen(shown), &id) != 0))
        return complain(EX_USAGE, "message_id is the id, of 26 characters, of "
                                  "the only letter in rows");
    if (!queue_is_known(a, &p) || (shown && serve_number_read(row, &number) &&
                                   letter_check(a, number, shown, &p) != 0))
        return complain_of(&p);
    status = rows ? named_print(rows, &count) : chosen_print(a, body, &count);
    if (!status && count == 0)
        return complain(EX_NOINPUT, "no letter matches");
    if (!status && json_is_integer(expected) &&
        json_integer_value(expected) != (json_int_t)count)
        return complain(1,
                        "%" PRIu64
                        " letters match now, but %" JSON_INTEGER_FORMAT
                        " were expected; reload the list",
                        count, json_integer_value(expected));
    return status;
}

int mqdlq_become(const char *const argv[])
{
    char path[PATH_MAX];
    int err = file_of_program(path, "mqdlq");

    if (!err)
        execv(path, (char *const *)argv);
    return complain(EX_OSERR, "cannot run mqdlq: %s",
                    errno_text(err ? -err : errno));
}

int ask_edit(const struct serve_ask *a)
{
    int in = memfd_create("mqctl-body", MFD_CLOEXEC);
    const char *argv[16] = {"mqdlq",   "edit",   "--json", "--wait",
                            EDIT_WAIT, "--body", "-"};
    char row[24];
    struct problem p;
    json_t *body = ask_body_read(a, &p);
    json_t *text = json_object_get(body, "body");
    const char *shown = json_string_value(json_object_get(body, "message_id"));
    size_t n = 7;

    if (!body || ask_kept_here(a->path.queue, &p) < 0)
        return complain_of(&p);
    if (a->o->no_bodies)
        return complain(EX_NOPERM, "this server shows no bodies (--no-bodies)");
    if (!text)
        return complain(EX_USAGE, "body is missing: give the new body");
    if (shown && letter_check(a, a->path.row, shown, &p) != 0)
        return complain_of(&p);
    if (in < 0 ||
        file_write(in, json_string_value(text), json_string_length(text), 0) <
            0 ||
        dup2(in, STDIN_FILENO) < 0)
        return complain(EX_OSERR, "cannot keep the body: %s",
                        errno_text(errno));
    if (json_is_true(json_object_get(body, "reset_expiry")))
        argv[n++] = "--reset-expiry";
    if (ask_state_dir(a, a->path.queue)) {
        argv[n++] = "--state-dir";
        argv[n++] = ask_state_dir(a, a->path.queue);
    }
    snprintf(row, sizeof row, "%" PRId64, a->path.row);
    argv[n++] = a->path.queue;
    argv[n++] = row;
    return mqdlq_become(argv);
}

json_t *ask_outcome(const struct serve_ask *a, struct problem *p)
{
    const struct ask_job *j = a->job;
    json_int_t done = 0, on_way = 0, died_again = 0, kept = 0;
    struct store *s;
    struct store_row m;

    if (ask_store(a, j->queue, &s, p) < 0)
        return NULL;
    for (size_t i = 0; i < j->count; i++) {
        int err = s ? store_get(s, j->rows[i], &m, NULL, 0, NULL) : -ENOENT;

        if (err && err != -ENOENT)
            return ask_failed(p, err);
        done += err == -ENOENT;
        on_way += !err && m.state != STORE_DEAD;
        died_again +=
            !err && m.state == STORE_DEAD && m.died_ns >= j->started_ns;
        kept += !err && m.state == STORE_DEAD && m.died_ns < j->started_ns;
    }
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:b}", "queue",
                     json_printable(j->queue), "sent", (json_int_t)j->sent,
                     "done", done, "on_way", on_way, "died_again", died_again,
                     "kept", kept, "complete", j->ended && on_way == 0);
}
