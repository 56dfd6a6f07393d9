/* feed.c - see feed.h */
#include "tests/bench/feed.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"

/* Deliveries before the clock runs, while caches and the worker's mean time of
 * a handler settle: so many in each filling, or one in so many where a process
 * sends. */
#define WARM_FILL 10
#define WARM_PART 20 /* one in so many */
#define GROUPS    16

mqd_t feed_open(int flags)
{
    mqd_t mq = mq_open(place->queue, flags | O_CLOEXEC);

    if (mq == (mqd_t)-1)
        fail(errno, "%s", place->queue);
    return mq;
}

void feed_body(char body[FEED_MOST])
{
    memset(body, 'x', FEED_MOST);
    memcpy(body, "g00:", 4);
}

void feed_turn(char body[FEED_MOST], unsigned long i)
{
    body[1] = (char)('a' + i % GROUPS);
}

/* Pin this process to the first processor that it may use, or to the others. Do
 * nothing if it has only one. */
static void pin(bool first)
{
    cpu_set_t all, mine;
    bool seen = false;

    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof all, &all) < 0 || CPU_COUNT(&all) < 2)
        return;
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &all))
            continue;
        if (first != seen)
            CPU_SET(i, &mine);
        seen = true;
    }
    if (sched_setaffinity(0, sizeof mine, &mine) < 0)
        fail(errno, "sched_setaffinity");
}

int feed_start(const struct task *task)
{
    static char body[FEED_MOST];
    bool pinned = place->pin && task->work_ns == 0;
    int pid = fork_bound();
    mqd_t mq;

    if (pinned)
        pin(pid == 0);
    if (pid > 0)
        return pid;
    mq = feed_open(O_WRONLY);
    feed_body(body);
    for (unsigned long i = 0; i < task->n; i++) {
        feed_turn(body, i);
        if (mq_send(mq, body, task->size, 0) < 0)
            fail(errno, "mq_send");
    }
    _exit(0);
}

/* Fill the queue. */
static void queue_fill(struct tally *t)
{
    for (unsigned long i = 0; i < t->fill; i++) {
        feed_turn(t->body, i);
        if (mq_send(t->mq, t->body, t->size, 0) < 0)
            fail(errno, "mq_send");
    }
}

void tally_plan(struct tally *t, unsigned long n)
{
    memset(t, 0, sizeof *t);
    t->n = n;
    atomic_store(&t->next, n / WARM_PART + 1);
}

void tally_start(struct tally *t, const struct task *task)
{
    tally_plan(t, task->n);
    if (task->how & HOW_SENDER) {
        t->sender = feed_start(task);
        return;
    }
    t->fill = (unsigned long)task->depth;
    t->n -= t->n % t->fill;
    t->size = task->size;
    t->fills = calloc(t->n / t->fill, sizeof *t->fills);
    if (!t->fills)
        fail(ENOMEM, "%lu fillings", t->n / t->fill);
    t->mq = feed_open(O_WRONLY | O_NONBLOCK);
    feed_body(t->body);
    queue_fill(t);
    atomic_store(&t->next, WARM_FILL);
}

/* Start or stop the clock, and fill the queue if it is empty. */
bool tally_mark(struct tally *t, unsigned long at)
{
    uint64_t now = clock_mono_ns();
    unsigned long next = atomic_load(&t->next);

    if (at != next) /* others deliver, too, and were quicker */
        return false;
    if (!t->from_ns) {
        t->from_ns = now;
        t->from = at;
        atomic_store(&t->next, t->fill ? (at / t->fill + 1) * t->fill : t->n);
        return false;
    }
    t->ns += now - t->from_ns;
    t->timed += at - t->from;
    if (t->fill)
        t->fills[t->emptied++] =
            (double)(now - t->from_ns) / (double)(at - t->from);
    t->from_ns = 0;
    if (at == t->n)
        return true;
    queue_fill(t);
    atomic_store(&t->next, at + WARM_FILL);
    return false;
}

double tally_rate(struct tally *t)
{
    if (t->sender)
        child_done(t->sender, "the sender");
    if (t->fill)
        return 1e9 / at_part(t->fills, t->emptied, 0.5);
    return (double)t->timed * 1e9 / (double)t->ns;
}
