/* ends.c - the file of finished messages whose rows are still in the spool (see
 * ends.h)
 *
 *   0   8  "MQWENDS1"
 *   8   8  the number of the file (ends_run), which the store has too
 *  16  48  unused
 *  64   8  a key, ENDS_MOST times; 0: none
 *
 * The keys are a ring. Its beginning and end are only in memory; the next
 * process starts with all keys that it finds. A key is written by one aligned
 * store to memory, so a kill never leaves it half written (Intel SDM 3A, 9.1.1;
 * C11 atomics elsewhere). Stores to a mapped file survive the process, but not
 * the machine.
 */
#include "common/custody/ends.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/fault_point.h"
#include "common/base/file.h"
#include "common/custody/slot.h"

#define MAGIC "MQWENDS1"

struct ends_file {
    char magic[8];
    _Atomic uint64_t run;
    uint8_t unused[48];
    _Atomic int64_t keys[ENDS_MOST];
};
_Static_assert(offsetof(struct ends_file, keys) == 64, "format of ends");

/* m = under mtx   c = constant after open */
struct ends {
    struct ends_file *file; /* c */
    pthread_mutex_t mtx;
    uint64_t head, tail;  /* m  where the next key goes; the oldest key */
    _Atomic size_t count; /* m  read by any thread */
    char path[PATH_MAX];  /* c */
};

static int refuse(struct problem *p, int err, const char *path)
{
    if (err == EPROTO)
        return problem_set(p, EX_CONFIG, EPROTO,
                           "%s was written by another version of mqworker and "
                           "was left untouched: run that version and mqctl "
                           "drain; or move the file away, which marks all "
                           "messages in the spool as redelivered",
                           path);
    return problem_set(p, EX_CANTCREAT, err,
                       "%s: %s; make room there, or give another --runtime-dir",
                       path, errno_text(err));
}

/* Return true if another version of mqworker wrote the file: the version is the
 * last byte of the magic. */
static bool is_foreign(int fd)
{
    char magic[sizeof MAGIC - 1];

    return pread(fd, magic, sizeof magic, 0) == (ssize_t)sizeof magic &&
           memcmp(magic, MAGIC, sizeof magic - 1) == 0 &&
           memcmp(magic, MAGIC, sizeof magic) != 0;
}

int ends_open(struct ends **out, const char *path, struct problem *p)
{
    struct ends *e = calloc(1, sizeof *e);
    int fd, err;

    *out = NULL;
    if (!e)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    /* Allocate the whole file now: a store to a page for which the file system
     * has no room would be a SIGBUS. */
    err = fd < 0           ? errno
          : is_foreign(fd) ? EPROTO
                           : posix_fallocate(fd, 0, sizeof *e->file);
    if (!err) {
        e->file = mmap(NULL, sizeof *e->file, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_POPULATE, fd, 0);
        err = e->file == MAP_FAILED ? errno : 0;
    }
    fd_close(&fd);
    if (err) {
        free(e);
        return refuse(p, err, path);
    }
    strlcpy(e->path, path, sizeof e->path);
    pthread_mutex_init(&e->mtx, NULL);
    if (memcmp(e->file->magic, MAGIC, sizeof e->file->magic) != 0)
        ends_reset(e, 0);
    /* The keys of the last process may have gaps of 0 between them: count up to
     * the last key. */
    for (uint64_t i = 0; i < ENDS_MOST; i++)
        if (atomic_load(&e->file->keys[i]) != 0)
            e->head = i + 1;
    atomic_store(&e->count, (size_t)e->head);
    *out = e;
    return 0;
}

int ends_known(const char *path, struct problem *p)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool other = fd >= 0 && is_foreign(fd);

    fd_close(&fd);
    return other ? refuse(p, EPROTO, path) : 0;
}

void ends_close(struct ends **ends, bool remove)
{
    struct ends *e = *ends;

    if (!e)
        return;
    *ends = NULL;
    if (remove)
        (void)unlink(e->path);
    munmap(e->file, sizeof *e->file);
    pthread_mutex_destroy(&e->mtx);
    free(e);
}

uint64_t ends_run(const struct ends *e)
{
    return atomic_load(&e->file->run);
}

/* Crash before the number is stored: the number is 0, and the spool takes the
 * file for a new one. */
void ends_reset(struct ends *e, uint64_t run)
{
    atomic_store(&e->file->run, 0);
    memcpy(e->file->magic, MAGIC, sizeof e->file->magic);
    for (size_t i = 0; i < ENDS_MOST; i++)
        atomic_store_explicit(&e->file->keys[i], 0, memory_order_relaxed);
    e->head = e->tail = 0;
    atomic_store(&e->count, 0);
    atomic_store(&e->file->run, run);
}

/* Crash before the key is stored: the slot is RUNNING, and the message runs
 * again, marked as redelivered. Between the key and the slot: recovery finds
 * the key and frees the slot. After both: the key stays until its row is
 * deleted. */
size_t ends_put(struct ends *e, int64_t key, struct slot *slot)
{
    size_t n = 0;

    pthread_mutex_lock(&e->mtx);
    if (e->head - e->tail < ENDS_MOST) {
        atomic_store_explicit(&e->file->keys[e->head++ % ENDS_MOST], key,
                              memory_order_release);
        FAULT_POINT("spool_end_noted");
        slot_retire(slot);
        n = atomic_fetch_add(&e->count, 1) + 1;
    }
    pthread_mutex_unlock(&e->mtx);
    return n;
}

/* A gap between keys (ends_open) is returned as key 0, which no message has. */
size_t ends_peek(struct ends *e, int64_t *keys, size_t room)
{
    size_t n;

    pthread_mutex_lock(&e->mtx);
    n = (size_t)(e->head - e->tail);
    n = n < room ? n : room;
    for (size_t i = 0; i < n; i++)
        keys[i] = atomic_load(&e->file->keys[(e->tail + i) % ENDS_MOST]);
    pthread_mutex_unlock(&e->mtx);
    return n;
}

/* Crash before the keys are dropped: their rows are deleted once more, which
 * changes nothing. */
void ends_drop(struct ends *e, size_t n)
{
    pthread_mutex_lock(&e->mtx);
    for (size_t i = 0; i < n; i++)
        atomic_store_explicit(&e->file->keys[e->tail++ % ENDS_MOST], 0,
                              memory_order_release);
    atomic_fetch_sub(&e->count, n);
    pthread_mutex_unlock(&e->mtx);
}

size_t ends_count(const struct ends *e)
{
    return atomic_load(&e->count);
}

bool ends_has(struct ends *e, int64_t key)
{
    bool has = false;

    pthread_mutex_lock(&e->mtx);
    for (uint64_t i = e->tail; i != e->head && !has; i++)
        has = atomic_load(&e->file->keys[i % ENDS_MOST]) == key;
    pthread_mutex_unlock(&e->mtx);
    return has;
}

/* The file is read, not mapped, so that a short file causes no SIGBUS. */
int ends_look(const char *path, uint64_t run, int64_t keys[ENDS_MOST])
{
    const ssize_t size = ENDS_MOST * (ssize_t)sizeof *keys;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), n = 0;
    unsigned char head[offsetof(struct ends_file, keys)];
    uint64_t number;

    if (fd < 0)
        return -errno;
    if (pread(fd, head, sizeof head, 0) != (ssize_t)sizeof head ||
        pread(fd, keys, (size_t)size, sizeof head) != size)
        n = -ENOENT;
    close(fd);
    memcpy(&number, head + offsetof(struct ends_file, run), sizeof number);
    if (n < 0 || run == 0 || number != run ||
        memcmp(head, MAGIC, sizeof((struct ends_file *)0)->magic) != 0)
        return -ENOENT;
    for (size_t i = 0; i < ENDS_MOST; i++)
        if (keys[i] != 0)
            keys[n++] = keys[i];
    return n;
}
