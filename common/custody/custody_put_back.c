/* custody_put_back.c - a custody file that was removed while it is in use (see
 * custody.h) */
#include <errno.h>
#include <sys/mman.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/fault_point.h"
#include "common/base/file.h"
#include "common/custody/custody_inner.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

/* pages_drop - the old file's pages leave our page table piece by piece
 * They stay in the file, which is read again where it must be. mmap(2) would
 * take them out in one go, and keep every thread that starts another one or
 * takes memory waiting: for 1 GiB that was 27 ms. Best effort: Linux 5.18 and
 * newer do it with locked pages. */
static void pages_drop(struct custody *c)
{
    size_t size;

    for (size_t at = 0; at < c->mapped; at += size) {
        size = c->mapped - at < CUSTODY_PIECE ? c->mapped - at : CUSTODY_PIECE;
        (void)madvise(c->base + at, size, MADV_DONTNEED_LOCKED);
    }
}

/* put_back_locked - in place: the addresses of all slots stay what they are
 * Crash before the link: the file is missing, as somebody left it, and what was
 * in flight is lost with this process. Crash after it: the file holds each slot
 * as it is. Nobody writes to a slot between the copy and the mapping, so the
 * copy is the file; and mmap(2) with MAP_FIXED replaces the pages in one step,
 * or if it fails leaves them. link(2), so that a file that has come there
 * meanwhile is not replaced. */
static int put_back_locked(struct custody *c, struct problem *p)
{
    char temp[PATH_MAX];
    int fd = file_create_beside(temp, c->path, c->base, c->mapped);
    int err = fd < 0 ? fd : 0;

    FAULT_POINT("custody_put_back_copied");
    if (!err && link(temp, c->path) < 0)
        err = -errno;
    FAULT_POINT("custody_put_back_linked");
    if (fd >= 0)
        unlink(temp);
    if (!err)
        pages_drop(c);
    if (!err && mmap(c->base, c->mapped, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        err = -errno;
        unlink(c->path); /* it would fall behind */
    }
    if (err) {
        if (fd >= 0)
            close(fd);
        custody_pages_ready(c, 0);
        return custody_problem(p, -err, "put back", c->path);
    }
    close(c->fd);
    c->fd = fd;
    custody_dir_sync(c->path);
    custody_pages_ready(c, 0);
    return 0;
}

int custody_put_back(struct custody *c, struct problem *p)
{
    int err;

    pthread_mutex_lock(&c->size_mtx);
    err = put_back_locked(c, p);
    pthread_mutex_unlock(&c->size_mtx);
    return err;
}
