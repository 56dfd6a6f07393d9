/* body_file.c - the body of a delivery as a file (see body_file.h) */
#include "worker/process/body_file.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

/* body_file_open - written whole, read from its start */
int body_file_open(const struct delivery *d)
{
    int fd = memfd_create("mqworker-body", MFD_CLOEXEC);
    size_t at = 0;

    if (fd < 0)
        return -errno;
    while (at < d->body_size) {
        /* pwrite leaves the offset, which the child shares, at the start. */
        ssize_t n = pwrite(fd, d->body + at, d->body_size - at, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int err = n < 0 ? -errno : -EIO;

            close(fd);
            return err;
        }
        at += (size_t)n;
    }
    return fd;
}
