/* custody_map.c - a custody file that is there, mapped (see custody_inner.h) */
#include "common/custody/custody_inner.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

/* custody_new - calloc(3) does not align as `fill` asks for */
struct custody *custody_new(const char *path)
{
    struct custody *c = aligned_alloc(_Alignof(struct custody), sizeof *c);

    if (!c)
        return NULL;
    memset(c, 0, sizeof *c);
    c->fd = -1;
    strlcpy(c->path, path, sizeof c->path);
    pthread_mutex_init(&c->size_mtx, NULL);
    pthread_mutex_init(&c->mtx, NULL);
    return c;
}

void custody_free(struct custody *c)
{
    custody_file_close(c);
    pthread_mutex_destroy(&c->mtx);
    pthread_mutex_destroy(&c->size_mtx);
    free(c->free);
    free(c);
}

struct slot *custody_slot(const struct custody *c, unsigned i)
{
    return (struct slot *)(void *)(c->base + FILE_HEAD + c->stride * i);
}

/* file_map - reserve room to grow to, map the `slots` that are there
 * A file may have more than this run asks for, as the one before asked for
 * more; and it may have to grow all the same. */
static int file_map(struct custody *c, unsigned slots,
                    const struct custody_spec *spec)
{
    size_t bytes = custody_file_bytes(c->stride, slots);
    void *at;

    c->slots_most = slots > spec->slots_max ? slots : spec->slots_max;
    c->slots_most += spec->slots_more;
    c->reserved = custody_file_bytes(c->stride, c->slots_most);
    at = mmap(NULL, c->reserved, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return -errno;
    c->base = at;
    at = mmap(c->base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
              c->fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    c->mapped = bytes;
    c->head = at;
    c->head->slots = slots;
    return 0;
}

/* custody_pages_ready - take the write faults now, and keep the pages if we may
 * A page that is not there when the kernel copies a message into it costs the
 * message, if a SIGKILL comes while it is fetched. tmpfs never writes a page
 * back; it may swap it, which mlock(2) prevents; and the collapse into a huge
 * page takes it away for a moment, which MADV_NOHUGEPAGE prevents. All three
 * are best effort: custody_locked says what came of the second. Piece by piece,
 * as each call keeps threads waiting that start another one or take memory. */
void custody_pages_ready(struct custody *c, size_t from)
{
    size_t first = atomic_load(&c->locked) ? from : 0, size;
    bool locked = true;

    (void)madvise(c->base + from, c->mapped - from, MADV_NOHUGEPAGE);
    for (size_t at = first; at < c->mapped; at += size) {
        size = c->mapped - at < CUSTODY_PIECE ? c->mapped - at : CUSTODY_PIECE;
        if (at + size > from)
            (void)madvise(c->base + at, size, MADV_POPULATE_WRITE);
        locked = locked && mlock(c->base + at, size) == 0;
    }
    if (!locked)
        (void)munlock(c->base + first, c->mapped - first);
    atomic_store(&c->locked, locked);
}

bool custody_busy(const struct custody *c)
{
    for (unsigned i = 0; i < c->head->slots; i++)
        if (!slot_free(custody_slot(c, i)))
            return true;
    return false;
}

/* cut_short - a file with fewer bytes than its header says */
static int cut_short(struct custody *c, unsigned slots, uint64_t size,
                     struct problem *p)
{
    return problem_set(p, EX_CONFIG, EINVAL,
                       "custody file %s is cut short: %llu bytes where its "
                       "header says %zu; it was left untouched: move it away "
                       "to start with a new one",
                       c->path, (unsigned long long)size,
                       custody_file_bytes(c->stride, slots));
}

int custody_file_open(struct custody *c, const struct custody_spec *spec,
                      struct problem *p)
{
    struct custody_head h;
    struct stat st;
    unsigned slots;
    int err;

    c->fd = open(c->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (c->fd < 0)
        return errno == ENOENT ? -ENOENT
                               : custody_problem(p, errno, "open", c->path);
    if (fstat(c->fd, &st) < 0)
        return custody_problem(p, errno, "look at", c->path);
    if (!S_ISREG(st.st_mode))
        return custody_problem(p, EINVAL, "not a regular file", c->path);
    if (st.st_uid != geteuid()) /* whatever the path led to by now: folder.c */
        return custody_problem(p, EPERM, "of another user", c->path);
    memset(&h, 0, sizeof h);
    if (pread(c->fd, &h, sizeof h, 0) < 0)
        return custody_problem(p, errno, "read", c->path);
    err = custody_head_check(&h, c->path, p);
    if (err)
        return err;
    c->stride = h.stride;
    c->body_bytes = h.body_bytes;
    if (h.slots > CUSTODY_SLOTS_MAX ||
        (uint64_t)st.st_size < custody_file_bytes(c->stride, h.slots))
        return cut_short(c, h.slots, (uint64_t)st.st_size, p);
    slots = custody_slots_there(c->fd, &h, st.st_size);
    err = file_map(c, slots, spec);
    return err ? custody_problem(p, -err, "map", c->path) : 0;
}

void custody_file_close(struct custody *c)
{
    if (c->base)
        munmap(c->base, c->reserved);
    if (c->fd >= 0)
        close(c->fd);
    c->base = NULL;
    c->head = NULL;
    c->fd = -1;
}

void custody_resolve(struct custody *c)
{
    for (unsigned i = 0; i < c->head->slots; i++) {
        struct slot *slot = custody_slot(c, i);

        if (!slot_free(slot) && !slot_damage(slot, c->body_bytes))
            slot_resolve(slot, &c->fill, c->body_bytes);
    }
}
