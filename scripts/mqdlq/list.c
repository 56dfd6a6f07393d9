/* list.c - see mqdlq.h */
#include "scripts/mqdlq/mqdlq.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/message/error_text.h"
#include "common/store/letter_json.h"
#include "common/text/complain.h"
#include "common/text/json_line.h"
#include "common/text/term_table.h"
#include "common/text/term_time.h"
#include "scripts/mqdlq/broker.h"
#include "scripts/mqdlq/selection.h"

/* ---- the table ---- */

struct listing {
    struct term_table *table;
    bool numbered; /* letters have numbers */
    uint64_t rows;
};

/* letter_row - visit: one line of the table */
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
    term_cellf(t, "%s", term_time_ago(l->m.died_ns, time));
    term_cellf(t, "%" PRIu32, l->m.attempts);
    term_cellf(t, "%s", dead_reason_text(l->m.reason));
    error_text_join(error, sizeof error, l->m.error, l->error_text);
    term_cell(t, error, strlen(error));
    term_cell(t, l->m.group ? l->m.group : "", l->m.group_size);
    term_cellf(t, "%zu", l->body_size);
    term_cell(t, l->body, preview);
    if (++listing->rows % TERM_TABLE_PART == 0)
        term_table_print(t, stdout);
    return cli_interrupt_seen() ? -EINTR : 0;
}

/* none_tell - an empty list; context_open has told where there is no store */
static void none_tell(const struct context *ctx)
{
    const struct selection all = {0};
    uint64_t on_way = 0;

    if (ctx->store && selection_on_way(&all, ctx, &on_way) == 0 && on_way > 0)
        complain(0, "%s has no dead letters; " ON_WAY_CLAUSE, ctx->queue,
                 on_way, on_way == 1 ? "is" : "are",
                 on_way == 1 ? "its" : "their", SHELL_QUEUE(ctx->queue));
    else if (ctx->store)
        complain(0,
                 filter_given(ctx->o) ? "%s has no letter that was asked for"
                                      : "%s has no dead letters",
                 ctx->queue);
}

/* list_table - newest first */
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
    out = listing.rows ? term_table_print(listing.table, stdout) : 0;
    term_table_close(&listing.table);
    if (!err && out)
        return store_failed("print the table", out);
    if (!err && listing.rows == 0)
        none_tell(ctx);
    return err && err != -EINTR ? store_failed("read the letters", err) : 0;
}

/* ---- --count, --by ---- */

struct summary {
    struct term_table *table; /* NULL: JSON */
    const char *by;
    bool by_error;
    uint64_t total, rows;
};

/* tally_count - visit: add up */
static int tally_count(const struct letter_tally *t, void *arg)
{
    ((struct summary *)arg)->total += t->count;
    return 0;
}

/* list_count - a number */
static int list_count(struct context *ctx)
{
    struct summary summary = {0};
    int err = 0;

    if (ctx->store)
        err = letters_summary(ctx->store, LETTER_BY_REASON, &ctx->o->filter,
                              tally_count, &summary);
    if (err)
        return store_failed("count the letters", err);
    if (!summary_told(ctx, json_pack("{s:o, s:I}", "queue",
                                     json_printable(ctx->queue), "count",
                                     (json_int_t)summary.total)))
        printf("%" PRIu64 "\n", summary.total);
    return 0;
}

/* tally_json - visit: {"reason":"rejected","count":3,"newest":"..."} */
static int tally_json(const struct letter_tally *t, const struct summary *s)
{
    char time[TIME_TEXT], safe[1024];
    json_t *object;

    if (t->value)
        safe_text_copy(safe, sizeof safe, t->value, t->size);
    object = json_pack("{s:s?, s:I, s:s}", s->by, t->value ? safe : NULL,
                       "count", (json_int_t)t->count, "newest",
                       time_print(t->newest_ns, time));
    if (s->by_error &&
        json_object_set_new(object, "error_text",
                            t->text ? json_string(t->text) : json_null()) < 0) {
        json_decref(object);
        return -ENOMEM;
    }
    return json_print_line(object, stdout);
}

/* tally_row - visit: one line of the table */
static int tally_row(const struct letter_tally *t, void *arg)
{
    struct summary *summary = arg;
    char time[TIME_TEXT], error[ERROR_JOINED];
    const char *value = t->value;
    size_t size = t->size;

    if (!summary->table)
        return tally_json(t, summary);
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

/* list_by - the most frequent value first */
static int list_by(struct context *ctx)
{
    static const char *const names[] = {
        [LETTER_BY_REASON] = "reason",
        [LETTER_BY_ERROR] = "error",
        [LETTER_BY_GROUP] = "group",
    };
    static const char *const titles[] = {
        [LETTER_BY_REASON] = "REASON",
        [LETTER_BY_ERROR] = "ERROR",
        [LETTER_BY_GROUP] = "GROUP",
    };
    const struct term_column columns[] = {
        {"COUNT", TERM_RIGHT, TERM_WHOLE},
        {titles[ctx->o->by], TERM_LEFT, TERM_END},
        {"NEWEST", TERM_LEFT, TERM_WHOLE},
    };
    struct summary summary = {.by = names[ctx->o->by],
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

/* json_lines - the chosen letters; one that is gone by now is left out */
static int json_lines(struct context *ctx, const struct selection *c,
                      bool backwards)
{
    const struct letter_elsewhere elsewhere = {broker_machine, ctx->broker};

    for (size_t i = 0; i < c->count && !cli_interrupt_seen(); i++) {
        size_t at = backwards ? c->count - 1 - i : i;
        int err = letter_json_print(ctx->store, ctx->queue, c->picks[at].row,
                                    ctx->broker ? &elsewhere : NULL, stdout);

        if (err && err != -ENOENT)
            return store_failed("print a letter", err);
    }
    return c->missing ? EX_NOINPUT : 0;
}

/* list_json - choose, then print */
int list_json(struct context *ctx, bool backwards)
{
    struct selection c;
    int status = selection_make(&c, ctx);

    if (status)
        return status;
    status = json_lines(ctx, &c, backwards);
    selection_free(&c);
    return status;
}

/* list_run - list */
int list_run(struct context *ctx)
{
    if (ctx->o->count)
        return list_count(ctx);
    if (ctx->o->has_by)
        return list_by(ctx);
    return ctx->o->json ? list_json(ctx, true) : list_table(ctx);
}

/* export_run - export: oldest first, so that import keeps the order */
int export_run(struct context *ctx)
{
    return list_json(ctx, false);
}
