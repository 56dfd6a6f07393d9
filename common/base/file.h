/* file.h - write and identify files; paths; file systems
 *
 * WHAT   The loops and checks around pwrite(2), link(2), stat(2) and statfs(2).
 * WHO    Every program, on any thread.
 * FAILS  -errno.
 */
#ifndef COMMON_BASE_FILE_H
#define COMMON_BASE_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Write all bytes with pwrite(2); the offset of `fd` does not change. */
int file_write(int fd, const void *data, size_t size, off_t at);
/* Read a small file, at most room - 1 bytes of it, and append a NUL. Does not
 * follow a symbolic link, and does not wait. Returns the number of bytes. */
ssize_t file_read_text(const char *path, char *text, size_t room);
/* Create a file that does not exist yet, mode 0600, with those bytes, and sync
 * it to disk. Returns its descriptor. On an error no file is left. */
int file_create(const char *path, const void *data, size_t size);
/* Replace the file at `path`: create the new one as `path`.new, synced to disk,
 * then rename it. A crash before the rename leaves the old file, and the new
 * one beside it, which the next call replaces. The caller syncs the folder if
 * the rename must survive a power cut. */
int file_replace(const char *path, const void *data, size_t size);
/* Close a descriptor unless it is -1, and set it to -1. */
void fd_close(int *fd);
/* Move the descriptor of a lock to a number above those that are slow to close.
 * Returns the new descriptor, or `fd` if none is free. */
int file_fd_raise(int fd);
/* Return true if both describe the same file. */
static inline bool file_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}
/* Return true if `path` names the file that `fd` has open. */
bool file_named(int fd, const char *path);

/* Make the path of the program `name` that is installed beside this one. */
int file_of_program(char path[PATH_MAX], const char *name);
/* Cut off the last component: "/a/b" to "/a", "/a" to "/", "a" to ".". Returns
 * false for "/" and ".". */
bool file_parent(char *path);

/* ---- file systems ----
 *
 * `magic` is f_type of statfs(2).
 */

#define FS_TYPE_TEXT 32

enum fs_kind {
    FS_UNKNOWN,
    FS_MEMORY,   /* tmpfs and ramfs, which never write pages of a file back */
    FS_LOCAL,    /* a disk; a page stays in its place when it is written */
    FS_DOUBTFUL, /* pages may move when written, or are on another machine */
};
enum fs_kind fs_kind(long magic);
/* Print "ext4", or "type 0x1234" for an unknown type. Returns `out`. */
const char *fs_type_text(long magic, char out[FS_TYPE_TEXT]);

/* The word size of this machine, added to the version number of a mapped file,
 * which only programs of the same word size can read; 0 for 64 bits. */
#define FILE_MACHINE (sizeof(long) == 8 ? 0 : UINT32_C(32) << 16)
/* Compare two fields of the head of such a file with this machine, on which the
 * head has `head` bytes. Returns how the machine that wrote the file differs,
 * such as "32-bit words"; NULL if it does not differ. */
const char *file_foreign(uint32_t version, uint32_t head_bytes, uint32_t head);

/* Find the mount point of the file system of an existing path, for advice such
 * as `df -h /srv`; on an error, the path itself. Returns `out`. */
const char *mount_point(const char *path, char out[PATH_MAX]);
/* Return true if the folder is a mount point. */
bool mount_point_is(const char *path);

#endif
