/* custody_seal.h - make a custody file look like that of another boot
 *
 * WHAT   Writes the id of a boot into a custody file, with a valid check sum.
 * WHO    Tests that imitate a power cut, or a file that came from another
 *        machine. Offsets are those of docs/formats/custody.md.
 */
#ifndef TESTS_HARNESS_CUSTODY_SEAL_H
#define TESTS_HARNESS_CUSTODY_SEAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CUSTODY_OTHER_RUN "00000000-dead-beef-0000-000000000000"

/* Write `boot` into the file: the id of a boot, then "@SECONDS" if the time of
 * that boot is known. Return false if the file cannot be read or written. */
static inline bool custody_seal(int fd, const char *boot)
{
    size_t size = strcspn(boot, "@");
    const char *at = strchr(boot, '@');
    uint32_t start = at ? (uint32_t)strtoul(at + 1, NULL, 10) : 0;
    unsigned char head[120];
    uint64_t sum = UINT64_C(0xcbf29ce484222325);

    if (size >= 40 || pread(fd, head, sizeof head, 0) != (ssize_t)sizeof head)
        return false;
    memcpy(head + 60, &start, sizeof start);
    memset(head + 72, 0, 40);
    memcpy(head + 72, boot, size);
    for (int i = 60; i < 112; i = i == 63 ? 72 : i + 1)
        sum = (sum ^ head[i]) * UINT64_C(0x100000001b3);
    memcpy(head + 112, &sum, sizeof sum);
    return pwrite(fd, head + 60, 60, 60) == 60;
}

#endif
