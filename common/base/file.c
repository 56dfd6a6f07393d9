/* file.c - see file.h */
#include "common/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <bsd/string.h>

int file_write(int fd, const void *data, size_t size, off_t at)
{
    const char *from = data;

    while (size > 0) {
        ssize_t n = pwrite(fd, from, size, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        from += n;
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

int file_create(const char *path, const void *data, size_t size)
{
    int fd =
        open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int err;

    if (fd < 0)
        return -errno;
    err = file_write(fd, data, size, 0);
    if (!err && fsync(fd) < 0)
        err = -errno;
    if (!err)
        return fd;
    close(fd);
    unlink(path);
    return err;
}

int file_create_beside(char temp[PATH_MAX], const char *path, const void *data,
                       size_t size)
{
    if (snprintf(temp, PATH_MAX, "%s.new", path) >= PATH_MAX)
        return -ENAMETOOLONG;
    (void)unlink(temp); /* one that stays is told by file_create */
    return file_create(temp, data, size);
}

bool file_named(int fd, const char *path)
{
    struct stat is, named;

    return fstat(fd, &is) == 0 && lstat(path, &named) == 0 &&
           file_same(&is, &named);
}

int file_of_program(char path[PATH_MAX], const char *name)
{
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    size_t at;

    if (n < 0)
        return -errno;
    while (n > 0 && path[n - 1] != '/')
        n--;
    at = (size_t)n;
    return strlcpy(path + at, name, PATH_MAX - at) < PATH_MAX - at
               ? 0
               : -ENAMETOOLONG;
}

bool file_parent(char *path)
{
    char *slash = strrchr(path, '/');

    if (strcmp(path, "/") == 0 || strcmp(path, ".") == 0)
        return false;
    if (slash)
        slash[slash == path] = '\0';
    else
        memcpy(path, ".", sizeof ".");
    return true;
}
