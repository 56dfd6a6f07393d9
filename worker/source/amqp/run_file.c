/* run_file.c - this machine's notes about the messages of a broker (see
 * run_file.h)
 *
 * Every note is a store to mapped memory, which survives a kill of the process.
 * A reboot loses the notes together with the handlers: then the broker delivers
 * the messages again, and they count as not run here.
 */
#include "worker/source/amqp/run_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/problem.h"

/* "rqmwrun1"; another layout needs another last digit. A file of another
 * version is left unchanged, because its handlers may be running. */
#define MAGIC   0x316e7572776d7172U
#define SETTLED 65536
#define COUNTS  (1U << 18)
#define CRASHES 256
#define OWNER   40 /* bits of a message's number below that of its owner */

enum run_state { RUN_FREE, RUN_RUNNING };

struct run_slot {
    _Atomic uint32_t state;
    _Atomic int32_t group;
    uint64_t mark, start, seq;
    struct run_key key;
    uint64_t spare;
};

struct run_crash {
    struct run_key key;
    uint64_t seq; /* of the last counted run; 0: the entry is free */
    uint32_t crashes, alone;
};

struct run_settled {
    struct run_key key;
    uint64_t sum; /* of the key; 0: the note is not complete */
};

struct run_layout {
    uint64_t magic, nonce, owners, settled_at, crash_at, spare[3];
    struct run_crash crashes[CRASHES];
    struct run_slot slots[RUN_SLOTS];
    struct run_settled settled[SETTLED];
};

_Static_assert(sizeof(struct run_slot) == 64, "layout");
_Static_assert(sizeof(struct run_settled) == 32, "layout");

struct run_file {
    struct run_layout *map;
    /* Number of settled keys by a part of their sum. Where it is 0, no key is
     * searched: most keys are not settled. */
    uint32_t counts[COUNTS];
};

static bool key_equal(const struct run_key *a, const struct run_key *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Return the sum of a key. It is never 0, the sum of an empty place. */
static uint64_t key_sum(const struct run_key *key)
{
    return fnv_add(FNV_BEGIN, key, sizeof *key) | 1;
}

static uint32_t *sum_count(struct run_file *f, uint64_t sum)
{
    return &f->counts[(sum >> 40) % COUNTS];
}

/* ---- open ---- */

/* Map the file at its full size, with all its pages: without room for a page, a
 * later store to it would be a SIGBUS. -EPROTO: the file is of another version,
 * and is left unchanged. */
static int run_file_map(struct run_file *f, const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    uint64_t magic = 0;
    int err = 0;
    void *at;

    if (fd < 0)
        return -errno;
    /* A new file begins with 0, and so does one whose owner was killed here. */
    if (pread(fd, &magic, sizeof magic, 0) > 0 && magic != 0 &&
        magic != MAGIC) {
        close(fd);
        return -EPROTO;
    }
    err = -posix_fallocate(fd, 0, sizeof(struct run_layout));
    if (!err) {
        at = mmap(NULL, sizeof(struct run_layout), PROT_READ | PROT_WRITE,
                  MAP_SHARED, fd, 0);
        err = at == MAP_FAILED ? -errno : 0;
        f->map = err ? NULL : at;
    }
    close(fd);
    return err;
}

int run_file_open(struct run_file **out, const char *path, uint64_t *nonce,
                  uint64_t *first, struct problem *p)
{
    struct run_file *f = calloc(1, sizeof *f);
    int err = f ? run_file_map(f, path) : -ENOMEM;

    *out = f;
    if (err || !f->map) {
        run_file_close(out);
        if (err == -EPROTO)
            return problem_set(p, EX_CONFIG, EPROTO,
                               "%s is of another version, or no file of "
                               "mqworker; it was left untouched: run the "
                               "version that wrote it until nothing is in "
                               "flight, stop it, then move it away",
                               path);
        return problem_set(p, EX_CANTCREAT, -err, "%s: %s", path,
                           errno_text(-err));
    }
    if (f->map->magic != MAGIC) {
        memset(f->map, 0, sizeof *f->map);
        if (getrandom(&f->map->nonce, sizeof f->map->nonce, 0) < 0)
            f->map->nonce = (uint64_t)(uintptr_t)f ^ (uint64_t)getpid();
        f->map->magic = MAGIC;
    }
    *nonce = f->map->nonce;
    *first = ++f->map->owners << OWNER;
    for (unsigned i = 0; i < SETTLED; i++)
        if (f->map->settled[i].sum)
            ++*sum_count(f, f->map->settled[i].sum);
    return 0;
}

void run_file_close(struct run_file **file)
{
    struct run_file *f = *file;

    if (!f)
        return;
    *file = NULL;
    if (f->map)
        (void)munmap(f->map, sizeof *f->map);
    free(f);
}

/* ---- a handler ---- */

/* Crash before the last store, that of the state: the next owner finds no run,
 * and none has begun. */
void run_file_run(struct run_file *f, unsigned index, const struct run_key *key,
                  uint64_t seq)
{
    struct run_slot *s = &f->map->slots[index];

    s->key = *key;
    s->seq = seq;
    s->mark = seq;
    s->start = 0;
    atomic_store_explicit(&s->group, 0, memory_order_relaxed);
    atomic_store_explicit(&s->state, RUN_RUNNING, memory_order_release);
}

void run_file_handler(struct run_file *f, unsigned index, uint64_t mark,
                      uint64_t start)
{
    struct run_slot *s = &f->map->slots[index];

    if (mark)
        s->mark = mark;
    s->start = start;
    atomic_signal_fence(memory_order_release);
}

void run_file_group(struct run_file *f, unsigned index, pid_t group)
{
    atomic_store_explicit(&f->map->slots[index].group, group,
                          memory_order_release);
}

void run_file_unrun(struct run_file *f, unsigned index)
{
    atomic_store_explicit(&f->map->slots[index].state, RUN_FREE,
                          memory_order_release);
}

/* ---- at start ---- */

static bool slot_is_running(const struct run_slot *s)
{
    return atomic_load_explicit(&s->state, memory_order_acquire) == RUN_RUNNING;
}

void run_file_runs(const struct run_file *f,
                   void (*visit)(void *arg, const struct source_run *run),
                   void *arg)
{
    for (unsigned i = 0; i < RUN_SLOTS; i++) {
        const struct run_slot *s = &f->map->slots[i];

        if (slot_is_running(s))
            visit(arg,
                  &(struct source_run){.mark = s->mark,
                                       .start = s->start,
                                       .group = atomic_load_explicit(
                                           &s->group, memory_order_acquire)});
    }
}

static struct run_crash *crash_find(const struct run_file *f,
                                    const struct run_key *key)
{
    for (unsigned i = 0; f->map->crash_at && i < CRASHES; i++)
        if (f->map->crashes[i].seq && key_equal(&f->map->crashes[i].key, key))
            return &f->map->crashes[i];
    return NULL;
}

/* Crash before the slot of a run is free: its entry has the number of the run
 * already, so the next start does not count it again. */
unsigned run_file_crashed(struct run_file *f)
{
    unsigned n = 0;

    for (unsigned i = 0; i < RUN_SLOTS; i++)
        n += slot_is_running(&f->map->slots[i]);
    for (unsigned i = 0; n && i < RUN_SLOTS; i++) {
        const struct run_slot *s = &f->map->slots[i];
        struct run_crash *c = crash_find(f, &s->key);

        if (!slot_is_running(s) || (c && c->seq == s->seq))
            continue;
        if (!c) {
            c = &f->map->crashes[f->map->crash_at++ % CRASHES];
            *c = (struct run_crash){.key = s->key};
        }
        c->crashes++;
        c->alone = n == 1;
        atomic_signal_fence(memory_order_release);
        c->seq = s->seq;
    }
    for (unsigned i = 0; n && i < RUN_SLOTS; i++)
        run_file_unrun(f, i);
    return n;
}

/* ---- settled messages ---- */

uint32_t run_file_crashes(const struct run_file *f, const struct run_key *key,
                          bool *alone)
{
    const struct run_crash *c = crash_find(f, key);

    *alone = c && c->alone;
    return c ? c->crashes : 0;
}

void run_file_settled(struct run_file *f, const struct run_key *key)
{
    struct run_settled *s = &f->map->settled[f->map->settled_at++ % SETTLED];
    struct run_crash *c = crash_find(f, key);

    if (s->sum)
        --*sum_count(f, s->sum);
    s->sum = 0;
    atomic_signal_fence(memory_order_release);
    s->key = *key;
    atomic_signal_fence(memory_order_release);
    s->sum = key_sum(key);
    ++*sum_count(f, s->sum);
    if (c)
        c->seq = 0;
}

bool run_file_was_settled(const struct run_file *f, const struct run_key *key)
{
    uint64_t sum = key_sum(key);

    if (f->counts[(sum >> 40) % COUNTS] == 0)
        return false;
    for (unsigned i = 0; i < SETTLED; i++)
        if (f->map->settled[i].sum == sum &&
            key_equal(&f->map->settled[i].key, key))
            return true;
    return false;
}
