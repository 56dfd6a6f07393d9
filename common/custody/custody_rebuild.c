/* custody_rebuild.c - the same messages in another file (see custody.h) */
#include "common/custody/custody_inner.h"
#include "common/base/fault_point.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sysexits.h>
#include <unistd.h>

/* slot_move - copy a slot into a file that has another fill and larger bodies
 * The bytes after the message are fill of the new file. A RECEIVING slot was
 * resolved before. A damaged one may have any length; `room` is what it had. */
static void slot_move(struct slot *to, const struct slot *from, size_t room)
{
    uint32_t length = atomic_load_explicit(&from->length, memory_order_relaxed);
    size_t n = length < room ? length : room;

    memcpy(to, from, SLOT_HEADER);
    to->dirty = (uint32_t)n;
    memcpy(to->body, from->body, n);
}

/* Copy all slots that are not FREE to the first slots of a mapped file. */
static void slots_move(unsigned char *map, const struct custody_head *h,
                       const struct custody *from)
{
    unsigned next = 0;

    for (unsigned i = 0; i < from->head->slots; i++) {
        struct slot *slot = custody_slot(from, i);
        struct slot *to =
            (struct slot *)(void *)(map + FILE_HEAD + h->stride * next);

        if (slot_free(slot))
            continue;
        slot_move(to, slot, from->body_bytes);
        next++;
    }
}

/* copy_made - a complete new file at `temp`, on the disk */
static int copy_made(const char *temp, const struct custody_head *h,
                     const struct custody *old, struct problem *p)
{
    size_t bytes = custody_file_bytes(h->stride, h->slots);
    unsigned char *map;
    int fd, err = custody_file_create(temp, h, &fd, p);

    FAULT_POINT("custody_rebuild_created");
    if (err || !old) {
        if (!err)
            close(fd);
        return err;
    }
    map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    err = map == MAP_FAILED ? -errno : 0;
    close(fd);
    if (!err) {
        slots_move(map, h, old);
        FAULT_POINT("custody_rebuild_copied");
        if (msync(map, bytes, MS_SYNC) < 0)
            err = -errno;
        munmap(map, bytes);
    }
    return err ? custody_problem(p, -err, "rebuild", temp) : 0;
}

/* custody_rebuild - copy the messages to a file with another geometry or place.
 * The file is completed and synced beside `path`, then renamed: a crash before
 * the rename leaves the old file at `path`, a crash after it the new one, and
 * never a mixture. The new file keeps the number of `old`, which marks the
 * handlers that may still run. */
int custody_rebuild(struct custody *old, const char *path,
                    const struct custody_spec *spec, uint64_t next_seq,
                    struct problem *p)
{
    char temp[PATH_MAX];
    struct custody_head h;
    unsigned slots = old && custody_busy(old) ? old->head->slots : 0;
    int err;

    if (snprintf(temp, sizeof temp, "%s.new", path) >= (int)sizeof temp)
        return custody_problem(p, ENAMETOOLONG, "name", path);
    custody_head_make(&h, spec->body_bytes,
                      slots > spec->slots ? slots : spec->slots, next_seq,
                      old ? old->head->nonce : 0);
    if (old) /* a torn file stays torn, a clean one clean */
        custody_head_copy(&h, old->head);
    err = copy_made(temp, &h, old, p);
    FAULT_POINT("custody_rebuild_before_rename");
    if (!err && rename(temp, path) < 0)
        err = custody_problem(p, errno, "rebuild", path);
    FAULT_POINT("custody_rebuild_after_rename");
    if (err) {
        unlink(temp);
        return err;
    }
    custody_dir_sync(path);
    return 0;
}
