/* spool_write.c - to the disk, many in one commit (see spool_inner.h)
 *
 * One commit brings in what waits and deletes what ended. The slots are FREE
 * before anything later is written (`durable` of store_spool_change), so that
 * no slot is left whose row has come and gone.
 * Crash before the commit: the slots are HELD, the ends are noted. After it,
 * before a slot is FREE: recovery finds the row by the key, and frees the slot;
 * before an end is dropped: it is deleted once more.
 */
#include "worker/source/spool/spool_inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/fault_point.h"
#include "common/message/header.h"
#include "worker/source/mq/row.h"

#define ENDS_BATCH 1024 /* keys that are deleted in one commit */

/* letter_of - the letter that its header says it is, 0: none */
static int64_t letter_of(const struct slot *slot, size_t size)
{
    char why[HEADER_WHY];
    struct header h;

    if (header_parse(slot->body, size, &h, why) < 0 ||
        !(h.fields & HEADER_LETTER) || h.letter > INT64_MAX)
        return 0;
    return (int64_t)h.letter;
}

/* row_of - what is kept of a message in its slot */
static void row_of(struct store_spooled *row, const struct spool_wait *wait)
{
    const struct slot *slot = wait->lent->slot;
    struct slot_word w = slot_word(slot);

    *row = (struct store_spooled){.key = wait->key,
                                  .received_ns = slot->received_ns,
                                  .id = slot->id,
                                  .crashes = w.crashes,
                                  .data = slot->body,
                                  .size = atomic_load(&slot->length)};
    row->letter = letter_of(slot, row->size);
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

/* board - all that wait, so that each priority gets there in its order, and
 * each key is given in the order of receipt */
static size_t board(struct spool *sp)
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
    for (size_t i = 0; i < n; i++) {
        const struct spool_wait *wait = &sp->writing[i];

        if (wait->unique)
            spool_key_ask(&sp->keys[i], wait->lent);
        row_of(&sp->rows[i], wait);
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

/* landed - what became of those on their way */
static void landed(struct spool *sp, size_t n, int err)
{
    int64_t came = 0;
    bool stalled;

    for (size_t i = 0; i < n && !err; i++)
        came += !sp->rows[i].taken;
    pthread_mutex_lock(&sp->mtx);
    if (err) {
        for (size_t i = 0; i < n; i++)
            spool_wait_locked(sp, sp->writing[i].lent);
    } else if (n) {
        atomic_fetch_add(&sp->left, came);
        spool_ahead_locked(sp, sp->writing_first);
    }
    atomic_store(&sp->writes, 0);
    stalled = atomic_exchange(&sp->stalled, false);
    pthread_mutex_unlock(&sp->mtx);
    for (size_t i = 0; i < n && !err; i++)
        if (!sp->rows[i].taken)
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

/* large_bury - it cannot be run: nothing is lost, it is a letter */
static int large_bury(struct spool *sp)
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
    *in = waiting ? board(sp) : 0;
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
    int large = waiting ? large_bury(sp) : 0;
    size_t in;
    int err = commit(sp, waiting, &in);

    if (!err)
        duplicates_end(sp, in);
    return err ? err : large;
}
