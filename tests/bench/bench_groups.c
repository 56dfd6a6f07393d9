/* bench_groups.c - ordered groups beside a plain queue, one message at a time
 *
 * The same messages go through both in turn, round by round, in the same order:
 * in by add (push), out by lease, peek, take, release (pop). One producer, and
 * the handler is empty. `steady`: so many messages wait, for each that is taken
 * another one comes. `burst`: all come, then all are taken. The medians of the
 * processor time are printed. --strict: exit 1 if a ratio that docs/ promises is
 * not reached.
 */
#include <bsd/sys/queue.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "worker/groups.h"

#define LARGEST   100000
#define LOOKAHEAD 64   /* that many wait unless the worker is told more */
#define LEAST     4096 /* messages of a round */
#define ROUNDS    101

enum { PLAIN, GROUPS, CONTENDERS };

struct key {
    size_t size;
    char text[24];
};

struct message {
    struct group_item item;
    TAILQ_ENTRY(message) link;
    const struct key *key;
};

/* What one round does, the same for both. */
struct load {
    size_t groups;
    size_t messages; /* that come */
    size_t waiting;  /* so many at once */
    double promised; /* ratio; 0: nothing */
    bool burst;
};

struct contender {
    void (*in)(struct message *m);
    struct message *(*out)(void);
};

static struct message message[LARGEST];
static struct message *slot[LARGEST]; /* the same in any order */
static struct key key[LARGEST];       /* of what comes, in turn */
static double sample[CONTENDERS][ROUNDS];

/* ---- the plain queue ---- */

static TAILQ_HEAD(, message) plain = TAILQ_HEAD_INITIALIZER(plain);
static pthread_mutex_t mtx = PTHREAD_MUTEX_INITIALIZER;

static void plain_in(struct message *m)
{
    pthread_mutex_lock(&mtx);
    TAILQ_INSERT_TAIL(&plain, m, link);
    pthread_mutex_unlock(&mtx);
}

static struct message *plain_out(void)
{
    struct message *m;

    pthread_mutex_lock(&mtx);
    m = TAILQ_FIRST(&plain);
    if (m)
        TAILQ_REMOVE(&plain, m, link);
    pthread_mutex_unlock(&mtx);
    return m;
}

/* ---- groups ---- */

static struct groups *groups;
static struct group *lease;
static uint64_t seq;

static void groups_in(struct message *m)
{
    m->item.seq = ++seq;
    m->item.priority = 0;
    if (groups_add(groups, m->key->text, m->key->size, &m->item))
        abort();
}

/* groups_out - as a thread of the worker does, one message after the other */
static struct message *groups_out(void)
{
    struct group_item *item;

    lease = lease ? groups_next(groups, lease) : groups_lease(groups);
    if (!lease)
        return NULL;
    item = groups_peek(groups, lease);
    groups_take(groups, lease, item, 0);
    return (struct message *)item;
}

/* ---- measuring ---- */

static const struct contender contenders[CONTENDERS] = {
    [PLAIN] = {plain_in, plain_out},
    [GROUPS] = {groups_in, groups_out},
};

/* random64 - splitmix64 */
static uint64_t random64(void)
{
    static uint64_t state = 42;
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* load_fill - each group gets its share, in any order; the messages lie in any
 * order too, as slots do when they have been in use for a while */
static void load_fill(const struct load *l)
{
    for (size_t i = 0; i < l->messages; i++) {
        size_t j = random64() % (i + 1), k = random64() % (i + 1);

        key[i] = key[j];
        key[j].size = (size_t)snprintf(key[j].text, sizeof key[j].text,
                                       "account-%06zu", i % l->groups);
        slot[i] = slot[k];
        slot[k] = &message[i];
    }
}

/* cpu_ns - time this thread has run; other programs do not count */
static uint64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* fill - the first ones come */
static void fill(const struct contender *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        slot[i]->key = &key[i];
        c->in(slot[i]);
    }
}

/* drain - all are taken; there must be `n` */
static void drain(const struct contender *c, size_t n)
{
    size_t out = 0;

    while (c->out())
        out++;
    if (out == n)
        return;
    fprintf(stderr, "%zu of %zu came out\n", out, n);
    exit(1);
}

/* take_steady - ns for one message, in and out */
static double take_steady(const struct contender *c, const struct load *l)
{
    uint64_t ns;

    fill(c, l->waiting);
    ns = cpu_ns();
    for (size_t i = 0; i < l->messages; i++) {
        struct message *m = c->out();

        m->key = &key[i];
        c->in(m);
    }
    ns = cpu_ns() - ns;
    drain(c, l->waiting);
    return (double)ns / (double)l->messages;
}

/* take_burst - the same */
static double take_burst(const struct contender *c, const struct load *l)
{
    uint64_t ns = cpu_ns();

    fill(c, l->messages);
    drain(c, l->messages);
    return (double)(cpu_ns() - ns) / (double)l->messages;
}

static int double_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* take_medians - rounds of both in turn */
static void take_medians(const struct load *l, double median[CONTENDERS])
{
    unsigned rounds = l->messages > LEAST ? 15 : ROUNDS;

    for (unsigned r = 0; r < rounds; r++)
        for (unsigned i = 0; i < CONTENDERS; i++) {
            unsigned c = (i + r) % CONTENDERS;

            load_fill(l);
            sample[c][r] =
                (l->burst ? take_burst : take_steady)(&contenders[c], l);
        }
    for (unsigned c = 0; c < CONTENDERS; c++) {
        qsort(sample[c], rounds, sizeof(double), double_compare);
        median[c] = sample[c][rounds / 2];
    }
}

/* bench_load - measure and print; whether the promise was kept */
static bool bench_load(const struct load *l)
{
    double median[CONTENDERS], ratio;

    take_medians(l, median);
    ratio = median[GROUPS] / median[PLAIN];
    printf("%7zu %8zu %-6s %7.1f %7.1f %6.2f", l->groups, l->waiting,
           l->burst ? "burst" : "steady", median[PLAIN], median[GROUPS], ratio);
    if (l->promised > 0)
        printf("  at most %.0f: %s", l->promised,
               ratio <= l->promised ? "ok" : "NOT REACHED");
    printf("\n");
    return l->promised <= 0 || ratio <= l->promised;
}

/* stay - be a second thread: alone, a program's locks cost next to nothing */
static void *stay(void *arg)
{
    (void)arg;
    pause();
    return NULL;
}

int main(int argc, char **argv)
{
    static const struct load loads[] = {
        {1, LEAST, LOOKAHEAD, 2, false},
        {1, LEAST, LEAST, 2, false},
        {1, LEAST, LEAST, 0, true},
        {1000, LEAST, LOOKAHEAD, 2, false},
        {1000, LEAST, LEAST, 2, false},
        {1000, LEAST, LEAST, 0, true},
        {LARGEST, LARGEST, LOOKAHEAD, 3, false},
        {LARGEST, LARGEST, LARGEST, 3, false},
        {LARGEST, LARGEST, LARGEST, 0, true},
    };
    bool strict = argc > 1 && !strcmp(argv[1], "--strict"), good = true;
    pthread_t other;

    if (pthread_create(&other, NULL, stay, NULL) || groups_open(&groups, 10))
        return 71;
    printf(" groups  waiting           plain  groups  ratio   ns a message\n");
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        good &= bench_load(&loads[i]);
    groups_close(&groups);
    return strict && !good;
}
