/* spool_intake.c - the thread that waits for the queue (see spool_inner.h)
 *
 * A work item takes a message without a detour as long as nobody waits. So this
 * thread leaves the queue to them while they are quick, and takes what they
 * leave. Once something waits, all goes this way, as the order has to be kept.
 */
#include "worker/source/mq/spool_inner.h"

#include <errno.h>
#include <stdio.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"

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
    return spool_waits(&sp->hook) < spool_most(sp) && spool_numbers(sp);
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

int spool_gather(struct spool *sp)
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

    if (spool_waits(&sp->hook) > 0 || spool_always(sp))
        return false;
    (void)poll(&fd, 1, LEAVE_MS);
    return queue_length(sp->q->queue) == 0 ||
           atomic_load(&sp->direct) - before >= LEAVE_LEAST;
}

/* tell_full - once, until a sixteenth is free */
static void tell_full(struct spool *sp)
{
    uint64_t most = spool_most(sp), waits = spool_waits(&sp->hook);

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

/* has_room - the same without the lock; the sequences are take's */
static bool has_room(struct spool *sp)
{
    bool room;

    pthread_mutex_lock(&sp->mtx);
    room = has_room_locked(sp);
    pthread_mutex_unlock(&sp->mtx);
    return room;
}

/* wait_for - how long; the queue is not looked at where nothing can be done
 * about it */
static bool wait_for(struct spool *sp)
{
    bool disk_fails = atomic_load(&sp->disk_fails);
    bool room = !disk_fails && has_room(sp);
    struct pollfd fds[2] = {
        {.fd = sp->wake, .events = POLLIN},
        {.fd = room ? queue_fd(sp->q->queue) : -1, .events = POLLIN}};
    int ms = disk_fails                 ? RETRY_MS
             : to_write(sp)             ? 0
             : ends_count(sp->ends) > 0 ? ENDS_MS
                                        : -1;
    uint64_t ignored;

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

/* turned_on - also a spool that was off when the worker started */
static bool turned_on(struct spool *sp)
{
    struct problem p;

    if (sp->q->spool || spool_turn_on(sp, &p) == 0)
        return true;
    log_error("spool_stuck", F_STR("queue", sp->q->set->queue),
              F_STR("error", p.text),
              F_STR("next", "it stays off; see what is wrong, and start the "
                            "worker again"));
    return false;
}

static void *intake_main(void *arg)
{
    struct spool *sp = arg;

    if (!turned_on(sp))
        return NULL;
    while (!atomic_load(&sp->stop)) {
        bool readable = wait_for(sp);

        slots_grow(sp);
        if (!atomic_load(&sp->stop))
            intake_round(sp, readable);
    }
    return NULL;
}

/* spool_thread_start - signals are the peeker's business */
int spool_thread_start(struct spool *sp)
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

void spool_thread_stop(struct spool *sp)
{
    if (!sp->started)
        return;
    atomic_store(&sp->stop, true);
    spool_wake(sp);
    pthread_join(sp->thread, NULL);
    sp->started = false;
}
