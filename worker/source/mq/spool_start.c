/* spool_start.c - from one worker to the next (see spool.h) */
#include "worker/source/mq/spool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "worker/source/mq/spool_inner.h"

#define LAST_NS (5 * NS_PER_S) /* a sender that goes on must not keep a stop */

/* ---- recovery ---- */

static int find(struct mq_spool *hook, const struct slot *slot,
                enum mq_spool_at *out)
{
    struct spool *sp = spool_of(hook);
    int64_t key = spool_key_of(slot);
    bool cancelled;
    int err;

    *out = MQ_SPOOL_NOT;
    if (slot->seq >= STORE_SPOOL_SEQ_MAX)
        return 0;
    if (ends_has(sp->ends, key)) {
        *out = MQ_SPOOL_ENDED;
        return 0;
    }
    err = store_spool_find(sp->q->store, key, &cancelled);
    if (!err)
        *out = cancelled ? MQ_SPOOL_CANCELLED : MQ_SPOOL_ROW;
    return err == -ENOENT ? 0 : err;
}

/* note - Crash after it: the slot is as before, and the next start writes the
 * same numbers again. */
static int note(struct mq_spool *hook, const struct slot *slot)
{
    struct slot_word w = slot_word(slot);
    bool ran = w.state == SLOT_RUNNING;
    struct store_spooled m = {
        .key = spool_key_of(slot), .id = slot->id, .crashes = w.crashes + ran};

    if (ran || w.flags & SLOT_REDELIVERED)
        m.flags |= STORE_REDELIVERED;
    if (w.flags & SLOT_LENGTH_INFERRED)
        m.flags |= STORE_LENGTH_INFERRED;
    return m.crashes || m.flags ? store_spool_note(spool_of(hook)->q->store, &m)
                                : 0;
}

/* ---- open and close ---- */

/* start - without the thread, messages are taken as without a spool, and what
 * is on the disk runs */
static void start(struct mq_spool *hook)
{
    struct spool *sp = spool_of(hook);
    int err = spool_thread_start(sp);

    if (err)
        log_error("spool_stuck", F_STR("queue", sp->q->set->queue),
                  F_STR("error", errno_text(-err)),
                  F_STR("next", "no thread can be started: raise the limit "
                                "(ulimit -u, TasksMax=) and start the worker "
                                "again"));
}

/* tuned - the thread looks; the first time it turns the spool on */
static void tuned(struct mq_spool *hook)
{
    struct spool *sp = spool_of(hook);

    if (sp->started)
        spool_wake(sp);
    else if (spool_most(sp) > 0)
        start(hook);
}

/* moved - the thread polls the new one */
static void moved(struct mq_spool *hook)
{
    spool_wake(spool_of(hook));
}

static const struct mq_spool_ops spool_ops = {
    .take = spool_take,
    .end = spool_end,
    .waits = spool_waits,
    .queued = spool_queued,
    .ready = spool_ready,
    .start = start,
    .tuned = tuned,
    .moved = moved,
    .find = find,
    .key = spool_key_of,
    .note = note,
    .adopt = spool_adopt,
    .seize = spool_seize,
    .release = spool_release,
};

int spool_open(struct spool **out, struct source_mq *q, struct problem *p)
{
    struct spool *sp = calloc(1, sizeof *sp);
    int err = 0;

    *out = NULL;
    if (!sp)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    sp->hook.ops = &spool_ops;
    sp->q = q;
    sp->grown = spool_most(sp) > 0; /* slots_for */
    pthread_mutex_init(&sp->mtx, NULL);
    pthread_mutex_init(&sp->write_mtx, NULL);
    pthread_mutex_init(&sp->steer_mtx, NULL);
    sp->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (sp->wake < 0)
        err = problem_set(p, EX_OSERR, errno, "cannot start: %s",
                          errno_text(errno));
    else if (spool_most(sp) > 0 || store_spool_count(q->store) != 0)
        err = spool_turn_on(sp, p);
    if (err)
        spool_close(&sp);
    else
        q->spool_there = &sp->hook;
    *out = sp;
    return err;
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

    if (!sp->q->spool)
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

/* last_write - all that waits; its error */
static int last_write(struct spool *sp)
{
    int err = 0;

    while (!err && (atomic_load(&sp->waits) > 0 || ends_count(sp->ends) > 0))
        err = spool_write(sp, true);
    return err;
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
    uint64_t most = spool_most(sp), waits = spool_waits(&sp->hook);
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
    before = spool_waits(&sp->hook);
    do {
        n = spool_gather(sp);
        err = last_write(sp);
    } while (n > 0 && !err && clock_mono_ns() < end);
    snprintf(next, sizeof next,
             "%s, then start a worker. Messages in the queue stay there until "
             "the next boot, which deletes them",
             disk_advice(err));
    if (err)
        log_error("spool_stuck", F_STR("queue", sp->q->set->queue),
                  F_STR("error", errno_text(-err)), F_STR("next", next));
    else if (spool_waits(&sp->hook) > 0)
        log_info("spooled", F_STR("queue", sp->q->set->queue),
                 F_UINT("spooled", spool_waits(&sp->hook)),
                 F_UINT("at_stop", spool_waits(&sp->hook) - before));
    if (!err)
        tell_left(sp, n);
}

/* over - the end of this worker's time with the spool; whether it is orderly
 * A message in a slot needs its row, and its end, as they are: a start that is
 * refused changes nothing. Without any, those that wait in slots that are FREE
 * by now have been kept with the others (source_ops.keep). */
static bool over(struct spool *sp)
{
    return sp->q->spool == &sp->hook && custody_empty(sp->q->custody) &&
           ends_write(sp) == 0 && store_spool_end(sp->q->store) == 0;
}

void spool_close(struct spool **spool)
{
    struct spool *sp = *spool;

    if (!sp)
        return;
    *spool = NULL;
    spool_thread_stop(sp);
    ends_close(&sp->ends, over(sp));
    sp->q->spool = sp->q->spool_there = NULL;
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
