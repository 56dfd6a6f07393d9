/* peeker.c - peek mode: one thread waits for the queue (see peeker.h)
 *
 * A busy worker whose handlers take microseconds runs one work item and leaves
 * peek mode off: peeking at each message would cost a thread switch for each.
 * If a handler then took long, nobody would fetch the next message. So while
 * peek mode is off and there is room for more work items, the loop limits its
 * wait, and enters peek mode if no delivery was started during that wait. An
 * idle worker is in peek mode and waits without a limit.
 *
 * A thread that waits here and takes a message leaves peek mode off as well,
 * but the loop sleeps and does not see that; a timer makes it look.
 */
#include "worker/loop/peeker.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/clock.h"

/* How soon the loop looks after a thread of the pool has waited for the queue
 * and taken a message. The timer costs a system call before the handler starts,
 * and its end wakes the loop, which delays another message. At 250 ms, with a
 * message every few ms, fewer than one message in a hundred is delayed. */
#define LINGER_MS 250

/* Peek mode: which thread waits for the queue (docs/design/machines.md). The
 * thread that entered a mode leaves it, and no other one: otherwise a third
 * thread could enter, and two would wait while one interrupt wakes only one. */
enum { PEEK_OFF, PEEK_EPOLL, PEEK_THREAD };

/* c = constant after open   a = atomic */
struct peeker {
    struct peeker_setup setup; /* c */
    pthread_mutex_t arm_mtx;   /* lets one thread arm at a time: a source that
                                * fires immediately may be armed again before
                                * the first call returns */
    struct loop_source source; /* under arm_mtx  the queue */
    int interrupt;             /* c  ends the wait of a thread */
    atomic_int mode;           /* a  PEEK_ */
    atomic_bool released;      /* a  no thread may enter */
    struct timer look_timer;
    _Atomic uint64_t look_ns; /* a  last deadline of the timer; 0: it fired */
};

/* Change from one mode to another. Returns false if the mode was not `from`. */
static bool mode_shift(struct peeker *p, int from, int to)
{
    return atomic_compare_exchange_strong(&p->mode, &from, to);
}

/* Called by the loop. Before its next wait, the loop checks whether work items
 * are running (schedule_wait_ms). It does so after this store, on which
 * peeker_look_later relies. */
static void look_timer_due(struct timer *timer)
{
    struct peeker *p = CONTAINER_OF(timer, struct peeker, look_timer);

    atomic_store(&p->look_ns, 0);
}

/* Switch peek mode off before trying to start a work item. If another item
 * leaves at the same time, either that item sees peek mode off and arms again,
 * or this thread sees the room that the item left. */
static void queue_readable(struct loop_source *source)
{
    struct peeker *p = CONTAINER_OF(source, struct peeker, source);

    mode_shift(p, PEEK_EPOLL, PEEK_OFF);
    (void)p->setup.ready(p->setup.flow);
}

int peeker_open(struct peeker **out, const struct peeker_setup *setup)
{
    struct peeker *p = calloc(1, sizeof *p);

    *out = NULL;
    if (!p)
        return -ENOMEM;
    p->setup = *setup;
    p->source.ready = queue_readable;
    timer_init(&p->look_timer, look_timer_due);
    pthread_mutex_init(&p->arm_mtx, NULL);
    p->interrupt = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->interrupt < 0) {
        int err = -errno;

        free(p);
        return err;
    }
    *out = p;
    return 0;
}

void peeker_close(struct peeker **peeker)
{
    struct peeker *p = *peeker;

    if (!p)
        return;
    *peeker = NULL;
    timers_cancel(p->setup.timers, &p->look_timer);
    close(p->interrupt);
    pthread_mutex_destroy(&p->arm_mtx);
    free(p);
}

/* Watch the queue for one event, so that a message wakes the loop once, and not
 * again and again until it is taken. The queue is not added to the epoll set
 * before the first wait: an entry that never fired is active whatever its
 * events are (the kernel adds EPOLLERR and EPOLLHUP), so each sent message
 * would wake the loop for nothing. */
void peeker_arm(struct peeker *p)
{
    int err = 0;

    if (peeker_armed(p))
        return;
    pthread_mutex_lock(&p->arm_mtx);
    if (mode_shift(p, PEEK_OFF, PEEK_EPOLL)) {
        p->source.fd = p->setup.fd(p->setup.flow);
        err = loop_watch(p->setup.loop, &p->source, EPOLLIN);
        if (err)
            mode_shift(p, PEEK_EPOLL, PEEK_OFF);
    }
    pthread_mutex_unlock(&p->arm_mtx);
    if (err)
        p->setup.trouble(p->setup.gate, "epoll_ctl", -err);
}

/* Make the waiting thread look again. If none waits yet, the eventfd stays
 * readable for the next one. */
static void waiter_interrupt(struct peeker *p)
{
    (void)eventfd_write(p->interrupt, 1);
}

/* epoll dropped the old queue when it was closed, and the next arm adds the new
 * one. A thread that waits for the old queue is interrupted; a thread that
 * begins to wait from here on uses the new one. */
void peeker_queue_changed(struct peeker *p)
{
    if (!mode_shift(p, PEEK_EPOLL, PEEK_OFF) &&
        atomic_load(&p->mode) == PEEK_THREAD)
        waiter_interrupt(p);
}

/* Make the loop look within `ms`. If look_ns is out of date, either this starts
 * the timer again, or the timer is firing now and the loop looks anyway. */
static void look_in(struct peeker *p, unsigned ms)
{
    uint64_t now = clock_mono_ns(), when = now + ms * NS_PER_MS;
    uint64_t pending = atomic_load_explicit(&p->look_ns, memory_order_relaxed);

    if (pending > now && pending <= when)
        return;
    atomic_store_explicit(&p->look_ns, when, memory_order_relaxed);
    timers_start_earlier(p->setup.timers, &p->look_timer, when);
}

bool peeker_enter(struct peeker *p)
{
    if (atomic_load(&p->released) || !mode_shift(p, PEEK_OFF, PEEK_THREAD))
        return false;
    if (!atomic_load(&p->released))
        return true;
    mode_shift(p, PEEK_THREAD, PEEK_OFF);
    return false;
}

/* Switch peek mode off first, as queue_readable does. */
bool peeker_wait(struct peeker *p)
{
    struct pollfd fds[2] = {
        {.fd = p->setup.fd(p->setup.flow), .events = POLLIN},
        {.fd = p->interrupt, .events = POLLIN}};
    uint64_t ignored;

    (void)poll(fds, 2, -1);
    if (fds[1].revents && !atomic_load(&p->released))
        (void)!read(p->interrupt, &ignored, sizeof ignored);
    mode_shift(p, PEEK_THREAD, PEEK_OFF);
    return fds[0].revents & POLLIN;
}

void peeker_look_soon(struct peeker *p)
{
    look_in(p, PEEKER_STUCK_MS);
}

/* A pending look comes within LINGER_MS, so it is enough. The caller was
 * counted as running before this load, so a look that is pending here counts
 * it, because the loop checks who is running after look_timer_due. */
void peeker_look_later(struct peeker *p)
{
    if (atomic_load(&p->look_ns) == 0)
        look_in(p, LINGER_MS);
}

void peeker_release(struct peeker *p)
{
    atomic_store(&p->released, true);
    waiter_interrupt(p);
}

bool peeker_armed(const struct peeker *p)
{
    return atomic_load(&p->mode) != PEEK_OFF;
}
