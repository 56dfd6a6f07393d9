/* custody_file.c - the custody file on disk (see custody_file.h)
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
 *       60    4  start of the machine, s since the epoch; 0: not known
 *       64    8  next receive sequence
 *       72   40  boot id of the machine's run that wrote it, text
 *      112    8  check sum of bytes 60..63 and 72..111, if not clean (FNV-1a)
 *     4096       slots
 * Change a row: raise CUSTODY_VERSION.
 */
#include "common/custody/custody_file.h"

#include <byteswap.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/vfs.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/problem.h"
#include "common/custody/custody.h"

#define MAGIC      "MQWCUSTO"
#define SLOT_ALIGN 64
#define SUM_START  UINT64_C(0xcbf29ce484222325)

/* Return the bytes from one slot to the next. */
static size_t stride_of(size_t body_bytes)
{
    return (SLOT_HEADER + body_bytes + SLOT_ALIGN - 1) / SLOT_ALIGN *
           SLOT_ALIGN;
}

size_t custody_file_bytes(size_t stride, unsigned slots)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (FILE_HEAD + stride * slots + page - 1) / page * page;
}

/* Add the bytes of a header from `from` to `to` - 1 to a check sum (FNV-1a). */
static uint64_t sum_add(uint64_t sum, const struct custody_head *h, size_t from,
                        size_t to)
{
    const unsigned char *b = (const unsigned char *)h;

    for (size_t i = from; i < to; i++)
        sum = (sum ^ b[i]) * UINT64_C(0x100000001b3);
    return sum;
}

/* Return the check sum of the fields that never change. */
static uint64_t head_sum(const struct custody_head *h)
{
    uint64_t sum =
        sum_add(SUM_START, h, 0, offsetof(struct custody_head, clean));

    return sum_add(sum, h, offsetof(struct custody_head, body_bytes),
                   offsetof(struct custody_head, sum));
}

/* Return the check sum of the fields that name the file's user. */
static uint64_t owner_sum(const struct custody_head *h)
{
    uint64_t sum =
        sum_add(SUM_START, h, offsetof(struct custody_head, boot_time),
                offsetof(struct custody_head, next_seq));

    return sum_add(sum, h, offsetof(struct custody_head, boot_id),
                   offsetof(struct custody_head, owner_sum));
}

struct boot custody_head_boot(const struct custody_head *h)
{
    struct boot boot = {.time = h->boot_time};

    memcpy(boot.id, h->boot_id, sizeof boot.id);
    boot.id[BOOT_ID - 1] = '\0';
    return boot;
}

/* "In use" is stored last. If the process is killed before that, the file still
 * reads clean, and the run and its sum are not read from a clean file. */
void custody_head_claim(struct custody_head *h, const struct boot *boot)
{
    h->boot_time = boot->time;
    memcpy(h->boot_id, boot->id, sizeof h->boot_id);
    h->owner_sum = owner_sum(h);
    atomic_signal_fence(memory_order_seq_cst);
    FAULT_POINT("custody_claim_before_mark");
    h->clean = 0;
}

void custody_complain(struct problem *p, int err, const char *what,
                      const char *path)
{
    problem_fill(p, EX_CANTCREAT,
                 "custody file %s: %s: %s; %s, or give another --runtime-dir",
                 path, what, errno_text(err),
                 err == ENOSPC ? folder_room(path) : "check the file system");
    problem_limit(p, err);
}

int custody_slots_write(int fd, size_t stride, const struct slot_fill *fill,
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
        err = file_write(fd, image, stride, (off_t)(FILE_HEAD + stride * i));
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
    h->version = CUSTODY_VERSION;
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

/* Report a lack of room, with the arithmetic and what makes it smaller. */
static int no_room(int fd, const char *path, size_t stride, unsigned slots,
                   struct problem *p)
{
    struct statfs s;
    bool known = fstatfs(fd, &s) == 0;

    return problem_set(
        p, EX_CANTCREAT, ENOSPC,
        "custody file %s: %s: %u slots x %zu bytes = %zu bytes are needed, "
        "%llu are free there; %s, or need less: --max-concurrency, --window, "
        "--lookahead, or the message size of the queue",
        path, errno_text(ENOSPC), slots, stride, stride * slots,
        known ? (unsigned long long)s.f_bavail * (unsigned long long)s.f_bsize
              : 0,
        known && fs_type_memory((long)s.f_type)
            ? "make it larger (mount -o remount,size=SIZE), give a larger one "
              "by --runtime-dir"
            : "free some space");
}

/* A page fault later, in the kernel's copy into a slot, must never find the
 * disk or the memory full. On a file system without fallocate(2) the writes
 * that follow allocate the blocks. */
int custody_allocate(int fd, const char *path, size_t stride, unsigned from,
                     unsigned to, struct problem *p)
{
    size_t begin = from ? FILE_HEAD + stride * from : 0;
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

int custody_file_create(const char *path, const struct custody_head *h, int *fd,
                        struct problem *p)
{
    struct slot_fill fill;
    int err;

    slot_fill_init(&fill, h->nonce);
    *fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (*fd < 0)
        return custody_problem(p, errno, "create", path);
    err = custody_allocate(*fd, path, h->stride, 0, h->slots, p);
    if (!err) {
        err = file_write(*fd, h, sizeof *h, 0);
        if (!err)
            err = custody_slots_write(*fd, h->stride, &fill, 0, h->slots);
        if (!err && fsync(*fd) < 0)
            err = -errno;
        if (err == -ENOSPC)
            err = no_room(*fd, path, h->stride, h->slots, p);
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
    if (memcmp(h->magic, MAGIC, sizeof h->magic) != 0)
        return problem_set(p, EX_CONFIG, EINVAL,
                           "%s is not a custody file of mqworker; it was left "
                           "untouched: move it away to start with a new one",
                           path);
    if (h->head_bytes == bswap_32(FILE_HEAD))
        return problem_set(
            p, EX_CONFIG, EINVAL,
            "custody file %s was written on a machine with the other byte "
            "order and was left untouched. Run the worker on such a machine "
            "until the file is empty, or move the file away",
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
    if (h->sum != head_sum(h) || h->clean > 1 ||
        (!h->clean && h->owner_sum != owner_sum(h)) ||
        h->body_bytes > CUSTODY_BODY_MAX ||
        h->stride != stride_of(h->body_bytes))
        return problem_set(p, EX_CONFIG, EINVAL,
                           "the header of custody file %s is damaged (check "
                           "sum); it was left untouched: move it away to "
                           "start with a new one",
                           path);
    return 0;
}

/* The header's number has no check sum, because it grows. It is not believed if
 * it would leave a message out. A crash while slots are appended leaves FREE
 * ones behind the last. */
unsigned custody_slots_there(int fd, const struct custody_head *h, off_t size)
{
    uint64_t fit = ((uint64_t)size - FILE_HEAD) / h->stride;
    uint64_t word;

    for (uint64_t i = h->slots; i < fit && fit <= CUSTODY_SLOTS_MAX; i++)
        if (pread(fd, &word, sizeof word, (off_t)(FILE_HEAD + h->stride * i)) ==
                sizeof word &&
            word != 0) /* slot_free */
            return (unsigned)fit;
    return h->slots;
}
