/* counters.c - the writer's side of the counters file (see counters.h) */
#include "common/state/counters.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/boot_id.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/base/process_stat.h"
#include "common/state/counters_inner.h"

/* lost - from here on the numbers are in memory only; the first reason
 * counts */
static void lost(struct counters *c, const char *what, int err)
{
    if (!c->why[0])
        snprintf(c->why, sizeof c->why, "%s: %s", what, errno_text(err));
}

/* allocate - disk for a part of the file, now
 * A page that is written to for the first time must never find the disk full:
 * that is a SIGBUS. Without the disk the part is memory of our own. */
static void allocate(struct counters *c, size_t from, size_t size)
{
    void *at = c->map + from;
    int err;

    if (c->fd < 0)
        return;
    err = posix_fallocate(c->fd, (off_t)from, (off_t)size);
    if (!err)
        return;
    lost(c, "no room for it", err);
    if (mmap(at, size, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        panic("counters: neither disk nor memory for %zu bytes: %s", size,
              errno_text(errno)); /* what was mapped there may be gone */
}

/* fits - whether an old file can be taken over: of this version and geometry,
 * with all the blocks it speaks of */
static bool fits(int fd, unsigned blocks_max)
{
    struct counters_head h;
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
           pread(fd, &h, sizeof h, 0) == sizeof h &&
           (size_t)st.st_size >= counters_bytes(h.blocks) &&
           h.magic == counters_magic() && h.version == COUNTERS_VERSION &&
           h.head_bytes == COUNTERS_HEAD && h.stride == COUNTERS_STRIDE &&
           h.blocks_max == blocks_max;
}

/* file_ready - the old file, or a new one in its place (*made)
 * A file that does not fit is never changed: a reader may have it mapped. */
static int file_ready(const char *path, unsigned blocks_max, bool *made)
{
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    int fd = open(path, flags);

    if (fd >= 0 && fits(fd, blocks_max))
        return fd;
    if (fd >= 0)
        close(fd);
    if (unlink(path) < 0 && errno != ENOENT)
        return -errno;
    fd = open(path, flags | O_CREAT | O_EXCL, 0600);
    *made = fd >= 0;
    return fd < 0 ? -errno : fd;
}

/* bytes_copy - all of them, on the disk */
static int bytes_copy(int out, int in)
{
    char buf[65536];
    off_t at = 0;
    ssize_t n;
    int err = 0;

    while (!err && (n = read(in, buf, sizeof buf)) != 0) {
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0) {
            err = file_write(out, buf, (size_t)n, at);
            at += n;
        }
    }
    return err ? err : fsync(out) < 0 ? -errno : 0;
}

/* counters_copy - beside it, then renamed: a crash leaves the old one, or none,
 * and the next copy replaces what was begun */
int counters_copy(const char *to, const char *from)
{
    char temp[PATH_MAX];
    int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int out = in < 0 ? -errno : file_create_beside(temp, to, "", 0);
    int err = out < 0 ? out : bytes_copy(out, in);

    if (!err && rename(temp, to) < 0)
        err = -errno;
    if (err && out >= 0)
        unlink(temp);
    if (out >= 0)
        close(out);
    if (in >= 0)
        close(in);
    return err;
}

/* map - the file, or memory where there can be no file
 * Bytes beyond the end of the file are not touched before `allocate` has added
 * them. */
static int map(struct counters *c, const char *path, unsigned blocks_max)
{
    void *at = MAP_FAILED;
    bool made = false;

    c->bytes = counters_bytes(blocks_max);
    c->fd = file_ready(path, blocks_max, &made);
    if (c->fd < 0)
        lost(c, "it cannot be made", -c->fd);
    else
        at = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
    if (at == MAP_FAILED && c->fd >= 0) {
        lost(c, "mmap", errno);
        if (made)
            unlink(path); /* or it would stay, empty */
        close(c->fd);
        c->fd = -1;
    }
    if (at == MAP_FAILED)
        at = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return -ENOMEM;
    c->map = at;
    allocate(c, 0, COUNTERS_BLOCKS);
    return 0;
}

/* is_torn - the machine went down under its worker */
static bool is_torn(const struct counters_head *h)
{
    struct boot now, then = {.time = h->boot_time};

    memcpy(then.id, h->boot_id, sizeof then.id);
    boot_now(&now);
    return !boot_same(&now, &then) &&
           counters_get(&h->gauges[COUNTERS_ENDED_NS]) == 0;
}

/* past_put - two threads get different entries
 * A thread that sleeps here while the others fill the whole ring may spoil the
 * entry of another, which then belongs to no message. */
static void past_put(struct counters *c, uint64_t when, uint64_t id0,
                     uint64_t id1)
{
    struct counters_past *at =
        counters_past(c, atomic_fetch_add_explicit(&counters_head(c)->past_next,
                                                   1, memory_order_relaxed));

    counters_put(&at->when, 0);
    counters_publish(&at->id[0], id0);
    counters_publish(&at->id[1], id1);
    counters_publish(&at->when, when);
}

/* Pack the time and the outcome of a message into one number for the
 * journal. */
static uint64_t when_of(enum counters_end end, uint64_t wall_ns)
{
    if (end <= COUNTERS_DEAD)
        return (wall_ns & ~UINT64_C(3)) | end;
    return (wall_ns & ~UINT64_C(7)) | (end == COUNTERS_CANCELLED ? 4 : 0);
}

void counters_settled(struct counters *c, enum counters_end end,
                      const struct ulid *id, uint64_t wall_ns)
{
    uint64_t half[2];

    memcpy(half, id->bytes, sizeof half);
    past_put(c, when_of(end, wall_ns), half[0], half[1]);
}

/* Add all words of a block to `sum`. */
static void block_add(struct counters_block *sum,
                      const struct counters_block *block)
{
    _Atomic uint64_t *to = (_Atomic uint64_t *)(void *)sum;
    const _Atomic uint64_t *from =
        (const _Atomic uint64_t *)(const void *)block;

    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++)
        counters_put(&to[i], counters_get(&to[i]) + counters_get(&from[i]));
}

/* Add the numbers of the last run, in `used` blocks, to the sums of earlier
 * runs, and clear the blocks. Each number counts once even if the process is
 * killed at any step: until `folds` is odd, the blocks and the old sums count.
 * From then on only the new sums count, and a start that finds `folds` odd
 * continues from there. Readers check `folds` as well. */
static void runs_fold(struct counters *c, unsigned used)
{
    struct counters_head *h = counters_head(c);
    struct counters_block *sum = counters_earlier(c, 1);
    uint64_t folds = counters_get(&h->folds);
    uint64_t received = counters_get(&counters_earlier(c, 0)->received_ns);

    if (folds % 2 == 0) {
        memset((void *)sum, 0, sizeof *sum);
        block_add(sum, counters_earlier(c, 0));
        for (unsigned i = 0; i < used; i++) {
            uint64_t ns = counters_get(&counters_at(c, i)->received_ns);

            block_add(sum, counters_at(c, i));
            received = ns > received ? ns : received;
        }
        /* The ends of a killed worker's handlers were not counted. */
        counters_put(&sum->ended, counters_get(&sum->deliveries));
        counters_put(&sum->longest_ns, 0);
        counters_put(&sum->received_ns, received);
        counters_put(&sum->since_ns, COUNTERS_AWAY);
        counters_publish(&h->folds, ++folds);
        atomic_thread_fence(memory_order_seq_cst);
    }
    for (unsigned i = 0; i < used; i++)
        memset((void *)counters_at(c, i), 0, sizeof(struct counters_block));
    memset((void *)counters_earlier(c, 0), 0, sizeof *sum);
    block_add(counters_earlier(c, 0), sum);
    counters_publish(&h->folds, folds + 1);
}

/* head_write - write the header, with the magic last because a reader checks it
 * first. If the machine went down under the last worker, its journal and
 * numbers may be torn. */
static void head_write(struct counters *c, unsigned blocks_max)
{
    struct counters_head *h = counters_head(c);
    uint32_t used = atomic_load(&h->blocks);
    struct boot now, then = {.time = h->boot_time};
    uint64_t commits;

    if (atomic_load(&h->magic) == counters_magic())
        c->last = (struct counters_last){
            .pid = counters_get(&h->pid),
            .pid_start = counters_get(&h->pid_start),
            .started_ns = counters_get(&h->started_ns),
            .ended_ns = counters_get(&h->gauges[COUNTERS_ENDED_NS])};
    used = used < blocks_max ? used : blocks_max;
    memcpy(then.id, h->boot_id, sizeof then.id);
    boot_now(&now);
    commits =
        boot_same(&now, &then) ? counters_get(&h->gauges[COUNTERS_COMMITS]) : 0;
    for (unsigned i = 0; i < used; i++)
        allocate(c, COUNTERS_BLOCKS + i * COUNTERS_STRIDE, COUNTERS_STRIDE);
    if (is_torn(h) && used > 0)
        memset((void *)counters_past(c, 0), 0,
               COUNTERS_BLOCKS - COUNTERS_HEAD + used * COUNTERS_STRIDE);
    runs_fold(c, used);
    h->version = COUNTERS_VERSION;
    h->head_bytes = COUNTERS_HEAD;
    h->stride = COUNTERS_STRIDE;
    h->blocks_max = blocks_max;
    h->boot_time = now.time;
    memcpy(h->boot_id, now.id, sizeof now.id);
    for (size_t i = 0; i < COUNTERS_GAUGES; i++)
        counters_put(&h->gauges[i], i == COUNTERS_COMMITS ? commits : 0);
    for (size_t i = 0; i < COUNTERS_TEXTS; i++)
        memset((void *)&h->texts[i], 0, sizeof h->texts[i]);
    counters_put(&h->started_ns, clock_wall_ns());
    counters_put(&h->pid_start, process_start_time(getpid()));
    counters_put(&h->pid, (uint64_t)getpid());
    atomic_store_explicit(&h->magic, counters_magic(), memory_order_release);
}

/* counters_open - the file, taken over or new, with block 0 */
int counters_open(struct counters **out, const char *path, unsigned blocks_max)
{
    struct counters *c = calloc(1, sizeof *c);
    int err;

    _Static_assert(COUNTERS_BOOT_ID == BOOT_ID, "the same text");
    *out = NULL;
    if (!c)
        return -ENOMEM;
    pthread_mutex_init(&c->mtx, NULL);
    pthread_mutex_init(&c->rest_mtx, NULL);
    err = map(c, path, blocks_max);
    if (err) {
        counters_close(&c);
        return err;
    }
    head_write(c, blocks_max);
    c->claimed = 0;
    (void)counters_claim(c); /* block 0: counters_rest */
    *out = c;
    return 0;
}

bool counters_give_back(struct counters *c)
{
    struct counters_head *h = counters_head(c);

    if (!c->last.pid)
        return false;
    counters_put(&h->gauges[COUNTERS_ENDED_NS], c->last.ended_ns);
    counters_put(&h->started_ns, c->last.started_ns);
    counters_put(&h->pid_start, c->last.pid_start);
    counters_put(&h->pid, c->last.pid);
    return true;
}

int counters_save(struct counters *c, const char *path)
{
    char temp[PATH_MAX];
    size_t size = counters_bytes(atomic_load(&counters_head(c)->blocks));
    int fd = file_create_beside(temp, path, c->map, size);
    int err = fd < 0 ? fd : 0;

    if (!err && rename(temp, path) < 0)
        err = -errno;
    if (fd >= 0)
        close(fd);
    return err;
}

void counters_close(struct counters **counters)
{
    struct counters *c = *counters;

    if (!c)
        return;
    *counters = NULL;
    if (c->map)
        munmap(c->map, c->bytes);
    if (c->fd >= 0)
        close(c->fd);
    pthread_mutex_destroy(&c->rest_mtx);
    pthread_mutex_destroy(&c->mtx);
    free(c);
}

struct counters_block *counters_rest(struct counters *c)
{
    pthread_mutex_lock(&c->rest_mtx);
    return counters_at(c, 0);
}

void counters_rest_done(struct counters *c)
{
    pthread_mutex_unlock(&c->rest_mtx);
}

/* counters_claim - the next block; one that an earlier worker used is clear */
struct counters_block *counters_claim(struct counters *c)
{
    struct counters_head *h = counters_head(c);
    unsigned i;

    pthread_mutex_lock(&c->mtx);
    i = c->claimed++;
    if (i >= h->blocks_max)
        panic("counters: block %u of %u, more work items than there can be", i,
              h->blocks_max);
    if (i >= atomic_load(&h->blocks)) {
        allocate(c, COUNTERS_BLOCKS + i * COUNTERS_STRIDE, COUNTERS_STRIDE);
        atomic_store_explicit(&h->blocks, i + 1, memory_order_release);
    }
    pthread_mutex_unlock(&c->mtx);
    return counters_at(c, i);
}

const char *counters_private(const struct counters *c)
{
    return c->why[0] ? c->why : NULL;
}

void counters_gauge(struct counters *c, enum counters_gauge which,
                    uint64_t value)
{
    counters_put(&counters_head(c)->gauges[which], value);
}

_Atomic uint64_t *counters_commits(struct counters *c)
{
    return &counters_head(c)->gauges[COUNTERS_COMMITS];
}

/* counters_say - odd while it is written, so that a reader tries again */
void counters_say(struct counters *c, enum counters_text which,
                  const char *text, uint64_t wall_ns)
{
    struct counters_words *w = &counters_head(c)->texts[which];
    uint64_t words[COUNTERS_TEXT / 8] = {0}, seq;

    strlcpy((char *)words, text, sizeof words);
    pthread_mutex_lock(&c->mtx);
    seq = counters_get(&w->seq) | 1;
    counters_put(&w->seq, seq);
    counters_publish(&w->when, wall_ns);
    for (size_t i = 0; i < COUNTERS_TEXT / 8; i++)
        counters_publish(&w->text[i], words[i]);
    counters_publish(&w->seq, seq + 1);
    pthread_mutex_unlock(&c->mtx);
}
