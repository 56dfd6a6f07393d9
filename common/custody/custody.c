/* custody.c - the file of slots that hold messages in flight (see custody.h) */
#include "common/custody/custody.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/libc.h"

#define MAGIC      "MQWCUSTO"
#define SLOTS_MAX  (1u << 24)
#define SLOT_ALIGN 64
/* Largest mapping, bytes. With 32-bit addresses the file may be larger. */
#define MAPPING_MAX (SIZE_MAX / 2)
/* Bytes per system call that makes the kernel work with its locks held; whole
 * pages. */
#define CUSTODY_PIECE ((size_t)4 << 20)

/* c = constant after open   e = engine's thread only   s = under size_mtx
 * m = under mtx   a = atomic */
struct custody {
    char path[PATH_MAX];       /* c */
    char aside[PATH_MAX];      /* c  folder for copies; "": that of path */
    char copy[PATH_MAX];       /* e  damaged file, copied aside; "" none */
    int fd;                    /* s  of the file */
    unsigned char *base;       /* c  reserved address space, file mapped at 0 */
    size_t reserved;           /* c  bytes */
    unsigned slots_most;       /* c  slots that fit into `reserved` */
    pthread_mutex_t size_mtx;  /* held while the file grows */
    size_t mapped;             /* s  bytes */
    struct custody_head *head; /* c  in the mapping */
    struct slot_fill fill;     /* c */
    size_t stride;             /* c */
    size_t body_bytes;         /* c */
    bool torn;                 /* c */
    atomic_bool locked;        /* a  read by others */
    bool recovered;            /* e  free list is filled */
    unsigned damaged;          /* e */
    char disk[FS_TYPE_TEXT];   /* c  the file's file system; "": memory */
    bool doubtful;             /* c */
    pthread_mutex_t mtx;
    struct slot **free;          /* m  stack */
    _Atomic unsigned free_count; /* m  read without the lock as a hint */
    unsigned free_room;          /* m */
};

/* ---- the file on disk ---- */

/* Return the bytes from one slot to the next. */
static size_t stride_of(size_t body_bytes)
{
    return (SLOT_HEADER + body_bytes + SLOT_ALIGN - 1) / SLOT_ALIGN *
           SLOT_ALIGN;
}

uint64_t custody_file_bytes(uint64_t stride, unsigned slots)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    return (FILE_HEAD + stride * slots + page - 1) / page * page;
}

/* Return the check sum of the fields that never change. */
static uint64_t head_sum(const struct custody_head *h)
{
    const unsigned char *bytes = (const unsigned char *)h;
    uint64_t sum =
        fnv_add(FNV_BEGIN, bytes, offsetof(struct custody_head, clean));

    return fnv_add(sum, bytes + offsetof(struct custody_head, body_bytes),
                   offsetof(struct custody_head, sum) -
                       offsetof(struct custody_head, body_bytes));
}

/* Return the check sum of the fields that name the file's user. */
static uint64_t owner_sum(const struct custody_head *h)
{
    uint64_t sum = fnv_add(FNV_BEGIN, &h->boot_time, sizeof h->boot_time);

    return fnv_add(sum, h->boot_id, sizeof h->boot_id);
}

/* "In use" is stored last. If the process is killed before that store, the file
 * still reads clean, and the boot id and its check sum are not read from a
 * clean file. */
void custody_head_claim(struct custody_head *h, const struct boot *boot)
{
    h->boot_time = boot->time;
    memcpy(h->boot_id, boot->id, sizeof h->boot_id);
    h->owner_sum = owner_sum(h);
    atomic_signal_fence(memory_order_seq_cst);
    FAULT_POINT("custody_claim_before_mark");
    h->clean = 0;
}

/* Report a failed step `what` on a custody file. Returns -err. */
static int custody_problem(struct problem *p, int err, const char *what,
                           const char *path)
{
    return problem_set(
        p, EX_CANTCREAT, err,
        "custody file %s: %s: %s; %s, or give another --runtime-dir", path,
        what, errno_text(err),
        err == ENOSPC   ? folder_room(path)
        : err == ENOMEM ? "need less: --max-concurrency, --window, --lookahead"
                        : "check the file system");
}

/* Write slots from..to-1 as FREE slots with filled bodies, and zeros to the end
 * of the last page. */
static int slots_write(int fd, size_t stride, const struct slot_fill *fill,
                       unsigned from, unsigned to)
{
    size_t body = stride - SLOT_HEADER;
    unsigned char *image = calloc(1, stride);
    unsigned char zero[SLOT_ALIGN] = {0};
    int err = image ? 0 : -ENOMEM;
    uint64_t end = FILE_HEAD + (uint64_t)stride * to;

    if (image)
        slot_scrub((struct slot *)(void *)image, fill, body);
    for (unsigned i = from; i < to && !err; i++)
        err = file_write(fd, image, stride,
                         (off_t)(FILE_HEAD + (uint64_t)stride * i));
    for (; end < custody_file_bytes(stride, to) && !err; end += sizeof zero)
        err = file_write(fd, zero, sizeof zero, (off_t)end);
    free(image);
    return err;
}

void custody_head_make(struct custody_head *h, size_t body_bytes,
                       unsigned slots, uint64_t next_seq, uint64_t nonce)
{
    memset(h, 0, sizeof *h);
    memcpy(h->magic, MAGIC, sizeof h->magic);
    h->version = CUSTODY_VERSION | FILE_MACHINE;
    h->head_bytes = FILE_HEAD;
    h->slot_head_bytes = SLOT_HEADER;
    h->body_bytes = body_bytes;
    h->stride = stride_of(body_bytes);
    h->nonce = nonce;
    if (nonce == 0 &&
        getrandom(&h->nonce, sizeof h->nonce, 0) != sizeof h->nonce)
        h->nonce = clock_wall_ns() ^ (uint64_t)getpid() << 32;
    h->sum = head_sum(h);
    h->slots = slots;
    h->next_seq = next_seq;
    h->clean = 1;
}

/* Report a lack of room, with the arithmetic and the settings that reduce it.
 */
static int no_room(int fd, const char *path, size_t stride, unsigned slots,
                   struct problem *p)
{
    struct statfs s;
    bool known = fstatfs(fd, &s) == 0;

    return problem_set(
        p, EX_CANTCREAT, ENOSPC,
        "custody file %s: %s: %u slots x %zu bytes = %llu bytes are needed, "
        "%llu are free there; %s, or need less: --max-concurrency, --window, "
        "--lookahead, or the message size of the queue",
        path, errno_text(ENOSPC), slots, stride,
        (unsigned long long)stride * slots,
        known ? (unsigned long long)s.f_bavail * (unsigned long long)s.f_bsize
              : 0,
        known && fs_kind((long)s.f_type) == FS_MEMORY
            ? "make it larger (mount -o remount,size=SIZE), give a larger one "
              "by --runtime-dir"
            : "free some space");
}

/* Allocate the blocks of slots from..to-1 now: a page fault later, in the
 * kernel's copy into a slot, must never find the disk or the memory full. On a
 * file system without fallocate(2) the writes that follow allocate the
 * blocks. */
static int slots_allocate(int fd, const char *path, size_t stride,
                          unsigned from, unsigned to, struct problem *p)
{
    uint64_t begin = from ? FILE_HEAD + (uint64_t)stride * from : 0;
    int err;

    do
        err = fallocate(fd, 0, (off_t)begin,
                        (off_t)(custody_file_bytes(stride, to) - begin)) < 0
                  ? errno
                  : 0;
    while (err == EINTR);
    if (err == ENOSPC)
        return no_room(fd, path, stride, to - from, p);
    return err && err != EOPNOTSUPP && err != ENOSYS
               ? custody_problem(p, err, "allocate", path)
               : 0;
}

/* Create a complete new file at `path`. It is on disk when this returns 0. */
static int file_create_whole(const char *path, const struct custody_head *h,
                             int *fd, struct problem *p)
{
    size_t stride = (size_t)h->stride;
    struct slot_fill fill;
    int err;

    slot_fill_init(&fill, h->nonce);
    *fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (*fd < 0)
        return custody_problem(p, errno, "create", path);
    err = slots_allocate(*fd, path, stride, 0, h->slots, p);
    if (!err) {
        err = file_write(*fd, h, sizeof *h, 0);
        if (!err)
            err = slots_write(*fd, stride, &fill, 0, h->slots);
        if (!err && fsync(*fd) < 0)
            err = -errno;
        if (err == -ENOSPC)
            err = no_room(*fd, path, stride, h->slots, p);
        else if (err)
            err = custody_problem(p, -err, "create", path);
    }
    if (err) {
        unlink(path);
        close(*fd);
        *fd = -1;
    }
    return err;
}

int custody_head_check(const struct custody_head *h, const char *path,
                       struct problem *p)
{
    const char *machine;

    if (memcmp(h->magic, MAGIC, sizeof h->magic) != 0)
        return problem_set(p, EX_CONFIG, EINVAL,
                           "%s is not a custody file of mqworker; it was left "
                           "untouched: move it away to start with a new one",
                           path);
    machine = file_foreign(h->version, h->head_bytes, FILE_HEAD);
    if (machine)
        return problem_set(
            p, EX_CONFIG, EINVAL,
            "custody file %s was written by a worker on a machine with %s and "
            "was left untouched: let that machine finish (mqctl drain) and "
            "move store.db alone, or move this file away and lose its messages",
            path, machine);
    if (h->version != (CUSTODY_VERSION | FILE_MACHINE) ||
        h->head_bytes != FILE_HEAD || h->slot_head_bytes != SLOT_HEADER)
        return problem_set(p, EX_CONFIG, EINVAL,
                           "custody file %s is of version %u (layout %u/%u), "
                           "this mqworker reads version %u (%u/%u); it was "
                           "left untouched: run the version that wrote it "
                           "until it is empty, or move it away",
                           path, h->version ^ FILE_MACHINE, h->head_bytes,
                           h->slot_head_bytes, CUSTODY_VERSION, FILE_HEAD,
                           SLOT_HEADER);
    if (h->sum != head_sum(h) || h->clean > 1 ||
        (!h->clean && h->owner_sum != owner_sum(h)) ||
        h->body_bytes > CUSTODY_BODY_MAX ||
        h->stride != stride_of((size_t)h->body_bytes))
        return problem_set(p, EX_CONFIG, EINVAL,
                           "the header of custody file %s is damaged (check "
                           "sum); it was left untouched: move it away to "
                           "start with a new one",
                           path);
    return 0;
}

/* ---- the mapped file ---- */

static void file_close(struct custody *c)
{
    if (c->base)
        munmap(c->base, c->reserved);
    fd_close(&c->fd);
    c->base = NULL;
    c->head = NULL;
}

static void custody_unmake(struct custody *c)
{
    file_close(c);
    pthread_mutex_destroy(&c->mtx);
    pthread_mutex_destroy(&c->size_mtx);
    free(c->free);
    free(c);
}

static struct slot *slot_at(const struct custody *c, unsigned i)
{
    return (struct slot *)(void *)(c->base + FILE_HEAD + c->stride * i);
}

/* Reserve address space to grow into, and map the slots that exist. A file may
 * have more slots than this run asks for, because an earlier run asked for
 * more. Such a file can still grow by slots_more. */
static int file_map(struct custody *c, unsigned slots,
                    const struct custody_spec *spec)
{
    size_t bytes = (size_t)custody_file_bytes(c->stride, slots);
    uint64_t most;
    void *at;

    c->slots_most = slots > spec->slots_max ? slots : spec->slots_max;
    c->slots_most += spec->slots_more;
    most = custody_file_bytes(c->stride, c->slots_most);
    if (most > MAPPING_MAX)
        return -ENOMEM;
    c->reserved = (size_t)most;
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

/* Take the write faults now, and lock the pages in memory if the limits allow.
 * If a page is missing when the kernel copies a message into it, and a SIGKILL
 * comes while the page is fetched, the message is lost. tmpfs never writes a
 * page back, but may swap it out, which mlock(2) prevents. The collapse of
 * small pages into a huge page unmaps them for a moment, which MADV_NOHUGEPAGE
 * prevents. All three are best effort: custody_bytes_unlocked shows if mlock(2)
 * failed. Each system call handles one piece, because threads that start
 * another thread or allocate memory wait for the call to end. Called at open,
 * and by grow_locked. */
static void pages_ready(struct custody *c, size_t from)
{
    size_t first = atomic_load(&c->locked) ? from : 0, size;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    bool locked = true;

    (void)madvise(c->base + from, c->mapped - from, MADV_NOHUGEPAGE);
    for (size_t at = first; at < c->mapped; at += size) {
        size = c->mapped - at < CUSTODY_PIECE ? c->mapped - at : CUSTODY_PIECE;
        if (at + size > from &&
            madvise(c->base + at, size, MADV_POPULATE_WRITE) < 0 &&
            errno == EINVAL) /* before Linux 5.14 */
            for (size_t i = 0; i < size; i += page)
                atomic_fetch_or((_Atomic uint8_t *)(c->base + at + i), 0);
        locked = locked && mlock(c->base + at, size) == 0;
    }
    if (!locked)
        (void)munlock(c->base + first, c->mapped - first);
    atomic_store(&c->locked, locked);
}

bool custody_empty(const struct custody *c)
{
    for (unsigned i = 0; i < c->head->slots; i++)
        if (!slot_free(slot_at(c, i)))
            return false;
    return true;
}

/* Open and map the file; -ENOENT if there is none. */
static int file_open(struct custody *c, const struct custody_spec *spec,
                     struct problem *p)
{
    struct custody_head h;
    uint64_t fit, word, least;
    struct stat st;
    unsigned slots;
    int err;

    c->fd = open(c->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (c->fd < 0)
        return errno == ENOENT ? -ENOENT
                               : custody_problem(p, errno, "open", c->path);
    if (fstat(c->fd, &st) < 0)
        return custody_problem(p, errno, "inspect", c->path);
    if (!S_ISREG(st.st_mode))
        return custody_problem(p, EINVAL, "not a regular file", c->path);
    if (st.st_uid != geteuid()) /* a path may lead elsewhere by now: folder.c */
        return custody_problem(p, EPERM, "of another user", c->path);
    memset(&h, 0, sizeof h);
    if (pread(c->fd, &h, sizeof h, 0) < 0)
        return custody_problem(p, errno, "read", c->path);
    err = custody_head_check(&h, c->path, p);
    if (err)
        return err;
    c->stride = (size_t)h.stride;
    c->body_bytes = (size_t)h.body_bytes;
    /* Round up to 4 KiB, the smallest page of any machine: the file may have
     * been written under a kernel with smaller pages than ours. */
    least = (h.slots * h.stride + FILE_HEAD + 4095) / 4096 * 4096;
    if (h.slots > SLOTS_MAX || (uint64_t)st.st_size < least)
        return problem_set(p, EX_CONFIG, EINVAL,
                           "custody file %s is cut short: %llu bytes where its "
                           "header says %llu; it was left untouched: move it "
                           "away to start with a new one",
                           c->path, (unsigned long long)st.st_size,
                           (unsigned long long)least);
    /* The number of slots has no check sum, because it grows. If a slot behind
     * that number holds a message, the number is wrong, and the size of the
     * file gives the number instead. A crash while slots are appended leaves
     * only FREE slots behind the last slot. */
    slots = h.slots;
    fit = ((uint64_t)st.st_size - FILE_HEAD) / h.stride;
    for (uint64_t i = h.slots; i < fit && fit <= SLOTS_MAX; i++)
        if (pread(c->fd, &word, sizeof word,
                  (off_t)(FILE_HEAD + h.stride * i)) == sizeof word &&
            word != 0) /* slot_free */
            slots = (unsigned)fit;
    err = file_map(c, slots, spec);
    return err ? custody_problem(p, -err, "map", c->path) : 0;
}

/* Finish what a dead owner had begun in its slots. Called on the engine's
 * thread, before any slot is acquired. */
static void slots_resolve(struct custody *c)
{
    for (unsigned i = 0; i < c->head->slots; i++) {
        struct slot *slot = slot_at(c, i);

        if (!slot_free(slot) && !slot_damage(slot, c->body_bytes))
            slot_resolve(slot, &c->fill, c->body_bytes);
    }
}

/* ---- the same messages in another file ---- */

/* Create a complete new file at `temp`, on disk. Its first slots are copies of
 * all slots of `old` (may be NULL) that are not FREE. The bytes after a message
 * are the fill of the new file. RECEIVING slots were resolved before. */
static int copy_made(const char *temp, const struct custody_head *h,
                     const struct custody *old, struct problem *p)
{
    uint64_t whole = custody_file_bytes(h->stride, h->slots);
    size_t bytes = (size_t)whole, next = 0;
    unsigned char *map;
    int fd = -1, err = whole > MAPPING_MAX
                           ? custody_problem(p, ENOMEM, "make", temp)
                           : file_create_whole(temp, h, &fd, p);

    FAULT_POINT("custody_rebuild_created");
    if (err || !old) {
        if (!err)
            close(fd);
        return err;
    }
    map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    err = map == MAP_FAILED ? errno : 0;
    close(fd);
    if (err)
        return custody_problem(p, err, "rebuild", temp);
    for (unsigned i = 0; i < old->head->slots; i++) {
        struct slot *from = slot_at(old, i);
        struct slot *to =
            (struct slot *)(void *)(map + FILE_HEAD + (size_t)h->stride * next);
        uint32_t length = atomic_load(&from->length);

        if (slot_free(from))
            continue;
        memcpy(to, from, SLOT_HEADER);
        /* A damaged slot may have any length: copy at most a whole body. */
        to->dirty =
            length < old->body_bytes ? length : (uint32_t)old->body_bytes;
        memcpy(to->body, from->body, to->dirty);
        next++;
    }
    FAULT_POINT("custody_rebuild_copied");
    if (msync(map, bytes, MS_SYNC) < 0)
        err = errno;
    munmap(map, bytes);
    return err ? custody_problem(p, err, "rebuild", temp) : 0;
}

/* Copy the messages to a file with another geometry or place.
 * The file is completed and synced beside `path`, then renamed: a crash before
 * the rename leaves the old file at `path`, a crash after it the new one, and
 * never a mixture. The new file keeps the random number of `old`, because that
 * number marks handlers that may still be running. */
static int file_rebuild(struct custody *old, const char *path,
                        const struct custody_spec *spec, uint64_t next_seq,
                        struct problem *p)
{
    char temp[PATH_MAX];
    struct custody_head h;
    unsigned slots = old && !custody_empty(old) ? old->head->slots : 0;
    int err;

    if (snprintf(temp, sizeof temp, "%s.new", path) >= (int)sizeof temp)
        return custody_problem(p, ENAMETOOLONG, "name", path);
    custody_head_make(&h, spec->body_bytes,
                      slots > spec->slots ? slots : spec->slots, next_seq,
                      old ? old->head->nonce : 0);
    if (old) { /* a torn file stays torn, a clean one clean */
        h.clean = old->head->clean;
        h.boot_time = old->head->boot_time;
        memcpy(h.boot_id, old->head->boot_id, sizeof h.boot_id);
        h.owner_sum = old->head->owner_sum;
        h.store = old->head->store;
    }
    err = copy_made(temp, &h, old, p);
    FAULT_POINT("custody_rebuild_before_rename");
    if (!err && rename(temp, path) < 0)
        err = custody_problem(p, errno, "rebuild", path);
    FAULT_POINT("custody_rebuild_after_rename");
    if (err) {
        unlink(temp);
        return err;
    }
    strlcpy(temp, path, sizeof temp);
    (void)file_parent(temp);
    (void)folder_sync(temp); /* the data is safe under one name or the other */
    return 0;
}

/* ---- open and close ---- */

/* Make the file fit the spec. A file that does not fit is rebuilt and opened
 * again. Called by custody_open. */
static int geometry_fit(struct custody *c, const struct custody_spec *spec,
                        struct problem *p)
{
    bool busy = !custody_empty(c);
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
        slots_resolve(c);
    }
    err = file_rebuild(c, c->path, &room, c->head->next_seq, p);
    if (err)
        return err;
    file_close(c);
    return file_open(c, spec, p);
}

int custody_open(struct custody **out, const char *path,
                 const struct custody_spec *spec, struct problem *p)
{
    /* calloc(3) does not align as `fill` needs it. */
    struct custody *c = aligned_alloc(_Alignof(struct custody), sizeof *c);
    struct boot now, then;
    struct statfs disk;
    long type;
    int err;

    *out = NULL;
    if (!c)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    memset(c, 0, sizeof *c);
    c->fd = -1;
    strlcpy(c->path, path, sizeof c->path);
    pthread_mutex_init(&c->size_mtx, NULL);
    pthread_mutex_init(&c->mtx, NULL);
    if (spec->aside)
        strlcpy(c->aside, spec->aside, sizeof c->aside);
    err = file_open(c, spec, p);
    if (err == -ENOENT) {
        err = file_rebuild(NULL, path, spec, 1, p);
        if (!err)
            err = file_open(c, spec, p);
    } else if (!err) {
        err = geometry_fit(c, spec, p);
    }
    if (!err && c->head) { /* set if and only if !err */
        slot_fill_init(&c->fill, c->head->nonce);
        boot_now(&now);
        then.time = c->head->boot_time;
        memcpy(then.id, c->head->boot_id, sizeof then.id);
        then.id[BOOT_ID - 1] = '\0';
        /* A torn file stays torn until custody_fix. */
        c->torn = !c->head->clean && !boot_same(&now, &then);
        /* Mark the file as in use, on disk, before the first message. Otherwise
         * a power cut could bring back an older file that says "clean" and
         * holds slots of finished messages. */
        if (c->head->clean) {
            custody_head_claim(c->head, &now);
            FAULT_POINT("custody_in_use_before_sync");
            if (msync(c->base, FILE_HEAD, MS_SYNC) < 0)
                err = custody_problem(p, errno, "sync", c->path);
        }
        if (!err && c->head->slots < spec->slots)
            err = custody_grow(c, spec->slots, p);
    }
    if (err) {
        custody_unmake(c);
        return err;
    }
    type = fstatfs(c->fd, &disk) == 0 ? (long)disk.f_type : 0;
    if (fs_kind(type) != FS_MEMORY) { /* an unknown type counts as a disk */
        fs_type_text(type, c->disk);
        c->doubtful = fs_kind(type) == FS_DOUBTFUL;
    }
    pages_ready(c, 0);
    *out = c;
    return 0;
}

/* Crash before the mark: the next start recovers as after a kill. A file that
 * is still torn keeps its old boot id, so that the next start finds it torn,
 * too. */
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
    custody_unmake(c);
}

/* Make room in the free list for that many slots. The caller holds mtx, or is
 * the only thread. */
static int free_room(struct custody *c, unsigned slots)
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

/* Append slots. The caller holds size_mtx.
 * Crash before the number of slots is raised: the file is longer than its
 * header says, which the next open allows. Slots in use do not move, because
 * pages that are mapped already are not mapped again. */
static int grow_locked(struct custody *c, unsigned slots, struct problem *p)
{
    unsigned had = c->head->slots;
    size_t bytes = (size_t)custody_file_bytes(c->stride, slots);
    size_t from = c->mapped;
    int err;

    if (slots <= had)
        return 0;
    if (slots > c->slots_most)
        return problem_set(p, EX_USAGE, ENOSPC,
                           "custody file %s: %u slots are more than the %u "
                           "that room was reserved for at start",
                           c->path, slots, c->slots_most);
    err = slots_allocate(c->fd, c->path, c->stride, had, slots, p);
    if (err)
        return err;
    err = slots_write(c->fd, c->stride, &c->fill, had, slots);
    FAULT_POINT("custody_grow_written");
    if (err)
        return custody_problem(p, -err, "grow", c->path);
    if (bytes > from) {
        if (mmap(c->base + from, bytes - from, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED, c->fd, (off_t)from) == MAP_FAILED)
            return custody_problem(p, errno, "map", c->path);
        c->mapped = bytes;
        pages_ready(c, from);
    }
    pthread_mutex_lock(&c->mtx);
    err = free_room(c, slots);
    if (!err) {
        FAULT_POINT("custody_grow_before_number");
        c->head->slots = slots;
        FAULT_POINT("custody_grow_after_number");
        for (unsigned i = had; c->recovered && i < slots; i++)
            c->free[c->free_count++] = slot_at(c, i);
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
    if (c->free_count > 0)
        slot = c->free[--c->free_count];
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
    const unsigned char *at = (const unsigned char *)slot;

    return (unsigned)((size_t)(at - c->base - FILE_HEAD) / c->stride);
}

/* Compare two slots by receive sequence, for qsort(3). */
static int seq_compare(const void *a, const void *b)
{
    const struct slot *x = *(struct slot *const *)a;
    const struct slot *y = *(struct slot *const *)b;

    return (x->seq > y->seq) - (x->seq < y->seq);
}

size_t custody_busy(struct custody *c, struct slot **busy)
{
    size_t n = 0;

    for (unsigned i = 0; i < c->head->slots; i++)
        if (!slot_free(slot_at(c, i)))
            busy[n++] = slot_at(c, i);
    qsort(busy, n, sizeof(struct slot *), seq_compare);
    return n;
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

uint64_t custody_store(const struct custody *c)
{
    return c->head->store;
}

/* Crash before the store's number is stored: some slots name no row any more,
 * and the next start unlinks the other slots. Crash after it: no slot names a
 * row of the old store. */
void custody_bind(struct custody *c, uint64_t store)
{
    if (c->head->store == store)
        return;
    for (unsigned i = 0; c->head->store != 0 && i < c->head->slots; i++)
        slot_unlink(slot_at(c, i));
    FAULT_POINT("custody_bind_before_number");
    atomic_signal_fence(memory_order_seq_cst);
    c->head->store = store;
    FAULT_POINT("custody_bind_after_number");
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

const char *custody_path(const struct custody *c)
{
    return c->path;
}

size_t custody_bytes_unlocked(const struct custody *c)
{
    return c->locked ? 0 : c->mapped;
}

bool custody_is_unnamed(const struct custody *c)
{
    struct stat now;

    return fstat(c->fd, &now) == 0 && now.st_nlink == 0;
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

/* ---- slots that a dead worker has left ---- */

/* Copy the whole file aside, once, before the first damaged slot is emptied. */
static int copy_aside(struct custody *c, struct problem *p)
{
    int fd;

    if (c->copy[0])
        return 0;
    if (snprintf(c->copy, sizeof c->copy, "%s%s.damaged.%llu",
                 c->aside[0] ? c->aside : c->path,
                 c->aside[0] ? "/custody" : "",
                 (unsigned long long)clock_wall_ns()) >= (int)sizeof c->copy)
        return custody_problem(p, ENAMETOOLONG, "name", c->path);
    fd = file_create(c->copy, c->base, c->mapped);
    if (fd < 0)
        return custody_problem(p, -fd, "copy aside", c->copy);
    close(fd);
    return 0;
}

int custody_recover(struct custody *c, struct problem *p)
{
    struct slot *slot;
    int err;

    if (free_room(c, c->head->slots) < 0)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    FAULT_POINT("custody_recover_before_resolve");
    slots_resolve(c);
    /* Replace an impossible next sequence by 1. It is then raised above the
     * slots here, and above the store by the caller (custody_seq_raise). */
    err = c->head->next_seq > SLOT_SEQ_MAX ? copy_aside(c, p) : 0;
    if (!err && c->head->next_seq > SLOT_SEQ_MAX)
        c->head->next_seq = 1;
    custody_seq_raise(c, 1);
    for (unsigned i = 0; !err && i < c->head->slots; i++) {
        slot = slot_at(c, i);
        if (slot_damage(slot, c->body_bytes)) {
            err = copy_aside(c, p);
            if (err)
                break;
            c->damaged++;
            slot_retire(slot);
        }
        if (slot_free(slot)) {
            slot_scrub(slot, &c->fill, c->body_bytes);
            c->free[c->free_count++] = slot;
        } else {
            /* Use no number twice, even if the header lost its counter. */
            custody_seq_raise(c, slot->seq + 1);
        }
    }
    /* `dirty` of a slot in use may be wrong, so the whole body is filled before
     * the slot is used again. */
    for (unsigned i = 0; !err && i < c->head->slots; i++)
        if (!slot_free(slot_at(c, i)))
            slot_at(c, i)->dirty = (uint32_t)c->body_bytes;
    c->recovered = !err;
    return err;
}

/* A process killed before "clean" is stored lets the next start handle the same
 * slots again. After that store, the slots are on disk as they are now, so the
 * file counts as closed in an orderly way. If the slots cannot be written, the
 * file stays torn. */
void custody_fix(struct custody *c)
{
    struct boot now;

    if (!c->torn || msync(c->base, c->mapped, MS_SYNC) < 0)
        return;
    c->torn = false;
    FAULT_POINT("custody_fix_before_clean");
    c->head->clean = 1;
    boot_now(&now);
    atomic_signal_fence(memory_order_seq_cst);
    custody_head_claim(c->head, &now);
    FAULT_POINT("custody_fix_before_sync");
    (void)msync(c->base, FILE_HEAD, MS_SYNC);
}

unsigned custody_damaged(const struct custody *c, const char **copy)
{
    *copy = c->copy;
    return c->damaged;
}

bool custody_torn(const struct custody *c)
{
    return c->torn;
}
