/* spool.c - messages wait on the disk instead of in the queue (see spool.h)
 *
 * A message of the spool is in one of three lines: `waiting` (in a slot),
 * `writing` (on its way to the disk), or the rows on the disk. The next message
 * to run is the first one of these three lines and of the queue. To compare it
 * with the queue, one message is received: the kernel keeps the order, so that
 * message comes before all others in the queue.
 *
 * One commit inserts the rows of waiting messages and deletes the rows of
 * finished ones; a delayed message becomes a row that waits for its time. The
 * slots become FREE before any later commit (`durable` of store_spool_change).
 * Otherwise a crash could leave a slot in use whose row was written and deleted
 * again, and its message would run twice.
 * Crash before the commit: the slots are HELD, and the file of ends has the
 * ends. After the commit, before a slot is FREE: recovery finds the row by its
 * key and frees the slot. After the commit, before an end is dropped: the next
 * start deletes its row once more, which changes nothing.
 *
 * The unique key of a message is claimed in the commit that writes the
 * message's row. Each commit takes all waiting messages, in the order of
 * receipt.
 *
 * While no message waits in the spool, work items take messages straight from
 * the queue. As soon as one message waits, all later ones go through the spool,
 * too, because the order has to be kept.
 *
 * A finished message whose row has not been deleted yet is noted in the file of
 * ends, beside the file of custody. While a worker is running, the store has
 * the number of that file. If the machine went down, or the file has another
 * number, the ends are unknown: any row may have run already, so each row is
 * marked as redelivered when it runs.
 */
#include "worker/source/mq/spool.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/stdlib.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/base/quick_lock.h"
#include "common/custody/ends.h"
#include "common/message/header.h"
#include "common/store/spool.h"
#include "worker/config/settings.h"
#include "worker/rules/delivery.h"
#include "worker/source/mq/source_mq.h"

#define SPOOL_AHEAD 64 /* rows read by one query */

/* A message in a slot that is not on the disk. */
struct spool_wait {
    int64_t key;
    struct lent *lent;
    bool unique; /* the commit that writes its row claims its unique key */
};

/* Lock order: steer_mtx, write_mtx, mtx, then custody's and the store's.
 * m = under mtx   w = under write_mtx   c = constant after open
 * a = atomic, written under mtx   t = used by the spool's thread only */
struct spool {
    struct source_mq *q;       /* c */
    struct ends *ends;         /* c */
    uint64_t doubt;            /* c  messages up to this seq may have run */
    int wake;                  /* c  eventfd that wakes the thread */
    pthread_mutex_t write_mtx; /* held from ends_peek to ends_drop */
    pthread_mutex_t mtx;
    pthread_mutex_t steer_mtx; /* held by a cancel, from seize to release */
    pthread_t thread;          /* c  valid if started */
    bool started;              /* owned by the caller of start and stop */
    bool grown;                /* t  custody was given slots for the spool */
    atomic_bool stop;          /* a */

    /* Messages in slots only, by key: the last element comes next. */
    struct spool_wait *waiting; /* m */
    _Atomic size_t waits;       /* a  count of `waiting` */
    /* Messages on their way to the disk; they cannot be taken. */
    struct spool_wait *writing; /* m; w reads it */
    struct store_spooled *rows; /* w  rows to write, one per `writing` */
    struct store_key *keys;     /* w  unique keys of these rows */
    struct store_row *later;    /* w  rows of messages that are not due yet */
    _Atomic size_t writes;      /* a  count of `writing` */
    _Atomic size_t failed;      /* a  number of failed commits (spool_waits) */
    int64_t writing_first;      /* m  the lowest key in `writing` */
    /* Rows on the disk that were read ahead, in their order. */
    struct store_spooled ahead[SPOOL_AHEAD]; /* m */
    size_t at, count;                        /* m */
    void *bodies;                            /* c  bodies of `ahead` */
    size_t room;                             /* c  bytes of `bodies` */
    _Atomic uint64_t *taken; /* a  highest seq lent, by priority */
    _Atomic int64_t left;    /* a  rows on the disk that were not lent yet */
    _Atomic int64_t large;   /* a  key of a row larger than a slot; 0: none */
    /* Numbers that an operator is about to cancel; a row has minus its key. */
    const int64_t *seized; /* m */
    size_t seized_count;   /* m */
    /* a  take waits for the next message, which is on its way to the disk */
    atomic_bool stalled;

    _Atomic uint64_t direct; /* a  messages that work items received */
    atomic_bool full;        /* a  --spool is reached */
    atomic_bool disk_fails;  /* a  the last write failed */
    bool logged_full;        /* t */
};

static uint64_t spool_most(const struct spool *sp)
{
    return atomic_load(&sp->q->set->spool);
}

/* Return true if every message must be on the disk before it runs. */
static bool spool_always(const struct spool *sp)
{
    return sp->q->set->spool_sync == SPOOL_SYNC_ALWAYS && spool_most(sp) > 0;
}

int64_t spool_key_of(const struct slot *slot)
{
    return store_spool_key(slot->priority, slot->seq);
}

/* Return true if all slots for the spool are in use. In that case no message is
 * received until some messages reach the disk. */
static bool slots_crowded(const struct spool *sp)
{
    return atomic_load(&sp->waits) + atomic_load(&sp->writes) >= SPOOL_SLOTS;
}

/* Return true if the next receive sequence fits into a key. */
static bool key_fits(const struct spool *sp)
{
    return custody_seq_next(sp->q->custody) < STORE_SPOOL_SEQ_MAX;
}

/* Return true if a unique key must be claimed for the message; `h` gets its
 * header. A replayed letter needs no claim, because its key was claimed when
 * the letter was first received. */
static bool header_unique(const struct message *m, struct header *h)
{
    char why[HEADER_WHY];

    return header_found(m->data, m->size) &&
           header_parse(m->data, m->size, h, why) == 0 &&
           h->fields & HEADER_UNIQUE && !(h->fields & HEADER_LETTER);
}

/* ---- the lines ---- */

void spool_wake(const struct spool *sp)
{
    (void)eventfd_write(sp->wake, 1);
}

/* Insert a message into `waiting`, searching from its end, because the newest
 * message is usually the last of its priority. */
static void waiting_add_locked(struct spool *sp, struct lent *l)
{
    int64_t key = spool_key_of(l->slot);
    size_t n = atomic_load(&sp->waits), at = 0;
    struct header h;

    while (at < n && sp->waiting[at].key > key)
        at++;
    memmove(&sp->waiting[at + 1], &sp->waiting[at],
            (n - at) * sizeof *sp->waiting);
    sp->waiting[at] = (struct spool_wait){
        .key = key, .lent = l, .unique = header_unique(&l->m, &h)};
    atomic_store(&sp->waits, n + 1);
}

/* Receive a message of the queue into a slot, as a work item would.
 * Crash: the slot is HELD and the message is not on the disk. Recovery adds it
 * to `waiting` again. */
static int waiting_receive_locked(struct spool *sp, uint64_t wall_ns)
{
    struct source_mq *q = sp->q;
    struct slot *slot;
    struct lent *l;
    int err;

    slot = slots_crowded(sp) ? NULL : custody_acquire(q->custody);
    if (!slot)
        return -ENOBUFS;
    l = source_mq_lent(q, slot);
    err = mq_fetch(q, l, wall_ns);
    if (!err)
        waiting_add_locked(sp, l);
    else if (slot_free(slot))
        custody_release(q->custody, slot);
    return err;
}

/* Return true if the row was lent. Rows of one priority are lent in order, and
 * each commit adds rows that come after the rows of the last commit, so `taken`
 * needs only one number for each priority. */
static bool row_is_lent(const struct spool *sp, int64_t key)
{
    return store_spool_seq(key) <= sp->taken[store_spool_priority(key)];
}

/* `taken` covers rows only, so a letter, or a message that ran straight from
 * its slot, counts as waiting until a later row of its priority is lent. */
bool mq_queued(const struct source *s, int64_t number)
{
    const struct spool *sp = source_mq_of(s)->spool;

    return sp && spool_waits(sp) > 0 &&
           (number == 0 || !row_is_lent(sp, -number));
}

/* A message is added to the next line before it leaves its own, and the lines
 * are read in the order in which a message passes them; all of these accesses
 * are sequentially consistent. So a message that was not seen in one line is
 * seen in the next, or counted twice. Only a failed commit moves messages back:
 * `failed` rises before they leave `writing`, so that a reader that finds
 * `writing` empty sees the new number and reads all lines again. */
uint64_t spool_waits(const struct spool *sp)
{
    size_t failed, here;
    int64_t left;

    do {
        failed = atomic_load(&sp->failed);
        here = atomic_load(&sp->waits);
        here += atomic_load(&sp->writes);
        left = atomic_load(&sp->left);
    } while (here == 0 && left <= 0 && failed != atomic_load(&sp->failed));
    return (left > 0 ? (uint64_t)left : 0) + here;
}

void spool_adopt(struct spool *sp, struct slot *slot)
{
    struct lent *l = source_mq_lent(sp->q, slot);

    lent_fill(l);
    pthread_mutex_lock(&sp->mtx);
    waiting_add_locked(sp, l);
    pthread_mutex_unlock(&sp->mtx);
}

/* ---- to the disk ---- */

#define ENDS_BATCH 1024 /* keys that one commit deletes */

/* Fill rows[i] from writing[i]. Called by spool_write, which holds write_mtx. A
 * replayed letter already has a row of its own, and is linked to that row when
 * its turn comes. `may_wait`: the store has room for one more message that
 * waits for its time. */
static void spool_row_fill(struct spool *sp, size_t i, bool may_wait)
{
    const uint64_t most_ms = UINT64_MAX / NS_PER_MS;
    const struct settings *set = sp->q->set;
    const struct spool_wait *wait = &sp->writing[i];
    const struct slot *slot = wait->lent->slot;
    struct message *m = &wait->lent->m;
    struct store_spooled *row = &sp->rows[i];
    struct slot_word w = slot_word(slot);
    struct header h = {0};
    char why[HEADER_WHY];

    /* A broken header has no effect. */
    if (!header_found(m->data, m->size) ||
        header_parse(m->data, m->size, &h, why) < 0)
        h.fields = 0;
    if (wait->unique && h.fields & HEADER_ID && !message_named(m))
        *m->id = h.id; /* the log names it beside a duplicate */
    *row = (struct store_spooled){.key = wait->key,
                                  .received_ns = slot->received_ns,
                                  .crashes = w.crashes,
                                  .flags = w.flags & LENT_MARKS,
                                  .data = m->data,
                                  .size = m->size};
    if (wait->unique) {
        uint64_t ms = HEADER_UNIQUE_MS;
        uint64_t from = m->received_ns ? m->received_ns : clock_wall_ns();

        if (h.fields & HEADER_UNIQUE_FOR)
            ms = h.unique_for_ms < most_ms ? h.unique_for_ms : most_ms;
        sp->keys[i] =
            (struct store_key){.text = h.unique.at,
                               .size = h.unique.size,
                               .seq = m->seq,
                               .id = *message_name(m),
                               .received_ns = from,
                               .until_ns = ns_add(from, ms * NS_PER_MS)};
        row->unique = &sp->keys[i];
    }
    row->id = slot->id; /* message_name may have made it */
    if (h.fields & HEADER_LETTER && h.letter <= INT64_MAX)
        row->letter = (int64_t)h.letter;
    /* A delayed message gets a row of its own, in which it waits for its time.
     * A message of a group waits for its turn instead, because earlier messages
     * of the group may be in the spool, which does not order groups. */
    if (may_wait && h.fields & HEADER_NOT_BEFORE &&
        !(h.fields & HEADER_LETTER)) {
        struct store_row *later = &sp->later[i];
        struct delivery d;

        delivery_read(&d, m, set->group_separator);
        if (d.group.at || !delivery_delayed(&d, set->max_delay_ns))
            return;
        row_make(later, wait->lent, d.group, d.header.bytes);
        later->state = STORE_WAITING;
        later->due_ns = delivery_due(&d, &later->due_boot_ns, &later->delay_ns);
        row->later = later;
    }
}

/* Compare two messages by their order of receipt, for qsort(3). */
static int receipt_compare(const void *a, const void *b)
{
    const struct spool_wait *x = a, *y = b;

    return (x->lent->m.seq > y->lent->m.seq) -
           (x->lent->m.seq < y->lent->m.seq);
}

/* Free the slots of rows that the commit wrote. Called by the store on the
 * thread that commits, as soon as the commit is durable and before any later
 * commit. Duplicates keep their slots, because their rows were not written. */
static void rows_written(void *arg)
{
    struct spool *sp = arg;

    FAULT_POINT("spool_written");
    for (size_t i = 0; i < atomic_load(&sp->writes); i++)
        if (!sp->rows[i].taken)
            slot_retire(sp->writing[i].lent->slot);
}

/* Return true if spool_write still needs the slot after the commit, to report a
 * duplicate or a delayed message. */
static bool row_needs_slot(const struct spool *sp, size_t i)
{
    return sp->rows[i].taken || sp->rows[i].later;
}

/* Empty `writing` after a commit. If the commit failed, the messages go back to
 * `waiting`; otherwise they are rows on the disk. Each message is added to its
 * next line before it leaves `writing` (see spool_waits). */
static void writing_finish(struct spool *sp, size_t n, int err)
{
    int64_t came = 0;
    bool stalled;

    for (size_t i = 0; i < n && !err; i++)
        came += !row_needs_slot(sp, i);
    pthread_mutex_lock(&sp->mtx);
    if (err) {
        for (size_t i = 0; i < n; i++)
            waiting_add_locked(sp, sp->writing[i].lent);
        atomic_fetch_add(&sp->failed, 1);
    } else if (n) {
        atomic_fetch_add(&sp->left, came);
        if (sp->at < sp->count &&
            sp->writing_first < sp->ahead[sp->count - 1].key)
            sp->count = sp->at; /* read ahead again: a new row comes first */
    }
    atomic_store(&sp->writes, 0);
    stalled = atomic_exchange(&sp->stalled, false);
    pthread_mutex_unlock(&sp->mtx);
    for (size_t i = 0; i < n && !err; i++)
        if (!row_needs_slot(sp, i))
            custody_release(sp->q->custody, sp->writing[i].lent->slot);
    if (n || stalled)
        sp->q->events.changed(sp->q->events.flow);
}

/* Make a dead letter of a row that is larger than a slot, because such a row
 * cannot run. The caller does not hold write_mtx. */
static int large_bury(struct spool *sp)
{
    int64_t key = atomic_load(&sp->large);
    struct store *store = sp->q->store;
    struct store_spooled m;
    char *data = NULL;
    int n, err;

    if (key == 0)
        return 0;
    if (source_mq_writable(sp->q))
        return -EBADFD;
    n = store_spool_read(store, key - 1, &m, 1, NULL, 0); /* gets the size */
    if (n == -EMSGSIZE && m.key == key) {
        data = malloc(m.size);
        if (!data)
            return -ENOMEM;
        n = store_spool_read(store, key - 1, &m, 1, data, m.size);
    }
    err = n < 0 && n != -EMSGSIZE ? n : -ENOENT;
    if (data && n == 1 && m.key == key) {
        struct store_row row = {.receive_seq = store_spool_seq(key),
                                .id = m.id,
                                .priority = store_spool_priority(key),
                                .crashes = m.crashes,
                                .flags = m.flags,
                                .first_received_ns = m.received_ns,
                                .data = data,
                                .size = m.size,
                                .spool = key};

        err = row_too_large(sp->q, &row);
        if (!err)
            atomic_fetch_sub(&sp->left, 1);
    }
    free(data);
    if (!err || err == -ENOENT)
        atomic_store(&sp->large, 0);
    return err == -ENOENT ? 0 : err;
}

/* Write the ends of messages to the store and, if `waiting`, the messages that
 * wait in memory, all in one commit. The spool's thread passes `waiting`, and
 * so does spool_stop after that thread has ended; no other thread may, because
 * the results in `rows` are read without the lock. Any thread that settles a
 * message may call it without `waiting`, if the file of ends is full.
 * Crash before a duplicate is settled: its slot is HELD, the next start claims
 * its key again, and gets the same answer. Crash before a message that waits
 * for its time is reported: the next start finds its row. */
static int spool_write(struct spool *sp, bool waiting)
{
    int64_t ends[ENDS_BATCH];
    struct store_spool_change c = {
        .in = sp->rows, .out = ends, .durable = rows_written, .arg = sp};
    uint64_t room = sp->q->set->max_waiting / 2, used;
    struct store_waits waits;
    int large = waiting ? large_bury(sp) : 0, err;
    bool any_later = false;

    pthread_mutex_lock(&sp->write_mtx);
    c.out_count = ends_peek(sp->ends, ends, ENDS_BATCH);
    if (waiting) {
        /* Move all waiting messages to `writing` and sort them by receipt, so
         * that each priority reaches the disk in its order and unique keys are
         * claimed in the order of receipt. */
        pthread_mutex_lock(&sp->mtx);
        c.in_count = atomic_load(&sp->waits);
        if (c.in_count) {
            sp->writing_first = sp->waiting[c.in_count - 1].key;
            memcpy(sp->writing, sp->waiting, c.in_count * sizeof *sp->writing);
        }
        atomic_store(&sp->writes, c.in_count);
        atomic_store(&sp->waits, 0);
        pthread_mutex_unlock(&sp->mtx);
        qsort(sp->writing, c.in_count, sizeof *sp->writing, receipt_compare);
    }
    /* Use only half of --max-waiting for delayed messages. The other half is
     * for the verdicts of work items, which stop taking messages when
     * --max-waiting is reached. */
    waits = store_waits(sp->q->store);
    used = (uint64_t)(waits.waiting + waits.parked);
    room -= used < room ? used : room;
    for (size_t i = 0; i < c.in_count; i++) {
        spool_row_fill(sp, i, room > 0);
        room -= sp->rows[i].later != NULL;
    }
    err = source_mq_writable(sp->q);
    if (!err && c.in_count + c.out_count > 0)
        err = store_spool_change(sp->q->store, &c);
    if (!err)
        ends_drop(sp->ends, c.out_count);
    if (waiting)
        writing_finish(sp, c.in_count, err);
    pthread_mutex_unlock(&sp->write_mtx);
    for (size_t i = 0; i < c.in_count && !err; i++) {
        struct lent *l = sp->writing[i].lent;
        const struct store_row *later = sp->rows[i].later;

        if (sp->rows[i].taken) {
            FAULT_POINT("spool_duplicate_before");
            sp->q->events.duplicate(sp->q->events.flow, &l->m,
                                    &sp->rows[i].first);
        } else if (later) {
            due_rows_expect(sp->q->due_rows,
                            later->due_boot_ns ? later->due_boot_ns
                                               : clock_boot_at(later->due_ns));
            sp->q->events.delayed(sp->q->events.flow, &l->m);
            custody_release(sp->q->custody, l->slot);
            any_later = true;
        }
    }
    if (any_later) /* take may have waited for one of these slots */
        sp->q->events.changed(sp->q->events.flow);
    return err ? err : large;
}

/* ---- rows that an operator cancels ---- */

/* Return true if an operator is about to cancel the row. */
static bool row_seized_locked(const struct spool *sp, int64_t key)
{
    for (size_t i = 0; i < sp->seized_count; i++)
        if (sp->seized[i] == -key)
            return true;
    return false;
}

/* A message without a row needs no protection: if its row is written before the
 * cancel commit, the commit marks that row; otherwise there is no row to mark.
 */
void spool_seize(struct spool *sp, const int64_t *numbers, size_t n, bool *skip)
{
    pthread_mutex_lock(&sp->steer_mtx);
    pthread_mutex_lock(&sp->mtx);
    sp->seized = numbers;
    sp->seized_count = n;
    for (size_t i = 0; i < n; i++)
        if (numbers[i] < 0)
            skip[i] = row_is_lent(sp, -numbers[i]);
    pthread_mutex_unlock(&sp->mtx);
}

void spool_release(struct spool *sp, const bool *done)
{
    bool stalled;

    pthread_mutex_lock(&sp->mtx);
    /* Mark the rows that were read before the commit; rows that are read later
     * have the mark already. */
    for (size_t i = 0; i < sp->seized_count; i++)
        for (size_t k = sp->at; k < sp->count; k++)
            if (done[i] && sp->ahead[k].key == -sp->seized[i])
                sp->ahead[k].flags |= STORE_CANCELLED;
    sp->seized_count = 0;
    stalled = atomic_exchange(&sp->stalled, false);
    pthread_mutex_unlock(&sp->mtx);
    pthread_mutex_unlock(&sp->steer_mtx);
    if (stalled)
        sp->q->events.changed(sp->q->events.flow);
}

/* ---- taking a message, and its end ---- */

#define KEY_NONE INT64_MAX /* no key is as high */

static bool slot_fits(const struct spool *sp, const struct store_spooled *m)
{
    return m->size <= custody_body_bytes(sp->q->custody);
}

/* Find the key of the next row on the disk, or KEY_NONE. Reads ahead if all
 * rows read before were lent. Called under mtx, by the work item that takes.
 * Returns -EINPROGRESS if the next row is larger than a slot: the spool's
 * thread buries it, because a work item must not wait for the disk here. */
static int row_next(struct spool *sp, int64_t *key)
{
    const struct store_spooled *rows = sp->ahead;
    int64_t after = 0;

    *key = KEY_NONE;
    if (atomic_load(&sp->left) <= 0)
        return 0;
    while (sp->at == sp->count) {
        int n = store_spool_read(sp->q->store, after, sp->ahead, SPOOL_AHEAD,
                                 sp->bodies, sp->room);

        sp->at = sp->count = 0;
        if (n > 0 && row_is_lent(sp, rows[0].key)) {
            /* Skip the rows of this priority up to `taken`, because they were
             * lent. */
            uint32_t priority = store_spool_priority(rows[0].key);

            after = store_spool_key(priority, sp->taken[priority]);
            continue;
        }
        if (n == -EMSGSIZE || (n > 0 && !slot_fits(sp, &rows[0]))) {
            if (!row_seized_locked(sp, rows[0].key))
                atomic_store(&sp->large, rows[0].key);
            return -EINPROGRESS;
        }
        if (n < 0)
            return n;
        while ((int)sp->count < n && !row_is_lent(sp, rows[sp->count].key) &&
               slot_fits(sp, &rows[sp->count]))
            sp->count++;
        if (n == 0) { /* another program deleted them */
            atomic_store(&sp->left, 0);
            return 0;
        }
    }
    *key = rows[sp->at].key;
    return 0;
}

/* Load the next row into the lane's slot and lend it.
 * Crash before the slot is HELD: the row waits on the disk as before. Crash
 * after it: recovery finds the row by its key and frees the slot. A cancelled
 * row is taken again with its mark. */
static int row_lend(struct spool *sp, unsigned lane, struct message **out)
{
    const struct store_spooled *m = &sp->ahead[sp->at];
    struct lent *l = mq_lane_get(sp->q, lane);
    bool doubt = store_spool_seq(m->key) <= sp->doubt;
    struct slot *slot = l->slot;

    if (slot->dirty < m->size)
        slot->dirty = (uint32_t)m->size;
    memcpy(slot->body, m->data, m->size);
    slot_hold(slot,
              &(struct slot_meta){.length = (uint32_t)m->size,
                                  .priority = store_spool_priority(m->key),
                                  .crashes = m->crashes,
                                  .flags = (m->flags & LENT_MARKS) |
                                           (doubt ? SLOT_REDELIVERED : 0),
                                  .seq = store_spool_seq(m->key),
                                  .received_ns = m->received_ns,
                                  .id = m->id});
    FAULT_POINT("spool_row_held");
    lent_fill(l);
    l->spooled = m->key;
    if (m->letter == 0)
        l->m.flags |= MESSAGE_KEYED;
    sp->taken[store_spool_priority(m->key)] = slot->seq;
    sp->at++;
    atomic_fetch_sub(&sp->left, 1);
    (void)mq_lend(sp->q, lane, out);
    if (!(m->flags & STORE_CANCELLED))
        return 0;
    l->m.flags |= MESSAGE_CANCELLED;
    return -ECANCELED;
}

/* Note that take waits for the spool's thread, and wake that thread. While the
 * disk fails, the thread needs no waking: it tries again every RETRY_MS. It
 * clears `disk_fails` before it reads `stalled`, so either the thread sees
 * `stalled` or this call sees that the disk works. */
static int take_stall(struct spool *sp)
{
    atomic_store(&sp->stalled, true);
    if (!atomic_load(&sp->disk_fails))
        spool_wake(sp);
    return -EAGAIN;
}

/* Lend the first message of the three lines and of the queue. Called by
 * spool_take under mtx. The lane gets its slot before a message is received, so
 * that the receive cannot use up the last free slot. */
static int first_lend(struct spool *sp, unsigned lane, uint64_t wall_ns,
                      struct message **out)
{
    bool slot = mq_lane_get(sp->q, lane) != NULL;
    int got = waiting_receive_locked(sp, wall_ns);
    size_t waits = atomic_load(&sp->waits), writes = atomic_load(&sp->writes);
    const struct spool_wait *next = waits ? &sp->waiting[waits - 1] : NULL;
    int64_t wait = next ? next->key : KEY_NONE, row;
    int64_t write = writes ? sp->writing_first : KEY_NONE;
    int err = row_next(sp, &row);

    if (err)
        return err == -EINPROGRESS ? take_stall(sp) : err;
    /* A message that could not be received for want of a slot may come before
     * the messages of all three lines. The next commit frees a slot for that
     * message. */
    if (got == -ENOBUFS && waits + writes > 0 && !atomic_load(&sp->disk_fails))
        return take_stall(sp);
    if (write < wait && write < row)
        return take_stall(sp);
    if (row < wait && row_seized_locked(sp, row))
        return take_stall(sp);
    if (row < wait && !slot)
        return waits + writes > 0 ? take_stall(sp) : -EAGAIN; /* none is free */
    if (row < wait)
        return row_lend(sp, lane, out);
    if (!next)
        return got == -ENOBUFS ? -EAGAIN : got;
    if (spool_always(sp) || next->unique)
        return take_stall(sp);
    *out = &next->lent->m; /* the message has no row */
    atomic_store(&sp->waits, waits - 1);
    return 0;
}

/* Lend the next message of the spool, or of the queue if no message waits. Not
 * inline, so that mq_take has a small stack frame when the spool is off. */
__attribute__((noinline)) int spool_take(struct spool *sp, unsigned lane,
                                         uint64_t wall_ns, struct message **out)
{
    struct source_mq *q = sp->q;
    struct lent *l;
    struct header h;
    uint64_t most;
    int err;

    pthread_mutex_lock(&sp->mtx);
    if (atomic_load(&sp->left) > 0 || atomic_load(&sp->waits) > 0 ||
        atomic_load(&sp->writes) > 0 || (spool_always(sp) && key_fits(sp))) {
        err = first_lend(sp, lane, wall_ns, out);
    } else {
        /* No message comes before those in the queue: take straight from the
         * queue, unless the message needs a unique key first. */
        l = mq_lane_get(q, lane);
        err = l ? mq_fetch(q, l, wall_ns) : -EAGAIN;
        if (!err && header_unique(&l->m, &h)) {
            q->lanes[lane] = NULL;
            waiting_add_locked(sp, l);
            err = take_stall(sp);
        } else if (!err) {
            err = mq_lend(q, lane, out);
            atomic_fetch_add_explicit(&sp->direct, 1, memory_order_relaxed);
        } else if (l && !slot_free(l->slot)) { /* half received */
            q->lanes[lane] = NULL;
        }
    }
    pthread_mutex_unlock(&sp->mtx);
    /* Wake the thread of a full spool when a sixteenth of the spool is free, so
     * that it receives again. */
    most = spool_most(sp);
    if (atomic_load(&sp->full) && spool_waits(sp) < most - most / 16)
        spool_wake(sp);
    return err;
}

/* Note the end, which frees the slot (ends_put); the spool's thread deletes the
 * row later. That thread is woken for the first end, and again when there are
 * many. If the file of ends is full, the caller's thread deletes rows first. */
int spool_end(struct spool *sp, struct lent *l)
{
    size_t noted = ends_put(sp->ends, l->spooled, l->slot);
    int err;

    if (noted == 0) {
        err = spool_write(sp, false);
        noted = err ? 0 : ends_put(sp->ends, l->spooled, l->slot);
        if (noted == 0)
            return err ? err : -EAGAIN;
    }
    l->spooled = 0;
    if (noted == 1 || noted == ENDS_MOST / 4)
        spool_wake(sp);
    return 0;
}

bool mq_pending(const struct source *s)
{
    const struct source_mq *q = source_mq_of(s);
    const struct spool *sp = q->spool;

    return atomic_load_explicit(&q->name_gone, memory_order_relaxed) ||
           (sp && !atomic_load(&sp->stalled) &&
            (atomic_load(&sp->left) > 0 || atomic_load(&sp->waits) > 0));
}

/* ---- turning the spool on ---- */

/* Allocate memory, open the file of ends, and make mq_take use the spool.
 * Called by spool_open on the engine's thread, or by the spool's thread if the
 * spool is turned on later. If the store has the number of the file, and the
 * machine did not go down, the file belongs to the last worker and is used as
 * it is, so that a start after a kill writes nothing. Otherwise the file is
 * emptied and gets a new number, which is then written to the store. Crash
 * between these two writes: the numbers differ, or the store has none, and the
 * next start does the same again. */
static int spool_turn_on(struct spool *sp, struct problem *p)
{
    struct source_mq *q = sp->q;
    size_t most = custody_slots_most(q->custody);
    const char *custody = custody_path(q->custody);
    struct store_spool_left left = {0};
    char path[PATH_MAX];
    uint64_t run;
    int err;

    sp->room = (size_t)SPOOL_AHEAD * 1024;
    if (sp->room < custody_body_bytes(q->custody))
        sp->room = custody_body_bytes(q->custody);
    sp->waiting = calloc(most + 1, sizeof *sp->waiting);
    sp->writing = calloc(most, sizeof *sp->writing);
    sp->rows = calloc(most, sizeof *sp->rows);
    sp->keys = calloc(most, sizeof *sp->keys);
    sp->later = calloc(most, sizeof *sp->later);
    sp->bodies = malloc(sp->room);
    /* The array is large, but the kernel backs only the pages of the priorities
     * in use. */
    sp->taken = calloc(STORE_SPOOL_PRIORITY + 1, sizeof *sp->taken);
    if (!sp->waiting || !sp->writing || !sp->rows || !sp->keys || !sp->later ||
        !sp->bodies || !sp->taken)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    if (snprintf(path, sizeof path, "%.*sends",
                 (int)(strrchr(custody, '/') - custody + 1),
                 custody) >= (int)sizeof path)
        return problem_set(p, EX_CANTCREAT, ENAMETOOLONG, "%s: too long",
                           custody);
    err = ends_open(&sp->ends, path, p);
    if (err)
        return err;
    err = store_spool_left(q->store, &left);
    run = ends_run(sp->ends);
    sp->doubt = left.doubt;
    if (!err && (left.cut || run == 0 || run != left.run)) {
        run = (uint64_t)arc4random() + 1;
        ends_reset(sp->ends, run);
        if (left.run)
            sp->doubt = left.seq;
    }
    if (!err && run != left.run)
        err = store_spool_begin(q->store, run, sp->doubt);
    if (err)
        return problem_set(p, EX_CANTCREAT, -err,
                           "store of %s: the spool cannot be started: %s. "
                           "Nothing was lost; %s, and start again",
                           q->set->queue, errno_text(-err), disk_advice(err));
    quick_lock(q->take_lock);
    custody_seq_raise(q->custody, left.seq + 1);
    q->spool = sp;
    quick_unlock(q->take_lock);
    return 0;
}

/* ---- the thread ---- */

/* The thread leaves the queue to work items for LEAVE_MS at a time, as long as
 * they take LEAVE_LEAST messages in that time. At that rate they are as fast as
 * the disk. */
#define LEAVE_MS    1
#define LEAVE_LEAST 64
#define GATHER_NS   (50 * NS_PER_US) /* between two messages of a batch */
#define ENDS_MS     200  /* delay before rows of ended messages are deleted */
#define RETRY_MS    1000 /* after a failed write */
#define PIECE       16   /* messages received before take may have the lock */

/* Return true if the spool may receive more. Returns false if it is off. */
static bool has_room_locked(const struct spool *sp)
{
    return spool_waits(sp) < spool_most(sp) && key_fits(sp);
}

/* Receive the messages of the queue, and more as long as the sender adds one
 * within GATHER_NS. Called on the spool's thread, or by spool_stop after that
 * thread has ended. Returns how many messages came, or -errno. */
static int spool_gather(struct spool *sp)
{
    const struct timespec most = {.tv_nsec = GATHER_NS};
    struct pollfd fd = {.fd = queue_fd(sp->q->queue), .events = POLLIN};
    int n = 0, err;

    do {
        uint64_t wall = clock_wall_ns();

        err = 0;
        pthread_mutex_lock(&sp->mtx);
        for (int i = 0; i < PIECE && !err; i++) {
            err = has_room_locked(sp) ? waiting_receive_locked(sp, wall)
                                      : -ENOBUFS;
            n += !err;
        }
        pthread_mutex_unlock(&sp->mtx);
    } while (!err ||
             (err == -EAGAIN && n > 0 && ppoll(&fd, 1, &most, NULL) > 0));
    return err == -EAGAIN || err == -ENOBUFS ? n : err;
}

/* Log once that the spool is full, and once that a sixteenth of it is free
 * again. */
static void full_log(struct spool *sp)
{
    uint64_t most = spool_most(sp), waits = spool_waits(sp);
    bool full = most > 0 && waits >= most;

    atomic_store(&sp->full, full);
    if (full && !sp->logged_full) {
        sp->logged_full = true;
        log_warn("spool_full", F_STR("queue", sp->q->set->queue),
                 F_UINT("spooled", waits), F_UINT("spool", most),
                 F_STR("next", "messages stay in the queue, and senders wait, "
                               "until some spooled messages have run. Raise "
                               "the limit with mqctl set spool="));
    } else if (sp->logged_full && waits < most - most / 16) {
        sp->logged_full = false;
        log_info("spool_room", F_STR("queue", sp->q->set->queue),
                 F_UINT("spooled", waits), F_UINT("spool", most));
    }
}

/* Return true if the spool's thread has a reason to write. At --spool 0,
 * waiting messages are written only if they use up all slots, or if take waits
 * for them. A row that is larger than a slot is also a reason, because take
 * waits until it is a dead letter. */
static bool has_work(const struct spool *sp)
{
    return atomic_load(&sp->large) != 0 ||
           (atomic_load(&sp->waits) > 0 &&
            (spool_most(sp) > 0 || slots_crowded(sp) ||
             custody_free_slots(sp->q->custody) == 0 ||
             atomic_load(&sp->stalled)));
}

static void stuck_log(const struct spool *sp, const char *error,
                      const char *next)
{
    log_error("spool_stuck", F_STR("queue", sp->q->set->queue),
              F_STR("error", error), F_STR("next", next));
}

/* Wait for work. Returns true if the queue has a message and the spool may
 * receive it. */
static bool work_wait(struct spool *sp)
{
    bool disk_fails = atomic_load(&sp->disk_fails);
    struct pollfd fds[2] = {{.fd = sp->wake, .events = POLLIN},
                            {.fd = -1, .events = POLLIN}};
    int ms = disk_fails                 ? RETRY_MS
             : has_work(sp)             ? 0
             : ends_count(sp->ends) > 0 ? ENDS_MS
                                        : -1;
    uint64_t ignored;

    pthread_mutex_lock(&sp->mtx); /* protects the receive sequence */
    if (!disk_fails && has_room_locked(sp))
        fds[1].fd = queue_fd(sp->q->queue);
    pthread_mutex_unlock(&sp->mtx);
    (void)poll(fds, 2, ms);
    if (fds[0].revents)
        (void)!read(sp->wake, &ignored, sizeof ignored);
    return fds[1].revents & POLLIN;
}

/* Move messages from the queue to the disk, and delete the rows of messages
 * that ended. Main function of the spool's thread, which spool_start starts. */
static void *intake_main(void *arg)
{
    struct spool *sp = arg;
    struct source_mq *q = sp->q;
    struct pollfd wake = {.fd = sp->wake, .events = POLLIN};
    struct problem p;
    char next[512];

    /* The spool may have been off when the worker started. */
    if (!q->spool && spool_turn_on(sp, &p) < 0) {
        stuck_log(
            sp, p.text,
            "the spool stays off. Fix the error, then restart the worker");
        return NULL;
    }
    while (!atomic_load(&sp->stop)) {
        bool readable = work_wait(sp), failed;
        int err;

        /* Custody was opened without slots for a spool that was off. */
        if (!sp->grown && spool_most(sp) > 0) {
            sp->grown = true;
            if (custody_grow(q->custody,
                             custody_slots(q->custody) + SPOOL_SLOTS, &p) < 0)
                log_warn("spool_slots", F_STR("queue", q->set->queue),
                         F_STR("error", p.text),
                         F_STR("next", "the spool is slower: it shares the "
                                       "existing slots"));
        }
        if (atomic_load(&sp->stop))
            break;
        /* While no message waits in the spool, leave the queue to the work
         * items if they keep up with it. */
        if (readable && spool_waits(sp) == 0 && !spool_always(sp)) {
            uint64_t before = atomic_load(&sp->direct);

            (void)poll(&wake, 1, LEAVE_MS);
            readable = queue_length(q->queue) != 0 &&
                       atomic_load(&sp->direct) - before < LEAVE_LEAST;
        }
        if (readable && spool_gather(sp) < 0) {
            /* A work item gets the same error and logs it. */
            q->events.changed(q->events.flow);
            (void)poll(NULL, 0, LEAVE_MS);
        }
        if (has_work(sp) || ends_count(sp->ends) > 0) {
            err = spool_write(sp, true);
            failed = atomic_exchange(&sp->disk_fails, err != 0);
            snprintf(next, sizeof next,
                     "%s. Nothing is lost: new messages stay in the queue, and "
                     "taken ones are in custody",
                     disk_advice(err));
            if (err && !failed)
                stuck_log(sp, errno_text(-err), next);
            else if (!err && failed)
                log_info("spool_well", F_STR("queue", q->set->queue));
        }
        full_log(sp);
    }
    return NULL;
}

static void thread_stop(struct spool *sp)
{
    if (!sp->started)
        return;
    atomic_store(&sp->stop, true);
    spool_wake(sp);
    pthread_join(sp->thread, NULL);
    sp->started = false;
}

/* ---- from one worker to the next ---- */

#define STOP_NS (5 * NS_PER_S) /* time limit of a stop with busy senders */

int spool_find(struct spool *sp, const struct slot *slot, enum spool_at *out)
{
    int64_t key = spool_key_of(slot);
    bool cancelled;
    int err;

    *out = SPOOL_AT_NOT;
    if (slot->seq >= STORE_SPOOL_SEQ_MAX)
        return 0;
    if (ends_has(sp->ends, key)) {
        *out = SPOOL_AT_ENDED;
        return 0;
    }
    err = store_spool_find(sp->q->store, key, &cancelled);
    if (!err)
        *out = cancelled ? SPOOL_AT_CANCELLED : SPOOL_AT_ROW;
    return err == -ENOENT ? 0 : err;
}

/* Crash after the write: the slot is as before, and the next start writes the
 * same numbers again. */
int spool_note(struct spool *sp, const struct slot *slot)
{
    struct slot_word w = slot_word(slot);
    bool ran = w.state == SLOT_RUNNING;
    struct store_spooled m = {.key = spool_key_of(slot),
                              .id = slot->id,
                              .crashes = w.crashes + ran,
                              .flags = w.flags & LENT_MARKS};

    if (ran)
        m.flags |= STORE_REDELIVERED;
    return m.crashes || m.flags ? store_spool_note(sp->q->store, &m) : 0;
}

/* The thread has all signals blocked, because the peeker handles them. If it
 * cannot be started, messages are taken as without a spool, and rows on the
 * disk still run. */
void spool_start(struct spool *sp)
{
    sigset_t all, old;
    int err;

    if (sp && sp->started)
        spool_wake(sp);
    if (!sp || sp->started || (!sp->q->spool && spool_most(sp) == 0))
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    err = pthread_create(&sp->thread, NULL, intake_main, sp);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    sp->started = err == 0;
    if (err)
        stuck_log(sp, errno_text(err),
                  "no thread can be started: raise the limit (ulimit -u, "
                  "TasksMax=) and start the worker again");
}

int spool_open(struct source_mq *q, struct problem *p)
{
    struct spool *sp = q->spool_there = calloc(1, sizeof *sp);

    if (!sp)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    sp->q = q;
    sp->grown = spool_most(sp) > 0; /* slots_for counted them */
    pthread_mutex_init(&sp->mtx, NULL);
    pthread_mutex_init(&sp->write_mtx, NULL);
    pthread_mutex_init(&sp->steer_mtx, NULL);
    sp->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (sp->wake < 0)
        return problem_set(p, EX_OSERR, errno, "cannot start: %s",
                           errno_text(errno));
    return spool_most(sp) > 0 || store_spool_count(q->store) != 0
               ? spool_turn_on(sp, p)
               : 0;
}

/* Delete the rows of all messages that ended. */
static int ends_write(struct spool *sp)
{
    int err = 0;

    while (!err && ends_count(sp->ends) > 0)
        err = spool_write(sp, false);
    return err;
}

/* Rows of messages that ended are deleted before other rows can be taken;
 * otherwise those messages would run again. */
int spool_recovered(struct spool *sp, struct problem *p)
{
    int err;

    if (!sp || !sp->q->spool)
        return 0;
    err = ends_write(sp);
    if (err)
        return problem_set(p, EX_CANTCREAT, -err,
                           "store of %s: finished messages cannot be deleted: "
                           "%s. Nothing was lost; %s, and start again",
                           sp->q->set->queue, errno_text(-err),
                           disk_advice(err));
    /* Recovery has returned each message that has a row, or has written its
     * verdict. If that write failed, the message is still in its slot, and its
     * row would run as well. */
    for (unsigned i = 0; i < custody_slots(sp->q->custody); i++)
        if (sp->q->lents[i].spooled)
            return problem_set(
                p, EX_CANTCREAT, EIO,
                "store of %s cannot be written: a message under which the "
                "worker crashed must be saved there first; nothing was lost, "
                "free some space and start again",
                sp->q->set->queue);
    atomic_store(&sp->left, store_waits(sp->q->store).spooled);
    return 0;
}

const char *spool_left_why(const struct spool_last *last, const char **next)
{
    *next = "they stay in the kernel queue, which a reboot empties. Before a "
            "reboot, stop the senders, then start and stop a worker";
    if (last->got < 0)
        return errno_text(-last->got);
    if (last->full) {
        *next = "they stay in the kernel queue, which a reboot empties. Before "
                "a reboot, start a worker with a larger --spool";
        return "the spool is full";
    }
    if (!last->slot_free) {
        *next = "they stay in the kernel queue, which a reboot empties. Before "
                "a reboot, start and stop a worker, which finds free slots or "
                "adds some";
        return "no slot is free";
    }
    return last->got > 0 ? "not all could be moved within 5s"
                         : "senders keep sending";
}

/* Crash: each received message is in a slot or on the disk. */
void spool_stop(struct spool *sp)
{
    uint64_t end = ns_add(clock_mono_ns(), STOP_NS), before, waits, most;
    struct spool_last last;
    const char *why, *next;
    char stuck[512];
    long left;
    int n = 0, err;

    if (!sp)
        return;
    thread_stop(sp);
    if (!sp->q->spool)
        return;
    before = spool_waits(sp);
    do {
        n = spool_gather(sp);
        err = 0;
        while (!err &&
               (atomic_load(&sp->waits) > 0 || ends_count(sp->ends) > 0))
            err = spool_write(sp, true);
    } while (n > 0 && !err && clock_mono_ns() < end);
    if (err) {
        snprintf(stuck, sizeof stuck,
                 "%s, then start a worker. Messages in the queue stay there "
                 "until the next boot, which deletes them",
                 disk_advice(err));
        stuck_log(sp, errno_text(-err), stuck);
        return;
    }
    waits = spool_waits(sp);
    most = spool_most(sp);
    if (waits > 0)
        log_info("spooled", F_STR("queue", sp->q->set->queue),
                 F_UINT("spooled", waits), F_UINT("at_stop", waits - before));
    left = queue_length(sp->q->queue);
    if (left <= 0 || most == 0)
        return;
    last = (struct spool_last){.got = n,
                               .full = waits >= most,
                               .slot_free =
                                   custody_free_slots(sp->q->custody) > 0};
    why = spool_left_why(&last, &next);
    log_warn("spool_left", F_STR("queue", sp->q->set->queue),
             F_UINT("left", (uint64_t)left), F_STR("error", why),
             F_UINT("spooled", waits), F_UINT("spool", most),
             F_STR("next", next));
}

/* Mark the end as orderly only if no slot holds a message: the next start needs
 * the row and the end of a message in a slot as they are. The same holds when
 * the engine closes after a refused start. Messages that waited in slots have
 * been written with the others (source_local_ops.keep). */
void spool_close(struct source_mq *q)
{
    struct spool *sp = q->spool_there;

    if (!sp)
        return;
    thread_stop(sp);
    ends_close(&sp->ends, q->spool && custody_empty(q->custody) &&
                              ends_write(sp) == 0 &&
                              store_spool_end(q->store) == 0);
    q->spool = q->spool_there = NULL;
    if (sp->wake >= 0)
        close(sp->wake);
    free(sp->taken);
    free(sp->bodies);
    free(sp->waiting);
    free(sp->writing);
    free(sp->rows);
    free(sp->keys);
    free(sp->later);
    pthread_mutex_destroy(&sp->steer_mtx);
    pthread_mutex_destroy(&sp->write_mtx);
    pthread_mutex_destroy(&sp->mtx);
    free(sp);
}
