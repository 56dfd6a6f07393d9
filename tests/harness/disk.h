/* disk.h - a state directory on a small disk that a test fills and frees
 *
 * WHAT   A tmpfs in a mount namespace of this test: it goes with its last
 *        process.
 * WHO    The test's main thread, before it starts a worker.
 * FAILS  By ending the test; skips it where nothing can be mounted.
 */
#ifndef TESTS_HARNESS_DISK_H
#define TESTS_HARNESS_DISK_H

#include "tests/harness/harness.h"

/* The state directory becomes a disk of that size: "64k", "1m" (tmpfs(5)). */
void disk_mount(const char *size);
/* Not a byte is left; disk_free ends that. */
void disk_fill(void);
void disk_free(void);

#ifndef HARNESS_INTERNAL
#define disk_mount(size) HARNESS_HERE_(disk_mount(size))
#define disk_fill()      HARNESS_HERE_(disk_fill())
#define disk_free()      HARNESS_HERE_(disk_free())
#endif

#endif
