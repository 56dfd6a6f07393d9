/* remove.c - remove dead letters: the verbs discard and purge
 *
 * Called by main, in one thread.
 */
#include "scripts/mqdlq/mqdlq.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"
#include "scripts/mqdlq/broker.h"

#define BATCH     256  /* letters of one transaction */
#define MANY_GONE 1000 /* removed letters that make shrinking worthwhile */

/* Visit, for --dry-run: print a letter that would be removed. */
static int letter_foretell(const struct letter *l, void *arg)
{
    const struct context *ctx = arg;
    char id[ULID_TEXT], time[TIME_TEXT];

    ulid_print(l->m.id, id);
    if (ctx->o->json)
        return json_print_line(
            json_pack("{s:o*, s:s, s:o, s:s, s:s?}", "id",
                      ctx->broker ? NULL : json_integer(l->m.row), "message_id",
                      id, "died_at", json_time(l->m.died_ns), "reason",
                      dead_reason_text(l->m.reason), "error", l->m.error),
            stdout);
    fputs("would remove ", stdout);
    if (!ctx->broker)
        printf("%" PRId64 " ", l->m.row);
    printf("%s died %s %s", id, term_time(l->m.died_ns, time),
           dead_reason_text(l->m.reason));
    if (l->m.error) {
        fputs(": ", stdout);
        safe_text(stdout, l->m.error, strlen(l->m.error), true);
    }
    putchar('\n');
    return 0;
}

/* Print the number of letters removed, and of letters being replayed. */
static int removed_tell(const struct context *ctx, const struct selection *c,
                        uint64_t gone)
{
    bool dry = ctx->o->dry_run;
    uint64_t on_way;
    int status = selection_on_way(c, ctx, &on_way);

    if (status)
        return status;
    if (summary_print(ctx, json_pack("{s:o, s:I, s:I, s:b, s:I}", "queue",
                                     json_printable(ctx->queue), "chosen",
                                     (json_int_t)c->count, "removed",
                                     (json_int_t)gone, "dry_run", dry, "on_way",
                                     (json_int_t)on_way)))
        return 0;
    if (dry)
        printf("%zu letter%s would be removed", c->count,
               term_plural(c->count));
    else
        printf("%" PRIu64 " of %zu letter%s removed", gone, c->count,
               term_plural(c->count));
    if (on_way > 0)
        printf("; " ON_WAY_CLAUSE, ON_WAY_ARGS(on_way, ctx));
    putchar('\n');
    return 0;
}

int remove_run(struct context *ctx)
{
    struct term_progress bar = {0};
    bool dry = ctx->o->dry_run;
    struct selection c;
    struct letter_name names[BATCH];
    int64_t gone = 0, n = 0;
    int err = 0, status = selection_make(&c, ctx);

    if (status)
        return status;
    for (size_t i = 0; dry && i < c.count && !err; i++) {
        err =
            letters_get(ctx->store, c.picks[i].name.row, letter_foretell, ctx);
        err = err == -ENOENT ? 0 : err;
    }
    if (err)
        status = store_failed("read a letter", err);
    if (!dry && c.count > 1 && !ctx->o->quiet)
        term_progress_start(&bar, "removing", c.count);
    for (size_t at = 0; !dry && at < c.count && !cli_interrupt_seen();) {
        size_t count = 0;

        for (; count < BATCH && at < c.count; at++)
            names[count++] = c.picks[at].name;
        n = ctx->broker ? ctx->letters->discard(ctx, names, count)
                        : letters_discard(ctx->store, names, count);
        if (n < 0)
            break;
        gone += n;
        term_progress_step(&bar, at);
    }
    term_progress_end(&bar);
    if (n < 0)
        status = store_failed("remove letters", (int)n);
    if (!dry && cli_interrupt_seen())
        status = complain(EX_TEMPFAIL, "interrupted");
    /* The letters are gone whether the file shrinks or not. */
    if (!status && gone >= MANY_GONE && !ctx->broker)
        letters_shrink(ctx->store);
    if (!err)
        status = status_worse(status, removed_tell(ctx, &c, (uint64_t)gone));
    status = status_worse(status, c.missing ? EX_NOINPUT : 0);
    selection_free(&c);
    return status;
}
