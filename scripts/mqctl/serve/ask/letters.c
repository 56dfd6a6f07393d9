/* letters.c - dead letters as JSON (see ask.h) */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/message/error_text.h"
#include "common/options/moment.h"
#include "common/store/letters.h"
#include "common/text/complain.h"
#include "common/text/json_line.h"
#include "scripts/mqctl/look/snapshot.h"
#include "scripts/mqctl/serve/ask/letters.h"
#include "scripts/mqctl/serve/ask/window.h"

#define PAGE_LEAST 100
#define PAGE_MOST  500
#define PREVIEW    160         /* bytes of a body in a list */
#define BODY_SHOWN (64u << 10) /* of one in its page; all of it as a file */
#define HEX_SHOWN  (4u << 10)

/* ---- opening ---- */

/* ask_store - the store of a queue; NULL in *out: it has none */
int ask_store(const struct serve_ask *a, const char *queue, struct store **out,
              struct problem *p)
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

/* ask_failed - a -errno of the store as a problem */
json_t *ask_failed(struct problem *p, int err)
{
    problem_fill(p,
                 err == -EBUSY    ? EX_TEMPFAIL
                 : err == -ENOMEM ? EX_OSERR
                                  : EX_IOERR,
                 "cannot read the letters: %s; try again", errno_text(-err));
    return NULL;
}

/* ---- what a request chooses ---- */

/* ask_cursor - "DIED_NS.ROW", as `cursor` of a letter */
bool ask_cursor(const char *text, uint64_t *ns, int64_t *row)
{
    char first[24];
    size_t n = strcspn(text, ".");
    int64_t died;

    if (n >= sizeof first || !text[n])
        return false;
    memcpy(first, text, n);
    first[n] = '\0';
    if (!serve_number_read(first, &died) ||
        !serve_number_read(text + n + 1, row))
        return false;
    *ns = (uint64_t)died;
    return true;
}

static int wrong(struct problem *p, const char *name, const char *text,
                 const char *allowed)
{
    return problem_set(p, EX_USAGE, EINVAL, "%s: \"%.64s\" is not %s", name,
                       text, allowed);
}

/* given - a value of the query that is there and not empty, as from a form */
static const char *given(const struct serve_ask *a, enum serve_query which)
{
    return a->query[which] && *a->query[which] ? a->query[which] : NULL;
}

/* ask_filter - of a query */
int ask_filter(const struct serve_ask *a, struct letter_filter *f,
               struct problem *p)
{
    const char *after = given(a, QUERY_AFTER), *limit = given(a, QUERY_LIMIT),
               *reason = given(a, QUERY_REASON), *since = given(a, QUERY_SINCE),
               *until = given(a, QUERY_UNTIL);
    int64_t n = PAGE_LEAST;

    if (a->o->no_bodies && a->query[QUERY_MATCH])
        return problem_set(p, EX_NOPERM, EPERM,
                           "match: this server shows no bodies (--no-bodies), "
                           "so it does not search in them either");
    *f = (struct letter_filter){.error_like = given(a, QUERY_ERROR),
                                .group = given(a, QUERY_GROUP),
                                .match = given(a, QUERY_MATCH)};
    if (reason) {
        f->reason = dead_reason_parse(reason);
        if (f->reason == REASON_NONE || f->reason == REASON_COUNT)
            return wrong(p, "reason", reason,
                         "exhausted, rejected, expired, crashed, bad-header or "
                         "group-closed");
    }
    if (since && moment_past_parse(since, clock_wall_ns(), &f->since_ns) < 0)
        return wrong(p, "since", since, "a time, or how long ago, like 2h");
    if (until && moment_past_parse(until, clock_wall_ns(), &f->until_ns) < 0)
        return wrong(p, "until", until, "a time, or how long ago, like 2h");
    if (after && !ask_cursor(after, &f->before_ns, &f->before_row))
        return wrong(p, "after", after, "the cursor of a letter");
    if (limit && (!serve_number_read(limit, &n) || n > PAGE_MOST))
        return wrong(p, "limit", limit, "1 to 500");
    f->limit = (uint64_t)n;
    return 0;
}

/* ---- letters ---- */

json_t *ask_since(int narrowed, const struct letter_filter *f)
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

json_t *ask_error_line(const char *error, const char *text)
{
    char line[ERROR_JOINED];

    if (!error && !text)
        return json_null();
    error_text_join(line, sizeof line, error, text);
    return error_safe(line);
}

/* number_text - above 2^53 a browser rounds, so rows and times are strings */
static json_t *number_text(int64_t n)
{
    return json_sprintf("%" PRId64, n);
}

/* letter_brief - a line of a list */
static json_t *letter_brief(const struct letter *l, bool bodies)
{
    size_t shown = l->body_size < PREVIEW ? l->body_size : PREVIEW;
    char id[ULID_TEXT];
    json_t *o = json_object();

    json_object_set_new(o, "row", number_text(l->m.row));
    json_object_set_new(
        o, "cursor",
        json_sprintf("%" PRIu64 ".%" PRId64, l->m.died_ns, l->m.row));
    json_object_set_new(o, "message_id", json_string(ulid_print(l->m.id, id)));
    json_object_set_new(
        o, "state",
        json_string(l->m.state == STORE_REPLAYED ? "replayed" : "dead"));
    json_object_set_new(o, "died_at", json_time(l->m.died_ns));
    json_object_set_new(o, "reason",
                        json_string(dead_reason_text(l->m.reason)));
    json_object_set_new(o, "error", error_safe(l->m.error));
    json_object_set_new(o, "error_line",
                        ask_error_line(l->m.error, l->error_text));
    json_object_set_new(o, "group",
                        ask_text(l->m.group, l->m.group_size, true));
    json_object_set_new(o, "attempts", json_integer(l->m.attempts));
    json_object_set_new(o, "crashes", json_integer(l->m.crashes));
    json_object_set_new(o, "size", json_integer((json_int_t)l->body_size));
    if (bodies)
        json_object_set_new(o, "preview", ask_text(l->body, shown, true));
    return o;
}

struct listing {
    const struct serve_ask *ask;
    json_t *list;
    size_t most;
    bool more;
};

/* brief_add - visit */
static int brief_add(const struct letter *l, void *arg)
{
    struct listing *g = arg;

    if (json_array_size(g->list) == g->most) {
        g->more = true;
        return VISIT_ENOUGH;
    }
    json_array_append_new(g->list, letter_brief(l, !g->ask->o->no_bodies));
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
    g.most = f.limit++;
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

/* attempt_add - visit */
static int attempt_add(unsigned n, const struct store_attempt *at, void *arg)
{
    json_array_append_new(
        arg, json_pack("{s:i, s:o, s:I, s:o, s:o}", "n", (int)n, "started_at",
                       json_time(at->started_ns), "took_ms",
                       (json_int_t)(at->duration_ns / NS_PER_MS), "error",
                       error_safe(at->error), "stderr",
                       ask_text(at->stderr_tail, at->stderr_size, false)));
    return 0;
}

/* hex_text - offset, 16 bytes, and what of them can be printed */
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

/* json_text - the body indented, if it is JSON; characters that would hide
 * something in it are escaped as in any text */
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

/* body_put - in the forms that a person reads */
static void body_put(json_t *o, const struct letter *l)
{
    size_t shown = l->body_size < BODY_SHOWN ? l->body_size : BODY_SHOWN;

    json_object_set_new(o, "body", ask_text(l->body, shown, false));
    json_object_set_new(o, "body_hex", hex_text(l->body, l->body_size));
    json_object_set_new(o, "body_json", json_text(l->body, l->body_size));
    json_object_set_new(o, "body_cut", json_boolean(shown < l->body_size));
}

/* letter_full - visit */
static int letter_full(const struct letter *l, void *arg)
{
    struct listing *g = arg;
    bool bodies = !g->ask->o->no_bodies;
    json_t *o = letter_brief(l, false);

    json_object_set_new(o, "queue", json_printable(g->ask->path.queue));
    json_object_set_new(o, "first_received_at",
                        json_time(l->m.first_received_ns));
    json_object_set_new(o, "priority", json_integer(l->m.priority));
    json_object_set_new(o, "sent_again_at",
                        l->replay.known ? json_time(l->replay.marked_ns)
                                        : json_null());
    json_object_set_new(o, "header",
                        bodies ? ask_text(l->m.data, l->m.header_size, false)
                               : json_null());
    json_object_set_new(o, "stderr",
                        ask_text(l->stderr_tail, l->stderr_size, false));
    if (bodies)
        body_put(o, l);
    json_object_set_new(o, "bodies", json_boolean(bodies));
    json_object_set_new(o, "write", json_boolean(g->ask->o->allow_write));
    g->list = o;
    return 0;
}

/* gone - no letter of that number */
static json_t *gone(const struct serve_ask *a, struct problem *p)
{
    problem_fill(p, EX_NOINPUT,
                 "%s has no letter %" PRId64 ", or not any more: one that was "
                 "sent again and ended done, or was discarded, is gone",
                 a->path.queue, a->path.row);
    return NULL;
}

json_t *ask_letter(const struct serve_ask *a, struct problem *p)
{
    struct listing g = {.ask = a};
    json_t *history = json_array();
    struct store *s;
    int err;

    if (ask_store(a, a->path.queue, &s, p) < 0)
        return NULL;
    err = s ? letters_get(s, a->path.row, letter_full, &g) : -ENOENT;
    if (!err)
        err = letters_history(s, a->path.row, attempt_add, history);
    if (err == -ENOENT)
        return gone(a, p);
    if (err < 0)
        return ask_failed(p, err);
    json_object_set_new(g.list, "history", history);
    return g.list;
}

/* body_print - visit */
static int body_print(const struct letter *l, void *arg)
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
    err = s ? letters_get(s, a->path.row, body_print, NULL) : -ENOENT;
    if (err == -ENOENT)
        (void)gone(a, &p);
    else if (err < 0)
        (void)ask_failed(&p, err);
    return err ? complain_of(&p) : 0;
}
