/* list.c - print dead letters: the verbs list, export and show
 *
 * Called by main, in one thread. Letters of a broker are in a temporary store
 * (broker.h), so the functions here work for both.
 */
#include "scripts/mqdlq/mqdlq.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"
#include "common/cli/term_table.h"
#include "common/message/error_text.h"
#include "common/state/statedir.h"
#include "scripts/mqdlq/broker.h"

/* Visit the messages that `list --replayed` shows after the letters: they were
 * letters, were replayed, and failed. `shown` is the number of letters. */
static int retries_each(const struct context *ctx, uint64_t shown,
                        int (*visit)(const struct letter *l, void *arg),
                        void *arg)
{
    struct letter_filter f = ctx->o->filter;

    if (ctx->o->line.verb != VERB_LIST || !f.replayed || !ctx->store ||
        (f.limit && shown >= f.limit))
        return 0;
    f.retries = true;
    f.limit -= f.limit ? shown : 0;
    return letters_each(ctx->store, &f, false, visit, arg);
}

/* ---- list: the table ---- */

struct listing {
    struct term_table *table;
    bool numbered; /* letters have numbers */
    uint64_t rows;
};

/* Visit: print one line of the table. */
static int letter_row(const struct letter *l, void *arg)
{
    struct listing *listing = arg;
    struct term_table *t = listing->table;
    char time[TIME_TEXT], id[ULID_TEXT];
    char error[ERROR_JOINED];
    size_t preview =
        l->body_size < TERM_TABLE_PREVIEW ? l->body_size : TERM_TABLE_PREVIEW;

    if (listing->numbered)
        term_cellf(t, "%" PRId64, l->m.row);
    else
        term_cellf(t, "%s", ulid_print(l->m.id, id));
    term_cellf(t, "%s", l->m.died_ns ? term_time_ago(l->m.died_ns, time) : "-");
    term_cellf(t, "%" PRIu32, l->m.attempts);
    term_cellf(t, "%s",
               l->m.state < STORE_DEAD ? "retry"
                                       : dead_reason_text(l->m.reason));
    error_text_join(error, sizeof error, l->m.error, l->error_text);
    term_cell(t, error, strlen(error));
    term_cell(t, l->m.group ? l->m.group : "", l->m.group_size);
    term_cellf(t, "%zu", l->body_size);
    term_cell(t, l->body, preview);
    if (++listing->rows % TERM_TABLE_PART == 0)
        term_table_print(t, stdout);
    return cli_interrupt_seen() ? -EINTR : 0;
}

/* Print that the list is empty. Without a store, context_open has printed why.
 */
static void none_tell(const struct context *ctx)
{
    const struct selection all = {0};
    uint64_t on_way = 0;

    if (!ctx->store)
        return;
    if (selection_on_way(&all, ctx, &on_way) == 0 && on_way > 0)
        complain(0, "%s has no dead letters; " ON_WAY_CLAUSE, ctx->queue,
                 ON_WAY_ARGS(on_way, ctx));
    else
        complain(0,
                 filter_given(ctx->o) ? "%s has no matching letter"
                                      : "%s has no dead letters",
                 ctx->queue);
}

/* Print the table, newest first. */
static int list_table(struct context *ctx)
{
    static const struct term_column columns[] = {
        {"ID", TERM_RIGHT, TERM_WHOLE},    {"DIED", TERM_LEFT, TERM_WHOLE},
        {"TRIES", TERM_RIGHT, TERM_WHOLE}, {"REASON", TERM_LEFT, TERM_WHOLE},
        {"ERROR", TERM_LEFT, TERM_END},    {"GROUP", TERM_LEFT, TERM_SPARE},
        {"SIZE", TERM_RIGHT, TERM_EXTRA},  {"BODY", TERM_LEFT, TERM_END},
    };
    struct listing listing = {
        .numbered = !ctx->broker,
        .table = term_table_open(columns, sizeof columns / sizeof *columns)};
    int err = 0;
    int out;

    if (!listing.table)
        return store_failed("print the table", -ENOMEM);
    if (ctx->store)
        err = letters_each(ctx->store, &ctx->o->filter, false, letter_row,
                           &listing);
    if (!err)
        err = retries_each(ctx, listing.rows, letter_row, &listing);
    out = listing.rows ? term_table_print(listing.table, stdout) : 0;
    term_table_close(&listing.table);
    if (!err && out)
        return store_failed("print the table", out);
    if (!err && listing.rows == 0)
        none_tell(ctx);
    return err && err != -EINTR ? store_failed("read the letters", err) : 0;
}

/* ---- list: --count, --by ---- */

/* The number of letters, and when the newest died. */
struct sum {
    uint64_t count, newest_ns;
};

/* Visit: add the letters with one reason to the sum. */
static int tally_add(const struct letter_tally *t, void *arg)
{
    struct sum *sum = arg;

    sum->count += t->count;
    if (t->newest_ns > sum->newest_ns)
        sum->newest_ns = t->newest_ns;
    return 0;
}

/* Visit: count a message that was a letter. */
static int retry_count(const struct letter *l, void *arg)
{
    (void)l;
    ++*(uint64_t *)arg;
    return 0;
}

/* Count the letters that match the filter; an exit status. */
static int matches_count(struct context *ctx, struct sum *sum)
{
    int err = ctx->store ? letters_summary(ctx->store, LETTER_BY_REASON,
                                           &ctx->o->filter, tally_add, sum)
                         : 0;

    if (!err)
        err = retries_each(ctx, sum->count, retry_count, &sum->count);
    return err ? store_failed("count the letters", err) : 0;
}

/* What --by prints. */
struct summary {
    struct term_table *table; /* NULL: JSON */
    const char *by;
    bool by_error;
    uint64_t rows;
};

/* Visit: print one value and how many letters have it, with --json as
 * {"reason":"rejected","count":3,"newest":"..."}. */
static int tally_row(const struct letter_tally *t, void *arg)
{
    struct summary *summary = arg;
    char time[TIME_TEXT], error[ERROR_JOINED], safe[1024];
    const char *value = t->value;
    size_t size = t->size;
    json_t *o;

    if (!summary->table) {
        if (value)
            safe_text_copy(safe, sizeof safe, value, size);
        o = json_pack("{s:s?, s:I, s:s}", summary->by, value ? safe : NULL,
                      "count", (json_int_t)t->count, "newest",
                      time_print(t->newest_ns, time));
        if (summary->by_error)
            json_object_set_new(o, "error_text",
                                t->text ? json_string(t->text) : json_null());
        return json_print_line(o, stdout);
    }
    if (summary->by_error && value) {
        value = error_text_join(error, sizeof error, value, t->text);
        size = strlen(value);
    }
    summary->rows++;
    term_cellf(summary->table, "%" PRIu64, t->count);
    term_cell(summary->table, value ? value : "-", value ? size : 1);
    term_cellf(summary->table, "%s", term_time_ago(t->newest_ns, time));
    return 0;
}

/* Print the values of one field, the most frequent first. */
static int list_by(struct context *ctx)
{
    static const char *const names[][2] = {
        [LETTER_BY_REASON] = {"reason", "REASON"},
        [LETTER_BY_ERROR] = {"error", "ERROR"},
        [LETTER_BY_GROUP] = {"group", "GROUP"},
    };
    const struct term_column columns[] = {
        {"COUNT", TERM_RIGHT, TERM_WHOLE},
        {names[ctx->o->by][1], TERM_LEFT, TERM_END},
        {"NEWEST", TERM_LEFT, TERM_WHOLE},
    };
    struct summary summary = {.by = names[ctx->o->by][0],
                              .by_error = ctx->o->by == LETTER_BY_ERROR};
    int err = 0;
    int out;

    if (!ctx->o->json)
        summary.table = term_table_open(columns, 3);
    if (!ctx->o->json && !summary.table)
        return store_failed("print the table", -ENOMEM);
    if (ctx->store)
        err = letters_summary(ctx->store, (enum letter_by)ctx->o->by,
                              &ctx->o->filter, tally_row, &summary);
    out = summary.rows ? term_table_print(summary.table, stdout) : 0;
    term_table_close(&summary.table);
    if (!err && !ctx->o->json && summary.rows == 0)
        none_tell(ctx);
    if (!err && out)
        return store_failed("print the table", out);
    return err ? store_failed("count the letters", err) : 0;
}

/* ---- JSON ---- */

/* Visit: print a message that was a letter. */
static int retry_print(const struct letter *l, void *arg)
{
    struct context *ctx = arg;
    int err = letter_json_print(ctx->store, ctx->queue, l->m.row, NULL, stdout);

    return err == -ENOENT ? 0 : err;
}

/* Print the chosen letters as JSON lines, newest first. export prints the
 * oldest first, so that import keeps the order. A letter that was removed in
 * the meantime is left out. */
static int list_json(struct context *ctx)
{
    bool backwards = ctx->o->line.verb != VERB_EXPORT;
    const struct letter_elsewhere elsewhere = {
        ctx->letters ? ctx->letters->machine : NULL, ctx->broker};
    struct selection c;
    int err = 0, status = selection_make(&c, ctx);

    if (status)
        return status;
    for (size_t i = 0; i < c.count && !cli_interrupt_seen(); i++) {
        size_t at = backwards ? c.count - 1 - i : i;

        err = letter_json_print(ctx->store, ctx->queue, c.picks[at].name.row,
                                ctx->broker ? &elsewhere : NULL, stdout);
        if (err && err != -ENOENT)
            break;
        err = 0;
    }
    if (!err)
        err = retries_each(ctx, c.count, retry_print, ctx);
    status = err         ? store_failed("print a letter", err)
             : c.missing ? EX_NOINPUT
                         : 0;
    selection_free(&c);
    return status;
}

int list_run(struct context *ctx)
{
    struct sum sum = {0};
    int status;

    if (ctx->o->line.verb == VERB_EXPORT)
        return list_json(ctx);
    if (ctx->o->has_by)
        return list_by(ctx);
    if (!ctx->o->count)
        return ctx->o->json ? list_json(ctx) : list_table(ctx);
    status = matches_count(ctx, &sum);
    if (!status &&
        !summary_print(ctx, json_pack("{s:o, s:I}", "queue",
                                      json_printable(ctx->queue), "count",
                                      (json_int_t)sum.count)))
        printf("%" PRIu64 "\n", sum.count);
    return status;
}

/* ---- list without a queue ---- */

/* Count the letters of one queue that match the filter, and print the queue if
 * it has any. */
static int queue_count(const struct options *o, char *queue,
                       struct term_table *table, uint64_t *all)
{
    struct options one = *o;
    struct context ctx;
    struct sum sum = {0};
    char time[TIME_TEXT];
    int status;

    one.line.operands = &queue;
    one.line.operand_count = 1;
    status = context_open(&ctx, &one, false);
    if (!status)
        status = matches_count(&ctx, &sum);
    status = status_worse(status, context_close(&ctx));
    *all += sum.count;
    if (sum.count == 0 || o->count)
        return status;
    if (table) {
        term_cell(table, queue, strlen(queue));
        term_cellf(table, "%" PRIu64, sum.count);
        term_cellf(table, "%s", term_time_ago(sum.newest_ns, time));
    } else if (json_print_line(json_pack("{s:o, s:I, s:o}", "queue",
                                         json_printable(queue), "count",
                                         (json_int_t)sum.count, "newest",
                                         json_time(sum.newest_ns)),
                               stdout) < 0) {
        status = status_worse(status, complain_memory());
    }
    return status;
}

int queues_run(const struct options *o)
{
    static const struct term_column columns[] = {
        {"QUEUE", TERM_LEFT, TERM_MIDDLE},
        {"DEAD", TERM_RIGHT, TERM_WHOLE},
        {"NEWEST", TERM_LEFT, TERM_WHOLE},
    };
    struct dirent **names = NULL;
    struct term_table *table = NULL;
    uint64_t all = 0;
    char root[PATH_MAX], path[PATH_MAX], queue[NAME_MAX + 2];
    struct problem p = {0};
    int n, status = 0;

    if (statedir_root(root, o->state_dir, &p) < 0)
        return complain_of(&p);
    if (!o->json && !o->count && !(table = term_table_open(columns, 3)))
        return complain_memory();
    /* alphasort(3) orders as strcmp(3) does, because no locale was set. */
    n = scandir(root, &names, NULL, alphasort);
    if (n < 0 && errno != ENOENT)
        status = complain(errno == EACCES   ? EX_NOPERM
                          : errno == ENOMEM ? EX_OSERR
                                            : EX_CANTCREAT,
                          "cannot read the state directory %s: %s", root,
                          errno_text(errno));
    for (int i = 0; i < n; i++) {
        bool hidden = names[i]->d_name[0] == '.';

        snprintf(queue, sizeof queue, "/%s", names[i]->d_name);
        free(names[i]);
        if (hidden ||
            snprintf(path, sizeof path, "%s%s/" STATEDIR_STORE, root, queue) >=
                (int)sizeof path ||
            access(path, F_OK) < 0)
            continue;
        status = status_worse(status, queue_count(o, queue, table, &all));
    }
    free(names);
    if (o->count && o->json)
        json_print_line(json_pack("{s:I}", "count", (json_int_t)all), stdout);
    else if (o->count)
        printf("%" PRIu64 "\n", all);
    else if (all == 0 && !status)
        complain(0, "no queue with state directory %s has dead letters%s", root,
                 filter_given(o) ? " of that kind" : "");
    else if (table && term_table_print(table, stdout) < 0)
        status = status_worse(status, complain_memory());
    term_table_close(&table);
    return status;
}

/* ---- show ---- */

#define BODY_SHOWN (16u << 10) /* bytes */

/* Print "name            value" with a value that is trusted. */
__attribute__((format(printf, 2, 3))) static void
field_print(const char *name, const char *fmt, ...)
{
    va_list args;
    printf("%-16s", name);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
}

/* Print a field whose bytes come from a message or a handler. */
static void field_safe(const char *name, const void *data, size_t size)
{
    printf("%-16s", name);
    safe_text(stdout, data, size, true);
    putchar('\n');
}

/* Print a heading. */
static void title_print(const char *title)
{
    printf("%s%s%s\n", term_colour(stdout, TERM_BOLD), title,
           term_colour(stdout, TERM_PLAIN));
}

/* Print untrusted text of several lines, indented, with a newline at the end.
 */
static void block_print(const char *data, size_t size, const char *indent)
{
    while (size > 0) {
        const char *end = memchr(data, '\n', size);
        size_t line = end ? (size_t)(end - data) : size;

        fputs(indent, stdout);
        safe_text(stdout, data, line, false);
        putchar('\n');
        data += line + (end != NULL);
        size -= line + (end != NULL);
    }
}

/* Print a header line that holds a time in ns since the epoch as a date.
 * Returns false for any other line. */
static bool header_time(const char *line, size_t size)
{
    static const char *const names[] = {"sent: ", "expires: ", "not-before: "};
    char digits[24], time[TIME_TEXT];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t skip = strlen(names[i]);

        if (size <= skip || size - skip >= sizeof digits ||
            memcmp(line, names[i], skip) != 0)
            continue;
        memcpy(digits, line + skip, size - skip);
        digits[size - skip] = '\0';
        if (strspn(digits, "0123456789") != size - skip)
            return false;
        printf("  %s%s\n", names[i],
               term_time_both(strtoull(digits, NULL, 10), time));
        return true;
    }
    return false;
}

/* Visit: print everything but history and body. */
static int fields_print(const struct letter *l, void *arg)
{
    const struct context *ctx = arg;
    const struct store_row *m = &l->m;
    const struct letter_replay *how = &l->replay;
    const char *end = (const char *)m->data + m->header_size, *line, *next;
    char id[ULID_TEXT], time[TIME_TEXT];

    fputs(term_colour(stdout, TERM_BOLD), stdout);
    if (ctx->broker)
        printf("Letter of %s", ctx->queue);
    else
        printf("Letter %" PRId64 " of %s", m->row, ctx->queue);
    printf("%s\n", term_colour(stdout, TERM_PLAIN));
    field_print("message id", "%s", ulid_print(m->id, id));
    if (m->state != STORE_REPLAYED)
        field_print("state", "dead");
    else if (!how->here)
        field_print("state", "replayed, but the machine has restarted since");
    else if (!how->known)
        field_print("state", "replayed, on its way");
    else
        field_print("state", "replayed, %s %s",
                    how->sent ? "on its way since" : "maybe not sent; marked",
                    term_time_both(how->marked_ns, time));
    if (m->state == STORE_REPLAYED && how->here && how->known && !how->sent)
        field_print("to send it",
                    "mqdlq replay --again %s %" PRId64
                    " (if the mqdlq that marked it was killed)",
                    CONTEXT_OPERAND(ctx), m->row);
    field_print("died", "%s", term_time_both(m->died_ns, time));
    field_print("reason", "%s", dead_reason_text(m->reason));
    if (m->error)
        field_safe("error", m->error, strlen(m->error));
    if (l->error_text && (!m->error || strcmp(m->error, l->error_text) != 0))
        field_safe("error text", l->error_text, strlen(l->error_text));
    field_print("attempts", "%" PRIu32, m->attempts);
    field_print("crashes", "%" PRIu32, m->crashes);
    if (m->first_received_ns)
        field_print("first received", "%s",
                    term_time_both(m->first_received_ns, time));
    field_print("priority", "%" PRIu32, m->priority);
    if (m->group)
        field_safe("group", m->group, m->group_size);
    field_print("size", "%zu", l->body_size);
    if (m->flags & STORE_REDELIVERED)
        field_print("redelivered",
                    "a handler may have seen it without a verdict");
    if (m->flags & STORE_LENGTH_INFERRED)
        field_print("size inferred",
                    "the worker was killed while it received it");
    line = m->header_size > 0 ? memchr(m->data, '\n', m->header_size) : NULL;
    if (!line)
        return 0;
    /* Print the header without its first line, the magic, and the empty last
     * line. */
    title_print("Header");
    for (line++; line < end && *line != '\n'; line = next + 1) {
        next = memchr(line, '\n', (size_t)(end - line));
        next = next ? next : end;
        if (!header_time(line, (size_t)(next - line)))
            block_print(line, (size_t)(next - line), "  ");
    }
    return 0;
}

/* The letter whose attempts are printed. */
struct shown {
    struct context *ctx;
    int64_t row;
    char *tail; /* the standard error printed last; NULL: none yet */
    size_t tail_size;
    unsigned tail_attempt; /* number of its attempt */
};

/* Visit: print one failed delivery, and the end of its standard error unless
 * that equals the last one printed. */
static int attempt_print(unsigned n, const struct store_attempt *a, void *arg)
{
    struct shown *v = arg;
    const char *machine, *tail = a->stderr_tail;
    char time[TIME_TEXT], took[DURATION_TEXT], used[USAGE_TEXT];
    size_t size = a->stderr_size;
    uint64_t whole = a->duration_ns;

    if (whole >= NS_PER_MS)
        whole -= whole % NS_PER_MS; /* for people; --json has all digits */
    if (n == 1)
        title_print("Attempts");
    printf("  %u  %s  took %s", n, term_time(a->started_ns, time),
           duration_print(whole, took));
    printf("%s%s  ", *usage_print(&a->usage, used) ? ", " : "", used);
    if (a->error)
        safe_text(stdout, a->error, strlen(a->error), true);
    machine = v->ctx->broker
                  ? v->ctx->letters->machine(v->ctx->broker, v->row, n)
                  : NULL;
    if (machine) {
        fputs("  on ", stdout);
        safe_text(stdout, machine, strlen(machine), true);
    }
    putchar('\n');
    if (size == 0)
        return 0;
    /* Print repeated output once, because a traceback that differs would be
     * hard to find among equal ones. */
    if (v->tail && v->tail_size == size && memcmp(v->tail, tail, size) == 0) {
        printf("       (standard error as in attempt %u)\n", v->tail_attempt);
        return 0;
    }
    block_print(tail, size, "       ");
    free(v->tail);
    v->tail = malloc(size);
    if (!v->tail)
        return -ENOMEM;
    memcpy(v->tail, tail, size);
    v->tail_size = size;
    v->tail_attempt = n;
    return 0;
}

/* Visit: print the first BODY_SHOWN bytes of the body, made safe; with --body
 * the whole body, unchanged. */
static int body_print(const struct letter *l, void *arg)
{
    const struct context *ctx = arg;
    size_t shown = l->body_size < BODY_SHOWN ? l->body_size : BODY_SHOWN;

    if (ctx->o->body) {
        fwrite(l->body, 1, l->body_size, stdout);
        return 0;
    }
    title_print("Body");
    block_print(l->body, shown, "  ");
    if (shown < l->body_size)
        printf("  (%zu more byte%s; --body prints all)\n", l->body_size - shown,
               term_plural(l->body_size - shown));
    return 0;
}

/* Show the chosen letters, newest first. */
int show_run(struct context *ctx)
{
    struct selection c;
    int err = 0, status;

    if (ctx->o->json)
        return list_json(ctx);
    status = selection_make(&c, ctx);
    if (status)
        return status;
    status = c.missing ? EX_NOINPUT : 0;
    if (ctx->o->body && c.count > 1)
        status = complain(
            EX_USAGE, "--body is for one letter, and %zu are chosen", c.count);
    else if (c.count == 0 && !c.missing)
        status = complain(EX_NOINPUT, "no letter of %s matches", ctx->queue);
    else
        for (size_t i = c.count; i-- > 0;) {
            int64_t row = c.picks[i].name.row;
            struct shown shown = {.ctx = ctx, .row = row};

            if (!ctx->o->body) {
                err = letters_get(ctx->store, row, fields_print, ctx);
                if (!err)
                    err =
                        letters_history(ctx->store, row, attempt_print, &shown);
                free(shown.tail);
            }
            if (!err)
                err = letters_get(ctx->store, row, body_print, ctx);
            if (err && err != -ENOENT)
                break;
            if (err)
                status =
                    complain(EX_NOINPUT, "letter %" PRId64 " is gone", row);
            if (i > 0)
                putchar('\n');
        }
    if (err && err != -ENOENT)
        status = store_failed("read a letter", err);
    selection_free(&c);
    return status;
}
