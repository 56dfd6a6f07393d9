/* counters_read.c - the reader's side of the counters file (see counters.h) */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/state/counters_inner.h"

#define TRIES 100 /* at a text that is being written */

/* head_check - whether we can read it: 0 or a problem */
static int head_check(const struct counters *c, const char *path,
                      struct problem *p)
{
    const struct counters_head *h = counters_head(c);

    if (atomic_load_explicit(&h->magic, memory_order_acquire) !=
        counters_magic())
        return problem_set(p, EX_CONFIG, EINVAL,
                           "counters file %s: it is none, or is not complete; "
                           "the worker makes a new one when it starts",
                           path);
    if (h->version != COUNTERS_VERSION || h->head_bytes != COUNTERS_HEAD ||
        h->stride != COUNTERS_STRIDE)
        return problem_set(p, EX_CONFIG, EPROTO,
                           "counters file %s: version %u, this program reads "
                           "version %d; use the mqctl of the worker's release, "
                           "or start the worker of this one",
                           path, h->version, COUNTERS_VERSION);
    if (c->bytes < COUNTERS_BLOCKS)
        return problem_set(p, EX_CONFIG, EINVAL,
                           "counters file %s: cut short; the worker makes a "
                           "new one when it starts",
                           path);
    return 0;
}

/* map_file - the whole of it, to read */
static int map_file(struct counters *c, const char *path)
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

int counters_attach(struct counters **out, const char *path, struct problem *p)
{
    struct counters *c = calloc(1, sizeof *c);
    int err;

    *out = NULL;
    if (!c)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    c->fd = -1;
    pthread_mutex_init(&c->mtx, NULL);
    pthread_mutex_init(&c->rest_mtx, NULL);
    err = map_file(c, path);
    if (err == -EINVAL)
        problem_fill(p, EX_CANTCREAT,
                     "counters file %s: no worker has written it yet, as "
                     "none has begun to take messages",
                     path);
    else if (err)
        problem_fill(p, err == -EACCES ? EX_NOPERM : EX_CANTCREAT,
                     "counters file %s: %s; %s", path, errno_text(-err),
                     err == -ENOENT ? "no worker of this release has run here"
                                    : "run as the owner of the file");
    else
        err = head_check(c, path, p);
    if (err) {
        counters_close(&c);
        return err;
    }
    *out = c;
    return 0;
}

/* text_read - a whole one; "" where it changes all the time */
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
    const struct counters_head *h = counters_head(c);

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

/* blocks - in use, and inside the file as it was when it was mapped */
static unsigned blocks(const struct counters *c)
{
    const struct counters_head *h = counters_head(c);
    unsigned n = atomic_load_explicit(&h->blocks, memory_order_acquire);
    size_t room = (c->bytes - COUNTERS_BLOCKS) / COUNTERS_STRIDE;

    return n < room ? n : (unsigned)room;
}

/* block_sum - one more; `ended` first: it never is over `deliveries` then */
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

void counters_sum(const struct counters *c, struct counters_sum *out)
{
    *out = (struct counters_sum){.blocks = blocks(c)};
    for (unsigned i = 0; i < out->blocks; i++)
        block_sum(out, counters_at(c, i));
}

void counters_totals(const struct counters *c, struct counters_sum *out)
{
    const struct counters_head *h = counters_head(c);
    uint64_t folds;

    do { /* repeat if a start added up runs during the read */
        folds = counters_read(&h->folds);
        counters_sum(c, out);
        if (folds % 2)
            *out = (struct counters_sum){.blocks = out->blocks};
        block_sum(out, counters_earlier(c, folds % 2));
        atomic_thread_fence(memory_order_acquire);
    } while (counters_read(&h->folds) != folds);
}

/* Add the histograms of one block. */
static void histograms_add(const struct counters_block *b,
                           struct histogram_sum *handler,
                           struct histogram_sum *latency)
{
    if (handler)
        histogram_sum(handler, &b->handler);
    if (latency)
        histogram_sum(latency, &b->latency);
}

static void histograms_clear(struct histogram_sum *handler,
                             struct histogram_sum *latency)
{
    if (handler)
        memset(handler, 0, sizeof *handler);
    if (latency)
        memset(latency, 0, sizeof *latency);
}

void counters_histograms(const struct counters *c,
                         struct histogram_sum *handler,
                         struct histogram_sum *latency)
{
    histograms_clear(handler, latency);
    for (unsigned i = 0; i < blocks(c); i++)
        histograms_add(counters_at(c, i), handler, latency);
}

void counters_histogram_totals(const struct counters *c,
                               struct histogram_sum *handler,
                               struct histogram_sum *latency)
{
    const struct counters_head *h = counters_head(c);
    uint64_t folds;

    do {
        folds = counters_read(&h->folds);
        if (folds % 2)
            histograms_clear(handler, latency);
        else
            counters_histograms(c, handler, latency);
        histograms_add(counters_earlier(c, folds % 2), handler, latency);
        atomic_thread_fence(memory_order_acquire);
    } while (counters_read(&h->folds) != folds);
}

/* past_read - one entry, whole; false: empty, or being written */
static bool past_read(const struct counters_past *at, uint64_t id[2],
                      uint64_t *when)
{
    *when = counters_read(&at->when);
    id[0] = counters_read(&at->id[0]);
    id[1] = counters_read(&at->id[1]);
    return *when != 0 && counters_get(&at->when) == *when;
}

/* end_of - as when_of wrote it */
static enum counters_end end_of(uint64_t when)
{
    return when == 0    ? COUNTERS_NO_END
           : when & 3   ? (enum counters_end)(when & 3)
           : (when & 4) ? COUNTERS_CANCELLED
                        : COUNTERS_DUPLICATE;
}

bool counters_find(const struct counters *c, const struct ulid *id,
                   enum counters_end *end, uint64_t *wall_ns)
{
    uint64_t want[2], half[2], when, newest = 0;

    memcpy(want, id->bytes, sizeof want);
    for (size_t k = 0; k < COUNTERS_JOURNAL; k++)
        if (past_read(counters_past(c, k), half, &when) && half[0] == want[0] &&
            half[1] == want[1] && when > newest)
            newest = when;
    *end = end_of(newest);
    *wall_ns = newest & (newest & 3 ? ~UINT64_C(3) : ~UINT64_C(7));
    return newest != 0;
}
