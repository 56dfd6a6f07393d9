/* topology.h - the queues that a worker's queue needs on a broker
 *
 * WHAT   NAME              the messages
 *        NAME.wait.<ms>    delayed messages and retries; a few lengths
 *        NAME.dead         the dead letters
 *        NAME.dead.kept    letters that the broker drops from NAME.dead
 *        With N partitions, the messages are in the parts NAME.0, NAME.1, ...
 *        Each part has its own wait queues, and the exchange
 *        NAME.partitions.<N> routes to the parts. A group is in part number
 *        CRC-32(its name) modulo N, which senders and receivers compute.
 *        All are quorum queues with at-least-once dead lettering, so that the
 *        broker confirms each of its own moves. A message that the broker would
 *        drop from a queue goes to another: from NAME to NAME.dead.
 * WHO    The worker's inbox and outbox, its --forward, mqsend, mqdlq and mqctl
 *        doctor, each on the thread that has the link. The functions without a
 *        link: any thread.
 * OWNS   Nothing.
 * FAILS  A problem: 77 a right is missing; 78 a queue exists and is of another
 *        kind; 66 it does not exist, and must not be created; 69 the
 *        connection is gone.
 */
#ifndef COMMON_AMQP_TOPOLOGY_H
#define COMMON_AMQP_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/amqp/link.h"
#include "common/broker/broker_operand.h"

#define TOPOLOGY_NAME 256

struct topology {
    const struct broker_operand *operand;
    bool no_create;          /* use existing queues as they are */
    bool allow_unreplicated; /* use a classic queue as it is */
    unsigned partitions;     /* 0: NAME is a single queue */
};

/* Create NAME, NAME.dead, NAME.dead.kept and the exchange if they are missing.
 */
int topology_open(struct link *l, const struct topology *t, struct problem *p);
/* Refuse, before topology_open creates missing queues, a queue with partitions
 * that exists without them, and the reverse. */
int topology_unlike(struct link *l, const struct topology *t,
                    struct problem *p);
/* Check the number of partitions, if there are any, without creating a queue.
 */
int topology_number(struct link *l, const struct topology *t,
                    struct problem *p);
/* Create the wait queue of a part, if missing, for `ms`: a length of
 * topology_length. */
int topology_wait(struct link *l, const struct topology *t, unsigned part,
                  uint64_t ms, struct problem *p);
/* Check that the queue of a part exists. If only its wait queue were created, a
 * message would wait there for ever, and its sender would not know. */
int topology_there(struct link *l, const struct topology *t, unsigned part,
                   struct problem *p);
/* Count the messages and the consumers of a queue; either may be NULL. 0, or
 * -errno. */
int topology_count(struct link *l, const char *queue, uint32_t *messages,
                   uint32_t *consumers);

/* The state of a queue of the topology. */
enum topology_is {
    TOPOLOGY_ABSENT,
    TOPOLOGY_WANTED,  /* as topology_open would create it */
    TOPOLOGY_OTHER,   /* of another kind; `why` has both values */
    TOPOLOGY_UNKNOWN, /* the user has no right to ask for its kind */
};
struct topology_seen {
    const char *name;
    uint64_t wait_ms; /* length of a wait queue; 0: it is another queue */
    bool part;        /* the queue is a part of NAME */
    enum topology_is is;
    uint32_t messages, consumers;
    const char *why; /* the broker's text; "": none */
};
/* Inspect each queue of the topology, NAME first. Returns 0, or -errno and
 * `why` of the link: the connection is gone. A queue that is deleted while it
 * is inspected may be created again. */
int topology_each(struct link *l, const struct topology *t,
                  void (*visit)(const struct topology_seen *seen, void *arg),
                  void *arg);

/* Give a message for a wait queue its own time to live, because a new queue
 * takes messages a moment before the queue's time to live is in force. */
void topology_time_to_live(const struct topology *t, const char *name,
                           amqp_basic_properties_t *p);

#define TOPOLOGY_LENGTHS 9 /* number of the wait queues' lengths, 1 s to 1 d */
/* Return the longest length up to `ms`; 0: all are longer. */
uint64_t topology_length(uint64_t ms);
/* Return the index of the length `ms`, below TOPOLOGY_LENGTHS. */
unsigned topology_index(uint64_t ms);
/* Name the queue for a message of a part that must not run for `ms`: the wait
 * queue of the longest length up to that, or the part itself. Returns the
 * length; 0: it is the part. */
uint64_t topology_target(const struct topology *t, unsigned part, uint64_t ms,
                         char out[TOPOLOGY_NAME]);
/* Print "NAME", or "NAME.3"; "NAME.dead". */
const char *topology_queue(const struct topology *t, unsigned part,
                           char out[TOPOLOGY_NAME]);
const char *topology_dead(const struct topology *t, char out[TOPOLOGY_NAME]);

/* ---- partitions ---- */

#define PARTITIONS_MAX BROKER_PARTITIONS

/* Return the CRC-32 that zlib computes: 0xcbf43926 for "123456789". */
uint32_t partition_crc(const void *key, size_t size);
static inline unsigned partition_of(const void *key, size_t size, unsigned n)
{
    return partition_crc(key, size) % n;
}

/* Return how many messages of each part a worker has in hand. The number is the
 * same for all workers of a queue. When a worker dies, the broker takes its
 * messages back: in front of undelivered messages, but behind others that were
 * taken back before. So the next worker must have room for all of them.
 * Otherwise some would stay at the broker, and if that worker died too, they
 * would overtake the messages that it had. */
unsigned partition_in_hand(unsigned n);

#endif
