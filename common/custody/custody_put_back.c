/* custody_put_back.c - a custody file that was removed while it is in use (see
 * custody.h) */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/custody/custody_inner.h"
#include "common/base/fault_point.h"
#include "common/file/file.h"

/* copy_make - all bytes of the mapping in a file at `temp`, on the disk */
static int copy_make(const struct custody *c, const char *temp, int *fd)
{
    int err;

    *fd = open(temp, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (*fd < 0)
        return -errno;
    err = file_write(*fd, c->base, c->mapped, 0);
    if (!err && fsync(*fd) < 0)
        err = -errno;
    return err;
}

/* custody_put_back - in place: the addresses of all slots stay what they are
 * Crash before the link: the file is missing, as somebody left it, and what was
 * in flight is lost with this process. Crash after it: the file holds each slot
 * as it is. Nobody writes to a slot between the copy and the mapping, so the
 * copy is the file; and mmap(2) with MAP_FIXED replaces the pages in one step,
 * or if it fails leaves them. link(2), so that a file that has come there
 * meanwhile is not replaced.
 */
int custody_put_back(struct custody *c, struct problem *p)
{
    char temp[PATH_MAX];
    int fd = -1, err;

    if (snprintf(temp, sizeof temp, "%s.new", c->path) >= (int)sizeof temp)
        return custody_problem(p, ENAMETOOLONG, "name", c->path);
    err = copy_make(c, temp, &fd);
    FAULT_POINT("custody_put_back_copied");
    if (!err && link(temp, c->path) < 0)
        err = -errno;
    FAULT_POINT("custody_put_back_linked");
    unlink(temp);
    if (!err && mmap(c->base, c->mapped, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        err = -errno;
        unlink(c->path); /* it would fall behind */
    }
    if (err) {
        if (fd >= 0)
            close(fd);
        return custody_problem(p, -err, "put back", c->path);
    }
    close(c->fd);
    c->fd = fd;
    custody_dir_sync(c->path);
    custody_pages_ready(c, 0);
    return 0;
}
