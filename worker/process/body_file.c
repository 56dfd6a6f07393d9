/* body_file.c - the body of a delivery as a file (see body_file.h) */
#include "worker/process/body_file.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/file/file.h"

/* body_file_open - written whole, read from its start */
int body_file_open(const struct delivery *d)
{
    int fd = memfd_create("mqworker-body", MFD_CLOEXEC), err;

    if (fd < 0)
        return -errno;
    /* The offset, which the child shares, stays at the start. */
    err = file_write(fd, d->body, d->body_size, 0);
    if (err) {
        close(fd);
        return err;
    }
    return fd;
}
