/* counters.h - the numbers of a worker, in a mapped file
 *
 * WHAT   One header, the journal of the messages that ended last, and one block
 *        for each work item, in the file `counters` of a queue's folder.
 *        Written without locks or system calls, read by any process that may
 *        open the file. docs/formats/counters.md has the bytes.
 * WHO    Writer: the worker, which holds the lock of the folder. A block has
 *        one writer at a time, the thread of its work item; the inline calls
 *        below are plain loads and stores. The caller passes all times. Any
 *        thread of the worker writes the header. Readers: any process.
 * OWNS   The file and its mapping.
 * FAILS  open: -ENOMEM only. If there can be no file (a full disk) the numbers
 *        are in memory, and counters_private tells why. attach: a problem,
 *        -ENOENT without a file, 78 for another version.
 */
#ifndef COMMON_STATE_COUNTERS_H
#define COMMON_STATE_COUNTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "common/base/boot_id.h"
#include "common/base/problem.h"
#include "common/base/ulid.h"

/* ---- a histogram: how often which duration ----
 *
 * Log-linear buckets from 0 to 73 minutes in ns, 32 to each doubling: no bucket
 * is wider than 1/32 (3.1 %) of its durations. Longer durations count in the
 * last bucket. One thread writes a histogram, without read-modify-write; any
 * thread reads, and adds several up. docs/formats/counters.md has the table.
 */

#define HISTOGRAM_BITS 5  /* 32 buckets to a doubling */
#define HISTOGRAM_TOP  42 /* bits of the longest duration */
#define HISTOGRAM_PART (1u << HISTOGRAM_BITS)
#define HISTOGRAM_BUCKETS \
    ((HISTOGRAM_TOP - HISTOGRAM_BITS + 1) * HISTOGRAM_PART)

struct histogram {
    _Atomic uint64_t count[HISTOGRAM_BUCKETS];
};

/* Return the bucket of a duration. A bucket's number is made of the power of
 * two and the HISTOGRAM_BITS bits after the leading one. A double (IEEE 754
 * binary64) has both side by side: an exponent that is 1023 more than the
 * power, then 52 bits of fraction; it is exact for these durations. Subtracting
 * `first` gives HISTOGRAM_PART the bucket HISTOGRAM_PART. */
static inline unsigned histogram_bucket(uint64_t ns)
{
    const uint64_t first = (uint64_t)(1023 + HISTOGRAM_BITS - 1)
                           << HISTOGRAM_BITS;
    double exact = (double)(int64_t)ns;
    uint64_t bits;

    if (ns < HISTOGRAM_PART)
        return (unsigned)ns;
    if (ns >> HISTOGRAM_TOP)
        return HISTOGRAM_BUCKETS - 1;
    memcpy(&bits, &exact, sizeof bits);
    return (unsigned)((bits >> (52 - HISTOGRAM_BITS)) - first);
}

/* Count a duration. Only one thread may write `h`. */
static inline void histogram_add(struct histogram *h, uint64_t ns)
{
    _Atomic uint64_t *at = &h->count[histogram_bucket(ns)];

    atomic_store_explicit(at,
                          atomic_load_explicit(at, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* Return the least duration of a bucket; 2^HISTOGRAM_TOP for
 * HISTOGRAM_BUCKETS. */
uint64_t histogram_low(unsigned bucket);

/* The sum of several histograms, of one thread. */
struct histogram_sum {
    uint64_t count[HISTOGRAM_BUCKETS];
    uint64_t total; /* of all buckets */
};
void histogram_sum(struct histogram_sum *into, const struct histogram *h);
/* Subtract `earlier` from `later`. */
void histogram_since(struct histogram_sum *out,
                     const struct histogram_sum *later,
                     const struct histogram_sum *earlier);
/* Return a duration that the fraction `q` (0 to 1) does not exceed: the end of
 * a bucket; 0 if the histogram is empty. */
uint64_t histogram_quantile(const struct histogram_sum *s, double q);
/* Count the durations in buckets that end at or below `ns`. */
uint64_t histogram_upto(const struct histogram_sum *s, uint64_t ns);

/* ---- the file ---- */

#define COUNTERS_VERSION 1
#define COUNTERS_JOURNAL 16384 /* final states that are remembered */
#define COUNTERS_TEXT    192

struct counters; /* opaque; body in counters.c */

/* ---- a block: what one work item does ---- */

enum counters_end { /* final states in the journal; 0: an empty place */
                    COUNTERS_NO_END,
                    COUNTERS_DONE,
                    COUNTERS_DISCARDED,
                    COUNTERS_DEAD,
                    COUNTERS_DUPLICATE, /* discarded: its key was taken */
                    COUNTERS_CANCELLED, /* discarded, by an operator */
};

/* Values of since_ns that are no time. */
#define COUNTERS_AWAY 0 /* the work item has no work */
#define COUNTERS_BUSY 1 /* the work item is between two handlers */

struct counters_block {
    _Alignas(64) _Atomic uint64_t deliveries; /* handlers started */
    _Atomic uint64_t ended;                   /* handlers ended */
    _Atomic uint64_t took_ns; /* total of ended handlers; may lag */
    _Atomic uint64_t longest_ns;
    _Atomic uint64_t since_ns;    /* monotonic time since which handlers have
                                     been running; or a value above */
    _Atomic uint64_t received_ns; /* wall time of receipt of the last message
                                     that had a first delivery; may lag */
    uint64_t reserved0[2];
    /* ---- the second line ---- */
    _Atomic uint64_t done, retried, discarded, dead;
    _Atomic uint64_t expired;    /* of the dead */
    _Atomic uint64_t crashes;    /* recovered: a worker died under a handler */
    _Atomic uint64_t removed;    /* letters, by --keep-dead or --max-dead */
    _Atomic uint64_t duplicates; /* of the discarded, by their unique key */
    _Atomic uint64_t hooks_failed; /* runs of --on-dead */
    uint64_t reserved[15];
    struct histogram handler; /* how long handlers ran */
    struct histogram latency; /* from sent or received to handler start */
};
_Static_assert(offsetof(struct counters_block, done) == 64, "counters format");
_Static_assert(offsetof(struct counters_block, handler) == 256,
               "counters format");

/* Load or store a number that has one writer. */
static inline uint64_t counters_get(const _Atomic uint64_t *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

static inline void counters_put(_Atomic uint64_t *at, uint64_t value)
{
    atomic_store_explicit(at, value, memory_order_relaxed);
}

/* Store after all earlier stores; costs no more than counters_put on x86. */
static inline void counters_publish(_Atomic uint64_t *at, uint64_t value)
{
    atomic_store_explicit(at, value, memory_order_release);
}

/* Load before all later loads. */
static inline uint64_t counters_read(const _Atomic uint64_t *at)
{
    return atomic_load_explicit(at, memory_order_acquire);
}

static inline void counters_add(_Atomic uint64_t *at, uint64_t n)
{
    counters_put(at, counters_get(at) + n);
}

/* Return the number of running handlers of the block. */
static inline uint64_t counters_running(const struct counters_block *b)
{
    return counters_get(&b->deliveries) - counters_get(&b->ended);
}

/* Count a handler that starts, at the monotonic time `now_ns`. */
static inline void counters_started(struct counters_block *b, uint64_t now_ns)
{
    if (counters_running(b) == 0)
        counters_put(&b->since_ns, now_ns);
    counters_add(&b->deliveries, 1);
}

/* Record how long a message waited, on the wall clock, since it was sent; if
 * its header does not say when, since it was received. For first deliveries
 * only, and not for messages from the store. */
static inline void counters_waited(struct counters_block *b, uint64_t from_ns,
                                   uint64_t start_ns)
{
    histogram_add(&b->latency, start_ns > from_ns ? start_ns - from_ns : 0);
}

/* Record the first run of a message received at that wall time. */
static inline void counters_received(struct counters_block *b, uint64_t wall_ns)
{
    counters_put(&b->received_ns, wall_ns);
}

/* Count a handler that ended. */
static inline void counters_ended(struct counters_block *b, uint64_t took_ns)
{
    counters_publish(&b->ended, counters_get(&b->ended) + 1);
    counters_add(&b->took_ns, took_ns);
    if (took_ns > counters_get(&b->longest_ns))
        counters_put(&b->longest_ns, took_ns);
    if (counters_running(b) == 0)
        counters_put(&b->since_ns, COUNTERS_BUSY);
    histogram_add(&b->handler, took_ns);
}

/* Faster forms of counters_started and counters_ended, for a block that runs
 * one handler at a time. */
static inline void counters_one_started(struct counters_block *b,
                                        uint64_t now_ns)
{
    counters_put(&b->since_ns, now_ns);
    counters_add(&b->deliveries, 1);
}

static inline void counters_one_ended(struct counters_block *b,
                                      uint64_t took_ns)
{
    counters_publish(&b->ended, counters_get(&b->deliveries));
    counters_put(&b->since_ns, COUNTERS_BUSY);
    counters_add(&b->took_ns, took_ns);
    if (took_ns > counters_get(&b->longest_ns))
        counters_put(&b->longest_ns, took_ns);
    histogram_add(&b->handler, took_ns);
}

/* Uncount a handler that could not be started, or whose child did not get the
 * message. */
static inline void counters_unstarted(struct counters_block *b)
{
    counters_put(&b->deliveries, counters_get(&b->deliveries) - 1);
    if (counters_running(b) == 0)
        counters_put(&b->since_ns, COUNTERS_BUSY);
}

/* ---- the writer ---- */

/* Copy the file at `from` to `to`, and sync it to disk. Returns 0 or -errno. */
int counters_copy(const char *to, const char *from);
/* Create or take over the file. The numbers of this run start at 0, and the
 * sums of all earlier runs are kept beside them (counters_sum). The sums and
 * the journal are dropped if the machine went down under the worker.
 * `blocks_max` includes block 0. */
int counters_open(struct counters **out, const char *path, unsigned blocks_max);
/* Put the last worker back into the header, because this start was refused, so
 * that readers see how that worker ended. Its numbers stay in the sums of
 * earlier runs. Returns false if there was no last worker. */
bool counters_give_back(struct counters *c);
/* Lock and return block 0, which belongs to no work item, to count what other
 * threads settle. Unlock it by counters_rest_done. */
struct counters_block *counters_rest(struct counters *c);
void counters_rest_done(struct counters *c);
/* Write a copy of the counters to `path`, synced to disk, while no other thread
 * counts. Returns 0 or -errno. */
int counters_save(struct counters *c, const char *path);
/* Return a block without an owner. May be called blocks_max - 1 times; one more
 * is a bug of ours, and panics. */
struct counters_block *counters_claim(struct counters *c);
/* Add the end of a message to the journal. Any thread. */
void counters_settled(struct counters *c, enum counters_end end,
                      const struct ulid *id, uint64_t wall_ns);
/* Return why other processes cannot read the numbers; NULL if they can. */
const char *counters_private(const struct counters *c);
/* Close, or detach a reader. The file stays. NULL-safe; sets NULL. */
void counters_close(struct counters **c);

/* Values of the header that change while the worker runs. */
enum counters_gauge {
    COUNTERS_CAP,
    COUNTERS_HOLDS,   /* reasons not to take messages: bits below */
    COUNTERS_BREAKER, /* 0 closed, 1 open, 2 probing */
    COUNTERS_WAITING, /* rows of the store, when last counted: */
    COUNTERS_PARKED,
    COUNTERS_LETTERS,     /* dead */
    COUNTERS_GROUPS,      /* known now */
    COUNTERS_ENDED_NS,    /* wall; 0: running, or killed */
    COUNTERS_WINDOW,      /* messages that each handler may have; 0: unknown */
    COUNTERS_GROUPS_HELD, /* of COUNTERS_GROUPS: held because of a letter */
    COUNTERS_COMMITS,     /* number of the store's last commit on disk */
    COUNTERS_ON_DEAD, /* letters for which --on-dead failed and runs again */
    COUNTERS_GAUGES,
};
/* Bits of COUNTERS_HOLDS; worker_lock.h has their order of precedence. */
enum {
    COUNTERS_STOPPING = 1 << 0,
    COUNTERS_PAUSED = 1 << 1,
    COUNTERS_STORE_HELD = 1 << 2,
    COUNTERS_QUEUE_HELD = 1 << 3,
    COUNTERS_BOUND_HELD = 1 << 4,
    COUNTERS_WAITING_HELD = 1 << 5,
    COUNTERS_STORE_GONE = 1 << 6, /* removed, moved or replaced */
    COUNTERS_CUSTODY_GONE = 1 << 7,
    COUNTERS_READ_ONLY = 1 << 8, /* the file system of one of them */
    COUNTERS_RATE_HELD = 1 << 9,
    COUNTERS_DAMAGED = 1 << 10, /* the store */
    COUNTERS_FILES =
        COUNTERS_STORE_GONE | COUNTERS_CUSTODY_GONE | COUNTERS_READ_ONLY,
};
void counters_gauge(struct counters *c, enum counters_gauge which,
                    uint64_t value);

/* Return COUNTERS_COMMITS, for the store. It starts with the value of the last
 * worker if that was in this run of the machine, else with 0. */
_Atomic uint64_t *counters_commits(struct counters *c);

/* Texts of the header, with their wall time. Cut to COUNTERS_TEXT. */
enum counters_text {
    COUNTERS_WHY_BREAKER,
    COUNTERS_LAST_ERROR,
    COUNTERS_TEXTS
};
void counters_say(struct counters *c, enum counters_text which,
                  const char *text, uint64_t wall_ns);

/* ---- readers ---- */

/* Map a file for reading, whether the worker is running or not. Blocks that are
 * claimed later are not visible: attach again for each look. */
int counters_attach(struct counters **out, const char *path, struct problem *p);

struct counters_header {
    pid_t pid;
    uint64_t pid_start;    /* field 22 of proc_pid_stat(5) */
    uint64_t started_ns;   /* wall */
    char boot_id[BOOT_ID]; /* run of the machine */
    uint64_t gauges[COUNTERS_GAUGES];
    char texts[COUNTERS_TEXTS][COUNTERS_TEXT]; /* "": none yet */
    uint64_t text_ns[COUNTERS_TEXTS];          /* wall */
};
/* Read the header. worker_lock.h tells whether the worker is running. */
void counters_header(const struct counters *c, struct counters_header *out);

struct counters_sum {
    uint64_t deliveries, ended, took_ns, longest_ns;
    uint64_t received_ns; /* the latest of all blocks; 0: none */
    uint64_t running;     /* handlers, now */
    uint64_t items;       /* work items that are not away */
    uint64_t done, retried, discarded, dead, expired, crashes, removed;
    uint64_t duplicates;
    uint64_t hooks_failed;
    uint64_t blocks;
};
/* Read the sums since the worker started. With `earlier`, add all earlier runs;
 * `running`, `items` and `longest_ns` are of this run only. */
void counters_sum(const struct counters *c, bool earlier,
                  struct counters_sum *out);
/* Read the two histograms of the same runs; either pointer may be NULL. */
void counters_histograms(const struct counters *c, bool earlier,
                         struct histogram_sum *handler,
                         struct histogram_sum *latency);
/* Find the newest final state of a message; returns false if the journal has
 * none. */
bool counters_find(const struct counters *c, const struct ulid *id,
                   enum counters_end *end, uint64_t *wall_ns);

#endif
