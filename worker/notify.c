/* notify.c - the service manager (see notify.h) */
#include "worker/notify.h"

#include "worker/engine.h"

#ifdef HAVE_SYSTEMD
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/term.h"
#include "worker/container.h"

#define FIRST_FD  SD_LISTEN_FDS_START
#define FEED_PART 2 /* fed twice in the time that the watchdog waits */
#define STOP_MORE (10 * NS_PER_S) /* for verdicts and files, when all ended */

void notify_init(struct notify *n)
{
    uint64_t limit_us = 0;
    int fds = sd_listen_fds(1);

    *n = (struct notify){.inherited = fds > 0 ? fds : 0};
    if (sd_watchdog_enabled(1, &limit_us) > 0)
        n->feed_ns = limit_us / FEED_PART * NS_PER_US;
}

/* queue_is - whether that is the queue called `name`
 * Where the name cannot be looked at (no /dev/mqueue and no permission, or it
 * was removed) any queue is taken for it: the socket unit named it. */
static bool queue_is(int fd, const char *name)
{
    int answer = sd_is_mq(fd, name);
    struct stat passed, named;
    struct queue *queue;
    struct problem p;
    bool same;

    if (answer >= 0 || queue_open(&queue, name, 0, NULL, NULL, &p) < 0)
        return answer != 0;
    same = fstat(fd, &passed) == 0 && fstat(queue_fd(queue), &named) == 0 &&
           passed.st_dev == named.st_dev && passed.st_ino == named.st_ino;
    queue_close(&queue);
    return same;
}

/* queue_pick - the descriptor of the queue called `name`, else 0; *other: there
 * is a queue of another name */
static int queue_pick(const char *name, int inherited, bool *other)
{
    int picked = 0;

    for (int fd = FIRST_FD; fd < FIRST_FD + inherited; fd++) {
        bool queue = sd_is_mq(fd, NULL) > 0;
        bool ours = queue && queue_is(fd, name);

        *other |= queue && !ours;
        if (ours && !picked)
            picked = fd;
        else
            close(fd);
    }
    return picked;
}

int notify_queue(const struct notify *n, struct settings *set,
                 struct problem *p)
{
    bool other = false;

    if (n->inherited == 0)
        return 0;
    set->passed_fd = queue_pick(set->queue, n->inherited, &other);
    if (set->passed_fd)
        return 0;
    return problem_set(p, EX_USAGE, EINVAL,
                       "queue %s: what was passed in as descriptor %d is %s; "
                       "give ListenMessageQueue=%s in the socket unit",
                       set->queue, FIRST_FD,
                       other ? "another message queue" : "no message queue",
                       set->queue);
}

/* feed - the peeker is alive, or this would not be called */
static void feed(struct timer *timer)
{
    struct notify *n = CONTAINER_OF(timer, struct notify, watchdog);

    (void)sd_notify(0, "WATCHDOG=1");
    timers_start_after(n->engine->timers, timer, n->feed_ns);
}

/* stopping_say - once; how long a stop may take is ours to know */
static void stopping_say(struct notify *n)
{
    const struct settings *set = n->engine->set;
    uint64_t most =
        ns_add(ns_add(set->grace_ns, 2 * set->kill_after_ns), STOP_MORE);

    if (n->stopping)
        return;
    n->stopping = true;
    (void)sd_notifyf(0, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRIu64,
                     most / NS_PER_US);
}

/* title_read - a new title; its last part may be what a command printed */
static void title_read(struct board_reader *reader, const char *title)
{
    struct notify *n = CONTAINER_OF(reader, struct notify, reader);
    char safe[512];

    if (atomic_load(&n->engine->holds) & HOLD_STOP)
        stopping_say(n);
    term_safe_copy(safe, sizeof safe, title, strlen(title));
    (void)sd_notifyf(0, "STATUS=%s", safe);
}

void notify_begin(struct notify *n, struct engine *e)
{
    n->engine = e;
    n->reader.read = title_read;
    timer_init(&n->watchdog, feed);
    if (!getenv("NOTIFY_SOCKET"))
        return;
    (void)sd_notify(0, "READY=1");
    e->board.reader = &n->reader;
    if (n->feed_ns)
        feed(&n->watchdog);
}

void notify_end(struct notify *n)
{
    (void)timers_cancel(n->engine->timers, &n->watchdog);
    n->engine->board.reader = NULL;
    stopping_say(n);
}

#else

void notify_init(struct notify *n)
{
    *n = (struct notify){.inherited = 0};
}

int notify_queue(const struct notify *n, struct settings *set,
                 struct problem *p)
{
    (void)n;
    (void)set;
    (void)p;
    return 0;
}

void notify_begin(struct notify *n, struct engine *e)
{
    n->engine = e;
}

void notify_end(struct notify *n)
{
    (void)n;
}

#endif
