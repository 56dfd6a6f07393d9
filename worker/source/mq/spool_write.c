/* spool_write.c - to the disk, many in one commit (see spool_inner.h)
 *
 * One commit brings in what waits and deletes what ended; what is delayed comes
 * in as a row that waits for its time. The slots are FREE
 * before anything later is written (`durable` of store_spool_change), so that
 * no slot is left whose row has come and gone.
 * Crash before the commit: the slots are HELD, the ends are noted. After it,
 * before a slot is FREE: recovery finds the row by the key, and frees the slot;
 * before an end is dropped: it is deleted once more.
 */
#include "worker/source/mq/spool_inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/message/header.h"
#include "worker/rules/delivery.h"
#include "worker/source/mq/row.h"

#define ENDS_BATCH 1024 /* keys that are deleted in one commit */

/* header_of - what its header says; a broken one says nothing */
static void header_of(const struct slot *slot, size_t size, struct header *h)
{
    char why[HEADER_WHY];

    if (!header_found(slot->body, size) ||
        header_parse(slot->body, size, h, why) < 0)
        h->fields = 0;
}

/* letter_of - the letter that its header says it is, 0: none */
static int64_t letter_of(const struct header *h)
{
    return h->fields & HEADER_LETTER && h->letter <= INT64_MAX
               ? (int64_t)h->letter
               : 0;
}

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
    struct header h;

    *row = (struct store_spooled){.key = wait->key,
                                  .received_ns = slot->received_ns,
                                  .id = slot->id,
                                  .crashes = w.crashes,
                                  .data = slot->body,
                                  .size = atomic_load(&slot->length)};
    header_of(slot, row->size, &h);
    row->letter = letter_of(&h);
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

/* written - they are on the disk, but for duplicates */
static void written(void *arg)
{
    struct spool *sp = arg;

    FAULT_POINT("spool_written");
    for (size_t i = 0; i < atomic_load(&sp->writes); i++)
        if (!sp->rows[i].taken)
            slot_retire(sp->writing[i].lent->slot);
}

/* in_hand - its slot is needed still, to tell of it */
static bool in_hand(const struct spool *sp, size_t i)
{
    return sp->rows[i].taken || sp->rows[i].later;
}

/* landed - what became of those on their way
 * They are in another line before they leave this one (spool_waits). */
static void landed(struct spool *sp, size_t n, int err)
{
    int64_t came = 0;
    bool stalled;

    for (size_t i = 0; i < n && !err; i++)
        came += !in_hand(sp, i);
    pthread_mutex_lock(&sp->mtx);
    if (err) {
        for (size_t i = 0; i < n; i++)
            spool_wait_locked(sp, sp->writing[i].lent);
        atomic_fetch_add(&sp->failed, 1);
    } else if (n) {
        atomic_fetch_add(&sp->left, came);
        spool_ahead_locked(sp, sp->writing_first);
    }
    atomic_store(&sp->writes, 0);
    stalled = atomic_exchange(&sp->stalled, false);
    pthread_mutex_unlock(&sp->mtx);
    for (size_t i = 0; i < n && !err; i++)
        if (!in_hand(sp, i))
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

/* change - one commit, if there is anything to write */
static int change(struct spool *sp, size_t in, const int64_t *out,
                  size_t out_count)
{
    const struct store_spool_change c = {.in = sp->rows,
                                         .in_count = in,
                                         .out = out,
                                         .out_count = out_count,
                                         .durable = written,
                                         .arg = sp};

    if (atomic_load(&sp->q->store_gone))
        return -EBADFD;
    return in + out_count > 0 ? store_spool_change(sp->q->store, &c) : 0;
}

/* commit - what ended, and those that wait; how many these were */
static int commit(struct spool *sp, bool waiting, size_t *in)
{
    int64_t ends[ENDS_BATCH];
    size_t out;
    int err;

    pthread_mutex_lock(&sp->write_mtx);
    out = ends_peek(sp->ends, ends, ENDS_BATCH);
    *in = waiting ? waiting_take(sp) : 0;
    rows_of(sp, *in);
    err = change(sp, *in, ends, out);
    if (!err)
        ends_drop(sp->ends, out);
    if (waiting)
        landed(sp, *in, err);
    pthread_mutex_unlock(&sp->write_mtx);
    return err;
}

/* spool_write - `waiting` is the thread's alone, and so is what became of the
 * rows */
int spool_write(struct spool *sp, bool waiting)
{
    int large = waiting ? large_dead(sp) : 0;
    size_t in;
    int err = commit(sp, waiting, &in);

    if (!err) {
        duplicates_end(sp, in);
        later_tell(sp, in);
    }
    return err ? err : large;
}
