/* store_wal.c - the store's -wal, judged before SQLite recovers (store_wal.h)
 *
 * The format is section 4 of sqlite.org/fileformat2.html; all big-endian:
 *
 *   header    0 magic, its last bit: checksums are of big-endian words
 *             4 version   8 page size   12 how often it was begun anew
 *            16 salt, 8 bytes   24 checksum of 0..23, 8 bytes
 *   frame     0 page number   4 pages of the file if this ends a commit, or 0
 *             8 salt   16 checksum of the header, all frames before this one,
 *             and of this one its bytes 0..7 and the page   24 the page
 *
 * SQLite writes a frame after the other, of each first the 24 bytes and then
 * the page, and syncs at each commit. So behind the first frame that is wrong
 *   - a kill leaves no commit: it was writing that frame;
 *   - a power cut leaves the commit that was not synced, at most;
 *   - what was rolled back ends in no commit, and older frames have other
 *     salts.
 * A commit too large for the cache is the exception: its pages are written
 * again in place, and its checksums after the last frame. A cache of 512 KiB
 * (store_sql.c) is never full with less than SPILL frames.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/store/store_wal.h"

#define FRAME_HEAD 24
#define MAGIC      0x377f0682u
#define SPILL      64
#define PAGES_MAX  (1u << 28) /* a store of 1 TiB: such a number is none */

struct wal {
    int fd;
    bool big;
    bool this_boot; /* nobody cut the power since it was written */
    size_t page;
    uint64_t bytes, frames;
    uint32_t begun;
    unsigned char salt[8];
    uint32_t sum[2]; /* up to the last frame that is right */
    unsigned char *frame;
};

static uint32_t big_at(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
           p[3];
}

static uint32_t little_at(const unsigned char *p)
{
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 |
           p[0];
}

/* sum_add - SQLite's checksum goes on over `size` bytes, a multiple of 8 */
static void sum_add(uint32_t sum[2], const unsigned char *data, size_t size,
                    bool big)
{
    for (size_t i = 0; i < size; i += 8) {
        sum[0] += (big ? big_at(data + i) : little_at(data + i)) + sum[1];
        sum[1] +=
            (big ? big_at(data + i + 4) : little_at(data + i + 4)) + sum[0];
    }
}

static bool sum_is(const uint32_t sum[2], const unsigned char *stored)
{
    return sum[0] == big_at(stored) && sum[1] == big_at(stored + 4);
}

/* read_at - all of it, or -errno */
static int read_at(int fd, void *data, size_t size, uint64_t at)
{
    unsigned char *to = data;
    while (size > 0) {
        ssize_t n = pread(fd, to, size, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        to += n;
        size -= (size_t)n;
        at += (uint64_t)n;
    }
    return 0;
}

/* frame_at - where frame `n` begins, from 1 */
static uint64_t frame_at(const struct wal *w, uint64_t n)
{
    return STORE_WAL_HEAD + (n - 1) * (FRAME_HEAD + w->page);
}

/* ---- a frame's header ---- */

static bool is_current(const struct wal *w, const unsigned char *frame)
{
    return memcmp(frame + 8, w->salt, sizeof w->salt) == 0;
}

static bool is_commit(const unsigned char *frame)
{
    return big_at(frame + 4) != 0;
}

/* is_alien - SQLite cannot have written this, in no age of the file */
static bool is_alien(const unsigned char *frame)
{
    return big_at(frame) == 0 || big_at(frame) > PAGES_MAX;
}

/* ---- the file ---- */

/* head_read - whether the header is right; 1, 0 or -errno */
static int head_read(struct wal *w)
{
    unsigned char head[STORE_WAL_HEAD];
    int err = read_at(w->fd, head, sizeof head, 0);
    if (err)
        return err;
    w->big = big_at(head) & 1;
    w->page = big_at(head + 8);
    w->begun = big_at(head + 12);
    memcpy(w->salt, head + 16, sizeof w->salt);
    sum_add(w->sum, head, 24, w->big);
    if ((big_at(head) & ~1u) != MAGIC || !sum_is(w->sum, head + 24))
        return 0;
    if (w->page < 512 || w->page > 65536 || (w->page & (w->page - 1)) != 0)
        return 0;
    w->frames = (w->bytes - STORE_WAL_HEAD) / (FRAME_HEAD + w->page);
    return 1;
}

/* good_read - all frames that SQLite takes; the first that it does not take
 * is left in w->frame and out->bad. `commit`: the last one that ends a commit;
 * `chained`: but for its salt, SQLite would take that frame, too. */
static int good_read(struct wal *w, struct store_wal *out, uint64_t *commit,
                     bool *chained)
{
    out->bad = 0;
    for (uint64_t n = 1; n <= w->frames; n++) {
        uint32_t sum[2] = {w->sum[0], w->sum[1]};
        int err =
            read_at(w->fd, w->frame, FRAME_HEAD + w->page, frame_at(w, n));
        if (err)
            return err;
        sum_add(sum, w->frame, 8, w->big);
        sum_add(sum, w->frame + FRAME_HEAD, w->page, w->big);
        *chained = sum_is(sum, w->frame + 16);
        if (!*chained || !is_current(w, w->frame) || !big_at(w->frame)) {
            out->bad = n;
            break;
        }
        memcpy(w->sum, sum, sizeof sum);
        if (is_commit(w->frame))
            *commit = n;
    }
    out->keep = frame_at(w, *commit + 1);
    return 0;
}

struct rest {
    uint64_t commits; /* with the salts of now */
    uint64_t first;   /* frame of the first one */
    bool alien;       /* the next frame is none */
};

/* rest_read - the headers behind the frame that is wrong */
static int rest_read(const struct wal *w, uint64_t bad, struct rest *rest)
{
    for (uint64_t n = bad + 1; n <= w->frames; n++) {
        unsigned char head[FRAME_HEAD];
        int err = read_at(w->fd, head, sizeof head, frame_at(w, n));
        if (err)
            return err;
        if (n == bad + 1)
            rest->alien = is_alien(head);
        if (!is_current(w, head) || !is_commit(head))
            continue;
        rest->first = rest->commits++ ? rest->first : n;
    }
    return 0;
}

/* cut_at_end - the last frame of a file that only grew: it was written whole
 * Of a file that was begun anew it may be a header in front of an old page. */
static bool cut_at_end(const struct wal *w, uint64_t bad)
{
    return w->begun == 0 && bad == w->frames &&
           w->bytes == frame_at(w, bad + 1);
}

/* damage - whether neither a kill nor a power cut leaves it so
 * The frame that is wrong is in w->frame. */
static bool damage(const struct wal *w, const struct store_wal *out,
                   uint64_t commit, bool chained, const struct rest *rest)
{
    const unsigned char *bad = w->frame;
    if ((chained && is_commit(bad)) || out->commits >= 2)
        return true;
    if (!w->this_boot)
        return false;
    if (rest->commits > 0)
        return rest->first - commit <= SPILL;
    if (is_alien(bad) || rest->alien)
        return true;
    return is_current(w, bad) && is_commit(bad) && cut_at_end(w, out->bad) &&
           out->bad - commit <= SPILL;
}

/* wal_judge - out of an open file */
static int wal_judge(struct wal *w, struct store_wal *out)
{
    uint64_t commit = 0;
    bool chained = false;
    struct rest rest = {0};
    int err = head_read(w);
    if (err <= 0) {
        out->damaged = err == 0; /* it is synced before the first frame */
        return err;
    }
    w->frame = malloc(FRAME_HEAD + w->page);
    if (!w->frame)
        return -ENOMEM;
    out->frames = w->frames;
    err = good_read(w, out, &commit, &chained);
    if (!err && out->bad)
        err = rest_read(w, out->bad, &rest);
    if (!err && out->bad) {
        bool own = (chained || is_current(w, w->frame)) && is_commit(w->frame);
        out->commits = rest.commits + own;
        out->damaged = damage(w, out, commit, chained, &rest);
    }
    free(w->frame);
    return err;
}

/* this_boot - whether `t` is between the start of the machine and now
 * A clock that was wrong at the time says no: then less can be told. */
static bool this_boot(const struct timespec *t)
{
    struct timespec up;
    uint64_t at = (uint64_t)t->tv_sec * NS_PER_S + (uint64_t)t->tv_nsec;
    uint64_t now = clock_wall_ns();
    clock_gettime(CLOCK_BOOTTIME, &up);
    uint64_t ran = (uint64_t)up.tv_sec * NS_PER_S + (uint64_t)up.tv_nsec;
    return at <= now && now - at <= ran;
}

/* store_wal_read - judge a file; O_NONBLOCK: it may be none */
int store_wal_read(struct store_wal *out, const char *path)
{
    struct wal w = {0};
    struct stat st;
    int err = 0;
    *out = (struct store_wal){0};
    w.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (w.fd < 0)
        return errno == ENOENT ? 0 : -errno;
    if (fstat(w.fd, &st) < 0)
        err = -errno;
    if (!err && S_ISREG(st.st_mode) && st.st_size > STORE_WAL_HEAD) {
        w.bytes = (uint64_t)st.st_size;
        w.this_boot = this_boot(&st.st_mtim);
        err = wal_judge(&w, out);
    }
    close(w.fd);
    return err;
}
