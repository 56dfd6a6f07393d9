/* test_partition.c - which part of a queue a group belongs to */
#include <criterion/criterion.h>
#include <stdio.h>

#include "common/amqp/topology.h"

TestSuite(partition);

Test(partition, it_is_the_checksum_that_others_have)
{
    cr_assert_eq(partition_crc("123456789", 9), 0xcbf43926U);
    cr_assert_eq(partition_crc("", 0), 0);
    cr_assert_eq(partition_of("123456789", 9, 8), 0xcbf43926U % 8);
    cr_assert_eq(partition_of("any", 3, 1), 0);
}

Test(partition, groups_are_spread)
{
    unsigned found[8] = {0};
    char key[16];

    for (unsigned i = 0; i < 800; i++) {
        int n = snprintf(key, sizeof key, "customer-%u", i);

        found[partition_of(key, (size_t)n, 8)]++;
    }
    for (unsigned i = 0; i < 8; i++)
        cr_assert(found[i] > 50 && found[i] < 150, "%u: %u", i, found[i]);
}

Test(partition, what_is_in_hand_is_bounded)
{
    for (unsigned n = 1; n <= PARTITIONS_MAX; n++) {
        unsigned each = partition_in_hand(n);

        cr_assert(each >= 16 && each <= 128 && each * n <= 1024, "%u", n);
    }
}
