/* custody.c - the file of slots that hold messages in flight (see custody.h)
 *
 * The file (host byte order; it never leaves the machine):
 *   offset size
 *        0    8  magic "MQWCUSTO"
 *        8    4  version (CUSTODY_VERSION)
 *       12    4  bytes of this header (4096)
 *       16    4  bytes of a slot's header (128)
 *       20    4  1: closed in an orderly way, 0: in use or killed
 *       24    8  bytes of a body
 *       32    8  bytes from one slot to the next
 *       40    8  random number of the file
 *       48    8  check sum of bytes 0..19 and 24..47 (FNV-1a)
 *       56    4  number of slots
 *       60    4  unused
 *       64    8  next receive sequence
 *       72   40  boot id of the machine's run that wrote it, text
 *     4096       slots
 * Change a row: raise CUSTODY_VERSION, keep reading the old one.
 */
#include "common/custody.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
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

#include "common/clock.h"

#define MAGIC      "MQWCUSTO"
#define FILE_HEAD  4096
#define BOOT_ID    40
#define SLOT_ALIGN 64

struct file_head {
    char magic[8];
    uint32_t version;
    uint32_t head_bytes;
    uint32_t slot_head_bytes;
    uint32_t clean;
    uint64_t body_bytes;
    uint64_t stride;
    uint64_t nonce;
    uint64_t sum;
    uint32_t slots;
    uint32_t unused;
    uint64_t next_seq;
    char boot_id[BOOT_ID];
};
_Static_assert(offsetof(struct file_head, body_bytes) == 24, "custody format");
_Static_assert(offsetof(struct file_head, sum) == 48, "custody format");
_Static_assert(offsetof(struct file_head, boot_id) == 72, "custody format");

/* c = constant after open   e = engine only   m = under mtx */
struct custody {
    char path[PATH_MAX];    /* c */
    char copy[PATH_MAX];    /* e  damaged file, copied aside; "" none */
    int fd;                 /* c */
    unsigned char *base;    /* c  reserved address space, file mapped at 0 */
    size_t reserved;        /* c  bytes */
    size_t mapped;          /* e  bytes */
    struct file_head *head; /* c  in the mapping */
    struct slot_fill fill;  /* c */
    size_t stride;          /* c */
    size_t body_bytes;      /* c */
    bool torn;              /* c */
    bool locked;            /* e */
    bool recovered;         /* e  free list is filled */
    unsigned damaged;       /* e */
    const char *fs;         /* c */
    pthread_mutex_t mtx;
    struct slot **free;          /* m  stack */
    _Atomic unsigned free_count; /* m  read without the lock as a hint */
    unsigned free_room;          /* m */
};

/* page_round - up to whole pages */
static size_t page_round(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (n + page - 1) / page * page;
}

/* stride_of - bytes from slot to slot */
static size_t stride_of(size_t body_bytes)
{
    return (SLOT_HEADER + body_bytes + SLOT_ALIGN - 1) / SLOT_ALIGN *
           SLOT_ALIGN;
}

/* file_bytes - size of a file with that geometry */
static size_t file_bytes(size_t stride, unsigned slots)
{
    return page_round(FILE_HEAD + stride * slots);
}

/* head_sum - FNV-1a over what never changes in a file's life */
static uint64_t head_sum(const struct file_head *h)
{
    const unsigned char *b = (const unsigned char *)h;
    uint64_t sum = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < offsetof(struct file_head, sum); i++) {
        if (i >= offsetof(struct file_head, clean) &&
            i < offsetof(struct file_head, body_bytes))
            continue;
        sum = (sum ^ b[i]) * UINT64_C(0x100000001b3);
    }
    return sum;
}

/* boot_id_read - this run of the machine; "" where the kernel does not tell */
static void boot_id_read(char out[BOOT_ID])
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

    memset(out, 0, BOOT_ID);
    if (!f)
        return;
    if (fgets(out, BOOT_ID, f))
        out[strcspn(out, "\n")] = '\0';
    fclose(f);
}

/* slot_at - slot number i */
static struct slot *slot_at(const struct custody *c, unsigned i)
{
    return (struct slot *)(void *)(c->base + FILE_HEAD + c->stride * i);
}

/* io_problem - what stood in the way of a file */
static int io_problem(struct problem *p, int err, const char *what,
                      const char *path)
{
    return problem_set(p, EX_CANTCREAT, err, "custody file %s: %s: %s%s", path,
                       what, strerror(err),
                       err == ENOSPC
                           ? "; free some space, or give another --state-dir"
                           : "; check the file system, or give another "
                             "--state-dir");
}

/* write_all - pwrite until all is out */
static int write_all(int fd, const void *data, size_t size, off_t at)
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

/* slots_write - FREE, filled slots from..to-1 and the rest of the last page
 * Writing allocates each block now; a page fault later, in the kernel's copy
 * into a slot, must never find the disk full.
 */
static int slots_write(int fd, size_t stride, const struct slot_fill *fill,
                       unsigned from, unsigned to)
{
    size_t body = stride - SLOT_HEADER;
    unsigned char *image = calloc(1, stride);
    unsigned char zero[SLOT_ALIGN] = {0};
    int err = image ? 0 : -ENOMEM;
    size_t end = FILE_HEAD + stride * to;

    if (image)
        slot_scrub((struct slot *)(void *)image, fill, body);
    for (unsigned i = from; i < to && !err; i++)
        err = write_all(fd, image, stride, (off_t)(FILE_HEAD + stride * i));
    for (; end < file_bytes(stride, to) && !err; end += sizeof zero)
        err = write_all(fd, zero, sizeof zero, (off_t)end);
    free(image);
    return err;
}

/* head_make - the header of a new file */
static void head_make(struct file_head *h, size_t body_bytes, unsigned slots,
                      uint64_t next_seq)
{
    memset(h, 0, sizeof *h);
    memcpy(h->magic, MAGIC, sizeof h->magic);
    h->version = CUSTODY_VERSION;
    h->head_bytes = FILE_HEAD;
    h->slot_head_bytes = SLOT_HEADER;
    h->body_bytes = body_bytes;
    h->stride = stride_of(body_bytes);
    if (getrandom(&h->nonce, sizeof h->nonce, 0) != sizeof h->nonce)
        h->nonce = clock_wall_ns() ^ (uint64_t)getpid() << 32;
    h->sum = head_sum(h);
    h->slots = slots;
    h->next_seq = next_seq;
    boot_id_read(h->boot_id);
}

/* file_create - a complete new file at `path`, on the disk when it returns 0 */
static int file_create(const char *path, const struct file_head *h, int *fd)
{
    struct slot_fill fill;
    int err;

    slot_fill_init(&fill, h->nonce);
    *fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (*fd < 0)
        return -errno;
    err = write_all(*fd, h, sizeof *h, 0);
    if (!err)
        err = slots_write(*fd, h->stride, &fill, 0, h->slots);
    if (!err && fsync(*fd) < 0)
        err = -errno;
    if (err) {
        unlink(path);
        close(*fd);
        *fd = -1;
    }
    return err;
}

/* head_check - a header that we can work with, or a problem */
static int head_check(const struct file_head *h, const char *path,
                      struct problem *p)
{
    if (memcmp(h->magic, MAGIC, sizeof h->magic) != 0)
        return problem_set(p, EX_CONFIG, EINVAL,
                           "%s is no custody file of mqworker; it was left "
                           "untouched: move it away to start with a new one",
                           path);
    if (h->version != CUSTODY_VERSION || h->head_bytes != FILE_HEAD ||
        h->slot_head_bytes != SLOT_HEADER)
        return problem_set(p, EX_CONFIG, EINVAL,
                           "custody file %s is of version %u (layout %u/%u), "
                           "this mqworker reads version %u (%u/%u); it was "
                           "left untouched: run the version that wrote it "
                           "until it is empty, or move it away",
                           path, h->version, h->head_bytes, h->slot_head_bytes,
                           CUSTODY_VERSION, FILE_HEAD, SLOT_HEADER);
    if (h->sum != head_sum(h) || h->body_bytes > CUSTODY_BODY_MAX ||
        h->stride != stride_of(h->body_bytes))
        return problem_set(p, EX_CONFIG, EINVAL,
                           "the header of custody file %s is damaged (check "
                           "sum); it was left untouched: move it away to "
                           "start with a new one",
                           path);
    return 0;
}

/* file_map - reserve room for slots_max, map what is there */
static int file_map(struct custody *c, unsigned slots_max)
{
    size_t bytes = file_bytes(c->stride, c->head->slots);
    size_t most = file_bytes(c->stride, slots_max);
    void *at;

    c->reserved = most > bytes ? most : bytes;
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
    return 0;
}

/* pages_ready - take the write faults now, and keep the pages if we may */
static void pages_ready(struct custody *c, size_t from)
{
    /* Both are best effort: the blocks are allocated, so that a later fault
     * can be served as well, only more slowly. */
    (void)madvise(c->base + from, c->mapped - from, MADV_POPULATE_WRITE);
    c->locked = mlock(c->base, c->mapped) == 0;
}

/* fs_doubt - file systems whose pages cannot be relied on (statfs(2)) */
static const char *fs_doubt(int fd)
{
    static const struct {
        unsigned long magic;
        const char *name;
    } known[] = {
        {0x9123683E, "btrfs"}, {0x2FC12FC1, "zfs"},   {0xCA451A4E, "bcachefs"},
        {0x6969, "nfs"},       {0xFF534D42, "cifs"},  {0xFE534D42, "smb2"},
        {0x01021997, "9p"},    {0x65735546, "fuse"},  {0x00C36400, "ceph"},
        {0x19830326, "fhgfs"}, {0x7461636f, "ocfs2"},
    };
    struct statfs s;

    if (fstatfs(fd, &s) < 0)
        return NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if ((unsigned long)s.f_type == known[i].magic)
            return known[i].name;
    return NULL;
}

/* slots_busy - whether any record in the mapped file is not FREE */
static bool slots_busy(const struct custody *c)
{
    for (unsigned i = 0; i < c->head->slots; i++)
        if (slot_word(slot_at(c, i)).state != SLOT_FREE)
            return true;
    return false;
}

/* cut_short - a file with fewer bytes than its header says */
static int cut_short(struct custody *c, uint64_t size, struct problem *p)
{
    return problem_set(p, EX_CONFIG, EINVAL,
                       "custody file %s is cut short: %llu bytes where its "
                       "header says %zu; it was left untouched: move it away "
                       "to start with a new one",
                       c->path, (unsigned long long)size,
                       file_bytes(c->stride, c->head->slots));
}

/* existing_open - open and check the file that is there; -ENOENT if none */
static int existing_open(struct custody *c, unsigned slots_max,
                         struct problem *p)
{
    struct file_head h;
    struct stat st;
    int err;

    c->fd = open(c->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (c->fd < 0)
        return errno == ENOENT ? -ENOENT
                               : io_problem(p, errno, "open", c->path);
    if (fstat(c->fd, &st) < 0 || !S_ISREG(st.st_mode))
        return io_problem(p, EINVAL, "not a regular file", c->path);
    memset(&h, 0, sizeof h);
    if (pread(c->fd, &h, sizeof h, 0) < 0)
        return io_problem(p, errno, "read", c->path);
    err = head_check(&h, c->path, p);
    if (err)
        return err;
    c->head = &h;
    c->stride = h.stride;
    c->body_bytes = h.body_bytes;
    if (h.slots > (1u << 24) ||
        (uint64_t)st.st_size < file_bytes(c->stride, h.slots)) {
        err = cut_short(c, (uint64_t)st.st_size, p);
        c->head = NULL;
        return err;
    }
    err = file_map(c, slots_max);
    if (err) {
        c->head = NULL;
        return io_problem(p, -err, "map", c->path);
    }
    return 0;
}

/* existing_close - forget a file that is to be replaced */
static void existing_close(struct custody *c)
{
    if (c->base)
        munmap(c->base, c->reserved);
    if (c->fd >= 0)
        close(c->fd);
    c->base = NULL;
    c->head = NULL;
    c->fd = -1;
}

/* dir_sync - a rename in the file's folder is on the disk */
static void dir_sync(const char *path)
{
    char dir[PATH_MAX];
    char *slash;
    int fd;

    strlcpy(dir, path, sizeof dir);
    slash = strrchr(dir, '/');
    if (!slash)
        return;
    *slash = '\0';
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fsync(fd); /* the data is safe under one name or the other */
    close(fd);
}

/* slot_move - copy a slot into a file that has another fill and larger bodies
 * What follows the message is fill of the new file. A RECEIVING slot was
 * resolved before. A damaged one may have any length; `room` is what it had.
 */
static void slot_move(struct slot *to, const struct slot *from, size_t room)
{
    uint32_t length = atomic_load_explicit(&from->length, memory_order_relaxed);
    size_t n = length < room ? length : room;

    memcpy(to, from, SLOT_HEADER);
    to->dirty = (uint32_t)n;
    memcpy(to->body, from->body, n);
}

/* rebuild - the same messages in a file with other geometry
 * `old` NULL: nothing to carry over. Built complete beside the old file, on the
 * disk, then renamed over it: a crash before the rename leaves the old file,
 * after it the new one, and never a mixture.
 */
static int rebuild(const struct custody *old, const char *path,
                   const struct custody_spec *spec, uint64_t next_seq,
                   struct problem *p)
{
    char temp[PATH_MAX];
    struct file_head h;
    unsigned slots = spec->slots, next = 0;
    unsigned char *map = NULL;
    size_t bytes;
    int fd = -1, err;

    if (snprintf(temp, sizeof temp, "%s.new", path) >= (int)sizeof temp)
        return io_problem(p, ENAMETOOLONG, "name", path);
    if (old && old->head->slots > slots)
        slots = old->head->slots;
    head_make(&h, spec->body_bytes, slots, next_seq);
    if (old) /* a torn or clean file stays one */
        memcpy(h.boot_id, old->head->boot_id, sizeof h.boot_id);
    h.clean = old ? old->head->clean : 1;
    err = file_create(temp, &h, &fd);
    if (err)
        return io_problem(p, -err, "create", temp);
    bytes = file_bytes(h.stride, slots);
    if (old) {
        map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        err = map == MAP_FAILED ? -errno : 0;
    }
    for (unsigned i = 0; old && !err && i < old->head->slots; i++) {
        struct slot *from = slot_at(old, i);

        if (slot_word(from).state == SLOT_FREE)
            continue;
        slot_move((struct slot *)(void *)(map + FILE_HEAD + h.stride * next++),
                  from, old->body_bytes);
    }
    if (old && !err && msync(map, bytes, MS_SYNC) < 0)
        err = -errno;
    if (map && map != MAP_FAILED)
        munmap(map, bytes);
    if (!err && rename(temp, path) < 0)
        err = -errno;
    close(fd);
    if (err) {
        unlink(temp);
        return io_problem(p, -err, "rebuild", path);
    }
    dir_sync(path);
    return 0;
}

/* resolve_all - no slot is RECEIVING any more */
static void resolve_all(struct custody *c)
{
    for (unsigned i = 0; i < c->head->slots; i++) {
        struct slot *slot = slot_at(c, i);

        if (slot_word(slot).state == SLOT_RECEIVING &&
            !slot_damage(slot, c->body_bytes))
            slot_resolve(slot, &c->fill, c->body_bytes);
    }
}

/* geometry_fit - make the file fit the spec; reopens it when it was replaced */
static int geometry_fit(struct custody *c, const struct custody_spec *spec,
                        struct problem *p)
{
    bool busy = slots_busy(c);
    bool small = c->body_bytes < spec->body_bytes;
    bool other =
        c->body_bytes != spec->body_bytes || c->head->slots > spec->slots_max;
    int err;

    if (!small && !(other && !busy))
        return 0;
    if (busy) {
        slot_fill_init(&c->fill, c->head->nonce);
        resolve_all(c);
    }
    err = rebuild(busy ? c : NULL, c->path, spec, c->head->next_seq, p);
    if (err)
        return err;
    existing_close(c);
    return existing_open(c, spec->slots_max, p);
}

/* in_use - mark the file as ours, on the disk, before the first message
 * Were it not on the disk, a power cut could bring back an older file that
 * says "clean" with slots that were long since done. The boot id goes first: a
 * kill in between leaves "clean", where "in use" by another boot is torn.
 */
static int in_use(struct custody *c, struct problem *p)
{
    char now[BOOT_ID];

    boot_id_read(now);
    c->torn =
        !c->head->clean && strncmp(now, c->head->boot_id, sizeof now) != 0;
    if (c->torn) /* stays so until custody_recover has dealt with the slots */
        return 0;
    if (c->head->clean || c->head->boot_id[0] == '\0') {
        memcpy(c->head->boot_id, now, sizeof now);
        atomic_signal_fence(memory_order_seq_cst);
        c->head->clean = 0;
        if (msync(c->base, FILE_HEAD, MS_SYNC) < 0)
            return io_problem(p, errno, "sync", c->path);
    }
    return 0;
}

/* custody_open - open or create, and make it fit */
int custody_open(struct custody **out, const char *path,
                 const struct custody_spec *spec, struct problem *p)
{
    struct custody *c = calloc(1, sizeof *c);
    int err;

    *out = NULL;
    if (!c)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    c->fd = -1;
    strlcpy(c->path, path, sizeof c->path);
    pthread_mutex_init(&c->mtx, NULL);
    err = existing_open(c, spec->slots_max, p);
    if (err == -ENOENT) {
        err = rebuild(NULL, path, spec, 1, p);
        if (!err)
            err = existing_open(c, spec->slots_max, p);
    } else if (!err) {
        err = geometry_fit(c, spec, p);
    }
    if (!err) {
        slot_fill_init(&c->fill, c->head->nonce);
        err = in_use(c, p);
    }
    if (!err && c->head->slots < spec->slots)
        err = custody_grow(c, spec->slots, p);
    if (err) {
        existing_close(c);
        pthread_mutex_destroy(&c->mtx);
        free(c);
        return err;
    }
    c->fs = fs_doubt(c->fd);
    pages_ready(c, 0);
    *out = c;
    return 0;
}

/* custody_close - on the disk, marked clean
 * Crash before the mark: the next start recovers as after a kill. A file that
 * is torn still keeps its old boot id, for the next start to deal with.
 */
void custody_close(struct custody **custody)
{
    struct custody *c = *custody;

    if (!c)
        return;
    *custody = NULL;
    if (c->recovered && !c->torn &&
        msync(c->base, c->mapped, MS_SYNC) == 0) {
        c->head->clean = 1;
        (void)msync(c->base, FILE_HEAD, MS_SYNC);
    }
    existing_close(c);
    pthread_mutex_destroy(&c->mtx);
    free(c->free);
    free(c);
}

/* free_room_for - the stack of free slots can hold all */
static int free_room_for(struct custody *c, unsigned slots)
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

/* custody_grow - append slots
 * Crash before the number is raised: the file is longer than its header says,
 * which the next open allows. Slots in use stay where they are: the pages that
 * are mapped already are not mapped again.
 */
int custody_grow(struct custody *c, unsigned slots, struct problem *p)
{
    unsigned had = c->head->slots;
    size_t bytes = file_bytes(c->stride, slots);
    int err;

    if (slots <= had)
        return 0;
    if (bytes > c->reserved)
        return problem_set(p, EX_USAGE, ENOSPC,
                           "custody file %s: %u slots are more than the %zu "
                           "bytes reserved at start",
                           c->path, slots, c->reserved);
    err = slots_write(c->fd, c->stride, &c->fill, had, slots);
    if (err)
        return io_problem(p, -err, "grow", c->path);
    if (bytes > c->mapped &&
        mmap(c->base + c->mapped, bytes - c->mapped, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED, c->fd, (off_t)c->mapped) == MAP_FAILED)
        return io_problem(p, errno, "map", c->path);
    if (bytes > c->mapped) {
        size_t from = c->mapped;

        c->mapped = bytes;
        pages_ready(c, from);
    }
    pthread_mutex_lock(&c->mtx);
    err = free_room_for(c, slots);
    if (!err) {
        c->head->slots = slots;
        for (unsigned i = had; c->recovered && i < slots; i++)
            c->free[c->free_count++] = slot_at(c, i);
    }
    pthread_mutex_unlock(&c->mtx);
    return err ? problem_set(p, EX_OSERR, ENOMEM, "out of memory") : 0;
}

/* copy_aside - the whole file beside itself, before a record is given up */
static int copy_aside(struct custody *c, struct problem *p)
{
    int fd, err;

    if (c->copy[0])
        return 0;
    if (snprintf(c->copy, sizeof c->copy, "%s.damaged.%llu", c->path,
                 (unsigned long long)clock_wall_ns()) >= (int)sizeof c->copy)
        return io_problem(p, ENAMETOOLONG, "name", c->path);
    fd = open(c->copy, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return io_problem(p, errno, "create", c->copy);
    err = write_all(fd, c->base, c->mapped, 0);
    if (!err && fsync(fd) < 0)
        err = -errno;
    close(fd);
    if (err) {
        unlink(c->copy);
        return io_problem(p, -err, "copy aside", c->copy);
    }
    return 0;
}

/* by_seq - receive order */
static int by_seq(const void *a, const void *b)
{
    const struct slot *x = *(struct slot *const *)a;
    const struct slot *y = *(struct slot *const *)b;

    return (x->seq > y->seq) - (x->seq < y->seq);
}

/* sort_out - free slots to the free list, others to `busy`; damaged set aside */
static int sort_out(struct custody *c, struct slot **busy, size_t *n,
                    struct problem *p)
{
    for (unsigned i = 0; i < c->head->slots; i++) {
        struct slot *slot = slot_at(c, i);
        int err = 0;

        if (slot_damage(slot, c->body_bytes)) {
            err = copy_aside(c, p);
            if (err)
                return err;
            c->damaged++;
            slot_retire(slot);
        }
        if (slot_word(slot).state == SLOT_FREE) {
            slot_scrub(slot, &c->fill, c->body_bytes);
            c->free[c->free_count++] = slot;
        } else {
            busy[(*n)++] = slot;
            /* A header that lost its counter must not give numbers twice. */
            custody_seq_raise(c, slot->seq + 1);
        }
    }
    return 0;
}

/* custody_recover - hand out what the last worker left, in receive order */
int custody_recover(struct custody *c,
                    void (*visit)(struct slot *slot, void *arg), void *arg,
                    struct problem *p)
{
    struct slot **busy = calloc(c->head->slots, sizeof(struct slot *));
    size_t n = 0;
    int err;

    if (!busy || free_room_for(c, c->head->slots) < 0) {
        free(busy);
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    }
    resolve_all(c);
    err = sort_out(c, busy, &n, p);
    if (!err) {
        qsort(busy, n, sizeof(struct slot *), by_seq);
        for (size_t i = 0; i < n; i++)
            visit(busy[i], arg);
        c->recovered = true;
    }
    free(busy);
    return err;
}

/* custody_mend - what was torn was dealt with
 * Crash before it, or in the middle of the boot id: the next start deals with
 * the same slots again.
 */
void custody_mend(struct custody *c)
{
    char now[BOOT_ID];

    if (!c->torn)
        return;
    c->torn = false;
    boot_id_read(now);
    memcpy(c->head->boot_id, now, sizeof now);
    (void)msync(c->base, c->mapped, MS_SYNC);
}

/* custody_acquire - take a free slot */
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

/* custody_release - give it back */
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

uint64_t custody_seq_next(const struct custody *c)
{
    return c->head->next_seq;
}

void custody_seq_used(struct custody *c)
{
    c->head->next_seq++;
}

void custody_seq_raise(struct custody *c, uint64_t least)
{
    if (c->head->next_seq < least)
        c->head->next_seq = least;
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

uint64_t custody_nonce(const struct custody *c)
{
    return c->head->nonce;
}

const char *custody_file_system(const struct custody *c)
{
    return c->fs;
}

bool custody_locked(const struct custody *c)
{
    return c->locked;
}

unsigned custody_slots(const struct custody *c)
{
    return c->head->slots;
}

size_t custody_body_bytes(const struct custody *c)
{
    return c->body_bytes;
}

const struct slot_fill *custody_fill(const struct custody *c)
{
    return &c->fill;
}
