/* side.c - a thread with a connection to the broker (see side.h) */
#include "worker/source/amqp/side.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <bsd/stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define WAIT_FIRST (100 * NS_PER_MS)
#define WAIT_MOST  (10 * NS_PER_S)
/* librabbitmq sends a heartbeat inside of a call, and only then. */
#define BEAT_NS (LINK_HEARTBEAT * NS_PER_S / 2)

int side_init(struct side *side, struct amqp_queue *queue, const char *name)
{
    *side = (struct side){.queue = queue, .name = name, .wait_ns = WAIT_FIRST};
    side->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return side->wake_fd < 0 ? -errno : 0;
}

int side_start(struct side *side, void *(*main)(void *), void *arg)
{
    int err = -pthread_create(&side->thread, NULL, main, arg);

    side->running = err == 0;
    return err;
}

void side_stop(struct side *side)
{
    if (side->running) {
        side_wake(side);
        pthread_join(side->thread, NULL);
        side->running = false;
    }
    link_close(&side->link);
}

void side_wake(struct side *side)
{
    const uint64_t one = 1;

    (void)!write(side->wake_fd, &one, sizeof one);
}

void side_wait(struct side *side, uint64_t ns)
{
    struct pollfd fds[] = {
        {.fd = side->wake_fd, .events = POLLIN},
        {.fd = side->link ? side->link->fd : -1, .events = POLLIN}};
    struct timespec limit;
    uint64_t ignored;

    if (side->link && ns > BEAT_NS)
        ns = BEAT_NS;
    limit = (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S),
                              .tv_nsec = (long)(ns % NS_PER_S)};
    if (ppoll(fds, 2, &limit, NULL) > 0 && fds[0].revents)
        (void)!read(side->wake_fd, &ignored, sizeof ignored);
}

void side_limited(struct side *side)
{
    struct amqp_queue *queue = side->queue;

    if (!side->link->limited || atomic_exchange(&queue->limit_logged, true))
        return;
    log_warn(
        "delivery_limit", F_STR("queue", queue->operand->shown),
        F_STR("reason", "a queue was created before the upgrade to RabbitMQ 4, "
                        "which limits it to 20 deliveries per message"),
        F_STR("next", "lift the limit with a policy; mqctl doctor prints the "
                      "command. Until then the broker moves a message to the "
                      "dead letters after 20 deliveries"));
}

void side_lost(struct side *side, int err)
{
    const struct broker_operand *o = side->queue->operand;
    const char *why = side->link->why[0] ? side->link->why : errno_text(-err);
    bool too_slow = strstr(why, "timed out") && strstr(why, "acknowledgement");

    log_warn(
        "link_lost", F_STR("queue", o->shown), F_STR("side", side->name),
        F_STR("host", o->hosts[side->link->host].name), F_STR("reason", why),
        F_STR("next",
              too_slow ? "a message was not acknowledged within "
                         "consumer_timeout, so the broker gives all messages "
                         "of this worker to others; shorten waits and "
                         "handlers, raise --max-concurrency, or raise "
                         "consumer_timeout on each node"
                       : "the worker connects to the next host by itself; "
                         "running handlers are not affected"));
    side->host = side->link->host + 1;
    side->lost_ns = clock_mono_ns();
    link_close(&side->link);
}

bool side_reconnect(struct side *side)
{
    struct amqp_queue *queue = side->queue;
    uint64_t half = side->wait_ns / 2;
    /* The pause is random, so that workers that have lost the same node do not
     * all connect again at the same instant. */
    uint64_t wait = half + arc4random() * (half / UINT32_MAX + 1) % (half + 1);
    uint64_t now = clock_mono_ns(), end = now + wait;
    struct problem p;

    while (now < end && !atomic_load(&queue->stopping)) {
        side_wait(side, end - now);
        now = clock_mono_ns();
    }
    side->wait_ns =
        2 * side->wait_ns < WAIT_MOST ? 2 * side->wait_ns : WAIT_MOST;
    if (atomic_load(&queue->stopping))
        return false;
    if (link_open(&side->link, &queue->setup, side->host, &p) < 0) {
        log_warn("link_failed", F_STR("queue", queue->operand->shown),
                 F_STR("side", side->name), F_STR("reason", p.text),
                 F_STR("next", "the worker keeps trying, with pauses of up to "
                               "10 s; no message is lost"));
        return false;
    }
    side->wait_ns = WAIT_FIRST;
    log_info("link_up", F_STR("queue", queue->operand->shown),
             F_STR("side", side->name),
             F_STR("host", queue->operand->hosts[side->link->host].name),
             F_DURATION("after", (clock_mono_ns() - side->lost_ns) / NS_PER_MS *
                                     NS_PER_MS));
    return true;
}
