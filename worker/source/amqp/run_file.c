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
#include <bsd/sys/queue.h>

#include "common/base/basics.h"
#include "common/base/problem.h"

/* "rqmwrun1"; another layout needs another last digit. A file of another
 * version is left unchanged, because its handlers may be running. */
#define MAGIC   0x316e7572776d7172U
#define SETTLED 65536
#define CHAINS  65536
#define CRASHES 256
#define OWNER   40 /* low bits of a message's number; above: its owner's */

enum run_state { RUN_FREE, RUN_RUNNING };

struct run_slot {
    _Atomic uint32_t state;
    _Atomic int32_t group;
    uint64_t mark, start, seq;
    struct run_key key;
    uint64_t crashes; /* of its message, with this run; 0: not counted */
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

/* Place of one settled[] entry in its chain. */
struct run_note {
    LIST_ENTRY(run_note) link;
};

struct run_file {
    struct run_layout *map;
    LIST_HEAD(, run_note) chains[CHAINS]; /* by the sum of the key */
    struct run_note notes[SETTLED];       /* numbered as map->settled */
};

/* Return the sum of a key. It is never 0, the sum of an empty place. */
static uint64_t key_sum(const struct run_key *key)
{
    return fnv_add(FNV_BEGIN, key, sizeof *key) | 1;
}

/* Add complete note number `i` to the chain of its sum. */
static void note_link(struct run_file *f, size_t i)
{
    LIST_INSERT_HEAD(&f->chains[(f->map->settled[i].sum >> 40) % CHAINS],
                     &f->notes[i], link);
}

/* ---- open ---- */

/* Map the file at its full size, with all its pages: without room for a page, a
 * later store to it would be a SIGBUS. */
int run_file_open(struct run_file **out, const char *path, uint64_t *nonce,
                  uint64_t *first, struct problem *p)
{
    struct run_file *f = calloc(1, sizeof *f);
    uint64_t magic = 0;
    int fd, err = 0;
    void *at;

    *out = f;
    if (!f)
        return problem_set(p, EX_CANTCREAT, ENOMEM, "%s: out of memory", path);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        err = errno;
    } else if (pread(fd, &magic, sizeof magic, 0) > 0 && magic != 0 &&
               magic != MAGIC) {
        /* A new file begins with 0, and so does one whose owner was killed
         * before it had written the magic number. */
        err = EPROTO;
    } else {
        err = posix_fallocate(fd, 0, sizeof(struct run_layout));
        at = err ? MAP_FAILED
                 : mmap(NULL, sizeof(struct run_layout), PROT_READ | PROT_WRITE,
                        MAP_SHARED, fd, 0);
        if (at != MAP_FAILED)
            f->map = at;
        else if (!err)
            err = errno;
    }
    if (fd >= 0)
        close(fd);
    if (!f->map) {
        run_file_close(out);
        if (err == EPROTO)
            return problem_set(p, EX_CONFIG, EPROTO,
                               "%s is of another version, or no file of "
                               "mqworker; it was left untouched: run the "
                               "version that wrote it until nothing is in "
                               "flight, stop it, then move it away",
                               path);
        return problem_set(p, EX_CANTCREAT, err, "%s: %s", path,
                           errno_text(err));
    }
    if (f->map->magic != MAGIC) {
        memset(f->map, 0, sizeof *f->map);
        if (getrandom(&f->map->nonce, sizeof f->map->nonce, 0) < 0)
            f->map->nonce = (uint64_t)(uintptr_t)f ^ (uint64_t)getpid();
        f->map->magic = MAGIC;
    }
    *nonce = f->map->nonce;
    *first = ++f->map->owners << OWNER;
    for (size_t i = 0; i < SETTLED; i++)
        if (f->map->settled[i].sum)
            note_link(f, i);
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

/* Crash before the last store, which sets the state: the next owner finds no
 * run, and no run has begun. */
void run_file_run(struct run_file *f, unsigned index, const struct run_key *key,
                  uint64_t seq)
{
    struct run_slot *s = &f->map->slots[index];

    s->key = *key;
    s->seq = seq;
    s->mark = seq;
    s->start = 0;
    s->crashes = 0;
    atomic_store_explicit(&s->group, 0, memory_order_relaxed);
    atomic_store_explicit(&s->state, RUN_RUNNING, memory_order_release);
}

void run_file_handler(struct run_file *f, unsigned index, uint64_t mark,
                      uint64_t start, pid_t group)
{
    struct run_slot *s = &f->map->slots[index];

    if (mark)
        s->mark = mark;
    s->start = start;
    atomic_store_explicit(&s->group, group, memory_order_release);
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
        if (f->map->crashes[i].seq &&
            run_key_equal(&f->map->crashes[i].key, key))
            return &f->map->crashes[i];
    return NULL;
}

/* The slot gets the new count first, then the entry gets the count, then the
 * number of the run.
 *
 * Crash before the slot has the count: the next start counts the run. Crash
 * before the entry has the number: the next start writes the slot's count
 * again. Crash before the slot is free: the next start finds the number in the
 * entry and skips the run. A new entry has no number until it is complete; the
 * entry that it replaces is lost in any case. */
unsigned run_file_crashed(struct run_file *f)
{
    unsigned n = 0;

    for (unsigned i = 0; i < RUN_SLOTS; i++)
        n += slot_is_running(&f->map->slots[i]);
    for (unsigned i = 0; n && i < RUN_SLOTS; i++) {
        struct run_slot *s = &f->map->slots[i];
        struct run_crash *c = crash_find(f, &s->key);

        if (!slot_is_running(s) || (c && c->seq == s->seq))
            continue;
        if (!c) {
            c = &f->map->crashes[f->map->crash_at++ % CRASHES];
            c->seq = 0;
            atomic_signal_fence(memory_order_release);
            *c = (struct run_crash){.key = s->key};
        }
        if (s->crashes == 0)
            s->crashes = c->crashes + 1;
        atomic_signal_fence(memory_order_release);
        c->crashes = (uint32_t)s->crashes;
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
    size_t i = f->map->settled_at++ % SETTLED;
    struct run_settled *s = &f->map->settled[i];
    struct run_crash *c = crash_find(f, key);

    if (s->sum)
        LIST_REMOVE(&f->notes[i], link);
    s->sum = 0;
    atomic_signal_fence(memory_order_release);
    s->key = *key;
    atomic_signal_fence(memory_order_release);
    s->sum = key_sum(key);
    note_link(f, i);
    if (c)
        c->seq = 0;
}

bool run_file_was_settled(const struct run_file *f, const struct run_key *key)
{
    const struct run_note *n;

    LIST_FOREACH (n, &f->chains[(key_sum(key) >> 40) % CHAINS], link)
        if (run_key_equal(&f->map->settled[n - f->notes].key, key))
            return true;
    return false;
}
