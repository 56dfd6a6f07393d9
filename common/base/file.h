/* file.h - bytes to a file, which file it is, and paths
 *
 * WHAT   What pwrite(2), link(2) and stat(2) leave to their caller.
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
/* A file that is not there yet, mode 0600, with those bytes, on the disk: its
 * descriptor. -errno: there is none. */
int file_create(const char *path, const void *data, size_t size);
/* The same at `path`.new, whose name goes to `temp`; a file that a crash left
 * there is replaced. */
int file_create_beside(char temp[PATH_MAX], const char *path, const void *data,
                       size_t size);
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

#endif
