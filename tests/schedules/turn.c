/* turn.c - run one thread at a time (see turn.h)
 *
 * Only the thread that has the turn runs, so nothing here needs a lock. The
 * other threads wait, each for its own semaphore.
 */
#include "tests/schedules/turn.h"

/* Only the linker refers to these functions (--wrap). */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Passes of switching points after which a thread that only polls hands the
 * turn on, because the thread that it waits for may be one that lost its
 * turn. */
#define POINTS_MOST 3000

enum state { ENDED, ABLE, BLOCKED, POLLS };

struct thread {
    enum state state;
    const void *on;          /* BLOCKED: a mutex, a condition, a futex */
    bool (*able)(void *arg); /* POLLS */
    void *able_arg;
    sem_t turn;
    void *(*run)(void *arg);
    void *arg;
};

static struct thread threads[TURN_THREADS];
static unsigned count, mine; /* `mine` has the turn */
static struct turn_plan plan;
static unsigned next_at;
static uint64_t steps, random_state;
static unsigned points; /* since the last change of turn */
static void (*idle)(void);
static bool on;
static char name[256];

int __real_pthread_mutex_lock(pthread_mutex_t *m);
int __real_pthread_mutex_unlock(pthread_mutex_t *m);
int __real_pthread_create(pthread_t *t, const pthread_attr_t *attr,
                          void *(*run)(void *), void *arg);
int __real_poll(struct pollfd *fds, nfds_t n, int timeout);
long __real_syscall(long number, ...);

void turn_name(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
}

_Noreturn void turn_fault(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    printf("schedules: %s: ", name);
    vprintf(fmt, args);
    va_end(args);
    printf("; %u threads, point %llu\n", count, (unsigned long long)steps);
    fflush(stdout);
    _exit(1);
}

/* Return the next random number (xorshift; the state must not be 0). */
static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Hand the turn to another thread; return when this thread has it again. */
static void turn_hand(unsigned to, bool ends)
{
    unsigned from = mine;

    if (to == from)
        return;
    mine = to;
    points = 0;
    sem_post(&threads[to].turn);
    while (!ends && sem_wait(&threads[from].turn) < 0)
        ;
}

/* Make polling threads able to run if what they wait for has happened. */
static bool polls_check(void)
{
    bool some = false;

    for (unsigned i = 0; i < count; i++)
        if (threads[i].state == POLLS && threads[i].able(threads[i].able_arg)) {
            threads[i].state = ABLE;
            some = true;
        }
    return some;
}

/* Count the other threads that can run. */
static unsigned others_count(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < count; i++)
        n += i != mine && threads[i].state == ABLE;
    return n;
}

/* Return other thread number `which` of those that can run. */
static unsigned other_nth(unsigned which)
{
    for (unsigned i = 0; i < count; i++)
        if (i != mine && threads[i].state == ABLE && which-- == 0)
            return i;
    return mine;
}

static unsigned choose(unsigned n)
{
    return plan.seed ? (unsigned)(random_next() % n) : 0;
}

/* Hand the turn to a thread that can run. This thread cannot run, or ends. */
static void give_up(bool ends)
{
    unsigned n;

    polls_check();
    while ((n = others_count()) == 0 && threads[mine].state != ABLE) {
        on = false;
        idle();
        on = true;
        polls_check();
    }
    if (n > 0 && (threads[mine].state != ABLE || ends))
        turn_hand(other_nth(choose(n)), ends);
}

/* Return true if the plan has a switch at this point. */
static bool plan_switches(unsigned *which)
{
    if (plan.rate) {
        *which = (unsigned)random_next();
        return random_next() % plan.rate == 0;
    }
    if (next_at == plan.count || steps < plan.at[next_at].step)
        return false;
    *which = plan.at[next_at++].which;
    return true;
}

void turn_point(void)
{
    unsigned n, which = 0;

    if (!on)
        return;
    steps++;
    if (!plan_switches(&which) && ++points < POINTS_MOST)
        return;
    points = 0;
    polls_check();
    n = others_count();
    if (n > 0)
        turn_hand(other_nth(which % n), false);
}

void turn_until(bool (*able)(void *arg), void *arg)
{
    threads[mine].state = POLLS;
    threads[mine].able = able;
    threads[mine].able_arg = arg;
    give_up(false);
}

/* Wait until a thread wakes the waiters for `what`. */
static void thread_block(const void *what)
{
    threads[mine].state = BLOCKED;
    threads[mine].on = what;
    give_up(false);
}

/* Wake up to `most` waiters for `what` and return how many there were. */
static unsigned threads_wake(const void *what, unsigned most)
{
    unsigned woken = 0;

    for (unsigned i = 0; i < count && woken < most; i++)
        if (threads[i].state == BLOCKED && threads[i].on == what) {
            threads[i].state = ABLE;
            woken++;
        }
    return woken;
}

void turn_one_processor(void)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET(sched_getcpu() > 0 ? (size_t)sched_getcpu() : 0, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
}

void turn_begin(const struct turn_plan *p, void (*none)(void))
{
    plan = *p;
    idle = none;
    random_state = plan.seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    next_at = 0;
    steps = points = 0;
    count = 1;
    mine = 0;
    threads[0].state = ABLE;
    sem_init(&threads[0].turn, 0, 0);
    on = true;
}

/* Return true if no other thread is left. */
static bool all_ended(void *arg)
{
    (void)arg;
    for (unsigned i = 1; i < count; i++)
        if (threads[i].state != ENDED)
            return false;
    return true;
}

uint64_t turn_end(void)
{
    turn_until(all_ended, NULL);
    on = false;
    for (unsigned i = 0; i < count; i++)
        sem_destroy(&threads[i].turn);
    return steps;
}

/* ---- what is called in the place of the C library ---- */

int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
    if (!on)
        return __real_pthread_mutex_lock(m);
    turn_point();
    while (pthread_mutex_trylock(m) == EBUSY)
        thread_block(m);
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
    int err = __real_pthread_mutex_unlock(m);

    if (on) {
        threads_wake(m, TURN_THREADS);
        turn_point();
    }
    return err;
}

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    __real_pthread_mutex_unlock(m);
    threads_wake(m, TURN_THREADS);
    thread_block(c);
    return __wrap_pthread_mutex_lock(m);
}

int __wrap_pthread_cond_signal(pthread_cond_t *c)
{
    threads_wake(c, 1);
    turn_point();
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *c)
{
    threads_wake(c, TURN_THREADS);
    turn_point();
    return 0;
}

/* Run a thread from its first turn to its last. */
static void *thread_main(void *arg)
{
    struct thread *t = arg;

    while (sem_wait(&t->turn) < 0)
        ;
    t->run(t->arg);
    t->state = ENDED;
    give_up(true);
    return NULL;
}

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr,
                          void *(*run)(void *), void *arg)
{
    struct thread *t;
    int err;

    if (!on)
        return __real_pthread_create(out, attr, run, arg);
    if (count == TURN_THREADS)
        turn_fault("more than %d threads", TURN_THREADS);
    t = &threads[count];
    *t = (struct thread){.state = ABLE, .run = run, .arg = arg};
    sem_init(&t->turn, 0, 0);
    err = __real_pthread_create(out, attr, thread_main, t);
    if (err)
        turn_fault("no thread: error %d", err);
    count++;
    turn_point();
    return 0;
}

struct poll_ask {
    struct pollfd *fds;
    nfds_t n;
};

static bool poll_able(void *arg)
{
    const struct poll_ask *ask = arg;

    return __real_poll(ask->fds, ask->n, 0) != 0;
}

/* Code under test polls without a limit, or does not wait. */
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
    struct poll_ask ask = {fds, n};

    if (on)
        turn_point();
    if (on && timeout != 0 && !poll_able(&ask))
        turn_until(poll_able, &ask);
    return __real_poll(fds, n, 0);
}

/* Time is virtual, so no timer fires by itself. */
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *new,
                           struct itimerspec *old)
{
    (void)fd, (void)flags, (void)new, (void)old;
    return 0;
}

int __wrap_sched_yield(void)
{
    points = POINTS_MOST;
    turn_point();
    return 0;
}

/* Replace futex(2), which the quick lock uses, and membarrier(2), which has
 * nothing to do while one thread runs at a time. */
long __wrap_syscall(long number, ...)
{
    atomic_int *at;
    va_list args;
    int op;
    unsigned value;

    va_start(args, number);
    at = va_arg(args, atomic_int *);
    op = va_arg(args, int) & FUTEX_CMD_MASK;
    value = va_arg(args, unsigned);
    va_end(args);
    if (number == SYS_membarrier)
        return 0;
    if (number != SYS_futex || !on)
        turn_fault("system call %ld is not known here", number);
    turn_point();
    if (op == FUTEX_WAKE)
        return (long)threads_wake(at, value);
    if (atomic_load(at) != (int)value) {
        errno = EAGAIN;
        return -1;
    }
    thread_block(at);
    return 0;
}
