/* source_mq.c - a POSIX queue with its custody and store, as a source (see
 * source_mq.h)
 *
 * source.h names the threads of the operations below.
 *
 * Each work item keeps a FREE slot between two messages, because the first
 * lines of that slot are still in the processor's cache.
 *
 * Every verdict is written in the same order: first the commit puts the verdict
 * on the disk, then the slot becomes FREE, and only then are other changes
 * written. The claim on the row is released after the slot is FREE.
 * Crash before the commit: the slot is RUNNING (or HELD), and the message runs
 * again. Crash after the commit, before the slot is FREE: recovery finds the
 * verdict in the store, by the row's state or by the receive sequence, and
 * frees the slot. So a crash can repeat a message, never lose one, and never
 * give it two final states.
 */
#include "worker/source/mq/source_mq.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/store/letters.h"
#include "common/store/waiting.h"
#include "worker/source/mq/spool.h"

#define UNREADABLE_NS NS_PER_MS /* delay before an unreadable row's retry */
#define WAL_EMPTY_NS  (5 * NS_PER_S) /* delay before a large -wal is emptied */

/* ---- lanes ---- */

struct lent *source_mq_lent(struct source_mq *q, struct slot *slot)
{
    unsigned index = custody_index(q->custody, slot);
    struct lent *l = &q->lents[index];

    l->m.index = index;
    lent_init(l, slot, q->set->forward != NULL);
    return l;
}

/* Give a slot to a lane without a slot. Not inline, because a lane hardly ever
 * lacks its slot, and mq_take then has a small stack frame. */
__attribute__((noinline)) static struct lent *lane_fill(struct source_mq *q,
                                                        unsigned lane)
{
    struct slot *slot = custody_acquire(q->custody);

    if (slot)
        q->lanes[lane] = source_mq_lent(q, slot);
    return q->lanes[lane];
}

struct lent *mq_lane_get(struct source_mq *q, unsigned lane)
{
    struct lent *l = q->lanes[lane];

    return l ? l : lane_fill(q, lane);
}

/* Keep the FREE slot of a settled message for the lane's next message. With
 * LANE_NONE, the caller of settle releases the slot instead (mq_release). */
static void mq_lane_keep(struct source_mq *q, unsigned lane, struct lent *l)
{
    struct lent *was;

    if (lane == LANE_NONE)
        return;
    was = q->lanes[lane];
    q->lanes[lane] = l;
    if (__builtin_expect(was != NULL, 0))
        custody_release(q->custody, was->slot);
}

/* Fill the body of the lane's slot. Crash during the fill: the slot is FREE,
 * and the next start fills its body again. */
static void mq_warm(struct source *s, unsigned lane)
{
    struct source_mq *q = source_mq_of(s);
    struct lent *l = mq_lane_get(q, lane);

    if (l)
        slot_scrub(l->slot, q->fill, l->slot->dirty);
}

static void mq_rest(struct source *s, unsigned lane)
{
    struct source_mq *q = source_mq_of(s);

    if (q->lanes[lane])
        custody_release(q->custody, q->lanes[lane]->slot);
    q->lanes[lane] = NULL;
}

static void mq_release(struct source *s, struct message *m)
{
    custody_release(source_mq_of(s)->custody, lent_of(m)->slot);
}

/* ---- from the queue ---- */

/* Clean up after a failed receive. Returns -errno. */
__attribute__((noinline)) static int receive_failed(struct source_mq *q,
                                                    struct slot *slot, int n)
{
    int err;

    /* A set priority shows that the call failed after the message had left the
     * queue: the kernel could not get a page of the slot, although that page
     * had been written just before. Leave the slot as a kill would leave it;
     * the next start runs the message. Use up the sequence number: otherwise
     * recovery would take the verdict on the next message for this one's. */
    if (slot->priority != SLOT_UNSET) {
        custody_seq_used(q->custody);
        log_error("half_received", F_STR("queue", q->set->queue),
                  F_STR("error", errno_text(-n)),
                  F_STR("next",
                        "its body may be truncated; it runs after the next "
                        "start. Check the file system of --runtime-dir"));
        return n;
    }
    slot_disarm(slot);
    if (n != -EAGAIN ||
        !atomic_load_explicit(&q->name_gone, memory_order_relaxed))
        return n;
    /* The old queue, whose name was removed, is empty. Open the name again with
     * the same descriptor number. A thread that is sleeping on the descriptor
     * still sleeps on the old queue. */
    err = mq_reopen_now(q);
    if (!err && q->spool)
        spool_wake(q->spool); /* so that its thread polls the new queue */
    return err ? err : -EAGAIN;
}

/* Crash at any step: see slot_arm and slot_taken. Their crash argument relies
 * on the kernel to copy a message completely or not at all: the pages are
 * allocated, populated, locked if that is permitted (custody.c), and never
 * written back. The syncer of `make torture` would detect a partial copy. */
int mq_fetch(struct source_mq *q, struct lent *l, uint64_t wall_ns)
{
    struct slot *slot = l->slot;
    size_t dirty = slot->dirty;
    ssize_t n;

    slot_arm(slot, q->fill, custody_seq_next(q->custody));
    if (q->on_disk)
        slot_warm(slot, q->fill, dirty, queue_message_size(q->queue));
    FAULT_POINT("receive_before");
    n = queue_receive(q->queue, slot->body, &slot->priority);
    FAULT_POINT("receive_after");
    if (n < 0)
        return receive_failed(q, slot, (int)n);
    slot_taken(slot, (uint32_t)n, wall_ns);
    custody_seq_used(q->custody);
    lent_fresh(l, (size_t)n, wall_ns);
    return 0;
}

/* Take a message into the slot that the lane keeps: from the spool if the spool
 * is on, otherwise from the queue. `flatten` inlines every call from here to
 * mq_receive(3) into one frame (docs/performance.md). */
__attribute__((flatten)) static int
mq_take(struct source *s, unsigned lane, uint64_t wall_ns, struct message **out)
{
    struct source_mq *q = source_mq_of(s);
    struct spool *sp = atomic_load_explicit(&q->spool, memory_order_relaxed);
    struct lent *l;
    int err;

    if (__builtin_expect(sp != NULL, 0))
        return spool_take(sp, lane, wall_ns, out);
    l = mq_lane_get(q, lane);
    if (!l)
        return -EAGAIN; /* COUNT_FREE is 0; the worker notices a freed slot */
    err = mq_fetch(q, l, wall_ns);
    if (!err)
        *out = &l->m;
    if (!err || !slot_free(l->slot)) /* lent, or half received */
        q->lanes[lane] = NULL;
    return err;
}

/* ---- from the store ---- */

/* Crash after the slot is HELD: the message is both in its row and in the slot,
 * and recovery keeps one of the two. */
static int mq_take_due(struct source *s, unsigned lane, struct message **out)
{
    struct source_mq *q = source_mq_of(s);
    struct lent *l = mq_lane_get(q, lane);
    int64_t row;
    int err;

    while (l && source_due(s)) {
        err = due_rows_take(q->due_rows, &row);
        if (err)
            return err;
        err = row_restore(q, row, STORE_WAITING, l);
        if (!err)
            return mq_lend(q, lane, out);
        due_rows_release(q->due_rows, row);
        if (err != -ENOENT && err != -EMSGSIZE) {
            due_rows_expect(q->due_rows, clock_boot_ns() + UNREADABLE_NS);
            return err;
        }
    }
    return -EAGAIN;
}

/* Returns -EINPROGRESS while the thread that wrote the row has not returned
 * from the commit, because the row is still claimed. That thread releases the
 * claim before it reports the parked row to the group. So a group whose lease
 * ends now either waits for the report (PARKING), or finds the claim released
 * when it is leased again. */
static int mq_unpark(struct source *s, unsigned lane, struct header_text key,
                     bool low, const struct message *before,
                     struct message **out)
{
    struct source_mq *q = source_mq_of(s);
    struct store_parked p;
    struct lent *l;
    int err = store_next_parked(q->store, key.at, key.size, low, &p);

    if (err)
        return err;
    if (before) {
        bool first = p.priority == before->priority
                         ? p.receive_seq < before->seq
                         : (p.priority > before->priority) != low;

        if (!first)
            return -EAGAIN;
    }
    l = mq_lane_get(q, lane);
    err = l ? row_restore(q, p.row, STORE_PARKED, l) : -EINPROGRESS;
    if (err == -ENOENT) /* the row was just there: try again */
        err = -EINPROGRESS;
    if (!err && due_rows_claim(q->due_rows, p.row, CLAIM_LEND) != 0) {
        slot_retire(l->slot); /* the row stays in the store */
        err = -EINPROGRESS;
    }
    return err ? err : mq_lend(q, lane, out);
}

/* The spool claims the keys of its own messages, in the order of receipt. */
static int mq_claim(struct source *s, const struct message *m,
                    struct header_text key, uint64_t ns, struct ulid *first)
{
    const struct source_mq *q = source_mq_of(s);
    /* The worker may have been killed before it wrote the time of receipt. */
    uint64_t from = m->received_ns ? m->received_ns : clock_wall_ns();
    const struct store_key claim = {.text = key.at,
                                    .size = key.size,
                                    .seq = m->seq,
                                    .id = *m->id,
                                    .received_ns = from,
                                    .until_ns = ns_add(from, ns)};
    int err = source_mq_writable(q);

    return err ? err : store_key_claim(q->store, &claim, first);
}

/* ---- verdicts ---- */

/* Fill the row that the store gets for a message with its verdict. */
static void settle_row(struct store_row *row, const struct settle *st,
                       const struct settings *set)
{
    static const enum store_state states[] = {
        [SETTLE_RETRY] = STORE_WAITING,
        [SETTLE_DEAD] = STORE_DEAD,
        [SETTLE_PARK] = STORE_PARKED,
        [SETTLE_RETURN] = STORE_WAITING,
    };

    row_make(row, lent_of(st->m), st->group, st->header_size);
    row->state = states[st->kind];
    row->attempts += st->attempt != NULL;
    row->due_ns = st->due_ns;
    row->due_boot_ns = st->due_boot_ns;
    row->delay_ns = st->delay_ns;
    row->died_ns = st->died_ns;
    row->reason = st->reason;
    row->error = st->error;
    row->hook = set->on_dead != NULL;
    if (st->reason == REASON_GROUP_CLOSED)
        row->flags |= STORE_LET_GO;
}

/* Release the claim on the row of a settled message, and schedule the row if it
 * waits for its time. Called after the slot is FREE. */
static void settled_unclaim(struct source_mq *q, const struct settle *st,
                            int64_t row)
{
    if (row)
        due_rows_release(q->due_rows, row);
    if (st->kind == SETTLE_RETRY || st->kind == SETTLE_RETURN)
        due_rows_expect(q->due_rows, settle_due(st));
}

/* Settle a message that needs a commit or an end in the spool, not only a
 * change of its slot. Not inline, so that the usual path has a small frame.
 * A replayed letter that went through the spool has two rows. Crash after the
 * first was deleted: recovery frees the slot, because the letter is gone, and
 * the spool's row is dropped as a second copy of the letter. If the second step
 * fails, the next try deletes the first row once more, which changes
 * nothing. */
__attribute__((noinline)) static int settle_stored(struct source_mq *q,
                                                   struct settle *st)
{
    const struct attempt *a = st->attempt;
    struct lent *l = lent_of(st->m);
    int64_t row = l->slot->row;
    /* A RETURN writes no row for a message that has a row already: in the
     * store, or in the spool if recovery returns it. Such a message waits where
     * it was. A message from the queue gets a row, and waits in the store.
     * Crash: the slot is HELD, or FREE, and the row waits in the store. */
    bool as_before = st->kind == SETTLE_RETURN &&
                     (row || (l->spooled && !atomic_load(&q->started)));
    struct store_attempt attempt;
    struct store_row put;
    int err = as_before ? 0 : source_mq_writable(q);

    if (!err && st->kind <= SETTLE_DISCARD) {
        err = store_delete(q->store, row, st->m->id);
        if (!err && l->spooled)
            err = spool_end(q->spool, l);
    } else if (!err && !as_before) {
        if (a)
            attempt = (struct store_attempt){
                .started_ns = a->started_ns,
                .duration_ns = a->duration_ns,
                .error = a->error,
                .stderr_tail = a->stderr_tail,
                .stderr_size = a->stderr_size,
                .said = a->said,
                .usage = a->usage,
            };
        settle_row(&put, st, q->set);
        err = store_put(q->store, &put, a ? &attempt : NULL, &put.row);
        st->letter = put.row;
        /* -ENOENT: the row was a replayed letter that an operator has
         * discarded, so the message is discarded too. -EEXIST: a worker wrote
         * this receive sequence and died before it freed the slot. In both
         * cases nothing is left to write. */
        if (err == -ENOENT)
            st->kind = SETTLE_DISCARD;
        if (err == -ENOENT || err == -EEXIST)
            err = 0;
    }
    if (err)
        return err;
    FAULT_POINT("settle_after_write");
    l->spooled = 0;
    slot_retire(l->slot); /* store_put has done so, unless the row was gone */
    settled_unclaim(q, st, row);
    if (st->kind == SETTLE_DEAD)
        source_mq_died(q);
    return 0;
}

/* Settle several messages in one commit, which also frees their slots.
 * Crash before the commit: each message is HELD in its slot. Crash after the
 * commit, before a slot is FREE: recovery finds the row by the receive sequence
 * (or by the row number in the slot) and frees the slot.
 * Not inline, so that the usual path has a small frame. */
__attribute__((noinline)) static int settle_all(struct source_mq *q,
                                                struct settle *list, size_t n)
{
    struct store_row rows[SETTLE_MOST] = {{0}};
    int err;

    for (size_t i = 0; i < n; i++)
        settle_row(&rows[i], &list[i], q->set);
    err = source_mq_writable(q);
    if (!err)
        err = store_put_all(q->store, rows, n);
    for (size_t i = 0; i < n; i++) {
        list[i].err = err;
        if (err)
            continue;
        lent_of(list[i].m)->spooled = 0;
        settled_unclaim(q, &list[i], rows[i].row);
        mq_lane_keep(q, list[i].lane, lent_of(list[i].m));
    }
    return err;
}

/* Even a single parked message is written by settle_all. The unique key of a
 * cancelled message is freed in a commit of its own, before the message is
 * settled. Crash between the two: the message is still in its slot, or its row
 * is marked. If the message runs after all, it claims its key again, unless
 * another message has claimed it first. */
static int mq_settle(struct source *s, struct settle *list, size_t n)
{
    struct source_mq *q = source_mq_of(s);
    struct lent *l = lent_of(list->m);
    bool ran = slot_word(l->slot).state == SLOT_RUNNING;
    int err = list->unkey ? source_mq_writable(q) : 0;

    if (!err && list->unkey)
        err = store_key_free(q->store, list->m->seq);
    if (!err && (n > 1 || list->kind == SETTLE_PARK))
        return settle_all(q, list, n);
    if (!err && (list->kind > SETTLE_DISCARD || l->slot->row != 0))
        err = settle_stored(q, list);
    else if (!err && l->spooled)
        err = spool_end(q->spool, l);
    else if (!err)
        slot_retire(l->slot);
    if (err)
        lent_unrun(&l->m, ran);
    else
        mq_lane_keep(q, list->lane, l);
    return list->err = err;
}

/* Finish a message that also has a row. Not inline, because inlining would add
 * some 15 instructions to the usual end. */
__attribute__((noinline)) static int
done_stored(struct source *s, struct message *m, unsigned lane)
{
    struct settle st = {.m = m, .kind = SETTLE_DONE, .lane = lane};

    return mq_settle(s, &st, 1);
}

/* Usually the message is only in its slot, so one write to the slot's state
 * word is enough. */
static int mq_done(struct source *s, struct message *m, unsigned lane)
{
    struct lent *l = lent_of(m);

    if ((l->slot->row | l->spooled) != 0)
        return done_stored(s, m, lane);
    slot_retire(l->slot);
    mq_lane_keep(source_mq_of(s), lane, l);
    return 0;
}

/* ---- what the source has ---- */

static int mq_is_due(struct source *s)
{
    return due_rows_any(source_mq_of(s)->due_rows);
}

/* The store counts its waiting rows as they change, because counting a million
 * rows takes a while. */
static int64_t mq_count(struct source *s, enum source_count what)
{
    struct source_mq *q = source_mq_of(s);
    const struct store_waits waits = store_waits(q->store);
    const struct spool *sp = atomic_load(&q->spool);
    int64_t n = 0;

    switch (what) {
    case COUNT_WAITING:
        return waits.waiting > 0 ? waits.waiting : 0;
    case COUNT_PARKED:
        return waits.parked;
    case COUNT_DEAD:
        return store_count(q->store, STORE_DEAD);
    case COUNT_SLOTS:
        return custody_slots(q->custody);
    case COUNT_FREE:
        return custody_free_slots(q->custody);
    case COUNT_FRESH:
        n = queue_length(q->queue);
        if (n < 0)
            return n;
        __attribute__((fallthrough));
    case COUNT_SPOOLED:
        return sp ? n + (int64_t)spool_waits(sp) : n;
    case COUNT_BACKLOG:
        n = waits.waiting + waits.parked;
        return n < 0 ? 0 : n;
    case COUNT_NEXT_SEQ:
        return (int64_t)custody_seq_next(q->custody);
    case COUNT_UNLOCKED:
        return (int64_t)custody_bytes_unlocked(q->custody);
    }
    return -EINVAL;
}

static bool mq_differs(const struct source *s, char *text, size_t room)
{
    const struct source_mq *q = source_mq_of(s);
    struct queue_attr want;

    settings_attr(q->set, &want);
    return queue_differs(q->queue, &want, text, room);
}

/* ---- how many may be lent, and the start ---- */

/* Warn that slots may be swapped out. Called at the start and after each
 * resize. The slots count as locked only if all of them are, so the logged
 * number is the whole amount that the limit has to allow. */
static void unlocked_warn(const struct source_mq *q)
{
    const char *path = custody_path(q->custody);
    size_t bytes = custody_bytes_unlocked(q->custody);
    char folder[PATH_MAX];

    if (bytes == 0)
        return;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path),
             path);
    log_warn("custody_not_locked", F_STR("folder", folder),
             F_UINT("kib", (bytes + 1023) / 1024),
             F_STR("next", "swapped-out pages have the same risk as custody on "
                           "disk. Allow this many KiB to be locked (ulimit -l, "
                           "LimitMEMLOCK=, docker --ulimit memlock=)"));
}

static int mq_resize(struct source *s, unsigned lent, struct problem *p)
{
    struct source_mq *q = source_mq_of(s);
    int err = custody_grow(q->custody, lent, p);

    if (!err && atomic_load(&q->started))
        unlocked_warn(q);
    return err;
}

static void mq_tuned(struct source *s)
{
    struct source_mq *q = source_mq_of(s);

    atomic_store(&s->timeout_most_ns, atomic_load(&q->set->max_timeout_ns));
    dead_letters_wake(q);
    spool_start(q->spool_there);
}

/* Chore: update due times after the clock was set, then find the due rows; a
 * letter may now be too old as well. */
static int clock_follow(struct chore *chore)
{
    struct source_mq *q = CONTAINER_OF(chore, struct source_mq, clock);
    int err = source_mq_writable(q);

    if (!err)
        err = store_clock_follow(q->store);
    if (!err) {
        due_rows_look(q->due_rows);
        dead_letters_wake(q);
    }
    return err;
}

static void mq_clock_set(struct source *s)
{
    chore_soon(&source_mq_of(s)->clock);
}

/* Chore: empty the -wal. */
static int wal_empty(struct chore *chore)
{
    const struct source_mq *q = CONTAINER_OF(chore, struct source_mq, wal);

    return source_mq_writable(q) ? 0 : store_empty_wal(q->store);
}

/* Schedule wal_empty for later, because the -wal grows again while messages
 * arrive. Called by the store on the thread whose commit made the -wal large.
 * An idle worker wakes up once to empty the -wal, and again only if a reader
 * was in the way. */
static void wal_large(void *arg)
{
    struct source_mq *q = arg;

    chore_after(&q->wal, WAL_EMPTY_NS);
}

/* Mark custody as sound, because torn messages are in the store now. Begin to
 * move and remove letters, because recovery has dealt with all slots. */
static void mq_start(struct source *s)
{
    struct source_mq *q = source_mq_of(s);

    custody_fix(q->custody);
    atomic_store(&q->started, true);
    unlocked_warn(q);
    dead_letters_start(q);
    spool_start(q->spool_there);
    /* The clock may have been set between store_claim and the watch. */
    chore_soon(&q->clock);
    source_mq_died(q);
    if (q->group_watch && q->events.held(q->events.groups) > 0)
        mq_watch(s, false);
}

/* ---- deaths for --on-dead ---- */

/* Copy those parts of a letter that the --on-dead command gets in its
 * environment. Called by letters_get. */
static int hook_letter_copy(const struct letter *l, void *arg)
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

/* A death whose letter is gone is skipped. A letter that was sent again,
 * failed, and waits for its retry is skipped as well: if the letter dies again,
 * the new death has its own entry. */
static int mq_hook(struct source *s, int64_t after, struct source_hook *out)
{
    struct source_mq *q = source_mq_of(s);
    struct letter_hook hook;

    for (;;) {
        FILE *f = NULL;
        int err = letters_hook(q->store, after, &hook);

        if (err)
            return err;
        *out = (struct source_hook){.n = hook.n, .letter = hook.row};
        err = letters_get(q->store, out->letter, hook_letter_copy, out);
        if (!err) {
            f = open_memstream(&out->json, &out->json_size);
            err = f ? letter_json_print(q->store, q->set->queue, out->letter,
                                        NULL, f)
                    : -ENOMEM;
        }
        if (f && fclose(f) != 0)
            err = -ENOMEM;
        if (!err)
            return 0;
        free(out->data);
        free(out->json);
        if (err == -ENOENT)
            err = letters_hook_end(q->store, hook.n, true, NULL);
        if (err)
            return err;
    }
}

/* Let the letter be moved or removed once the command was told. */
static int mq_hook_end(struct source *s, int64_t n, bool told, int64_t *next)
{
    struct source_mq *q = source_mq_of(s);
    int err = source_mq_writable(q);

    if (!err)
        err = letters_hook_end(q->store, n, told, next);
    if (!err && told)
        source_mq_died(q);
    return err;
}

/* ---- operators ---- */

/* Cancel rows, or make them due now, in one commit. A row to be cancelled is
 * claimed first, so that no thread loads the row into a slot before the row has
 * its mark; a row that is already in a slot is skipped.
 * Crash before the commit: all rows wait as before, because the claims were in
 * memory. Crash after the commit: the rows have the mark, and the next start
 * finds it when it takes them. A row that is to run now needs no claim. While
 * the row is in flight, its due time has passed anyway. If it was settled as a
 * retry in the meantime, that retry becomes due, although the row may still be
 * listed as in flight (due_rows_sooner). */
static int mq_steer(struct source *s, enum steer what, const int64_t *numbers,
                    size_t n, enum steered *out)
{
    struct source_mq *q = source_mq_of(s);
    struct spool *sp = what == STEER_CANCEL ? q->spool : NULL;
    bool skip[STEER_MOST] = {false}, done[STEER_MOST] = {false};
    struct waiting_steer order = {.cancel = what == STEER_CANCEL,
                                  .rows = numbers,
                                  .count = n,
                                  .most = custody_body_bytes(q->custody),
                                  .skip = skip,
                                  .now_ns = clock_wall_ns()};
    int err = source_mq_writable(q);

    for (size_t i = 0; i < n && order.cancel; i++)
        skip[i] = numbers[i] < 0 ||
                  due_rows_claim(q->due_rows, numbers[i], CLAIM_STEER) != 0;
    if (sp)
        spool_seize(sp, numbers, n, skip);
    if (!err)
        err = waiting_steer(q->store, &order, out);
    for (size_t i = 0; i < n; i++) {
        done[i] = !err && out[i] == STEERED;
        if (order.cancel && numbers[i] > 0 && !skip[i])
            due_rows_release(q->due_rows, numbers[i]);
        else if (!order.cancel && done[i])
            due_rows_sooner(q->due_rows, numbers[i]);
    }
    if (sp)
        spool_release(sp, done);
    due_rows_look(q->due_rows);
    return err;
}

/* ---- open and close ---- */

static const struct source_ops mq_ops = {
    .name = "mq",
    .take = mq_take,
    .take_due = mq_take_due,
    .settle = mq_settle,
    .release = mq_release,
    .rest = mq_rest,
    .is_due = mq_is_due,
    .count = mq_count,
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
    .pending = mq_pending,
    .link = mq_link,
    .claim = mq_claim,
    .unpark = mq_unpark,
    .groups = mq_groups,
    .letters = mq_letters,
    .watch = mq_watch,
    .queued = mq_queued,
    .steer = mq_steer,
    .differs = mq_differs,
    .hook = mq_hook,
    .hook_end = mq_hook_end,
    .keep = mq_keep,
};

int source_mq_open(struct source_mq *q, struct problem *p)
{
    unsigned most = custody_slots_most(q->custody);
    int err = -ENOMEM;

    q->source.ops = &mq_ops;
    q->source.local = &mq_local_ops;
    q->source.lent_most = most;
    q->source.nonce = custody_nonce(q->custody);
    atomic_store(&q->source.timeout_most_ns, q->set->max_timeout_ns);
    source_mq_chore(q, &q->clock, clock_follow, NS_PER_S, 30 * NS_PER_S);
    source_mq_chore(q, &q->wal, wal_empty, WAL_EMPTY_NS, 300 * NS_PER_S);
    source_mq_chore(q, &q->large, mq_large_end, NS_PER_S, NS_PER_S);
    q->fill = custody_fill(q->custody);
    q->lents = calloc(most, sizeof *q->lents);
    q->lanes = calloc(ITEMS_MAX, sizeof *q->lanes);
    if (q->lents && q->lanes)
        err = due_rows_open(&q->due_rows, q->store, q->timers, 2 * most,
                            q->set->forward != NULL, &q->source,
                            q->events.changed, q->events.flow);
    if (err)
        return problem_set(p, EX_OSERR, -err, "cannot start: %s",
                           errno_text(-err));
    store_watch_wal(q->store, wal_large, q);
    if (!q->set->on_dead) /* drop the deaths noted by an earlier worker */
        err = letters_hooks_forget(q->store);
    return err ? problem_set(
                     p, EX_CANTCREAT, -err,
                     "store of %s: the list of deaths for --on-dead cannot be "
                     "cleared: %s; %s, or start with --on-dead",
                     q->set->queue, errno_text(-err), disk_advice(err))
               : 0;
}

int source_mq_watch(struct source_mq *q, struct problem *p)
{
    int err = mq_reopen_watch(q, p);

    q->source.poll_fd = queue_fd(q->queue);
    if (!err && q->set->on_group_dead == GROUP_DEAD_HOLD)
        err = group_watch_open(q, p);
    return err ? err : dead_letters_open(q, p);
}

void source_mq_stop(struct source_mq *q)
{
    dead_letters_close(q);
    mq_name_watch_close(&q->name_watch);
    group_watch_close(q);
}

void source_mq_close(struct source_mq *q)
{
    source_mq_stop(q);
    if (q->timers) {
        timers_cancel_sync(q->timers, &q->clock.timer);
        timers_cancel_sync(q->timers, &q->wal.timer);
        timers_cancel_sync(q->timers, &q->large.timer);
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
