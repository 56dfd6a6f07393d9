/* torture_witness.c - see torture_witness.h */
#include "tests/crash/torture/torture_witness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MANY 255u /* counters stop there */
/* Tolerance: the two clocks are read one after the other */
#define EARLY_NS 1000000

const char *const torture_faults[TORTURE_FAULT_KINDS] = {
    [TORTURE_NO_FAULT] = "no fault",
    [TORTURE_CORRUPT] = "its content is not what was sent",
    [TORTURE_SILENT_CUT] = "it was cut short without a mark",
    [TORTURE_INVENTED] = "it was settled before, or never sent",
    [TORTURE_UNMARKED] = "it was repeated without a mark",
    [TORTURE_ATTEMPT] = "that attempt cannot be",
    [TORTURE_OVERLAP] = "two deliveries of it ran at once",
    [TORTURE_BESIDE] = "its process ran on beside a new worker's",
    [TORTURE_PRIORITY] = "it has another priority than it was sent with",
    [TORTURE_GROUP] = "it has another group than it was sent with",
    [TORTURE_GROUP_TWO] = "two deliveries of its group ran at once",
    [TORTURE_RAN_ON] = "it ran though it had been cancelled",
    [TORTURE_EARLY] = "it ran before its time",
    [TORTURE_GROUP_LATE] = "a later one of its group and priority ended first",
};

static struct torture_world *world;
static int made = -1; /* the driver's descriptor of the file */
static unsigned generation;

/* ---- the file ---- */

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "torture: %s: %s\n", what, strerror(errno));
    _exit(1);
}

/* Map the whole file. */
static struct torture_world *world_map(int fd)
{
    if (fd < 0)
        give_up("the world");
    world =
        mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (world == MAP_FAILED)
        give_up("mmap");
    return world;
}

struct torture_world *torture_world_open(void)
{
    const char *path = getenv(TORTURE_WORLD);
    const char *number = getenv(TORTURE_GENERATION);
    int fd;

    errno = EINVAL;
    if (path && number)
        generation = (unsigned)strtoul(number, NULL, 10);
    else
        give_up("$" TORTURE_WORLD " and $" TORTURE_GENERATION " are not set");
    fd = open(path, O_RDWR | O_CLOEXEC);
    world_map(fd);
    close(fd);
    torture_terms_use(&world->terms);
    return world;
}

struct torture_world *torture_world_make(char path[TORTURE_PATH],
                                         const struct torture_terms *terms)
{
    made = memfd_create("torture", MFD_CLOEXEC);
    if (made < 0 || ftruncate(made, sizeof *world) < 0)
        give_up("memfd_create");
    world_map(made);
    snprintf(path, TORTURE_PATH, "/proc/%d/fd/%d", (int)getpid(), made);
    world->terms = *terms;
    torture_terms_use(terms);
    return world;
}

void torture_world_close(struct torture_world **w)
{
    if (*w)
        munmap(*w, sizeof **w);
    *w = NULL;
    if (made >= 0)
        close(made);
    made = -1;
}

/* ---- records ---- */

struct torture_record torture_record(uint64_t w)
{
    return (struct torture_record){
        .starts = w & 0xff,
        .ends = w >> 8 & 0xff,
        .failures = w >> 16 & 0xff,
        .attempt = w >> 24 & 0xff,
        .flags = w >> 32 & 0xfff,
        .generation = (unsigned)(w >> 44),
    };
}

uint64_t torture_word(const struct torture_record *r)
{
    return (uint64_t)r->starts | (uint64_t)r->ends << 8 |
           (uint64_t)r->failures << 16 | (uint64_t)(r->attempt & 0xff) << 24 |
           (uint64_t)r->flags << 32 | (uint64_t)r->generation << 44;
}

static void count(unsigned *n)
{
    *n += *n < MANY;
}

_Atomic uint64_t *torture_record_of(struct torture_world *w, uint64_t number)
{
    uint64_t producer = number % TORTURE_PRODUCERS;
    uint64_t base = w->base[producer], n = torture_nth(number);

    return n >= base && n - base < TORTURE_EACH
               ? &w->records[producer * TORTURE_EACH + (n - base)]
               : NULL;
}

/* Find the record of a tiny message by its id (open addressing). */
static _Atomic uint64_t *small_of(const char *id, size_t size, uint64_t *number)
{
    uint64_t key = 0, at;

    for (const char *c = id; *c; c++)
        key = torture_hash(key + (unsigned char)*c);
    at = key >> 32;
    key = (key & ~UINT64_C(0xff)) | size | UINT64_C(1) << 8;
    for (size_t i = 0; i < TORTURE_SMALL; i++) {
        struct torture_small *s = &world->small[(at + i) % TORTURE_SMALL];
        uint64_t free_key = 0;

        if (atomic_load(&s->key) != key &&
            !atomic_compare_exchange_strong(&s->key, &free_key, key) &&
            free_key != key)
            continue;
        *number = TORTURE_SMALL_BASE + (uint64_t)(s - world->small);
        return &s->record;
    }
    return NULL;
}

/* ---- notes ---- */

/* Record a fault; the first TORTURE_FAULTS are kept. */
static void fault_record(enum torture_fault_kind kind,
                         const struct torture_seen *s, uint64_t number,
                         uint64_t record, uint64_t other)
{
    unsigned i = atomic_fetch_add(&world->fault_count, 1);

    if (i < TORTURE_FAULTS)
        world->faults[i] = (struct torture_fault){
            .number = number,
            .record = record,
            .kind = kind,
            .generation = generation,
            .attempt = s ? s->attempt : 0,
            .marked = s ? s->marked : 0,
            .other = other,
        };
}

static void event_record(int what, uint64_t number,
                         const struct torture_seen *s, unsigned attempt)
{
    uint64_t i =
        atomic_fetch_add_explicit(&world->event_count, 1, memory_order_relaxed);

    world->events[i % TORTURE_EVENTS] = (struct torture_event){
        .number = number,
        .generation = generation,
        .what = (uint8_t)what,
        .attempt = (uint8_t)attempt,
        .marked = s && s->marked,
        .inferred = s && s->inferred,
    };
}

/* Record when this worker made its first delivery. */
static void first_note(void)
{
    unsigned before =
        atomic_load_explicit(&world->first_generation, memory_order_relaxed);
    struct timespec ts;

    if (before == generation)
        return;
    (void)syscall(TORTURE_FIRST_CALL);
    clock_gettime(CLOCK_MONOTONIC, &ts);
    if (before < generation &&
        atomic_compare_exchange_strong(&world->first_generation, &before,
                                       generation))
        atomic_store(&world->first_ns,
                     (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec);
}

/* ---- a delivery ---- */

/* Find the record of a message; NULL: not a message of this run. */
static _Atomic uint64_t *identify(const struct torture_seen *s,
                                  struct torture_plan *p)
{
    enum torture_what what = torture_check(s->body, s->size, p);
    _Atomic uint64_t *record;

    if (what == TORTURE_WRONG) {
        fault_record(TORTURE_CORRUPT, s, 0, 0, s->size);
        return NULL;
    }
    if (s->size < TORTURE_TINY) {
        *p = (struct torture_plan){.group = -1};
        return small_of(s->id, s->size, &p->number);
    }
    record = torture_record_of(world, p->number);
    if (!record)
        fault_record(TORTURE_INVENTED, s, p->number, 0,
                     world->base[p->producer]);
    if (what == TORTURE_CUT && !s->inferred)
        fault_record(TORTURE_SILENT_CUT, s, p->number, 0, s->size);
    if (record && what == TORTURE_CUT)
        atomic_fetch_or(record, (uint64_t)TORTURE_WAS_CUT << 32);
    return record;
}

/* Return what is wrong with a delivery, given the earlier ones. A delivery that
 * is not the first must be marked, or be the next attempt after a failure. */
static enum torture_fault_kind repeat_fault(const struct torture_record *r,
                                            const struct torture_seen *s,
                                            bool unique)
{
    /* A cancel frees the unique key, so the second copy may run. */
    if (r->flags & TORTURE_CANCELLED)
        return unique ? TORTURE_NO_FAULT : TORTURE_RAN_ON;
    /* The first copy died or was cancelled, perhaps before anybody was told.
     * The second copy then counts as a new message. */
    if (unique && r->flags & TORTURE_KEY_FREE)
        return TORTURE_NO_FAULT;
    if (r->flags & (TORTURE_REPLAYED | TORTURE_MAY_REPEAT))
        return TORTURE_NO_FAULT; /* it may be in the queue twice */
    if (r->flags & TORTURE_OPEN && r->generation == generation)
        return TORTURE_OVERLAP;
    if (r->starts == 0)
        return s->attempt == 1 ? TORTURE_NO_FAULT : TORTURE_ATTEMPT;
    if (s->attempt == r->attempt + 1 && r->flags & TORTURE_FAILED)
        return TORTURE_NO_FAULT;
    if (s->attempt != r->attempt)
        return TORTURE_ATTEMPT;
    return s->marked ? TORTURE_NO_FAULT : TORTURE_UNMARKED;
}

/* Record one more delivery and return the record before it. */
static struct torture_record record_begin(_Atomic uint64_t *record,
                                          const struct torture_seen *s,
                                          const struct torture_plan *p)
{
    uint64_t word = atomic_load(record);
    enum torture_fault_kind kind;
    struct torture_record r, old;

    do {
        old = r = torture_record(word);
        kind = repeat_fault(&r, s, p->unique);
        count(&r.starts);
        r.attempt = s->attempt;
        r.generation = generation;
        r.flags &= ~(unsigned)(TORTURE_FAILED | TORTURE_REPLAYED);
        r.flags |= TORTURE_OPEN | (s->inferred ? TORTURE_INFERRED : 0u) |
                   (s->marked ? TORTURE_MARKED : 0u);
    } while (!atomic_compare_exchange_weak(record, &word, torture_word(&r)));
    if (kind != TORTURE_NO_FAULT)
        fault_record(kind, s, p->number, word, 0);
    return old;
}

/* Return a word that identifies the message and its worker in a group. */
static uint64_t group_word(uint64_t number)
{
    return (uint64_t)generation << 48 | (number + 1);
}

/* Check that no other message of this worker is running in the group. */
static void group_begin(const struct torture_seen *s,
                        const struct torture_plan *p)
{
    const char *name = torture_group(p->group);
    uint64_t other;

    if (!name != !s->group ||
        (name && (strlen(name) != s->group_size ||
                  memcmp(name, s->group, s->group_size) != 0)))
        fault_record(TORTURE_GROUP, s, p->number, 0, 0);
    if (p->group < 0)
        return;
    other = atomic_exchange(&world->groups[p->group].running,
                            group_word(p->number));
    if (other && other >> 48 == (generation & 0xffff))
        fault_record(TORTURE_GROUP_TWO, s, p->number, 0,
                     (other & ((UINT64_C(1) << 48) - 1)) - 1);
}

/* Check that no other message has entered the group meanwhile, and that first
 * ends come in order. The last number is stored before the record: after a kill
 * in between, the message runs again and is then itself the last.
 */
static void group_end(const struct torture_run *run, bool first)
{
    const struct torture_plan *p = &run->plan;
    struct torture_lane *lane = &world->groups[p->group];
    uint64_t mine = group_word(p->number);
    _Atomic uint64_t *last = &lane->last[p->producer][p->level];
    uint64_t before = atomic_load(last);
    /* The number does not determine the place of these messages. */
    bool late = p->fate == TORTURE_LATER ||
                torture_record(atomic_load(run->record)).flags & TORTURE_TORN;

    if (!run->fails && first && !late && before > p->number + 1)
        fault_record(TORTURE_GROUP_LATE, NULL, p->number,
                     atomic_load(run->record), before - 1);
    if (!run->fails && !late && before < p->number + 1)
        atomic_store(last, p->number + 1);
    if (!atomic_compare_exchange_strong(&lane->running, &mine, 0))
        fault_record(TORTURE_GROUP_TWO, NULL, p->number,
                     atomic_load(run->record),
                     (mine & ((UINT64_C(1) << 48) - 1)) - 1);
}

/* Return by how many ns the message runs too early, unless messages may be told
 * to run now. */
static uint64_t early_ns(const struct torture_seen *s)
{
    struct timespec ts;
    uint64_t now;

    if (s->not_before == 0 || world->terms.hurried)
        return 0;
    clock_gettime(CLOCK_REALTIME, &ts);
    now = (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
    return s->not_before > now ? s->not_before - now : 0;
}

void torture_begin(const struct torture_seen *s, struct torture_run *run)
{
    struct torture_plan *p = &run->plan;
    struct torture_record old;

    first_note();
    run->fate = TORTURE_DONE;
    run->fails = false;
    run->record = identify(s, p);
    if (!run->record)
        return;
    if (p->priority != s->priority)
        fault_record(TORTURE_PRIORITY, s, p->number, 0, s->priority);
    if (early_ns(s) > EARLY_NS)
        fault_record(TORTURE_EARLY, s, p->number, 0, early_ns(s));
    event_record(TORTURE_BEGIN, p->number, s, s->attempt);
    group_begin(s, p);
    old = record_begin(run->record, s, p);
    /* A replayed letter is done. */
    if (p->fate != TORTURE_DEAD || !(old.flags & TORTURE_REPLAYED))
        run->fate = p->fate;
    if (p->fate == TORTURE_DEAD && old.flags & TORTURE_MAY_REPEAT)
        run->fate = TORTURE_DONE;
    run->fails = run->fate == TORTURE_RETRY && s->attempt == 1;
}

void torture_dawdle(void)
{
    unsigned ms = atomic_load_explicit(&world->dawdle_ms, memory_order_relaxed);

    if (ms)
        nanosleep(&(struct timespec){.tv_sec = ms / 1000,
                                     .tv_nsec = ms % 1000 * 1000000},
                  NULL);
}

void torture_end(const struct torture_run *run)
{
    struct torture_record r;
    uint64_t word;

    if (!run->record)
        return;
    word = atomic_load(run->record);
    r = torture_record(word);
    event_record(run->fails ? TORTURE_FAIL : TORTURE_END, run->plan.number,
                 NULL, r.attempt);
    if (run->plan.group >= 0)
        group_end(run, r.ends == 0 && !(r.flags & TORTURE_MAY_REPEAT));
    do {
        r = torture_record(word);
        r.flags &= ~(unsigned)TORTURE_OPEN;
        if (run->fails) {
            r.flags |= TORTURE_FAILED;
            count(&r.failures);
        } else {
            count(&r.ends);
        }
    } while (
        !atomic_compare_exchange_weak(run->record, &word, torture_word(&r)));
    if (torture_record(word).generation != generation)
        fault_record(TORTURE_BESIDE, NULL, run->plan.number, word, 0);
}
