/* side.h - a thread with a connection to the broker
 *
 * WHAT   What the threads of inbox.h and outbox.h have in common: each opens a
 *        lost connection again, and waits for the broker and other threads.
 *        Also the struct of the queue, which both threads share.
 * WHO    init, start, stop: source_amqp.c, on the engine's thread. wake:
 *        any thread. The others: the thread itself.
 * OWNS   The thread and the connection.
 * FAILS  init, start: -errno.
 */
#ifndef WORKER_SOURCE_AMQP_SIDE_H
#define WORKER_SOURCE_AMQP_SIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/amqp/link.h"
#include "common/amqp/topology.h"
#include "common/base/basics.h"
#include "common/broker/broker_operand.h"
#include "worker/config/settings.h"
#include "worker/source/source.h"

struct claims;
struct inbox;
struct outbox;
struct run_file;

/* One thread. c = constant after open  t = the thread's */
struct side {
    struct amqp_queue *queue; /* c */
    const char *name;         /* c  "inbox" */
    pthread_t thread;         /* c */
    bool running;             /* c  the thread was started */
    int wake_fd;              /* c  eventfd */
    struct link *link;        /* t  NULL: not connected */
    unsigned host;            /* t  to try next */
    uint64_t wait_ns;         /* t  before the next try */
    uint64_t lost_ns;         /* t  clock_mono_ns of the loss */
};

/* The queue on the broker, as a source, with all that its two threads share.
 * c = constant after open   a = atomic */
struct amqp_queue {
    struct source source;
    struct source_events events; /* c */
    const struct settings *set;  /* c */
    struct run_file *runs;       /* c */
    uint64_t first_seq;          /* c  run_file_open */
    struct claims *claims;       /* c */
    bool started;                /* c  set by source_amqp_start */
    atomic_long ready; /* a  messages in the queue when last counted */
    const struct broker_operand *operand; /* c */
    char password[BROKER_PASSWORD];       /* c */
    char machine[65];                     /* c */
    char dead[TOPOLOGY_NAME];             /* c  NAME.dead */
    struct link_setup setup;              /* c */
    struct topology topology;             /* c */
    char (*parts)[TOPOLOGY_NAME];         /* c  NAME, or NAME.0 and up */
    unsigned part_count;                  /* c */
    atomic_uint in_hand;                  /* a  messages that may be lent */
    atomic_uint fetched; /* a  the inbox's prefetch; 0: it consumes nothing */
    /* Host that the outbox has given up + 1; 0: none. The inbox sends that host
     * a request, because heartbeats find a dead host only after a minute. */
    atomic_uint doubted;       /* a */
    atomic_bool stopping;      /* a  both threads must return */
    atomic_bool limit_logged;  /* a  a delivery limit was logged */
    atomic_bool group_logged;  /* a  a refused group was logged */
    struct side inbox, outbox; /* its two threads and their connections */
    struct inbox *in;          /* c  inbox.h */
    struct outbox *out;        /* c  outbox.h */
};

static inline struct amqp_queue *amqp_queue_of(const struct source *s)
{
    return CONTAINER_OF((struct source *)(uintptr_t)s, struct amqp_queue,
                        source);
}
static inline bool amqp_queue_is_parted(const struct amqp_queue *queue)
{
    return queue->topology.partitions > 0;
}

int side_init(struct side *side, struct amqp_queue *queue, const char *name);
int side_start(struct side *side, void *(*main)(void *), void *arg);
/* Wait until the thread returns, which it does once queue->stopping is set.
 * Then close the connection, even if no thread was started. */
void side_stop(struct side *side);
void side_wake(struct side *side);
/* Close the connection, and log the reason: that of the link, or else `err`. */
void side_lost(struct side *side, int err);
/* Wait for a pause that grows with each try, then try to connect. Returns true
 * if there is a connection. */
bool side_reconnect(struct side *side);
/* Log once that a queue declared on this connection has a delivery limit. */
void side_limited(struct side *side);
/* Wait until the broker has sent something, another thread wakes this one, or
 * `ns` have passed. */
void side_wait(struct side *side, uint64_t ns);

#endif
