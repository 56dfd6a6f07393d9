/* disk.h - a state directory with its own small disk, and a locked store
 *
 * WHAT   A tmpfs, or an ext4 in a file, in a mount namespace of the test, which
 *        ends with its last process. SQLite's write lock.
 * WHO    The test's main thread; disk_mount before it starts a worker.
 * FAILS  By ending the test; skips the test where nothing can be mounted.
 */
#ifndef TESTS_HARNESS_DISK_H
#define TESTS_HARNESS_DISK_H

#include "tests/harness/harness.h"

/* Mount a tmpfs(5) of this size, such as "64k" or "1m", as the state
 * directory. */
void disk_mount(const char *size);
/* Mount an ext4 of this size and block size instead. */
void disk_mount_ext4(unsigned kib, unsigned block);
/* Make all writes fail, as after a disk error. */
void disk_read_only(void);
/* Fill the disk to the last byte, until disk_free. */
void disk_fill(void);
void disk_free(void);
/* Fill the disk except for this much. */
void disk_leave(unsigned kib);

/* Take the write lock of the store: the worker's writes wait, and fail after 5
 * s, until disk_unlock. */
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
