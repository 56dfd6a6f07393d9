/* move_store.c - from the store to the broker (see move.h)
 *
 * A message is in doubt from the commit before it is sent to the one that
 * removes it. A message that is not sent, a letter's second copy or one that an
 * operator cancelled, is removed with its batch.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/problem.h"
#include "common/cli/complain.h"
#include "common/custody/custody.h"
#include "common/store/letters.h"
#include "common/store/spool.h"
#include "scripts/mqctl/amqp/move.h"

#define PAGE (CUSTODY_BODY_MAX + 4096) /* any message has room */

/* Rows of one batch. */
struct page {
    struct move *m;
    enum move_from from;
    char *data; /* PAGE bytes */
    int64_t rows[MOVE_BATCH];
    struct store_spooled spooled[MOVE_BATCH]; /* of the spool: the same */
    uint64_t died_ns[MOVE_BATCH];             /* of letters */
    int64_t letters[MOVE_BATCH]; /* that are settled with them; 0: none */
    bool doubt[MOVE_BATCH];      /* before this batch was marked */
    bool marked[MOVE_BATCH];     /* with this batch */
    bool unsent[MOVE_BATCH];     /* it is removed, and not sent */
    size_t count;
    struct problem *p;
};

/* failed - what a call of the store says */
static int failed(const struct page *g, int err)
{
    return problem_set(g->p, EX_CANTCREAT, -err,
                       "the store of %s: %s; run it once more: what was "
                       "confirmed and is here still is sent again, marked and "
                       "with the same id",
                       g->m->v.queue, errno_text(-err));
}

/* ---- any batch ---- */

static int interrupted(const struct page *g)
{
    return cli_interrupt_seen()
               ? problem_set(g->p, EX_TEMPFAIL, EINTR, "interrupted")
               : 0;
}

/* letters_settle - those whose messages the broker has
 * Crash after it: the message of a letter that is gone is a copy, and is not
 * sent by the next move. So letters go before the rows of their messages. */
static int letters_settle(struct page *g)
{
    int64_t rows[MOVE_BATCH], n = 0;
    size_t count = 0;

    for (size_t i = 0; i < g->count; i++)
        if (g->letters[i])
            rows[count++] = g->letters[i];
    if (count)
        n = letters_discard(g->m->store, rows, count);
    FAULT_POINT("amqp_move_settled");
    return n < 0 ? failed(g, (int)n) : 0;
}

/* letters_remove - one that mqdlq has sent again just now stays */
static int64_t letters_remove(struct page *g)
{
    struct store_cursor died[MOVE_BATCH];

    for (size_t i = 0; i < g->count; i++)
        died[i] = (struct store_cursor){g->died_ns[i], g->rows[i]};
    return letters_drop(g->m->store, died, g->count);
}

static int rows_remove(struct page *g)
{
    struct store *s = g->m->store;
    int64_t n = 0;
    int err = 0;

    if (g->from == MOVE_QUEUE)
        err = store_spool_change(s, &(struct store_spool_change){
                                        .out = g->rows, .out_count = g->count});
    else if (g->from == MOVE_WAITING)
        err = store_delete_all(s, g->rows, g->count);
    else
        n = letters_remove(g);
    FAULT_POINT("amqp_move_removed");
    return err || n < 0 ? failed(g, err ? err : (int)n) : 0;
}

/* page_end - what was put is confirmed, then nothing of the batch is here */
static int page_end(struct page *g)
{
    int err;

    FAULT_POINT("amqp_move_sent");
    err = move_flush(g->m, g->from, g->p);
    FAULT_POINT("amqp_move_confirmed");
    if (!err)
        err = letters_settle(g);
    return err ? err : rows_remove(g);
}

static int rows_mark(const struct page *g)
{
    int64_t rows[MOVE_BATCH];
    size_t n = 0;

    for (size_t i = 0; i < g->count; i++)
        if (g->marked[i])
            rows[n++] = g->rows[i];
    return n ? store_doubt_rows(g->m->store, rows, n) : 0;
}

/* page_mark - the doubt is on the disk, or nothing is sent. It asks for an
 * interrupt first, as one that comes before the mark is to leave none. */
static int page_mark(const struct page *g)
{
    int err = interrupted(g);

    if (err)
        return err;
    err = g->from == MOVE_QUEUE
              ? store_spool_note_all(g->m->store, g->spooled, g->count)
              : rows_mark(g);
    FAULT_POINT("amqp_move_marked");
    return err ? failed(g, err) : 0;
}

static int page_open(struct page *g, struct move *m, enum move_from from,
                     struct problem *p)
{
    *g = (struct page){.m = m, .from = from, .p = p, .data = malloc(PAGE)};
    return g->data ? 0 : problem_set(p, EX_OSERR, ENOMEM, "out of memory");
}

/* ---- the spool ---- */

/* replay_of - what a message is whose header says that it is a letter: *letter
 * is settled with it, or *over: it was settled already. Two copies may be in
 * one batch. */
static int replay_of(const struct page *g, const struct header *h,
                     int64_t *letter, bool *over)
{
    const unsigned needed = HEADER_LETTER | HEADER_LETTER_TOKEN | HEADER_ID;
    enum store_replay is = REPLAY_NONE;
    int err = 0;

    *letter = 0;
    *over = false;
    if ((h->fields & needed) == needed)
        err = store_replay_find(g->m->store, (int64_t)h->letter, &h->id,
                                &h->letter_token, &is);
    if (err)
        return err;
    *over = is == REPLAY_OVER;
    if (is == REPLAY_OPEN)
        *letter = (int64_t)h->letter;
    for (size_t i = 0; i < g->count && *letter; i++)
        *over = *over || g->letters[i] == *letter;
    if (*over)
        *letter = 0;
    return 0;
}

/* spooled_add - a row, as it is marked from here on: 0, -errno, or -ENOTSUP: it
 * is of a group, and not added */
static int spooled_add(struct page *g, struct store_spooled *s)
{
    static const struct ulid none;
    bool cancelled = s->flags & STORE_CANCELLED, over, stranger;
    struct move *m = g->m;
    struct move_said said;
    int64_t letter;
    int err;

    move_read(m, s->data, s->size, false, &said);
    if (memcmp(&s->id, &none, sizeof none) == 0)
        s->id =
            said.h.fields & HEADER_ID ? said.h.id : ulid_make(s->received_ns);
    err = replay_of(g, &said.h, &letter, &over);
    if (err)
        return err;
    if (!over && !cancelled && said.grouped)
        return -ENOTSUP;
    /* A letter of another store may have run. */
    stranger = said.h.fields & HEADER_LETTER && !letter && !said.expired;
    m->cancelled += cancelled;
    m->over += over && !cancelled;
    m->inferred += (s->flags & STORE_LENGTH_INFERRED) != 0;
    g->rows[g->count] = s->key;
    g->letters[g->count] = letter;
    g->doubt[g->count] = s->flags & STORE_REDELIVERED ||
                         store_spool_seq(s->key) <= m->doubt || stranger;
    g->marked[g->count] = g->doubt[g->count] || !said.expired;
    if (g->marked[g->count])
        s->flags |= STORE_REDELIVERED;
    g->unsent[g->count++] = cancelled || over;
    return 0;
}

static int spooled_put(struct page *g, size_t i, const struct store_spooled *s)
{
    return g->unsent[i] ? 0
                        : move_put(g->m,
                                   &(struct move_message){
                                       .id = s->id,
                                       .at = s->key,
                                       .received_ns = s->received_ns,
                                       .priority = store_spool_priority(s->key),
                                       .data = s->data,
                                       .size = s->size,
                                       .doubt = g->doubt[i]},
                                   g->p);
}

/* spool_page - the first rows; how many there were. The rows before one of a
 * group are sent, and only they are marked */
static int spool_page(struct page *g)
{
    struct store_spooled *rows = g->spooled;
    int n = store_spool_read(g->m->store, 0, rows, MOVE_BATCH, g->data, PAGE);
    int err = n < 0 ? n : 0, stays;

    g->count = 0;
    for (int i = 0; i < n && !err; i++)
        err = spooled_add(g, &rows[i]);
    stays = err == -ENOTSUP;
    if (err && !stays)
        return failed(g, err);
    if (g->count == 0)
        return stays ? move_grouped(g->m, &rows[0].id, g->p) : 0;
    err = page_mark(g);
    for (size_t i = 0; i < g->count && !err; i++)
        err = spooled_put(g, i, &rows[i]);
    if (!err)
        err = page_end(g);
    if (!err && stays)
        err = move_grouped(g->m, &rows[g->count].id, g->p);
    return err ? err : n;
}

int move_spool(struct move *m, struct problem *p)
{
    struct page g;
    int n = page_open(&g, m, MOVE_QUEUE, p);

    if (n)
        return n;
    do {
        n = spool_page(&g);
    } while (n > 0);
    free(g.data);
    return n;
}

/* ---- retries and delays ---- */

/* waiting_add - as it is before it is marked */
static int waiting_add(struct page *g, int64_t row)
{
    struct move_said said;
    char group[256];
    struct store_row is;
    int err = store_get(g->m->store, row, &is, g->data, PAGE, group);

    if (err)
        return failed(g, err);
    move_read(g->m, is.data, is.size, true, &said);
    if (is.group && !(is.flags & STORE_CANCELLED))
        return move_grouped(g->m, &is.id, g->p);
    g->m->cancelled += (is.flags & STORE_CANCELLED) != 0;
    g->m->inferred += (is.flags & STORE_LENGTH_INFERRED) != 0;
    g->rows[g->count] = row;
    g->letters[g->count] = 0;
    g->doubt[g->count] = is.flags & STORE_REDELIVERED;
    g->marked[g->count] = is.attempts > 0 || !said.expired;
    g->unsent[g->count++] = is.flags & STORE_CANCELLED;
    return 0;
}

static int waiting_put(struct page *g, size_t i)
{
    uint64_t wall = clock_wall_ns();
    struct store_row row;
    int err;

    if (g->unsent[i])
        return 0;
    err = store_get(g->m->store, g->rows[i], &row, g->data, PAGE, NULL);
    if (err)
        return failed(g, err);
    return move_put(g->m,
                    &(struct move_message){
                        .id = row.id,
                        .at = g->rows[i],
                        .received_ns = row.first_received_ns,
                        .priority = row.priority,
                        .data = g->data,
                        .size = row.size,
                        .attempt = row.attempts,
                        .first_ns = row.attempts ? row.first_received_ns : 0,
                        .due_ns = row.due_ns > wall ? row.due_ns : wall,
                        .stored = true,
                        .doubt = g->doubt[i],
                        .row = g->rows[i]},
                    g->p);
}

/* waiting_page - those that are due first; how many there were */
static int waiting_page(struct page *g)
{
    int64_t rows[MOVE_BATCH];
    uint64_t next;
    int n =
        store_due(g->m->store, UINT64_MAX, rows, MOVE_BATCH, NULL, NULL, &next);
    int err = n < 0 ? failed(g, n) : 0;

    g->count = 0;
    for (int i = 0; i < n && !err; i++)
        err = waiting_add(g, rows[i]);
    if (err || n == 0)
        return err;
    err = page_mark(g);
    for (size_t i = 0; i < g->count && !err; i++)
        err = waiting_put(g, i);
    if (!err)
        err = page_end(g);
    return err ? err : n;
}

/* parked_remove - what is behind the head of a group and was not seen before
 * anything was sent has been cancelled */
static int parked_remove(struct page *g)
{
    int64_t n = store_delete_cancelled(g->m->store);

    if (n < 0)
        return failed(g, (int)n);
    g->m->cancelled += (uint64_t)n;
    return 0;
}

int move_waiting(struct move *m, struct problem *p)
{
    struct page g;
    int n = page_open(&g, m, MOVE_WAITING, p);

    if (n)
        return n;
    do {
        n = waiting_page(&g);
    } while (n > 0);
    if (n == 0)
        n = parked_remove(&g);
    free(g.data);
    return n;
}

/* ---- letters ---- */

struct letter_put {
    struct page *g;
    size_t i;
};

/* letter_put - unless mqdlq sent it again just now: then it stays */
static int letter_put(const struct letter *l, void *arg)
{
    const struct letter_put *put = arg;

    if (l->m.state != STORE_DEAD || l->m.died_ns != put->g->died_ns[put->i]) {
        put->g->rows[put->i] = 0;
        return 0;
    }
    return move_put(
        put->g->m,
        &(struct move_message){.id = l->m.id,
                               .at = l->m.row,
                               .received_ns = l->m.first_received_ns,
                               .priority = l->m.priority,
                               .data = l->m.data,
                               .size = l->m.size,
                               .attempt = l->m.attempts,
                               .first_ns = l->m.first_received_ns,
                               .stored = true,
                               .doubt = put->g->doubt[put->i],
                               .row = l->m.row,
                               .letter = &l->m},
        put->g->p);
}

static int letters_page(struct page *g)
{
    int err = g->count ? page_mark(g) : 0;

    for (size_t i = 0; i < g->count && !err; i++) {
        struct letter_put put = {g, i};

        err = letters_get(g->m->store, g->rows[i], letter_put, &put);
        if (err == -ENOENT && !g->p->text[0]) /* mqdlq discarded it just now */
            err = 0;
    }
    if (!err && g->count)
        err = page_end(g);
    g->count = 0;
    return err;
}

static int letter_visit(const struct letter *l, void *arg)
{
    struct page *g = arg;
    int err;

    if (l->m.group) {
        g->m->grouped++;
        return 0;
    }
    err = letters_hook_of(g->m->store, l->m.row);
    if (err != -ENOENT) {
        g->m->untold += !err;
        return err;
    }
    g->rows[g->count] = l->m.row;
    g->died_ns[g->count] = l->m.died_ns;
    g->letters[g->count] = 0;
    g->marked[g->count] = true;
    g->doubt[g->count++] = l->m.flags & STORE_REDELIVERED;
    return g->count == MOVE_BATCH ? letters_page(g) : 0;
}

int move_letters(struct move *m, struct problem *p)
{
    const struct letter_filter all = {0};
    struct page g;
    int err = page_open(&g, m, MOVE_LETTERS, p);

    if (err)
        return err;
    p->text[0] = '\0';
    /* Those that were in a queue which a restart of the machine took. */
    err = store_recall(m->store, NULL, NULL);
    if (err >= 0 || err == -ENOENT)
        err = letters_each(m->store, &all, true, letter_visit, &g);
    if (!err)
        err = letters_page(&g);
    if (err && !p->text[0])
        err = failed(&g, err);
    free(g.data);
    return err;
}
