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
#include <string.h>

#include "common/base/fault_point.h"
#include "common/message/header.h"

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

/* board - those that come next, so that each priority gets there in its
 * order */
static size_t board(struct spool *sp)
{
    size_t waits, n;

    pthread_mutex_lock(&sp->mtx);
    waits = atomic_load(&sp->waits);
    n = waits < SPOOL_SLOTS ? waits : SPOOL_SLOTS;
    for (size_t i = 0; i < n; i++)
        sp->writing[i] = sp->waiting[waits - 1 - i];
    if (n)
        sp->writing_first = sp->writing[0].key;
    atomic_store(&sp->writes, n);
    atomic_store(&sp->waits, waits - n);
    pthread_mutex_unlock(&sp->mtx);
    return n;
}

/* written - they are on the disk */
static void written(void *arg)
{
    struct spool *sp = arg;

    FAULT_POINT("spool_written");
    for (size_t i = 0; i < atomic_load(&sp->writes); i++)
        slot_retire(sp->writing[i].lent->slot);
}

/* landed - what became of those on their way */
static void landed(struct spool *sp, size_t n, int err)
{
    bool stalled;

    pthread_mutex_lock(&sp->mtx);
    if (err) {
        for (size_t i = n; i > 0; i--)
            spool_wait_locked(sp, sp->writing[i - 1].lent);
    } else if (n) {
        atomic_fetch_add(&sp->left, (int64_t)n);
        spool_ahead_locked(sp, sp->writing_first);
    }
    atomic_store(&sp->writes, 0);
    stalled = atomic_exchange(&sp->stalled, false);
    pthread_mutex_unlock(&sp->mtx);
    for (size_t i = 0; i < n && !err; i++)
        custody_release(sp->q->custody, sp->writing[i].lent->slot);
    if (n || stalled)
        sp->q->events.changed(sp->q->events.arg);
}

int spool_write(struct spool *sp, bool waiting)
{
    struct store_spooled rows[SPOOL_SLOTS];
    int64_t ends[ENDS_BATCH];
    struct store_spool_change c = {
        .in = rows, .out = ends, .durable = written, .arg = sp};
    int err = 0;

    pthread_mutex_lock(&sp->write_mtx);
    c.out_count = ends_peek(sp->ends, ends, ENDS_BATCH);
    c.in_count = waiting ? board(sp) : 0;
    for (size_t i = 0; i < c.in_count; i++)
        row_of(&rows[i], &sp->writing[i]);
    if (atomic_load(&sp->q->store_gone))
        err = -EBADFD;
    else if (c.in_count + c.out_count > 0)
        err = store_spool_change(sp->q->store, &c);
    if (!err)
        ends_drop(sp->ends, c.out_count);
    if (waiting)
        landed(sp, c.in_count, err);
    pthread_mutex_unlock(&sp->write_mtx);
    return err;
}
