/* partition.h - which part of a queue a group belongs to
 *
 * WHAT   A queue with partitions is N queues of a broker, NAME.0 and up. All
 *        messages of a group are in one of them: that of CRC-32 of the group,
 *        modulo N. Senders and receivers compute it, each for itself.
 * WHO    Any thread. Pure functions.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef COMMON_AMQP_PARTITION_H
#define COMMON_AMQP_PARTITION_H

#include <stddef.h>
#include <stdint.h>

#include "common/broker/broker_operand.h"

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
