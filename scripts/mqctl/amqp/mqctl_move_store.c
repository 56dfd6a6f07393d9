/* mqctl_move_store.c - what waits in the store, and dead letters (see
 * mqctl_move.h)
 *
 * Each of them is sent, then confirmed, then removed.
 * Crash before the confirm: it is here. Between the confirm and the removal: it
 * is here and there, with one id, and the next move sends it again.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/errno_text.h"
#include "common/base/fault_point.h"
#include "common/custody/custody.h"
#include "common/letter/letters.h"
#include "common/store/store_spool.h"
#include "common/text/cli_interrupt.h"
#include "common/waiting/waiting.h"
#include "scripts/mqctl/amqp/mqctl_move.h"

#define PAGE (CUSTODY_BODY_MAX + 4096) /* any message has room */

/* Rows of one batch. */
struct page {
    struct move *m;
    enum move_from from;
    char *data; /* PAGE bytes */
    int64_t rows[MOVE_BATCH];
    size_t count;
    struct problem *p;
};

static int unwritten(struct page *g, int err)
{
    return problem_set(g->p, EX_CANTCREAT, -err,
                       "the store of %s cannot be written: %s; run it once "
                       "more, what was confirmed and is here still goes there "
                       "twice, with one id",
                       g->m->v.queue, errno_text(-err));
}

/* rows_remove - they are on the broker */
static int rows_remove(struct page *g)
{
    struct store *s = g->m->store;
    int64_t n = 0;
    int err = 0;

    if (g->from == MOVE_SPOOL) {
        err = store_spool_change(s, &(struct store_spool_change){
                                        .out = g->rows, .out_count = g->count});
    } else if (g->from == MOVE_LETTERS) {
        n = letters_discard(s, g->rows, g->count);
        err = n < 0 ? (int)n : 0;
    } else {
        for (size_t i = 0; i < g->count && !err; i++)
            err = store_delete(s, g->rows[i]);
    }
    return err ? unwritten(g, err) : 0;
}

static int page_end(struct page *g)
{
    int err = move_flush(g->m, g->from, g->p);

    FAULT_POINT("amqp_move_stored");
    if (!err)
        err = rows_remove(g);
    g->count = 0;
    return err;
}

/* page_put - one more, and the batch if that is full */
static int page_put(struct page *g, int64_t row, const struct move_message *msg)
{
    int err = cli_interrupt_seen()
                  ? problem_set(g->p, EX_TEMPFAIL, EINTR, "interrupted")
                  : move_put(g->m, msg, g->p);

    if (err)
        return err;
    g->rows[g->count++] = row;
    return g->count == MOVE_BATCH ? page_end(g) : 0;
}

static int page_open(struct page *g, struct move *m, enum move_from from,
                     struct problem *p)
{
    *g = (struct page){.m = m, .from = from, .p = p, .data = malloc(PAGE)};
    return g->data ? 0 : problem_set(p, EX_OSERR, ENOMEM, "out of memory");
}

/* page_close - what is left of it; `err` of its visits. What came before one
 * that cannot be sent is on its way */
static int page_close(struct page *g, int err)
{
    struct problem why = *g->p;
    int end = !err || err == -ENOTSUP ? page_end(g) : 0;

    free(g->data);
    if (!err)
        return end;
    *g->p = why;
    if (why.text[0])
        return err;
    return problem_set(g->p, EX_CANTCREAT, -err,
                       "the store of %s cannot be read: %s", g->m->v.queue,
                       errno_text(-err));
}

/* ---- retries and delays ---- */

static int waiting_visit(const struct waiting_row *w, void *arg)
{
    struct page *g = arg;
    uint64_t wall = clock_wall_ns(), steady = clock_steady_ns();
    struct store_row row;
    int err = store_get(g->m->store, w->m.row, &row, g->data, PAGE, NULL);

    if (err)
        return err == -ENOENT ? 0 : err;
    return page_put(
        g, w->m.row,
        &(struct move_message){
            .id = row.id,
            .priority = row.priority,
            .data = g->data,
            .size = row.size,
            .attempt = row.attempts,
            .first_ns = row.attempts ? row.first_received_ns : 0,
            .due_ns = row.due_ns > steady ? wall + (row.due_ns - steady) : wall,
            .doubt = row.flags & STORE_REDELIVERED,
            .row = w->m.row});
}

int move_waiting(struct move *m, struct problem *p)
{
    const struct waiting_filter all = {.states = WAITING_ALL};
    const struct waiting_place first = {0};
    struct page g;
    int err = page_open(&g, m, MOVE_WAITING, p);

    if (err)
        return err;
    return page_close(&g,
                      waiting_each(m->store, &all, &first, waiting_visit, &g));
}

/* ---- the spool ---- */

static int spool_visit(const struct store_spooled *s, void *arg)
{
    struct page *g = arg;
    static const struct ulid none;
    struct ulid id = s->id;
    char why[HEADER_WHY];
    struct header h;

    if (memcmp(&id, &none, sizeof id) == 0 &&
        header_parse(s->data, s->size, &h, why) == 0 && h.fields & HEADER_ID)
        id = h.id;
    if (memcmp(&id, &none, sizeof id) == 0) {
        /* Durable before it is sent: a second sending has it, too. */
        struct store_spooled named = *s;
        int err;

        named.id = id = ulid_make(s->received_ns);
        err = store_spool_note(g->m->store, &named);
        if (err)
            return err;
    }
    return page_put(
        g, s->key,
        &(struct move_message){.id = id,
                               .priority = store_spool_priority(s->key),
                               .data = s->data,
                               .size = s->size,
                               .doubt = s->flags & STORE_REDELIVERED});
}

int move_spool(struct move *m, struct problem *p)
{
    struct page g;
    int err = page_open(&g, m, MOVE_SPOOL, p);

    if (err)
        return err;
    return page_close(&g, store_spool_each(m->store, 0, spool_visit, &g));
}

/* ---- letters ---- */

static int letter_visit(const struct letter *l, void *arg)
{
    struct page *g = arg;

    if (l->m.group) {
        g->m->grouped++;
        return 0;
    }
    return page_put(g, l->m.row,
                    &(struct move_message){.id = l->m.id,
                                           .priority = l->m.priority,
                                           .data = l->m.data,
                                           .size = l->m.size,
                                           .attempt = l->m.attempts,
                                           .first_ns = l->m.first_received_ns,
                                           .row = l->m.row,
                                           .letter = &l->m});
}

int move_letters(struct move *m, struct problem *p)
{
    const struct letter_filter all = {0};
    struct page g;
    int err = page_open(&g, m, MOVE_LETTERS, p);

    if (err)
        return err;
    return page_close(&g, letters_each(m->store, &all, true, letter_visit, &g));
}
