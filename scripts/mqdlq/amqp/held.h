/* held.h - the dead letters of a broker that mqdlq holds unacknowledged
 *
 * WHAT   A connection to the broker, the letters that mqdlq has fetched on it,
 *        and their copies in a temporary store, with a row for each letter.
 *        struct held has what the row lacks: the delivery tag, and the place of
 *        the original properties in a temporary file without a name. held.c
 *        fetches letters and gives them back; send.c sends them.
 * WHO    The verbs of mqdlq, through struct broker_letters (broker.h), in the
 *        only thread.
 * OWNS   The connection, the file and the memory, from broker_open to
 *        broker_close.
 * FAILS  An exit status, after printing the reason, or -errno; see each
 *        function.
 */
#ifndef SCRIPTS_MQDLQ_AMQP_HELD_H
#define SCRIPTS_MQDLQ_AMQP_HELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/amqp/link.h"
#include "common/amqp/publisher.h"
#include "common/amqp/topology.h"
#include "common/broker/broker_operand.h"
#include "scripts/mqdlq/amqp/known.h"
#include "scripts/mqdlq/broker.h"

/* One letter. The letter of row N is b->held[N - 1]. */
struct held {
    uint64_t tag;
    long at;             /* place of its properties in b->properties */
    size_t size;         /* of its properties, bytes */
    uint64_t deliveries; /* before this one */
    bool gone;           /* acknowledged */
};

/* One more copy of a letter (known_first), removed together with the letter. */
struct held_copy {
    size_t of; /* its index in `held` */
    uint64_t tag;
    bool gone;
};

/* The letter that replay sent last. */
struct canary {
    char queue[TOPOLOGY_NAME]; /* its destination */
    struct ulid id;
    uint64_t replay; /* how often it was replayed, this time included */
};

struct broker {
    struct broker_operand operand, to; /* `to`: where replay sends */
    char password[BROKER_PASSWORD];
    struct link_setup setup;
    struct topology topology;
    char dead[TOPOLOGY_NAME];
    struct link *link;
    unsigned looks; /* number of calls of held_look, for consumer names */
    unsigned next;  /* partition for the next letter without a group */
    struct publisher *publisher; /* NULL: nothing was published yet */
    FILE *properties;
    struct held *held;
    size_t count, room;
    struct held_copy *copies;
    size_t copy_count, copy_room;
    uint32_t beyond; /* letters not fetched, because there are too many */
    bool warned_beyond, warned_groups;
    bool claimed; /* import found no letter, and consumes `dead`: no other mqdlq
                   * uses the queue meanwhile */
    uint64_t added;     /* letters published to `dead` and confirmed */
    struct known known; /* the letters that are held or were imported */
    struct canary canary;
    char machine[BROKER_MACHINE];
};

/* Hold up to `count` letters, and copy them to the store. An exit status. */
int held_look(struct broker *b, struct store *store, uint32_t count);
/* Return the letter of a row; NULL: it was removed, or there is none. */
struct held *held_at(struct broker *b, int64_t row);
/* Read the properties of a letter. The caller frees them; NULL: an error. */
void *held_properties(struct broker *b, const struct held *h);
/* Remove a letter with its copies. -errno: the connection is gone, and the
 * letter comes back. */
int held_ack(struct broker *b, struct held *h);
/* Open b->publisher unless it is open; `wait_ns` is for each confirm. */
int held_publisher(struct broker *b, uint64_t wait_ns, struct problem *p);
/* Publish to `queue`, through b->publisher, and wait for the confirm. */
int held_publish(struct broker *b, const char *queue,
                 const amqp_basic_properties_t *properties, const void *body,
                 size_t size, uint64_t wait_ns, struct problem *p);
/* Read the frames that have come, and send due heartbeats. */
int held_tend(struct broker *b);

/* Members of struct broker_letters. */
int broker_replay_begin(struct context *ctx, const char **to);
int broker_replay(struct context *ctx, const struct letter *l, bool first,
                  struct broker_sent *out);
int broker_canary_wait(struct context *ctx);
int broker_import(struct context *ctx, const struct decoding *list, size_t n,
                  struct broker_imported *sum, struct problem *p);

#endif
