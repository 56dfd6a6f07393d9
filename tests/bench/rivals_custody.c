/* rivals_custody.c - the least that a promise not to lose a message can cost
 *
 * Bodies go to a mapped file in memory, in front of each a record that tells
 * after a kill, at whichever instruction, whether a message is there and where
 * it ends: what docs/design/lifecycle.md needs, and nothing that is only good
 * to know. It has no check sum, no name, no time, no counters and no time
 * limit, and one message at a time, because there is one thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/bench/feed.h"
#include "tests/bench/rivals.h"
#include "common/base/clock.h"

#define UNSET UINT32_MAX

enum { FREE, RECEIVING, RUNNING };

struct kept {
    _Atomic uint64_t word;   /* FREE: there is no message */
    _Atomic uint32_t length; /* UNSET: it ends where the body is not fill */
    unsigned priority;       /* UNSET: the kernel has written nothing */
    uint64_t number;         /* the order of the queue */
    _Alignas(64) char body[FEED_MOST];
};

static struct tally tally;
static char fill[FEED_MOST];

/* Map the record into a file in memory. */
static struct kept *kept_map(void)
{
    char path[PATH_MAX + 16];
    struct kept *k;
    int fd;

    if (mkdir(place->runtime, 0700) < 0 && errno != EEXIST)
        fail(errno, "%s", place->runtime);
    snprintf(path, sizeof path, "%s/kept", place->runtime);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, sizeof *k) != 0)
        fail(errno, "%s", path);
    k = mmap(NULL, sizeof *k, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (k == MAP_FAILED)
        fail(errno, "%s", path);
    close(fd);
    memset(fill, 0xff, sizeof fill);
    memcpy(k->body, fill, sizeof fill);
    return k;
}

static void word_set(struct kept *k, uint64_t word)
{
    atomic_store_explicit(&k->word, word, memory_order_release);
}

/* Receive the next message into the record, as slot.c does. After a kill, the
 * priority shows whether the kernel wrote a message, and the fill shows where
 * it ends. */
static void keep(mqd_t mq, struct kept *k, size_t dirty)
{
    struct pollfd p = {.fd = (int)mq, .events = POLLIN};
    ssize_t n;

    memmove(k->body, fill, dirty);
    k->priority = UNSET;
    atomic_store_explicit(&k->length, UNSET, memory_order_relaxed);
    k->number++;
    word_set(k, RECEIVING);
    while ((n = mq_receive(mq, k->body, FEED_MOST, &k->priority)) < 0) {
        if (errno != EAGAIN)
            fail(errno, "mq_receive");
        poll(&p, 1, -1);
    }
    atomic_store_explicit(&k->length, (uint32_t)n, memory_order_release);
    word_set(k, RUNNING);
}

/* Measure, with a look at the clock for each message or without. */
static enum measured rate(const struct task *task, bool looks,
                          double value[ROWS_MOST])
{
    mqd_t mq = feed_open(O_RDONLY | O_NONBLOCK);
    struct kept *k = kept_map();
    volatile uint64_t ended_ns = 0;
    bool last;

    second_thread();
    k->length = 0;
    tally_start(&tally, task);
    do {
        keep(mq, k, k->length);
        last = tally_count(&tally);
        if (looks)
            ended_ns = clock_mono_ns();
        word_set(k, FREE);
    } while (!last);
    (void)ended_ns;
    value[0] = tally_rate(&tally);
    return MEASURED;
}

enum measured custody_rate(const struct task *task, double value[ROWS_MOST])
{
    return rate(task, false, value);
}

enum measured custody_clock_rate(const struct task *task,
                                 double value[ROWS_MOST])
{
    return rate(task, true, value);
}
