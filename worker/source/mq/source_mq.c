/* source_mq.c - a POSIX queue with its custody and store, as a source (see
 * source_mq.h) */
#include "worker/source/mq/source_mq.h"
#include "worker/source/mq/spool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/store/letters.h"
#include "common/store/waiting.h"
#include "worker/source/mq/mq_reopen.h"

#define WAL_NS \
    (5 * NS_PER_S) /* time from noticing a large -wal to emptying
                                 it */

static int mq_link(struct source *s, struct message *m, const struct header *h)
{
    return dead_letters_link(source_mq_of(s), lent_of(m), h);
}

/* mq_claim - a spool gives keys itself, in the order of receipt; what comes
 * here by way of it ran before there was one */
static int mq_claim(struct source *s, const struct message *m,
                    struct header_text key, uint64_t ns, struct ulid *first)
{
    const struct source_mq *q = source_mq_of(s);
    /* A kill may have come before its time was noted. */
    uint64_t from = m->received_ns ? m->received_ns : clock_wall_ns();
    const struct store_key claim = {.text = key.at,
                                    .size = key.size,
                                    .seq = m->seq,
                                    .id = *m->id,
                                    .received_ns = from,
                                    .until_ns = ns_add(from, ns)};

    if (atomic_load(&q->store_gone))
        return -EBADFD;
    return store_key_claim(q->store, &claim, first);
}

static void mq_release(struct source *s, struct message *m)
{
    custody_release(source_mq_of(s)->custody, lent_of(m)->slot);
}

/* ---- looking ---- */

static int mq_poll_fd(const struct source *s)
{
    return queue_fd(source_mq_of(s)->queue);
}

static bool mq_pending(const struct source *s)
{
    const struct source_mq *q = source_mq_of(s);
    const struct spool *sp = q->spool;

    return mq_reopen_gone(q->mq_reopen) || (sp && spool_ready(sp));
}

static unsigned mq_room(const struct source *s)
{
    return custody_free_slots(source_mq_of(s)->custody);
}

static long mq_fresh(const struct source *s)
{
    const struct source_mq *q = source_mq_of(s);
    const struct spool *sp = q->spool;
    long fresh = queue_length(q->queue);

    return sp && fresh >= 0 ? fresh + (long)spool_waits(sp) : fresh;
}

static uint64_t mq_next_seq(const struct source *s)
{
    return custody_seq_next(source_mq_of(s)->custody);
}

static bool mq_queued(const struct source *s, int64_t number)
{
    const struct spool *sp = source_mq_of(s)->spool;

    return sp && spool_queued(sp, number);
}

static uint64_t mq_waits(const struct source *s)
{
    int64_t n = store_waits(source_mq_of(s)->store);

    return n > 0 ? (uint64_t)n : 0;
}

static int mq_is_due(struct source *s)
{
    return due_rows_any(source_mq_of(s)->due_rows);
}

/* mq_count - what waits is known since the start, where it was counted once: a
 * million of rows take a while */
static int64_t mq_count(struct source *s, enum source_count what)
{
    struct source_mq *q = source_mq_of(s);
    const struct spool *sp = atomic_load(&q->spool);

    switch (what) {
    case COUNT_WAITING:
        return store_waiting(q->store);
    case COUNT_PARKED:
        return store_parked(q->store);
    case COUNT_SPOOLED:
        return sp ? (int64_t)spool_waits(sp) : 0;
    case COUNT_DEAD:
    default:
        return store_count(q->store, STORE_DEAD);
    }
}

static bool mq_differs(const struct source *s, char *text, size_t room)
{
    const struct source_mq *q = source_mq_of(s);
    struct queue_attr want;

    settings_attr(q->set, &want);
    return queue_differs(q->queue, &want, text, room);
}

static size_t mq_unlocked(const struct source *s)
{
    const struct custody *c = source_mq_of(s)->custody;

    return custody_locked(c) ? 0 : custody_bytes(c);
}

/* ---- how many ---- */

static unsigned mq_lent(const struct source *s)
{
    return custody_slots(source_mq_of(s)->custody);
}

/* tell_unlocked - at start, and when there are more slots: one lock is for all,
 * so the number is what has to be allowed now */
static void tell_unlocked(const struct source_mq *q)
{
    const char *path = custody_path(q->custody);
    size_t bytes = mq_unlocked(&q->source);
    char folder[PATH_MAX];

    if (bytes == 0)
        return;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path),
             path);
    log_warn("custody_not_locked", F_STR("folder", folder),
             F_UINT("kib", (bytes + 1023) / 1024),
             F_STR("next", "pages that are swapped out have the same risk as a "
                           "disk: let that many KiB be locked (ulimit -l, "
                           "LimitMEMLOCK=, docker --ulimit memlock=)"));
}

static int mq_resize(struct source *s, unsigned lent, struct problem *p)
{
    struct source_mq *q = source_mq_of(s);
    int err = custody_grow(q->custody, lent, p);

    if (!err && atomic_load(&q->started))
        tell_unlocked(q);
    return err;
}

static void mq_tuned(struct source *s)
{
    struct source_mq *q = source_mq_of(s);

    atomic_store(&s->timeout_most_ns, atomic_load(&q->set->max_timeout_ns));
    dead_letters_wake(q);
    if (q->spool_there)
        spool_tuned(q->spool_there);
}

/* clock_follow - Update due times first, then find the due rows; a letter may
 * now be too old as well. Runs in the pool.
 */
static int clock_follow(struct chore *chore)
{
    struct source_mq *q = CONTAINER_OF(chore, struct source_mq, clock);
    int err =
        atomic_load(&q->store_gone) ? -EBADFD : store_clock_follow(q->store);

    if (!err) {
        due_rows_look(q->due_rows);
        dead_letters_wake(q);
    }
    return err;
}

/* wal_empty - Empty the -wal. Runs in the pool. */
static int wal_empty(struct chore *chore)
{
    const struct source_mq *q = CONTAINER_OF(chore, struct source_mq, wal);

    return atomic_load(&q->store_gone) ? 0 : store_empty_wal(q->store);
}

/* wal_large - Schedule the emptying of the -wal for later, because the -wal
 * grows again while messages arrive. An idle worker wakes up once to empty the
 * -wal, and again only if a reader was in the way. */
static void wal_large(void *arg)
{
    struct source_mq *q = arg;

    chore_after(&q->wal, WAL_NS);
}

static void mq_clock_set(struct source *s)
{
    chore_soon(&source_mq_of(s)->clock);
}

/* mq_start - letters may move from here on: recovery has found all slots, and
 * what was torn in them is in the store */
static void mq_start(struct source *s)
{
    struct source_mq *q = source_mq_of(s);

    custody_fix(q->custody);
    atomic_store(&q->started, true);
    tell_unlocked(q);
    dead_letters_start(q);
    if (q->spool)
        spool_start(q->spool);
    /* The clock may have been set between store_claim and the watch. */
    chore_soon(&q->clock);
    source_mq_died(q);
    if (q->group_watch && q->events.held(q->events.arg) > 0)
        mq_watch(s, false);
}

/* ---- deaths that --on-dead is told of ---- */

/* letter_copy - visit: what of it is in the environment */
static int letter_copy(const struct letter *l, void *arg)
{
    struct source_hook *out = arg;
    const struct store_row *m = &l->m;
    char *at = malloc(m->size + m->group_size + 1);

    if (!at)
        return -ENOMEM;
    memcpy(at, m->data, m->size);
    if (m->group)
        memcpy(at + m->size, m->group, m->group_size);
    out->data = at;
    out->size = m->size;
    out->group =
        (struct header_text){m->group ? at + m->size : NULL, m->group_size};
    out->id = m->id;
    out->received_ns = m->first_received_ns;
    out->priority = m->priority;
    out->failures = m->attempts;
    out->crashes = m->crashes;
    out->redelivered = (m->flags & STORE_REDELIVERED) != 0;
    return 0;
}

/* json_make - as mqdlq show --json prints it */
static int json_make(struct source_mq *q, struct source_hook *out)
{
    FILE *f = open_memstream(&out->json, &out->json_size);
    int err;

    if (!f)
        return -ENOMEM;
    err = letter_json_print(q->store, q->set->queue, out->letter, NULL, f);
    return fclose(f) == 0 ? err : -ENOMEM;
}

/* read_one - all of a letter; -ENOENT: it is none any more */
static int read_one(struct source_mq *q, struct source_hook *out)
{
    int err = letters_get(q->store, out->letter, letter_copy, out);

    if (!err)
        err = json_make(q, out);
    if (err) {
        free(out->data);
        free(out->json);
    }
    return err;
}

/* mq_hook - one that was sent again, failed, and waits for its retry, is none:
 * if it dies, that is another death */
static int mq_hook(struct source *s, int64_t after, struct source_hook *out)
{
    struct source_mq *q = source_mq_of(s);
    struct letter_hook hook;
    int err;

    for (;;) {
        err = letters_hook(q->store, after, &hook);
        if (err)
            return err;
        *out = (struct source_hook){.n = hook.n, .letter = hook.row};
        err = read_one(q, out);
        if (err == -ENOENT)
            err = letters_hook_end(q->store, hook.n, true, NULL);
        else
            return err;
        if (err)
            return err;
    }
}

/* mq_hook_end - the letter may be moved or removed from here on */
static int mq_hook_end(struct source *s, int64_t n, bool told, int64_t *next)
{
    struct source_mq *q = source_mq_of(s);
    int err = atomic_load(&q->store_gone) ? -EBADFD : 0;

    if (!err)
        err = letters_hook_end(q->store, n, told, next);
    if (!err && told)
        source_mq_died(q);
    return err;
}

/* ---- what an operator wants of rows that wait ---- */

/* Keep others from taking the rows before they have their mark. skip: another
 * thread has taken the row. */
static void rows_seize(struct source_mq *q, struct spool *sp,
                       const struct waiting_steer *order, bool *skip)
{
    for (size_t i = 0; i < order->count; i++)
        skip[i] =
            order->rows[i] < 0 || !due_rows_seize(q->due_rows, order->rows[i]);
    if (sp)
        spool_seize(sp, order->rows, order->count, skip);
}

/* rows_release - `done`: those that have it */
static void rows_release(struct source_mq *q, struct spool *sp,
                         const struct waiting_steer *order, const bool *done)
{
    for (size_t i = 0; i < order->count; i++)
        if (order->rows[i] > 0 && !order->skip[i])
            due_rows_release(q->due_rows, order->rows[i]);
    if (sp)
        spool_release(sp, done);
}

/* mq_steer - one commit
 * A row that is to be cancelled is claimed first: nobody loads it into a slot
 * before it has its mark, and one that a slot has already is left alone. Crash
 * before the commit: all wait as before, the claims were in memory. After it:
 * the next start takes what is due, or next in the spool, and what it takes has
 * the mark.
 * One that is to run now needs no claim: while it is in flight its due time is
 * over. If it was settled as a retry meanwhile, it is that retry which is due,
 * and it may still be noted as in flight: due_rows_sooner.
 */
static int mq_steer(struct source *s, enum steer what, const int64_t *numbers,
                    size_t n, enum steered *out)
{
    struct source_mq *q = source_mq_of(s);
    struct spool *sp = q->spool;
    bool skip[STEER_MOST] = {false}, done[STEER_MOST] = {false};
    struct waiting_steer order = {.cancel = what == STEER_CANCEL,
                                  .rows = numbers,
                                  .count = n,
                                  .most = custody_body_bytes(q->custody),
                                  .skip = skip,
                                  .now_ns = clock_wall_ns()};
    int err = atomic_load(&q->store_gone) ? -EBADFD : 0;

    if (order.cancel)
        rows_seize(q, sp, &order, skip);
    if (!err)
        err = waiting_steer(q->store, &order, out);
    for (size_t i = 0; i < n && !err; i++)
        done[i] = out[i] == STEERED;
    if (order.cancel)
        rows_release(q, sp, &order, done);
    for (size_t i = 0; i < n && !order.cancel; i++)
        if (done[i])
            due_rows_sooner(q->due_rows, numbers[i]);
    due_rows_look(q->due_rows);
    return err;
}

static const struct source_ops mq_ops = {
    .name = "mq",
    .take = mq_take,
    .take_due = mq_take_due,
    .settle = mq_settle,
    .release = mq_release,
    .rest = mq_rest,
    .poll_fd = mq_poll_fd,
    .pending = mq_pending,
    .room = mq_room,
    .fresh = mq_fresh,
    .is_due = mq_is_due,
    .count = mq_count,
    .lent = mq_lent,
    .resize = mq_resize,
    .tuned = mq_tuned,
    .clock_set = mq_clock_set,
    .runs = mq_runs,
    .recover = mq_recover,
    .start = mq_start,
};

static const struct source_local_ops mq_local_ops = {
    .done = mq_done,
    .warm = mq_warm,
    .link = mq_link,
    .claim = mq_claim,
    .unpark = mq_unpark,
    .groups = mq_groups,
    .letters = mq_letters,
    .watch = mq_watch,
    .next_seq = mq_next_seq,
    .queued = mq_queued,
    .steer = mq_steer,
    .waits = mq_waits,
    .differs = mq_differs,
    .unlocked = mq_unlocked,
    .hook = mq_hook,
    .hook_end = mq_hook_end,
    .keep = mq_keep,
};

/* ---- open and close ---- */

/* lents_open - one for each slot that there will ever be */
static int lents_open(struct source_mq *q)
{
    unsigned most = custody_slots_most(q->custody);
    int err;

    q->lents = calloc(most, sizeof *q->lents);
    q->lanes = calloc(ITEMS_MAX, sizeof *q->lanes);
    if (!q->lents || !q->lanes)
        return -ENOMEM;
    for (unsigned i = 0; i < most; i++)
        q->lents[i].m.index = i;
    q->fill = custody_fill(q->custody);
    q->source.lanes = ITEMS_MAX;
    q->source.lent_most = most;
    q->source.nonce = custody_nonce(q->custody);
    err = due_rows_open(&q->due_rows, q->store, q->timers, 2 * most, &q->source,
                        q->events.changed, q->events.arg);
    if (!err && q->set->forward)
        due_rows_all(q->due_rows);
    return err;
}

int source_mq_watch(struct source_mq *q, struct problem *p)
{
    int err = mq_reopen_open(q, p);

    if (!err && q->set->on_group_dead == GROUP_DEAD_HOLD)
        err = group_watch_open(q, p);
    return err ? err : dead_letters_open(q, p);
}

/* hooks_open - without --on-dead nobody is told of the deaths that are noted */
static int hooks_open(struct source_mq *q, struct problem *p)
{
    int err = 0;

    if (q->set->on_dead)
        store_hooks_note(q->store);
    else
        err = letters_hooks_forget(q->store);
    return err ? problem_set(
                     p, EX_CANTCREAT, -err,
                     "store of %s: the list of deaths for --on-dead cannot be "
                     "cleared: %s; %s, or start with --on-dead",
                     q->set->queue, errno_text(-err), disk_advice(err))
               : 0;
}

int source_mq_open(struct source_mq *q, struct problem *p)
{
    int err = lents_open(q);

    if (err)
        err = problem_set(p, EX_OSERR, -err, "cannot start: %s",
                          errno_text(-err));
    else
        err = hooks_open(q, p);
    q->source.ops = &mq_ops;
    q->source.local = &mq_local_ops;
    atomic_store(&q->source.timeout_most_ns, q->set->max_timeout_ns);
    q->clock = (struct chore){.run = clock_follow,
                              .first_ns = NS_PER_S,
                              .most_ns = 30 * NS_PER_S,
                              .timers = q->timers,
                              .pool = q->pool};
    chore_init(&q->clock);
    q->wal = (struct chore){.run = wal_empty,
                            .first_ns = WAL_NS,
                            .most_ns = 300 * NS_PER_S,
                            .timers = q->timers,
                            .pool = q->pool};
    chore_init(&q->wal);
    store_watch_wal(q->store, wal_large, q);
    return err;
}

void source_mq_stop(struct source_mq *q)
{
    dead_letters_close(q);
    mq_reopen_close(q);
    group_watch_close(q);
}

void source_mq_close(struct source_mq *q)
{
    source_mq_stop(q);
    if (q->timers) {
        timers_cancel_sync(q->timers, &q->clock.timer);
        timers_cancel_sync(q->timers, &q->wal.timer);
    }
    if (q->lents)
        store_watch_wal(q->store, NULL, NULL);
    due_rows_close(&q->due_rows);
    free(q->left);
    free(q->lanes);
    free(q->lents);
    q->left = NULL;
    q->left_count = 0;
    q->lanes = NULL;
    q->lents = NULL;
}

void source_mq_store_gone(struct source_mq *q, bool gone)
{
    atomic_store(&q->store_gone, gone);
}
