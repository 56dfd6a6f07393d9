/* selection.c - see selection.h */
#include "scripts/mqdlq/selection.h"

#include <bsd/stdlib.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/basics.h"
#include "common/base/problem.h"
#include "common/store/letters.h"
#include "common/text/complain.h"

#define BLANKS " \t\r\n"

/* A message id that was asked for, and the letters that have it. */
struct wanted {
    struct ulid id;
    int64_t row;
    uint64_t found;
};

/* Ids while they are looked up. */
struct lookup {
    struct selection *selection;
    const struct context *context;
    struct wanted *wanted;
    size_t count, room;
};

/* pick_add - one more letter; 0 or -ENOMEM */
static int pick_add(struct selection *c, int64_t row, uint64_t died_ns)
{
    struct pick *picks =
        array_grow(c->picks, c->count, &c->room, sizeof *picks);

    if (!picks)
        return -ENOMEM;
    c->picks = picks;
    c->picks[c->count++] = (struct pick){.died_ns = died_ns, .row = row};
    return 0;
}

/* letter_pick - visit: take the letter */
static int letter_pick(const struct letter *l, void *arg)
{
    return pick_add(arg, l->m.row, l->m.died_ns);
}

/* pick_order - qsort: oldest death first, then by row */
static int pick_order(const void *a, const void *b)
{
    const struct pick *x = a, *y = b;

    if (x->died_ns != y->died_ns)
        return x->died_ns < y->died_ns ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

/* selection_sort - oldest first, each once */
static void selection_sort(struct selection *c)
{
    size_t kept = 0;

    if (c->count > 0)
        qsort(c->picks, c->count, sizeof *c->picks, pick_order);
    for (size_t i = 0; i < c->count; i++)
        if (kept == 0 || c->picks[kept - 1].row != c->picks[i].row)
            c->picks[kept++] = c->picks[i];
    c->count = kept;
}

/* selection_by_filter - all letters that match */
static int selection_by_filter(struct selection *c, const struct context *ctx)
{
    struct letter_filter f = ctx->o->filter;
    int err;

    if (!ctx->store)
        return 0;
    err = letters_each(ctx->store, &f, true, letter_pick, c);
    return err ? store_failed("read the letters", err) : 0;
}

/* ---- ids ---- */

/* id_missing - name an id that no letter has */
static void id_missing(struct lookup *k, const char *text)
{
    k->selection->missing = true;
    complain(0, "%s has no letter %s; see mqdlq list", k->context->queue, text);
}

/* row_look - an id that is a row number */
static int row_look(struct lookup *k, const char *text, int64_t row)
{
    int err = -ENOENT;

    if (k->context->store)
        err = letters_get(k->context->store, row, letter_pick, k->selection);
    if (err == -ENOENT)
        id_missing(k, text);
    else if (err)
        return store_failed("read the letters", err);
    return 0;
}

/* wanted_add - a message id, to be looked for with the others */
static int wanted_add(struct lookup *k, struct ulid id)
{
    struct wanted *wanted =
        array_grow(k->wanted, k->count, &k->room, sizeof *wanted);

    if (!wanted)
        return store_failed("look for the ids", -ENOMEM);
    k->wanted = wanted;
    k->wanted[k->count++] = (struct wanted){.id = id};
    return 0;
}

/* id_take - a row number or a message id */
static int id_take(struct lookup *k, const char *text)
{
    const char *trouble = NULL;
    struct ulid id;

    if (ulid_parse(text, strlen(text), &id) == 0)
        return wanted_add(k, id);
    if (text[strspn(text, "0123456789")] == '\0') {
        int64_t row = strtonum(text, 1, INT64_MAX, &trouble);

        if (!trouble && !k->context->broker)
            return row_look(k, text, row);
    }
    return complain(
        EX_USAGE, "\"%s\" is not an id; give %sa message id of 26 characters",
        text, k->context->broker ? "" : "a number of the ID column or ");
}

/* ids_from_stdin - ids with blanks between them */
static int ids_from_stdin(struct lookup *k)
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
            status = id_take(k, word);
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

/* wanted_order - qsort and bsearch: by message id */
static int wanted_order(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;

    return memcmp(&x->id, &y->id, sizeof x->id);
}

/* wanted_visit - visit: note the letter if its message id was asked for */
static int wanted_visit(const struct letter *l, void *arg)
{
    struct lookup *k = arg;
    struct wanted key = {.id = l->m.id};
    struct wanted *w =
        bsearch(&key, k->wanted, k->count, sizeof key, wanted_order);

    if (!w)
        return 0;
    w->found++;
    w->row = l->m.row;
    return pick_add(k->selection, l->m.row, l->m.died_ns);
}

/* wanted_scan - one pass over all letters for all message ids */
static int wanted_scan(struct lookup *k)
{
    struct letter_filter dead = {0}, replayed = {.replayed = true};
    int err = 0;
    size_t kept;

    qsort(k->wanted, k->count, sizeof *k->wanted, wanted_order);
    kept = 1;
    for (size_t i = 1; i < k->count; i++)
        if (wanted_order(&k->wanted[kept - 1], &k->wanted[i]) != 0)
            k->wanted[kept++] = k->wanted[i];
    k->count = kept;
    if (k->context->store)
        err = letters_each(k->context->store, &dead, true, wanted_visit, k);
    if (!err && k->context->store)
        err = letters_each(k->context->store, &replayed, true, wanted_visit, k);
    return err ? store_failed("read the letters", err) : 0;
}

/* wanted_judge - each message id must have been of exactly one letter */
static int wanted_judge(struct lookup *k)
{
    char text[ULID_TEXT];

    for (size_t i = 0; i < k->count; i++) {
        const struct wanted *w = &k->wanted[i];

        ulid_print(w->id, text);
        if (w->found == 0)
            id_missing(k, text);
        else if (w->found > 1 && !k->context->broker)
            return complain(EX_USAGE,
                            "%" PRIu64 " letters have the message id %s, one "
                            "of them is %" PRId64
                            "; give numbers of the ID column",
                            w->found, text, w->row);
    }
    return 0;
}

/* selection_by_ids - the letters that the operands name */
static int selection_by_ids(struct selection *c, const struct context *ctx)
{
    const struct options *o = ctx->o;
    struct lookup k = {.selection = c, .context = ctx};
    int status = 0;

    c->by_id = true;
    for (int i = 1; i < o->line.operand_count && !status; i++)
        status = strcmp(o->line.operands[i], "-") == 0
                     ? ids_from_stdin(&k)
                     : id_take(&k, o->line.operands[i]);
    if (!status && k.count > 0)
        status = wanted_scan(&k);
    if (!status && k.count > 0)
        status = wanted_judge(&k);
    free(k.wanted);
    return status;
}

/* selection_make - by ids if there are any, else by the filter */
int selection_make(struct selection *c, const struct context *ctx)
{
    int status;

    *c = (struct selection){0};
    status = ctx->o->line.operand_count > 1 ? selection_by_ids(c, ctx)
                                            : selection_by_filter(c, ctx);
    if (status)
        selection_free(c);
    else
        selection_sort(c);
    return status;
}

/* Count a letter sent since the machine started. */
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

/* selection_free - give the array back */
void selection_free(struct selection *c)
{
    free(c->picks);
    *c = (struct selection){0};
}
