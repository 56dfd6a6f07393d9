/* peeker.c - the one waiting thread (see peeker.h)
 *
 * A busy worker whose handlers take microseconds runs one work item and leaves
 * peek mode off: peeking at each message would cost a thread switch for each.
 * Should a handler then take long, nobody would fetch the next message; so
 * while there is room for more work items and peek mode is off, the wait is
 * limited, and a round in which no delivery was started enters peek mode. An
 * idle worker is in peek mode and waits without a limit.
 *
 * Who lingers and takes a message leaves peek mode off as well, but the peeker
 * sleeps and does not see it; a timer makes it look.
 */
#include "worker/peeker.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "worker/container.h"
#include "worker/engine.h"
#include "worker/receive.h"

#define EVENTS   16
#define STUCK_MS 2 /* a handler that takes longer gets company */
/* The same after lingering. To start the timer is a system call before the
 * handler's first instruction, and it wakes the peeker, which then is in the
 * way of another message: fewer than one in a hundred, where one comes each few
 * ms. */
#define LINGER_MS 250

/* Peek mode: who waits for the queue. Each leaves what it entered: somebody
 * else who took a state away would let a third one enter it, and then two
 * threads would wait, with one kick between them.
 *
 *   from     event                                   to
 *   OFF      peeker_arm                              EPOLL
 *   EPOLL    the queue has a message                 OFF, by the peeker
 *   EPOLL    the queue was made again: epoll has     OFF, by who did
 *            lost the old one
 *   OFF      peeker_linger                           THREAD
 *   THREAD   a message, or a kick                    OFF, by that thread
 */
enum { PEEK_OFF, PEEK_EPOLL, PEEK_THREAD };

/* c = constant after open   a = atomic   p = peeker's thread only */
struct peeker {
    struct engine *engine;    /* c */
    int epoll, signals, wake; /* c */
    int kick;                 /* c  ends the lingering */
    atomic_int mode;          /* a  PEEK_ */
    atomic_bool released;     /* a  nobody may linger */
    struct timer look_timer;
    _Atomic uint64_t look_ns; /* a  when it was started for last */
    uint64_t started;         /* p  deliveries at the last look */
};

static const int taken[] = {SIGTERM, SIGINT,  SIGQUIT, SIGHUP,
                            SIGUSR2, SIGCONT, SIGTTIN, SIGTTOU};

static void signals_fill(sigset_t *set)
{
    sigemptyset(set);
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        sigaddset(set, taken[i]);
}

void peeker_block_signals(void)
{
    sigset_t set;

    signals_fill(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a full disk */
}

/* add - one more descriptor; told apart by the address of where it is kept */
static int add(struct peeker *p, int fd, const void *tag, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = (void *)tag};

    return epoll_ctl(p->epoll, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

/* shift - from one mode to another; false: it was not in that one */
static bool shift(struct peeker *p, int from, int to)
{
    return atomic_compare_exchange_strong(&p->mode, &from, to);
}

/* look_due - the peeker is awake, and its next wait has a limit */
static void look_due(struct timer *timer)
{
    struct peeker *p = CONTAINER_OF(timer, struct peeker, look_timer);

    atomic_store_explicit(&p->look_ns, 0, memory_order_relaxed);
}

/* peeker_open - not yet in peek mode */
int peeker_open(struct peeker **out, struct engine *e)
{
    struct peeker *p = calloc(1, sizeof *p);
    sigset_t set;
    int err = 0;

    *out = NULL;
    if (!p)
        return -ENOMEM;
    sigemptyset(&set);
    if (e->set->take_signals)
        signals_fill(&set);
    p->engine = e;
    p->epoll = epoll_create1(EPOLL_CLOEXEC);
    p->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    p->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    timer_init(&p->look_timer, look_due);
    if (p->epoll < 0 || p->signals < 0 || p->wake < 0 || p->kick < 0)
        err = -errno;
    if (!err)
        err = add(p, p->signals, &p->signals, EPOLLIN);
    if (!err)
        err = add(p, p->wake, &p->wake, EPOLLIN);
    if (!err)
        err = add(p, timers_fd(e->timers), e->timers, EPOLLIN);
    if (err) {
        peeker_close(&p);
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
    timers_cancel(p->engine->timers, &p->look_timer);
    if (p->epoll >= 0)
        close(p->epoll);
    if (p->signals >= 0)
        close(p->signals);
    if (p->wake >= 0)
        close(p->wake);
    if (p->kick >= 0)
        close(p->kick);
    free(p);
}

/* peeker_arm - one-shot, so that a message wakes the peeker once, not until it
 * was taken
 * The queue is added when it is waited for first: an entry that never fired is
 * not off, whatever its events are (the kernel adds EPOLLERR and EPOLLHUP), and
 * each message that is sent would wake the peeker in vain.
 */
void peeker_arm(struct peeker *p)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT,
                             .data.ptr = &p->mode};
    int fd = queue_fd(p->engine->queue);

    if (!shift(p, PEEK_OFF, PEEK_EPOLL))
        return;
    if (epoll_ctl(p->epoll, EPOLL_CTL_MOD, fd, &ev) == 0 ||
        (errno == ENOENT && epoll_ctl(p->epoll, EPOLL_CTL_ADD, fd, &ev) == 0) ||
        (errno == EEXIST && epoll_ctl(p->epoll, EPOLL_CTL_MOD, fd, &ev) == 0))
        return;
    shift(p, PEEK_EPOLL, PEEK_OFF);
    engine_trouble(p->engine, "epoll_ctl", errno);
}

/* kick - whoever lingers looks again; it stays until somebody has seen it */
static void kick(struct peeker *p)
{
    uint64_t one = 1;

    (void)!write(p->kick, &one, sizeof one);
}

/* peeker_queue_changed - epoll dropped the old queue when it was closed; the
 * next arm finds that out by itself. A thread that waits for the old one is
 * told; one that begins to wait now has the new one already.
 */
void peeker_queue_changed(struct peeker *p)
{
    if (!shift(p, PEEK_EPOLL, PEEK_OFF) && atomic_load(&p->mode) == PEEK_THREAD)
        kick(p);
}

/* look_in - make the peeker look, in at most so many ms
 * look_ns may be read old: then the timer is asked once more, or is firing,
 * which is a look as well.
 */
static void look_in(struct peeker *p, unsigned ms)
{
    uint64_t now = clock_mono_ns(), when = now + ms * NS_PER_MS;
    uint64_t pending = atomic_load_explicit(&p->look_ns, memory_order_relaxed);

    if (pending > now && pending <= when)
        return;
    atomic_store_explicit(&p->look_ns, when, memory_order_relaxed);
    timers_start_earlier(p->engine->timers, &p->look_timer, when);
}

/* peeker_linger - one thread at a time, as peek mode is entered once */
bool peeker_linger(struct peeker *p)
{
    if (atomic_load(&p->released) || !shift(p, PEEK_OFF, PEEK_THREAD))
        return false;
    if (!atomic_load(&p->released))
        return true;
    shift(p, PEEK_THREAD, PEEK_OFF);
    return false;
}

/* peeker_lingered - off before a work item is tried, as in on_event */
bool peeker_lingered(struct peeker *p)
{
    struct pollfd fds[2] = {
        {.fd = queue_fd(p->engine->queue), .events = POLLIN},
        {.fd = p->kick, .events = POLLIN}};
    uint64_t ignored;

    (void)poll(fds, 2, -1);
    if (fds[1].revents && !atomic_load(&p->released))
        (void)!read(p->kick, &ignored, sizeof ignored);
    shift(p, PEEK_THREAD, PEEK_OFF);
    if (!(fds[0].revents & POLLIN))
        return false;
    if (engine_room(p->engine) > 1)
        look_in(p, LINGER_MS);
    return true;
}

void peeker_look_soon(struct peeker *p)
{
    look_in(p, STUCK_MS);
}

void peeker_release(struct peeker *p)
{
    atomic_store(&p->released, true);
    kick(p);
}

bool peeker_armed(const struct peeker *p)
{
    return atomic_load(&p->mode) != PEEK_OFF;
}

void peeker_wake(struct peeker *p)
{
    uint64_t one = 1;

    /* A full counter wakes as well. */
    (void)!write(p->wake, &one, sizeof one);
}

int peeker_watch(struct peeker *p, struct peeker_source *source,
                 uint32_t events)
{
    struct epoll_event ev = {.events = events | EPOLLONESHOT,
                             .data.ptr = source};
    int op = source->added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

    source->added = true; /* now, as it may be told of at once */
    if (epoll_ctl(p->epoll, op, source->fd, &ev) == 0)
        return 0;
    source->added = op == EPOLL_CTL_MOD;
    return -errno;
}

/* on_signal - all that came */
static void on_signal(struct peeker *p)
{
    struct signalfd_siginfo info;

    while (read(p->signals, &info, sizeof info) == sizeof info) {
        switch (info.ssi_signo) {
        case SIGUSR2:
            engine_pause(p->engine, true);
            break;
        case SIGCONT:
            engine_pause(p->engine, false);
            break;
        case SIGTTIN:
            engine_cap(p->engine, +1);
            break;
        case SIGTTOU:
            engine_cap(p->engine, -1);
            break;
        default:
            engine_stop(p->engine, (int)info.ssi_signo);
        }
    }
}

/* on_event - by its tag */
static void on_event(struct peeker *p, const void *tag)
{
    uint64_t ignored;

    if (tag == &p->mode) {
        /* Off before a work item is tried: an item that leaves meanwhile sees
         * it off and arms, or we see the room that it left. */
        shift(p, PEEK_EPOLL, PEEK_OFF);
        receive_start(p->engine);
    } else if (tag == p->engine->timers) {
        timers_run(p->engine->timers);
    } else if (tag == &p->signals) {
        on_signal(p);
    } else if (tag == &p->wake) {
        (void)!read(p->wake, &ignored, sizeof ignored);
    } else {
        struct peeker_source *source = (struct peeker_source *)tag;

        source->ready(source);
    }
}

/* wait_ms - without a limit, unless work items run with peek mode off and more
 * could run */
static int wait_ms(struct peeker *p)
{
    unsigned running = atomic_load(&p->engine->running);

    return running > 0 && running < engine_room(p->engine) && !peeker_armed(p)
               ? STUCK_MS
               : -1;
}

/* look - a round without an event: does a handler keep its thread for long? */
static void look(struct peeker *p)
{
    struct receive_stats s;

    receive_stats(p->engine, &s);
    if (s.deliveries == p->started)
        engine_poke(p->engine);
    p->started = s.deliveries;
}

void peeker_run(struct peeker *p)
{
    struct epoll_event events[EVENTS];

    while (!engine_finished(p->engine)) {
        int n = epoll_wait(p->epoll, events, EVENTS, wait_ms(p));

        for (int i = 0; i < n; i++)
            on_event(p, events[i].data.ptr);
        if (n == 0)
            look(p);
        board_show(p->engine);
    }
}
