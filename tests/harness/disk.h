/* disk.h - a state directory that a test fills and frees, a store that it locks
 *
 * WHAT   A tmpfs, or an ext4 in a file, in a mount namespace of this test: it
 *        goes with its last process. SQLite's lock of writers.
 * WHO    The test's main thread; disk_mount before it starts a worker.
 * FAILS  By ending the test; skips it where nothing can be mounted.
 */
#ifndef TESTS_HARNESS_DISK_H
#define TESTS_HARNESS_DISK_H

#include "tests/harness/harness.h"

/* The state directory becomes a disk of that size: "64k", "1m" (tmpfs(5)). */
void disk_mount(const char *size);
/* It becomes an ext4 of that size, with blocks of so many bytes. */
void disk_mount_ext4(unsigned kib, unsigned block);
/* Nothing can be written any more, as after an error of the disk. */
void disk_read_only(void);
/* Not a byte is left; disk_free ends that. */
void disk_fill(void);
void disk_free(void);
/* So much is left. */
void disk_leave(unsigned kib);

/* The worker's writes to the store wait, and fail after 5 s, until
 * disk_unlock. */
struct sqlite3 *disk_lock(const char *queue);
void disk_unlock(struct sqlite3 *lock);

#ifndef HARNESS_INTERNAL
#define disk_mount(size)            HARNESS_HERE_(disk_mount(size))
#define disk_mount_ext4(kib, block) HARNESS_HERE_(disk_mount_ext4(kib, block))
#define disk_read_only()            HARNESS_HERE_(disk_read_only())
#define disk_fill()                 HARNESS_HERE_(disk_fill())
#define disk_leave(kib)             HARNESS_HERE_(disk_leave(kib))
#define disk_free()                 HARNESS_HERE_(disk_free())
#define disk_lock(queue)            HARNESS_HERE_(disk_lock(queue))
#endif

#endif
