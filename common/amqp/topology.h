/* topology.h - the queues that a worker's queue needs on a broker
 *
 * WHAT   NAME has the messages; NAME.wait.<ms> those that wait, one for each of
 *        a few lengths; with N partitions NAME is NAME.0 and up, each with wait
 *        queues of its own, and the exchange NAME.partitions.<N> in front. All
 *        messages of a group are in one of them, that of CRC-32 of the group
 *        modulo N; senders and receivers compute it, each for itself.
 *        NAME.dead has the dead letters, and NAME.dead.kept those that the
 *        broker would drop. All are quorum queues with at-least-once dead
 *        lettering, so that each hop inside the broker is confirmed. What the
 *        broker itself would drop goes to the next net.
 * WHO    The thread that has the link.
 * OWNS   Nothing.
 * FAILS  A problem: 77 a right is missing; 78 a queue exists and is another
 *        kind; 66 it does not exist, and is not to be made; 69 the connection
 *        is gone. -EPROTO: the channel is closed; link_channel opens another.
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
    bool no_create;          /* what is there is taken as it is */
    bool allow_unreplicated; /* a classic queue is taken as it is */
    unsigned partitions;     /* 0: it is one queue */
};

/* NAME, NAME.dead and the net. */
int topology_open(struct link *l, const struct topology *t, struct problem *p);
/* For a start, which makes what is missing: 0 if NAME is not there without
 * partitions, or for one without any, not with some. */
int topology_unlike(struct link *l, const struct topology *t,
                    struct problem *p);
/* For who makes nothing: 0 if it has that number of partitions, if any. */
int topology_number(struct link *l, const struct topology *t,
                    struct problem *p);
/* The queue for messages of that part that wait for `ms`, which is one of the
 * lengths. */
int topology_wait(struct link *l, const struct topology *t, unsigned part,
                  uint64_t ms, struct problem *p);
/* Before only a wait queue is made: 0 if the queue is there that it gives back
 * to. Without that a message would wait for ever, and its sender would not be
 * told. */
int topology_there(struct link *l, const struct topology *t, unsigned part,
                   struct problem *p);
/* Messages in a queue that is there, and who consumes: 0, or -errno. */
int topology_count(struct link *l, const char *queue, uint32_t *messages,
                   uint32_t *consumers);

/* One of its queues, as somebody finds it who makes none. */
enum topology_is {
    TOPOLOGY_ABSENT,
    TOPOLOGY_WANTED,  /* as topology_open would make it */
    TOPOLOGY_OTHER,   /* another kind; `why` has both values */
    TOPOLOGY_UNKNOWN, /* no right to ask for its kind */
};
struct topology_seen {
    const char *name;
    uint64_t wait_ms; /* of a wait queue; 0: another one */
    bool part;        /* one part of NAME */
    enum topology_is is;
    uint32_t messages, consumers;
    const char *why; /* of the broker; "" */
};
/* Look at each of them: NAME, NAME.dead, its net, the wait queues. 0, or -errno
 * and `why` of the link: the connection is gone. One that is deleted in just
 * that moment is declared again. */
int topology_each(struct link *l, const struct topology *t,
                  void (*visit)(const struct topology_seen *seen, void *arg),
                  void *arg);

/* Where `name` is one of its wait queues, the message says for how long it
 * waits, too: a queue that is new gets its own time to live a moment after it
 * can be used. */
void topology_time_to_live(const struct topology *t, const char *name,
                           amqp_basic_properties_t *p);

#define TOPOLOGY_LENGTHS 9
/* The longest length that is not over `ms`; 0: `ms` is below all. */
uint64_t topology_length(uint64_t ms);
/* Which of the lengths `ms` is: below TOPOLOGY_LENGTHS. */
unsigned topology_index(uint64_t ms);
/* The length of that number. */
uint64_t topology_length_at(unsigned i);
/* "NAME", or "NAME.3"; "NAME.dead"; "NAME.wait.4000", or "NAME.3.wait.4000"
 * (ms > 0). */
const char *topology_queue(const struct topology *t, unsigned part,
                           char out[TOPOLOGY_NAME]);
const char *topology_dead(const struct topology *t, char out[TOPOLOGY_NAME]);
const char *topology_waits(const struct topology *t, unsigned part, uint64_t ms,
                           char out[TOPOLOGY_NAME]);
/* "NAME.partitions.8". */
const char *topology_exchange(const struct topology *t,
                              char out[TOPOLOGY_NAME]);

/* ---- partitions ---- */

#define PARTITIONS_MAX BROKER_PARTITIONS

/* CRC-32 as zlib, PNG and Ethernet have it: 0xcbf43926 for "123456789". */
uint32_t partition_crc(const void *key, size_t size);
static inline unsigned partition_of(const void *key, size_t size, unsigned n)
{
    return partition_crc(key, size) % n;
}

/* Messages of each part that a worker has in hand: the same for all workers of
 * a queue, as the number of parts is. A broker puts what it takes back in front
 * of what it has not given yet, but behind what it took back before. So a
 * worker that is next must be given all of that at once, or the rest of it
 * comes before what the last but one had. */
unsigned partition_in_hand(unsigned n);

#endif
