/* torture_feed.c - see torture_feed.h */
#include "tests/crash/torture/torture_feed.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mqueue.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"

#define TICK_NS   1000000  /* interval of checking what the driver wants */
#define SEND_NS   20000000 /* limit of one attempt to send */
#define ROOM_LEFT 16       /* records left for messages that are being sent */

/* One producer, in its process. */
struct producer {
    struct torture_world *world;
    const char *queue;
    unsigned number;
    mqd_t mq;
    unsigned char message[TORTURE_MOST];
};

static pid_t pids[TORTURE_PRODUCERS];

/* Open the queue that has the name now. */
static int producer_open(struct producer *p)
{
    if (p->mq >= 0)
        mq_close(p->mq);
    p->mq = mq_open(p->queue, O_WRONLY);
    return p->mq < 0 ? -errno : 0;
}

/* Wait while the driver wants a pause, and then reopen the queue, which the
 * driver may have replaced. */
static int producer_wait(struct producer *p)
{
    struct torture_world *w = p->world;

    if (!atomic_load(&w->pause))
        return 0;
    atomic_fetch_add(&w->paused, 1);
    while (atomic_load(&w->pause) && !atomic_load(&w->stop))
        nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
    atomic_fetch_sub(&w->paused, 1);
    return producer_open(p);
}

/* Send the message. Return -ETIMEDOUT if a pause or stop is wanted before the
 * queue has room. */
static int producer_send(struct producer *p, size_t size, unsigned priority)
{
    do {
        uint64_t end = clock_wall_ns() + SEND_NS;
        struct timespec ts = {.tv_sec = (time_t)(end / NS_PER_S),
                              .tv_nsec = (long)(end % NS_PER_S)};

        if (mq_timedsend(p->mq, (const char *)p->message, size, priority,
                         &ts) == 0)
            return 0;
    } while (errno == EINTR ||
             (errno == ETIMEDOUT && !atomic_load(&p->world->stop) &&
              !atomic_load(&p->world->pause)));
    return -errno;
}

/* Send the next message, and before some messages a tiny one. */
static int producer_send_next(struct producer *p, uint64_t n)
{
    struct torture_world *w = p->world;
    struct torture_plan plan;
    uint64_t number = torture_number(p->number, n);
    int tiny = torture_tiny(number), err = 0;
    size_t size;

    if (tiny >= 0) {
        torture_tiny_make((size_t)tiny, p->message);
        err = producer_send(p, (size_t)tiny, 0);
        if (!err)
            atomic_fetch_add(&w->tiny_sent[tiny], 1);
    }
    if (err)
        return err;
    torture_plan(number, &plan);
    size = torture_make(&plan, plan.fate == TORTURE_LATER ? clock_wall_ns() : 0,
                        p->message);
    err = producer_send(p, size, plan.priority);
    /* Send unique messages twice, like a producer that got no answer. A dead
     * first copy would free the key and let the second one run, so rejected
     * messages are sent once. */
    if (!err && plan.unique && plan.fate != TORTURE_DEAD)
        (void)producer_send(p, size, plan.priority);
    if (!err)
        atomic_store(&w->producers[p->number].sent, n + 1);
    return err;
}

/* Return true if numbers are left until the next audit. The driver pauses
 * producers before they run out. */
static bool producer_has_numbers(const struct producer *p, uint64_t n)
{
    return n < p->world->base[p->number] + TORTURE_EACH - ROOM_LEFT;
}

/* Run a producer; called in its process. */
static _Noreturn void producer_run(struct producer *p)
{
    struct torture_world *w = p->world;
    _Atomic uint64_t *sent = &w->producers[p->number].sent;
    int err = producer_open(p);

    while (!err && !atomic_load(&w->stop)) {
        err = producer_wait(p);
        if (err || atomic_load(&w->stop))
            continue;
        if (producer_has_numbers(p, atomic_load(sent)))
            err = producer_send_next(p, atomic_load(sent));
        else
            nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
        if (err == -ETIMEDOUT)
            err = 0; /* send this message again after the pause */
    }
    if (err && !atomic_load(&w->stop))
        atomic_store(&w->failed, (unsigned)-err);
    _exit(err && !atomic_load(&w->stop));
}

void feed_start(struct torture_world *w, const char *queue)
{
    static struct producer p;

    for (unsigned i = 0; i < TORTURE_PRODUCERS; i++) {
        p = (struct producer){
            .world = w, .queue = queue, .number = i, .mq = (mqd_t)-1};
        pids[i] = fork();
        if (pids[i] < 0) {
            perror("torture: fork");
            exit(1);
        }
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            signal(SIGINT, SIG_IGN); /* the driver stops producers */
            producer_run(&p);
        }
    }
}

void feed_pause(struct torture_world *w)
{
    atomic_store(&w->pause, true);
}

bool feed_paused(struct torture_world *w)
{
    return atomic_load(&w->paused) == TORTURE_PRODUCERS;
}

/* Resume the producers and wait until all run again: otherwise the next pause
 * would count one that has not yet resumed. */
void feed_resume(struct torture_world *w)
{
    atomic_store(&w->pause, false);
    while (atomic_load(&w->paused) > 0)
        nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
}

bool feed_spent(struct torture_world *w)
{
    for (unsigned i = 0; i < TORTURE_PRODUCERS; i++)
        if (atomic_load(&w->producers[i].sent) - w->base[i] >
            TORTURE_EACH / 8 * 7)
            return true;
    return false;
}

bool feed_ok(struct torture_world *w)
{
    unsigned failed = atomic_load(&w->failed);

    if (failed)
        fprintf(stderr, "torture: a producer cannot send: %s\n",
                strerror((int)failed));
    for (unsigned i = 0; !failed && i < TORTURE_PRODUCERS; i++)
        if (waitpid(pids[i], NULL, WNOHANG) != 0) {
            fprintf(stderr, "torture: a producer ended\n");
            pids[i] = 0;
            failed = 1;
        }
    return failed == 0;
}

void feed_stop(struct torture_world *w)
{
    atomic_store(&w->stop, true);
    for (unsigned i = 0; i < TORTURE_PRODUCERS; i++)
        if (pids[i] > 0 && waitpid(pids[i], NULL, 0) >= 0)
            pids[i] = 0;
}

/* ---- mqsend ---- */

/* Write the next message to a file; return its priority. */
static unsigned message_write(uint64_t number, const char *path)
{
    static unsigned char message[TORTURE_MOST];
    struct torture_plan plan;
    size_t size;
    int fd;

    torture_plan(number, &plan);
    size = torture_make(&plan, 0, message);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, message, size) != (ssize_t)size)
        torture_die("%s: %s", path, strerror(errno));
    close(fd);
    return plan.priority;
}

/* Print a time that is less than a second away. */
static void when_print(char text[32])
{
    time_t at = (time_t)(clock_wall_ns() / NS_PER_S) + 1;
    struct tm tm;

    gmtime_r(&at, &tm);
    strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

pid_t feed_program(struct torture *t)
{
    uint64_t nth = atomic_load(&t->world->producers[0].sent);
    char path[PATH_MAX], priority[16], key[32], when[32];
    const char *arguments[] = {"mqsend",  "--file", path, "-p", priority,
                               "--quiet", NULL,     NULL, NULL, NULL};
    size_t n = 6;

    snprintf(path, sizeof path, "%s", place_path(t, "message"));
    snprintf(priority, sizeof priority, "%u",
             message_write(torture_number(0, nth), path));
    if (t->options->path == PATH_SEND) {
        arguments[n++] = "--raw";
    } else if (t->options->path == PATH_UNIQUE) {
        snprintf(key, sizeof key, "%" PRIu64, nth);
        arguments[n++] = "--unique";
        arguments[n++] = key;
    } else {
        when_print(when);
        arguments[n++] = "--at";
        arguments[n++] = when;
    }
    arguments[n] = t->queue;
    return program_start(t, NULL, arguments);
}

bool feed_program_over(struct torture *t, bool ended)
{
    long n = place_queued(t);
    int status = 0;

    if (n > 1 || (n == 0 && ended)) {
        fprintf(stderr,
                "torture: mqsend %s, and %ld messages are in the "
                "queue\n",
                ended ? "ended" : "was killed", n);
        return false;
    }
    /* A sender that got no answer sends again; the message runs once. */
    if (t->options->path == PATH_UNIQUE) {
        waitpid(feed_program(t), &status, 0);
        n = 1;
    }
    atomic_fetch_add(&t->world->producers[0].sent, (uint64_t)n);
    if (status != 0)
        fprintf(stderr, "torture: mqsend ended with status %x\n",
                (unsigned)status);
    return status == 0;
}
