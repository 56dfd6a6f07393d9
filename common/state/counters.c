/* counters.c - the counters file (see counters.h; the bytes are in
 * counters_file.h) */
#include "common/state/counters.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/process_stat.h"
#include "common/state/counters_file.h"

#define TRIES 100 /* most reads of a text that is being written */

/* The last worker, from the header that it left in the file. */
struct counters_last {
    uint64_t pid, pid_start; /* pid 0: there was none */
    uint64_t started_ns, ended_ns;
};

/* c = constant after open   m = under mtx */
struct counters {
    pthread_mutex_t mtx;       /* of the writer: claims, texts */
    pthread_mutex_t rest_mtx;  /* the writer of block 0 */
    unsigned char *map;        /* c */
    size_t bytes;              /* c  of the mapping */
    int fd;                    /* c  -1: in memory only, or a reader */
    struct counters_last last; /* c  of the writer */
    unsigned claimed;          /* m  blocks of this worker */
    char why[160];             /* m  why there is no file; "": there is one */
};

/* ---- the writer ---- */

/* Note why the numbers are in memory only; keep the first reason. */
static void file_lose(struct counters *c, const char *what, int err)
{
    if (!c->why[0])
        snprintf(c->why, sizeof c->why, "%s: %s", what, errno_text(err));
}

/* Allocate disk for a part of the file now: a page that is written to for the
 * first time must never find the disk full, because that is a SIGBUS. If the
 * disk is full, the part becomes private memory. */
static void part_allocate(struct counters *c, size_t from, size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t to = (from + size + page - 1) / page * page;
    int err;

    /* Parts are multiples of 4 KiB, and pages may be larger. The page in which
     * a part begins was allocated with the previous part. */
    from = (from + page - 1) / page * page;
    if (c->fd < 0 || from >= to)
        return;
    size = to - from;
    err = posix_fallocate(c->fd, (off_t)from, (off_t)size);
    if (!err)
        return;
    file_lose(c, "cannot allocate disk space", err);
    if (mmap(c->map + from, size, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        panic("counters: neither disk nor memory for %zu bytes: %s", size,
              errno_text(errno)); /* the old mapping may be gone */
}

/* Open the old file, or create a new one in its place (*made). A file that does
 * not fit is never changed, because a reader may have it mapped. */
static int file_ready(const char *path, unsigned blocks_max, bool *made)
{
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    int fd = open(path, flags);
    struct counters_head h;
    struct stat st;

    /* Take the old file over if it has this version and geometry, and all the
     * blocks that its header counts. */
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
        pread(fd, &h, sizeof h, 0) == sizeof h &&
        (uint64_t)st.st_size >= counters_bytes(h.blocks) &&
        h.magic == counters_magic() &&
        h.version == (COUNTERS_VERSION | FILE_MACHINE) &&
        h.head_bytes == COUNTERS_HEAD && h.stride == COUNTERS_STRIDE &&
        h.blocks_max == blocks_max)
        return fd;
    fd_close(&fd);
    if (unlink(path) < 0 && errno != ENOENT)
        return -errno;
    fd = open(path, flags | O_CREAT | O_EXCL, 0600);
    *made = fd >= 0;
    return fd < 0 ? -errno : fd;
}

/* Map a whole file for reading. */
static int counters_map(struct counters *c, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), err = 0;
    struct stat st;
    void *at;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0)
        err = -errno;
    else if (!S_ISREG(st.st_mode) || st.st_size < COUNTERS_HEAD)
        err = -EINVAL;
    if (!err) {
        at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED) {
            err = -errno;
        } else {
            c->map = at;
            c->bytes = (size_t)st.st_size;
        }
    }
    close(fd);
    return err;
}

int counters_copy(const char *to, const char *from)
{
    struct counters c = {0};
    int err = counters_map(&c, from);

    if (err)
        return err;
    err = file_replace(to, c.map, c.bytes);
    munmap(c.map, c.bytes);
    return err;
}

/* Each call writes an entry of its own in the journal, which is a ring. If a
 * thread sleeps here while others fill the whole ring, its entry may mix with a
 * newer one and then belongs to no message. The low bits of the time tell how
 * the message ended. */
void counters_settled(struct counters *c, enum counters_end end,
                      const struct ulid *id, uint64_t wall_ns)
{
    struct counters_past *at = counters_past(
        c->map, atomic_fetch_add_explicit(&counters_head(c->map)->past_next, 1,
                                          memory_order_relaxed));
    uint64_t half[2], when = (wall_ns & ~UINT64_C(3)) | end;

    if (end > COUNTERS_DEAD)
        when = (wall_ns & ~UINT64_C(7)) | (end == COUNTERS_CANCELLED ? 4 : 0);
    memcpy(half, id->bytes, sizeof half);
    counters_put(&at->when, 0);
    counters_publish(&at->id[0], half[0]);
    counters_publish(&at->id[1], half[1]);
    counters_publish(&at->when, when);
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
    struct counters_head *h = counters_head(c->map);
    struct counters_block *sum = counters_earlier(c->map, 1);
    uint64_t folds = counters_get(&h->folds);
    uint64_t received = counters_get(&counters_earlier(c->map, 0)->received_ns);

    if (folds % 2 == 0) {
        memset((void *)sum, 0, sizeof *sum);
        block_add(sum, counters_earlier(c->map, 0));
        for (unsigned i = 0; i < used; i++) {
            uint64_t ns = counters_get(&counters_at(c->map, i)->received_ns);

            block_add(sum, counters_at(c->map, i));
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
        memset((void *)counters_at(c->map, i), 0,
               sizeof(struct counters_block));
    memset((void *)counters_earlier(c->map, 0), 0, sizeof *sum);
    block_add(counters_earlier(c->map, 0), sum);
    counters_publish(&h->folds, folds + 1);
}

/* Write the header, with the magic last because a reader checks it first. If
 * the machine went down under the last worker, clear its journal and numbers,
 * which may be torn. */
static void head_write(struct counters *c, unsigned blocks_max)
{
    struct counters_head *h = counters_head(c->map);
    uint32_t used = atomic_load(&h->blocks);
    struct boot now, then = {.time = h->boot_time};
    uint64_t commits;
    bool rebooted;

    if (atomic_load(&h->magic) == counters_magic())
        c->last = (struct counters_last){
            .pid = counters_get(&h->pid),
            .pid_start = counters_get(&h->pid_start),
            .started_ns = counters_get(&h->started_ns),
            .ended_ns = counters_get(&h->gauges[COUNTERS_ENDED_NS])};
    used = used < blocks_max ? used : blocks_max;
    memcpy(then.id, h->boot_id, sizeof then.id);
    boot_now(&now);
    rebooted = !boot_same(&now, &then);
    commits = rebooted ? 0 : counters_get(&h->gauges[COUNTERS_COMMITS]);
    for (unsigned i = 0; i < used; i++)
        part_allocate(c, COUNTERS_BLOCKS + i * COUNTERS_STRIDE,
                      COUNTERS_STRIDE);
    if (rebooted && counters_get(&h->gauges[COUNTERS_ENDED_NS]) == 0 &&
        used > 0)
        memset((void *)counters_past(c->map, 0), 0,
               COUNTERS_BLOCKS - COUNTERS_HEAD + used * COUNTERS_STRIDE);
    runs_fold(c, used);
    h->version = COUNTERS_VERSION | FILE_MACHINE;
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

int counters_open(struct counters **out, const char *path, unsigned blocks_max)
{
    const uint64_t bytes = counters_bytes(blocks_max);
    struct counters *c = bytes <= SIZE_MAX / 2 ? calloc(1, sizeof *c) : NULL;
    void *at = MAP_FAILED;
    bool made = false;

    *out = NULL;
    if (!c)
        return -ENOMEM;
    pthread_mutex_init(&c->mtx, NULL);
    pthread_mutex_init(&c->rest_mtx, NULL);
    /* Map the file, or memory if there can be no file. Bytes beyond the end of
     * the file are not touched before part_allocate has added them. */
    c->bytes = (size_t)bytes;
    c->fd = file_ready(path, blocks_max, &made);
    if (c->fd < 0)
        file_lose(c, "cannot create the file", -c->fd);
    else
        at = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
    if (at == MAP_FAILED && c->fd >= 0) {
        file_lose(c, "mmap", errno);
        if (made)
            unlink(path); /* otherwise an empty file would stay */
        close(c->fd);
        c->fd = -1;
    }
    if (at == MAP_FAILED)
        at = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        counters_close(&c);
        return -ENOMEM;
    }
    c->map = at;
    part_allocate(c, 0, COUNTERS_BLOCKS);
    head_write(c, blocks_max);
    (void)counters_claim(c); /* claims block 0, for counters_rest */
    *out = c;
    return 0;
}

bool counters_give_back(struct counters *c)
{
    struct counters_head *h = counters_head(c->map);

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
    struct counters_head *h = counters_head(c->map);

    return file_replace(path, c->map,
                        (size_t)counters_bytes(atomic_load(&h->blocks)));
}

void counters_close(struct counters **counters)
{
    struct counters *c = *counters;

    if (!c)
        return;
    *counters = NULL;
    if (c->map)
        munmap(c->map, c->bytes);
    fd_close(&c->fd);
    pthread_mutex_destroy(&c->rest_mtx);
    pthread_mutex_destroy(&c->mtx);
    free(c);
}

struct counters_block *counters_rest(struct counters *c)
{
    pthread_mutex_lock(&c->rest_mtx);
    return counters_at(c->map, 0);
}

void counters_rest_done(struct counters *c)
{
    pthread_mutex_unlock(&c->rest_mtx);
}

/* A block that an earlier worker used was cleared by runs_fold. */
struct counters_block *counters_claim(struct counters *c)
{
    struct counters_head *h = counters_head(c->map);
    unsigned i;

    pthread_mutex_lock(&c->mtx);
    i = c->claimed++;
    if (i >= h->blocks_max)
        panic("counters: block %u of %u, more work items than there can be", i,
              h->blocks_max);
    if (i >= atomic_load(&h->blocks)) {
        part_allocate(c, COUNTERS_BLOCKS + i * COUNTERS_STRIDE,
                      COUNTERS_STRIDE);
        atomic_store_explicit(&h->blocks, i + 1, memory_order_release);
    }
    pthread_mutex_unlock(&c->mtx);
    return counters_at(c->map, i);
}

const char *counters_private(const struct counters *c)
{
    return c->why[0] ? c->why : NULL;
}

void counters_gauge(struct counters *c, enum counters_gauge which,
                    uint64_t value)
{
    counters_put(&counters_head(c->map)->gauges[which], value);
}

_Atomic uint64_t *counters_commits(struct counters *c)
{
    return &counters_head(c->map)->gauges[COUNTERS_COMMITS];
}

/* The sequence is odd while the text is written, so that a reader tries
 * again. */
void counters_say(struct counters *c, enum counters_text which,
                  const char *text, uint64_t wall_ns)
{
    struct counters_words *w = &counters_head(c->map)->texts[which];
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

/* ---- readers ---- */

int counters_attach(struct counters **out, const char *path, struct problem *p)
{
    struct counters *c = calloc(1, sizeof *c);
    const struct counters_head *h;
    const char *machine;
    int err;

    *out = NULL;
    if (!c)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    c->fd = -1;
    pthread_mutex_init(&c->mtx, NULL);
    pthread_mutex_init(&c->rest_mtx, NULL);
    err = counters_map(c, path);
    if (err == -EINVAL)
        problem_fill(p, EX_CANTCREAT,
                     "counters file %s: no worker has written it yet, "
                     "because none has taken messages",
                     path);
    else if (err)
        problem_fill(p, err == -EACCES ? EX_NOPERM : EX_CANTCREAT,
                     err == -ENOENT ? "no counters yet (%s: %s): no worker of "
                                      "this version has run here"
                                    : "counters file %s: %s; run as the owner "
                                      "of the file",
                     path, errno_text(-err));
    h = err ? NULL : counters_head(c->map);
    if (!err && atomic_load_explicit(&h->magic, memory_order_acquire) !=
                    counters_magic())
        err = problem_set(p, EX_CONFIG, EINVAL,
                          "counters file %s: not a complete counters file; "
                          "the worker creates a new one when it starts",
                          path);
    else if (!err &&
             (machine = file_foreign(h->version, h->head_bytes, COUNTERS_HEAD)))
        err = problem_set(p, EX_CONFIG, EPROTO,
                          "counters file %s: written by a worker on a machine "
                          "with %s; use the mqctl of that machine, or start "
                          "the worker here: it replaces the file",
                          path, machine);
    else if (!err &&
             (h->version != (COUNTERS_VERSION | FILE_MACHINE) ||
              h->head_bytes != COUNTERS_HEAD || h->stride != COUNTERS_STRIDE))
        err = problem_set(p, EX_CONFIG, EPROTO,
                          "counters file %s: version %u, this program reads "
                          "version %d; use the mqctl of the worker's release, "
                          "or start the worker of this one",
                          path, h->version ^ FILE_MACHINE, COUNTERS_VERSION);
    else if (!err && c->bytes < COUNTERS_BLOCKS)
        err = problem_set(p, EX_CONFIG, EINVAL,
                          "counters file %s: cut short; the worker creates a "
                          "new one when it starts",
                          path);
    if (err) {
        counters_close(&c);
        return err;
    }
    *out = c;
    return 0;
}

/* Read a text. If the writer changes the text meanwhile, read again; after
 * TRIES reads the text is "". Returns the wall time of the text. */
static uint64_t text_read(const struct counters_words *w,
                          char out[COUNTERS_TEXT])
{
    uint64_t words[COUNTERS_TEXT / 8], when, seq;

    for (int i = 0; i < TRIES; i++) {
        seq = counters_read(&w->seq);
        when = counters_read(&w->when);
        for (size_t k = 0; k < COUNTERS_TEXT / 8; k++)
            words[k] = counters_read(&w->text[k]);
        if (seq % 2 == 0 && counters_get(&w->seq) == seq) {
            memcpy(out, words, COUNTERS_TEXT);
            out[COUNTERS_TEXT - 1] = '\0';
            return when;
        }
    }
    out[0] = '\0';
    return 0;
}

void counters_header(const struct counters *c, struct counters_header *out)
{
    const struct counters_head *h = counters_head(c->map);

    out->pid = (pid_t)counters_get(&h->pid);
    out->pid_start = counters_get(&h->pid_start);
    out->started_ns = counters_get(&h->started_ns);
    memcpy(out->boot_id, h->boot_id, sizeof out->boot_id);
    out->boot_id[sizeof out->boot_id - 1] = '\0';
    for (size_t i = 0; i < COUNTERS_GAUGES; i++)
        out->gauges[i] = counters_get(&h->gauges[i]);
    for (size_t i = 0; i < COUNTERS_TEXTS; i++)
        out->text_ns[i] = text_read(&h->texts[i], out->texts[i]);
}

/* Add a block to a sum. Read `ended` before `deliveries`, so that `ended` is
 * never larger than `deliveries`. */
static void block_sum(struct counters_sum *s, const struct counters_block *b)
{
    uint64_t ended = counters_read(&b->ended);
    uint64_t deliveries = counters_get(&b->deliveries);
    uint64_t longest = counters_get(&b->longest_ns);

    s->deliveries += deliveries;
    s->ended += ended;
    s->running += deliveries > ended ? deliveries - ended : 0;
    s->items += counters_get(&b->since_ns) != COUNTERS_AWAY;
    s->took_ns += counters_get(&b->took_ns);
    if (s->longest_ns < longest)
        s->longest_ns = longest;
    if (s->received_ns < counters_get(&b->received_ns))
        s->received_ns = counters_get(&b->received_ns);
    s->done += counters_get(&b->done);
    s->retried += counters_get(&b->retried);
    s->discarded += counters_get(&b->discarded);
    s->dead += counters_get(&b->dead);
    s->expired += counters_get(&b->expired);
    s->crashes += counters_get(&b->crashes);
    s->removed += counters_get(&b->removed);
    s->duplicates += counters_get(&b->duplicates);
    s->hooks_failed += counters_get(&b->hooks_failed);
}

/* Add the blocks to each of the sums that are not NULL, with `earlier` also the
 * earlier runs. If a worker starts meanwhile and folds its blocks (runs_fold),
 * read again. */
static void blocks_add(const struct counters *c, bool earlier,
                       struct counters_sum *sum, struct histogram_sum *handler,
                       struct histogram_sum *latency)
{
    const struct counters_head *h = counters_head(c->map);
    size_t room = (c->bytes - COUNTERS_BLOCKS) / COUNTERS_STRIDE;
    uint64_t folds;

    do {
        unsigned n, first;

        folds = counters_read(&h->folds);
        /* Count only blocks inside the mapping. */
        n = atomic_load_explicit(&h->blocks, memory_order_acquire);
        n = n < room ? n : (unsigned)room;
        /* While `folds` is odd, the sums already include the blocks. */
        first = earlier && folds % 2 ? n : 0;
        if (sum)
            *sum = (struct counters_sum){.blocks = n};
        if (handler)
            memset(handler, 0, sizeof *handler);
        if (latency)
            memset(latency, 0, sizeof *latency);
        for (unsigned i = first; i < n + earlier; i++) {
            const struct counters_block *b =
                i < n ? counters_at(c->map, i)
                      : counters_earlier(c->map, folds % 2);

            if (sum)
                block_sum(sum, b);
            if (handler)
                histogram_sum(handler, &b->handler);
            if (latency)
                histogram_sum(latency, &b->latency);
        }
        atomic_thread_fence(memory_order_acquire);
    } while (earlier && counters_read(&h->folds) != folds);
}

void counters_sum(const struct counters *c, bool earlier,
                  struct counters_sum *out)
{
    blocks_add(c, earlier, out, NULL, NULL);
}

void counters_histograms(const struct counters *c, bool earlier,
                         struct histogram_sum *handler,
                         struct histogram_sum *latency)
{
    blocks_add(c, earlier, NULL, handler, latency);
}

bool counters_find(const struct counters *c, const struct ulid *id,
                   enum counters_end *end, uint64_t *wall_ns)
{
    uint64_t want[2], half[2], when, newest = 0;

    memcpy(want, id->bytes, sizeof want);
    for (size_t k = 0; k < COUNTERS_JOURNAL; k++) {
        const struct counters_past *at = counters_past(c->map, k);

        when = counters_read(&at->when); /* 0: empty, or being written */
        half[0] = counters_read(&at->id[0]);
        half[1] = counters_read(&at->id[1]);
        if (when > newest && counters_get(&at->when) == when &&
            half[0] == want[0] && half[1] == want[1])
            newest = when;
    }
    *end = newest == 0    ? COUNTERS_NO_END
           : newest & 3   ? (enum counters_end)(newest & 3)
           : (newest & 4) ? COUNTERS_CANCELLED
                          : COUNTERS_DUPLICATE;
    *wall_ns = newest & (newest & 3 ? ~UINT64_C(3) : ~UINT64_C(7));
    return newest != 0;
}

/* ---- histograms ---- */

uint64_t histogram_low(unsigned bucket)
{
    unsigned shift;

    if (bucket < 2 * HISTOGRAM_PART)
        return bucket;
    shift = bucket / HISTOGRAM_PART - 1;
    return (uint64_t)(bucket % HISTOGRAM_PART + HISTOGRAM_PART) << shift;
}

void histogram_sum(struct histogram_sum *into, const struct histogram *h)
{
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        uint64_t n = atomic_load_explicit(&h->count[i], memory_order_relaxed);

        into->count[i] += n;
        into->total += n;
    }
}

/* Use 0 for a count that is lower than before, because the worker restarted. */
void histogram_since(struct histogram_sum *out,
                     const struct histogram_sum *later,
                     const struct histogram_sum *earlier)
{
    uint64_t total = 0;

    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        uint64_t a = earlier->count[i], b = later->count[i];

        out->count[i] = b > a ? b - a : 0;
        total += out->count[i];
    }
    out->total = total;
}

/* Return the upper end of the bucket in which the fraction `q` is reached, so
 * at least this fraction of the durations is no longer. */
uint64_t histogram_quantile(const struct histogram_sum *s, double q)
{
    double want = q * (double)s->total;
    uint64_t seen = 0;

    if (s->total == 0)
        return 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += s->count[i];
        if (s->count[i] && (double)seen >= want)
            return histogram_low(i + 1) - 1;
    }
    return histogram_low(HISTOGRAM_BUCKETS);
}

uint64_t histogram_upto(const struct histogram_sum *s, uint64_t ns)
{
    uint64_t n = 0;

    for (unsigned i = 0;
         i < HISTOGRAM_BUCKETS && histogram_low(i + 1) - 1 <= ns; i++)
        n += s->count[i];
    return n;
}
