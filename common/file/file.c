/* file.c - see file.h */
#include "common/file/file.h"

#include <errno.h>
#include <unistd.h>

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
