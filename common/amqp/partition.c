/* partition.c - which part of a queue a group belongs to (see partition.h) */
#include "common/amqp/partition.h"

#define POLYNOMIAL 0xedb88320U
#define ALL        1024 /* messages in hand, of all parts */
#define LEAST      16
#define MOST       128

uint32_t partition_crc(const void *key, size_t size)
{
    const unsigned char *at = key;
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < size; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (POLYNOMIAL & -(crc & 1));
    }
    return ~crc;
}

unsigned partition_in_hand(unsigned n)
{
    unsigned each = ALL / n;

    return each < LEAST ? LEAST : each > MOST ? MOST : each;
}
