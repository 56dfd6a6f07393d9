/* selection.c - choose the letters that a verb works on (see mqdlq.h) */
#include "scripts/mqdlq/mqdlq.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/stdlib.h>

#include "common/base/basics.h"
#include "common/base/problem.h"
#include "common/cli/complain.h"

#define BLANKS " \t\r\n"

/* Add a letter: 0 or -ENOMEM. */
static int pick_add(struct selection *c, int64_t row, const struct ulid *id,
                    uint64_t died_ns)
{
    struct pick *picks =
        array_grow(c->picks, c->count, &c->room, sizeof *picks);

    if (!picks)
        return -ENOMEM;
    c->picks = picks;
    c->picks[c->count++] =
        (struct pick){.died_ns = died_ns, .name = {row, *id}};
    return 0;
}

/* Visit: choose the letter. */
static int letter_pick(const struct letter *l, void *arg)
{
    return pick_add(arg, l->m.row, &l->m.id, l->m.died_ns);
}

/* Order picks for qsort(3): oldest death first, then by row. */
static int pick_order(const void *a, const void *b)
{
    const struct pick *x = a, *y = b;

    if (x->died_ns != y->died_ns)
        return x->died_ns < y->died_ns ? -1 : 1;
    return (x->name.row > y->name.row) - (x->name.row < y->name.row);
}

/* ---- ids ---- */

/* Complain that no letter has this id. `row` (0: none) may be a message that is
 * no letter: a replayed message that failed waits like any other. */
static void id_missing(struct selection *c, const struct context *ctx,
                       int64_t row, const char *text)
{
    struct store_row m;

    c->missing = true;
    if (row && ctx->store &&
        store_get(ctx->store, row, &m, NULL, 0, NULL) == 0 &&
        (m.state == STORE_WAITING || m.state == STORE_PARKED))
        complain(
            0,
            "%s is not a dead letter: the message waits in the store for its "
            "%s; see mqctl explain %s %s",
            text, m.attempts > 0 ? "next attempt" : "first attempt",
            CONTEXT_OPERAND(ctx), text);
    else
        complain(0, "%s has no letter %s; see mqdlq list %s", ctx->queue, text,
                 CONTEXT_OPERAND(ctx));
}

/* Choose the letters with a message id. On this machine, refuse an id of more
 * than one letter. */
static int message_pick(struct selection *c, const struct context *ctx,
                        const struct ulid *id, const char *text)
{
    struct store_cursor found[STORE_PAGE], after = {0};
    size_t before = c->count;
    int64_t row = 0;
    int n, err = 0;

    do {
        n = ctx->store ? letters_of_id(ctx->store, id, &after, found) : 0;
        err = n < 0 ? n : 0;
        for (int i = 0; i < n && !err; i++) {
            after = found[i];
            err = pick_add(c, after.row, id, after.ns);
        }
    } while (!err && n == STORE_PAGE);
    if (err)
        return store_failed("read the letters", err);
    if (c->count == before) {
        if (ctx->store && store_find_id(ctx->store, id, &row) != 0)
            row = 0;
        id_missing(c, ctx, row, text);
    }
    if (c->count > before + 1 && !ctx->broker)
        return complain(EX_USAGE,
                        "%zu letters have the message id %s, one of them is "
                        "%" PRId64 "; give numbers of the ID column",
                        c->count - before, text, after.row);
    return 0;
}

/* Choose by a row number or a message id. */
static int id_pick(struct selection *c, const struct context *ctx,
                   const char *text)
{
    const char *trouble = NULL;
    struct ulid id;
    int64_t row;
    int err = -ENOENT;

    if (ulid_parse(text, strlen(text), &id) == 0)
        return message_pick(c, ctx, &id, text);
    row = strtonum(text, 1, INT64_MAX, &trouble);
    if (strcmp(text, "all") == 0)
        return complain(EX_USAGE, "\"all\" is not an id; %s",
                        ctx->o->line.verb == VERB_REPLAY ||
                                ctx->o->line.verb == VERB_DISCARD
                            ? "did you mean --all?"
                            : "see mqdlq list");
    if (trouble || ctx->broker || text[strspn(text, "0123456789")])
        return complain(EX_USAGE,
                        "\"%s\" is not an id; give %sa message id of 26 "
                        "characters",
                        text,
                        ctx->broker ? "" : "a number of the ID column or ");
    if (ctx->store)
        err = letters_get(ctx->store, row, letter_pick, c);
    if (err == -ENOENT)
        id_missing(c, ctx, row, text);
    return err && err != -ENOENT ? store_failed("read the letters", err) : 0;
}

/* Choose by the ids on stdin, separated by blanks. */
static int ids_from_stdin(struct selection *c, const struct context *ctx)
{
    char *line = NULL, *more;
    size_t room = 0;
    int status = 0, err = 0;

    complain_reads("ids");
    while (!status) {
        char *word;

        if (getline(&line, &room, stdin) < 0) {
            err = errno;
            break;
        }
        word = strtok_r(line, BLANKS, &more);
        for (; word && !status; word = strtok_r(NULL, BLANKS, &more))
            status = id_pick(c, ctx, word);
    }
    /* Without memory, getline(3) sets no flag of the file before glibc 2.41:
     * anything but the end of the input is a failure. */
    if (!status && !feof(stdin))
        status = err == ENOMEM
                     ? complain_memory()
                     : complain(EX_IOERR, "cannot read ids from stdin: %s",
                                errno_text(err));
    free(line);
    return status;
}

/* ---- all ---- */

int selection_make(struct selection *c, const struct context *ctx)
{
    const struct options *o = ctx->o;
    size_t kept = 0;
    int status = 0, err = 0;

    *c = (struct selection){.by_id = o->line.operand_count > 1};
    for (int i = 1; i < o->line.operand_count && !status; i++)
        status = strcmp(o->line.operands[i], "-") == 0
                     ? ids_from_stdin(c, ctx)
                     : id_pick(c, ctx, o->line.operands[i]);
    if (!c->by_id && ctx->store)
        err = letters_each(ctx->store, &o->filter, true, letter_pick, c);
    if (err)
        status = store_failed("read the letters", err);
    if (status) {
        selection_free(c);
        return status;
    }
    if (c->count > 0)
        qsort(c->picks, c->count, sizeof *c->picks, pick_order);
    for (size_t i = 0; i < c->count; i++)
        if (kept == 0 || c->picks[kept - 1].name.row != c->picks[i].name.row)
            c->picks[kept++] = c->picks[i];
    c->count = kept;
    return 0;
}

/* Visit: count the letter if it was sent in this run of the machine. */
static int on_way_count(const struct letter *l, void *arg)
{
    uint64_t *n = arg;

    *n += l->replay.here;
    return 0;
}

int selection_on_way(const struct selection *c, const struct context *ctx,
                     uint64_t *count)
{
    struct letter_filter f = ctx->o->filter;
    int err;

    *count = 0;
    if (c->by_id || f.replayed || !ctx->store)
        return 0;
    f.replayed = true;
    err = letters_each(ctx->store, &f, true, on_way_count, count);
    return err ? store_failed("read the letters", err) : 0;
}

void selection_free(struct selection *c)
{
    free(c->picks);
    *c = (struct selection){0};
}
