/* mqdlq_remove.c - see mqdlq_remove.h */
#include "scripts/mqdlq/mqdlq_remove.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/text/cli_interrupt.h"
#include "common/store/letters.h"
#include "common/text/term.h"
#include "common/text/term_progress.h"
#include "scripts/mqdlq/mqdlq_selection.h"

#define BATCH     256  /* letters of one transaction */
#define MANY_GONE 1000 /* from here on the file may be worth shrinking */

/* letter_foretell - visit: what would be removed */
static int letter_foretell(const struct letter *l, void *arg)
{
    char id[ULID_TEXT], time[TIME_TEXT];
    (void)arg;
    printf("would remove %" PRId64 " %s died %s %s", l->m.row,
           ulid_print(l->m.id, id), time_print(l->m.died_ns, time),
           dead_reason_text(l->m.reason));
    if (l->m.error) {
        fputs(": ", stdout);
        safe_text(stdout, l->m.error, strlen(l->m.error), true);
    }
    putchar('\n');
    return 0;
}

/* choice_foretell - --dry-run */
static int choice_foretell(struct context *d, const struct selection *c)
{
    for (size_t i = 0; i < c->count; i++) {
        int err = letters_get(d->store, c->picks[i].row, letter_foretell, NULL);
        if (err && err != -ENOENT)
            return context_store_failed("read a letter", err);
    }
    printf("%zu letter%s would be removed\n", c->count,
           context_plural(c->count));
    return 0;
}

/* batch_remove - up to BATCH letters from `at` on; how many went, or -errno */
static int64_t batch_remove(struct context *d, const struct selection *c,
                            size_t at)
{
    int64_t rows[BATCH];
    size_t n = 0;
    while (n < BATCH && at + n < c->count) {
        rows[n] = c->picks[at + n].row;
        n++;
    }
    return letters_discard(d->store, rows, n);
}

/* choice_remove - all of them; 0 or an exit status */
static int choice_remove(struct context *d, const struct selection *c)
{
    struct term_progress bar = {0};
    uint64_t gone = 0;
    int64_t n = 0;
    if (c->count > 1)
        term_progress_start(&bar, "removing", c->count);
    for (size_t at = 0; at < c->count && !cli_interrupt_seen(); at += BATCH) {
        n = batch_remove(d, c, at);
        if (n < 0)
            break;
        gone += (uint64_t)n;
        term_progress_step(&bar, at + BATCH);
    }
    term_progress_end(&bar);
    int status = n < 0 ? context_store_failed("remove letters", (int)n) : 0;
    if (cli_interrupt_seen())
        status = context_say(EX_TEMPFAIL, "interrupted");
    /* The letters are gone whether the file shrinks or not. */
    if (!status && gone >= MANY_GONE)
        letters_shrink(d->store);
    printf("%" PRIu64 " of %zu letter%s removed\n", gone, c->count,
           context_plural(c->count));
    return status;
}

/* remove_run - discard, purge */
int remove_run(struct context *d)
{
    struct selection c;
    int status = selection_make(&c, d);
    if (status)
        return status;
    status = d->o->dry_run ? choice_foretell(d, &c) : choice_remove(d, &c);
    status = context_worse(status, c.missing ? EX_NOINPUT : 0);
    selection_free(&c);
    return status;
}
