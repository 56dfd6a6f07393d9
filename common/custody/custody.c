/* custody.c - the file of slots that hold messages in flight (see custody.h;
 * the bytes are in custody_file.c) */
#include "common/custody/custody_inner.h"
#include "common/base/fault_point.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

/* geometry_fit - make the file fit the spec; reopens a replaced file */
static int geometry_fit(struct custody *c, const struct custody_spec *spec,
                        struct problem *p)
{
    bool busy = custody_busy(c);
    bool small = c->body_bytes < spec->body_bytes;
    bool other =
        c->body_bytes != spec->body_bytes || c->head->slots > spec->slots_max;
    struct custody_spec room = *spec;
    int err;

    if (!small && !(other && !busy))
        return 0;
    if (busy && !small)
        room.body_bytes = c->body_bytes;
    if (busy) {
        slot_fill_init(&c->fill, c->head->nonce);
        custody_resolve(c);
    }
    err = custody_rebuild(c, c->path, &room, c->head->next_seq, p);
    if (err)
        return err;
    custody_file_close(c);
    return custody_file_open(c, spec, p);
}

/* in_use - mark the file as ours, on disk, before the first message. Otherwise
 * a power cut could bring back an older file that says "clean" and holds slots
 * of finished messages. */
static int in_use(struct custody *c, struct problem *p)
{
    struct boot now, then = custody_head_boot(c->head);

    boot_now(&now);
    c->torn = !c->head->clean && !boot_same(&now, &then);
    if (c->torn) /* stays so until custody_recover has dealt with the slots */
        return 0;
    if (!c->head->clean)
        return 0;
    custody_head_claim(c->head, &now);
    FAULT_POINT("custody_in_use_before_sync");
    return msync(c->base, FILE_HEAD, MS_SYNC) < 0
               ? custody_problem(p, errno, "sync", c->path)
               : 0;
}

/* disk_look - what the file lies on; unknown is taken for a disk */
static void disk_look(struct custody *c)
{
    struct statfs s;
    long type = fstatfs(c->fd, &s) == 0 ? (long)s.f_type : 0;

    if (fs_type_memory(type))
        return;
    fs_type_text(type, c->disk);
    c->doubtful = fs_type_doubtful(type);
}

int custody_open(struct custody **out, const char *path,
                 const struct custody_spec *spec, struct problem *p)
{
    struct custody *c = custody_new(path);
    int err;

    *out = NULL;
    if (!c)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    if (spec->aside)
        strlcpy(c->aside, spec->aside, sizeof c->aside);
    err = custody_file_open(c, spec, p);
    if (err == -ENOENT) {
        err = custody_rebuild(NULL, path, spec, 1, p);
        if (!err)
            err = custody_file_open(c, spec, p);
    } else if (!err) {
        err = geometry_fit(c, spec, p);
    }
    if (!err && c->head) { /* set if and only if !err */
        slot_fill_init(&c->fill, c->head->nonce);
        err = in_use(c, p);
        if (!err && c->head->slots < spec->slots)
            err = custody_grow(c, spec->slots, p);
    }
    if (err) {
        custody_free(c);
        return err;
    }
    disk_look(c);
    custody_pages_ready(c, 0);
    *out = c;
    return 0;
}

/* custody_close - on the disk, marked clean
 * Crash before the mark: the next start recovers as after a kill. A file that
 * is torn still keeps its old boot id, for the next start to deal with. */
void custody_close(struct custody **custody)
{
    struct custody *c = *custody;

    if (!c)
        return;
    *custody = NULL;
    if (c->recovered && !c->torn && msync(c->base, c->mapped, MS_SYNC) == 0) {
        FAULT_POINT("custody_close_before_mark");
        c->head->clean = 1;
        FAULT_POINT("custody_close_before_sync");
        (void)msync(c->base, FILE_HEAD, MS_SYNC);
    }
    custody_free(c);
}

int custody_free_room(struct custody *c, unsigned slots)
{
    struct slot **more;

    if (slots <= c->free_room)
        return 0;
    more = reallocarray(c->free, slots, sizeof *more);
    if (!more)
        return -ENOMEM;
    c->free = more;
    c->free_room = slots;
    return 0;
}

/* grow_locked - append slots
 * Crash before the number is raised: the file is longer than its header says,
 * which the next open allows. Slots in use stay where they are: the pages that
 * are mapped already are not mapped again. */
static int grow_locked(struct custody *c, unsigned slots, struct problem *p)
{
    unsigned had = c->head->slots;
    size_t bytes = custody_file_bytes(c->stride, slots), from = c->mapped;
    int err;

    if (slots <= had)
        return 0;
    if (slots > c->slots_most)
        return problem_set(p, EX_USAGE, ENOSPC,
                           "custody file %s: %u slots are more than the %u "
                           "that room was reserved for at start",
                           c->path, slots, c->slots_most);
    err = custody_allocate(c->fd, c->path, c->stride, had, slots, p);
    if (err)
        return err;
    err = custody_slots_write(c->fd, c->stride, &c->fill, had, slots);
    FAULT_POINT("custody_grow_written");
    if (err)
        return custody_problem(p, -err, "grow", c->path);
    if (bytes > from) {
        if (mmap(c->base + from, bytes - from, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED, c->fd, (off_t)from) == MAP_FAILED)
            return custody_problem(p, errno, "map", c->path);
        c->mapped = bytes;
        custody_pages_ready(c, from);
    }
    pthread_mutex_lock(&c->mtx);
    err = custody_free_room(c, slots);
    if (!err) {
        FAULT_POINT("custody_grow_before_number");
        c->head->slots = slots;
        FAULT_POINT("custody_grow_after_number");
        for (unsigned i = had; c->recovered && i < slots; i++)
            c->free[c->free_count++] = custody_slot(c, i);
    }
    pthread_mutex_unlock(&c->mtx);
    return err ? problem_set(p, EX_OSERR, ENOMEM, "out of memory") : 0;
}

int custody_grow(struct custody *c, unsigned slots, struct problem *p)
{
    int err;

    pthread_mutex_lock(&c->size_mtx);
    err = grow_locked(c, slots, p);
    pthread_mutex_unlock(&c->size_mtx);
    return err;
}

struct slot *custody_acquire(struct custody *c)
{
    struct slot *slot = NULL;

    pthread_mutex_lock(&c->mtx);
    if (c->free_count > 0) {
        slot = c->free[--c->free_count];
    }
    pthread_mutex_unlock(&c->mtx);
    return slot;
}

void custody_release(struct custody *c, struct slot *slot)
{
    pthread_mutex_lock(&c->mtx);
    c->free[c->free_count++] = slot;
    pthread_mutex_unlock(&c->mtx);
}

unsigned custody_free_slots(const struct custody *c)
{
    return atomic_load_explicit(&c->free_count, memory_order_relaxed);
}

unsigned custody_index(const struct custody *c, const struct slot *slot)
{
    return (
        unsigned)((size_t)((const unsigned char *)slot - c->base - FILE_HEAD) /
                  c->stride);
}

void custody_each(struct custody *c,
                  void (*visit)(struct slot *slot, void *arg), void *arg)
{
    for (unsigned i = 0; i < c->head->slots; i++)
        if (slot_word(custody_slot(c, i)).state != SLOT_FREE)
            visit(custody_slot(c, i), arg);
}

uint64_t custody_seq_next(const struct custody *c)
{
    return atomic_load_explicit(&c->head->next_seq, memory_order_relaxed);
}

void custody_seq_used(struct custody *c)
{
    atomic_store_explicit(&c->head->next_seq, custody_seq_next(c) + 1,
                          memory_order_relaxed);
}

void custody_seq_raise(struct custody *c, uint64_t least)
{
    if (c->head->next_seq < least)
        c->head->next_seq = least;
}

uint64_t custody_nonce(const struct custody *c)
{
    return c->head->nonce;
}

const char *custody_disk(const struct custody *c, bool *doubtful)
{
    *doubtful = c->doubtful;
    return c->disk[0] ? c->disk : NULL;
}

bool custody_locked(const struct custody *c)
{
    return c->locked;
}

const char *custody_path(const struct custody *c)
{
    return c->path;
}

size_t custody_bytes(const struct custody *c)
{
    return c->mapped;
}

bool custody_is_unnamed(const struct custody *c)
{
    struct stat now;

    return fstat(c->fd, &now) == 0 && now.st_nlink == 0;
}

bool custody_empty(const struct custody *c)
{
    return !custody_busy(c);
}

unsigned custody_slots(const struct custody *c)
{
    return c->head->slots;
}

unsigned custody_slots_most(const struct custody *c)
{
    return c->slots_most;
}

size_t custody_body_bytes(const struct custody *c)
{
    return c->body_bytes;
}

const struct slot_fill *custody_fill(const struct custody *c)
{
    return &c->fill;
}
