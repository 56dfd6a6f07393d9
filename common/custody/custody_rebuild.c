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

/* slots_move - all that are not FREE, to slot `next` and up of a mapped file;
 * `later` is added to their numbers. Returns the next slot. */
static unsigned slots_move(unsigned char *map, const struct custody_head *h,
                           unsigned next, const struct custody *from,
                           uint64_t later)
{
    for (unsigned i = 0; from && i < from->head->slots; i++) {
        struct slot *slot = custody_slot(from, i);
        struct slot *to =
            (struct slot *)(void *)(map + FILE_HEAD + h->stride * next);

        if (slot_free(slot))
            continue;
        slot_move(to, slot, from->body_bytes);
        if (later && !slot_damage(to, from->body_bytes))
            slot_renumber(to, to->seq + later);
        next++;
    }
    return next;
}

/* copy_made - a complete new file at `temp`, on the disk */
static int copy_made(const char *temp, const struct custody_head *h,
                     const struct custody *old, const struct custody *lost,
                     uint64_t later, struct problem *p)
{
    size_t bytes = custody_file_bytes(h->stride, h->slots);
    unsigned char *map;
    unsigned next;
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
        next = slots_move(map, h, 0, old, 0);
        slots_move(map, h, next, lost, later);
        FAULT_POINT("custody_rebuild_copied");
        if (msync(map, bytes, MS_SYNC) < 0)
            err = -errno;
        munmap(map, bytes);
    }
    return err ? custody_problem(p, -err, "rebuild", temp) : 0;
}

/* custody_rebuild - the same messages in a file with other geometry, or in
 * another place
 * Built complete beside `path`, on the disk, then renamed: a crash before the
 * rename leaves what was at `path`, after it the new one, and never a mixture.
 * It keeps the number of `old`, empty or not: by that a copy of it that a carry
 * left behind is still known as one (custody_carry).
 * The numbers of `lost` are raised above those of `old`, which an older version
 * gave while it did not know of `lost`: two messages of one number would be
 * taken for one. */
int custody_rebuild(struct custody *old, struct custody *lost, const char *path,
                    const struct custody_spec *spec, uint64_t next_seq,
                    struct problem *p)
{
    char temp[PATH_MAX];
    struct custody_head h;
    struct boot boot;
    uint64_t later = lost ? next_seq : 0;
    unsigned slots = old && custody_busy(old) ? old->head->slots : 0;
    int err;

    if (snprintf(temp, sizeof temp, "%s.new", path) >= (int)sizeof temp)
        return custody_problem(p, ENAMETOOLONG, "name", path);
    slots += lost ? lost->head->slots : 0;
    if (lost)
        next_seq += lost->head->next_seq;
    custody_head_make(&h, spec->body_bytes,
                      slots > spec->slots ? slots : spec->slots, next_seq,
                      old ? old->head->nonce : 0);
    if (old) { /* a torn or clean file stays one */
        boot = custody_head_boot(old->head);
        custody_head_claim(&h, &boot);
    }
    h.clean = old ? old->head->clean : 1;
    err = copy_made(temp, &h, old, lost, later, p);
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

/* ---- from another place ---- */

/* loaded - an existing file with all it holds resolved; `*out` NULL: there is
 * none */
static int loaded(struct custody **out, const char *path,
                  const struct custody_spec *spec, struct problem *p)
{
    struct custody *c = custody_new(path);
    int err;

    *out = NULL;
    if (!c)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    err = custody_file_open(c, spec, p);
    if (err) {
        custody_free(c);
        return err == -ENOENT ? 0 : err;
    }
    slot_fill_init(&c->fill, c->head->nonce);
    if (custody_busy(c))
        custody_resolve(c);
    *out = c;
    return 0;
}

/* two_places - nothing tells which ones are still to run */
static int two_places(const char *path, const char *from, struct problem *p)
{
    return problem_set(p, EX_CONFIG, EEXIST,
                       "messages in flight are in two places, %s and %s, and "
                       "nothing tells which ones are still to run; nothing was "
                       "touched: move one of them away",
                       path, from);
}

/* carry - see custody_carry; either may be NULL */
static int carry(struct custody *here, struct custody *from, const char *path,
                 bool truth, const struct custody_spec *spec, struct problem *p)
{
    struct custody_spec room = *spec;
    bool busy = here && custody_busy(here);
    bool copy = here && from && here->head->nonce == from->head->nonce;

    if (!from || (copy && !truth))
        return 0;
    if (!custody_busy(from))
        return copy && busy && unlink(path) < 0
                   ? custody_problem(p, errno, "remove", path)
                   : 0;
    if (busy && !copy && truth)
        return two_places(path, from->path, p);
    if (room.body_bytes < from->body_bytes)
        room.body_bytes = from->body_bytes;
    if (busy && !copy && room.body_bytes < here->body_bytes)
        room.body_bytes = here->body_bytes;
    return custody_rebuild(from, busy && !copy ? here : NULL, path, &room,
                           from->head->next_seq, p);
}

/* custody_carry - bring what `from` holds to `path`
 * A copy has the number of the file it was made of. So a carry that was cut off
 * is known at the next start: as long as `from` is the truth the copy is made
 * again, and once it is not, `from` is what was left. */
int custody_carry(const char *path, const char *from, bool truth,
                  const struct custody_spec *spec, struct problem *p)
{
    struct custody *there = NULL, *here = NULL;
    int err = loaded(&there, from, spec, p);

    if (!err)
        err = loaded(&here, path, spec, p);
    if (!err)
        err = carry(here, there, path, truth, spec, p);
    if (here)
        custody_free(here);
    if (there)
        custody_free(there);
    return err;
}
