/* file.h - bytes to a file, which file it is, paths and file systems
 *
 * WHAT   What pwrite(2), link(2), stat(2) and statfs(2) leave to their caller.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  -errno.
 */
#ifndef COMMON_BASE_FILE_H
#define COMMON_BASE_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

/* pwrite(2) until all is out; the offset of `fd` stays. */
int file_write(int fd, const void *data, size_t size, off_t at);
/* Read a small file, at most room - 1 bytes of it, and end it with a NUL. Does
 * not follow a symbolic link, and does not wait. The bytes, or -errno. */
ssize_t file_read_text(const char *path, char *text, size_t room);
/* A file that is not there yet, mode 0600, with those bytes, on the disk: its
 * descriptor. -errno: there is none. */
int file_create(const char *path, const void *data, size_t size);
/* The same at `path`.new, whose name goes to `temp`; a file that a crash left
 * there is replaced. */
int file_create_beside(char temp[PATH_MAX], const char *path, const void *data,
                       size_t size);
/* Return the same open file by a descriptor above those that are slow to close,
 * or `fd` if there is none. For the descriptor of a lock. */
int file_fd_raise(int fd);
/* Two looks at one file. */
static inline bool file_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}
/* Whether `path` names what `fd` stands for. */
bool file_named(int fd, const char *path);

/* The path of the program `name` that is installed beside this one. */
int file_of_program(char path[PATH_MAX], const char *name);
/* Cut the last component off: "/a/b" to "/a", "/a" to "/", "a" to ".". False:
 * there is nothing above ("/", "."). */
bool file_parent(char *path);

/* ---- file systems ----
 *
 * `magic` is f_type of statfs(2).
 */

#define FS_TYPE_TEXT 32

/* tmpfs or ramfs: pages of a file are never written back. */
bool fs_type_memory(long magic);
/* Its pages may be moved when they are written, or are on another machine. */
bool fs_type_doubtful(long magic);
/* "ext4"; "type 0x1234" of one that we do not know. Returns `out`. */
const char *fs_type_text(long magic, char out[FS_TYPE_TEXT]);

/* Return, in `out`, where the file system is mounted that an existing path lies
 * on, for advice such as `df -h /srv`; the path itself if that fails. */
const char *mount_point(const char *path, char out[PATH_MAX]);
/* Whether something is mounted at a folder itself. */
bool mount_point_is(const char *path);

#endif
