/* spool.c - messages wait on the disk instead of in the queue (see spool.h)
 *
 * A message is in one of three lines: in a slot, on its way to the disk, or on
 * the disk. The next one is the first of all three. Messages in the queue
 * count, too: so one is received, which is the first there, as the kernel keeps
 * the order; all that are left in the queue come after it.
 *
 * One commit brings in what waits and deletes what ended; what is delayed comes
 * in as a row that waits for its time. The slots are FREE before anything later
 * is written (`durable` of store_spool_change), so that no slot is left whose
 * row has come and gone.
 * Crash before the commit: the slots are HELD, the ends are noted. After it,
 * before a slot is FREE: recovery finds the row by the key, and frees the slot;
 * before an end is dropped: it is deleted once more.
 *
 * A key of a unique message is asked for in the commit that brings the message
 * to the disk, so one that has a row has its key, and no other write is needed.
 * Each commit takes all that wait, in the order of their receipt.
 *
 * Rows are read ahead, and lent without a look at the disk. So of the rows that
 * an operator cancels, those that were lent are left alone, and the others are
 * not lent before it is known whether they have their mark.
 *
 * A work item takes a message without a detour as long as nobody waits. So the
 * thread of the spool leaves the queue to them while they are quick, and takes
 * what they leave. Once something waits, all goes this way, as the order has to
 * be kept.
 *
 * Ends of messages whose rows are on the disk still are in a file beside that
 * of custody, whose number is in the store as long as a worker runs. If the
 * machine went down, or the file is not the one of that number, the ends are
 * not known: all rows that are there may have run, and say so when they run.
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
#include "common/base/problem.h"
#include "common/custody/ends.h"
#include "common/message/header.h"
#include "common/store/spool.h"
#include "worker/config/settings.h"
#include "worker/rules/delivery.h"
#include "worker/source/mq/source_mq.h"

#define SPOOL_AHEAD 64 /* rows that are read at once */

/* A message in a slot, not on the disk. */
struct spool_wait {
    int64_t key;
    struct lent *lent;
    bool unique; /* it asks for a key, in the commit that brings it there */
};

/* Lock order: steer_mtx, write_mtx, mtx, then custody's and the store's.
 * m = under mtx   w = under write_mtx   c = constant after open
 * a = atomic, written under mtx   t = of its thread */
struct spool {
    struct source_mq *q;       /* c */
    struct ends *ends;         /* c */
    uint64_t doubt;            /* c  up to there it may have run */
    uint64_t seq;              /* c  the highest that was there at the start */
    int wake;                  /* c  wakes the thread */
    pthread_mutex_t write_mtx; /* one writes; it drops peeked rows */
    pthread_mutex_t mtx;
    pthread_mutex_t steer_mtx; /* one cancels, from seize to release */
    pthread_t thread;          /* c  of started */
    bool started;              /* by who starts and ends it */
    bool grown;                /* t  there are slots for it */
    atomic_bool stop;          /* a */

    /* Not on the disk: the last one comes next. */
    struct spool_wait *waiting; /* m */
    _Atomic size_t waits;       /* a */
    /* On their way there, in any order; nobody may have them meanwhile. */
    struct spool_wait *writing; /* m; w reads it */
    struct store_spooled *rows; /* w  what a commit brings there */
    struct store_key *keys;     /* w  of rows */
    struct store_row *later;    /* w  the same */
    _Atomic size_t writes;      /* a */
    _Atomic size_t failed;      /* a  commits; they are waiting again */
    int64_t writing_first;      /* m  of them comes next */
    /* On the disk: read ahead, in their order. */
    struct store_spooled ahead[SPOOL_AHEAD]; /* m */
    size_t at, count;                        /* m */
    void *bodies;                            /* c  of them */
    size_t room;                             /* c  bytes */
    /* a  by priority: those up to this were lent */
    _Atomic uint64_t *taken;
    _Atomic int64_t left;  /* a  on the disk and not lent yet */
    _Atomic int64_t large; /* a  a row that no slot has room for; 0: none */
    /* Not lent meanwhile: less their keys, and other numbers. */
    const int64_t *seized; /* m */
    size_t seized_count;   /* m */
    /* The next one is on its way to the disk: take has to wait for that. */
    atomic_bool stalled; /* a */

    _Atomic uint64_t direct; /* a  received by who lends it */
    atomic_bool full;        /* a  there is no room for more */
    atomic_bool disk_fails;  /* a  the disk takes nothing */
    bool told_full;          /* t */
};

static uint64_t spool_most(const struct spool *sp)
{
    return atomic_load(&sp->q->set->spool);
}
/* Of a spool that is off nothing has to be on the disk. */
static bool spool_always(const struct spool *sp)
{
    return sp->q->set->spool_sync == SPOOL_SYNC_ALWAYS && spool_most(sp) > 0;
}
int64_t spool_key_of(const struct slot *slot)
{
    return store_spool_key(slot->priority, slot->seq);
}
/* No more are taken before some get to the disk. */
static bool spool_crowded(const struct spool *sp)
{
    return atomic_load(&sp->waits) + atomic_load(&sp->writes) >= SPOOL_SLOTS;
}
/* Receive sequences have room in a key. */
static bool spool_numbers(const struct spool *sp)
{
    return custody_seq_next(sp->q->custody) < STORE_SPOOL_SEQ_MAX;
}

/* ---- keys of unique messages ---- */

/* unique_of - what its header says; a letter that is sent again had its key */
static bool unique_of(const struct message *m, struct header *h)
{
    char why[HEADER_WHY];

    return header_found(m->data, m->size) &&
           header_parse(m->data, m->size, h, why) == 0 &&
           h->fields & HEADER_UNIQUE && !(h->fields & HEADER_LETTER);
}

static bool spool_unique(const struct lent *l)
{
    struct header h;

    return unique_of(&l->m, &h);
}

/* spool_key_ask - a duplicate of it names its id */
static void spool_key_ask(struct store_key *key, struct lent *l)
{
    struct message *m = &l->m;
    uint64_t ms = HEADER_UNIQUE_MS, most = UINT64_MAX / NS_PER_MS;
    uint64_t from = m->received_ns ? m->received_ns : clock_wall_ns();
    struct header h = {0};

    (void)unique_of(m, &h);
    if (h.fields & HEADER_ID && !message_named(m))
        *m->id = h.id;
    if (h.fields & HEADER_UNIQUE_FOR)
        ms = h.unique_for_ms < most ? h.unique_for_ms : most;
    *key = (struct store_key){.text = h.unique.at,
                              .size = h.unique.size,
                              .seq = m->seq,
                              .id = *message_name(m),
                              .received_ns = from,
                              .until_ns = ns_add(from, ms * NS_PER_MS)};
}

/* ---- lines ---- */

static void spool_wake(const struct spool *sp)
{
    uint64_t one = 1;

    (void)!write(sp->wake, &one, sizeof one);
}

/* spool_wait_locked - in its place; one that came last is most often the last
 * of its priority */
static void spool_wait_locked(struct spool *sp, struct lent *l)
{
    int64_t key = spool_key_of(l->slot);
    size_t n = atomic_load(&sp->waits), at = 0;

    while (at < n && sp->waiting[at].key > key)
        at++;
    memmove(&sp->waiting[at + 1], &sp->waiting[at],
            (n - at) * sizeof *sp->waiting);
    sp->waiting[at] =
        (struct spool_wait){.key = key, .lent = l, .unique = spool_unique(l)};
    atomic_store(&sp->waits, n + 1);
}

/* spool_receive_locked - as a work item would
 * Crash: the slot is HELD, and nothing of it is on the disk. Recovery lets it
 * get in line again. */
static int spool_receive_locked(struct spool *sp, uint64_t wall_ns)
{
    struct source_mq *q = sp->q;
    struct slot *slot;
    struct lent *l;
    int err;

    if (spool_crowded(sp))
        return -ENOBUFS;
    slot = custody_acquire(q->custody);
    if (!slot)
        return -ENOBUFS;
    l = source_mq_lent(q, slot);
    err = mq_fetch(q, l, wall_ns);
    if (!err)
        spool_wait_locked(sp, l);
    else if (slot_free(slot))
        custody_release(q->custody, slot);
    return err;
}

/* spool_lent - those of a priority are lent in their order, and each
 * commit brings later ones than the last did; so one number says it of all */
static bool spool_lent(const struct spool *sp, int64_t key)
{
    return store_spool_seq(key) <= sp->taken[store_spool_priority(key)];
}

/* spool_queued - a row, by what was lent since; one that had its turn from its
 * slot, or is a letter, while no row of its priority had, waits for those */
bool spool_queued(const struct spool *sp, int64_t number)
{
    return spool_waits(sp) > 0 && (number == 0 || !spool_lent(sp, -number));
}

/* spool_waits - 0 only if there was nothing
 * A message is added to the next line before it is taken off the one that it
 * leaves, and the lines are read in the order in which it passes them; all of
 * that is sequentially consistent. So one that was not seen in a line has left
 * it, and is seen in the next, or counts twice. Only a commit that fails brings
 * them back: it is counted before they leave, so a thread that sees them gone
 * from there sees that, and looks again. */
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

void spool_adopt(struct spool *sp, struct lent *l)
{
    pthread_mutex_lock(&sp->mtx);
    spool_wait_locked(sp, l);
    pthread_mutex_unlock(&sp->mtx);
}

/* ---- to the disk ---- */

#define ENDS_BATCH 1024 /* keys that are deleted in one commit */

/* later_room - for how many more; with the other half of --max-waiting work
 * items go on, who take nothing once it is reached */
static uint64_t later_room(const struct spool *sp)
{
    uint64_t most = sp->q->set->max_waiting / 2;
    uint64_t waits = (uint64_t)store_waits(sp->q->store);

    return waits < most ? most - waits : 0;
}

/* later_of - the row of a message that is to wait for its time; NULL: it waits
 * for its turn. So does one of a group, as those before it may be in the spool,
 * which knows no groups */
static const struct store_row *later_of(const struct spool *sp,
                                        struct store_row *row, struct lent *l)
{
    const struct settings *set = sp->q->set;
    struct delivery d;

    delivery_read(&d, &l->m, set->group_separator);
    if (d.group.at || !delivery_delayed(&d, set->max_delay_ns))
        return NULL;
    row_make(row, l, d.group, d.header.bytes);
    row->state = STORE_WAITING;
    row->due_ns = delivery_due(&d, &row->due_boot_ns, &row->delay_ns);
    return row;
}

/* row_of - what is kept of a message in its slot; a letter that is sent again
 * has a row already, to which it is linked when its turn comes. `later` NULL:
 * there is no room for one that waits for its time */
static void row_of(const struct spool *sp, struct store_spooled *row,
                   struct store_row *later, const struct spool_wait *wait)
{
    const struct slot *slot = wait->lent->slot;
    struct slot_word w = slot_word(slot);
    struct header h = {0};
    char why[HEADER_WHY];

    *row = (struct store_spooled){.key = wait->key,
                                  .received_ns = slot->received_ns,
                                  .id = slot->id,
                                  .crashes = w.crashes,
                                  .data = slot->body,
                                  .size = atomic_load(&slot->length)};
    /* A header that is broken says nothing. */
    if (!header_found(slot->body, row->size) ||
        header_parse(slot->body, row->size, &h, why) < 0)
        h.fields = 0;
    if (h.fields & HEADER_LETTER && h.letter <= INT64_MAX)
        row->letter = (int64_t)h.letter;
    if (later && h.fields & HEADER_NOT_BEFORE && !(h.fields & HEADER_LETTER))
        row->later = later_of(sp, later, wait->lent);
    if (w.flags & SLOT_REDELIVERED)
        row->flags |= STORE_REDELIVERED;
    if (w.flags & SLOT_LENGTH_INFERRED)
        row->flags |= STORE_LENGTH_INFERRED;
}

/* by_receipt - keys are asked for in that order */
static int by_receipt(const void *a, const void *b)
{
    const struct spool_wait *x = a, *y = b;

    return (x->lent->m.seq > y->lent->m.seq) -
           (x->lent->m.seq < y->lent->m.seq);
}

/* waiting_take - all that wait, so that each priority gets there in its order,
 * and each key is given in the order of receipt */
static size_t waiting_take(struct spool *sp)
{
    size_t n;

    pthread_mutex_lock(&sp->mtx);
    n = atomic_load(&sp->waits);
    if (n) {
        sp->writing_first = sp->waiting[n - 1].key;
        memcpy(sp->writing, sp->waiting, n * sizeof *sp->writing);
    }
    atomic_store(&sp->writes, n);
    atomic_store(&sp->waits, 0);
    pthread_mutex_unlock(&sp->mtx);
    qsort(sp->writing, n, sizeof *sp->writing, by_receipt);
    return n;
}

/* rows_of - what the commit brings there */
static void rows_of(struct spool *sp, size_t n)
{
    uint64_t room = later_room(sp);

    for (size_t i = 0; i < n; i++) {
        const struct spool_wait *wait = &sp->writing[i];

        if (wait->unique)
            spool_key_ask(&sp->keys[i], wait->lent);
        row_of(sp, &sp->rows[i], room > 0 ? &sp->later[i] : NULL, wait);
        room -= sp->rows[i].later != NULL;
        if (wait->unique)
            sp->rows[i].unique = &sp->keys[i];
    }
}

/* rows_written - they are on the disk, but for duplicates */
static void rows_written(void *arg)
{
    struct spool *sp = arg;

    FAULT_POINT("spool_written");
    for (size_t i = 0; i < atomic_load(&sp->writes); i++)
        if (!sp->rows[i].taken)
            slot_retire(sp->writing[i].lent->slot);
}

/* row_in_hand - its slot is needed still, to tell of it */
static bool row_in_hand(const struct spool *sp, size_t i)
{
    return sp->rows[i].taken || sp->rows[i].later;
}

/* rows_land - what became of those on their way
 * They are in another line before they leave this one (spool_waits). */
static void rows_land(struct spool *sp, size_t n, int err)
{
    int64_t came = 0;
    bool stalled;

    for (size_t i = 0; i < n && !err; i++)
        came += !row_in_hand(sp, i);
    pthread_mutex_lock(&sp->mtx);
    if (err) {
        for (size_t i = 0; i < n; i++)
            spool_wait_locked(sp, sp->writing[i].lent);
        atomic_fetch_add(&sp->failed, 1);
    } else if (n) {
        atomic_fetch_add(&sp->left, came);
        if (sp->at < sp->count &&
            sp->writing_first < sp->ahead[sp->count - 1].key)
            sp->count = sp->at; /* rows are read again, with these */
    }
    atomic_store(&sp->writes, 0);
    stalled = atomic_exchange(&sp->stalled, false);
    pthread_mutex_unlock(&sp->mtx);
    for (size_t i = 0; i < n && !err; i++)
        if (!row_in_hand(sp, i))
            custody_release(sp->q->custody, sp->writing[i].lent->slot);
    if (n || stalled)
        sp->q->events.changed(sp->q->events.arg);
}

/* duplicates_end - those whose key is another message's
 * Crash before one is settled: it is HELD, asks for its key again, and is told
 * the same. */
static void duplicates_end(struct spool *sp, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!sp->rows[i].taken)
            continue;
        FAULT_POINT("spool_duplicate_before");
        sp->q->events.duplicate(sp->q->events.arg, &sp->writing[i].lent->m,
                                &sp->rows[i].first);
    }
}

/* later_tell - those that wait for their time are due by themselves; their
 * slots, which are free only now, may be what take waits for
 * Crash before it: the next start finds their rows. */
static void later_tell(struct spool *sp, size_t n)
{
    bool any = false;

    for (size_t i = 0; i < n; i++) {
        struct lent *l = sp->writing[i].lent;

        if (sp->rows[i].taken || !sp->rows[i].later)
            continue;
        due_rows_expect(sp->q->due_rows,
                        sp->later[i].due_boot_ns
                            ? sp->later[i].due_boot_ns
                            : clock_boot_at(sp->later[i].due_ns));
        sp->q->events.put_by(sp->q->events.arg, &l->m);
        custody_release(sp->q->custody, l->slot);
        any = true;
    }
    if (any)
        sp->q->events.changed(sp->q->events.arg);
}

/* large_read - the row with that key, whole; -ENOENT */
static int large_read(struct spool *sp, int64_t key, struct store_spooled *m,
                      char **data)
{
    int n = store_spool_read(sp->q->store, key - 1, m, 1, NULL, 0);

    if (n >= 0)
        return -ENOENT; /* none follows, or one without a byte, which fits */
    if (n != -EMSGSIZE || m->key != key)
        return n == -EMSGSIZE ? -ENOENT : n;
    *data = malloc(m->size);
    if (!*data)
        return -ENOMEM;
    n = store_spool_read(sp->q->store, key - 1, m, 1, *data, m->size);
    if (n == 1 && m->key == key)
        return 0;
    free(*data);
    return n < 0 ? n : -ENOENT;
}

/* large_dead - it cannot be run: nothing is lost, it is a letter */
static int large_dead(struct spool *sp)
{
    int64_t key = atomic_load(&sp->large);
    struct store_spooled m;
    struct store_row row;
    char *data;
    int err;

    if (key == 0)
        return 0;
    if (atomic_load(&sp->q->store_gone))
        return -EBADFD;
    err = large_read(sp, key, &m, &data);
    if (!err) {
        row = (struct store_row){.receive_seq = store_spool_seq(key),
                                 .id = m.id,
                                 .priority = store_spool_priority(key),
                                 .crashes = m.crashes,
                                 .flags = m.flags,
                                 .first_received_ns = m.received_ns,
                                 .data = data,
                                 .size = m.size,
                                 .spool = key};
        err = row_too_large(sp->q, &row);
        free(data);
        if (!err)
            atomic_fetch_sub(&sp->left, 1);
    }
    if (!err || err == -ENOENT)
        atomic_store(&sp->large, 0);
    return err == -ENOENT ? 0 : err;
}

/* Write to the store, in one commit, which messages ended and, if `waiting`,
 * those that wait in memory. *in: how many these were. */
static int commit_write(struct spool *sp, bool waiting, size_t *in)
{
    int64_t ends[ENDS_BATCH];
    struct store_spool_change c = {
        .in = sp->rows, .out = ends, .durable = rows_written, .arg = sp};
    int err;

    pthread_mutex_lock(&sp->write_mtx);
    c.out_count = ends_peek(sp->ends, ends, ENDS_BATCH);
    c.in_count = *in = waiting ? waiting_take(sp) : 0;
    rows_of(sp, *in);
    err = atomic_load(&sp->q->store_gone) ? -EBADFD : 0;
    if (!err && c.in_count + c.out_count > 0)
        err = store_spool_change(sp->q->store, &c);
    if (!err)
        ends_drop(sp->ends, c.out_count);
    if (waiting)
        rows_land(sp, *in, err);
    pthread_mutex_unlock(&sp->write_mtx);
    return err;
}

/* spool_write - `waiting` is the thread's alone, and so is what became of the
 * rows */
static int spool_write(struct spool *sp, bool waiting)
{
    int large = waiting ? large_dead(sp) : 0;
    size_t in;
    int err = commit_write(sp, waiting, &in);

    if (!err) {
        duplicates_end(sp, in);
        later_tell(sp, in);
    }
    return err ? err : large;
}

/* ---- rows that an operator cancels ---- */

/* spool_seized_locked - whether an operator is about to cancel it */
static bool spool_seized_locked(const struct spool *sp, int64_t key)
{
    for (size_t i = 0; i < sp->seized_count; i++)
        if (sp->seized[i] == -key)
            return true;
    return false;
}

/* A message that is not a row yet is in a slot, or on its way: it is in the
 * store before the mark is written, or there is nothing to mark. */
void spool_seize(struct spool *sp, const int64_t *numbers, size_t n, bool *skip)
{
    pthread_mutex_lock(&sp->steer_mtx);
    pthread_mutex_lock(&sp->mtx);
    sp->seized = numbers;
    sp->seized_count = n;
    for (size_t i = 0; i < n; i++)
        if (numbers[i] < 0)
            skip[i] = spool_lent(sp, -numbers[i]);
    pthread_mutex_unlock(&sp->mtx);
}

void spool_release(struct spool *sp, const bool *done)
{
    bool stalled;

    pthread_mutex_lock(&sp->mtx);
    /* Mark the rows that were read before the commit; those read later have
     * the mark. */
    for (size_t i = 0; i < sp->seized_count; i++)
        for (size_t k = sp->at; k < sp->count; k++)
            if (done[i] && sp->ahead[k].key == -sp->seized[i])
                sp->ahead[k].flags |= STORE_CANCELLED;
    sp->seized_count = 0;
    stalled = atomic_exchange(&sp->stalled, false);
    pthread_mutex_unlock(&sp->mtx);
    pthread_mutex_unlock(&sp->steer_mtx);
    if (stalled)
        sp->q->events.changed(sp->q->events.arg);
}

/* ---- the next one, and its end ---- */

#define NONE INT64_MAX /* no key is as high */

/* slot_fits - a slot has room for it; there is room for several of them here */
static bool slot_fits(const struct spool *sp, const struct store_spooled *m)
{
    return m->size <= custody_body_bytes(sp->q->custody);
}

/* page_read - the first rows after `after` that were not lent; -EAGAIN: all of
 * a priority were up to some place, and *after is that one. -EINPROGRESS: the
 * first one is too large, and the thread makes a letter of it: to write that
 * waits for the disk, which nobody does who takes */
static int page_read(struct spool *sp, int64_t *after)
{
    const struct store_spooled *rows = sp->ahead;
    int n = store_spool_read(sp->q->store, *after, sp->ahead, SPOOL_AHEAD,
                             sp->bodies, sp->room);
    uint32_t priority;

    if (n > 0 && spool_lent(sp, rows[0].key)) {
        priority = store_spool_priority(rows[0].key);
        *after = store_spool_key(priority, sp->taken[priority]);
        return -EAGAIN;
    }
    if (n == -EMSGSIZE || (n > 0 && !slot_fits(sp, &rows[0]))) {
        if (!spool_seized_locked(sp, rows[0].key))
            atomic_store(&sp->large, rows[0].key);
        return -EINPROGRESS;
    }
    for (sp->count = 0; (int)sp->count < n; sp->count++)
        if (spool_lent(sp, rows[sp->count].key) ||
            !slot_fits(sp, &rows[sp->count]))
            break;
    return n < 0 ? n : 0;
}

/* Find the key of the next row on the disk, or NONE; read ahead if it must be
 * read. */
static int row_next(struct spool *sp, int64_t *key)
{
    int64_t after = 0;
    int err = 0;

    *key = NONE;
    if (atomic_load(&sp->left) <= 0)
        return 0;
    if (sp->at == sp->count) {
        sp->at = sp->count = 0;
        do
            err = page_read(sp, &after);
        while (err == -EAGAIN);
        if (!err && sp->count == 0) /* somebody deleted them */
            atomic_store(&sp->left, 0);
    }
    if (!err && sp->at < sp->count)
        *key = sp->ahead[sp->at].key;
    return err;
}

/* row_lend - into the lane's slot
 * Crash before the slot is HELD: the row is there as before. After it: recovery
 * finds the row, and frees the slot; a row that is cancelled comes again with
 * its mark. */
static int row_lend(struct spool *sp, unsigned lane, struct message **out)
{
    const struct store_spooled *m = &sp->ahead[sp->at];
    struct lent *l = mq_lane_get(sp->q, lane);
    bool doubt = store_spool_seq(m->key) <= sp->doubt;
    struct slot *slot = l->slot;

    if (slot->dirty < m->size)
        slot->dirty = (uint32_t)m->size;
    memcpy(slot->body, m->data, m->size);
    slot_hold(
        slot,
        &(struct slot_meta){
            .length = (uint32_t)m->size,
            .priority = store_spool_priority(m->key),
            .crashes = m->crashes,
            .flags =
                (m->flags & STORE_LENGTH_INFERRED ? SLOT_LENGTH_INFERRED : 0) |
                (doubt || m->flags & STORE_REDELIVERED ? SLOT_REDELIVERED : 0),
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

/* take_stall - it is on its way to the disk, and can be had soon
 * A disk that takes nothing is tried again by the clock, not for whoever asks.
 * The thread forgets that before it looks whether take is stalled, so one of
 * the two sees the other. */
static int take_stall(struct spool *sp)
{
    atomic_store(&sp->stalled, true);
    if (!atomic_load(&sp->disk_fails))
        spool_wake(sp);
    return -EAGAIN;
}

/* on_its_way - slots that are free after the next commit */
static bool on_its_way(const struct spool *sp)
{
    return atomic_load(&sp->waits) + atomic_load(&sp->writes) > 0;
}

/* first_lend - the first of the three lines, and of the queue
 * The lane gets its slot before the look does: a look at the queue never has
 * the last one. */
static int first_lend(struct spool *sp, unsigned lane, uint64_t wall_ns,
                      struct message **out)
{
    bool slot = mq_lane_get(sp->q, lane) != NULL;
    int got = spool_receive_locked(sp, wall_ns);
    size_t waits = atomic_load(&sp->waits);
    int64_t wait = waits ? sp->waiting[waits - 1].key : NONE, row;
    int64_t write = atomic_load(&sp->writes) ? sp->writing_first : NONE;
    int err = row_next(sp, &row);

    if (err)
        return err == -EINPROGRESS ? take_stall(sp) : err;
    /* What the queue has may come before all of them. */
    if (got == -ENOBUFS && on_its_way(sp) && !atomic_load(&sp->disk_fails))
        return take_stall(sp);
    if (write < wait && write < row)
        return take_stall(sp);
    if (row < wait && spool_seized_locked(sp, row))
        return take_stall(sp);
    if (row < wait && !slot)
        return on_its_way(sp) ? take_stall(sp) : -EAGAIN; /* room() told */
    if (row < wait)
        return row_lend(sp, lane, out);
    if (wait == NONE)
        return got == -ENOBUFS ? -EAGAIN : got;
    if (spool_always(sp) || sp->waiting[waits - 1].unique)
        return take_stall(sp);
    *out = &sp->waiting[waits - 1].lent->m; /* it is in its slot only */
    atomic_store(&sp->waits, waits - 1);
    return 0;
}

/* Return true if no message in the spool comes before the next one of the
 * queue. */
static bool queue_is_first(const struct spool *sp)
{
    return atomic_load(&sp->left) <= 0 && atomic_load(&sp->waits) == 0 &&
           atomic_load(&sp->writes) == 0 &&
           (!spool_always(sp) || !spool_numbers(sp));
}

/* Take a message straight from the queue, unless it has to have a key first. */
static int queue_take(struct spool *sp, unsigned lane, uint64_t wall_ns,
                      struct message **out)
{
    int err = mq_fetch_lane(sp->q, lane, wall_ns, out);

    if (!err && header_found((*out)->data, (*out)->size) &&
        spool_unique(lent_of(*out))) {
        spool_wait_locked(sp, lent_of(*out));
        return take_stall(sp);
    }
    if (!err)
        atomic_fetch_add_explicit(&sp->direct, 1, memory_order_relaxed);
    return err;
}

int spool_take(struct spool *sp, unsigned lane, uint64_t wall_ns,
               struct message **out)
{
    uint64_t most;
    int err;

    pthread_mutex_lock(&sp->mtx);
    if (queue_is_first(sp)) {
        err = queue_take(sp, lane, wall_ns, out);
    } else {
        err = first_lend(sp, lane, wall_ns, out);
    }
    pthread_mutex_unlock(&sp->mtx);
    /* A full spool takes more when a sixteenth of it is free. */
    most = spool_most(sp);
    if (atomic_load(&sp->full) && spool_waits(sp) < most - most / 16)
        spool_wake(sp);
    return err;
}

/* spool_end - noted, then FREE (ends_put); the row is deleted later
 * The thread is told of the first one, and of many. */
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

bool spool_ready(const struct spool *sp)
{
    return !atomic_load(&sp->stalled) &&
           (atomic_load(&sp->left) > 0 || atomic_load(&sp->waits) > 0);
}

/* ---- from off to on ---- */

/* ends_ready - the file that the last worker noted ends in, or a new one
 * The store has the number of the first already, so that a start after a kill
 * writes nothing. Crash between the two writes of a new one: the store has
 * another number, or none, and the next start doubts, or begins, in the same
 * way. */
static int ends_ready(struct spool *sp, struct problem *p)
{
    struct store_spool_left left;
    char path[PATH_MAX];
    const char *custody = custody_path(sp->q->custody);
    uint64_t run;
    int err;

    if (snprintf(path, sizeof path, "%.*sends",
                 (int)(strrchr(custody, '/') - custody + 1),
                 custody) >= (int)sizeof path)
        return problem_set(p, EX_CANTCREAT, ENAMETOOLONG, "%s: too long",
                           custody);
    err = ends_open(&sp->ends, path, p);
    if (err)
        return err;
    err = store_spool_left(sp->q->store, &left);
    run = ends_run(sp->ends);
    sp->doubt = left.doubt;
    if (!err && (left.cut || run == 0 || run != left.run)) {
        run = (uint64_t)arc4random() + 1;
        ends_reset(sp->ends, run);
        if (left.run)
            sp->doubt = left.seq;
    }
    if (!err && run != left.run)
        err = store_spool_begin(sp->q->store, run, sp->doubt);
    if (err)
        return problem_set(p, EX_CANTCREAT, -err,
                           "store of %s: the spool cannot be started: %s. "
                           "Nothing was lost; %s, and start again",
                           sp->q->set->queue, errno_text(-err),
                           disk_advice(err));
    sp->seq = left.seq;
    return 0;
}

/* Allocate the memory of the spool. */
static int memory_ready(struct spool *sp, struct problem *p)
{
    size_t most = custody_slots_most(sp->q->custody);

    sp->room = (size_t)SPOOL_AHEAD * 1024;
    if (sp->room < custody_body_bytes(sp->q->custody))
        sp->room = custody_body_bytes(sp->q->custody);
    sp->waiting = calloc(most + 1, sizeof *sp->waiting);
    sp->writing = calloc(most, sizeof *sp->writing);
    sp->rows = calloc(most, sizeof *sp->rows);
    sp->keys = calloc(most, sizeof *sp->keys);
    sp->later = calloc(most, sizeof *sp->later);
    sp->bodies = malloc(sp->room);
    /* The kernel gives memory for those that are used: one or a few. */
    sp->taken = calloc(STORE_SPOOL_PRIORITY + 1, sizeof *sp->taken);
    if (!sp->waiting || !sp->writing || !sp->rows || !sp->keys || !sp->later ||
        !sp->bodies || !sp->taken)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    return ends_ready(sp, p);
}

/* spool_turn_on - under the lock of take in the moment itself: a thread that
 * takes does so before it, or by way of the spool */
static int spool_turn_on(struct spool *sp, struct problem *p)
{
    int err = memory_ready(sp, p);

    if (err)
        return err;
    sp->q->hold_take(sp->q->hold_arg, true);
    custody_seq_raise(sp->q->custody, sp->seq + 1);
    sp->q->spool = sp;
    sp->q->hold_take(sp->q->hold_arg, false);
    return 0;
}

/* ---- the thread ---- */

/* How long the queue is left to work items, and how many messages they have to
 * take meanwhile to be left it: then they are as quick as the disk. */
#define LEAVE_MS    1
#define LEAVE_LEAST 64
/* How long a sender may take to bring the next message of a batch. */
#define GATHER_NS (50 * NS_PER_US)
/* What ended stays on the disk for so long at most. */
#define ENDS_MS 200
/* After a write that failed. */
#define RETRY_MS 1000
#define PIECE    16 /* messages for which others wait */

/* has_room_locked - for more from the queue; a spool that is off has none */
static bool has_room_locked(const struct spool *sp)
{
    return spool_waits(sp) < spool_most(sp) && spool_numbers(sp);
}

/* gather_piece - 0, or why there is no more */
static int gather_piece(struct spool *sp, int *n)
{
    uint64_t wall = clock_wall_ns();
    int err = 0;

    pthread_mutex_lock(&sp->mtx);
    for (int i = 0; i < PIECE && !err; i++) {
        err = has_room_locked(sp) ? spool_receive_locked(sp, wall) : -ENOBUFS;
        *n += !err;
    }
    pthread_mutex_unlock(&sp->mtx);
    return err;
}

/* more_comes - whether the sender brings more before it is worth a commit */
static bool more_comes(struct spool *sp)
{
    const struct timespec most = {.tv_nsec = GATHER_NS};
    struct pollfd fd = {.fd = queue_fd(sp->q->queue), .events = POLLIN};

    return ppoll(&fd, 1, &most, NULL) > 0;
}

static int spool_gather(struct spool *sp)
{
    int n = 0, err;

    do {
        err = gather_piece(sp, &n);
    } while (!err || (err == -EAGAIN && n > 0 && more_comes(sp)));
    return err == -EAGAIN || err == -ENOBUFS ? n : err;
}

/* left_to_items - they take what comes, and nobody waits */
static bool left_to_items(struct spool *sp)
{
    struct pollfd fd = {.fd = sp->wake, .events = POLLIN};
    uint64_t before = atomic_load(&sp->direct);

    if (spool_waits(sp) > 0 || spool_always(sp))
        return false;
    (void)poll(&fd, 1, LEAVE_MS);
    return queue_length(sp->q->queue) == 0 ||
           atomic_load(&sp->direct) - before >= LEAVE_LEAST;
}

/* tell_full - once, until a sixteenth is free */
static void tell_full(struct spool *sp)
{
    uint64_t most = spool_most(sp), waits = spool_waits(sp);

    atomic_store(&sp->full, most > 0 && waits >= most);
    if (atomic_load(&sp->full) && !sp->told_full) {
        sp->told_full = true;
        log_warn("spool_full", F_STR("queue", sp->q->set->queue),
                 F_UINT("spooled", waits), F_UINT("spool", most),
                 F_STR("next", "messages stay in the queue, and senders wait, "
                               "until some of these have run; raise it with "
                               "mqctl set spool="));
    } else if (sp->told_full && waits < most - most / 16) {
        sp->told_full = false;
        log_info("spool_room", F_STR("queue", sp->q->set->queue),
                 F_UINT("spooled", waits), F_UINT("spool", most));
    }
}

/* tell_err - once, until it is well */
static void tell_err(struct spool *sp, int err)
{
    bool disk_fails = atomic_exchange(&sp->disk_fails, err != 0);

    char next[512];

    snprintf(next, sizeof next,
             "%s. Nothing is lost: new messages stay in the queue, and taken "
             "ones are in custody",
             disk_advice(err));
    if (err && !disk_fails)
        log_error("spool_stuck", F_STR("queue", sp->q->set->queue),
                  F_STR("error", errno_text(-err)), F_STR("next", next));
    else if (!err && disk_fails)
        log_info("spool_well", F_STR("queue", sp->q->set->queue));
}

/* to_write - whether those that wait are to get to the disk; of a spool that is
 * off they need not, unless they have all slots, or take waits for that. A row
 * that is too large is what take waits for, too */
static bool to_write(const struct spool *sp)
{
    return atomic_load(&sp->large) != 0 ||
           (atomic_load(&sp->waits) > 0 &&
            (spool_most(sp) > 0 || spool_crowded(sp) ||
             custody_free_slots(sp->q->custody) == 0 ||
             atomic_load(&sp->stalled)));
}

/* wait_for - how long; the queue is not looked at where nothing can be done
 * about it */
static bool wait_for(struct spool *sp)
{
    bool disk_fails = atomic_load(&sp->disk_fails);
    struct pollfd fds[2] = {{.fd = sp->wake, .events = POLLIN},
                            {.fd = -1, .events = POLLIN}};
    int ms = disk_fails                 ? RETRY_MS
             : to_write(sp)             ? 0
             : ends_count(sp->ends) > 0 ? ENDS_MS
                                        : -1;
    uint64_t ignored;

    pthread_mutex_lock(&sp->mtx); /* the sequences are take's */
    if (!disk_fails && has_room_locked(sp))
        fds[1].fd = queue_fd(sp->q->queue);
    pthread_mutex_unlock(&sp->mtx);
    (void)poll(fds, 2, ms);
    if (fds[0].revents)
        (void)!read(sp->wake, &ignored, sizeof ignored);
    return fds[1].revents & POLLIN;
}

/* intake_round - one look at the queue, one commit */
static void intake_round(struct spool *sp, bool readable)
{
    int err = 0;

    if (readable && !left_to_items(sp))
        err = spool_gather(sp);
    if (err < 0) { /* a work item comes across it, too, and tells */
        sp->q->events.changed(sp->q->events.arg);
        (void)poll(NULL, 0, LEAVE_MS);
    }
    if (to_write(sp) || ends_count(sp->ends) > 0)
        tell_err(sp, spool_write(sp, true));
    tell_full(sp);
}

/* slots_grow - for a spool that was off when custody was opened */
static void slots_grow(struct spool *sp)
{
    struct problem p;
    unsigned most = custody_slots(sp->q->custody) + SPOOL_SLOTS;

    if (sp->grown || spool_most(sp) == 0)
        return;
    sp->grown = true;
    if (custody_grow(sp->q->custody, most, &p) < 0)
        log_warn("spool_slots", F_STR("queue", sp->q->set->queue),
                 F_STR("error", p.text),
                 F_STR("next", "the spool is slower: it shares the slots that "
                               "there are"));
}

static void *intake_main(void *arg)
{
    struct spool *sp = arg;
    struct problem p;

    /* The spool may have been off when the worker started. */
    if (!sp->q->spool && spool_turn_on(sp, &p) < 0) {
        log_error("spool_stuck", F_STR("queue", sp->q->set->queue),
                  F_STR("error", p.text),
                  F_STR("next", "it stays off; see what is wrong, and start "
                                "the worker again"));
        return NULL;
    }
    while (!atomic_load(&sp->stop)) {
        bool readable = wait_for(sp);

        slots_grow(sp);
        if (!atomic_load(&sp->stop))
            intake_round(sp, readable);
    }
    return NULL;
}

/* spool_thread_start - signals are the peeker's business */
static int spool_thread_start(struct spool *sp)
{
    sigset_t all, old;
    int err;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    err = pthread_create(&sp->thread, NULL, intake_main, sp);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    sp->started = err == 0;
    return -err;
}

static void spool_thread_stop(struct spool *sp)
{
    if (!sp->started)
        return;
    atomic_store(&sp->stop, true);
    spool_wake(sp);
    pthread_join(sp->thread, NULL);
    sp->started = false;
}

/* ---- from one worker to the next ---- */

#define LAST_NS (5 * NS_PER_S) /* a sender that goes on must not keep a stop */

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

/* If the process is killed after it, the slot is as before, and the next start
 * writes the same numbers again. */
int spool_note(struct spool *sp, const struct slot *slot)
{
    struct slot_word w = slot_word(slot);
    bool ran = w.state == SLOT_RUNNING;
    struct store_spooled m = {
        .key = spool_key_of(slot), .id = slot->id, .crashes = w.crashes + ran};

    if (ran || w.flags & SLOT_REDELIVERED)
        m.flags |= STORE_REDELIVERED;
    if (w.flags & SLOT_LENGTH_INFERRED)
        m.flags |= STORE_LENGTH_INFERRED;
    return m.crashes || m.flags ? store_spool_note(sp->q->store, &m) : 0;
}

/* Without the thread, messages are taken as without a spool, and what is on the
 * disk runs. */
void spool_start(struct spool *sp)
{
    int err = spool_thread_start(sp);

    if (err)
        log_error("spool_stuck", F_STR("queue", sp->q->set->queue),
                  F_STR("error", errno_text(-err)),
                  F_STR("next", "no thread can be started: raise the limit "
                                "(ulimit -u, TasksMax=) and start the worker "
                                "again"));
}

/* spool_tuned - the thread looks; the first time it turns the spool on */
void spool_tuned(struct spool *sp)
{
    if (sp->started)
        spool_wake(sp);
    else if (spool_most(sp) > 0)
        spool_start(sp);
}

/* spool_moved - the thread polls the new one */
void spool_moved(struct spool *sp)
{
    spool_wake(sp);
}

int spool_open(struct source_mq *q, struct problem *p)
{
    struct spool *sp = q->spool_there = calloc(1, sizeof *sp);

    if (!sp)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    sp->q = q;
    sp->grown = spool_most(sp) > 0; /* slots_for */
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

/* ends_write - nothing that ended is on the disk */
static int ends_write(struct spool *sp)
{
    int err = 0;

    while (!err && ends_count(sp->ends) > 0)
        err = spool_write(sp, false);
    return err;
}

/* all_settled - recovery gives back, or writes, each message that has a row; a
 * verdict that could not be written has its slot still, and the row would run
 * beside it */
static bool all_settled(const struct spool *sp)
{
    for (unsigned i = 0; i < custody_slots(sp->q->custody); i++)
        if (sp->q->lents[i].spooled)
            return false;
    return true;
}

/* spool_recovered - rows of what ended go first, or they would run again */
int spool_recovered(struct spool *sp, struct problem *p)
{
    int err;

    if (!sp || !sp->q->spool)
        return 0;
    err = ends_write(sp);
    if (!err && !all_settled(sp))
        return problem_set(p, EX_CANTCREAT, EIO,
                           "store of %s cannot be written, and a message on "
                           "which its handler died must go there; nothing was "
                           "lost, free some space and start again",
                           sp->q->set->queue);
    if (err)
        return problem_set(p, EX_CANTCREAT, -err,
                           "store of %s: finished messages cannot be deleted: "
                           "%s. Nothing was lost; %s, and start again",
                           sp->q->set->queue, errno_text(-err),
                           disk_advice(err));
    atomic_store(&sp->left, store_spooled(sp->q->store));
    return 0;
}

const char *spool_left_why(const struct spool_last *last)
{
    if (last->got < 0)
        return errno_text(-last->got);
    if (last->full)
        return "the spool is full";
    if (!last->slot_free)
        return "no slot is free";
    return last->got > 0 ? "they are too many for 5s" : "senders go on sending";
}

const char *spool_left_next(const struct spool_last *last)
{
    if (last->got >= 0 && last->full)
        return "they stay in the kernel queue, and are gone with the next "
               "boot; before that, start a worker with a larger --spool";
    if (last->got >= 0 && !last->slot_free)
        return "they stay in the kernel queue, and are gone with the next "
               "boot; before that, start and stop a worker, which finds free "
               "slots or adds some";
    return "they stay in the kernel queue, and are gone with the next boot; "
           "before that, stop the senders, and start and stop a worker";
}

/* tell_left - what a boot would take; n: what the last look brought */
static void tell_left(const struct spool *sp, int n)
{
    uint64_t most = spool_most(sp), waits = spool_waits(sp);
    const struct spool_last last = {.got = n,
                                    .full = waits >= most,
                                    .slot_free =
                                        custody_free_slots(sp->q->custody) > 0};
    long left = queue_length(sp->q->queue);

    if (left <= 0 || most == 0)
        return;
    log_warn("spool_left", F_STR("queue", sp->q->set->queue),
             F_UINT("left", (uint64_t)left),
             F_STR("error", spool_left_why(&last)), F_UINT("spooled", waits),
             F_UINT("spool", most), F_STR("next", spool_left_next(&last)));
}

/* spool_stop - a planned reboot loses nothing of the queue
 * Crash: what was received is in slots, or on the disk. */
void spool_stop(struct spool *sp)
{
    uint64_t end = ns_add(clock_mono_ns(), LAST_NS);
    char next[512];
    uint64_t before;
    int n = 0, err;

    if (!sp)
        return;
    spool_thread_stop(sp);
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
    snprintf(next, sizeof next,
             "%s, then start a worker. Messages in the queue stay there until "
             "the next boot, which deletes them",
             disk_advice(err));
    if (err)
        log_error("spool_stuck", F_STR("queue", sp->q->set->queue),
                  F_STR("error", errno_text(-err)), F_STR("next", next));
    else if (spool_waits(sp) > 0)
        log_info("spooled", F_STR("queue", sp->q->set->queue),
                 F_UINT("spooled", spool_waits(sp)),
                 F_UINT("at_stop", spool_waits(sp) - before));
    if (!err)
        tell_left(sp, n);
}

/* End this worker's time with the spool. Returns true if the end is orderly.
 * A message in a slot needs its row, and its end, as they are: a start that is
 * refused changes nothing. Without any, those that wait in slots that are FREE
 * by now have been kept with the others (source_local_ops.keep). */
static bool spool_is_over(struct spool *sp)
{
    return sp->q->spool && custody_empty(sp->q->custody) &&
           ends_write(sp) == 0 && store_spool_end(sp->q->store) == 0;
}

void spool_close(struct source_mq *q)
{
    struct spool *sp = q->spool_there;

    if (!sp)
        return;
    spool_thread_stop(sp);
    ends_close(&sp->ends, spool_is_over(sp));
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
